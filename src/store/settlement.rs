//! Changes of a delivery together with its attempt, failure, event, subscription and holds, in one transaction.
//!
//! `model::failure` decides what follows an attempt. There is no SQL here.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::base::id;
use crate::formats::filter::Unknown;
use crate::model::attempt::AttemptReport;
use crate::model::audit::changes::Changes;
use crate::model::audit::{Actor, NewAuditEvent};
use crate::model::delivery::DeliveryState;
use crate::model::escalation::{Class, NewEscalation};
use crate::model::event::{NewEvent, Tried};
use crate::model::external_call::CallState;
use crate::model::failure::{
    ESCALATED_AT, NewHold, Next, RetryFacts, RetryVerdict, Streak, UNSEEN_AFTER, judge,
};
use crate::model::hold::{Hold, HoldReason};
use crate::model::operational::OperationalKind;
use crate::model::outcome::{AttemptClass, Cause};
use crate::model::settlement::Settlement;
use crate::model::subscription::{Subscription, SubscriptionState};
use crate::store::deliveries::{self, DeliveryRow, Origin, Route};
use crate::store::matching::MatchedSubscription;
use crate::store::operational::HoldChange;
use crate::store::prelude::*;
use crate::store::tx::{SetAside, Settled};
use crate::store::{
    attempts, audit_events, credentials, escalations, external_calls, failures, holds, in_doubt,
    lanes, leases, operational, outbox, postponed, renderings, subscriptions, webhook_events,
};

/// A target that asks for a longer wait than this is escalated.
const LONG_WAIT: Duration = Duration::from_hours(1);

/// Stores an attempt and what follows from it; returns what was stored, or `None` if the attempt was already stored.
///
/// If the delivery was cancelled or reopened meanwhile, the attempt is only recorded.
pub fn settle(tx: &WriteTx<'_>, report: &Arc<AttemptReport>) -> Result<Option<Settlement>> {
    let AttemptReport { delivery, subscription, run_no, attempt, order, .. } = &**report;
    let before = deliveries::state(tx, *delivery)?;
    let done = |next_due| {
        tx.settled(Settled { delivery: *delivery, subscription: *subscription, next_due });
    };
    if attempt.n <= before.attempt_count && attempts::is_stored(tx, *delivery, attempt)? {
        done(before.due_at);
        return Ok(None);
    }
    let is_success = attempt.class.is_success();
    let facts = if is_success { RetryFacts::default() } else { facts(tx, report, &before)? };
    let settlement = Settlement::new(Arc::clone(report), judge(report, &facts));
    let n = before.attempt_count.saturating_add(1);
    attempts::insert(tx, *delivery, n, &settlement.report.attempt)?;
    if order.is_call {
        end_call(tx, &settlement, before.state)?;
    }
    let next_due = if before.state == DeliveryState::Pending && before.run_no == *run_no {
        if let Some(data) = &order.custom_data {
            deliveries::set_custom_data(tx, *delivery, data)?;
        }
        follow(tx, &settlement, &before)?
    } else {
        let is_fixed = before.run_no == *run_no && attempt.method.is_some();
        deliveries::count_late(tx, *delivery, is_fixed)?;
        // If the delivery was reopened during this attempt, the dispatcher learns its due time only now.
        before.due_at
    };
    if !report.is_inconclusive {
        let class = settlement.verdict.class;
        let extends_streak = facts.extends_streak(class, report.now);
        note_attempt(tx, *subscription, class, extends_streak, attempt.finished_at)?;
    }
    if is_success {
        end_holds(tx, *subscription, before.origin, attempt.finished_at)?;
    } else {
        hold(tx, &settlement, before.origin)?;
    }
    done(next_due);
    Ok(Some(settlement))
}

/// A delivery was completed: older ones about its entity that wait are skipped. One that is in flight is not tried again.
pub(super) fn skip_older(tx: &WriteTx<'_>, delivery: DeliverySeq, now: Timestamp) -> Result<()> {
    for older in external_calls::older(tx, delivery)? {
        skip(tx, older, &superseded_by(delivery), now)?;
    }
    Ok(())
}

/// Why a delivery about the same entity is skipped.
pub(super) fn superseded_by(delivery: DeliverySeq) -> String {
    format!("superseded by {delivery} (latest_only)")
}

