//! What moves together: a delivery with its attempt, its event and its subscription, in one transaction.
//!
//! What follows an attempt is decided in `domain::delivery`. There is no SQL here: each table's is in its
//! own file.

use serde_json::json;

use crate::clock::Timestamp;
use crate::domain::audit::changes::Changes;
use crate::domain::audit::{Actor, NewAuditEvent};
use crate::domain::delivery::{Next, Settlement, State};
use crate::domain::subscription::{HoldReason, State as SubscriptionState};
use crate::id::{DeliverySeq, SubscriptionSeq};
use crate::store::deliveries::{self, Origin};
use crate::store::error::Result;
use crate::store::tx::{Settled, WriteTx};
use crate::store::{attempts, audit_events, holds, outbox, subscriptions, webhook_events};

/// Stores an attempt and what follows it.
///
/// An attempt whose delivery was cancelled or reopened meanwhile is recorded and moves nothing.
///
/// # Errors
/// When the file cannot be written.
pub fn settle(tx: &WriteTx<'_>, settlement: &Settlement) -> Result<()> {
    let Settlement { delivery, subscription, run_no, attempt, .. } = settlement;
    let before = deliveries::standing(tx, *delivery)?;
    attempts::insert(tx, *delivery, before.attempt_count.saturating_add(1), attempt)?;
    let next_due = if before.state == State::Pending && before.run_no == *run_no {
        follow(tx, settlement, before.origin)?
    } else {
        deliveries::count_late(tx, *delivery)?;
        // Reopened while this attempt was under way: the dispatcher has passed it by until now.
        before.due_at
    };
    note_standing(tx, *subscription, attempt.class.is_success(), attempt.finished_at);
    tx.settled(Settled { delivery: *delivery, subscription: *subscription, next_due });
    Ok(())
}

/// Moves the delivery, its event and its subscription; returns when it is tried again.
fn follow(tx: &WriteTx<'_>, settlement: &Settlement, origin: Origin) -> Result<Option<Timestamp>> {
    let Settlement { subscription, attempt, next, now, .. } = settlement;
    let mut next_due = None;
    match next {
        Next::Retry(wait) => {
            let due_at = now.plus(*wait);
            next_due = Some(due_at);
            deliveries::put_off(tx, settlement, due_at, *wait)?;
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
    refresh(tx, origin, attempt.failed_reason.as_deref(), *now)?;
    Ok(next_due)
}

/// Disables a subscription whose target said that it is gone for good. Nobody asked for it, so it is
/// recorded as Oncebox's own doing; a second answer of that kind changes nothing.
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
fn refresh(tx: &WriteTx<'_>, origin: Origin, error: Option<&str>, now: Timestamp) -> Result<()> {
    let tally = deliveries::tally(tx, origin)?;
    match origin {
        Origin::Outbox(seq) => outbox::refresh(tx, seq, tally, error, now),
        Origin::WebhookEvent(seq) => webhook_events::refresh(tx, seq, tally, error, now),
    }
}

fn note_standing(tx: &WriteTx<'_>, subscription: SubscriptionSeq, success: bool, at: Timestamp) {
    tx.with_standing(subscription, |standing| {
        if success {
            standing.last_success_at = Some(at);
            standing.failures_since_success = 0;
            standing.first_failure_at = None;
        } else {
            standing.last_failure_at = Some(at);
            standing.failures_since_success += 1;
            standing.first_failure_at = standing.first_failure_at.or(Some(at));
        }
    });
}

/// Sends a delivery again: one that waits becomes due now, one that was given up is reopened.
///
/// # Errors
/// `Changed` when it is completed, with a worker outside, or its subscription is deleted.
pub fn retry(tx: &WriteTx<'_>, delivery: DeliverySeq, now: Timestamp) -> Result<()> {
    let before = deliveries::standing(tx, delivery)?;
    if before.state == State::Pending {
        deliveries::hasten(tx, delivery, now)?;
    } else {
        deliveries::reopen(tx, delivery, now)?;
    }
    refresh(tx, before.origin, None, now)?;
    tx.ring(before.subscription);
    Ok(())
}

/// Stops a delivery that waits, or puts a dead one away for good. An attempt that is under way is not
/// called back.
///
/// # Errors
/// `Changed` when it neither waits nor is dead.
pub fn cancel(tx: &WriteTx<'_>, delivery: DeliverySeq, reason: &str, now: Timestamp) -> Result<()> {
    let before = deliveries::standing(tx, delivery)?;
    deliveries::cancel(tx, delivery, reason, now)?;
    refresh(tx, before.origin, None, now)
}
