//! The tables `sources` and `source_files`: the sources, and the files of drop folders that were imported or refused.
//!
//! The cursor moves only in the transaction that stores the rows, and only from the value that its reader started
//! with, so that a cursor set by a person meanwhile wins. Not here: reading the ERP's table ([`foreign`]).

pub(super) mod dialect;
pub mod foreign;
pub(super) mod remote;
pub(super) mod trouble;

use crate::base::clock::Timestamp;
use crate::sources::{NewSource, Settings, Source, SourceState};
use crate::store::column::{Count, Millis, word, words};
use crate::store::error::Result;
use crate::store::sql::{changes, columns, insert, queries, update};
use crate::store::tx::{ReadTx, WriteTx, one_row, tuple};

columns! {
    fn source() -> Source = ("sources" from "sources AS s") [
        seq, id, tenant, name, kind, settings, state, cursor, identity, event_count as Count(event_count),
        last_event_at, last_read_at, last_error, failing_since, silent_after_ms, created_at, updated_at
    ] {
        seq,
        new: NewSource {
            id, tenant, name, settings: read_settings(kind, settings)?, cursor,
            silent_after: Millis::optional(silent_after_ms),
        },
        state, identity, event_count, last_event_at, last_read_at, last_error, failing_since, created_at, updated_at
    }
    /// A source by its name.
    pub fn by_name(tenant: &str, name: &str) -> Option =
        "WHERE tenant = ?1 AND name = ?2 AND deleted_at IS NULL";
    /// Sources with numbers above `after`, by number.
    pub fn page(tenant: &str, after: i64, limit: u32) -> Vec =
        "WHERE tenant = ?1 AND deleted_at IS NULL AND seq > ?2 ORDER BY seq LIMIT ?3";
    /// The first thousand sources of a kind, of all tenants.
    pub fn of_kind(kind: &str) -> Vec = "WHERE kind = ?1 AND deleted_at IS NULL ORDER BY seq LIMIT 1000";
    // Sources of suspended tenants are not read.
    const TO_READ = "
     WHERE seq > ?1
       AND state = 'ACTIVE'
       AND deleted_at IS NULL
       AND NOT EXISTS (SELECT 1 FROM tenants AS t WHERE t.name = s.tenant AND t.suspended_at IS NOT NULL)
     ORDER BY seq
     LIMIT ?2";
}

const ADVANCE: &str = "
    UPDATE sources SET cursor = ?3, identity = ?4, event_count = event_count + ?5,
           last_event_at = iif(?5 > 0, ?6, last_event_at), last_read_at = ?6
     WHERE seq = ?1 AND cursor = ?2 AND identity IS ?7 AND state = 'ACTIVE' AND deleted_at IS NULL
       AND NOT EXISTS (SELECT 1 FROM tenants AS t
                        WHERE t.name = sources.tenant AND t.suspended_at IS NOT NULL)";

const COUNTS: &str = "
    SELECT count(*) FILTER (WHERE state = 'ACTIVE'),
           count(*) FILTER (WHERE state = 'PAUSED'),
           count(*) FILTER (WHERE state = 'ACTIVE' AND last_error IS NOT NULL)
      FROM sources WHERE deleted_at IS NULL";

words! {
    SourceState;
}

/// Numbers of sources over all tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Active sources.
    pub active: u64,
    /// Paused sources.
    pub paused: u64,
    /// Active sources that cannot be read.
    pub failing: u64,
}

queries! {
    /// Whether there is a source of this name.
    pub fn exists(tenant: &str, name: &str) -> bool = value
        "SELECT EXISTS (SELECT 1 FROM sources WHERE tenant = ?1 AND name = ?2 AND deleted_at IS NULL)";

    /// At most `limit` files that were read by then: their sources and names.
    pub fn old_files(by: Timestamp, limit: u32) -> Vec<(i64, String)> = rows as tuple OLD_FILES;
}

changes! {
    /// Deletes a source, but not its events. `Changed` if it was deleted before.
    pub fn delete(seq: i64, now: Timestamp) of "the source" then sources_changed =
        "UPDATE sources SET deleted_at = ?2, updated_at = ?2 WHERE seq = ?1 AND deleted_at IS NULL";

    /// Stores why the source cannot be read.
    pub fn set_error(seq: i64, why: &str, now: Timestamp) = "
    UPDATE sources SET last_error = ?2, failing_since = coalesce(failing_since, ?3)
     WHERE seq = ?1 AND deleted_at IS NULL";

    /// Stores what is kept of a database, if that is still `from`: a person may have asked for something meanwhile.
    pub fn set_identity(seq: i64, from: Option<&str>, to: Option<&str>) of "the source" =
        "UPDATE sources SET identity = ?3 WHERE seq = ?1 AND identity IS ?2 AND deleted_at IS NULL";

    /// Stores that the source can be read again.
    pub fn clear_error(seq: i64) = "
    UPDATE sources SET last_error = NULL, failing_since = NULL
     WHERE seq = ?1 AND last_error IS NOT NULL";
}

/// Stores a source; `None` if its name is taken.
pub fn insert(tx: &WriteTx<'_>, new: &NewSource, now: Timestamp) -> Result<Option<i64>> {
    let inserted = insert!(tx, "sources" of new {
        id, tenant, name, kind: new.settings.kind(), settings: new.settings.to_json().to_string(), cursor,
        silent_after_ms: new.silent_after.map(Millis), created_at: now, updated_at: now
    } "ON CONFLICT DO NOTHING")?;
    tx.sources_changed();
    Ok((inserted == 1).then(|| tx.conn().last_insert_rowid()))
}

