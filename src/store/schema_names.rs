//! Names of tables, views and indexes that the schema needs. In SQLite they share one list of names, and an ERP may keep its own
//! tables in the file: one of a name that Oncebox needs is reported before anything is changed.
//!
//! It reads the SQL of the schema and of its steps, where each such statement begins a line.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::Connection;

use crate::store::error::{Error, Result};

const TAKEN: &str = "
    SELECT lower(name), lower(tbl_name)
      FROM sqlite_master
     WHERE type IN ('table', 'view', 'index')";

/// Fails with `NameTaken` if running these texts one after the other would make something whose name is taken.
pub(crate) fn check(
    path: &Path,
    conn: &Connection,
    texts: impl Iterator<Item = &'static str>,
) -> Result<()> {
    let mut statement = conn.prepare(TAKEN)?;
    let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut taken = Taken(found.collect::<rusqlite::Result<_>>()?);
    for line in texts.flat_map(str::lines) {
        if let Some(name) = taken.run(line) {
            return Err(Error::NameTaken { path: path.to_owned(), name });
        }
    }
    Ok(())
}

/// The names in use, each with the table that it is or belongs to.
struct Taken(BTreeMap<String, String>);

impl Taken {
    /// Follows a line of SQL; returns the name that it needs and cannot have.
    fn run(&mut self, line: &str) -> Option<String> {
        let mut words = line
            .split(|c: char| c.is_whitespace() || c == '(' || c == ';')
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase);
        let mut next = || words.next().unwrap_or_default();
        let verb = next();
        let mut kind = next();
        if kind == "unique" {
            kind = next();
        }
        let name = next();
        match (verb.as_str(), kind.as_str()) {
            // A view for reports: it is left out if an ERP has the name.
            ("create", "view") if name == "if" => None,
            ("create", "table" | "view") => self.take(name.clone(), name),
            ("create", "index") => {
                let _on = next();
                self.take(name, next())
            }
            ("drop", "table") => {
                self.0.retain(|_, of| *of != name);
                None
            }
            ("drop", "view" | "index") => {
                self.0.remove(&name);
                None
            }
            ("alter", "table") if next() == "rename" && next() == "to" => {
                let new = next();
                self.0.remove(&name);
                for of in self.0.values_mut().filter(|of| **of == name) {
                    of.clone_from(&new);
                }
                self.take(new.clone(), new)
            }
            _ => None,
        }
    }

    fn take(&mut self, name: String, of: String) -> Option<String> {
        self.0.insert(name.clone(), of).map(|_| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::schema::Steps;
    use crate::store::schema_shape::SCHEMA;

    fn checked(before: &str, texts: &[&'static str]) -> Result<()> {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(before).unwrap();
        check(Path::new("oncebox.db"), &conn, texts.iter().copied())
    }

    /// What is reported is what SQLite refuses.
    #[test]
    fn each_name_of_the_schema_is_known_and_none_of_an_empty_file_is_taken() {
        assert!(checked("", &[SCHEMA]).is_ok());
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(SCHEMA).unwrap();
        let mut statement = conn
            .prepare(
                "SELECT name, type FROM sqlite_master WHERE type <> 'trigger' AND name NOT LIKE 'sqlite%'",
            )
            .unwrap();
        let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        let found: Vec<(String, String)> = found.collect::<rusqlite::Result<_>>().unwrap();
        assert!(found.len() > 100, "{}", found.len());
        for (name, kind) in found {
            let table = format!("CREATE TABLE {} (no INTEGER)", name.to_uppercase());
            let refused = checked(&table, &[SCHEMA]);
            assert_eq!(refused.is_err(), kind != "view", "{kind} {name}");
            if let Err(error) = refused {
                assert!(
                    error.to_string().contains(&format!("ALTER TABLE {name} RENAME")),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn a_name_that_a_step_needs_is_free_again_if_a_step_frees_it() {
        let ours = "CREATE TABLE holds (no INTEGER); CREATE INDEX holds_no ON holds (no);";
        let recreates = "CREATE TABLE holds_2 (\nno INTEGER);\nDROP TABLE holds;\nALTER TABLE holds_2 RENAME TO holds;\n\
                         CREATE INDEX holds_no ON holds (no);";
        assert!(checked(ours, &[recreates]).is_ok());
        assert!(checked(ours, &[recreates, "DROP INDEX holds_no;", recreates]).is_ok());
        assert!(checked(ours, &["CREATE UNIQUE INDEX Holds_No ON holds (no);"]).is_err());
        let theirs = format!("{ours} CREATE TABLE holds_2 (no INTEGER);");
        assert!(checked(&theirs, &[recreates]).is_err());
        assert!(checked("CREATE TABLE search_values (no INTEGER)", Steps::RELEASED.sql).is_err());
    }
}
