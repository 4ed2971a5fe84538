//! The walk over all events: which of them are old enough to move.

use std::collections::BTreeMap;

use super::of;
use crate::archive::{ArchivedKind, Batch, Month};
use crate::base::clock::Timestamp;
use crate::config::settings::Archive as Settings;
use crate::store::error::Result;
use crate::store::page::number_at;
use crate::store::tx::ReadTx;

/// Rows that one look reads.
const LOOKED_AT: i64 = 2_000;
/// Events of one batch.
const MAX_EVENTS: usize = 64;
/// Bytes of the bodies of one batch, unless one alone has more.
const MAX_BYTES: u64 = 1 << 20;

/// Before which time an event has finished that is moved.
#[derive(Clone, Debug)]
pub struct Before {
    by: Timestamp,
    /// Of tenants for which it differs: milliseconds by their names, as JSON.
    of: Option<String>,
    latest: Timestamp,
}

impl Before {
    /// One time for all tenants.
    pub const fn all(by: Timestamp) -> Self {
        Self { by, of: None, latest: by }
    }

    /// What the settings say at a time.
    pub fn set(Settings { after, after_of, .. }: &Settings, now: Timestamp) -> Self {
        let of: BTreeMap<_, _> =
            after_of.iter().map(|(tenant, after)| (tenant, now.minus(*after).ms())).collect();
        let shortest = after_of.values().min().map_or(*after, |least| *least.min(after));
        let json = (!of.is_empty()).then(|| serde_json::json!(of).to_string());
        Self { by: now.minus(*after), of: json, latest: now.minus(shortest) }
    }
}

/// Where a walk over all events of a kind stands.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    after: i64,
    below: i64,
}

/// Begins a walk over the events that may have finished by then.
pub fn walk(tx: &ReadTx<'_>, kind: ArchivedKind, before: &Before) -> Result<Walk> {
    Ok(Walk { after: 0, below: number_at(tx, of(kind).received_from, before.latest)? })
}

/// Goes on with a walk: the next events that finished by then, all in one month; `None` at its end. A batch may be
/// empty.
pub fn next(
    tx: &ReadTx<'_>,
    kind: ArchivedKind,
    walk: &mut Walk,
    Before { by, of: by_of, .. }: &Before,
) -> Result<Option<Batch>> {
    let mut batch = Batch { kind, month: Month::default(), seqs: Vec::new(), bytes: 0 };
    let mut statement = tx.prepare(of(kind).old)?;
    let mut rows = statement.query((walk.after, by, walk.below, LOOKED_AT, by_of))?;
    let mut is_end = true;
    while let Some(row) = rows.next()? {
        let seq: i64 = row.get(0)?;
        let month: String = row.get(1)?;
        let bytes: i64 = row.get(2)?;
        let is_old: bool = row.get(3)?;
        is_end = false;
        if is_old {
            let bytes = u64::try_from(bytes).unwrap_or(0);
            let month = Month::parse(&month).unwrap_or_default();
            let is_first = batch.seqs.is_empty();
            let is_full = batch.seqs.len() >= MAX_EVENTS || batch.bytes + bytes > MAX_BYTES;
            if !is_first && (is_full || month != batch.month) {
                break;
            }
            batch.month = month;
            batch.bytes += bytes;
            batch.seqs.push(seq);
        }
        walk.after = seq;
    }
    Ok((!is_end).then_some(batch))
}

/// Events that would move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// How many.
    pub events: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
}

impl Count {
    /// Both together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            events: self.events.saturating_add(other.events),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

/// Counts the events that finished by then.
pub fn count(tx: &ReadTx<'_>, kind: ArchivedKind, before: &Before) -> Result<Count> {
    let mut walk = walk(tx, kind, before)?;
    let mut all = Count::default();
    while let Some(batch) = next(tx, kind, &mut walk, before)? {
        let events = u64::try_from(batch.seqs.len()).unwrap_or(0);
        all = all.and(Count { events, bytes: batch.bytes });
    }
    Ok(all)
}
