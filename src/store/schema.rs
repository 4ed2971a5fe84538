//! Opening the file: schema versions, and the pragmas that durability rests on.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, OpenFlags};
use rusqlite_migration::{M, Migrations};

use crate::id;
use crate::store::error::{Error, Result};

/// The schema, as it stands at the root of the repository.
#[cfg(test)]
pub(crate) const SCHEMA: &str = include_str!("../../schema.sql");
/// The schema version this program writes: the number of steps in [`steps`].
pub(crate) const VERSION: i64 = 2;
/// How often a locked database is tried again, a millisecond apart, before it is `Busy`.
const BUSY_TRIES_MOST: i32 = 2_000;
/// Statements kept prepared per connection: above the number of statements in `store`.
const STATEMENTS_KEPT: usize = 128;

/// One step per released schema version, in order. A released step is never edited.
fn steps() -> Migrations<'static> {
    Migrations::new(vec![
        M::up(include_str!("migrations/1.sql")),
        M::up(include_str!("migrations/2.sql")),
    ])
}

/// Opens the write connection, makes or upgrades the schema, and asserts the pragmas.
#[expect(clippy::disallowed_methods, reason = "the store is what opens the database")]
pub(crate) fn open_writer(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(path, flags)?;
    conn.busy_handler(Some(wait_for_lock))?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    let have: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if have > VERSION {
        return Err(Error::TooNew { path: path.to_owned(), have, know: VERSION });
    }
    // page_size and auto_vacuum only take before the first table is made.
    conn.execute_batch(
        "PRAGMA page_size = 4096;
         PRAGMA auto_vacuum = INCREMENTAL;
         PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA foreign_keys = ON;
         PRAGMA secure_delete = ON;
         PRAGMA temp_store = MEMORY;
         PRAGMA cache_size = -16000;
         PRAGMA wal_autocheckpoint = 4000;
         PRAGMA trusted_schema = OFF;",
    )?;
    steps().to_latest(&mut conn)?;
    assert_pragmas(path, &conn)?;
    sync_directory(path)?;
    Ok(conn)
}

/// Sets up a connection that only reads.
pub(crate) fn configure_reader(conn: &Connection) -> Result<()> {
    conn.busy_handler(Some(wait_for_lock))?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    conn.execute_batch(
        "PRAGMA query_only = ON;
         PRAGMA temp_store = MEMORY;
         PRAGMA cache_size = -1500;
         PRAGMA trusted_schema = OFF;",
    )?;
    // Lets a list be searched by webhook-id, which is computed from the identity and not stored.
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    conn.create_scalar_function("webhook_id", 3, flags, |call| {
        let (tenant, source, key): (String, String, String) =
            (call.get(0)?, call.get(1)?, call.get(2)?);
        Ok(id::webhook_id(&tenant, &source, &key))
    })?;
    Ok(())
}

fn assert_pragmas(path: &Path, conn: &Connection) -> Result<()> {
    for (pragma, want) in [
        ("journal_mode", "wal"),
        ("synchronous", "2"),
        ("foreign_keys", "1"),
        ("page_size", "4096"),
        ("auto_vacuum", "2"),
        ("secure_delete", "1"),
    ] {
        let have = conn.query_row(&format!("PRAGMA {pragma}"), [], |row| {
            row.get_ref(0).map(|value| match value {
                rusqlite::types::ValueRef::Integer(number) => number.to_string(),
                other => other.as_str().unwrap_or("?").to_owned(),
            })
        })?;
        if have != want {
            return Err(Error::Pragma { path: path.to_owned(), pragma, have, want });
        }
    }
    Ok(())
}

/// A file that was just made is only durable when its directory entry is.
fn sync_directory(path: &Path) -> Result<()> {
    let directory =
        path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    std::fs::File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|source| Error::File { path: directory.to_owned(), source: Arc::new(source) })
}

#[expect(clippy::disallowed_methods, reason = "SQLite calls this and wants to be kept waiting")]
fn wait_for_lock(tries: i32) -> bool {
    std::thread::sleep(Duration::from_millis(1));
    tries < BUSY_TRIES_MOST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_steps_is_the_version() {
        steps().validate().unwrap();
        let mut conn = Connection::open_in_memory().unwrap();
        steps().to_latest(&mut conn).unwrap();
        let version: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
        assert_eq!(version, VERSION);
    }

    /// Every object of a schema: its kind, its name and its text.
    fn objects(conn: &Connection) -> Vec<(String, String, Option<String>)> {
        let sql = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name";
        let mut statement = conn.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        rows.unwrap().map(std::result::Result::unwrap).collect()
    }

    #[test]
    fn the_steps_lead_to_schema_sql() {
        let mut stepped = Connection::open_in_memory().unwrap();
        steps().to_latest(&mut stepped).unwrap();
        let written = Connection::open_in_memory().unwrap();
        written.execute_batch(SCHEMA).unwrap();
        assert_eq!(objects(&stepped), objects(&written));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test plays the newer version")]
    fn a_file_of_a_newer_version_is_refused_by_both_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("oncebox.db");
        drop(open_writer(&path).unwrap());
        let conn = Connection::open(&path).unwrap();
        conn.pragma_update(None, "user_version", 99).unwrap();
        let refusal = open_writer(&path).unwrap_err().to_string();
        assert!(refusal.contains("version 99") && refusal.contains("up to 2"), "{refusal}");
    }

    #[test]
    fn a_file_that_is_no_database_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("oncebox.db");
        std::fs::write(&path, "this is somebody's letter, and a long one at that ".repeat(200))
            .unwrap();
        let before = std::fs::read(&path).unwrap();
        assert!(open_writer(&path).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}
