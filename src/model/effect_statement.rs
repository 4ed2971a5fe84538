//! The statement that a delivery runs in a database of somebody else's, as an integrator writes it.
//!
//! Values stand in it as `:webhook_id`, `:payload` and so on. They are bound, never put into the text. The statement runs in
//! one transaction with the guard, so it is one statement, and none that ends a transaction.

use crate::base::words::words;

/// The most characters of a statement.
pub const MAX_CHARACTERS: usize = 16_384;

/// The words that a statement may begin with. What defines tables would end the transaction of `MariaDB`.
const FIRST_WORDS: [&str; 10] =
    ["INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE", "WITH", "SELECT", "CALL", "EXEC", "EXECUTE"];

words! {
    /// A value of an event that a statement may use.
    pub enum EffectValue {
        /// The id of the delivery's event: the same at each attempt.
        WebhookId = "webhook_id",
        /// What happened.
        EventType = "event_type",
        /// What kind of thing it happened to.
        AggregateType = "aggregate_type",
        /// To which one.
        AggregateId = "aggregate_id",
        /// The body, as the subscription's format makes it.
        Payload = "payload",
        /// When it happened, or arrived: RFC 3339 in UTC.
        OccurredAt = "occurred_at",
        /// Whose event it is.
        Tenant = "tenant",
    }
}

/// A statement that was checked.
///
/// ```
/// use oncebox::model::effect_statement::EffectStatement;
/// let taken = EffectStatement::parse("UPDATE stock SET n = n - 1 WHERE article = :aggregate_id");
/// assert_eq!(taken.unwrap().sql, "UPDATE stock SET n = n - 1 WHERE article = ?");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectStatement {
    /// The statement, with a `?` for each value and without comments.
    pub sql: String,
    /// The values, in the order of the `?`.
    pub values: Vec<EffectValue>,
}

impl EffectStatement {
    /// Reads a statement. The error is a sentence without its full stop.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.chars().count() > MAX_CHARACTERS {
            return Err(format!("the statement has more than {MAX_CHARACTERS} characters"));
        }
        let mut reader = Reader { rest: text, sql: String::new(), values: Vec::new() };
        reader.read()?;
        let Reader { sql, values, .. } = reader;
        let sql = sql.trim().to_owned();
        let first = sql.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        if !FIRST_WORDS.contains(&first.to_ascii_uppercase().as_str()) {
            let known = FIRST_WORDS.join(", ");
            return Err(format!(
                "the statement begins with {first:?}; it is one statement that begins with {known}"
            ));
        }
        Ok(Self { sql, values })
    }
}

