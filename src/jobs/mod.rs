//! A job: one action on many deliveries or events, on a person's request.
//!
//! A job is a row with a filter and a cursor. The thread ([`runner`]) reads the next items, and handles up to a hundred
//! of them in one transaction, which also moves the cursor. So a killed process repeats nothing and loses nothing. The
//! oldest items go first; dead letters of one lane are handled in the lane's order. [`tables`] has the SQL.

pub mod expunging;
pub mod runner;
pub mod tables;

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::clock::Timestamp;
use crate::base::id::{DeliverySeq, SubscriptionSeq};
use crate::base::words::{self, words};
use crate::model::answer_sentence;
use crate::model::delivery::DeliveryState;
use crate::model::json_fields;
use crate::model::outcome::AttemptClass;
use crate::store::deliveries::Origin;

/// Most items in one transaction.
const MAX_BATCH: u32 = 100;
/// Batches per second of a job with a rate.
const BATCHES_A_SECOND: u32 = 10;
/// After a pause, a job with a rate catches up on at most this time.
const MAX_CATCH_UP: Duration = Duration::from_secs(1);
/// Items are counted up to this number.
pub const MAX_COUNTED: u64 = 100_000;
/// Most deliveries that a filter may name.
pub const MAX_IDS: usize = 1000;
/// Deliveries of a job that are kept, to tell what became of them.
pub const MAX_REACHED: usize = 1000;
/// The longest sentence of an answer.
const MAX_ANSWER_CHARS: usize = answer_sentence::MAX_CHARS;
/// The highest rate.
pub const MAX_RATE: u64 = 10_000;

words! {
    /// What a job does. Stored in `jobs.kind`.
    pub enum JobKind as "JobKind" {
        /// Dead letters are sent again.
        ReplayDeadLetters = "dead_letter.replay",
        /// Dead letters are given up for good.
        DiscardDeadLetters = "dead_letter.discard",
        /// Events of the outbox are sent again.
        ReplayEvents = "event.replay",
        /// Webhook events are sent again.
        ReplayWebhookEvents = "webhook_event.replay",
        /// A subscription gets what it missed: its dead letters, and events that it has no delivery of.
        Recover = "subscription.recover",
        /// What finished events of the outbox have is removed.
        ExpungeEvents = "event.expunge",
        /// What finished webhook events have is removed.
        ExpungeWebhookEvents = "webhook_event.expunge",
    }
}

impl JobKind {
    /// Whether its items are dead letters; the items of the others are events.
    pub const fn is_of_dead_letters(self) -> bool {
        matches!(self, Self::ReplayDeadLetters | Self::DiscardDeadLetters)
    }

    /// Whether it sends something.
    pub const fn sends(self) -> bool {
        !matches!(self, Self::DiscardDeadLetters) && !self.is_expunging()
    }

    /// Whether it removes what events have.
    pub const fn is_expunging(self) -> bool {
        matches!(self, Self::ExpungeEvents | Self::ExpungeWebhookEvents)
    }
}

words! {
    /// The state of a job. Stored in `jobs.state`.
    pub enum JobState as "JobState" {
        /// It runs, or continues after a restart.
        Running = "running",
        /// A person keeps it from going on, until it is resumed. In `jobs.state` it runs, and has a `paused_at`.
        Paused = "paused",
        /// Final: all items were handled.
        Completed = "completed",
        /// Final: a person stopped it. What was done stays done.
        Cancelled = "cancelled",
        /// Final: it could not continue.
        Failed = "failed",
    }
}

/// Which deliveries or events a job is for. They match all given conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "JobFilter")]
pub struct JobFilter {
    /// The subscription's name or id.
    #[schemars(length(min = 1))]
    pub subscription: Option<String>,
    /// The class of the delivery's last attempt.
    #[serde(deserialize_with = "words::optional")]
    pub class: Option<AttemptClass>,
    /// The HTTP status of the delivery's last attempt.
    #[serde(deserialize_with = "json_fields::whole")]
    #[schemars(range(min = 100, max = 999))]
    pub code: Option<u32>,
    /// The sentence in which the target answered, as `GET /v1/dead-letters/summary` has it. Only for dead letters.
    #[schemars(length(min = 1, max = MAX_ANSWER_CHARS))]
    pub answer: Option<String>,
    /// The exact type.
    pub event_type: Option<String>,
    /// The aggregate's type. Not for webhook events.
    pub aggregate_type: Option<String>,
    /// The aggregate's id. Not for webhook events.
    pub aggregate_id: Option<String>,
    /// The provider. Only for webhook events.
    pub provider: Option<String>,
    /// From this time on: when an event was received, or when a dead letter's delivery was created.
    pub since: Option<Timestamp>,
    /// Before this time.
    pub until: Option<Timestamp>,
    /// These deliveries, each like `dlv_17`. Only for dead letters.
    #[schemars(length(max = MAX_IDS))]
    #[schemars(with = "Option<Vec<String>>")]
    pub ids: Option<Vec<DeliverySeq>>,
}

impl JobFilter {
    /// Whether it has a condition on the last attempt. A delivery without an attempt does not match.
    const fn is_of_attempts(&self) -> bool {
        self.class.is_some() || self.code.is_some()
    }
}

