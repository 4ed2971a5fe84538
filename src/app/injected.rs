//! What a test puts in the place of the real thing.

use std::sync::Arc;

use crate::base::clock::Clock;
use crate::base::faults::Faults;
use crate::base::id::{self, Draw};
use crate::http::limits::Limits;
use crate::pipeline::deliver::Sender;
use crate::sys::disk::Gauge;

/// What the outside is to an Oncebox: the real thing, unless a test says otherwise.
#[derive(Clone)]
pub struct Injected {
    /// Time.
    pub clock: Clock,
    /// Randomness.
    pub draw: Arc<dyn Draw>,
    /// The line to the outside; `None`: the real client.
    pub sender: Option<Arc<dyn Sender>>,
    /// Planned failures.
    pub faults: Faults,
    /// The listener's limits.
    pub limits: Limits,
    /// How room on the disk is looked at.
    pub gauge: Gauge,
}

impl std::fmt::Debug for Injected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Injected").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl Default for Injected {
    /// The machine's clock and randomness, the real client, and no planned failures.
    fn default() -> Self {
        Self {
            clock: Clock::machine(),
            draw: Arc::new(id::SystemDraw::new()),
            sender: None,
            faults: Faults::none(),
            limits: Limits::default(),
            gauge: Gauge::machine(),
        }
    }
}
