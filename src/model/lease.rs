//! What a pull consumer says of an event it has had, and what follows.
//!
//! Not here: whose lease it is, which is SQL (`store::consuming`).

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::base::id::Draw;
use crate::model::delivery::{Next, Progress, Verdict, judge};
use crate::model::failure::{Class, Outcome};
use crate::model::retry;

/// The lease times a consumer may have: shorter ones end while an answer is on its way, longer ones keep an
/// event from everybody when their consumer has died.
pub const LEASES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(12);

/// What came of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// It is done.
    Done,
    /// It did not work, and may work later.
    Failed {
        /// Why, in the consumer's words.
        reason: String,
        /// When it wants it back; `None`: by the schedule.
        wait: Option<Duration>,
        /// Whether it counts towards giving up. What was handed back unread does not.
        counted: bool,
    },
    /// It will never work.
    Refused {
        /// Why, in the consumer's words.
        reason: String,
    },
}

/// Judges it as an attempt is judged that we made ourselves.
pub fn judge_said(said: &Said, progress: Progress<'_>, draw: &dyn Draw) -> Verdict {
    match said {
        Said::Done => Verdict { class: Class::Success, counted: false, next: Next::Complete },
        Said::Refused { reason } => {
            let next = Next::GiveUp(reason.clone());
            Verdict { class: Class::Validation, counted: true, next }
        }
        Said::Failed { wait, counted: false, .. } => {
            let failures = progress.counted_failures.saturating_add(1);
            let step = || retry::next_wait(progress.schedule, failures, None, draw);
            let next = Next::Retry(wait.unwrap_or_else(step));
            Verdict { class: Class::Transient, counted: false, next }
        }
        Said::Failed { reason, wait, counted: true } => {
            let outcome = Outcome::Unreachable { reason: reason.clone() };
            let mut verdict = judge(&outcome, progress, draw);
            if let (Next::Retry(by_schedule), Some(wait)) = (&mut verdict.next, wait) {
                *by_schedule = *wait;
            }
            verdict
        }
    }
}

impl Said {
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
    use crate::base::id::SystemDraw;
    use crate::model::retry::Schedule;

    fn next(said: &Said, counted_failures: u32) -> (bool, Next) {
        let schedule = Schedule::default();
        let progress = Progress { counted_failures, schedule: &schedule };
        let Verdict { counted, next, .. } = judge_said(said, progress, &SystemDraw::new());
        (counted, next)
    }

    #[test]
    fn a_failure_counts_and_waits_as_the_consumer_asks_until_it_is_the_last() {
        let wait = Some(Duration::from_mins(7));
        let failed = Said::Failed { reason: "no stock".into(), wait, counted: true };
        assert_eq!(next(&failed, 0), (true, Next::Retry(Duration::from_mins(7))));
        let last = "given up after 22 attempts; the last: no stock".to_owned();
        assert_eq!(next(&failed, 21), (true, Next::GiveUp(last)));
    }

    #[test]
    fn what_is_handed_back_never_counts() {
        let wait = Some(Duration::ZERO);
        let back = Said::Failed { reason: "stopping".into(), wait, counted: false };
        assert_eq!(next(&back, 21), (false, Next::Retry(Duration::ZERO)));
        let unasked = Said::Failed { reason: "later".into(), wait: None, counted: false };
        assert!(
            matches!(next(&unasked, 0), (false, Next::Retry(wait)) if wait >= Duration::from_secs(5))
        );
    }
}
