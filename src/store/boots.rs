//! Table `boots`: one row per start, so that an unclean end can be told.

use rusqlite::OptionalExtension;

use crate::base::clock::Timestamp;
use crate::store::error::Result;
use crate::store::tx::{ReadTx, WriteTx};

const START: &str = "
    INSERT INTO boots (started_at, version)
    VALUES (?1, ?2)";

const STOP: &str = "
    UPDATE boots
       SET stopped_at = ?2
     WHERE seq = ?1
       AND stopped_at IS NULL";

const LAST: &str = "
    SELECT stopped_at IS NOT NULL
      FROM boots
     ORDER BY seq DESC
     LIMIT 1";

const BEFORE: &str = "
    SELECT seq, stopped_at IS NOT NULL
      FROM boots
     WHERE seq < ?1
     ORDER BY seq DESC
     LIMIT 1";

/// Records a start; returns its number.
pub fn start(tx: &WriteTx<'_>, now: Timestamp, version: &str) -> Result<i64> {
    tx.prepare(START)?.execute((now, version))?;
    Ok(tx.conn().last_insert_rowid())
}

/// Records a clean stop.
pub fn stop(tx: &WriteTx<'_>, boot: i64, now: Timestamp) -> Result<()> {
    tx.prepare(STOP)?.execute((boot, now))?;
    Ok(())
}

/// Whether the latest start ended cleanly; `None` before the first.
pub fn last_was_clean(tx: &ReadTx<'_>) -> Result<Option<bool>> {
    Ok(tx.prepare(LAST)?.query_row([], |row| row.get(0)).optional()?)
}

/// The number of the start before this one, and whether it ended cleanly; `None` where this is the first.
pub fn before(tx: &ReadTx<'_>, boot: i64) -> Result<Option<(i64, bool)>> {
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    Ok(tx.prepare(BEFORE)?.query_row([boot], read).optional()?)
}
