//! Table `boots`: one row per start, so that the next start can detect an unclean end.

use crate::store::prelude::*;

const STOP: &str = "UPDATE boots SET stopped_at = ?2 WHERE seq = ?1 AND stopped_at IS NULL";

const BEFORE: &str = "
    SELECT seq, started_at, stopped_at IS NOT NULL FROM boots
     WHERE seq < ?1
     ORDER BY seq DESC LIMIT ?2";

queries! {
    /// Whether the latest run ended cleanly; `None` before the first start.
    pub fn last_was_clean() -> Option<bool> = find
        "SELECT stopped_at IS NOT NULL FROM boots ORDER BY seq DESC LIMIT 1";
}

/// Records a start; returns its number.
pub fn start(tx: &WriteTx<'_>, now: Timestamp, version: &str) -> Result<i64> {
    tx.execute("INSERT INTO boots (started_at, version) VALUES (?1, ?2)", (now, version))?;
    Ok(tx.conn().last_insert_rowid())
}

/// Records a clean stop.
pub fn stop(tx: &WriteTx<'_>, boot: i64, now: Timestamp) -> Result<()> {
    tx.execute(STOP, (boot, now)).map(drop)
}

/// A start before this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot {
    /// Its number.
    pub seq: i64,
    /// When it began.
    pub started_at: Timestamp,
    /// Whether it ended cleanly.
    pub was_clean: bool,
}

/// The starts before this one, the latest first.
pub fn before(tx: &ReadTx<'_>, boot: i64, limit: u32) -> Result<Vec<Boot>> {
    tx.rows(BEFORE, (boot, limit), in_order!(Boot { seq, started_at, was_clean }))
}
