//! Tables `boots`, `recent_minutes`, `recent_attempts` and `refused_webhooks`: what the next start must know of this run.
//!
//! One row per start lets the next start detect an unclean end. What happened in each minute of the last hour is kept, so
//! that a restart does not forget it; so is what was refused.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::model::attempt::RecentAttempt;
use crate::model::history::Coverage;
use crate::model::outcome::AttemptClass;
use crate::model::webhook_event::RefusedWebhook;
use crate::store::column::Count;
use crate::store::prelude::*;

const BEFORE: &str = "
    SELECT seq, started_at, stopped_at IS NOT NULL FROM boots
     WHERE seq < ?1
     ORDER BY seq DESC LIMIT ?2";

const KEEP_MINUTE: &str = "
    INSERT INTO recent_minutes (minute, tenant, counts) VALUES (?1, ?2, ?3)
        ON CONFLICT DO UPDATE SET counts = excluded.counts";

// Also those that a clock that was ahead has written.
const FORGET_MINUTES: &str = "
    DELETE FROM recent_minutes
     WHERE minute IN (SELECT DISTINCT minute FROM recent_minutes
                       WHERE minute NOT BETWEEN ?1 AND ?2 LIMIT 10)";

const MINUTES: &str = "
    SELECT minute, tenant, counts FROM recent_minutes
     WHERE minute BETWEEN ?1 AND ?2
     ORDER BY minute LIMIT 100000";

const KEEP_ATTEMPTS: &str = "
    INSERT INTO recent_attempts (subscription_seq, latest_at, attempts) VALUES (?1, ?2, ?3)
        ON CONFLICT DO UPDATE SET latest_at = excluded.latest_at, attempts = excluded.attempts";

const FORGET_ATTEMPTS: &str = "
    DELETE FROM recent_attempts
     WHERE subscription_seq IN (SELECT subscription_seq FROM recent_attempts
                                 ORDER BY latest_at DESC LIMIT 100 OFFSET 1000)";

const ATTEMPTS: &str =
    "SELECT subscription_seq, attempts FROM recent_attempts ORDER BY latest_at DESC LIMIT 1000";

// A kill loses the attempts of the minute that ran; most of them are of the newest deliveries.
pub(super) const ATTEMPTS_OF_NEWEST: &str = "
    SELECT d.subscription_seq, a.delivery_seq, a.finished_at, a.class, a.http_status, a.latency_ms
      FROM deliveries AS d NOT INDEXED
     CROSS JOIN attempts AS a ON a.delivery_seq = d.seq
     WHERE d.seq > (SELECT max(seq) FROM deliveries) - 2000
     ORDER BY d.seq DESC, a.n DESC
     LIMIT 4000";

const SEE: &str = "UPDATE boots SET seen_at = ?1 WHERE seq = (SELECT max(seq) FROM boots)";

// The latest row is of the process that asks.
const RUNS: &str = "
    SELECT started_at,
           iif(seq = (SELECT max(seq) FROM boots), ?2, coalesce(seen_at, started_at)) AS seen_at
      FROM (SELECT seq, started_at, seen_at FROM boots ORDER BY seq DESC LIMIT 5000)
     WHERE started_at <= ?2
       AND (seen_at >= ?1 OR seq = (SELECT max(seq) FROM boots))
     LIMIT 5000";

/// How many rows `refused_webhooks` has at most, as its CHECK says.
pub const MAX_REFUSED: u32 = 10_000;

columns! {
    fn read_refused() -> Refused = "refused_webhooks" [
        slot, tenant, seq, provider, is_known, status, reason, address, first_at, last_at, count as Count(count)
    ] {
        slot, tenant,
        row: RefusedWebhook {
            seq, provider, is_known, status, reason, address, first_at, last_at, count
        }
    }
    /// What was refused before, the oldest first.
    pub fn refused() -> Vec = "ORDER BY seq LIMIT 10000";
}

queries! {
    /// Whether the latest run ended cleanly; `None` before the first start.
    pub fn last_was_clean() -> Option<bool> = find
        "SELECT stopped_at IS NOT NULL FROM boots ORDER BY seq DESC LIMIT 1";
}

changes! {
    /// Records a clean stop.
    pub fn stop(boot: i64, now: Timestamp) =
        "UPDATE boots SET stopped_at = ?2 WHERE seq = ?1 AND stopped_at IS NULL";
}

/// Records a start; returns its number.
pub fn start(tx: &WriteTx<'_>, now: Timestamp, version: &str) -> Result<i64> {
    tx.execute("INSERT INTO boots (started_at, version) VALUES (?1, ?2)", (now, version))?;
    Ok(tx.conn().last_insert_rowid())
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

/// When the service ran and counted, between a time and now. Of the latest 5,000 starts.
pub fn coverage(tx: &ReadTx<'_>, since: Timestamp, now: Timestamp) -> Result<Coverage> {
    tx.rows(RUNS, (since, now), tuple).map(Coverage::of)
}

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

/// Stores the counts of minutes.
pub fn keep_minutes(tx: &WriteTx<'_>, counted: &[Counted]) -> Result<()> {
    tx.mark_unseen();
    for Counted { minute, tenant, counts } in counted {
        tx.execute(KEEP_MINUTE, (minute, tenant, counts))?;
    }
    Ok(())
}

/// The latest attempts of a subscription, the newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatestAttempts {
    /// The subscription.
    pub subscription: SubscriptionSeq,
    /// The attempts.
    pub attempts: Vec<RecentAttempt>,
}

