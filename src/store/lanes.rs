//! Table `deliveries`, lanes: which delivery is first, what blocks a lane, and what a person does with a lane.
//!
//! Every function that adds, finishes or reopens a delivery in a lane must call [`elect_head`]. There are two exceptions:
//! the first delivery in an empty lane is inserted as its head, and the last one that is completed has no successor.

use crate::model::lane::HeadOfLine;
use crate::store::prelude::*;
use crate::store::subscriptions;

pub(super) const HEAD: &str = "
    SELECT seq, state = 'leased' OR state = 'waiting' FROM deliveries
     WHERE lane = ?1 AND head = 1 AND finished_at IS NULL";

pub(super) const FIRST_IN_LANE: &str = "
    SELECT seq, order_at FROM deliveries
     WHERE lane = ?1 AND finished_at IS NULL AND state <> 'parked'
     ORDER BY order_at, seq LIMIT 1";

// The last time in the lane's order: of the open deliveries, of the dead letters that block the lane, and of all.
pub(super) const LAST: &str = "
    SELECT (SELECT d.order_at
              FROM deliveries AS d
             WHERE d.lane = ?1
               AND d.finished_at IS NULL
               AND d.state <> 'parked'
             ORDER BY d.order_at DESC
             LIMIT 1),
           (SELECT b.order_at
              FROM deliveries AS b INDEXED BY deliveries_blocking
             WHERE b.lane = ?1
               AND b.state = 'dead_letter'
               AND b.head = 1
             ORDER BY b.order_at DESC
             LIMIT 1),
           (SELECT x.order_at
              FROM deliveries AS x INDEXED BY deliveries_dead_in_lane
             WHERE x.lane = ?1
               AND x.state = 'dead_letter'
             ORDER BY x.order_at DESC
             LIMIT 1)";

// The last dead letter before a delivery. An event may ask that dead letters ahead of it are left out.
pub(super) const BLOCKED_BY: &str = "
    SELECT b.seq FROM deliveries AS b INDEXED BY deliveries_blocking
     WHERE b.lane = ?1 AND b.state = 'dead_letter' AND b.head = 1 AND (b.order_at, b.seq) < (?2, ?3)
       AND NOT EXISTS (SELECT 1 FROM deliveries AS d JOIN outbox AS o ON o.seq = d.outbox_seq
                        WHERE d.seq = ?3 AND o.exclude_failed <> 0)
     ORDER BY b.order_at DESC, b.seq DESC LIMIT 1";

const BLOCKED: &str =
    "SELECT lane, order_at FROM deliveries WHERE seq = ?1 AND lane IS NOT NULL AND head = 0";

pub(super) const DEMOTE: &str =
    "UPDATE deliveries SET head = 0 WHERE seq = ?1 AND head = 1 AND finished_at IS NULL";

// `CLAMP_DUE` corrects due times after a clock change, but only of heads. The due time of a delivery behind a head is
// corrected here, when it becomes the head. ?2 may be a little older than the row, so differences of up to a minute
// are ignored.
pub(super) const PROMOTE: &str = "
    UPDATE deliveries SET head = 1,
           due_at = iif(due_at > ?2 + delay_ms + 60000, max(?2 + delay_ms, coalesce(
               (SELECT o.not_before FROM outbox AS o WHERE o.seq = deliveries.outbox_seq), 0)), due_at)
     WHERE seq = ?1 AND head = 0 AND finished_at IS NULL
 RETURNING subscription_seq";

// A late arrival may have become the head during the last attempt, so this sets `head` either way.
const BLOCK: &str =
    "UPDATE deliveries SET head = ?2 WHERE seq = ?1 AND state = 'dead_letter' AND lane IS NOT NULL";

pub(super) const BLOCKING_OF: &str = "
    SELECT seq, lane FROM deliveries
     WHERE state = 'dead_letter' AND subscription_seq = ?1 AND head = 1 AND lane IS NOT NULL
     LIMIT ?2";

queries! {
    fn blocked_by(lane: i64, order_at: Timestamp, seq: DeliverySeq) -> Option<DeliverySeq> = find BLOCKED_BY;
}

changes! {
    /// Sets a pending delivery aside, so that its lane goes on.
    pub(super) fn park(delivery: DeliverySeq, reason: &str) of "the delivery" = "
    UPDATE deliveries SET state = 'parked', due_at = NULL, head = 0, reason = ?2
     WHERE seq = ?1 AND state = 'pending' AND lane IS NOT NULL";

    /// Puts a parked delivery back to its place in its lane.
    pub(super) fn release(delivery: DeliverySeq, now: Timestamp) of "the delivery" = "
    UPDATE deliveries
       SET state = 'pending', delay_ms = 0, counted_failures = 0, reason = NULL, due_at = max(?2, coalesce(
           (SELECT o.not_before FROM outbox AS o WHERE o.seq = deliveries.outbox_seq), 0))
     WHERE seq = ?1 AND state = 'parked'";

    /// Ends a delivery without sending it: a pending or parked one, or a dead letter.
    pub(super) fn skip(delivery: DeliverySeq, reason: &str, now: Timestamp) of "the delivery" = "
    UPDATE deliveries SET state = 'skipped', due_at = NULL, finished_at = ?3, reason = ?2
     WHERE seq = ?1 AND state IN ('pending', 'parked', 'dead_letter')";

    /// Moves a pending delivery behind all others of its lane.
    pub(super) fn move_to_end(delivery: DeliverySeq) of "the delivery" = "
    UPDATE deliveries
       SET order_at = 1 + max(order_at, (
           SELECT l.order_at
             FROM deliveries AS l
            WHERE l.lane = deliveries.lane
              AND l.finished_at IS NULL
              AND l.state <> 'parked'
            ORDER BY l.order_at DESC
            LIMIT 1))
     WHERE seq = ?1 AND state = 'pending' AND lane IS NOT NULL";
}

