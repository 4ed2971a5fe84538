//! What a pull consumer reports about a leased event, and what follows for the delivery and for its subscription.
//!
//! Not here: who has the lease, which is SQL (`store::consuming`).

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::model::delivery::Jitter;
use crate::model::failure::{MAX_BREAKER_WAIT, NewHold, Next, RetryVerdict, Streak};
use crate::model::hold::HoldReason;
use crate::model::outcome::AttemptClass;
use crate::model::retry_rules::RetryRules;

/// Allowed lease times. A shorter lease may end while an answer is on its way. With a longer one, an event of a crashed
/// consumer is blocked for too long.
pub const LEASES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(12);

/// The outcome of a lease, as the consumer reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseOutcome {
    /// It is done.
    Done,
    /// It failed, but a retry may succeed.
    Failed {
        /// Why, in the consumer's words.
        reason: String,
        /// When the consumer wants the event again; `None`: by the schedule.
        wait: Option<Duration>,
        /// Whether it counts towards giving up. An event that is returned untouched does not count.
        counted: bool,
    },
    /// The consumer cannot work now, perhaps because its database is away: other events would fail as well.
    Away {
        /// Why, in the consumer's words.
        reason: String,
        /// When the consumer wants the event again; `None`: by the schedule.
        wait: Option<Duration>,
    },
    /// It failed, and a retry cannot succeed.
    Refused {
        /// Why, in the consumer's words.
        reason: String,
    },
}

/// What the transaction knows about a leased delivery and its subscription before a report.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeaseFacts {
    /// Counted failures of this run.
    pub counted_failures: u32,
    /// The subscription's consecutive failures.
    pub streak: Streak,
    /// If the subscription has a `breaker` hold: how many of its probes have failed.
    pub breaker_probe: Option<u32>,
    /// Whether it was leased in spite of the hold.
    pub is_probe: bool,
    /// Whether another one has succeeded since this one failed.
    pub only_this_one_fails: bool,
    /// Believed time.
    pub now: Timestamp,
}

/// Decides what follows a report of a consumer, or of a target that has accepted a delivery. The hold that may follow is
/// for consumers: a target that accepts deliveries is called.
///
/// A subscription is held as one that is called would be: when the consumer says that it cannot work, and after failures
/// in a row of several deliveries. Then one event at a time is leased as a probe, until one succeeds.
pub fn judge_lease(
    outcome: &LeaseOutcome,
    facts: &LeaseFacts,
    rules: &RetryRules,
    jitter: Jitter,
) -> RetryVerdict {
    let RetryRules { schedule, park_after, breaker_after, .. } = rules;
    let failures = facts.counted_failures.saturating_add(1);
    let step = || jitter.lengthen(schedule.wait_after(failures));
    let uncounted = |wait: Option<Duration>, hold: Option<NewHold>| RetryVerdict {
        class: AttemptClass::Transient,
        counted: false,
        next: Next::Retry(wait.unwrap_or_else(step)),
        hold,
        is_alone: false,
    };
    let breaker = |failed: u32| {
        let wait = schedule.wait_after(failed.saturating_add(1)).min(MAX_BREAKER_WAIT);
        let at = facts.now.plus(jitter.lengthen(wait));
        NewHold::Probe { reason: HoldReason::Breaker, at, failed }
    };
    // A failed probe lengthens the hold. What was leased before the hold says nothing new.
    let away = || match facts.breaker_probe {
        Some(failed) => facts.is_probe.then(|| breaker(failed.saturating_add(1))),
        None => (!facts.only_this_one_fails).then(|| breaker(0)),
    };
    let (class, counted, next) = match outcome {
        LeaseOutcome::Done => (AttemptClass::Success, false, Next::Complete),
        LeaseOutcome::Refused { reason } => {
            (AttemptClass::Validation, true, Next::GiveUp(reason.clone()))
        }
        LeaseOutcome::Away { wait, .. } => return uncounted(*wait, away()),
        LeaseOutcome::Failed { wait, counted: false, .. } => return uncounted(*wait, None),
        LeaseOutcome::Failed { wait, .. } if facts.is_probe && facts.breaker_probe.is_some() => {
            return uncounted(*wait, away());
        }
        LeaseOutcome::Failed { reason, .. } if schedule.gives_up(failures) => {
            let why = format!("given up after {failures} attempts; the last: {reason}");
            (AttemptClass::Transient, true, Next::GiveUp(why))
        }
        LeaseOutcome::Failed { reason, .. } if park_after.is_some_and(|most| failures >= most) => {
            let why = format!("failed {failures} times; the last: {reason}");
            (AttemptClass::Transient, true, Next::Park(why))
        }
        LeaseOutcome::Failed { wait, .. } => {
            (AttemptClass::Transient, true, Next::Retry(wait.unwrap_or_else(step)))
        }
    };
    // The breaker is for several failing deliveries. A single one already waits by its own schedule.
    let opens = class == AttemptClass::Transient
        && *breaker_after > 0
        && facts.streak.and(class).count >= *breaker_after
        && facts.streak.count > facts.counted_failures
        && facts.breaker_probe.is_none();
    RetryVerdict { class, counted, next, hold: opens.then(|| breaker(0)), is_alone: false }
}

