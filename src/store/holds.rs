//! Table `holds`: why subscriptions must not be called for now. Putting a hold changes no delivery row.
//!
//! A suspended tenant also holds its subscriptions. The query reads that from `tenants`, so that one query says
//! whether a subscription may be called. An offline site holds all subscriptions that need the network.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::base::clock::millis;
use crate::model::hold::{Hold, HoldReason, PastHold, gate};
use crate::store::column::Count;
use crate::store::past_holds;
use crate::store::prelude::*;

/// The subscription number of the hold that applies to the whole site.
pub const SITE: SubscriptionSeq = SubscriptionSeq(0);

// An existing hold for the same reason keeps `since`; `until` can only become later.
const PUT: &str = "
    INSERT INTO holds (subscription_seq, reason, since, until, probe_at, probe_no, detail)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
        ON CONFLICT DO UPDATE
           SET until = max(until, excluded.until), probe_at = excluded.probe_at,
               probe_no = excluded.probe_no,
               detail = iif(excluded.probe_at IS NULL, detail, excluded.detail)
    RETURNING since";

const RELEASE: &str = "
    DELETE FROM holds WHERE subscription_seq = ?1 AND reason = ?2
    RETURNING reason, since, ?3, detail";

const NAME: &str = "SELECT tenant || '/' || name FROM subscriptions WHERE seq = ?1";

columns! {
    fn hold() -> Hold = "holds" [
        reason, since, until, probe_at, probe_no,
        // What was tried against it is a part of why it still stands.
        "detail || iif(reason <> 'auth', '', (
            SELECT iif(auth_try_count = 0, '', '; on ' || date(auth_try_day * 86400, 'unixepoch')
                   || ' its command ran ' || auth_try_count || ' times, ' || auth_try_max
                   || ' at most (credentials.auth_commands_per_day_max)')
              FROM subscriptions WHERE seq = subscription_seq))" as detail
    ] {
        reason, since, until, probe_at, probe_no, detail
    }
    const OF = "
     WHERE subscription_seq = ?1 OR subscription_seq = 0
     UNION ALL
    SELECT 'suspended', t.suspended_at, NULL, NULL, 0, 'the tenant is suspended'
      FROM subscriptions AS s
      JOIN tenants AS t ON t.name = s.tenant
     WHERE s.seq = ?1 AND t.suspended_at IS NOT NULL
     ORDER BY reason LIMIT 16";
}

const HELD: &str = "SELECT DISTINCT subscription_seq FROM holds LIMIT 100000";

// A hold that was put while the clock was ahead gets its original length, counted from now. An older hold may have been
// moved while the clock was ahead: its end and its probe are limited to ?2, the longest wait.
const CLAMP: &str = "
    UPDATE holds SET until = min(iif(since > ?1, ?1 + (until - since), until), ?1 + ?2),
           probe_at = min(iif(since > ?1, ?1 + (probe_at - since), probe_at), ?1 + ?2),
           since = min(since, ?1)
     WHERE since > ?1
        OR until > ?1 + ?2
        OR probe_at > ?1 + ?2
    RETURNING subscription_seq";

const MOVE_ENDS: &str = "
    UPDATE holds SET until = until + ?1, probe_at = probe_at + ?1
     WHERE until IS NOT NULL OR probe_at IS NOT NULL
    RETURNING subscription_seq";

const COUNT: &str = "
    SELECT reason, count(*) FROM holds
     GROUP BY reason
     UNION ALL
    SELECT 'suspended', count(*) FROM subscriptions AS s
      JOIN tenants AS t ON t.name = s.tenant
     WHERE t.suspended_at IS NOT NULL AND s.deleted_at IS NULL
    HAVING count(*) > 0
     LIMIT 16";

/// The longest time until a hold ends or is probed: the maximum `Retry-After`, plus jitter.
const LONGEST: Duration = Duration::from_hours(27);

queries! {
    /// The holds of a subscription, including the site's hold.
    pub fn of(subscription: SubscriptionSeq) -> Vec<Hold> = rows as hold OF;

    /// The subscriptions of at most `limit` holds whose time is over.
    pub fn over(now: Timestamp, limit: u32) -> Vec<SubscriptionSeq> = list
        "SELECT subscription_seq FROM holds WHERE until <= ?1 LIMIT ?2";

    /// Whether any hold exists.
    pub fn any() -> bool = exists HELD;
}

/// Puts a hold on a subscription. If the hold exists, its next probe is set; `until` can only become later.
pub fn put(tx: &WriteTx<'_>, subscription: SubscriptionSeq, hold: &Hold) -> Result<()> {
    let Hold { reason, since, until, probe_at, probe_no, detail } = hold;
    let params = (subscription, reason.as_str(), since, until, probe_at, probe_no, detail);
    let stands_since: Timestamp = tx.value(PUT, params)?;
    if stands_since == *since {
        let name = name(tx, subscription)?;
        tracing::info!(subscription = name, reason = reason.as_str(), detail, "a hold begins");
    }
    changed(tx, subscription)
}

