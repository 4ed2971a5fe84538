//! A job: one thing that a person asked to be done to many deliveries or events.
//!
//! A job is a row with a filter and a cursor. Its thread ([`runner`]) looks for the next ones on a reader, and does a
//! hundred of them in one transaction, which also moves the cursor. So a killed process repeats nothing and loses
//! nothing. The oldest go first; dead letters of a lane go one after another, in the lane's order. [`tables`] has
//! the SQL.

pub mod runner;
pub mod tables;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::clock::Timestamp;
use crate::base::id::{DeliverySeq, SubscriptionSeq};
use crate::model::delivery::State as DeliveryState;
use crate::model::lenient_int;
use crate::model::outcome::AttemptClass;
use crate::store::deliveries::Origin;

/// What one transaction does at most.
const MAX_BATCH: u32 = 100;
/// Batches of a job with a rate, in a second.
const BATCHES_A_SECOND: u32 = 10;
/// What a job with a rate may catch up on: after a pause it does as much as in this time.
const MAX_CATCH_UP: Duration = Duration::from_secs(1);
/// More than this many are not counted.
pub const MAX_COUNTED: u64 = 100_000;
/// Deliveries that a filter may name.
pub const MAX_IDS: usize = 1000;
/// The highest rate.
pub const MAX_RATE: u32 = 10_000;

/// What is done. Stored in `jobs.kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Dead letters are sent again.
    ReplayDeadLetters,
    /// Dead letters are given up for good.
    DiscardDeadLetters,
    /// Events of the outbox are sent again.
    ReplayEvents,
    /// Webhook events are sent again.
    ReplayWebhookEvents,
    /// A subscription gets what it missed: its dead letters, and events that it has no delivery of.
    Recover,
}

impl Kind {
    /// All.
    pub const ALL: [Self; 5] = [
        Self::ReplayDeadLetters,
        Self::DiscardDeadLetters,
        Self::ReplayEvents,
        Self::ReplayWebhookEvents,
        Self::Recover,
    ];

    /// The word in SQL and API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReplayDeadLetters => "dead_letter.replay",
            Self::DiscardDeadLetters => "dead_letter.discard",
            Self::ReplayEvents => "event.replay",
            Self::ReplayWebhookEvents => "webhook_event.replay",
            Self::Recover => "subscription.recover",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Whether it goes over dead letters; the others go over events.
    pub const fn is_of_dead_letters(self) -> bool {
        matches!(self, Self::ReplayDeadLetters | Self::DiscardDeadLetters)
    }
}

/// Whether it runs. Stored in `jobs.state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs, or goes on after a restart.
    Running,
    /// Final: everything was looked at.
    Completed,
    /// Final: a person stopped it. What was done stays done.
    Cancelled,
    /// Final: it could not go on.
    Failed,
}

impl State {
    /// All.
    pub const ALL: [Self; 4] = [Self::Running, Self::Completed, Self::Cancelled, Self::Failed];

    /// The word in SQL and API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// Which ones are meant. All that is given has to fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "JobFilter")]
pub struct Filter {
    /// By name or id.
    #[schemars(length(min = 1))]
    pub subscription: Option<String>,
    /// The class of the delivery's last attempt.
    #[schemars(with = "Option<AttemptClass>")]
    pub class: Option<String>,
    /// The HTTP status of the delivery's last attempt.
    #[serde(deserialize_with = "lenient_int::optional")]
    #[schemars(range(min = 100, max = 999))]
    pub code: Option<u32>,
    /// The exact type.
    pub event_type: Option<String>,
    /// The kind of thing the event happened to. Not of webhook events.
    pub aggregate_type: Option<String>,
    /// Which one. Not of webhook events.
    pub aggregate_id: Option<String>,
    /// Of webhook events alone.
    pub provider: Option<String>,
    /// Not before this time: of events, when they were received; of dead letters, when the delivery was made.
    pub since: Option<Timestamp>,
    /// Before this time.
    pub until: Option<Timestamp>,
    /// Of dead letters alone: these deliveries, each like `dlv_17`.
    #[schemars(length(max = MAX_IDS))]
    pub ids: Option<Vec<String>>,
}

impl Filter {
    /// Whether it asks for what a last attempt came to: what has had none does not match.
    const fn is_of_attempts(&self) -> bool {
        self.class.is_some() || self.code.is_some()
    }
}

/// How far a job is. Stored in `jobs.cursor`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cursor {
    /// The delivery or event of the outbox that was looked at last, by its number.
    pub after: i64,
    /// The last one to look at.
    pub end: i64,
    /// The same for webhook events.
    pub webhook_after: i64,
    /// The last one to look at.
    pub webhook_end: i64,
    /// The lane that is worked off just now: its number, and the place of the delivery that was looked at last.
    pub lane: Option<(i64, i64, i64)>,
}