/// Notes how an external call has ended. One that was stopped meanwhile is not tried again.
fn end_call(tx: &WriteTx<'_>, settlement: &Settlement, state: DeliveryState) -> Result<()> {
    let Settlement { report, verdict } = settlement;
    let state = match (&verdict.next, state) {
        (Next::Complete | Next::Confirm(_), _) => CallState::Ok,
        (Next::Retry(_) | Next::Park(_), DeliveryState::Pending | DeliveryState::Parked) => {
            CallState::Failed
        }
        (Next::Retry(_) | Next::Park(_) | Next::GiveUp(_), _) => CallState::FailedEnd,
    };
    let is_unknown = [Cause::Timeout, Cause::Broken].iter().any(|c| c.as_str() == report.code);
    let AttemptReport { delivery, subscription, ref attempt, .. } = **report;
    external_calls::end(tx, subscription, delivery, state, is_unknown, attempt.finished_at)
}

/// What `judge` needs to know about the delivery and its subscription before the attempt.
fn facts(tx: &WriteTx<'_>, report: &AttemptReport, before: &DeliveryRow) -> Result<RetryFacts> {
    let seq = report.subscription;
    let stored = subscriptions::by_seq(tx, seq)?;
    let noted = tx.noted_attempts(seq);
    let failure = failures::of(tx, report.delivery)?.filter(|found| found.resolved_at.is_none());
    let failures_alone = failure.as_ref().map_or(0, |found| found.alone);
    let holds = if holds::is_held(tx, seq)? { holds::of(tx, seq)? } else { Vec::new() };
    let probe = |reason| holds.iter().find(|hold| hold.reason == reason).map(|h| h.probe_no);
    let stored = stored.as_ref();
    let first_failure_at = noted.first_failure_at;
    // Compared with the last attempt before this transaction, as `subscriptions::store_attempts` does.
    let seen_at = first_failure_at.unwrap_or(report.attempt.finished_at);
    let was_seen = |found: &&Subscription| {
        found.last_failure_at.is_none_or(|last| seen_at.since(last) <= UNSEEN_AFTER)
    };
    let failing_since = match noted.last_success_at {
        Some(_) => first_failure_at,
        None => stored.filter(was_seen).and_then(|found| found.failing_since).or(first_failure_at),
    };
    let until = holds.iter().find(|hold| hold.reason == HoldReason::RateLimit);
    let passed = stored.and_then(|found| found.last_success_at);
    Ok(RetryFacts {
        counted_failures: before.counted_failures,
        last_failure: failure.map(|found| (found.class, found.last_at)),
        failures_alone,
        is_in_lane: before.lane.is_some(),
        streak: noted.streak.or_else(|| stored.map(|found| found.streak)).unwrap_or_default(),
        failing_since,
        last_success_at: noted.last_success_at.or(passed),
        auth_probe: probe(HoldReason::Auth),
        breaker_probe: probe(HoldReason::Breaker),
        rate_limited_until: until.and_then(|hold| hold.until),
    })
}

/// Updates the delivery and its event; returns the time of the next attempt.
fn follow(
    tx: &WriteTx<'_>,
    settlement: &Settlement,
    before: &DeliveryRow,
) -> Result<Option<Timestamp>> {
    let Settlement { report, verdict } = settlement;
    let AttemptReport { delivery, subscription, attempt, now, .. } = &**report;
    let mut next_due = None;
    match &verdict.next {
        Next::Retry(wait) => {
            let due_at = now.plus(*wait);
            next_due = Some(due_at);
            deliveries::reschedule(tx, settlement, due_at, *wait)?;
        }
        Next::Park(reason) => {
            deliveries::reschedule(tx, settlement, *now, Duration::ZERO)?;
            lanes::park(tx, *delivery, reason)?;
        }
        Next::Complete => {
            deliveries::finish(tx, settlement, DeliveryState::Completed, None)?;
            if report.order.is_latest_only {
                skip_older(tx, *delivery, *now)?;
            }
        }
        Next::Confirm(within) => {
            deliveries::wait(tx, settlement, *within)?;
            before.lane.map_or(Ok(()), |lane| lanes::hold(tx, lane, *delivery, *now))?;
        }
        Next::GiveUp(reason) => {
            deliveries::finish(tx, settlement, DeliveryState::DeadLetter, Some(reason))?;
            lanes::given_up(tx, *delivery, *subscription)?;
        }
    }
    refresh(tx, before.origin, attempt.tried(), *now)?;
    // Nobody follows the last one of a lane.
    if before.has_others || !matches!(verdict.next, Next::Complete) {
        before.elect_head(tx, *now)?;
    }
    // What is only accepted has neither succeeded nor failed.
    if !report.is_inconclusive && !matches!(verdict.next, Next::Confirm(_)) {
        let DeliveryRow { origin, attempt_count, counted_failures, .. } = *before;
        note_failure(tx, settlement, origin, attempt_count, counted_failures)?;
    }
    Ok(next_due)
}

