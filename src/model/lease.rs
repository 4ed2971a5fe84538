//! What a pull consumer reports about a leased event, and what follows.
//!
//! Not here: who has the lease, which is SQL (`store::consuming`).

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::model::delivery::{Jitter, Schedule};
use crate::model::failure::{Next, Verdict};
use crate::model::outcome::AttemptClass;

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
    /// It failed, and a retry cannot succeed.
    Refused {
        /// Why, in the consumer's words.
        reason: String,
    },
}

/// Decides what follows a report of a consumer, or of a target that has accepted a delivery. `park_after`: failures after
/// which it is parked, if its lane parks. There is never a hold: a consumer decides itself when it takes more, and a target
/// that accepts deliveries is called.
pub fn judge_lease(
    outcome: &LeaseOutcome,
    counted_failures: u32,
    (schedule, park_after): (&Schedule, Option<u32>),
    jitter: Jitter,
) -> Verdict {
    let failures = counted_failures.saturating_add(1);
    let step = || jitter.lengthen(schedule.wait_after(failures));
    let (class, counted, next) = match outcome {
        LeaseOutcome::Done => (AttemptClass::Success, false, Next::Complete),
        LeaseOutcome::Refused { reason } => {
            (AttemptClass::Validation, true, Next::GiveUp(reason.clone()))
        }
        LeaseOutcome::Failed { reason, counted: true, .. } if schedule.gives_up(failures) => {
            let why = format!("given up after {failures} attempts; the last: {reason}");
            (AttemptClass::Transient, true, Next::GiveUp(why))
        }
        LeaseOutcome::Failed { reason, counted: true, .. }
            if park_after.is_some_and(|most| failures >= most) =>
        {
            let why = format!("failed {failures} times; the last: {reason}");
            (AttemptClass::Transient, true, Next::Park(why))
        }
        LeaseOutcome::Failed { wait, counted, .. } => {
            (AttemptClass::Transient, *counted, Next::Retry(wait.unwrap_or_else(step)))
        }
    };
    Verdict { class, counted, next, hold: None, is_alone: false }
}

impl LeaseOutcome {
    /// Why it failed; `None` when it is done.
    pub fn failed_reason(&self) -> Option<&str> {
        match self {
            Self::Done => None,
            Self::Failed { reason, .. } | Self::Refused { reason } => Some(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(outcome: &LeaseOutcome, counted_failures: u32) -> (bool, Next) {
        let (schedule, jitter) = (Schedule::default(), Jitter::default());
        let Verdict { counted, next, .. } =
            judge_lease(outcome, counted_failures, (&schedule, None), jitter);
        (counted, next)
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
