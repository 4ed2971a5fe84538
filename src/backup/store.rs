//! The SQL of backups: copying the file while it is in use, describing a copy, and preparing a restored one.
//!
//! SQLite's backup API reads through its own connection in one read transaction. So the copy is the file as of one
//! commit, however long the copying takes (docs/decisions/0006-backup.md).

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use serde::{Deserialize, Serialize};

use crate::archive::tables::check;
use crate::archive::{ArchivedKind, Month};
use crate::base::clock::Timestamp;
use crate::base::faults::Faults;
use crate::base::id::DeliverySeq;
use crate::model::audit::changes::Changes;
use crate::model::audit::{Actor, NewAuditEvent};
use crate::model::in_doubt::{Fence, Window};
use crate::model::name::DEFAULT_TENANT;
use crate::store::error::{Error, Result};
use crate::store::meta::{self, Restored};
use crate::store::schema::Steps;
use crate::store::subjects::KeyId;
use crate::store::tx::WriteTx;
use crate::store::{
    audit_events, in_doubt, pool, read_only, schema, schema_shape, settlement, writer,
};

/// Pages copied per step: half a MiB of a new file, 1 MiB of a file with pages of 4 KiB.
const PAGES_A_STEP: i32 = 256;
/// Steps between two syncs, so that the last sync is short.
const STEPS_A_SYNC: u32 = 16;
/// Characters that need no escape in the path of an SQLite URI.
const PLAIN: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');

const HAS_TABLE: &str =
    "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1)";

// It changes for this connection when another one commits.
const DATA_VERSION: &str = "PRAGMA data_version";

const META: &str = "SELECT value FROM meta WHERE key = ?1";

/// The tables whose rows are counted.
const COUNTED: [(&str, &str); 12] = [
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
    ("users", "SELECT count(*) FROM users"),
    ("webhook_events", "SELECT count(*) FROM webhook_events"),
];
/// Deliveries moved in one transaction.
const MAX_DELIVERIES: u32 = 2000;
/// How far a restore advances each table's numbers, so that a number given after the backup is not given again. For
/// events it covers years of work, because a program may store `seq` as its cursor. For deliveries less is enough,
/// because only people's notes contain their numbers, and people read and type them.
/// Bodies and failures have numbers in the archive as well, which keeps what was moved after the backup.
const NUMBERS_SKIPPED: [(&str, i64); 5] = [
    ("webhook_events", 1_000_000_000),
    ("outbox", 1_000_000_000),
    ("payloads", 1_000_000_000),
    ("deliveries", 1_000_000),
    ("failures", 1_000_000),
];

const SKIP_NUMBERS: &str = "UPDATE sqlite_sequence SET seq = seq + ?2 WHERE name = ?1";

// What a job has done after the backup is not known, so it must not go on unasked.
const STOP_JOBS: &str =
    "UPDATE jobs SET state = 'cancelled', finished_at = ?1 WHERE state = 'running'";

// An effect that was under way during the backup was finished after it. What was lost with a master key is still told.
const FORGET_CLAIMS: &str = "DELETE FROM claimed_effects WHERE kind <> 'master_key.abandon'";

// A session or link that was ended after the backup must not be valid again.
const END_SESSIONS: &str = "UPDATE sessions SET ended_at = ?1 WHERE ended_at IS NULL";

// A table that never had a row has no number yet.
const BEGIN_NUMBERS: &str = "INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)";

/// The progress of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Pages copied.
    pub done: u64,
    /// All pages.
    pub all: u64,
}

/// What a file contains, as listed in a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Its schema version.
    pub schema_version: i64,
    /// How often it was restored.
    pub epoch: u32,
    /// The id of the key that sealed its secrets.
    pub master_key_id: Option<String>,
    /// Rows of each of our tables in it.
    pub rows: BTreeMap<String, u64>,
    /// The highest number each table has given.
    pub highest: BTreeMap<String, i64>,
    /// Bytes of a page.
    pub page_size: u64,
    /// Pages.
    pub page_count: u64,
}