/// Records or resolves the delivery's failure, and raises or resolves escalations. `attempts_before` and `failed_before`
/// count the attempts and the counted failures before this attempt.
pub(super) fn note_failure(
    tx: &WriteTx<'_>,
    settlement: &Settlement,
    origin: Origin,
    attempts_before: u32,
    failed_before: u32,
) -> Result<()> {
    let Settlement { report, verdict } = settlement;
    let AttemptReport { delivery, subscription, run_no, attempt, code, .. } = &**report;
    let RetryVerdict { next, is_alone, .. } = verdict;
    let at = attempt.finished_at;
    operational::delivery(tx, settlement, origin, attempts_before.saturating_add(1))?;
    if attempt.class.is_success() {
        if attempts_before > 0
            && let Some(failure) = failures::resolve(tx, *delivery, at)?
        {
            operational::integration(
                tx,
                settlement,
                origin,
                failure,
                OperationalKind::IntegrationResolved,
            )?;
            if failed_before >= ESCALATED_AT {
                resolve_escalation(tx, *subscription, Class::DeliveryFailing, at)?;
            }
        }
        return Ok(());
    }
    let noted = failures::note(tx, *delivery, attempt.class, code, at, *is_alone)?;
    // A run enters Failed with its first failure, and DeadLettered when it is given up.
    let is_first = noted.is_new() || (*run_no > 1 && attempt.counted && failed_before == 0);
    if is_first || matches!(next, Next::GiveUp(_)) {
        operational::integration(
            tx,
            settlement,
            origin,
            noted.seq,
            OperationalKind::IntegrationFailed,
        )?;
    }
    let reason = attempt.failed_reason.as_deref().unwrap_or_default();
    if let Next::GiveUp(why) | Next::Park(why) = next {
        if failed_before >= ESCALATED_AT {
            resolve_escalation(tx, *subscription, Class::DeliveryFailing, at)?;
        }
        let what = if matches!(next, Next::Park(_)) { "parked" } else { "a dead letter" };
        let detail = format!("{delivery} is {what}: {why}");
        escalate(tx, *subscription, *delivery, Class::DeliveryDead, &detail, at)
    } else if attempt.counted && failed_before.saturating_add(1) >= ESCALATED_AT {
        let count = failed_before.saturating_add(1);
        let detail = format!("{delivery} has failed {count} times; the last: {reason}");
        escalate(tx, *subscription, *delivery, Class::DeliveryFailing, &detail, at)
    } else {
        Ok(())
    }
}

