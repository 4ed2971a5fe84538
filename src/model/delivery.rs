//! A delivery: one event for one subscription, its states, and what follows an attempt.
//!
//! Pure: how a delivery is kept is in `store::deliveries`, who sends it is in `flow::deliver`.

use std::fmt;
use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::base::id::{DeliverySeq, Draw, SubscriptionSeq};
use crate::model::failure::{Class, Outcome, classify};
use crate::model::retry::{self, Schedule};

/// Where a delivery stands. Stored in `deliveries.state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Waits for its due time. Left by the dispatcher's attempt, or by a person's cancel.
    Pending,
    /// A pull consumer has it. Left by ack, nack, the end of the lease, or a person's retry or cancel.
    Leased,
    /// Accepted by the target, not yet confirmed. Left by the confirmation or its time limit.
    Waiting,
    /// Put aside so that its lane goes on. Left by a person's release.
    Parked,
    /// May have been sent before a restore. Left by a person's release, skip or cancel.
    InDoubt,
    /// Final: the target took it.
    Completed,
    /// Given up, kept whole. Left by a person's retry or cancel.
    DeadLetter,
    /// Final: made superfluous by a rule, or made before a restore as a person says. Left by a person's
    /// retry.
    Skipped,
    /// Final: a person stopped it. Left by a person's retry.
    Cancelled,
}

impl State {
    /// All states, in the order of the table in `docs/states.md`.
    pub const ALL: [Self; 9] = [
        Self::Pending,
        Self::Leased,
        Self::Waiting,
        Self::Parked,
        Self::InDoubt,
        Self::Completed,
        Self::DeadLetter,
        Self::Skipped,
        Self::Cancelled,
    ];

    /// The word in SQL, API and console.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Leased => "leased",
            Self::Waiting => "waiting",
            Self::Parked => "parked",
            Self::InDoubt => "in_doubt",
            Self::Completed => "completed",
            Self::DeadLetter => "dead_letter",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether nothing but a person moves it on.
    #[cfg(test)]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::DeadLetter | Self::Skipped | Self::Cancelled)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A delivery as kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its number; outside `dlv_17`.
    pub seq: DeliverySeq,
    /// Whose it is.
    pub tenant: String,
    /// The UUID of the event or webhook event it carries.
    pub event_id: String,
    /// Whether that is a webhook event.
    pub of_webhook_event: bool,
    /// The event's type.
    pub event_type: String,
    /// The kind of thing it happened to; absent for a webhook event.
    pub aggregate_type: Option<String>,
    /// Which one.
    pub aggregate_id: Option<String>,
    /// The event's own key, or the provider's id of the webhook event.
    pub key: String,
    /// The subscription's name.
    pub subscription: String,
    /// Where it stands.
    pub state: State,
    /// When it is tried next; set while pending.
    pub due_at: Option<Timestamp>,
    /// When its lease ends; set while a consumer has it.
    pub lease_until: Option<Timestamp>,
    /// Whether it waits behind another one of its lane.
    pub is_behind: bool,
    /// Tries so far, over all runs.
    pub attempt_count: u32,
    /// Failed tries of this run that count towards giving up.
    pub counted_failures: u32,
    /// The class of the latest try.
    pub last_class: Option<Class>,
    /// How often it was opened: 1, and one more for each replay.
    pub run_no: u32,
    /// When it reached its final state.
    pub finished_at: Option<Timestamp>,
    /// Why it is dead, skipped or cancelled.
    pub reason: Option<String>,
}

/// One try, as kept. Never changed once written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The delivery's n-th try, from 1.
    pub n: u32,
    /// When the request was begun (wall time).
    pub started_at: Timestamp,
    /// When its outcome was known (wall time).
    pub finished_at: Timestamp,
    /// The URL as called.
    pub url: String,
    /// What it came to.
    pub class: Class,
    /// Whether it counts towards giving up.
    pub counted: bool,
    /// The status code, if there was an answer.
    pub http_status: Option<u16>,
    /// How long it took.
    pub latency_ms: u32,
    /// The first 2,048 characters of the answer.
    pub excerpt: Option<String>,
    /// Why it failed; `None` for a success.
    pub failed_reason: Option<String>,
    /// The credential that signed it.
    pub key_id: Option<String>,
    /// The span id of its `traceparent`.
    pub span: Option<String>,
}

