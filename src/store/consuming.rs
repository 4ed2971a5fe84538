//! Leasing deliveries to pull consumers and storing their reports. One transaction changes the delivery, its attempt,
//! its lane, its event and its subscription.
//!
//! `model::lease` decides what follows from a report. There is no SQL here.

use std::sync::Arc;
use std::time::Duration;

use crate::base::id::{self, Draw};
use crate::guard::Savepoint;
use crate::model::attempt::{Attempt, AttemptReport};
use crate::model::delivery::{DeliveryState, Jitter};
use crate::model::event::Tried;
use crate::model::failure::Next;
use crate::model::hold::{Hold, HoldReason, gate};
use crate::model::lease::{LeaseFacts, LeaseOutcome, judge_lease};
use crate::model::retry_rules::RetryRules;
use crate::model::settlement::Settlement;
use crate::store::column::Millis;
use crate::store::leases::{self, Held};
use crate::store::prelude::*;
use crate::store::settlement::{note_attempt, note_failure, refresh};
use crate::store::superseded::Recency;
use crate::store::{attempts, failures, holds, lanes, settlement, subscriptions, superseded};

/// The failure code of a failure that a consumer reports.
const CODE: &str = "consumer";
/// The failure code of a confirmation that failed or did not come.
const UNCONFIRMED: &str = "unconfirmed";
/// The failure reason of an expired lease.
const EXPIRED: &str = "lease expired";

/// A consumer's request for deliveries.
#[derive(Clone, Debug)]
pub struct Take {
    /// The subscription.
    pub subscription: SubscriptionSeq,
    /// The maximum number of deliveries.
    pub most: u32,
    /// The maximum size of all payloads in bytes. The first delivery is given even if it is larger.
    pub bytes_most: u64,
    /// The lease, which the consumer must present in its reports.
    pub lease: String,
    /// When the lease ends.
    pub until: Timestamp,
    /// Schedule time.
    pub now: Timestamp,
}

/// A delivery that a consumer has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leased {
    /// The delivery.
    pub delivery: DeliverySeq,
    /// The number its attempt will have.
    pub attempt: u32,
}

/// The consumer that reports, and when.
#[derive(Clone, Debug)]
pub struct Consumer {
    /// The subscription.
    pub subscription: SubscriptionSeq,
    /// Stored as the URL of its attempts.
    pub url: String,
    /// The rules by which failures are judged.
    pub rules: RetryRules,
    /// Whether older deliveries about the entity of a completed one are superfluous.
    pub latest_only: bool,
    /// Schedule time.
    pub now: Timestamp,
    /// Wall time.
    pub wall: Timestamp,
}

/// The answer to a consumer about one delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportResult {
    /// The report is stored. Holds the delivery's new state, and the end of its lease.
    Stored(DeliveryState, Option<Timestamp>),
    /// The consumer has already sent this report.
    Again(DeliveryState),
    /// The consumer does not have the delivery. Holds the reason as text.
    Refused(String),
    /// The subscription has no such delivery.
    Missing,
    /// The report cannot be stored; the log says why.
    Unusable,
}

/// The answer to a report, and the stored settlement for the metrics.
#[derive(Debug)]
pub struct Settled {
    /// The answer to the consumer.
    pub result: ReportResult,
    /// What was stored, if anything was.
    pub settlement: Option<Settlement>,
}

impl From<ReportResult> for Settled {
    fn from(result: ReportResult) -> Self {
        Self { result, settlement: None }
    }
}

/// Leases due deliveries to a consumer, oldest first; none if the subscription is held or deleted. When a hold is to be
/// probed, one is leased, and no other while that lease lasts.
pub fn take(tx: &WriteTx<'_>, take: &Take) -> Result<Vec<Leased>> {
    let Take { subscription, most, bytes_most, lease, until, now } = take;
    let Some(found) = subscriptions::routes(tx)?.get(*subscription) else { return Ok(Vec::new()) };
    // Consumers fetch, so that a site without a line to the outside holds nothing of theirs.
    let mut holds = holds::of(tx, *subscription)?;
    holds.retain(|hold| hold.reason != HoldReason::Offline);
    let gate = gate(&holds);
    if !gate.is_open(*now) {
        return Ok(Vec::new());
    }
    let most = if gate.is_probe() { 1 } else { *most };
    let mut bytes = 0_u64;
    let mut leased = Vec::new();
    let is_latest_only = found.new.order.latest_only;
    for candidate in leases::due_with_size(tx, *subscription, *now, most)? {
        if is_latest_only
            && superseded::skip_unless_latest(tx, candidate.delivery, *now)? != Recency::Latest
        {
            continue;
        }
        bytes = bytes.saturating_add(candidate.payload_bytes);
        if bytes > *bytes_most && !leased.is_empty() {
            break;
        }
        let delivery = candidate.delivery;
        leases::lease(tx, delivery, *now, *until, lease)?;
        if let Some(held) = leases::held(tx, delivery, *subscription)? {
            refresh(tx, held.origin, Tried::default(), *now)?;
        }
        leased.push(Leased { delivery, attempt: candidate.attempt_count.saturating_add(1) });
    }
    let probed = holds.into_iter().filter(|hold| hold.probe_at.is_some() && !leased.is_empty());
    for hold in probed {
        holds::put(tx, *subscription, &Hold { probe_at: Some(*until), ..hold })?;
    }
    Ok(leased)
}

