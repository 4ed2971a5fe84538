//! Table `source_files`: files that were taken from a drop folder, or refused.

use crate::clock::Timestamp;
use crate::store::error::Result;
use crate::store::tx::{ReadTx, WriteTx, first};

const PUT: &str = "
    INSERT INTO source_files (source_seq, name, sha256, state, reason, event_count, read_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
        ON CONFLICT (source_seq, name) DO UPDATE
       SET sha256 = excluded.sha256, state = excluded.state, reason = excluded.reason,
           event_count = excluded.event_count, read_at = excluded.read_at
     WHERE source_files.state = 'rejected'";

const TAKEN: &str = "
    SELECT sha256
      FROM source_files
     WHERE source_seq = ?1
       AND name = ?2
       AND state = 'done'";

/// A file that was taken or refused.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Of which source.
    pub source_seq: i64,
    /// Its name in the folder.
    pub name: String,
    /// SHA-256 of its bytes.
    pub sha256: Vec<u8>,
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
    let events = i64::try_from(file.event_count).unwrap_or(i64::MAX);
    let put = tx.prepare(PUT)?.execute((
        file.source_seq,
        &file.name,
        &file.sha256,
        state,
        &file.reason,
        events,
        now,
    ))?;
    Ok(put == 1)
}

/// SHA-256 of the file of that name that was taken, if one was.
///
/// # Errors
/// When the file cannot be read.
pub fn taken(tx: &ReadTx<'_>, source_seq: i64, name: &str) -> Result<Option<Vec<u8>>> {
    first(&mut *tx.prepare(TAKEN)?, (source_seq, name), |row| Ok(row.get(0)?))
}
