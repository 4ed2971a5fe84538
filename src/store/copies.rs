//! A copy of the file while it is written, and what a copy holds.
//!
//! SQLite's backup API reads through a connection of its own that stays in one read transaction, so that
//! the copy is the file as it was at one commit, however long the copying takes and whatever the writer
//! does meanwhile (docs/decisions/0006-backup.md). Not here: where copies lie, what they are called.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use crate::store::error::{Error, Result};
use crate::store::{pool, schema, schema_shape};

/// Pages copied between two looks at whether to go on: 1 MiB.
const PAGES_A_STEP: i32 = 256;
/// Steps after which what was written is pushed to the disk, so that the last sync is short.
const STEPS_A_SYNC: u32 = 16;
/// What may stand in the path of an SQLite URI as it is.
const PLAIN: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');

const BEGIN_TO_READ: &str = "
    SELECT count(*)
      FROM sqlite_master";

const HAS_TABLE: &str = "
    SELECT EXISTS (
           SELECT 1
             FROM sqlite_master
            WHERE type = 'table'
              AND name = ?1)";

const SEQUENCES: &str = "
    SELECT name, seq
      FROM sqlite_sequence
     ORDER BY name";

const META: &str = "
    SELECT value
      FROM meta
     WHERE key = ?1";

/// The tables whose rows are counted.
const COUNTED: [(&str, &str); 11] = [
    ("attempts", "SELECT count(*) FROM attempts"),
    ("audit_events", "SELECT count(*) FROM audit_events"),
    ("credentials", "SELECT count(*) FROM credentials"),
    ("deliveries", "SELECT count(*) FROM deliveries"),
    ("outbox", "SELECT count(*) FROM outbox"),
    ("processed_events", "SELECT count(*) FROM processed_events"),
    ("providers", "SELECT count(*) FROM providers"),
    ("subscriptions", "SELECT count(*) FROM subscriptions"),
    ("tenants", "SELECT count(*) FROM tenants"),
    ("tokens", "SELECT count(*) FROM tokens"),
    ("webhook_events", "SELECT count(*) FROM webhook_events"),
];

/// How far a copy has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Pages copied.
    pub done: u64,
    /// Pages there are.
    pub all: u64,
}

/// What a file holds, as a manifest lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its schema version.
    pub schema_version: i64,
    /// The program version that made the schema what it is.
    pub made_by: Option<String>,
    /// How often it was restored.
    pub epoch: u32,
    /// The id of the key that sealed its secrets.
    pub master_key_id: Option<String>,
    /// Rows of each of our tables that it has.
    pub rows: BTreeMap<String, u64>,
    /// The highest number each table has given.
    pub highest: BTreeMap<String, i64>,
    /// Bytes of a page.
    pub page_size: u64,
    /// Pages.
    pub page_count: u64,
}

/// Bytes that a copy of the file will have.
///
/// # Errors
/// When the file cannot be read.
pub fn size(source: &Path) -> Result<u64> {
    let conn = pool::open_reader(source)?;
    Ok(number(&conn, "PRAGMA page_count")? * number(&conn, "PRAGMA page_size")?)
}

/// Copies `source`, which may be written meanwhile, into the empty file `target`, and makes that one a
/// file that needs no write-ahead log beside it. `go_on` is asked after each MiB. The copy is not on the
/// disk yet when this returns.
///
/// # Errors
/// `Stopped` when `go_on` said no; `Full` when there was no room.
pub fn copy(source: &Path, target: &Path, go_on: &mut dyn FnMut(Progress) -> bool) -> Result<()> {
    let from = pool::open_reader(source)?;
    schema::version(source, &from)?;
    from.execute_batch("BEGIN")?;
    // Only a read begins the transaction; from here on this connection sees one commit.
    let _: i64 = from.query_row(BEGIN_TO_READ, [], |row| row.get(0))?;
    let mut to = open_copy(target)?;
    copy_steps(&from, &mut to, target, go_on)?;
    // The copied header says that there is a log.
    to.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))?;
    Ok(())
}

fn copy_steps(
    from: &Connection,
    to: &mut Connection,
    target: &Path,
    go_on: &mut dyn FnMut(Progress) -> bool,
) -> Result<()> {
    let written = File::options().write(true).open(target).map_err(file_error(target))?;
    let backup = Backup::new(from, to)?;
    for step in 1_u32.. {
        let result = backup.step(PAGES_A_STEP)?;
        let progress = backup.progress();
        let all = u64::try_from(progress.pagecount).unwrap_or(0);
        let left = u64::try_from(progress.remaining).unwrap_or(0);
        if !go_on(Progress { done: all.saturating_sub(left), all }) {
            return Err(Error::Stopped);
        }
        match result {
            StepResult::Done => return Ok(()),
            StepResult::More => {}
            _ => return Err(Error::Busy),
        }
        if step % STEPS_A_SYNC == 0 {
            written.sync_data().map_err(file_error(target))?;
        }
    }
    Ok(())
}