/// A file as of one commit, for as long as this exists. The file may be written meanwhile.
#[derive(Debug)]
pub struct Snapshot {
    conn: Connection,
    version: i64,
}

impl Snapshot {
    /// Opens a file.
    pub fn open(source: &Path) -> Result<Self> {
        let conn = pool::open_reader(source)?;
        schema::version(source, &conn)?;
        let version = conn.query_row(DATA_VERSION, [], |row| row.get(0))?;
        Ok(Self { conn, version })
    }

    /// From here on one commit is seen. `false`: it is a later one than when the file was opened.
    pub fn begin(&self) -> Result<bool> {
        self.conn.execute_batch("BEGIN")?;
        // The first read begins the transaction.
        let version: i64 = self.conn.query_row(DATA_VERSION, [], |row| row.get(0))?;
        Ok(version == self.version)
    }

    /// Copies it into the empty file `target`, without a write-ahead log. `go_on` is asked after each MiB; `Stopped` if it
    /// says no. The copy is not synced yet when this returns.
    pub fn copy(&self, target: &Path, go_on: &mut dyn FnMut(Progress) -> bool) -> Result<()> {
        let mut to = open_copy(target)?;
        copy_steps(&self.conn, &mut to, target, go_on)?;
        // The copied header says that the file uses a log.
        Ok(to.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))?)
    }
}

/// Bytes that a copy of the file will have.
pub fn size(source: &Path) -> Result<u64> {
    let conn = pool::open_reader(source)?;
    Ok(number(&conn, "PRAGMA page_count")? * number(&conn, "PRAGMA page_size")?)
}