/// Everything of a delivery that an attempt needs: the event's words and its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingRequest {
    /// The delivery.
    pub delivery: DeliverySeq,
    /// Its subscription.
    pub subscription: SubscriptionSeq,
    /// Which opening of the delivery this is.
    pub run_no: u32,
    /// Counted failures of this run so far.
    pub counted_failures: u32,
    /// When its event arrived.
    pub accepted_at: Timestamp,
    /// Whose event it is.
    pub tenant: String,
    /// The system it comes from; `in:` and the provider's name for a webhook event.
    pub source: String,
    /// The UUID of the event or webhook event.
    pub event_id: String,
    /// The `webhook-id` that goes out.
    pub webhook_id: String,
    /// The event's own key, which goes out as `X-Idempotency-Key`.
    pub idempotency_key: String,
    /// The event's type.
    pub event_type: String,
    /// The kind of thing it happened to.
    pub aggregate_type: Option<String>,
    /// Which one.
    pub aggregate_id: Option<String>,
    /// The body, to the byte.
    pub payload: Vec<u8>,
    /// How many places of the body are sealed.
    pub sealed_fields: u32,
    /// Its media type.
    pub content_type: String,
    /// The W3C trace id it came with.
    pub trace_id: Option<String>,
    /// The event's own number of counted attempts.
    pub max_attempts: Option<u32>,
}

/// What follows an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Done.
    Complete,
    /// Tried again after this wait.
    Retry(Duration),
    /// Given up, with the reason.
    GiveUp(String),
    /// Given up, and the subscription is disabled: the target said 410.
    GiveUpAndDisable(String),
}

/// How far a delivery has come before the attempt that is judged.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Counted failures of this run so far.
    pub counted_failures: u32,
    /// The schedule in force: the subscription's, with the event's own `max_attempts` where it has one.
    pub schedule: &'a Schedule,
}

/// An outcome, judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Its class.
    pub class: Class,
    /// Whether it counts towards giving up.
    pub counted: bool,
    /// What follows.
    pub next: Next,
}

/// Judges an attempt. Same input, same answer: randomness for the jitter is passed in.
///
/// Success completes; validation, gone and poison are given up at once; everything else is tried again
/// by the schedule until its number of counted attempts is used up. `Retry-After` is a floor.
pub fn judge(outcome: &Outcome, progress: Progress<'_>, draw: &dyn Draw) -> Verdict {
    let class = classify(outcome);
    let reason = || outcome.failed_reason().unwrap_or_default();
    let next = match class {
        Class::Success => Next::Complete,
        Class::Validation | Class::Poison => Next::GiveUp(reason()),
        Class::Gone => Next::GiveUpAndDisable(reason()),
        Class::Transient | Class::RateLimited | Class::Auth => {
            let failures = progress.counted_failures.saturating_add(1);
            if progress.schedule.gives_up(failures) {
                Next::GiveUp(format!("given up after {failures} attempts; the last: {}", reason()))
            } else {
                Next::Retry(retry::next_wait(
                    progress.schedule,
                    failures,
                    outcome.retry_after(),
                    draw,
                ))
            }
        }
    };
    Verdict { class, counted: class != Class::Success, next }
}

/// What the settle transaction stores: the attempt and what follows it.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// The delivery.
    pub delivery: DeliverySeq,
    /// Its subscription.
    pub subscription: SubscriptionSeq,
    /// The run the attempt belongs to; another run's delivery is not touched.
    pub run_no: u32,
    /// When its event arrived.
    pub accepted_at: Timestamp,
    /// The attempt; its `n` is given by the store.
    pub attempt: Attempt,
    /// What follows.
    pub next: Next,
    /// Schedule time of the settlement, from which a retry's wait is counted.
    pub now: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::SystemDraw;

    fn verdict(status: u16, failures: u32) -> Verdict {
        let outcome = Outcome::Answered { status, retry_after: None, excerpt: String::new() };
        let schedule = Schedule::default();
        let progress = Progress { counted_failures: failures, schedule: &schedule };
        judge(&outcome, progress, &SystemDraw::new())
    }

    #[test]
    fn a_refused_body_is_given_up_at_once() {
        assert_eq!(verdict(422, 0).next, Next::GiveUp("the target answered 422".into()));
    }

    #[test]
    fn a_failing_target_is_tried_22_times() {
        assert!(matches!(verdict(500, 20).next, Next::Retry(_)));
        assert!(matches!(verdict(500, 21).next, Next::GiveUp(_)));
    }

    #[test]
    fn a_target_that_is_gone_disables_its_subscription() {
        assert!(matches!(verdict(410, 0).next, Next::GiveUpAndDisable(_)));
    }

    #[test]
    fn every_state_is_read_back_from_its_word() {
        for state in State::ALL {
            assert_eq!(State::parse(state.as_str()), Some(state));
        }
    }
}
