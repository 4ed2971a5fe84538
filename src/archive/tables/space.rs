//! The room that the database takes: the events in it, and its unused pages.

use crate::base::clock::Timestamp;
use crate::store::error::Result;
use crate::store::tx::{ReadTx, WriteTx, tuple};

/// 64 pages: 128 KiB in a new file, 256 KiB in a file with pages of 4 KiB. A write waits for this statement, so it is short.
const GIVE_BACK: &str = "PRAGMA incremental_vacuum(64)";

const HOT: &str = "
    SELECT (SELECT count(*) FROM outbox) + (SELECT count(*) FROM webhook_events),
           (SELECT min(at) FROM (
              SELECT (SELECT received_at FROM outbox ORDER BY seq LIMIT 1) AS at
               UNION ALL
              SELECT (SELECT received_at FROM webhook_events ORDER BY seq LIMIT 1)))";

/// Events and webhook events that are in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hot {
    /// How many.
    pub events: u64,
    /// When the oldest one was received; `None`: there is none.
    pub oldest_at: Option<Timestamp>,
}

/// Counts what is in the database. Reads an index of it.
pub fn hot(tx: &ReadTx<'_>) -> Result<Hot> {
    let (events, oldest_at): (i64, Option<Timestamp>) =
        tx.first(HOT, [], tuple)?.unwrap_or_default();
    Ok(Hot { events: u64::try_from(events).unwrap_or(0), oldest_at })
}

/// The unused bytes of the database, and all of them.
pub fn bytes(tx: &ReadTx<'_>) -> Result<(u64, u64)> {
    let page = tx.count("PRAGMA page_size", [])?;
    let unused = tx.count("PRAGMA freelist_count", [])?;
    let all = tx.count("PRAGMA page_count", [])?;
    Ok((unused.saturating_mul(page), all.saturating_mul(page)))
}

/// Gives a few unused pages back to the file system.
pub fn give_back(tx: &WriteTx<'_>) -> Result<()> {
    let mut statement = tx.prepare(GIVE_BACK)?;
    let mut rows = statement.query([])?;
    // Each step gives back one page.
    while rows.next()?.is_some() {}
    Ok(())
}
