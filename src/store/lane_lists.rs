//! Table `deliveries`, lanes for the API: which lanes have something waiting, and what is in a lane.
//!
//! Not here: heads and changes ([`crate::store::lanes`]).

use crate::store::lanes::HEAD;
use crate::store::page::MAX_OF_INDEX;
use crate::store::prelude::*;

// Each statement reads one row per lane, in the order of its index.
pub(super) const WITH_HEAD: &str = "
    SELECT lane, seq,
           tenant = ?2 AND (?3 IS NULL OR EXISTS (SELECT 1 FROM subscriptions AS s
                  WHERE s.seq = deliveries.subscription_seq AND (s.name = ?3 OR s.id = ?3)))
      FROM deliveries WHERE lane > ?1 AND head = 1 AND finished_at IS NULL
     ORDER BY lane LIMIT ?4";

// A lane may have a head in spite of a dead letter, such as a late arrival ahead of it.
pub(super) const WITHOUT_HEAD: &str = "
    SELECT lane, seq,
           tenant = ?2 AND (?3 IS NULL OR EXISTS (SELECT 1 FROM subscriptions AS s
                  WHERE s.seq = deliveries.subscription_seq AND (s.name = ?3 OR s.id = ?3)))
           AND NOT EXISTS (SELECT 1 FROM deliveries AS h
                            WHERE h.lane = deliveries.lane AND h.head = 1 AND h.finished_at IS NULL)
      FROM deliveries INDEXED BY deliveries_blocking WHERE lane > ?1
       AND state = 'dead_letter' AND head = 1
     ORDER BY lane, order_at, seq LIMIT ?4";

pub(super) const BLOCKER: &str = "
    SELECT seq FROM deliveries INDEXED BY deliveries_blocking
     WHERE lane = ?1 AND state = 'dead_letter' AND head = 1
     ORDER BY order_at, seq LIMIT 1";

pub(super) const COUNT: &str = "
    SELECT count(*)
      FROM (SELECT 1
              FROM deliveries
             WHERE lane = ?1
               AND finished_at IS NULL
               AND state <> 'parked'
             LIMIT ?2)";

pub(super) const IN_LANE: &str = "
    SELECT seq FROM deliveries
     WHERE lane = ?1 AND finished_at IS NULL AND state <> 'parked'
     ORDER BY order_at, seq LIMIT ?2";

// No index has the parked ones by lane; of the tenant's, few are expected, and no more than ?3 are read.
pub(super) const PARKED: &str = "
    SELECT seq
      FROM (SELECT seq, lane
              FROM deliveries
             WHERE state = 'parked'
               AND tenant = ?2
             ORDER BY seq
             LIMIT ?3)
     WHERE lane = ?1
     LIMIT ?4";

/// A lane's number, and its first delivery: its head, or the dead letter that blocks it.
pub type Front = (i64, DeliverySeq);

queries! {
    /// The number of open deliveries of a lane, at most `most`. Parked ones are out of the lane.
    pub fn count(lane: i64, most: u32) -> u32 = value COUNT;

    /// The first open deliveries of a lane, in its order.
    pub fn open(lane: i64, limit: u32) -> Vec<DeliverySeq> = list IN_LANE;
}

/// Lanes of a tenant with a number above `after`: the blocked ones, or those with a head. At most `limit`; also the
/// number to continue after if there may be more. `subscription` is that of the first delivery.
pub fn fronts(
    tx: &ReadTx<'_>,
    is_blocked: bool,
    tenant: &str,
    subscription: Option<&str>,
    after: i64,
    limit: usize,
) -> Result<(Vec<Front>, Option<i64>)> {
    let mut statement = tx.prepare(if is_blocked { WITHOUT_HEAD } else { WITH_HEAD })?;
    let mut lanes = statement.query((after, tenant, subscription, MAX_OF_INDEX))?;
    let mut found: Vec<Front> = Vec::new();
    let mut looked_at = 0_u32;
    while let Some(row) = lanes.next()? {
        let lane = row.get(0)?;
        let delivery = row.get(1)?;
        if row.get(2)? && found.last().is_none_or(|(last, _)| *last != lane) {
            found.push((lane, delivery));
        }
        looked_at = looked_at.saturating_add(1);
        if found.len() >= limit || looked_at >= MAX_OF_INDEX {
            return Ok((found, Some(lane)));
        }
    }
    Ok((found, None))
}

/// The head of a lane, or the dead letter that blocks it; the flag says that it blocks.
pub fn front(tx: &ReadTx<'_>, lane: i64) -> Result<Option<(DeliverySeq, bool)>> {
    if let Some(head) = tx.find(HEAD, [lane])? {
        return Ok(Some((head, false)));
    }
    tx.first(BLOCKER, [lane], |row| Ok((row.get(0)?, true)))
}

/// The parked deliveries of a lane.
pub fn parked(tx: &ReadTx<'_>, tenant: &str, lane: i64, limit: u32) -> Result<Vec<DeliverySeq>> {
    let most = MAX_OF_INDEX;
    tx.list(PARKED, (lane, tenant, most, limit))
}