/// A connection that writes a copy. Nobody else has it open, so that it takes no locks; it is worthless
/// until it is whole, so that it keeps no journal; whoever made the file syncs it.
fn open_copy(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags_and_vfs(path, flags, c"unix-none")?;
    conn.execute_batch(
        "PRAGMA locking_mode = EXCLUSIVE;
         PRAGMA journal_mode = OFF;
         PRAGMA synchronous = OFF;
         PRAGMA cache_size = -4000;",
    )?;
    Ok(conn)
}

/// Reads all of a file that nobody writes: its structure, where its rows point, and what it holds.
///
/// # Errors
/// `Damaged` when SQLite finds fault with it, `TooNew` when this version cannot read it.
pub fn check(path: &Path) -> Result<Facts> {
    let conn = open_still(path)?;
    schema::version(path, &conn)?
        .ok_or_else(|| damaged(path, "it holds no tables of oncebox".to_owned()))?;
    let integrity: String =
        conn.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(unread(path))?;
    if integrity != "ok" {
        return Err(damaged(path, integrity));
    }
    if let Some(table) = schema_shape::orphans(&conn, 1)?.first() {
        return Err(damaged(path, format!("a row of {table} points nowhere")));
    }
    facts(&conn)
}

/// What a file that may be written meanwhile says of itself; rows are not counted.
///
/// # Errors
/// When it cannot be read, or is newer than this version.
pub fn identity(path: &Path) -> Result<Facts> {
    let conn = pool::open_reader(path)?;
    schema::version(path, &conn)?;
    let (rows, found) = (BTreeMap::new(), facts(&conn)?);
    Ok(Facts { rows, ..found })
}

/// How a file's schema differs from the one this version needs, object by object.
///
/// # Errors
/// When it cannot be read.
pub fn schema_differences(path: &Path) -> Result<Vec<String>> {
    schema_shape::differences(&open_still(path)?)
}

fn facts(conn: &Connection) -> Result<Facts> {
    let mut rows = BTreeMap::new();
    for (table, count) in COUNTED {
        if conn.query_row(HAS_TABLE, [table], |row| row.get(0))? {
            let _before = rows.insert(table.to_owned(), number(conn, count)?);
        }
    }
    let mut sequences = conn.prepare(SEQUENCES)?;
    let highest = sequences.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let epoch: Option<i64> = conn.query_row(META, ["epoch"], |row| row.get(0)).optional()?;
    Ok(Facts {
        schema_version: conn.query_row("PRAGMA user_version", [], |row| row.get(0))?,
        made_by: schema::made_by(conn)?,
        epoch: epoch.and_then(|epoch| u32::try_from(epoch).ok()).unwrap_or(0),
        master_key_id: conn.query_row(META, ["master_key_id"], |row| row.get(0)).optional()?,
        rows,
        highest: highest.collect::<rusqlite::Result<_>>()?,
        page_size: number(conn, "PRAGMA page_size")?,
        page_count: number(conn, "PRAGMA page_count")?,
    })
}

fn number(conn: &Connection, sql: &str) -> Result<u64> {
    let number: i64 = conn.query_row(sql, [], |row| row.get(0))?;
    Ok(number.unsigned_abs())
}

/// A reader of a file that nobody writes: SQLite takes no locks and makes nothing beside it.
#[expect(clippy::disallowed_methods, reason = "the store is what opens the database")]
fn open_still(path: &Path) -> Result<Connection> {
    let absolute = std::path::absolute(path).map_err(file_error(path))?;
    let escaped = percent_encode(absolute.as_os_str().as_encoded_bytes(), PLAIN).to_string();
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(format!("file:{escaped}?immutable=1"), flags)?;
    conn.execute_batch("PRAGMA query_only = ON; PRAGMA trusted_schema = OFF;")
        .map_err(unread(path))?;
    Ok(conn)
}

fn damaged(path: &Path, what: String) -> Error {
    Error::Damaged { path: path.to_owned(), what }
}

/// What SQLite cannot read in a file that nobody writes is damage.
fn unread(path: &Path) -> impl FnOnce(rusqlite::Error) -> Error {
    let path = path.to_owned();
    move |error| damaged(&path, error.to_string())
}

fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { path, source: Arc::new(source) }
}
