//! The time as the file knows it, in table `meta`; and what moves when believed time follows the wall clock.
//!
//! `clock_known` is believed time, stored each minute. `clock_shown` and `clock_agrees_since` exist while the clock is suspect,
//! `clock_confirmed` from the word of a person until the clock is believed. [`crate::base::clock::trust`] says what they are for.

use crate::base::clock::trust::{DoubtedTime, KnownTime, TimeStep};
use crate::store::prelude::*;
use crate::store::{chores, holds, idempotency_keys, subscriptions};

const READ: &str = "SELECT value FROM meta WHERE key = ?1";

const WRITE: &str = "
    INSERT INTO meta (key, value) VALUES (?1, ?2)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value";

const FORGET_DOUBT: &str =
    "DELETE FROM meta WHERE key IN ('clock_shown', 'clock_agrees_since', 'clock_confirmed')";

// For a file of an older version. The latest runs suffice.
const LAST_RUNS: &str = "
    SELECT max(max(started_at, coalesce(seen_at, 0), coalesce(stopped_at, 0)))
      FROM (SELECT started_at, seen_at, stopped_at FROM boots ORDER BY seq DESC LIMIT 10)";

const MOVE_LEASES: &str =
    "UPDATE deliveries SET lease_until = lease_until + ?1 WHERE state = 'leased'";

const MOVE_CONFIRMATIONS: &str =
    "UPDATE deliveries SET confirm_until = confirm_until + ?1 WHERE state = 'waiting'";

changes! {
    /// Stores that a person has said that the clock is right.
    pub fn confirm(shown: Timestamp) = "
    INSERT INTO meta (key, value) VALUES ('clock_confirmed', ?1)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value";

    /// Forgets it, because the clock was set again.
    pub fn forget_confirmation() = "DELETE FROM meta WHERE key = 'clock_confirmed'";
}

/// The time that the file knows; `None` in a new file.
pub fn known(tx: &ReadTx<'_>) -> Result<Option<KnownTime>> {
    let time = |key: &str| tx.find::<Timestamp>(READ, [key]);
    let believed = match time("clock_known")? {
        Some(believed) => Some(believed),
        None => tx.find::<Option<Timestamp>>(LAST_RUNS, [])?.flatten(),
    };
    let Some(believed) = believed else { return Ok(None) };
    let is_confirmed = time("clock_confirmed")?.is_some();
    let doubted = match (time("clock_shown")?, time("clock_agrees_since")?) {
        (Some(shown), Some(agrees_since)) => {
            Some(DoubtedTime { shown, agrees_since, is_confirmed })
        }
        _ => None,
    };
    Ok(Some(KnownTime { believed, doubted }))
}

/// Stores the time. A person's word about a clock that is still suspect stays.
pub fn store(tx: &WriteTx<'_>, known: KnownTime) -> Result<()> {
    tx.mark_unseen();
    tx.execute(WRITE, ("clock_known", known.believed))?;
    match known.doubted {
        Some(DoubtedTime { shown, agrees_since, .. }) => {
            tx.execute(WRITE, ("clock_shown", shown))?;
            tx.execute(WRITE, ("clock_agrees_since", agrees_since)).map(drop)
        }
        None => tx.execute(FORGET_DOUBT, []).map(drop),
    }
}

/// Stores a step of believed time, and all that follows from it: one transaction, so that no crash and no full disk leaves
/// a part of it. Believed time itself moves after the commit.
///
/// After a step forward every wait ends as much later, so that it keeps its length. After a step back nothing is moved:
/// waits then last longer, and upkeep limits each to its own length.
pub fn follow(tx: &WriteTx<'_>, step: TimeStep) -> Result<()> {
    store(tx, KnownTime { believed: step.to, doubted: None })?;
    idempotency_keys::follow(tx, step)?;
    if step.ms() <= 0 {
        return chores::limit(tx, step.to);
    }
    tx.execute(MOVE_LEASES, [step.ms()])?;
    tx.execute(MOVE_CONFIRMATIONS, [step.ms()])?;
    holds::move_ends(tx, step.ms())?;
    subscriptions::restart_failing(tx, holds::SITE, step.to)
}