/// Elects the head of a lane: its first unfinished delivery, unless a dead letter before it blocks the lane. If a
/// consumer or the target has the current head, that head stays.
pub(super) fn elect_head(tx: &WriteTx<'_>, lane: i64, now: Timestamp) -> Result<()> {
    let front = tx.first(FIRST_IN_LANE, [lane], tuple::<(DeliverySeq, Timestamp)>)?;
    let Some((front, order_at)) = front else { return Ok(()) };
    let head = tx.first(HEAD, [lane], tuple::<(DeliverySeq, bool)>)?;
    if head.is_some_and(|(_, is_taken)| is_taken) {
        return Ok(());
    }
    let next = if blocked_by(tx, lane, order_at, front)?.is_none() { Some(front) } else { None };
    let head = head.map(|(head, _)| head);
    if head == next {
        return Ok(());
    }
    if let Some(head) = head {
        tx.change_one(DEMOTE, [head], "the delivery")?;
    }
    if let Some(next) = next {
        let promoted = tx.find(PROMOTE, (next, now))?;
        tx.ring(promoted.ok_or(Error::Changed("the delivery"))?);
    }
    Ok(())
}

/// The time in the lane's order of the last delivery that is open or blocks the lane, dead letters included: a replay puts
/// them before later arrivals. If the first is `None`, a new one is the lane's head.
pub(super) fn last(tx: &ReadTx<'_>, lane: i64) -> Result<(Option<Timestamp>, Option<Timestamp>)> {
    let found = tx.first(LAST, [lane], tuple::<(Option<Timestamp>, _, Option<Timestamp>)>)?;
    let (open, blocking, dead) = found.unwrap_or_default();
    Ok((open.max(blocking), open.max(dead)))
}

/// The delivery for which another one waits: its lane's head, or the dead letter that blocks the lane. `None` if it is
/// the head, or has no lane.
pub fn waits_for(tx: &ReadTx<'_>, delivery: DeliverySeq) -> Result<Option<DeliverySeq>> {
    let found = tx.first(BLOCKED, [delivery], tuple::<(i64, Timestamp)>)?;
    let Some((lane, order_at)) = found else { return Ok(None) };
    let head = tx.find(HEAD, [lane])?;
    head.map_or_else(|| blocked_by(tx, lane, order_at, delivery), |head| Ok(Some(head)))
}

/// Makes a delivery that waits for its confirmation the head of its lane, unless another one is in hand. An earlier one
/// may have arrived during its attempt.
pub(super) fn hold(
    tx: &WriteTx<'_>,
    lane: i64,
    delivery: DeliverySeq,
    now: Timestamp,
) -> Result<()> {
    let head = tx.first(HEAD, [lane], tuple::<(DeliverySeq, bool)>)?;
    match head {
        Some((head, is_taken)) if head == delivery || is_taken => return Ok(()),
        Some((head, _)) => tx.change_one(DEMOTE, [head], "the delivery")?,
        None => {}
    }
    Ok(tx.prepare(PROMOTE)?.query_row((delivery, now), |_| Ok(()))?)
}

/// Rings every subscription with a funnel point: a delivery that held its funnel has gone on.
pub(super) fn ring_funnels(tx: &WriteTx<'_>) -> Result<()> {
    for own in subscriptions::routes(tx)?.having(|facts| facts.has_funnel) {
        for route in own.iter().filter(|route| route.new.order.funnel_point.is_some()) {
            tx.ring(route.seq);
        }
    }
    Ok(())
}

/// A delivery of the subscription was given up: its lane is blocked only where the subscription wants that.
pub(super) fn given_up(
    tx: &WriteTx<'_>,
    delivery: DeliverySeq,
    subscription: SubscriptionSeq,
) -> Result<()> {
    let found = subscriptions::routes(tx)?.get(subscription);
    let blocks = found.is_some_and(|found| found.new.order.head_of_line == HeadOfLine::Block);
    tx.execute(BLOCK, (delivery, blocks)).map(drop)
}

/// Lets the lanes of a subscription go on behind its dead letters, at most `limit` of them; returns how many.
pub fn unblock_all(
    tx: &WriteTx<'_>,
    subscription: SubscriptionSeq,
    limit: u32,
    now: Timestamp,
) -> Result<usize> {
    let blocking = tx.rows(BLOCKING_OF, (subscription, limit), tuple::<(DeliverySeq, i64)>)?;
    for (delivery, lane) in &blocking {
        tx.change_one(BLOCK, (delivery, false), "the delivery")?;
        elect_head(tx, *lane, now)?;
    }
    Ok(blocking.len())
}
