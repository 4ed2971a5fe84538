//! What moves together: a delivery with its attempt, its event and its subscription, in one transaction.
//!
//! What follows an attempt is decided in `model::delivery`. There is no SQL here: each table's is in its
//! own file.

use serde_json::json;

use crate::base::clock::Timestamp;
use crate::base::id::{DeliverySeq, SubscriptionSeq};
use crate::model::audit::changes::Changes;
use crate::model::audit::{Actor, NewAuditEvent};
use crate::model::delivery::{Next, Settlement, State};
use crate::model::subscription::{HoldReason, State as SubscriptionState};
use crate::store::deliveries::{self, DeliveryState, Origin};
use crate::store::error::Result;
use crate::store::tx::{Settled, WriteTx};
use crate::store::{
    attempts, audit_events, holds, in_doubt, leases, outbox, subscriptions, webhook_events,
};

/// Stores an attempt and what follows it.
///
/// An attempt whose delivery was cancelled or reopened meanwhile is recorded and moves nothing.
pub fn settle(tx: &WriteTx<'_>, settlement: &Settlement) -> Result<()> {
    let Settlement { delivery, subscription, run_no, attempt, .. } = settlement;
    let before = deliveries::state(tx, *delivery)?;
    attempts::insert(tx, *delivery, before.attempt_count.saturating_add(1), attempt)?;
    let next_due = if before.state == State::Pending && before.run_no == *run_no {
        follow(tx, settlement, &before)?
    } else {
        deliveries::count_late(tx, *delivery)?;
        // If it was reopened while this attempt was under way, the dispatcher has skipped it until now.
        before.due_at
    };
    note_attempt(tx, *subscription, attempt.class.is_success(), attempt.finished_at);
    tx.settled(Settled { delivery: *delivery, subscription: *subscription, next_due });
    Ok(())
}

/// Moves the delivery, its event and its subscription; returns when it is tried again.
fn follow(
    tx: &WriteTx<'_>,
    settlement: &Settlement,
    before: &DeliveryState,
) -> Result<Option<Timestamp>> {
    let Settlement { subscription, attempt, next, now, .. } = settlement;
    let mut next_due = None;
    match next {
        Next::Retry(wait) => {
            let due_at = now.plus(*wait);
            next_due = Some(due_at);
            deliveries::reschedule(tx, settlement, due_at, *wait)?;
        }
        Next::Complete => deliveries::finish(tx, settlement, State::Completed, None)?,
        Next::GiveUp(reason) => {
            deliveries::finish(tx, settlement, State::DeadLetter, Some(reason))?;
        }
        Next::GiveUpAndDisable(reason) => {
            deliveries::finish(tx, settlement, State::DeadLetter, Some(reason))?;
            disable(tx, *subscription, reason, attempt.finished_at)?;
        }
    }
    refresh(tx, before.origin, attempt.failed_reason.as_deref(), *now)?;
    before.elect_head(tx, *now)?;
    Ok(next_due)
}

/// Disables a subscription whose target answered that it is gone for good. The audit event names Oncebox as the actor.
/// A second such answer changes nothing.
fn disable(tx: &WriteTx<'_>, seq: SubscriptionSeq, reason: &str, now: Timestamp) -> Result<()> {
    let before = subscriptions::by_seq(tx, seq)?;
    subscriptions::set_state(tx, seq, SubscriptionState::DisabledDead, now)?;
    holds::put(tx, seq, HoldReason::Disabled, reason, now)?;
    let Some(before) = before.filter(|have| have.state != SubscriptionState::DisabledDead) else {
        return Ok(());
    };
    let was = json!({ "state": before.state.as_str() });
    let is = json!({ "state": SubscriptionState::DisabledDead.as_str(), "reason": reason });
    let changes = Changes::between(&was, &is);
    let tenant = &before.new.tenant;
    let event = NewAuditEvent::local(now, tenant, Actor::system(), "subscription.disable");
    audit_events::append(tx, &event.of("subscription", &before.new.id, changes))
}

/// Derives the event's status again.
pub(super) fn refresh(
    tx: &WriteTx<'_>,
    origin: Origin,
    error: Option<&str>,
    now: Timestamp,
) -> Result<()> {
    let tally = deliveries::tally(tx, origin)?;
    match origin {
        Origin::Outbox(seq) => outbox::refresh(tx, seq, tally, error, now),
        Origin::WebhookEvent(seq) => webhook_events::refresh(tx, seq, tally, error, now),
    }
}

/// Notes what an attempt means for its subscription.
pub(super) fn note_attempt(
    tx: &WriteTx<'_>,
    subscription: SubscriptionSeq,
    success: bool,
    at: Timestamp,
) {
    tx.note_attempt(subscription, |attempts| {
        if success {
            attempts.last_success_at = Some(at);
            attempts.failures_since_success = 0;
            attempts.first_failure_at = None;
        } else {
            attempts.last_failure_at = Some(at);
            attempts.failures_since_success += 1;
            attempts.first_failure_at = attempts.first_failure_at.or(Some(at));
        }
    });
}

/// Sends a delivery again: a waiting one becomes due now, a leased one is taken from its consumer, a finished one is
/// reopened.
/// Fails with `Changed` when it is completed, waits to be confirmed, or its subscription is deleted.
pub fn retry(tx: &WriteTx<'_>, delivery: DeliverySeq, now: Timestamp) -> Result<()> {
    let before = deliveries::state(tx, delivery)?;
    match before.state {
        State::Pending => deliveries::make_due_now(tx, delivery, now)?,
        State::Leased => leases::take_from(tx, delivery, now)?,
        _ => deliveries::reopen(tx, delivery, now)?,
    }
    refresh(tx, before.origin, None, now)?;
    before.elect_head(tx, now)?;
    tx.ring(before.subscription);
    Ok(())
}

/// Cancels a delivery that waits or is dead. An attempt that is under way is not stopped.
/// Fails with `Changed` when it neither waits, nor is dead or in doubt.
pub fn cancel(tx: &WriteTx<'_>, delivery: DeliverySeq, reason: &str, now: Timestamp) -> Result<()> {
    let before = deliveries::state(tx, delivery)?;
    deliveries::cancel(tx, delivery, reason, now)?;
    refresh(tx, before.origin, None, now)?;
    before.elect_head(tx, now)
}

/// Holds a delivery that may have been made before a restore.
pub(crate) fn doubt(tx: &WriteTx<'_>, delivery: DeliverySeq, now: Timestamp) -> Result<()> {
    let before = deliveries::state(tx, delivery)?;
    in_doubt::doubt(tx, delivery)?;
    refresh(tx, before.origin, None, now)?;
    before.elect_head(tx, now)
}

/// Releases a delivery in doubt: it is sent under the `webhook-id` it had.
/// Fails with `Changed` when it is not in doubt.
pub fn release(tx: &WriteTx<'_>, delivery: DeliverySeq, now: Timestamp) -> Result<()> {
    let before = deliveries::state(tx, delivery)?;
    in_doubt::release(tx, delivery, now)?;
    refresh(tx, before.origin, None, now)?;
    tx.ring(before.subscription);
    Ok(())
}

/// Ends a delivery in doubt without sending it: it was made before the restore.
/// Fails with `Changed` when it is not in doubt.
pub fn skip(tx: &WriteTx<'_>, delivery: DeliverySeq, reason: &str, now: Timestamp) -> Result<()> {
    let before = deliveries::state(tx, delivery)?;
    in_doubt::skip(tx, delivery, reason, now)?;
    refresh(tx, before.origin, None, now)?;
    before.elect_head(tx, now)
}
