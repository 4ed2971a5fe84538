//! Heartbeats: a thread that works in a loop shows that the loop still runs.
//!
//! Not here: who asks, and what follows when no sign comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A thread that has nothing to do comes round at least this often, so that it can be told from one that
/// is stuck.
pub const BEAT: Duration = Duration::from_secs(1);

/// One thread's sign of life. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Heartbeat(Arc<Beats>);

#[derive(Debug, Default)]
struct Beats {
    asked: AtomicU64,
    answered: AtomicU64,
}

impl Heartbeat {
    /// Asks for a sign. One that was given before does not count.
    pub fn ask(&self) {
        self.0.asked.fetch_add(1, Ordering::AcqRel);
    }

    /// Gives a sign: called by the thread each time it comes round.
    pub fn tick(&self) {
        let asked = self.0.asked.load(Ordering::Acquire);
        self.0.answered.store(asked, Ordering::Release);
    }

    /// Whether a sign came since it was asked for last.
    ///
    /// ```
    /// let pulse = oncebox::telemetry::heartbeat::Heartbeat::default();
    /// pulse.ask();
    /// assert!(!pulse.has_answered());
    /// pulse.tick();
    /// assert!(pulse.has_answered());
    /// ```
    pub fn has_answered(&self) -> bool {
        self.0.answered.load(Ordering::Acquire) == self.0.asked.load(Ordering::Acquire)
    }
}