/// An attempt as it stands in `recent_attempts`, which is short.
#[derive(Serialize, Deserialize)]
struct StoredAttempt(i64, i64, AttemptClass, Option<u16>, u32);

impl From<RecentAttempt> for StoredAttempt {
    fn from(of: RecentAttempt) -> Self {
        Self(of.delivery.0, of.at.ms(), of.class, of.http_status, of.latency_ms)
    }
}

impl From<StoredAttempt> for RecentAttempt {
    fn from(StoredAttempt(delivery, at, class, http_status, latency_ms): StoredAttempt) -> Self {
        let delivery = DeliverySeq(delivery);
        Self { delivery, at: Timestamp::from_ms(at), class, http_status, latency_ms }
    }
}

/// Stores the latest attempts of subscriptions. Of all subscriptions, 1,000 keep theirs.
pub fn keep_attempts(tx: &WriteTx<'_>, all: &[LatestAttempts]) -> Result<()> {
    tx.mark_unseen();
    for LatestAttempts { subscription, attempts } in all {
        let latest_at = attempts.iter().map(|attempt| attempt.at).max();
        let stored: Vec<_> = attempts.iter().copied().map(StoredAttempt::from).collect();
        let stored = serde_json::to_string(&stored).unwrap_or_default();
        tx.execute(KEEP_ATTEMPTS, (subscription, latest_at, stored))?;
    }
    tx.execute(FORGET_ATTEMPTS, []).map(drop)
}

/// The latest attempts of 1,000 subscriptions: those that are stored, and those of the newest deliveries.
pub fn latest_attempts(tx: &ReadTx<'_>) -> Result<Vec<LatestAttempts>> {
    let stored: Vec<(SubscriptionSeq, String)> = tx.rows(ATTEMPTS, [], tuple)?;
    let read = |(subscription, attempts): (SubscriptionSeq, String)| {
        // A row that cannot be read is only missing in a picture.
        let stored: Vec<StoredAttempt> = serde_json::from_str(&attempts).unwrap_or_default();
        let attempts = stored.into_iter().map(RecentAttempt::from).collect();
        LatestAttempts { subscription, attempts }
    };
    let mut all: Vec<LatestAttempts> = stored.into_iter().map(read).collect();
    let newest = tx.rows(ATTEMPTS_OF_NEWEST, [], |row| {
        let attempt = RecentAttempt {
            delivery: row.get(1)?,
            at: row.get(2)?,
            class: row.get(3)?,
            http_status: row.get(4)?,
            latency_ms: row.get(5)?,
        };
        Ok((row.get::<_, SubscriptionSeq>(0)?, attempt))
    })?;
    for (subscription, attempt) in newest {
        match all.iter_mut().find(|of| of.subscription == subscription) {
            Some(of) if of.attempts.contains(&attempt) => {}
            Some(of) => of.attempts.push(attempt),
            None => all.push(LatestAttempts { subscription, attempts: vec![attempt] }),
        }
    }
    for of in &mut all {
        of.attempts.sort_by_key(|attempt| std::cmp::Reverse(attempt.at));
    }
    Ok(all)
}

/// Records that what this run counted is stored, up to this time. Forgets a few minutes that are not among `kept`.
pub fn see(tx: &WriteTx<'_>, until: Timestamp, kept: &RangeInclusive<i64>) -> Result<()> {
    tx.mark_unseen();
    tx.execute(SEE, [until])?;
    tx.execute(FORGET_MINUTES, (kept.start(), kept.end())).map(drop)
}

/// The counts of minutes, the oldest first.
pub fn minutes(tx: &ReadTx<'_>, of: &RangeInclusive<i64>) -> Result<Vec<Counted>> {
    tx.rows(MINUTES, (of.start(), of.end()), in_order!(Counted { minute, tenant, counts }))
}

/// Refused webhooks of a tenant, in one of the table's slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// 1 to [`MAX_REFUSED`].
    pub slot: u32,
    /// The tenant.
    pub tenant: String,
    /// What was refused.
    pub row: RefusedWebhook,
}

/// Stores rows of refused webhooks, each in place of what was in its slot.
pub fn keep_refused(tx: &WriteTx<'_>, refused: &[Refused]) -> Result<()> {
    tx.mark_unseen();
    for Refused { slot, tenant, row } in refused {
        tx.execute("DELETE FROM refused_webhooks WHERE slot = ?1", [slot])?;
        let count = i64::try_from(row.count).unwrap_or(i64::MAX);
        insert!(tx, "refused_webhooks" of row {
            slot: slot, tenant: tenant, seq, provider, is_known, status, reason, address, first_at, last_at,
            count: count
        })?;
    }
    Ok(())
}