/// The progress of a job. Stored in `jobs.cursor`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cursor {
    /// The number of the delivery, or of the event of the outbox, that was handled last.
    pub after: i64,
    /// The last number to handle; of a job for dead letters, the last death.
    pub end: i64,
    /// The number of the webhook event that was handled last.
    pub webhook_after: i64,
    /// The last number of a webhook event to handle.
    pub webhook_end: i64,
    /// The lane that is being handled: its number, and `order_at` and number of the delivery that was handled last.
    pub lane: Option<(i64, i64, i64)>,
    /// The month of the archive that is being handled; `None`: the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub month: Option<String>,
}

/// A job to be stored.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// A fresh UUIDv7.
    pub id: String,
    /// Its tenant.
    pub tenant: String,
    /// What it does.
    pub kind: JobKind,
    /// To which items.
    pub filter: JobFilter,
    /// Most deliveries per second.
    pub rate: Option<u32>,
    /// Why, in the words of the person.
    pub reason: Option<String>,
    /// Who asked for it.
    pub requested_by: String,
    /// When it was created (schedule time).
    pub created_at: Timestamp,
    /// Where it begins.
    pub cursor: Cursor,
}

/// How many items match a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matched {
    /// Their number, as far as they were counted.
    pub count: u64,
    /// Whether there are more that were not counted.
    pub is_more: bool,
}

/// The matches of a new job.
#[derive(Clone, Debug, Default)]
pub struct CountedMatches {
    /// Their number.
    pub matched: Matched,
    /// The first ones.
    pub first: Vec<Item>,
    /// The numbers of dead letters by the numbers of their subscriptions.
    pub by_subscription: BTreeMap<i64, u64>,
}

/// What a job, or a batch of it, has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Dead letters or events that were handled.
    pub done: u64,
    /// Dead letters or events that were skipped, because they had changed meanwhile.
    pub skipped: u64,
    /// Deliveries that were reopened, created or ended.
    pub deliveries: u64,
}

/// What became of the deliveries that a job opened or ended: of the first [`MAX_REACHED`] of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Became {
    /// They arrived.
    pub sent: u64,
    /// They are dead letters again.
    pub failed_again: u64,
    /// They failed again, and are tried again later.
    pub retrying: u64,
    /// They are not tried yet, or are with a consumer or a target.
    pub waiting: u64,
    /// They were cancelled or skipped.
    pub ended: u64,
    /// They were moved to the archive or deleted since.
    pub gone: u64,
}

/// A job as stored.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its number in the file.
    pub seq: i64,
    /// What it was stored with; `cursor` is its progress now.
    pub new: NewJob,
    /// Its state.
    pub state: JobState,
    /// How many items matched when it was created.
    pub matched: Matched,
    /// What it has done so far.
    pub progress: Progress,
    /// Why it failed.
    pub error: Option<String>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// What a job does to one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Replays or discards an existing delivery, unless it has changed since it was read.
    Change {
        /// The delivery.
        delivery: DeliverySeq,
        /// Its state when it was read.
        state: DeliveryState,
        /// Its run when it was read.
        run_no: u32,
    },
    /// Creates the missing delivery of an event for a subscription.
    Create(Origin, SubscriptionSeq),
}

/// A dead letter or an event that matches a filter, with the work to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The number of the delivery or the event.
    pub seq: i64,
    /// Whether it is a webhook event.
    pub is_webhook_event: bool,
    /// The number of the subscription of a dead letter.
    pub subscription: Option<i64>,
    /// What is to be done, each with the delivery's place in its lane.
    actions: Vec<((Timestamp, i64), Action)>,
}

/// The next items of a job.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The items, in the order in which they are handled.
    pub items: Vec<Item>,
    /// Where the next batch begins.
    pub cursor: Cursor,
    /// Whether it is the last batch.
    pub is_last: bool,
}

/// When a job with a rate may continue.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    next_at: Duration,
}

impl Pace {
    /// How many items it may handle in one batch.
    fn batch_size(rate: Option<u32>) -> u32 {
        rate.map_or(MAX_BATCH, |rate| rate.div_euclid(BATCHES_A_SECOND).clamp(1, MAX_BATCH))
    }

    /// Counts deliveries that were just changed.
    fn note(&mut self, deliveries: u64, rate: u32, now: Duration) {
        let each = Duration::from_secs(1).checked_div(rate).unwrap_or_default();
        let count = u32::try_from(deliveries).unwrap_or(u32::MAX);
        let from = self.next_at.max(now.saturating_sub(MAX_CATCH_UP));
        self.next_at = from.saturating_add(each.saturating_mul(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_spreads_deliveries_over_the_second() {
        for (rate, batch) in [(None, 100), (Some(1), 1), (Some(55), 5), (Some(10_000), 100)] {
            assert_eq!(Pace::batch_size(rate), batch, "{rate:?}");
        }
        let mut pace = Pace::default();
        pace.note(5, 10, Duration::from_mins(1));
        assert_eq!(pace.next_at, Duration::from_millis(59_500));
        pace.note(20, 10, Duration::from_mins(1));
        assert_eq!(pace.next_at, Duration::from_millis(61_500));
    }
}