impl LeaseOutcome {
    /// Why it failed; `None` when it is done.
    pub fn failed_reason(&self) -> Option<&str> {
        match self {
            Self::Done => None,
            Self::Failed { reason, .. } | Self::Away { reason, .. } | Self::Refused { reason } => {
                Some(reason)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(outcome: &LeaseOutcome, counted_failures: u32) -> (bool, Next) {
        let verdict = judged(outcome, &LeaseFacts { counted_failures, ..LeaseFacts::default() });
        assert_eq!(verdict.hold, None);
        (verdict.counted, verdict.next)
    }

    fn judged(outcome: &LeaseOutcome, facts: &LeaseFacts) -> RetryVerdict {
        judge_lease(outcome, facts, &RetryRules::default(), Jitter::default())
    }

    fn breaker(secs: i64, failed: u32) -> NewHold {
        let at = Timestamp::from_secs(secs);
        NewHold::Probe { reason: HoldReason::Breaker, at, failed }
    }

    #[test]
    fn a_consumer_that_cannot_work_is_held_and_probed_and_no_event_is_counted() {
        let away = LeaseOutcome::Away { reason: "no database".into(), wait: None };
        let facts = LeaseFacts { now: Timestamp::from_secs(1000), ..LeaseFacts::default() };
        let first = judged(&away, &facts);
        assert_eq!((first.counted, first.hold), (false, Some(breaker(1005, 0))));
        // It was leased before the hold.
        let held = LeaseFacts { breaker_probe: Some(0), ..facts };
        assert_eq!(judged(&away, &held).hold, None);
        let probe = LeaseFacts { is_probe: true, ..held };
        let second = judged(&away, &probe);
        assert_eq!((second.counted, second.hold), (false, Some(breaker(1030, 1))));
        let failed = LeaseOutcome::Failed { reason: "no".into(), wait: None, counted: true };
        let second = judged(&failed, &probe);
        assert_eq!((second.counted, second.hold), (false, Some(breaker(1030, 1))));
        // Others pass: it is about this event.
        let alone = LeaseFacts { only_this_one_fails: true, ..facts };
        let alone = judged(&away, &alone);
        assert_eq!((alone.counted, alone.hold), (false, None));
        // The time that the consumer asks for is for this event.
        let wait = Some(Duration::from_hours(1));
        let asked = judged(&LeaseOutcome::Away { reason: "later".into(), wait }, &facts);
        assert_eq!(
            (asked.next, asked.hold),
            (Next::Retry(Duration::from_hours(1)), Some(breaker(1005, 0)))
        );
    }

    #[test]
    fn failures_in_a_row_of_several_events_are_a_hold() {
        let failed = LeaseOutcome::Failed { reason: "no".into(), wait: None, counted: true };
        let of = |count: u32, counted_failures: u32| {
            let streak = Streak { class: Some(AttemptClass::Transient), count };
            let now = Timestamp::from_secs(1000);
            let facts = LeaseFacts { counted_failures, streak, now, ..LeaseFacts::default() };
            judged(&failed, &facts)
        };
        assert_eq!(of(8, 0).hold, None);
        let tenth = of(9, 0);
        assert_eq!((tenth.counted, tenth.hold), (true, Some(breaker(1005, 0))));
        // All ten were of this event.
        assert_eq!(of(9, 9).hold, None);
    }

    #[test]
    fn a_failure_counts_and_waits_as_the_consumer_asks_until_it_is_the_last() {
        let wait = Some(Duration::from_mins(7));
        let failed = LeaseOutcome::Failed { reason: "no stock".into(), wait, counted: true };
        assert_eq!(next(&failed, 0), (true, Next::Retry(Duration::from_mins(7))));
        let last = "given up after 22 attempts; the last: no stock".to_owned();
        assert_eq!(next(&failed, 21), (true, Next::GiveUp(last)));
    }

    #[test]
    fn an_event_that_is_returned_never_counts() {
        let wait = Some(Duration::ZERO);
        let back = LeaseOutcome::Failed { reason: "stopping".into(), wait, counted: false };
        assert_eq!(next(&back, 21), (false, Next::Retry(Duration::ZERO)));
        let unasked = LeaseOutcome::Failed { reason: "later".into(), wait: None, counted: false };
        assert!(
            matches!(next(&unasked, 0), (false, Next::Retry(wait)) if wait >= Duration::from_secs(5))
        );
    }
}