/// Stores a consumer's report on a delivery. The consumer must have the delivery, or its lease has expired and no other
/// consumer has taken it. A later report changes nothing. If a row is damaged, only this report is not stored.
pub fn settle(
    tx: &WriteTx<'_>,
    consumer: &Consumer,
    delivery: DeliverySeq,
    lease: &str,
    outcome: &LeaseOutcome,
    draw: &dyn Draw,
) -> Result<Settled> {
    in_savepoint(tx, delivery, || {
        let Some(held) = leases::held(tx, delivery, consumer.subscription)? else {
            return Ok(ReportResult::Missing.into());
        };
        let own = held.owner.as_deref() == Some(lease);
        match (held.state, outcome) {
            // Pending: the lease has expired, and no other consumer has taken the delivery.
            (DeliveryState::Leased, _) | (DeliveryState::Pending, LeaseOutcome::Done) if own => {}
            (DeliveryState::Completed, LeaseOutcome::Done) if own => {
                return Ok(ReportResult::Again(held.state).into());
            }
            _ => return Ok(ReportResult::Refused(why_not(&held, own)).into()),
        }
        let work = LeaseWork::under(lease, &held, consumer.wall);
        let facts = lease_facts(tx, &held, consumer, work.started_at, outcome)?;
        let settlement = settlement_of(&held, consumer, work, outcome, &facts, draw);
        store(tx, &held, &settlement, false)?;
        let next = &settlement.verdict.next;
        if consumer.latest_only && *next == Next::Complete {
            settlement::skip_older(tx, delivery, consumer.now)?;
        }
        let result = ReportResult::Stored(state_after(next), None);
        Ok(Settled { result, settlement: Some(settlement) })
    })
}

/// Extends a lease. An expired lease is renewed if no other consumer has taken the delivery.
pub fn extend(
    tx: &WriteTx<'_>,
    subscription: SubscriptionSeq,
    delivery: DeliverySeq,
    lease: &str,
    now: Timestamp,
    until: Timestamp,
) -> Result<ReportResult> {
    let extended = in_savepoint(tx, delivery, || {
        let Some(held) = leases::held(tx, delivery, subscription)? else {
            return Ok(ReportResult::Missing.into());
        };
        let own = held.owner.as_deref() == Some(lease);
        let extended = match held.state {
            DeliveryState::Leased if own => {
                leases::extend(tx, delivery, until, lease, Millis(until.since(now)))
                    .map(|()| true)?
            }
            // In a lane, an earlier delivery may have become the head; then this one cannot be leased.
            DeliveryState::Pending if own => leases::renew(tx, delivery, now, until, lease)?,
            _ => false,
        };
        if !extended {
            return Ok(ReportResult::Refused(why_not(&held, own)).into());
        }
        if held.state == DeliveryState::Pending {
            refresh(tx, held.origin, Tried::default(), now)?;
        }
        Ok(ReportResult::Stored(DeliveryState::Leased, Some(until)).into())
    });
    Ok(extended?.result)
}

/// Runs `run` in a savepoint. If a row of this delivery is damaged, only its changes are undone and the rest of the
/// transaction stays. Effects that remain only make the dispatcher look for due deliveries.
fn in_savepoint(
    tx: &WriteTx<'_>,
    delivery: DeliverySeq,
    run: impl FnOnce() -> Result<Settled>,
) -> Result<Settled> {
    let savepoint = Savepoint::begin(tx.conn())?;
    match run() {
        Ok(settled) => {
            savepoint.keep()?;
            Ok(settled)
        }
        // Autocommit: SQLite has rolled back the whole transaction.
        Err(error) if error.concerns_all() || tx.conn().is_autocommit() => Err(error),
        Err(error) => {
            drop(savepoint);
            tracing::error!(%error, %delivery, "a consumer's report on a delivery cannot be stored");
            Ok(ReportResult::Unusable.into())
        }
    }
}

