//! Table `source_files`: files that were taken from a drop folder, or refused.

use crate::base::clock::Timestamp;
use crate::store::column::count;
use crate::store::error::Result;
use crate::store::tx::{ReadTx, WriteTx, first, rows};

const PUT: &str = "
    INSERT INTO source_files (source_seq, name, sha256, size, state, reason, event_count, read_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
        ON CONFLICT (source_seq, name) DO UPDATE
       SET sha256 = excluded.sha256, size = excluded.size, state = excluded.state,
           reason = excluded.reason, event_count = excluded.event_count, read_at = excluded.read_at
     WHERE source_files.state = 'rejected'";

const TAKEN: &str = "
    SELECT sha256, size
      FROM source_files
     WHERE source_seq = ?1
       AND name = ?2
       AND state = 'done'";

pub(super) const OLD: &str = "
    SELECT source_seq, name
      FROM source_files
     WHERE read_at <= ?1
     ORDER BY read_at
     LIMIT ?2";

pub(super) const FORGET: &str = "
    DELETE FROM source_files
     WHERE source_seq = ?1
       AND name = ?2
       AND read_at <= ?3";

/// A file that was taken or refused.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Of which source.
    pub source_seq: i64,
    /// Its name in the folder.
    pub name: String,
    /// SHA-256 of its bytes.
    pub sha256: Vec<u8>,
    /// How many those are.
    pub size: u64,
    /// Why it was refused; `None`: it was taken.
    pub reason: Option<String>,
    /// Events that came of it.
    pub event_count: u64,
}

/// Notes a file. One that was refused may come again under its name, one that was taken stays what it was:
/// tells whether it could be noted.
///
/// # Errors
/// When the file cannot be written.
pub fn put(tx: &WriteTx<'_>, file: &SourceFile, now: Timestamp) -> Result<bool> {
    let state = if file.reason.is_some() { "rejected" } else { "done" };
    let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let put = tx.prepare(PUT)?.execute((
        file.source_seq,
        &file.name,
        &file.sha256,
        whole(file.size),
        state,
        &file.reason,
        whole(file.event_count),
        now,
    ))?;
    Ok(put == 1)
}

/// What a file was when it was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// SHA-256 of its bytes.
    pub sha256: Vec<u8>,
    /// How many those were.
    pub size: u64,
}

/// The file of that name that was taken, if one was.
///
/// # Errors
/// When the file cannot be read.
pub fn taken(tx: &ReadTx<'_>, source_seq: i64, name: &str) -> Result<Option<Taken>> {
    first(&mut *tx.prepare(TAKEN)?, (source_seq, name), |row| {
        Ok(Taken { sha256: row.get(0)?, size: count(row, 1)? })
    })
}

/// Files that were read by then, at most `limit`: of which source, and their names.
///
/// # Errors
/// When the file cannot be read.
pub fn old(tx: &ReadTx<'_>, by: Timestamp, limit: u32) -> Result<Vec<(i64, String)>> {
    rows(&mut *tx.prepare(OLD)?, (by, limit), |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Forgets files, if they were read by then.
///
/// # Errors
/// When the file cannot be written.
pub fn forget(tx: &WriteTx<'_>, files: &[(i64, String)], by: Timestamp) -> Result<()> {
    let mut statement = tx.prepare(FORGET)?;
    for (source_seq, name) in files {
        statement.execute((source_seq, name, by))?;
    }
    Ok(())
}