/// Reads a statement from left to right.
struct Reader<'t> {
    rest: &'t str,
    sql: String,
    values: Vec<EffectValue>,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<(), String> {
        while let Some(next) = self.rest.chars().next() {
            match next {
                '\'' | '"' | '`' => self.quoted(next)?,
                '-' if self.rest.starts_with("--") => self.skip_to("\n"),
                '/' if self.rest.starts_with("/*") => self.block_comment()?,
                ':' if self.rest.starts_with("::") => self.take(2),
                ':' => self.value()?,
                ';' => return self.end(),
                '?' => {
                    return Err(
                        "the statement has a ?, which stands for a value; write :payload and the like, and instead \
                         of an operator its function, such as jsonb_exists"
                            .to_owned(),
                    );
                }
                '$' if self.begins_dollar_quote() => {
                    return Err(
                        "the statement has a text between $ signs; put it between '".to_owned()
                    );
                }
                _ => self.take(next.len_utf8()),
            }
        }
        Ok(())
    }

    /// Takes bytes as they are.
    fn take(&mut self, bytes: usize) {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.sql.push_str(taken);
        self.rest = rest;
    }

    /// Leaves out what is before `end`; it is as good as a space.
    fn skip_to(&mut self, end: &str) {
        let at = self.rest.find(end).unwrap_or(self.rest.len());
        self.rest = self.rest.get(at..).unwrap_or_default();
        self.sql.push(' ');
    }

    fn block_comment(&mut self) -> Result<(), String> {
        if self.rest.starts_with("/*!") || self.rest.starts_with("/*M!") {
            return Err("the statement has a comment that MariaDB runs: /*!".to_owned());
        }
        let inside = self.rest.get(2..).unwrap_or_default();
        let Some(at) = inside.find("*/") else {
            return Err("a comment has no end: */ is missing".to_owned());
        };
        let comment = inside.get(..at).unwrap_or_default();
        if comment.contains("/*") {
            return Err("a comment stands in a comment".to_owned());
        }
        self.rest = inside.get(at..).and_then(|rest| rest.strip_prefix("*/")).unwrap_or_default();
        self.sql.push(' ');
        Ok(())
    }

    fn quoted(&mut self, quote: char) -> Result<(), String> {
        let inside = self.rest.get(1..).unwrap_or_default();
        let Some(at) = inside.find(quote) else {
            return Err(format!("a text or name has no end: {quote} is missing"));
        };
        if inside.get(..at).is_some_and(|text| text.contains('\\')) {
            return Err(format!(
                "a text between {quote} has a backslash, which databases read differently; use CHR(92) or CHAR(92)"
            ));
        }
        // Two quotes are one in a text: the second begins what is read as the next text.
        self.take(at.saturating_add(2));
        Ok(())
    }

    /// Whether a text of `PostgreSQL` between `$$` or `$name$` begins.
    fn begins_dollar_quote(&self) -> bool {
        let inside = self.rest.get(1..).unwrap_or_default();
        let name = inside.find(|c: char| !(c.is_alphanumeric() || c == '_'));
        name.is_some_and(|end| inside.get(end..).is_some_and(|rest| rest.starts_with('$')))
    }

    fn value(&mut self) -> Result<(), String> {
        let inside = self.rest.get(1..).unwrap_or_default();
        let end = inside.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let name = inside.get(..end.unwrap_or(inside.len())).unwrap_or_default();
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            self.take(1);
            return Ok(());
        }
        let Some(value) = EffectValue::parse(name) else {
            let known: Vec<String> =
                EffectValue::ALL.iter().map(|value| format!(":{value}")).collect();
            return Err(format!("there is no value :{name}; there are {}", known.join(", ")));
        };
        self.values.push(value);
        self.sql.push('?');
        self.rest = inside.get(name.len()..).unwrap_or_default();
        Ok(())
    }

    /// What follows the end of the statement: nothing but spaces and comments.
    fn end(&mut self) -> Result<(), String> {
        let before = std::mem::take(&mut self.sql);
        self.rest = self.rest.get(1..).unwrap_or_default();
        let values = self.values.len();
        self.read()?;
        let after = std::mem::replace(&mut self.sql, before);
        if after.trim().is_empty() && self.values.len() == values {
            return Ok(());
        }
        Err("there is more than one statement; put them into a procedure, and call it".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_bound_and_everything_else_stays_as_it_is() {
        use EffectValue::{AggregateId, Payload, WebhookId};
        let rows: [(&str, &str, &[EffectValue]); 9] = [
            (
                "UPDATE a SET n = 1 WHERE id = :aggregate_id",
                "UPDATE a SET n = 1 WHERE id = ?",
                &[AggregateId],
            ),
            (
                "insert into a values (:webhook_id, :payload::jsonb);\n",
                "insert into a values (?, ?::jsonb)",
                &[WebhookId, Payload],
            ),
            ("SELECT f(:payload,:payload)", "SELECT f(?,?)", &[Payload, Payload]),
            (
                "CALL p(':payload', 'it''s', \":payload\", `:payload`)",
                "CALL p(':payload', 'it''s', \":payload\", `:payload`)",
                &[],
            ),
            (
                "-- :payload\nDELETE FROM a -- ; x\nWHERE b = :payload",
                "DELETE FROM a  \nWHERE b = ?",
                &[Payload],
            ),
            ("/* what? ; */ EXEC p :payload", "EXEC p ?", &[Payload]),
            ("UPDATE a SET b = c[1:2], d = '10:30'", "UPDATE a SET b = c[1:2], d = '10:30'", &[]),
            (
                "WITH x AS (SELECT 'Größe €') INSERT INTO a SELECT * FROM x;  -- end",
                "WITH x AS (SELECT 'Größe €') INSERT INTO a SELECT * FROM x",
                &[],
            ),
            ("SELECT cost $ 1", "SELECT cost $ 1", &[]),
        ];
        for (text, sql, values) in rows {
            let expected = EffectStatement { sql: sql.to_owned(), values: values.to_vec() };
            assert_eq!(EffectStatement::parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_single_statement_is_refused_with_the_reason() {
        let long = format!("SELECT '{}'", "x".repeat(MAX_CHARACTERS));
        for (text, says) in [
            ("", "begins with \"\""),
            ("COMMIT", "begins with \"COMMIT\""),
            ("DROP TABLE a", "begins with \"DROP\""),
            ("BEGIN; UPDATE a SET b = 1; COMMIT", "more than one statement"),
            ("UPDATE a SET b = 1; :payload", "more than one statement"),
            ("UPDATE a SET b = :amount", "there is no value :amount; there are :webhook_id"),
            ("UPDATE a SET b = c ? 'd'", "has a ?"),
            ("UPDATE a SET b = 'it\\'s'", "backslash"),
            ("UPDATE a SET b = 'it", "has no end: '"),
            ("UPDATE a /* b", "has no end: */"),
            ("UPDATE a /* b /* c */ */", "comment stands in a comment"),
            ("UPDATE a SET b = $$c$$", "between $ signs"),
            ("UPDATE a SET b = $x$c$x$", "between $ signs"),
            ("SELECT /*!50000 SLEEP(1) */ 1", "MariaDB runs"),
            (&long, "more than 16384 characters"),
        ] {
            let error = EffectStatement::parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