/// Puts the hold that follows an attempt, if one does.
pub(super) fn hold(tx: &WriteTx<'_>, settlement: &Settlement, origin: Origin) -> Result<()> {
    let Some(new) = &settlement.verdict.hold else { return Ok(()) };
    let AttemptReport { subscription: seq, delivery, ref attempt, now: since, .. } =
        *settlement.report;
    let at = attempt.finished_at;
    let detail = attempt.failed_reason.clone().unwrap_or_default();
    let standing = |reason| -> Result<Option<Hold>> {
        Ok(holds::of(tx, seq)?.into_iter().find(|hold| hold.reason == reason))
    };
    let stands = |reason| -> Result<bool> { Ok(standing(reason)?.is_some()) };
    let by = Some(origin);
    let put = |reason| HoldChange { subscription: seq, reason, since, detail: &detail, by, at };
    match new {
        NewHold::Until(until) => {
            let reason = HoldReason::RateLimit;
            let is_long = |until: Timestamp| until.since(since) > LONG_WAIT;
            let known = standing(reason)?.and_then(|hold| hold.until).is_some_and(is_long);
            if !known && is_long(*until) {
                escalate(tx, seq, delivery, Class::SubscriptionRateLimit, &detail, at)?;
            }
            let until = Some(*until);
            holds::put(tx, seq, &Hold { reason, since, until, probe_at: None, probe_no: 0, detail })
        }
        NewHold::Probe { reason, at: probe_at, failed } => {
            if !stands(*reason)? {
                note_hold(tx, &put(*reason))?;
                if let Some(class) = reason.escalation() {
                    escalate(tx, seq, delivery, class, &detail, at)?;
                }
                if *reason == HoldReason::Auth {
                    credentials::make_due_now(tx, seq, at)?;
                }
            }
            let hold = Hold {
                reason: *reason,
                since,
                until: None,
                probe_at: Some(*probe_at),
                probe_no: *failed,
                detail,
            };
            holds::put(tx, seq, &hold)
        }
        NewHold::Rejecting => {
            if stands(HoldReason::Rejecting)? {
                return Ok(());
            }
            note_hold(tx, &put(HoldReason::Rejecting))?;
            escalate(tx, seq, delivery, Class::SubscriptionRejecting, &detail, at)?;
            holds::put_lasting(tx, seq, HoldReason::Rejecting, &detail, since)
        }
        NewHold::Disabled(reason) => disable(tx, seq, delivery, reason, by, at),
    }
}

/// Ends at most `limit` holds whose time is over, and their escalations. `at` is the wall's time, `now` the schedule's.
pub fn end_over(tx: &WriteTx<'_>, now: Timestamp, at: Timestamp, limit: u32) -> Result<()> {
    for seq in holds::over(tx, now, limit)? {
        holds::release(tx, seq, HoldReason::RateLimit, at)?;
        resolve_escalation(tx, seq, Class::SubscriptionRateLimit, at)?;
    }
    Ok(())
}

/// Ends the holds that end with a success, and their escalations. The audit events name Oncebox as the actor.
pub(super) fn end_holds(
    tx: &WriteTx<'_>,
    seq: SubscriptionSeq,
    origin: Origin,
    at: Timestamp,
) -> Result<()> {
    if !holds::is_held(tx, seq)? {
        return Ok(());
    }
    let ends =
        |reason| matches!(reason, HoldReason::Auth | HoldReason::Breaker | HoldReason::Rejecting);
    end_audited(tx, seq, ends, Some(origin), at).map(drop)
}

/// The target accepts the credential: ends the hold that waits for it, and its escalation. Tells whether it was held.
pub fn end_auth_hold(tx: &WriteTx<'_>, seq: SubscriptionSeq, at: Timestamp) -> Result<bool> {
    end_audited(tx, seq, |reason| reason == HoldReason::Auth, None, at)
}

/// Forgets what the probes of a target came to, and resolves the escalation about it.
pub fn forget_health(tx: &WriteTx<'_>, seq: SubscriptionSeq, at: Timestamp) -> Result<()> {
    resolve_escalation(tx, seq, Class::SubscriptionUnhealthy, at)?;
    subscriptions::forget_health(tx, seq)
}

/// As [`end`], for a subscription that works again. Oncebox is the actor. Tells whether a hold ended.
pub fn end_audited(
    tx: &WriteTx<'_>,
    seq: SubscriptionSeq,
    ends: impl Fn(HoldReason) -> bool,
    by: Option<Origin>,
    at: Timestamp,
) -> Result<bool> {
    let ended = end(tx, seq, ends, by, at)?;
    for reason in &ended {
        let changes = Changes::none().and("hold", reason.as_str());
        audit(tx, seq, "subscription.resume", changes, at)?;
    }
    Ok(!ended.is_empty())
}

