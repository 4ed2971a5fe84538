//! What the process has its writer do, each as a job in a transaction: the store does it.

use std::collections::BTreeMap;
use std::sync::Arc;

use oncebox::base::clock::Timestamp;
use oncebox::base::clock::trust::{KnownTime, TimeStep};
use oncebox::base::id::{DeliverySeq, SubscriptionSeq};
use oncebox::model::attempt::AttemptReport;
use oncebox::model::delivery::DeliveryState;
use oncebox::model::event::{EventOrder, NewEvent};
use oncebox::model::external_call::NewCall;
use oncebox::model::hold::{Hold, HoldReason};
use oncebox::model::lease::LeaseOutcome;
use oncebox::pipeline::scheduler::decisions::Assignment;
use oncebox::store::consuming::Consumer;
use oncebox::store::error::{Error, Result};
use oncebox::store::in_doubt::{InDoubtFilter, in_doubt};
use oncebox::store::known_time;
use oncebox::store::leases::{self, Held};
use oncebox::store::outbox::{self, Inserted};
use oncebox::store::tx::WriteTx;
use oncebox::store::{confirmations, deliveries, holds, settlement, subscriptions, superseded};

use crate::sim::bug::Bug;
use crate::sim::dice::JitterDraw;
use crate::sim::file::Row;
use crate::sim::plan::{Deed, Spec, Sub, Wish};

/// Rows that a statement changes at most.
pub(crate) const MANY: u32 = 1000;

/// A job for the writer.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    /// An attempt has ended. The call is the one that was noted for it.
    Settle(Arc<AttemptReport>, Option<NewCall>),
    Wish(usize, Wish, Timestamp),
    /// Whether the site is offline now.
    Line(bool),
    EndHolds(Timestamp),
    /// The clock was set, and is believed.
    FollowClock(TimeStep),
    /// For one subscription.
    Clamp(i64),
    /// An external call is about to be made.
    Begin(Box<Outgoing>, NewCall, Timestamp),
    /// A confirmation, and whether an attempt was in flight when it came.
    Confirm(usize, Confirmation, bool),
    /// Waits for a confirmation whose time was over then.
    EndWaits(Vec<DeliverySeq>, Timestamp),
}

/// A request that a deliverer has read and not sent yet.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) assignment: Assignment,
    pub(crate) row: Row,
    /// The latest commit when it was read.
    pub(crate) read_in: u64,
    pub(crate) call: Option<NewCall>,
}

/// What a target reports of a delivery that it has accepted.
#[derive(Clone, Debug)]
pub(crate) struct Confirmation {
    pub(crate) delivery: i64,
    /// The attempt that a confirm URL names: run and number.
    pub(crate) token: Option<(u32, u32)>,
    pub(crate) outcome: LeaseOutcome,
}

/// What a job came to.
#[derive(Debug)]
pub(crate) enum Done {
    Plain,
    /// Whether the attempt counts, and the holds of its subscription before and after it.
    Settled(bool, [Vec<Hold>; 2]),
    /// An event is new, and ordered by its arrival.
    Arrived,
    /// It is asked again later: an event without its parent, a confirmation of an attempt that is not settled.
    TooEarly,
    /// A confirmation of a delivery that does not wait for it.
    Refused,
    /// Deliveries that are due now, whatever their targets asked for.
    Released(Vec<i64>),
    /// A person resumed a subscription whose credential was refused.
    AcceptedAgain(i64),
    /// Whether the call may be made.
    Begun(bool),
    /// The deliveries whose waits were confirmed or are over, as they were.
    Ended(Vec<Held>),
}

/// When a transaction runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Schedule time.
    pub(crate) now: Timestamp,
    /// Wall time.
    pub(crate) at: Timestamp,
    /// For the jitter.
    pub(crate) seed: u32,
}

type World<'w> = (&'w BTreeMap<i64, Sub>, Option<Bug>);

