//! Table `search_values`: what the search finds in payloads, at the paths that an event type names.
//!
//! A thread reads new events now and then and adds their values, so publishing costs nothing. Not here: the search
//! itself ([`super::search`]).

use crate::formats::filter::{self, Payload};
use crate::model::json_path::Path;
use crate::store::column::Json;
use crate::store::prelude::*;

/// Values that are kept, of all tenants. If there are more, a tenth goes: the oldest of the tenant with the most.
pub const MAX_VALUES: u32 = 200_000;
/// Stands in what is sealed (`privacy`).
const SEALED: &str = "obx-sealed.";
/// The longest value, in characters.
pub const MAX_CHARS: usize = 100;
/// Events before the newest one that are looked at when the first path is named.
const MAX_BEFORE: i64 = 10_000;

const IS_WANTED: &str = "SELECT EXISTS (SELECT 1 FROM event_types WHERE search_paths <> '[]')";

// What is not routed yet is read when it is.
pub(super) const NEWEST: &str = "
    SELECT coalesce((SELECT min(seq) - 1 FROM outbox WHERE routed_at IS NULL), (SELECT max(seq) FROM outbox), 0)";

const UPTO: &str = "SELECT value FROM meta WHERE key = 'search_upto'";

const SET_UPTO: &str = "
    INSERT INTO meta (key, value) VALUES ('search_upto', ?1)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value";

// Large payloads are in `payloads`, and are not read. What is not routed or quarantined may have personal data that is
// not sealed yet.
pub(super) const FOUND: &str = "
    SELECT o.tenant, o.seq, t.search_paths, CAST(o.payload AS BLOB)
      FROM outbox AS o NOT INDEXED
      JOIN event_types AS t ON t.tenant = o.tenant AND t.name = o.event_type
     WHERE o.seq > ?1 AND o.seq <= ?2 AND o.payload IS NOT NULL AND t.search_paths <> '[]'
       AND o.routed_at IS NOT NULL AND o.status <> 'quarantined'";

const FORGET: &str = "
    DELETE FROM search_values
     WHERE tenant = ?1
       AND EXISTS (SELECT 1 FROM outbox AS o WHERE o.seq = search_values.outbox_seq AND o.event_type = ?2)";

const READ_AGAIN: &str = "DELETE FROM meta WHERE key = 'search_upto'";

const INSERT: &str = "
    INSERT OR IGNORE INTO search_values (tenant, value, outbox_seq)
    SELECT ?1, ?2, seq FROM outbox WHERE seq = ?3 AND expunged_at IS NULL";

const IS_OVER: &str =
    "SELECT count(*) > ?1 FROM (SELECT 1 FROM search_values LIMIT (SELECT ?1 + 1))";

// The newest value of each tenant comes first, then the second newest, so that the cut takes from those who have most.
const TRIM: &str = "
    DELETE FROM search_values
     WHERE (tenant, value, outbox_seq) IN (
           SELECT tenant, value, outbox_seq FROM (
                  SELECT tenant, value, outbox_seq,
                         row_number() OVER (PARTITION BY tenant ORDER BY outbox_seq DESC) AS place
                    FROM search_values)
            ORDER BY place, outbox_seq DESC LIMIT -1 OFFSET ?1)";

/// A value of an event's payload that the search finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchValue {
    /// The event's tenant.
    pub tenant: String,
    /// The value, as it is written.
    pub value: String,
    /// The event's number.
    pub event: i64,
}

/// Whether there are more than [`MAX_VALUES`].
pub fn is_over(tx: &ReadTx<'_>) -> Result<bool> {
    tx.value(IS_OVER, [MAX_VALUES])
}

/// Removes the oldest, so that there is room for a while.
pub fn trim(tx: &WriteTx<'_>) -> Result<()> {
    tx.execute(TRIM, [MAX_VALUES - MAX_VALUES / 10]).map(drop)
}

/// The values of the next events, at most so many, and up to which event that is; `None` if nothing is to be done.
pub fn next(tx: &ReadTx<'_>, events: i64) -> Result<Option<(Vec<SearchValue>, i64)>> {
    let is_wanted: bool = tx.value(IS_WANTED, [])?;
    if !is_wanted {
        return Ok(None);
    }
    let newest: i64 = tx.value(NEWEST, [])?;
    let known: Option<i64> = tx.find(UPTO, [])?;
    let after = known.unwrap_or(0).max(newest.saturating_sub(MAX_BEFORE));
    if after >= newest {
        return Ok(None);
    }
    let upto = newest.min(after.saturating_add(events));
    let found = read(tx, after, upto)?;
    // Where there is nothing, a few events are read again: that is less than a commit.
    let is_full = upto.saturating_sub(after) == events;
    Ok(Some((found, upto)).filter(|(found, _)| is_full || !found.is_empty()))
}

/// The values of events after one, up to another. What is sealed, or neither a text nor a number, is left out.
fn read(tx: &ReadTx<'_>, after: i64, upto: i64) -> Result<Vec<SearchValue>> {
    let found = tx.rows(FOUND, (after, upto), |row| {
        let tenant: String = row.get(0)?;
        let event: i64 = row.get(1)?;
        let Json(paths): Json<Vec<String>> = row.get(2)?;
        let payload = Payload::read(row.get_ref(3)?.as_blob().unwrap_or_default());
        let values = paths.iter().filter_map(|path| value_at(path, &payload));
        let found = values.map(|value| SearchValue { tenant: tenant.clone(), value, event });
        Ok(found.collect::<Vec<_>>())
    })?;
    Ok(found.into_iter().flatten().collect())
}

/// The text or number at a path as it is written, if the search can find it.
fn value_at(path: &str, payload: &Payload) -> Option<String> {
    let value = filter::first_text(&Path::parse(path).ok()?, payload).ok()??;
    let is_short = (1..=MAX_CHARS).contains(&value.chars().count());
    (is_short && !value.contains(SEALED)).then_some(value)
}

/// Stores values, and up to which event they were read.
pub fn keep(tx: &WriteTx<'_>, found: &[SearchValue], upto: i64) -> Result<()> {
    insert(tx, found)?;
    tx.execute(SET_UPTO, [upto]).map(drop)
}

/// Reads and stores the values of one event, which was repaired.
pub(super) fn add(tx: &WriteTx<'_>, event: i64) -> Result<()> {
    insert(tx, &read(tx, event.saturating_sub(1), event)?)
}

/// Forgets the values of an event type whose paths are others now; the newest events are read again.
pub fn forget(tx: &WriteTx<'_>, tenant: &str, event_type: &str) -> Result<()> {
    tx.execute(FORGET, (tenant, event_type))?;
    tx.execute(READ_AGAIN, []).map(drop)
}

fn insert(tx: &WriteTx<'_>, found: &[SearchValue]) -> Result<()> {
    for SearchValue { tenant, value, event } in found {
        tx.execute(INSERT, (tenant, value, event))?;
    }
    Ok(())
}