/// Ends the holds of a subscription for which `ends` says so, with their escalations, and tells of it; returns their
/// reasons.
fn end(
    tx: &WriteTx<'_>,
    subscription: SubscriptionSeq,
    ends: impl Fn(HoldReason) -> bool,
    by: Option<Origin>,
    at: Timestamp,
) -> Result<Vec<HoldReason>> {
    let mut ended = Vec::new();
    for Hold { reason, since, detail, .. } in holds::of(tx, subscription)? {
        if ends(reason) && holds::release(tx, subscription, reason, at)? {
            let detail = detail.as_str();
            let change = HoldChange { subscription, reason, since, detail, by, at };
            operational::resumed(tx, &change)?;
            if let Some(class) = reason.escalation() {
                resolve_escalation(tx, subscription, class, at)?;
            }
            if reason == HoldReason::Auth {
                deliveries::retry_refused(tx, subscription, at)?;
            }
            ended.push(reason);
        }
    }
    Ok(ended)
}

/// Holds a subscription because a person says so.
pub fn pause(
    tx: &WriteTx<'_>,
    subscription: &Subscription,
    detail: &str,
    now: Timestamp,
) -> Result<()> {
    let seq = subscription.seq;
    let reason = HoldReason::Paused;
    if !subscription.holds.iter().any(|hold| hold.reason == reason) {
        holds::put_lasting(tx, seq, reason, detail, now)?;
        let change =
            HoldChange { subscription: seq, reason, since: now, detail, by: None, at: now };
        operational::held(tx, &change)?;
    }
    if subscription.state == SubscriptionState::DisabledDead {
        return Ok(());
    }
    subscriptions::set_state(tx, seq, SubscriptionState::Paused, now)
}

/// Resumes a subscription for a person: ends its holds and their escalations.
pub fn resume(tx: &WriteTx<'_>, subscription: &Subscription, now: Timestamp) -> Result<()> {
    let seq = subscription.seq;
    end(tx, seq, HoldReason::ends_by_resume, None, now)?;
    subscriptions::restart_failing(tx, seq, now)?;
    subscriptions::set_state(tx, seq, SubscriptionState::Active, now)
}

/// Ends the holds that end when the subscription is changed, because its target may be different now.
pub fn end_holds_by_change(tx: &WriteTx<'_>, seq: SubscriptionSeq, now: Timestamp) -> Result<()> {
    end(tx, seq, HoldReason::ends_by_change, None, now)?;
    subscriptions::restart_failing(tx, seq, now)
}

/// Resolves the escalations about a subscription that is deleted.
pub fn resolve_escalations(tx: &WriteTx<'_>, gone: &Subscription, now: Timestamp) -> Result<()> {
    let tenant = &gone.new.tenant;
    let subject = subject(gone);
    Class::ALL
        .into_iter()
        .try_for_each(|class| escalations::resolve(tx, tenant, class, &subject, now))
}

/// Disables a subscription. The audit event names Oncebox as the actor. Does nothing more if it is already disabled.
fn disable(
    tx: &WriteTx<'_>,
    seq: SubscriptionSeq,
    delivery: DeliverySeq,
    detail: &str,
    by: Option<Origin>,
    now: Timestamp,
) -> Result<()> {
    let before = subscriptions::by_seq(tx, seq)?;
    subscriptions::set_state(tx, seq, SubscriptionState::DisabledDead, now)?;
    let reason = HoldReason::Disabled;
    holds::put_lasting(tx, seq, reason, detail, now)?;
    let Some(before) = before.filter(|have| have.state != SubscriptionState::DisabledDead) else {
        return Ok(());
    };
    escalate(tx, seq, delivery, Class::SubscriptionDisabled, detail, now)?;
    let change = HoldChange { subscription: seq, reason, since: now, detail, by, at: now };
    operational::held(tx, &change)?;
    let was = json!({ "state": before.state.as_str() });
    let is = json!({ "state": SubscriptionState::DisabledDead.as_str(), "reason": detail });
    audit(tx, seq, "subscription.disable", Changes::between(&was, &is), now)
}

/// Audits and tells that an attempt has put a hold.
fn note_hold(tx: &WriteTx<'_>, put: &HoldChange<'_>) -> Result<()> {
    operational::held(tx, put)?;
    let changes = Changes::none().and("hold", put.reason.as_str()).and("detail", put.detail);
    audit(tx, put.subscription, "subscription.hold", changes, put.at)
}

fn audit(
    tx: &WriteTx<'_>,
    seq: SubscriptionSeq,
    action: &'static str,
    changes: Changes,
    at: Timestamp,
) -> Result<()> {
    let Some(found) = subscriptions::by_seq(tx, seq)? else { return Ok(()) };
    let event = NewAuditEvent::local(at, &found.new.tenant, Actor::system(), action);
    audit_events::append(tx, &event.of("subscription", &found.new.id, changes)).map(drop)
}

