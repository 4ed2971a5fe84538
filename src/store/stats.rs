//! Numbers over several tables: how much is open, and whether the file can be written.

use crate::clock::Timestamp;
use crate::store::error::Result;
use crate::store::tx::{ReadTx, WriteTx};

// Each number is served by a partial index that holds only what is counted; its condition has to stand
// here in its own words.
pub(super) const COUNTS: &str = "
    SELECT (SELECT count(*) FROM subscriptions WHERE tenant = ?1 AND deleted_at IS NULL),
           (SELECT count(*)
              FROM subscriptions AS s
              JOIN deliveries AS d ON d.subscription_seq = s.seq
             WHERE s.tenant = ?1 AND d.state = 'pending' AND d.head = 1),
           (SELECT count(*)
              FROM deliveries
             WHERE state = 'dead_letter'
               AND tenant = ?1),
           (SELECT count(*)
              FROM deliveries
             WHERE state = 'in_doubt'
               AND tenant = ?1),
           (SELECT min(d.due_at)
              FROM subscriptions AS s
              JOIN deliveries AS d ON d.subscription_seq = s.seq
             WHERE s.tenant = ?1 AND d.state = 'pending' AND d.head = 1)";

// Changes a row to what it is: the write goes through the log and the sync like any other.
const PROBE: &str = "
    INSERT INTO meta (key, value)
    VALUES ('probe', 0)
        ON CONFLICT (key) DO UPDATE SET value = (meta.value + 1) % 1000";

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Subscriptions that are not deleted.
    pub subscriptions: u64,
    /// Deliveries that wait.
    pub pending: u64,
    /// Deliveries that were given up.
    pub dead_letters: u64,
    /// Deliveries that may have been made before a restore.
    pub in_doubt: u64,
    /// When the most overdue delivery was due.
    pub oldest_due_at: Option<Timestamp>,
}

/// Counts what a tenant has.
///
/// # Errors
/// When the file cannot be read.
pub fn counts(tx: &ReadTx<'_>, tenant: &str) -> Result<Counts> {
    Ok(tx.prepare(COUNTS)?.query_row([tenant], |row| {
        Ok(Counts {
            subscriptions: row.get::<_, i64>(0)?.unsigned_abs(),
            pending: row.get::<_, i64>(1)?.unsigned_abs(),
            dead_letters: row.get::<_, i64>(2)?.unsigned_abs(),
            in_doubt: row.get::<_, i64>(3)?.unsigned_abs(),
            oldest_due_at: row.get(4)?,
        })
    })?)
}

/// Writes something, to see that it can be written.
///
/// # Errors
/// When it cannot.
pub fn probe(tx: &WriteTx<'_>) -> Result<()> {
    tx.prepare(PROBE)?.execute([])?;
    Ok(())
}