/// A job to be stored.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// A fresh UUIDv7.
    pub id: String,
    /// Whose it is.
    pub tenant: String,
    /// What is done.
    pub kind: Kind,
    /// To which ones.
    pub filter: Filter,
    /// Deliveries a second at most.
    pub rate: Option<u32>,
    /// Why, as the person said.
    pub reason: Option<String>,
    /// Who asked for it.
    pub requested_by: String,
    /// When it was made (schedule time). Dead letters that died later are not its concern.
    pub created_at: Timestamp,
    /// Where it begins.
    pub cursor: Cursor,
}

/// How many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matched {
    /// So many …
    pub count: u64,
    /// … or more: nobody counted on.
    pub is_more: bool,
}

/// What a job, or a batch of it, has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Dead letters or events that were done.
    pub done: u64,
    /// Those that had changed meanwhile.
    pub skipped: u64,
    /// Deliveries that were opened, made or ended.
    pub deliveries: u64,
}

/// A job as kept.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its number in the file.
    pub seq: i64,
    /// What it was stored with; `cursor` is where it stands now.
    pub new: NewJob,
    /// Whether it runs.
    pub state: State,
    /// How many there were when it was made.
    pub matched: Matched,
    /// What it has done.
    pub progress: Progress,
    /// Why it failed.
    pub error: Option<String>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// Something to do to a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// To one that is there, if it still is what it was when it was looked at.
    To {
        /// Which.
        delivery: DeliverySeq,
        /// Its state then.
        state: DeliveryState,
        /// Its run then.
        run_no: u32,
    },
    /// Makes the delivery that an event does not have for a subscription.
    Make(Origin, SubscriptionSeq),
}

/// A dead letter or an event that a filter fits, and what is to be done for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The number of the delivery or the event.
    pub seq: i64,
    /// Whether it is a webhook event.
    pub is_webhook_event: bool,
    /// What is to be done, each with the place that it has, or will have, in its lane.
    acts: Vec<((Timestamp, i64), Act)>,
}

/// A look at the next ones.
#[derive(Clone, Debug, Default)]
pub struct Looked {
    /// Those that fit, in the order in which they are done.
    pub items: Vec<Item>,
    /// Where the next look begins.
    pub cursor: Cursor,
    /// Whether there is none.
    pub is_over: bool,
}

/// When a job with a rate may go on.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    next_at: Duration,
}

impl Pace {
    /// How many it may do in one batch.
    fn batch(rate: Option<u32>) -> u32 {
        rate.map_or(MAX_BATCH, |rate| rate.div_euclid(BATCHES_A_SECOND).clamp(1, MAX_BATCH))
    }

    /// Notes deliveries that were opened just now.
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
    fn words_are_read_back() {
        for kind in Kind::ALL {
            assert_eq!(Kind::parse(kind.as_str()), Some(kind));
        }
        for state in State::ALL {
            assert_eq!(State::parse(state.as_str()), Some(state));
        }
    }

    #[test]
    fn a_rate_spreads_deliveries_over_the_second() {
        for (rate, batch) in [(None, 100), (Some(1), 1), (Some(55), 5), (Some(10_000), 100)] {
            assert_eq!(Pace::batch(rate), batch, "{rate:?}");
        }
        let mut pace = Pace::default();
        pace.note(5, 10, Duration::from_mins(1));
        assert_eq!(pace.next_at, Duration::from_millis(59_500));
        pace.note(20, 10, Duration::from_mins(1));
        assert_eq!(pace.next_at, Duration::from_millis(61_500));
    }
}