/// Raises an escalation about a subscription, for an attempt of one of its deliveries.
fn escalate(
    tx: &WriteTx<'_>,
    seq: SubscriptionSeq,
    delivery: DeliverySeq,
    class: Class,
    detail: &str,
    at: Timestamp,
) -> Result<()> {
    let Some(found) = subscriptions::by_seq(tx, seq)? else { return Ok(()) };
    let subject = subject(&found);
    // The number of attempts makes the id unique if a person has the delivery sent again within the same millisecond.
    let attempts = deliveries::state(tx, delivery)?.attempt_count;
    let id = id::uuid7_of(at, &[class.as_str(), &format!("{delivery}.{attempts}")]);
    let tenant = found.new.tenant.clone();
    let new = NewEscalation { id, tenant, class, subject, detail: detail.to_owned() };
    escalations::raise(tx, &new, at).map(drop)
}

fn resolve_escalation(
    tx: &WriteTx<'_>,
    seq: SubscriptionSeq,
    class: Class,
    at: Timestamp,
) -> Result<()> {
    let Some(found) = subscriptions::by_seq(tx, seq)? else { return Ok(()) };
    escalations::resolve(tx, &found.new.tenant, class, &subject(&found), at)
}

/// The subject of an escalation about a subscription.
fn subject(subscription: &Subscription) -> String {
    format!("subscription:{}", subscription.new.name)
}

/// Derives the event's status again from its deliveries.
pub(super) fn refresh(
    tx: &WriteTx<'_>,
    origin: Origin,
    tried: Tried<'_>,
    now: Timestamp,
) -> Result<()> {
    let counts = deliveries::counts(tx, origin)?;
    match origin {
        Origin::Outbox(seq) => outbox::refresh(tx, seq, counts, tried.error, now),
        Origin::WebhookEvent(seq) => webhook_events::refresh(tx, seq, counts, tried, now),
    }
}

/// Notes an attempt in the summary of its subscription. `extends_streak`: it is one more failure in a row.
pub(super) fn note_attempt(
    tx: &WriteTx<'_>,
    subscription: SubscriptionSeq,
    class: AttemptClass,
    extends_streak: bool,
    at: Timestamp,
) -> Result<()> {
    let before = || match tx.noted_attempts(subscription).streak {
        Some(noted) => Ok(noted),
        None => subscriptions::streak(tx, subscription),
    };
    let streak = match (class.is_success(), extends_streak) {
        (true, _) => Streak::default(),
        (false, true) => before()?.and(class),
        (false, false) => before()?,
    };
    tx.note_attempt(subscription, |attempts| {
        attempts.streak = Some(streak);
        if class.is_success() {
            attempts.last_success_at = Some(at);
            attempts.failures_since_success = 0;
            attempts.first_failure_at = None;
        } else {
            attempts.last_failure_at = Some(at);
            attempts.failures_since_success += 1;
            attempts.first_failure_at = attempts.first_failure_at.or(Some(at));
        }
    });
    Ok(())
}

/// Sends a delivery again: a waiting one becomes due now, a parked one goes back to its lane, a leased one is taken from
/// its consumer, a finished one is reopened.
/// Fails with `Changed` if it is completed, in doubt or waiting, or its subscription is deleted. `anew`: it is rendered
/// anew, in a new run.
pub fn retry(tx: &WriteTx<'_>, delivery: DeliverySeq, anew: bool, now: Timestamp) -> Result<()> {
    let before = change(tx, delivery, now, |before| match before.state {
        DeliveryState::Pending => deliveries::make_due_now(tx, delivery, now),
        DeliveryState::Parked => {
            lanes::release(tx, delivery, now)?;
            deliveries::make_due_now(tx, delivery, now)
        }
        DeliveryState::Leased => leases::take_from(tx, delivery, now),
        DeliveryState::DeadLetter | DeliveryState::Skipped | DeliveryState::Cancelled => {
            deliveries::replay(tx, delivery, before.state, before.run_no, now)
        }
        _ => Err(Error::Changed("the delivery")),
    })?;
    if anew {
        renderings::forget(tx, delivery, before.run_no)?;
        if before.state == DeliveryState::Pending && before.counted_failures >= ESCALATED_AT {
            resolve_escalation(tx, before.subscription, Class::DeliveryFailing, now)?;
        }
    }
    tx.ring(before.subscription);
    Ok(())
}

