//! Comparing schemas: that of a file, which may result from upgrade steps, with `schema.sql`.
//!
//! Only our own objects count: an ERP may keep its tables in the same file.

use std::collections::BTreeMap;

use rusqlite::Connection;

use crate::store::error::Result;

/// The text of `schema.sql`.
pub(crate) const SCHEMA: &str = include_str!("../../schema.sql");

const OBJECTS: &str = "
    SELECT type, name, sql
      FROM sqlite_master
     WHERE sql IS NOT NULL
       AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";

const ORPHANS: &str = "
    SELECT \"table\"
      FROM pragma_foreign_key_check(?1)";

/// Every object by kind and name, with its SQL without comments and redundant white space.
pub(crate) type Shape = BTreeMap<(String, String), String>;

/// The shape of a file.
pub(crate) fn shape(conn: &Connection) -> Result<Shape> {
    let mut statement = conn.prepare(OBJECTS)?;
    let found = statement.query_map([], |row| {
        let name: String = row.get(1)?;
        let sql: String = row.get(2)?;
        // SQLite writes the name of a renamed table in quotes.
        let sql = sql.replacen(&format!("\"{name}\""), &name, 1);
        Ok(((row.get(0)?, name), bare(&sql)))
    })?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

/// How a file differs from `schema.sql`: one line per object.
pub(crate) fn differences(conn: &Connection) -> Result<Vec<String>> {
    let wanted = wanted()?;
    let have = shape(conn)?;
    let mut found = Vec::new();
    for ((kind, name), sql) in &wanted {
        match have.get(&(kind.clone(), name.clone())) {
            // An ERP's own table of the name keeps a view out. Nothing here reads the views.
            None if kind == "view" && have.contains_key(&("table".to_owned(), name.clone())) => {}
            None => found.push(format!("{kind} {name} is missing")),
            Some(other) if other != sql => found.push(format!("{kind} {name} differs: {other}")),
            Some(_) => {}
        }
    }
    Ok(found)
}

/// At most `most` rows of our own tables whose foreign key refers to no row; returns the table's name for each row.
/// An ERP's tables in the same file are not checked.
pub(crate) fn orphans(conn: &Connection, most: usize) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for ((kind, table), _) in wanted()? {
        let exists = kind == "table" && conn.table_exists(None::<&str>, table.as_str())?;
        if !exists {
            continue;
        }
        let mut statement = conn.prepare(ORPHANS)?;
        let rows = statement.query_map([&table], |row| row.get::<_, String>(0))?;
        for row in rows.take(most.saturating_sub(found.len())) {
            found.push(row?);
        }
    }
    Ok(found)
}

fn wanted() -> Result<Shape> {
    let written = Connection::open_in_memory()?;
    written.execute_batch(SCHEMA)?;
    shape(&written)
}

/// SQL without comments and without redundant white space.
pub(super) fn bare(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len());
    let mut quote = None;
    let mut rest = sql.chars().peekable();
    while let Some(c) = rest.next() {
        match quote {
            Some(end) => {
                out.push(c);
                if c == end {
                    quote = None;
                }
            }
            None if c == '-' && rest.peek() == Some(&'-') => {
                while rest.next().is_some_and(|c| c != '\n') {}
                space(&mut out);
            }
            None if c.is_whitespace() => space(&mut out),
            None if matches!(c, '(' | ')' | ',' | '=' | '<' | '>') => {
                out.truncate(out.trim_end().len());
                out.push(c);
                while rest.next_if(|c| c.is_whitespace()).is_some() {}
            }
            None => {
                quote = matches!(c, '\'' | '"').then_some(c);
                out.push(c);
            }
        }
    }
    out
}

fn space(out: &mut String) {
    if !out.ends_with([' ', '(', ')', ',', '=', '<', '>']) {
        out.push(' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_white_space_mean_nothing() {
        let written = "CREATE TABLE t (\n  a TEXT, -- the a's\n  -- more\n  b INTEGER CHECK (b > 0),\n  CHECK (a <> ' -- ')\n)";
        let stepped = "CREATE TABLE t(a TEXT, b INTEGER CHECK(b>0), CHECK(a<>' -- '))";
        assert_eq!(bare(written), bare(stepped));
        assert_ne!(
            bare(written),
            bare("CREATE TABLE t(a TEXT, b INTEGER CHECK(b>0), CHECK(a<>'--'))")
        );
    }

    #[test]
    fn an_added_column_equals_a_column_that_was_written_last() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE t (a TEXT, CONSTRAINT c CHECK (a <> '')) STRICT").unwrap();
        conn.execute_batch("ALTER TABLE t ADD COLUMN b INTEGER NOT NULL DEFAULT 0").unwrap();
        let written = "CREATE TABLE t (\n a TEXT,\n b INTEGER NOT NULL DEFAULT 0, CONSTRAINT c CHECK (a <> '')\n) STRICT";
        let have = shape(&conn).unwrap();
        assert_eq!(have.values().next(), Some(&bare(written)));
    }

    #[test]
    fn what_is_missing_or_changed_is_named_and_the_tables_of_others_are_not() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(SCHEMA).unwrap();
        conn.execute_batch("CREATE TABLE invoices (n INTEGER)").unwrap();
        assert_eq!(differences(&conn).unwrap(), [""; 0]);
        conn.execute_batch("DROP INDEX deliveries_due; ALTER TABLE boots ADD COLUMN x TEXT")
            .unwrap();
        let found = differences(&conn).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0], "index deliveries_due is missing");
    }
}
