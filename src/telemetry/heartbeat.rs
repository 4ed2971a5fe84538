//! Heartbeats: a thread that works in a loop shows that the loop still runs.
//!
//! Not here: who asks, and what happens when a heartbeat is missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// An idle thread runs its loop at least this often, so that it does not look stuck.
pub const BEAT: Duration = Duration::from_secs(1);

/// One thread's heartbeat. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Heartbeat(Arc<Beats>);

#[derive(Debug, Default)]
struct Beats {
    asked: AtomicU64,
    answered: AtomicU64,
}

impl Heartbeat {
    /// Asks for a heartbeat. Earlier ones do not count.
    pub fn ask(&self) {
        self.0.asked.fetch_add(1, Ordering::AcqRel);
    }

    /// Gives a heartbeat; the thread calls it in each pass of its loop.
    pub fn tick(&self) {
        let asked = self.0.asked.load(Ordering::Acquire);
        self.0.answered.store(asked, Ordering::Release);
    }

    /// Whether a heartbeat came since the last [`Heartbeat::ask`].
    ///
    /// ```
    /// let heartbeat = oncebox::telemetry::heartbeat::Heartbeat::default();
    /// heartbeat.ask();
    /// assert!(!heartbeat.has_answered());
    /// heartbeat.tick();
    /// assert!(heartbeat.has_answered());
    /// ```
    pub fn has_answered(&self) -> bool {
        self.0.answered.load(Ordering::Acquire) == self.0.asked.load(Ordering::Acquire)
    }
}