/// Puts back a delivery whose lease has expired, as a failed attempt. `None` if the delivery has no expired lease.
pub fn expire(
    tx: &WriteTx<'_>,
    consumer: &Consumer,
    delivery: DeliverySeq,
    draw: &dyn Draw,
) -> Result<Option<Settlement>> {
    let Some(held) = leases::held(tx, delivery, consumer.subscription)? else { return Ok(None) };
    if held.lease_until.is_none_or(|until| until > consumer.now) {
        return Ok(None);
    }
    let outcome = LeaseOutcome::Failed { reason: EXPIRED.to_owned(), wait: None, counted: true };
    let lease = held.owner.clone().unwrap_or_default();
    let work = LeaseWork::under(&lease, &held, consumer.wall);
    let facts = lease_facts(tx, &held, consumer, work.started_at, &outcome)?;
    let settlement = settlement_of(&held, consumer, work, &outcome, &facts, draw);
    store(tx, &held, &settlement, true)?;
    Ok(Some(settlement))
}

/// The span id of a lease's attempt, derived from the lease.
pub fn span(lease: &str, delivery: DeliverySeq) -> String {
    let digest = id::identity_digest(&["span", lease, &delivery.to_string()]);
    data_encoding::HEXLOWER.encode(digest.get(..8).unwrap_or_default())
}

/// The work on a delivery that is reported: a consumer's under a lease, or that of a target that has accepted it.
pub(super) struct LeaseWork {
    /// When it began.
    pub(super) started_at: Timestamp,
    /// Its span in the trace, if it has one of its own.
    pub(super) span: Option<String>,
}

impl LeaseWork {
    fn under(lease: &str, held: &Held, wall: Timestamp) -> Self {
        let started_at = id::made_at(lease).unwrap_or(wall);
        Self { started_at, span: Some(span(lease, held.delivery)) }
    }
}

/// What the judgement of a report needs to know. A hold is asked for only after a failure.
fn lease_facts(
    tx: &WriteTx<'_>,
    held: &Held,
    consumer: &Consumer,
    leased_at: Timestamp,
    outcome: &LeaseOutcome,
) -> Result<LeaseFacts> {
    let known = LeaseFacts {
        counted_failures: held.counted_failures,
        now: consumer.now,
        ..LeaseFacts::default()
    };
    if !matches!(outcome, LeaseOutcome::Failed { counted: true, .. } | LeaseOutcome::Away { .. }) {
        return Ok(known);
    }
    let seq = held.subscription;
    let noted = tx.noted_attempts(seq);
    let stored = subscriptions::by_seq(tx, seq)?;
    let streak = noted.streak.or_else(|| stored.as_ref().map(|found| found.streak));
    let passed_at =
        noted.last_success_at.or_else(|| stored.and_then(|found| found.last_success_at));
    let failure = failures::of(tx, held.delivery)?.filter(|found| found.resolved_at.is_none());
    let holds = holds::of(tx, seq)?;
    let breaker = holds.iter().find(|hold| hold.reason == HoldReason::Breaker);
    Ok(LeaseFacts {
        streak: streak.unwrap_or_default(),
        breaker_probe: breaker.map(|hold| hold.probe_no),
        is_probe: breaker.is_some_and(|hold| leased_at >= hold.since),
        only_this_one_fails: failure.zip(passed_at).is_some_and(|(failed, at)| at > failed.last_at),
        ..known
    })
}

/// The settlement of a report: its attempt, and what follows for the delivery and its subscription.
pub(super) fn settlement_of(
    held: &Held,
    consumer: &Consumer,
    work: LeaseWork,
    outcome: &LeaseOutcome,
    facts: &LeaseFacts,
    draw: &dyn Draw,
) -> Settlement {
    let mut rules = consumer.rules.of_event(held.max_attempts);
    rules.park_after = rules.park_after.filter(|_| held.lane.is_some());
    let jitter = Jitter::new(draw);
    let verdict = judge_lease(outcome, facts, &rules, jitter);
    let took = consumer.wall.since(work.started_at);
    let attempt = Attempt {
        started_at: work.started_at,
        finished_at: consumer.wall,
        url: consumer.url.clone(),
        latency_ms: u32::try_from(took.as_millis()).unwrap_or(u32::MAX),
        failed_reason: outcome.failed_reason().map(str::to_owned),
        span: work.span,
        ..Attempt::default()
    };
    let code = if held.state == DeliveryState::Waiting { UNCONFIRMED } else { CODE };
    let Consumer { subscription, now, .. } = *consumer;
    let report = AttemptReport {
        accepted_at: held.accepted_at,
        code: code.to_owned(),
        rules,
        jitter,
        ..AttemptReport::new(held.delivery, subscription, held.run_no, attempt, now)
    };
    Settlement::new(Arc::new(report), verdict)
}