impl Job {
    pub(crate) fn run(&self, tx: &WriteTx<'_>, times: Times, world: World<'_>) -> Result<Done> {
        let Times { now, at, .. } = times;
        match self {
            Self::Settle(report, _) => return settle(tx, report),
            Self::Wish(n, Wish::Publish(spec), now) => return publish(tx, *n, spec, *now),
            Self::Wish(_, Wish::Act(deed), now) => return act(tx, *deed, (*now, at)),
            Self::Line(is_down) => line(tx, *is_down, (now, at))?,
            Self::FollowClock(step) if world.1 == Some(Bug::WaitsNotMoved) => {
                known_time::store(tx, KnownTime { believed: step.to, doubted: None })?;
            }
            Self::FollowClock(step) => known_time::follow(tx, *step)?,
            Self::EndHolds(now) => settlement::end_over(tx, *now, at, MANY)?,
            Self::Clamp(sub) => {
                // By the time of the transaction: what is settled in it may be younger than the job.
                deliveries::clamp_due_times(tx, SubscriptionSeq(*sub), now, MANY)?;
                confirmations::clamp(tx, now, MANY)?;
                if world.1 != Some(Bug::WaitsNotMoved) {
                    holds::clamp(tx, now)?;
                }
            }
            Self::Begin(_, call, now) => {
                return superseded::begin_call(tx, call, *now, at).map(Done::Begun);
            }
            Self::Confirm(_, confirmation, is_early) => {
                return confirm(tx, (confirmation, *is_early), times, world);
            }
            Self::EndWaits(over, then) => return end_waits(tx, (over, *then), times, world),
        }
        Ok(Done::Plain)
    }
}

fn settle(tx: &WriteTx<'_>, report: &Arc<AttemptReport>) -> Result<Done> {
    let holds = || holds::of(tx, report.subscription);
    let before = holds()?;
    let settled = settlement::settle(tx, report)?;
    Ok(Done::Settled(settled.is_some_and(|it| it.verdict.counted), [before, holds()?]))
}

fn publish(tx: &WriteTx<'_>, n: usize, spec: &Spec, now: Timestamp) -> Result<Done> {
    let id = |n: usize| format!("00000000-0000-7000-8000-{n:012}");
    let from_now = |wait: i64| Timestamp::from_ms(now.ms() + wait);
    let event = NewEvent {
        id: id(n),
        tenant: "default".to_owned(),
        source_system: "sim".to_owned(),
        idempotency_key: n.to_string(),
        event_type: match spec.subs.as_slice() {
            [sub] => format!("s{sub}"),
            _ => "all".to_owned(),
        },
        aggregate_id: spec.entity.map(|entity| entity.to_string()),
        payload: spec.content.to_string().into_bytes(),
        content_type: "application/json".to_owned(),
        occurred_at: spec.earlier.map(|earlier| from_now(-earlier)),
        received_at: now,
        not_before: spec.not_before.map(from_now),
        ordering_key: spec.key.map(|key| key.to_string()),
        order: EventOrder {
            exclude_failed: spec.exclude_failed,
            funnel_value: spec.funnel.map(|value| value.to_string()),
            entity_type: Some("thing".to_owned()),
            parent_id: spec.parent.map(|(parent, _)| id(parent)),
            parent_binding: spec.parent.map(|(_, binding)| binding),
            ..EventOrder::default()
        },
        max_attempts: spec.max_attempts,
        ..NewEvent::default()
    };
    let inserted = outbox::insert(tx, &event, now)?;
    Ok(match inserted {
        Inserted::NoParent(_) => Done::TooEarly,
        Inserted::First { .. } if spec.earlier.is_none() => Done::Arrived,
        _ => Done::Plain,
    })
}

