//! The settlement of an attempt: one report of what happened, and one verdict of what follows.

use std::sync::Arc;

use crate::base::clock::Timestamp;
use crate::base::id::{DeliverySeq, SubscriptionSeq};
use crate::model::attempt::{Attempt, AttemptReport};
use crate::model::failure::{Next, RetryVerdict};
use crate::model::outcome::AttemptClass;

/// An attempt and its consequences, as the store writes them.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// What happened. Its attempt has the class of the verdict, and is counted if the verdict says so.
    pub report: Arc<AttemptReport>,
    /// What follows.
    pub verdict: RetryVerdict,
}

impl Settlement {
    /// The settlement of an attempt that was judged. The report is copied only if the verdict changes its attempt.
    pub fn new(mut report: Arc<AttemptReport>, verdict: RetryVerdict) -> Self {
        let RetryVerdict { class, counted, .. } = verdict;
        if report.attempt.class != class || report.attempt.counted != counted {
            let judged = &mut Arc::make_mut(&mut report).attempt;
            judged.class = class;
            judged.counted = counted;
        }
        Self { report, verdict }
    }

    /// The settlement of a delivery that is given up without an attempt. `wall` is wall time.
    pub fn without_attempt(
        delivery: DeliverySeq,
        subscription: SubscriptionSeq,
        run_no: u32,
        reason: &str,
        now: Timestamp,
        wall: Timestamp,
    ) -> Self {
        let attempt = Attempt {
            started_at: wall,
            finished_at: wall,
            failed_reason: Some(reason.to_owned()),
            ..Attempt::default()
        };
        let report = AttemptReport::new(delivery, subscription, run_no, attempt, now);
        let verdict = RetryVerdict {
            class: AttemptClass::default(),
            counted: false,
            next: Next::GiveUp(reason.to_owned()),
            hold: None,
            is_alone: false,
        };
        Self { report: Arc::new(report), verdict }
    }
}
