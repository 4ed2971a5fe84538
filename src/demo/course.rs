//! A run of the processes: what is to be made, and what came of it.

use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::demo::chaos::Broken;
use crate::demo::role::Role;
use crate::demo::story::Story;

/// A run to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lap {
    /// Its directory.
    pub(super) name: &'static str,
    /// How an invoice travels.
    pub(super) story: Story,
    /// Invoices to be paid.
    pub(super) invoices: u32,
    /// Invoices a second; 0: as fast as it goes.
    pub(super) per_second: u32,
    /// What misfortune follows from.
    pub(super) seed: u32,
    /// Whether there is any.
    pub(super) faults: bool,
    /// What is broken on purpose.
    pub(super) broken: Broken,
}

/// What happened in a run, as the parent saw it.
#[derive(Clone, Debug)]
pub(super) struct Course {
    /// When Finance was started.
    pub(super) started_at: Timestamp,
    /// From then until everything was shipped, or given up.
    pub(super) lasted: Duration,
    /// Who was killed when.
    pub(super) kills: Vec<(Duration, Role)>,
    /// How long Oncebox took from each start after a kill until it answered.
    pub(super) recoveries: Vec<Duration>,
    /// Deliveries Oncebox still had when time was up; `None`: it ended in time.
    pub(super) out_of_time: Option<u32>,
}