/// Sources that are to be read now, of all tenants, by number.
pub fn to_read(tx: &ReadTx<'_>, limit: u32) -> Result<Vec<Source>> {
    tx.rows(TO_READ, (0, limit), source)
}

/// One source, if it is to be read now.
pub fn one_to_read(tx: &ReadTx<'_>, seq: i64) -> Result<Option<Source>> {
    let found = tx.first(TO_READ, (seq.saturating_sub(1), 1), source)?;
    Ok(found.filter(|found| found.seq == seq))
}

/// Stores a person's changes of settings, state and cursor, and clears the error. `Changed` if it was deleted.
pub fn update(tx: &WriteTx<'_>, changed: &Source, now: Timestamp) -> Result<()> {
    let new = &changed.new;
    let updated = update!(tx, "sources" of new {
        settings: new.settings.to_json().to_string(), silent_after_ms: new.silent_after.map(Millis),
        state: changed.state, cursor, identity: changed.identity, last_error: None::<&str>,
        failing_since: None::<Timestamp>, updated_at: now
    } "WHERE seq = ? AND deleted_at IS NULL", [changed.seq])?;
    tx.sources_changed();
    one_row(updated, "the source")
}

/// The progress of a source in one transaction.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The cursor that its reader started with.
    pub from: i64,
    /// The new cursor.
    pub to: i64,
    /// The identity that its reader started with.
    pub known: Option<String>,
    /// The new identity, as JSON.
    pub identity: Option<String>,
    /// Events in this transaction.
    pub events: u64,
}

/// Moves the cursor, in the transaction that stores the rows. `Changed` if the cursor or the identity was changed
/// meanwhile, or the source is no longer active.
pub fn advance(tx: &WriteTx<'_>, seq: i64, progress: &Progress, now: Timestamp) -> Result<()> {
    let Progress { from, to, known, identity, events } = progress;
    let events = i64::try_from(*events).unwrap_or(i64::MAX);
    tx.change_one(ADVANCE, (seq, from, to, identity, events, now, known), "the source")
}

/// Counts the sources.
pub fn counts(tx: &ReadTx<'_>) -> Result<SourceCounts> {
    let counts = tx.prepare(COUNTS)?.query_row([], |row| {
        let (Count(active), Count(paused), Count(failing)) = row.try_into()?;
        Ok(SourceCounts { active, paused, failing })
    });
    Ok(counts?)
}

fn read_settings(kind: String, settings: String) -> Result<Settings> {
    let read = |text: &str| Settings::read(&kind, serde_json::from_str(text).ok()?).ok();
    word("sources.settings", &settings, read)
}

const TAKEN_FILE: &str =
    "SELECT sha256, size FROM source_files WHERE source_seq = ?1 AND name = ?2 AND state = 'done'";

const OLD_FILES: &str =
    "SELECT source_seq, name FROM source_files WHERE read_at <= ?1 ORDER BY read_at LIMIT ?2";

const FORGET_FILE: &str =
    "DELETE FROM source_files WHERE source_seq = ?1 AND name = ?2 AND read_at <= ?3";

/// A file that was imported or refused.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Its source.
    pub source_seq: i64,
    /// Its name in the folder.
    pub name: String,
    /// SHA-256 of its bytes.
    pub sha256: Vec<u8>,
    /// Its size in bytes.
    pub size: u64,
    /// Why it was refused; `None`: it was imported.
    pub reason: Option<String>,
    /// The number of its events.
    pub event_count: u64,
}

/// Stores the record of a file, replacing that of a refused file with its name. Returns `false`, and changes nothing,
/// if a file with its name was imported.
pub fn put_file(tx: &WriteTx<'_>, file: &SourceFile, now: Timestamp) -> Result<bool> {
    let state = if file.reason.is_some() { "rejected" } else { "done" };
    let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let put = insert!(tx, "source_files" of file {
        source_seq, name, sha256, size: whole(file.size), state: state, reason, event_count: whole(file.event_count),
        read_at: now
    } "ON CONFLICT (source_seq, name) DO UPDATE
       SET sha256 = excluded.sha256, size = excluded.size, state = excluded.state,
           reason = excluded.reason, event_count = excluded.event_count, read_at = excluded.read_at
     WHERE source_files.state = 'rejected'")?;
    Ok(put == 1)
}

/// The content of an imported file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenFile {
    /// SHA-256 of its bytes.
    pub sha256: Vec<u8>,
    /// Its size in bytes.
    pub size: u64,
}

/// The imported file of this name, if there is one.
pub fn taken_file(tx: &ReadTx<'_>, source_seq: i64, name: &str) -> Result<Option<TakenFile>> {
    tx.first(TAKEN_FILE, (source_seq, name), |row| {
        let (sha256, Count(size)) = tuple(row)?;
        Ok(TakenFile { sha256, size })
    })
}

/// Deletes the records of files that were read by then.
pub fn forget_files(tx: &WriteTx<'_>, files: &[(i64, String)], by: Timestamp) -> Result<()> {
    let mut statement = tx.prepare(FORGET_FILE)?;
    for (source_seq, name) in files {
        statement.execute((source_seq, name, by))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::uses;

    #[test]
    fn old_files_are_found_and_forgotten_by_indexes() {
        uses(OLD_FILES, &["INDEX source_files_age (read_at<?)"]);
        uses(FORGET_FILE, &["PRIMARY KEY (source_seq=? AND name=?)"]);
    }
}
