//! Deliveries that are skipped when their turn comes: a newer one about the same entity waits, or the call they would
//! make must not be made any more.

use crate::model::delivery::DeliveryState;
use crate::model::external_call::NewCall;
use crate::store::deliveries::{self, DeliveryRow};
use crate::store::prelude::*;
use crate::store::tx::Settled;
use crate::store::{attempts, external_calls, holds, settlement};

/// Whether a delivery is the newest about its entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recency {
    /// It is pending, and none that is newer waits.
    Latest,
    /// It is pending, and a newer one waits.
    Superseded,
    /// It is not pending any more.
    Ended,
}

/// The recency of a delivery at this schedule time.
pub fn recency(tx: &ReadTx<'_>, delivery: DeliverySeq, now: Timestamp) -> Result<Recency> {
    if deliveries::state(tx, delivery)?.state != DeliveryState::Pending {
        return Ok(Recency::Ended);
    }
    let newer = external_calls::newer(tx, delivery, now)?;
    Ok(newer.map_or(Recency::Latest, |_| Recency::Superseded))
}

/// Skips a pending delivery unless it is the latest; returns its recency before.
pub fn skip_unless_latest(
    tx: &WriteTx<'_>,
    delivery: DeliverySeq,
    now: Timestamp,
) -> Result<Recency> {
    let before = deliveries::state(tx, delivery)?;
    if before.state != DeliveryState::Pending {
        return Ok(Recency::Ended);
    }
    let Some(newer) = external_calls::newer(tx, delivery, now)? else {
        return Ok(Recency::Latest);
    };
    skip(tx, delivery, &before, &settlement::superseded_by(newer), now)?;
    Ok(Recency::Superseded)
}

/// Notes that a call is about to be made, or skips its delivery; tells whether the call may be made. If the delivery was
/// cancelled, reopened or put behind others since it was read, or its subscription held by a person, the dispatcher looks
/// again. The attempt of a call that the end of the service cut short is stored first. `now` is schedule time, `at` wall
/// time.
pub fn begin_call(tx: &WriteTx<'_>, call: &NewCall, now: Timestamp, at: Timestamp) -> Result<bool> {
    let NewCall { delivery, subscription, run_no, .. } = call;
    let before = deliveries::state(tx, *delivery)?;
    let may_go =
        before.state == DeliveryState::Pending && before.is_head && before.run_no == *run_no;
    if !may_go || holds::is_by_a_person(tx, *subscription)? {
        let next_due = Some(now);
        tx.settled(Settled { delivery: *delivery, subscription: *subscription, next_due });
        return Ok(false);
    }
    if let Some(cut) = external_calls::cut_short(tx, call)? {
        let delivery = cut.delivery;
        let attempt = cut.attempt(at);
        attempts::insert(tx, delivery, attempt.n, &attempt)?;
        deliveries::count_late(tx, delivery, attempt.method.is_some())?;
    }
    let made = external_calls::made(tx, call)?;
    let order_at = external_calls::order_at(tx, *delivery)?;
    if let Some(why) = made.as_ref().and_then(|made| call.why_not(order_at, made)) {
        external_calls::advance(tx, call, order_at)?;
        skip(tx, *delivery, &before, &why, now)?;
        return Ok(false);
    }
    external_calls::begin(tx, call, made.as_ref(), at)?;
    Ok(true)
}

/// Skips a pending delivery. The dispatcher may have it in hand, and learns that it is settled.
fn skip(
    tx: &WriteTx<'_>,
    delivery: DeliverySeq,
    before: &DeliveryRow,
    reason: &str,
    now: Timestamp,
) -> Result<()> {
    settlement::skip(tx, delivery, reason, now)?;
    // Where it was a probe of a held subscription, another one is due in its place.
    tx.settled(Settled { delivery, subscription: before.subscription, next_due: Some(now) });
    tx.ring(before.subscription);
    Ok(())
}
