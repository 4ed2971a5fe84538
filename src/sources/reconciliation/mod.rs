//! Reconciliation: a provider's list since a time is compared with the webhooks that came, and what is missing is taken in.
//!
//! A run is a row ([`store`]) that the relay of the source works off page by page ([`runner`]), beside its rounds. Its numbers
//! are counted in the last pass over the list, from what is stored by then ([`tally`]): a run that was killed begins again
//! and counts the same.

pub(super) mod runner;
pub mod store;
pub mod tally;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::clock::Timestamp;
use crate::base::words::words;

/// Items younger than this when a run begins are not compared: their webhooks may still come.
pub const YOUNG: Duration = Duration::from_mins(5);
/// The longest period that is compared.
pub const MAX_PERIOD: Duration = Duration::from_hours(92 * 24);
/// Reasons of refused items that a day keeps.
pub const MAX_REASONS: usize = 5;

words! {
    /// How far a run is. Stored in `reconciliations.state`.
    pub enum RunState as "ReconciliationState" {
        /// It runs, or begins again after a restart.
        Running = "RUNNING",
        /// Final: the list was read, and its numbers are complete.
        Done = "DONE",
        /// Final: it could not be ended. What was taken in stays.
        Failed = "FAILED",
    }
}

/// A run to be stored.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// A fresh UUIDv7.
    pub id: String,
    /// The tenant that owns it.
    pub tenant: String,
    /// The provider's name.
    pub provider: String,
    /// The source that reads the provider's list.
    pub source_seq: i64,
    /// Whether nothing is taken in.
    pub is_dry: bool,
    /// Items from this time on are compared …
    pub since: Timestamp,
    /// … up to this one.
    pub until: Timestamp,
    /// Who asked for it; `None`: it was due.
    pub requested_by: Option<String>,
    /// When it was asked for.
    pub began_at: Timestamp,
}

/// A stored run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its number in the file.
    pub seq: i64,
    /// What it was stored with.
    pub new: NewRun,
    /// The name of its source.
    pub source: String,
    /// Webhook events with higher numbers came after it had begun.
    pub last_before: i64,
    /// How far it is.
    pub state: RunState,
    /// Its numbers, the oldest day first.
    pub days: Vec<ReconciledDay>,
    /// Why it failed.
    pub error: Option<String>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// A day of a list, compared with what came. Each item counts for the day of its own time, in UTC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ReconciledDay")]
pub struct ReconciledDay {
    /// The day, like `2026-01-31`.
    #[schemars(length(min = 10, max = 10))]
    pub day: String,
    #[serde(flatten)]
    pub counts: ReconciledCounts,
    /// Up to five reasons for which items were refused.
    #[schemars(length(max = MAX_REASONS))]
    pub reasons: Vec<String>,
}

/// Numbers of items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReconciledCounts {
    /// Items of the list, each once.
    pub sent: u64,
    /// Items that came as a webhook.
    pub received: u64,
    /// Items that were not here when the run began, and whose webhook has not come since. Refused ones are not among them.
    pub missing: u64,
    /// Items that came by the list alone, by this run or before.
    pub taken_in: u64,
    /// Items that cannot be taken in.
    pub refused: u64,
}

impl ReconciledCounts {
    /// The sum of two days.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            sent: self.sent.saturating_add(other.sent),
            received: self.received.saturating_add(other.received),
            missing: self.missing.saturating_add(other.missing),
            taken_in: self.taken_in.saturating_add(other.taken_in),
            refused: self.refused.saturating_add(other.refused),
        }
    }
}

impl Run {
    /// The sum over all days.
    pub fn total(&self) -> ReconciledCounts {
        let each = self.days.iter().map(|day| day.counts);
        each.fold(ReconciledCounts::default(), ReconciledCounts::plus)
    }
}
