//! Table `past_holds`: holds that have ended, so that a late delivery can be explained afterwards.
//!
//! The rows are bounded for each subscription and reason, by age, and in sum. A suspended tenant held all its
//! subscriptions, so its end makes a row for each of them.

use std::time::Duration;

use crate::model::hold::PastHold;
use crate::store::prelude::*;

/// How many rows of a subscription and a reason are kept, the newest.
pub const MAX_OF_REASON: u32 = 20;
/// How many rows are kept in all. If there are more, the tenant with the most rows loses its oldest ones.
pub const MAX_ROWS: u32 = 10_000;
/// How long a row is kept.
const KEPT: Duration = Duration::from_hours(90 * 24);
/// How many characters of the detail are kept.
const MAX_DETAIL: u32 = 200;

const KEEP: &str = "
    INSERT INTO past_holds (subscription_seq, reason, since, ended_at, detail)
    VALUES (?1, ?2, ?3, max(?3, ?4), substr(?5, 1, ?6))";

const KEEP_SUSPENDED: &str = "
    INSERT INTO past_holds (subscription_seq, reason, since, ended_at, detail)
    SELECT s.seq, 'suspended', t.suspended_at, max(t.suspended_at, ?2), 'the tenant was suspended'
      FROM tenants AS t
      JOIN subscriptions AS s ON s.tenant = t.name AND s.deleted_at IS NULL
     WHERE t.name = ?1 AND t.suspended_at IS NOT NULL
     ORDER BY s.seq LIMIT ?3";

const TRIM_REASON: &str = "
    DELETE FROM past_holds
     WHERE seq IN (SELECT seq FROM past_holds
                    WHERE subscription_seq = ?1 AND reason = ?2
                    ORDER BY seq DESC LIMIT 100 OFFSET ?3)";

// The newest row of each tenant comes first, then the second newest, so that the cut takes from those who have most.
const TRIM: &str = "
    DELETE FROM past_holds
     WHERE seq IN (SELECT seq FROM past_holds WHERE ended_at < ?1 LIMIT ?3)
        OR seq IN (
           SELECT seq FROM (
                  SELECT h.seq, row_number() OVER (PARTITION BY s.tenant ORDER BY h.seq DESC) AS place
                    FROM past_holds AS h
                    LEFT JOIN subscriptions AS s ON s.seq = h.subscription_seq)
            ORDER BY place, seq DESC LIMIT ?3 OFFSET ?2)";

columns! {
    fn past_hold() -> PastHold = "past_holds" [seq, reason, since, ended_at, detail] {
        seq, reason, since, ended_at, detail
    }
    /// Of a subscription and a site ([`crate::store::subscriptions::site`]): the ended holds with a number below
    /// `before`, the newest first.
    pub fn page(of: SubscriptionSeq, site: SubscriptionSeq, before: i64, limit: u32) -> Vec = "
        WHERE subscription_seq IN (?1, ?2) AND seq < ?3
        ORDER BY seq DESC LIMIT ?4";
    /// The latest ten of them that held at some time between these two, the newest first.
    pub fn between(of: SubscriptionSeq, site: SubscriptionSeq, from: Timestamp, to: Timestamp) -> Vec = "
        WHERE subscription_seq IN (?1, ?2) AND ended_at > ?3 AND since < ?4
        ORDER BY seq DESC LIMIT 10";
}

queries! {
    /// Whether there are rows to delete: the oldest is too old, or there are too many.
    fn has_more(since: Timestamp, most: u32) -> bool = value "
        SELECT coalesce((SELECT ended_at FROM past_holds ORDER BY seq LIMIT 1) < ?1, 0)
            OR EXISTS (SELECT 1 FROM past_holds LIMIT 1 OFFSET ?2)";
}

/// Keeps a hold that ends now, and deletes the oldest of its kind.
pub(super) fn keep(tx: &WriteTx<'_>, of: SubscriptionSeq, ended: &PastHold) -> Result<()> {
    let PastHold { reason, since, ended_at, detail, .. } = ended;
    tx.execute(KEEP, (of, reason.as_str(), since, ended_at, detail, MAX_DETAIL))?;
    tx.execute(TRIM_REASON, (of, reason.as_str(), MAX_OF_REASON)).map(drop)
}

/// Keeps the hold of a tenant that is suspended no longer, for each of its subscriptions.
pub(super) fn keep_suspended(tx: &WriteTx<'_>, tenant: &str, at: Timestamp) -> Result<()> {
    tx.execute(KEEP_SUSPENDED, (tenant, at, MAX_ROWS)).map(drop)
}

/// Whether [`trim`] would delete anything.
pub fn is_over(tx: &ReadTx<'_>, now: SureNow) -> Result<bool> {
    has_more(tx, now.minus(KEPT), MAX_ROWS)
}

/// Deletes rows that are too old, and those over the bound.
pub fn trim(tx: &WriteTx<'_>, now: SureNow, limit: u32) -> Result<usize> {
    tx.mark_unseen();
    tx.execute(TRIM, (now.minus(KEPT), MAX_ROWS, limit))
}
