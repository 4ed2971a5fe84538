//! Table `search_values`: what the search finds in payloads, at the paths that an event type names.
//!
//! A thread reads new events now and then and adds their values, so publishing costs nothing. Not here: the search
//! itself ([`super::search`]).

use crate::store::prelude::*;

/// Values that are kept, of all tenants. If there are more, the tenant with the most loses its oldest.
pub const MAX_VALUES: u32 = 200_000;
/// The longest value, in characters.
pub const MAX_CHARS: u32 = 100;
/// Events before the newest one that are looked at when the first path is named.
const MAX_BEFORE: i64 = 10_000;

const IS_WANTED: &str = "SELECT EXISTS (SELECT 1 FROM event_types WHERE search_paths <> '[]')";

const NEWEST: &str = "SELECT coalesce(max(seq), 0) FROM outbox";

const UPTO: &str = "SELECT value FROM meta WHERE key = 'search_upto'";

const SET_UPTO: &str = "
    INSERT INTO meta (key, value) VALUES ('search_upto', ?1)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value";

// Large payloads are in `payloads`, and are not read.
pub(super) const FOUND: &str = "
    SELECT tenant, CAST(json_extract(body, path) AS TEXT) AS found, seq
      FROM (SELECT o.tenant AS tenant, o.seq AS seq, json_each.value AS path, CAST(o.payload AS TEXT) AS body
              FROM outbox AS o NOT INDEXED
              JOIN event_types AS t ON t.tenant = o.tenant AND t.name = o.event_type
              JOIN json_each(t.search_paths)
             WHERE o.seq > ?1 AND o.seq <= ?2 AND o.payload IS NOT NULL)
     WHERE json_valid(body) AND json_type(body, path) IN ('text', 'integer', 'real')
       AND length(found) BETWEEN 1 AND ?3";

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

/// A value of an event: its tenant, the value, the event's number.
pub type Found = (String, String, i64);

/// Whether there are more than [`MAX_VALUES`].
pub fn is_over(tx: &ReadTx<'_>) -> Result<bool> {
    tx.value(IS_OVER, [MAX_VALUES])
}

/// Removes what is more than that.
pub fn trim(tx: &WriteTx<'_>) -> Result<()> {
    tx.execute(TRIM, [MAX_VALUES]).map(drop)
}

/// The values of the next events, at most so many, and up to which event that is; `None` if nothing is to be done.
pub fn next(tx: &ReadTx<'_>, events: i64) -> Result<Option<(Vec<Found>, i64)>> {
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
    let found = tx.rows(FOUND, (after, upto, MAX_CHARS), tuple)?;
    Ok(Some((found, upto)))
}

/// Stores values, and up to which event they were read.
pub fn keep(tx: &WriteTx<'_>, found: &[Found], upto: i64) -> Result<()> {
    for (tenant, value, event) in found {
        tx.execute(INSERT, (tenant, value, event))?;
    }
    tx.execute(SET_UPTO, [upto]).map(drop)
}
