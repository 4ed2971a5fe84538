//! The name of a table of somebody else's into which events are written.

use std::fmt;

/// The most characters of a name.
const MAX_CHARACTERS: usize = 128;

/// A table, as it stands in SQL: letters, digits and `_`, perhaps with its schema.
///
/// ```
/// use oncebox::model::inbox_table::InboxTable;
/// assert_eq!(InboxTable::parse("erp.oncebox_inbox").unwrap().to_string(), "erp.oncebox_inbox");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxTable(String);

impl InboxTable {
    /// Reads a name. The error is a sentence without its full stop.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_name = |part: &str| {
            part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let parts: Vec<&str> = text.split('.').collect();
        if text.len() <= MAX_CHARACTERS && parts.len() <= 2 && parts.into_iter().all(is_name) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "{text:?} is no table: its name has letters, digits and _, and may have its schema before it, like \
             erp.oncebox_inbox"
        ))
    }
}

impl fmt::Display for InboxTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_could_be_more_than_a_name_is_refused() {
        for name in ["oncebox_inbox", "erp.Inbox_2", "_x"] {
            assert_eq!(InboxTable::parse(name).unwrap().to_string(), name);
        }
        let long = "x".repeat(MAX_CHARACTERS + 1);
        for name in ["", "a.b.c", "2x", "a b", "a;b", "a\"b", "größe", ".a", "a.", &long] {
            assert!(InboxTable::parse(name).unwrap_err().contains("no table"), "{name}");
        }
    }
}