/// Puts a hold that has no end time and no probe.
pub fn put_lasting(
    tx: &WriteTx<'_>,
    subscription: SubscriptionSeq,
    reason: HoldReason,
    detail: &str,
    now: Timestamp,
) -> Result<()> {
    let detail = detail.to_owned();
    let hold = Hold { reason, since: now, until: None, probe_at: None, probe_no: 0, detail };
    put(tx, subscription, &hold)?;
    note_changed(tx, subscription);
    Ok(())
}

/// Ends a hold at this wall time, and keeps it among the past holds; returns whether there was one.
pub fn release(
    tx: &WriteTx<'_>,
    subscription: SubscriptionSeq,
    reason: HoldReason,
    at: Timestamp,
) -> Result<bool> {
    let params = (subscription, reason.as_str(), at);
    let read = in_order!(PastHold { seq: 0, reason, since, ended_at, detail });
    let released = tx.first(RELEASE, params, read)?;
    if let Some(ended) = &released {
        past_holds::keep(tx, subscription, ended)?;
        let name = name(tx, subscription)?;
        tracing::info!(subscription = name, reason = reason.as_str(), "a hold ends");
        changed(tx, subscription)?;
        if reason.is_by_a_person() || subscription == SITE {
            note_changed(tx, subscription);
        }
    }
    Ok(released.is_some())
}

/// The name of a subscription for the log.
fn name(tx: &WriteTx<'_>, subscription: SubscriptionSeq) -> Result<String> {
    let found = tx.find(NAME, [subscription])?;
    Ok(found.unwrap_or_else(|| "the whole site".to_owned()))
}

/// Reports the new gate of a subscription; the dispatcher learns it after the commit.
fn changed(tx: &WriteTx<'_>, subscription: SubscriptionSeq) -> Result<()> {
    tx.held().replace(None);
    let holds = of(tx, subscription)?;
    // Whether the site's hold applies to a subscription depends on its target, which is not known here.
    if holds.iter().any(|hold| hold.reason == HoldReason::Offline) || subscription == SITE {
        note_changed(tx, subscription);
    } else {
        tx.gate_changed(subscription, gate(&holds));
    }
    Ok(())
}

/// A hold of the site holds many.
fn note_changed(tx: &WriteTx<'_>, subscription: SubscriptionSeq) {
    if subscription == SITE {
        tx.all_subscriptions_changed();
    } else {
        tx.subscription_changed(subscription);
    }
}

/// Whether a person relies on no further attempt, as [`Hold::reason`] says.
pub fn is_by_a_person(tx: &ReadTx<'_>, subscription: SubscriptionSeq) -> Result<bool> {
    Ok(of(tx, subscription)?.iter().any(|hold| hold.reason.is_by_a_person()))
}

/// The hold of the whole site.
pub fn of_site(tx: &ReadTx<'_>) -> Result<Option<Hold>> {
    tx.first(OF, [SITE], hold)
}

/// Whether a subscription has a hold. Every settlement asks this, so the writer caches the answer.
pub(super) fn is_held(tx: &WriteTx<'_>, subscription: SubscriptionSeq) -> Result<bool> {
    if let Some(held) = tx.held().borrow().as_ref() {
        return Ok(held.contains(&subscription.0));
    }
    let held: BTreeSet<i64> = tx.list(HELD, [])?.into_iter().collect();
    let is_held = held.contains(&subscription.0);
    tx.held().replace(Some(held));
    Ok(is_held)
}

/// Whether any hold's time is over.
pub fn any_over(tx: &ReadTx<'_>, now: Timestamp) -> Result<bool> {
    Ok(!over(tx, now, 1)?.is_empty())
}

/// Moves the ends and probes of all holds by so many ms.
pub(super) fn move_ends(tx: &WriteTx<'_>, step_ms: i64) -> Result<()> {
    let moved: Vec<SubscriptionSeq> = tx.list(MOVE_ENDS, [step_ms])?;
    moved.into_iter().try_for_each(|subscription| changed(tx, subscription))
}

/// Shortens holds that were put while the clock was ahead.
pub fn clamp(tx: &WriteTx<'_>, now: Timestamp) -> Result<()> {
    let params = (now, millis(LONGEST));
    let moved: Vec<SubscriptionSeq> = tx.list(CLAMP, params)?;
    moved.into_iter().try_for_each(|subscription| changed(tx, subscription))
}

/// How many holds exist, by reason.
pub fn count(tx: &ReadTx<'_>) -> Result<Vec<(HoldReason, u64)>> {
    tx.rows(COUNT, [], |row| {
        let Count(count) = row.get(1)?;
        Ok((cell(row, 0, "holds.reason")?, count))
    })
}
