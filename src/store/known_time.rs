//! The time as the file knows it, in table `meta`; and what moves when believed time follows the wall clock.
//!
//! `clock_known` is believed time, stored each minute. `clock_shown` and `clock_agrees_since` exist while the clock is suspect.
//! [`crate::base::clock::trust`] says what they are for.

use crate::base::clock::trust::{DoubtedTime, KnownTime};
use crate::store::holds;
use crate::store::prelude::*;

const READ: &str = "SELECT value FROM meta WHERE key = ?1";

const WRITE: &str = "
    INSERT INTO meta (key, value) VALUES (?1, ?2)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value";

const FORGET_DOUBT: &str = "DELETE FROM meta WHERE key IN ('clock_shown', 'clock_agrees_since')";

// For a file of an older version. The latest runs suffice.
const LAST_RUNS: &str = "
    SELECT max(max(started_at, coalesce(seen_at, 0), coalesce(stopped_at, 0)))
      FROM (SELECT started_at, seen_at, stopped_at FROM boots ORDER BY seq DESC LIMIT 10)";

const MOVE_LEASES: &str = "
    UPDATE deliveries SET lease_until = lease_until + ?1
     WHERE seq IN (SELECT seq FROM deliveries
                    WHERE state = 'leased' AND seq > ?2 ORDER BY seq LIMIT ?3)
    RETURNING seq";

const MOVE_CONFIRMATIONS: &str = "
    UPDATE deliveries SET confirm_until = confirm_until + ?1
     WHERE seq IN (SELECT seq FROM deliveries
                    WHERE state = 'waiting' AND seq > ?2 ORDER BY seq LIMIT ?3)
    RETURNING seq";

const MOVE_KEYS: &str = "
    UPDATE idempotency_keys SET expires_at = expires_at + ?1
     WHERE (tenant, key) IN (SELECT tenant, key FROM idempotency_keys
                              WHERE (tenant, key) > (?2, ?3) ORDER BY tenant, key LIMIT ?4)
    RETURNING tenant, key";

/// The time that the file knows; `None` in a new file.
pub fn known(tx: &ReadTx<'_>) -> Result<Option<KnownTime>> {
    let time = |key: &str| tx.find::<Timestamp>(READ, [key]);
    let believed = match time("clock_known")? {
        Some(believed) => Some(believed),
        None => tx.find::<Option<Timestamp>>(LAST_RUNS, [])?.flatten(),
    };
    let Some(believed) = believed else { return Ok(None) };
    let doubted = match (time("clock_shown")?, time("clock_agrees_since")?) {
        (Some(shown), Some(agrees_since)) => Some(DoubtedTime { shown, agrees_since }),
        _ => None,
    };
    Ok(Some(KnownTime { believed, doubted }))
}

/// Stores the time.
pub fn store(tx: &WriteTx<'_>, known: KnownTime) -> Result<()> {
    tx.mark_unseen();
    tx.execute(WRITE, ("clock_known", known.believed))?;
    match known.doubted {
        Some(DoubtedTime { shown, agrees_since }) => {
            tx.execute(WRITE, ("clock_shown", shown))?;
            tx.execute(WRITE, ("clock_agrees_since", agrees_since)).map(drop)
        }
        None => tx.execute(FORGET_DOUBT, []).map(drop),
    }
}

/// Moves the ends of all holds by so many ms. A hold is a wait: it ends after its own length, whatever the clock was set to.
pub fn move_holds(tx: &WriteTx<'_>, step_ms: i64) -> Result<()> {
    holds::move_ends(tx, step_ms)
}

/// Rows of a table whose ends are moved in turns, in the order of their keys.
#[derive(Clone, Debug)]
pub enum MovedWaits {
    /// Leases of consumers, after this delivery.
    Leases(i64),
    /// Waits for a confirmation, after this delivery.
    Confirmations(i64),
    /// Idempotency keys, after this tenant and key.
    Keys(String, String),
}

impl MovedWaits {
    /// All of them, each from its start.
    pub const fn all() -> [Self; 3] {
        [Self::Leases(0), Self::Confirmations(0), Self::Keys(String::new(), String::new())]
    }

    /// Moves the ends of the next rows by so many ms. Returns where to continue; `None` at the end.
    pub fn move_some(&self, tx: &WriteTx<'_>, step_ms: i64, limit: u32) -> Result<Option<Self>> {
        let deliveries = |sql: &str, after: i64| -> Result<Option<i64>> {
            let moved: Vec<i64> = tx.list(sql, (step_ms, after, limit))?;
            Ok(moved.into_iter().max())
        };
        Ok(match self {
            Self::Leases(after) => deliveries(MOVE_LEASES, *after)?.map(Self::Leases),
            Self::Confirmations(after) => {
                deliveries(MOVE_CONFIRMATIONS, *after)?.map(Self::Confirmations)
            }
            Self::Keys(tenant, key) => {
                let moved: Vec<(String, String)> =
                    tx.rows(MOVE_KEYS, (step_ms, tenant, key, limit), tuple)?;
                moved.into_iter().max().map(|(tenant, key)| Self::Keys(tenant, key))
            }
        })
    }
}
