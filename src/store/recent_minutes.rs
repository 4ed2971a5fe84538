//! Table `recent_minutes`: what happened in each minute of the last hour, so that a restart does not forget it.

use crate::store::prelude::*;

const KEEP: &str = "
    INSERT INTO recent_minutes (minute, tenant, counts) VALUES (?1, ?2, ?3)
        ON CONFLICT DO UPDATE SET counts = excluded.counts";

// Also those that a clock that was ahead has written.
const FORGET: &str = "
    DELETE FROM recent_minutes
     WHERE minute IN (SELECT DISTINCT minute FROM recent_minutes
                       WHERE minute NOT BETWEEN ?1 AND ?2 LIMIT 10)";

const READ: &str = "
    SELECT minute, tenant, counts FROM recent_minutes
     WHERE minute BETWEEN ?1 AND ?2
     ORDER BY minute LIMIT 100000";

/// The counts of a tenant's minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The number of the minute since 1970.
    pub minute: i64,
    /// The tenant.
    pub tenant: String,
    /// JSON.
    pub counts: String,
}

/// Stores the counts of minutes, and forgets a few that are not between these two.
pub fn keep(tx: &WriteTx<'_>, counted: &[Counted], (first, last): (i64, i64)) -> Result<()> {
    tx.mark_unseen();
    for Counted { minute, tenant, counts } in counted {
        tx.execute(KEEP, (minute, tenant, counts))?;
    }
    tx.execute(FORGET, (first, last)).map(drop)
}

/// The counts of the minutes between these two, the oldest first.
pub fn read(tx: &ReadTx<'_>, (first, last): (i64, i64)) -> Result<Vec<Counted>> {
    tx.rows(READ, (first, last), in_order!(Counted { minute, tenant, counts }))
}
