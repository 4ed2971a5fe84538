//! A move between the database and the file of a month: its note, its end, and the way back.

use rusqlite::Row;

use super::rows::{delete, each_row, moved, put, summary};
use super::{Statements, of};
use crate::archive::{ArchivedKind, Batch, Summary};
use crate::store::error::{Error, Result};
use crate::store::seen_keys::{self, Seen};
use crate::store::tx::{ReadTx, WriteTx, tuple};

const OUT: &str = "
    SELECT value FROM meta
     WHERE key >= 'archive_out/' AND key < 'archive_out0'
     ORDER BY key LIMIT 100000";

const NOTE_OUT: &str = "
    INSERT INTO meta (key, value) VALUES (?1, ?2)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value";

const FORGET_OUT: &str = "DELETE FROM meta WHERE key = ?1";

// A child may have been published since the parent was found.
const HAS_CHILD: &str =
    "SELECT 1 FROM outbox WHERE parent_seq IN (SELECT value FROM json_each(?1)) LIMIT 1";

/// The mark for the column `own`: the database refuses rows by plain SQL that are not new.
const OWN_AS_OURS: &str = "max(?, 1)";

/// Tenant, source, key, id and status of an event, and whether somebody sent it to us.
type Identified = (String, String, String, String, String, bool);

/// Batches that the file of a month may have although the database has them: a move was begun, or an event came back.
pub fn out(tx: &ReadTx<'_>) -> Result<Vec<Batch>> {
    let noted: Vec<String> = tx.list(OUT, [])?;
    Ok(noted.iter().filter_map(|text| serde_json::from_str(text).ok()).collect())
}

/// Notes that the file of the month may have rows that the database has as well. `false`: another note has one of them, and
/// has to be worked off first.
pub fn note_out(tx: &WriteTx<'_>, batch: &Batch) -> Result<bool> {
    let is_same = |other: &Batch| {
        other.kind == batch.kind && other.seqs.iter().any(|seq| batch.seqs.contains(seq))
    };
    if out(tx)?.iter().any(is_same) {
        return Ok(false);
    }
    let text = serde_json::to_string(batch).unwrap_or_default();
    tx.execute(NOTE_OUT, (out_key(batch), text))?;
    Ok(true)
}

/// Notes that the file of the month has no row of the batch, or the database has none.
pub fn forget_out(tx: &WriteTx<'_>, batch: &Batch) -> Result<()> {
    tx.execute(FORGET_OUT, [out_key(batch)]).map(drop)
}

fn out_key(batch: &Batch) -> String {
    format!("archive_out/{}/{}", batch.kind, batch.seqs.first().copied().unwrap_or_default())
}

/// Where an event is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its number.
    pub seq: i64,
    /// Its id.
    pub id: String,
    /// The number of its parent.
    pub parent: Option<i64>,
}

/// Which event is looked for.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// By tenant and id.
    Id(String, String),
    /// By its number.
    Number(i64),
}

/// Finds an event; `None` if the file does not have it.
pub fn place(tx: &ReadTx<'_>, kind: ArchivedKind, wanted: &Wanted) -> Result<Option<Place>> {
    let row = |row: &Row<'_>| Ok(Place { seq: row.get(0)?, id: row.get(1)?, parent: row.get(2)? });
    let Statements { by_id, by_number, .. } = of(kind);
    match wanted {
        Wanted::Id(tenant, id) => tx.first(by_id, (tenant, id), row),
        Wanted::Number(seq) => tx.first(by_number, [seq], row),
    }
}

/// Those of a batch that the database has.
pub fn present(tx: &ReadTx<'_>, batch: &Batch) -> Result<Batch> {
    let mut there = batch.clone();
    let mut seqs = Vec::new();
    for seq in &batch.seqs {
        if place(tx, batch.kind, &Wanted::Number(*seq))?.is_some() {
            seqs.push(*seq);
        }
    }
    there.seqs = seqs;
    Ok(there)
}

/// Deletes from the database what the file of the month has, and notes the keys of the events. `false`: a row is another
/// one by now, and all stay.
pub fn end(tx: &WriteTx<'_>, batch: &Batch, copied: &Summary) -> Result<bool> {
    let seqs = batch.json();
    let is_parent = batch.kind == ArchivedKind::Event && tx.exists(HAS_CHILD, [&seqs])?;
    if is_parent || summary(tx, batch)? != *copied {
        return Ok(false);
    }
    let identities: Vec<Identified> = tx.rows(of(batch.kind).identities, [&seqs], tuple)?;
    for (tenant, source, key, id, status, was_sent) in identities {
        let seen = Seen { id, status, month: batch.month.to_string(), was_sent };
        let identity = (tenant.as_str(), source.as_str(), key.as_str());
        seen_keys::note(tx, batch.kind.as_str(), identity, &seen)?;
    }
    delete(tx, batch)?;
    forget_out(tx, batch)?;
    Ok(true)
}

/// Brings an event back into the database, as itself; does nothing if it is there. `from` is the file of the month.
/// Fails with `Constraint` if another event has its key by now.
pub fn bring_back(tx: &WriteTx<'_>, from: &ReadTx<'_>, batch: &Batch) -> Result<()> {
    let Some(seq) = batch.seqs.first().copied() else { return Ok(()) };
    if place(tx, batch.kind, &Wanted::Number(seq))?.is_some() {
        return Ok(());
    }
    let found =
        place(from, batch.kind, &Wanted::Number(seq))?.ok_or(Error::Changed("the event"))?;
    // A parent that is nowhere any more was deleted with its month.
    let parent = match found.parent {
        Some(parent) if place(tx, batch.kind, &Wanted::Number(parent))?.is_none() => "? * NULL",
        _ => "?",
    };
    for part in moved(batch.kind).collect::<Vec<_>>().into_iter().rev() {
        each_row(from, part, &batch.json(), |row, columns| {
            put(tx, "INSERT", part.table, row, columns, [OWN_AS_OURS, parent])
        })?;
    }
    let identities: Vec<Identified> =
        from.rows(of(batch.kind).identities, [batch.json()], tuple)?;
    for (tenant, source, key, ..) in &identities {
        seen_keys::forget(tx, batch.kind.as_str(), (tenant, source, key))?;
    }
    note_out(tx, batch).map(drop)
}