/// Copies a file as [`Snapshot::copy`] does.
pub fn copy(source: &Path, target: &Path, go_on: &mut dyn FnMut(Progress) -> bool) -> Result<()> {
    let snapshot = Snapshot::open(source)?;
    snapshot.begin()?;
    snapshot.copy(target, go_on)
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

/// A connection that writes a copy. No other process opens the copy, so it takes no locks. An incomplete copy is
/// discarded, so it keeps no journal. The caller syncs the file.
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

/// Checks the structure and the references of a file that no process writes, and describes it. `Damaged` if SQLite
/// finds a fault, `TooNew` if this version cannot read it.
pub fn check(path: &Path) -> Result<Facts> {
    let conn = open_still(path)?;
    schema::version(path, &conn)?
        .ok_or_else(|| damaged(path, "it contains no tables of oncebox".to_owned()))?;
    let integrity: String =
        conn.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(unread(path))?;
    if integrity != "ok" {
        return Err(damaged(path, integrity));
    }
    if let Some(table) = schema_shape::orphans(&conn, 1)?.first() {
        return Err(damaged(path, format!("a row of {table} refers to a missing row")));
    }
    facts(&conn)
}

/// Describes a file that may be written meanwhile, without counting rows.
pub fn identity(path: &Path) -> Result<Facts> {
    let conn = pool::open_reader(path)?;
    schema::version(path, &conn)?;
    let rows = BTreeMap::new();
    let found = facts(&conn)?;
    Ok(Facts { rows, ..found })
}

/// How a file's schema differs from the one this version needs, object by object.
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
    let mut sequences = conn.prepare("SELECT name, seq FROM sqlite_sequence ORDER BY name")?;
    let highest = sequences.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let epoch: Option<i64> = conn.query_row(META, ["epoch"], |row| row.get(0)).optional()?;
    Ok(Facts {
        schema_version: conn.query_row("PRAGMA user_version", [], |row| row.get(0))?,
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

/// A reader of a file that no process writes: SQLite takes no locks and creates no other file.
#[expect(clippy::disallowed_methods, reason = "a copy is opened, not the database")]
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

/// A read error as damage, which it is in a file that no process writes.
fn unread(path: &Path) -> impl FnOnce(rusqlite::Error) -> Error {
    let path = path.to_owned();
    move |error| damaged(&path, error.to_string())
}

fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { path, source: Arc::new(source) }
}

/// What a restore changed in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreChanges {
    /// The file's epoch now.
    pub epoch: u32,
    /// Deliveries that are in doubt now.
    pub in_doubt: u64,
    /// Subject keys that were destroyed after the backup, and are destroyed in the copy too.
    pub erased: u64,
}

/// Prepares a copy of a backup for use: upgrades it, gives it a new epoch, and marks every open delivery as in doubt,
/// because it may have been delivered after the backup.
///
/// No other process has the file open, and an incomplete one is discarded. It is still written in small transactions,
/// so that a large file needs no large log.
pub fn prepare_restored(
    path: &Path,
    restored: &Restored,
    window: Option<Window>,
    key_id: &str,
    who: &Actor,
    erasures: &[(KeyId, Timestamp)],
) -> Result<RestoreChanges> {
    if schema::schema_version(path)?.is_some_and(|have| have < schema::VERSION) {
        let _from =
            schema::migrate(path, Steps::RELEASED, &(restored.at, who.clone()), &Faults::none())?;
    }
    let (_writer, mut file) = writer::pair(schema::open_writer(path)?, Faults::none())?;
    let epoch = file.direct(|tx| {
        let epoch = meta::fence(tx)?.epoch.saturating_add(1);
        meta::set_restored(tx, restored, Fence { epoch, window })?;
        if meta::master_key_id(tx)?.is_none() {
            meta::set_master_key_id(tx, key_id)?;
        }
        for (table, skipped) in NUMBERS_SKIPPED {
            if tx.execute(SKIP_NUMBERS, (table, skipped))? == 0 {
                tx.execute(BEGIN_NUMBERS, (table, skipped))?;
            }
        }
        tx.execute(STOP_JOBS, [restored.at])?;
        tx.execute(END_SESSIONS, [restored.at])?;
        tx.execute("DELETE FROM login_links", [])?;
        tx.execute(FORGET_CLAIMS, [])?;
        tx.execute("DELETE FROM idempotency_keys WHERE status IS NULL", [])?;
        Ok(epoch)
    })?;
    let mut after = DeliverySeq(0);
    let mut count = 0_u64;
    loop {
        let moved = file.direct(|tx| put_in_doubt(tx, after, restored))?;
        let Some(last) = moved.last() else { break };
        (after, count) = (*last, count + u64::try_from(moved.len()).unwrap_or(0));
    }
    let erased = file.erase_again(erasures)?;
    let changes = Changes::none()
        .and("from", restored.from.as_str())
        .and("epoch", epoch)
        .and("in_doubt", count)
        .and("keys_erased", erased);
    let event = NewAuditEvent::local(restored.at, DEFAULT_TENANT, who.clone(), "database.restore");
    let event = event.of("database", "oncebox.db", changes);
    file.direct(|tx| audit_events::append(tx, &event))?;
    file.finish();
    Ok(RestoreChanges { epoch, in_doubt: count, erased })
}

fn put_in_doubt(
    tx: &WriteTx<'_>,
    after: DeliverySeq,
    restored: &Restored,
) -> Result<Vec<DeliverySeq>> {
    let found = in_doubt::unsent(tx, after, MAX_DELIVERIES)?;
    for delivery in &found {
        settlement::put_in_doubt(tx, *delivery, restored.at)?;
    }
    Ok(found)
}

/// Notes months in a database that no process uses; `who` puts them beside it.
pub fn note_months(
    database: &Path,
    months: &[(Month, PathBuf)],
    now: Timestamp,
    who: Option<&Actor>,
) -> Result<()> {
    let (_writer, mut to) = writer::pair(schema::open_writer(database)?, Faults::none())?;
    for (month, file) in months {
        let from = read_only(file)?;
        for kind in ArchivedKind::ALL {
            let mut next = Some(0);
            while let Some(after) = next {
                next = to.direct(|tx| check::note_month(tx, &from.tx(), month, kind, after))?;
            }
        }
        if let Some(who) = who {
            let event = NewAuditEvent::local(now, DEFAULT_TENANT, who.clone(), "archive.restore");
            let event = event.of("archive", &month.to_string(), Changes::none());
            to.direct(|tx| audit_events::append(tx, &event))?;
        }
    }
    to.finish();
    Ok(())
}