/// What a person does. What the state does not allow changes nothing.
fn act(tx: &WriteTx<'_>, deed: Deed, (now, at): (Timestamp, Timestamp)) -> Result<Done> {
    let sub = |seq| subscriptions::by_seq(tx, SubscriptionSeq(seq)).map(Option::unwrap);
    let seq = DeliverySeq;
    let mut released = Vec::new();
    let done = match deed {
        Deed::Pause(n) => settlement::pause(tx, &sub(n)?, "paused", now),
        Deed::Resume(n) | Deed::ResumeIfNeeded(n) => {
            let found = sub(n)?;
            let needs = |hold: &Hold| hold.until.is_none() && hold.probe_at.is_none();
            if matches!(deed, Deed::ResumeIfNeeded(_)) && !found.holds.iter().any(needs) {
                return Ok(Done::Plain);
            }
            settlement::resume(tx, &found, at)?;
            let is_auth = found.holds.iter().any(|hold| hold.reason == HoldReason::Auth);
            return Ok(if is_auth { Done::AcceptedAgain(n) } else { Done::Plain });
        }
        Deed::Limit(n, most) => {
            let mut found = sub(n)?;
            Arc::make_mut(&mut found.new).terms.policy.in_flight_max = most;
            subscriptions::update(tx, &found, now)
        }
        Deed::Retry(n) => settlement::retry(tx, seq(n), false, now),
        Deed::Cancel(n) => settlement::cancel(tx, seq(n), "a person", now),
        Deed::Park(n) => settlement::park(tx, seq(n), "a person", now),
        Deed::Skip(n) => settlement::skip(tx, seq(n), "a person", now),
        Deed::Unpark(n) => settlement::release(tx, seq(n), now).inspect(|()| released.push(n)),
        Deed::MoveToEnd(n) => settlement::move_to_end(tx, seq(n), now),
        Deed::Replay(n) => {
            let run_no = leases::any(tx, seq(n))?.map_or(0, |held| held.run_no);
            settlement::replay(tx, seq(n), (DeliveryState::Completed, run_no), now)
        }
        Deed::EndDoubt => {
            for one in in_doubt(tx, "default", &InDoubtFilter::default(), MANY)? {
                // Every third was sent before the restore.
                if one.0 % 3 == 0 {
                    settlement::skip(tx, one, "it was sent before the restore", now)?;
                } else {
                    settlement::release(tx, one, now)?;
                    released.push(one.0);
                }
            }
            Ok(())
        }
    };
    match done {
        Ok(()) | Err(Error::Changed(_)) => Ok(Done::Released(released)),
        Err(error) => Err(error),
    }
}

fn line(tx: &WriteTx<'_>, is_down: bool, (since, at): (Timestamp, Timestamp)) -> Result<()> {
    let reason = HoldReason::Offline;
    if !is_down {
        holds::release(tx, holds::SITE, reason, at)?;
        return subscriptions::restart_failing(tx, holds::SITE, at);
    }
    let (until, probe_at, probe_no, detail) = (None, None, 0, String::new());
    holds::put(tx, holds::SITE, &Hold { reason, since, until, probe_at, probe_no, detail })
}

/// As `pipeline::confirmations::Confirmations::settle`.
fn confirm(
    tx: &WriteTx<'_>,
    (confirmation, is_early): (&Confirmation, bool),
    times: Times,
    world: World<'_>,
) -> Result<Done> {
    let Confirmation { delivery, token, outcome } = confirmation;
    let held = leases::any(tx, DeliverySeq(*delivery))?.unwrap();
    let (state, run_no, n) = (held.state, held.run_no, held.attempt_count);
    let (waits, is_old_known) =
        (state == DeliveryState::Waiting, world.1 == Some(Bug::ConfirmedByOldUrl));
    let is_too_early = match token {
        None => is_early && state == DeliveryState::Pending,
        Some(token) => state == DeliveryState::Pending && *token == (run_no, n + 1),
    };
    if waits && token.is_none_or(|token| token == (run_no, n) || is_old_known) {
        end_wait(tx, &held, outcome, times, world)?;
        return Ok(Done::Ended(vec![held]));
    }
    Ok(if is_too_early { Done::TooEarly } else { Done::Refused })
}

/// As `Confirmations::expire_these`.
fn end_waits(
    tx: &WriteTx<'_>,
    (over, then): (&[DeliverySeq], Timestamp),
    times: Times,
    world: World<'_>,
) -> Result<Done> {
    let mut ended = Vec::new();
    let reason = "not confirmed".to_owned();
    let outcome = LeaseOutcome::Failed { reason, wait: None, counted: true };
    for delivery in over {
        // It may have been confirmed since it was read.
        let held = leases::any(tx, *delivery)?.unwrap();
        if held.confirm_until.is_some_and(|until| until <= then) {
            end_wait(tx, &held, &outcome, times, world)?;
            ended.push(held);
        }
    }
    Ok(Done::Ended(ended))
}

fn end_wait(
    tx: &WriteTx<'_>,
    held: &Held,
    outcome: &LeaseOutcome,
    Times { now, at: wall, seed }: Times,
    (subs, _): World<'_>,
) -> Result<()> {
    let rules = &subs[&held.subscription.0].rules;
    let target = Consumer {
        subscription: held.subscription,
        url: String::new(),
        rules: rules.clone(),
        latest_only: false,
        now,
        wall,
    };
    confirmations::settle(tx, held, &target, outcome, &JitterDraw::new(seed)).map(drop)
}
