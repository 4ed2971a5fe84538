//! What the writer has done since it was made, and whether it is alive.
//!
//! How many jobs share a commit is how far group commit carries: one alone pays for a sync by itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::clock::Clock;
use crate::telemetry::heartbeat::Heartbeat;
use crate::telemetry::tally::{self, Counter, Histogram};

/// The writer's numbers.
#[derive(Debug)]
pub struct WorkDone {
    /// The machine's clock: these are spans of real time, whatever the product is told.
    clock: Clock,
    /// When the oldest job of the batch in hand was handed in, in microseconds; 0 while none is.
    oldest_us: AtomicU64,
    /// The writing thread's sign of life.
    pub(crate) pulse: Heartbeat,
    /// Transactions committed.
    pub commits: Counter,
    /// How often the writer noticed that another program had committed.
    pub foreign_commits: Counter,
    /// Jobs committed.
    pub jobs: Counter,
    /// Transactions that were rolled back.
    pub failures: Counter,
    /// Jobs per committed transaction.
    pub batch_jobs: Histogram,
    /// How long transactions took, the sync included.
    pub commit_span: Histogram,
    /// From a job's arrival in the accept queue to the end of its COMMIT.
    pub accept_span: Histogram,
}

impl Default for WorkDone {
    fn default() -> Self {
        Self {
            clock: Clock::machine(),
            oldest_us: AtomicU64::new(0),
            pulse: Heartbeat::default(),
            commits: Counter::default(),
            foreign_commits: Counter::default(),
            jobs: Counter::default(),
            failures: Counter::default(),
            batch_jobs: Histogram::new(tally::AMOUNTS),
            commit_span: Histogram::new(tally::SPANS),
            accept_span: Histogram::new(tally::SPANS),
        }
    }
}

impl WorkDone {
    /// What the times of jobs are counted in.
    pub(crate) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// A batch is taken in hand whose oldest job was handed in at that time.
    pub(crate) fn begin(&self, oldest: Duration) {
        let micros = u64::try_from(oldest.as_micros()).unwrap_or(u64::MAX);
        self.oldest_us.store(micros.max(1), Ordering::Relaxed);
    }

    /// The batch is worked off.
    pub(crate) fn end(&self) {
        self.oldest_us.store(0, Ordering::Relaxed);
    }

    /// A transaction that began at that time is committed; `accepted` says when those of its jobs were
    /// handed in that came from the accept queue.
    pub(crate) fn committed(
        &self,
        began: Duration,
        jobs: usize,
        accepted: impl Iterator<Item = Duration>,
    ) {
        let now = self.now();
        let jobs = u64::try_from(jobs).unwrap_or(u64::MAX);
        self.commits.add();
        self.jobs.add_many(jobs);
        self.batch_jobs.note(jobs);
        self.commit_span.note_span(now.saturating_sub(began));
        for at in accepted {
            self.accept_span.note_span(now.saturating_sub(at));
        }
    }

    /// How long ago the oldest job in hand was handed in; nothing when the writer is idle.
    pub(crate) fn lag(&self) -> Duration {
        match self.oldest_us.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            oldest => self.now().saturating_sub(Duration::from_micros(oldest)),
        }
    }
}