/// Cancels a delivery that is pending, leased, waiting, parked, in doubt or a dead letter. An attempt in progress is not
/// stopped.
/// Fails with `Changed` if it is in another state.
pub fn cancel(tx: &WriteTx<'_>, delivery: DeliverySeq, reason: &str, now: Timestamp) -> Result<()> {
    let before = deliveries::state(tx, delivery)?;
    deliveries::cancel(tx, delivery, reason, now)?;
    if before.state == DeliveryState::Waiting {
        tx.ring(before.subscription);
        lanes::ring_funnels(tx)?;
    }
    if before.counted_failures >= ESCALATED_AT {
        resolve_escalation(tx, before.subscription, Class::DeliveryFailing, now)?;
    }
    refresh(tx, before.origin, Tried::default(), now)?;
    before.elect_head(tx, now)
}

/// Changes a delivery, and what depends on its state: its event and the head of its lane. Returns what it was.
fn change(
    tx: &WriteTx<'_>,
    delivery: DeliverySeq,
    now: Timestamp,
    change: impl FnOnce(&DeliveryRow) -> Result<()>,
) -> Result<DeliveryRow> {
    let before = deliveries::state(tx, delivery)?;
    change(&before)?;
    refresh(tx, before.origin, Tried::default(), now)?;
    before.elect_head(tx, now)?;
    Ok(before)
}

/// Puts a delivery in doubt, because it may have been sent after the backup was taken.
pub fn put_in_doubt(tx: &WriteTx<'_>, delivery: DeliverySeq, now: Timestamp) -> Result<()> {
    change(tx, delivery, now, |_| in_doubt::put_in_doubt(tx, delivery)).map(drop)
}

/// Releases a delivery in doubt or parked: it is sent with its unchanged `webhook-id`, at its place in its lane.
/// Fails with `Changed` when it is neither.
pub fn release(tx: &WriteTx<'_>, delivery: DeliverySeq, now: Timestamp) -> Result<()> {
    let before = change(tx, delivery, now, |before| match before.state {
        DeliveryState::Parked => lanes::release(tx, delivery, now),
        _ => in_doubt::release(tx, delivery, now),
    })?;
    tx.ring(before.subscription);
    Ok(())
}

/// Ends a delivery without sending it: a pending or parked one, a dead letter, or one in doubt that was sent before the
/// restore. Its lane goes on.
/// Fails with `Changed` when it is in another state.
pub fn skip(tx: &WriteTx<'_>, delivery: DeliverySeq, reason: &str, now: Timestamp) -> Result<()> {
    let before = deliveries::state(tx, delivery)?;
    match before.state {
        DeliveryState::InDoubt => in_doubt::skip(tx, delivery, reason, now)?,
        _ => lanes::skip(tx, delivery, reason, now)?,
    }
    if before.state == DeliveryState::Pending && before.counted_failures >= ESCALATED_AT {
        resolve_escalation(tx, before.subscription, Class::DeliveryFailing, now)?;
    }
    refresh(tx, before.origin, Tried::default(), now)?;
    before.elect_head(tx, now)
}

/// Sets a pending delivery aside, so that its lane goes on. An attempt in progress is not stopped.
/// Fails with `Changed` when it is in another state or in no lane.
pub fn park(tx: &WriteTx<'_>, delivery: DeliverySeq, reason: &str, now: Timestamp) -> Result<()> {
    change(tx, delivery, now, |_| lanes::park(tx, delivery, reason)).map(drop)
}

/// Gives up a delivery that has waited behind others since `due_by` or longer. `at` is wall time.
pub fn postpone(
    tx: &WriteTx<'_>,
    delivery: DeliverySeq,
    due_by: Timestamp,
    reason: &str,
    now: Timestamp,
    at: Timestamp,
) -> Result<()> {
    let before = deliveries::state(tx, delivery)?;
    if !postponed::give_up(tx, delivery, now, reason, due_by)? {
        return Ok(());
    }
    given_up(tx, delivery, &before, reason, now, at)
}