/// Stores a report of a consumer, or a confirmation of a target. `keeps_owner`: a late report under the lease is still
/// accepted.
pub(super) fn store(
    tx: &WriteTx<'_>,
    held: &Held,
    settlement: &Settlement,
    keeps_owner: bool,
) -> Result<()> {
    let Settlement { report, verdict } = settlement;
    let AttemptReport { delivery, subscription, attempt, now, .. } = &**report;
    let is_confirmation = held.state == DeliveryState::Waiting;
    // The attempt that a target now says is done was stored when the target accepted it.
    let is_attempt = !(is_confirmation && attempt.class.is_success());
    if is_attempt {
        attempts::insert(tx, *delivery, held.attempt_count.saturating_add(1), attempt)?;
    }
    match &verdict.next {
        Next::Retry(wait) => {
            leases::put_back(tx, settlement, now.plus(*wait), *wait, keeps_owner)?;
            tx.ring(*subscription);
        }
        Next::Park(reason) => {
            leases::put_back(tx, settlement, *now, Duration::ZERO, false)?;
            lanes::park(tx, *delivery, reason)?;
        }
        // A consumer's report is its confirmation.
        Next::Complete | Next::Confirm(_) => {
            leases::finish(tx, settlement, DeliveryState::Completed, None, is_attempt)?;
        }
        Next::GiveUp(reason) => {
            leases::finish(tx, settlement, DeliveryState::DeadLetter, Some(reason), true)?;
            lanes::given_up(tx, *delivery, *subscription)?;
        }
    }
    let tried = if is_attempt { attempt.tried() } else { Tried::default() };
    refresh(tx, held.origin, tried, *now)?;
    if let Some(lane) = held.lane {
        lanes::elect_head(tx, lane, *now)?;
    }
    if is_confirmation {
        // Its funnel may have lost its point meanwhile.
        tx.ring(*subscription);
        lanes::ring_funnels(tx)?;
    }
    let is_success = attempt.class.is_success();
    if is_success && !is_confirmation && holds::is_held(tx, *subscription)? {
        settlement::end_holds(tx, *subscription, held.origin, attempt.finished_at)?;
        // What it held back waits in requests of consumers.
        tx.ring(*subscription);
    }
    if verdict.hold.is_some() {
        settlement::hold(tx, settlement, held.origin)?;
    } else if !is_success && !attempt.counted {
        // A delivery that a consumer hands back without trying it has not failed.
        return Ok(());
    }
    let before = held.attempt_count.saturating_sub(u32::from(!is_attempt));
    note_failure(tx, settlement, held.origin, before, held.counted_failures)?;
    // The subscription's target has answered: only the work on this delivery has failed.
    if is_confirmation {
        return Ok(());
    }
    note_attempt(tx, *subscription, attempt.class, true, attempt.finished_at)
}

fn state_after(next: &Next) -> DeliveryState {
    match next {
        Next::Complete | Next::Confirm(_) => DeliveryState::Completed,
        Next::Retry(_) => DeliveryState::Pending,
        Next::GiveUp(_) => DeliveryState::DeadLetter,
        Next::Park(_) => DeliveryState::Parked,
    }
}

/// Explains why a report is refused.
fn why_not(held: &Held, own: bool) -> String {
    let Held { delivery, state, .. } = held;
    match state {
        DeliveryState::Leased => format!("another consumer has {delivery} now"),
        DeliveryState::Pending if own => {
            format!("the lease of {delivery} is over; it waits for the next consumer")
        }
        DeliveryState::Pending => {
            format!("{delivery} was handed back or taken back, and waits again")
        }
        DeliveryState::Completed if own => {
            format!("{delivery} was completed under this lease before")
        }
        DeliveryState::Completed => format!("{delivery} was completed under another lease"),
        DeliveryState::InDoubt => {
            format!("{delivery} is in doubt since the database was restored: see oncebox in-doubt")
        }
        other => match &held.reason {
            Some(reason) => format!("{delivery} is {other} ({reason})"),
            None => format!("{delivery} is {other}"),
        },
    }
}