/// Makes dead letters of the new deliveries of which it is not known whether they are wanted. Called before COMMIT.
pub fn set_aside(tx: &WriteTx<'_>) -> Result<()> {
    for SetAside { delivery, why, now } in tx.take_set_aside() {
        let before = deliveries::state(tx, delivery)?;
        let reason = format!("{why}. {}", Unknown::WAY_OUT);
        deliveries::set_aside(tx, delivery, &reason, now)?;
        given_up(tx, delivery, &before, &reason, now, now)?;
    }
    Ok(())
}

/// What follows when a delivery has become a dead letter without an attempt.
fn given_up(
    tx: &WriteTx<'_>,
    delivery: DeliverySeq,
    before: &DeliveryRow,
    reason: &str,
    now: Timestamp,
    at: Timestamp,
) -> Result<()> {
    let subscription = before.subscription;
    lanes::given_up(tx, delivery, subscription)?;
    refresh(tx, before.origin, Tried { error: Some(reason), ..Tried::default() }, now)?;
    before.elect_head(tx, now)?;
    if before.counted_failures >= ESCALATED_AT {
        resolve_escalation(tx, subscription, Class::DeliveryFailing, at)?;
    }
    let settlement =
        Settlement::without_attempt(delivery, subscription, before.run_no, reason, now, at);
    operational::delivery(tx, &settlement, before.origin, before.attempt_count)?;
    let detail = format!("{delivery} is a dead letter: {reason}");
    escalate(tx, subscription, delivery, Class::DeliveryDead, &detail, at)
}

/// Moves a pending delivery behind all others of its lane.
/// Fails with `Changed` when it is in another state or in no lane.
pub fn move_to_end(tx: &WriteTx<'_>, delivery: DeliverySeq, now: Timestamp) -> Result<()> {
    let before = deliveries::state(tx, delivery)?;
    lanes::move_to_end(tx, delivery)?;
    before.elect_head(tx, now)
}

/// Replaces a delivery that is pending, parked or a dead letter: it is skipped, and the delivery of a new event takes its
/// place in the lane. Returns that delivery.
/// Fails with `Changed` when it is in another state, or its subscription does not take the event.
pub fn replace(
    tx: &WriteTx<'_>,
    delivery: DeliverySeq,
    new: &NewEvent,
    now: Timestamp,
) -> Result<DeliverySeq> {
    let place = deliveries::place(tx, delivery)?;
    if deliveries::state(tx, delivery)?.state == DeliveryState::InDoubt {
        return Err(Error::Changed("the delivery"));
    }
    skip(tx, delivery, &format!("replaced by event {}", new.id), now)?;
    outbox::insert_in_place(tx, new, place, now)
}

/// Sends a finished delivery again, even a completed one. It keeps its `webhook-id` and its place in its lane.
/// Fails with `Changed` if its state or run is not `was`, or its subscription is deleted.
pub fn replay(
    tx: &WriteTx<'_>,
    delivery: DeliverySeq,
    was: (DeliveryState, u32),
    now: Timestamp,
) -> Result<()> {
    let before =
        change(tx, delivery, now, |_| deliveries::replay(tx, delivery, was.0, was.1, now))?;
    tx.ring(before.subscription);
    Ok(())
}

/// Cancels a dead letter.
/// Fails with `Changed` if it is not a dead letter of that run.
pub(crate) fn discard(
    tx: &WriteTx<'_>,
    delivery: DeliverySeq,
    run_no: u32,
    reason: &str,
    now: Timestamp,
) -> Result<()> {
    let before = deliveries::state(tx, delivery)?;
    if (before.state, before.run_no) != (DeliveryState::DeadLetter, run_no) {
        return Err(Error::Changed("the delivery"));
    }
    cancel(tx, delivery, reason, now)
}

/// Makes further deliveries of an event that was already routed.
pub(crate) fn route_again(
    tx: &WriteTx<'_>,
    origin: Origin,
    tenant: &str,
    matching: &[MatchedSubscription],
    route: Route,
) -> Result<()> {
    deliveries::route(tx, origin, tenant, matching, route)?;
    refresh(tx, origin, Tried::default(), route.now)
}
