//! The writer's metrics and heartbeat.
//!
//! `batch_jobs` shows how well group commit works: all jobs of a transaction share one sync.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::clock::Clock;
use crate::telemetry::tally::{self, Counter, Heartbeat, Histogram};

/// The writer's metrics.
#[derive(Debug)]
pub struct WorkDone {
    /// The machine's clock, because metrics measure real time even if a test injects another clock.
    clock: Clock,
    /// When the oldest job of the current batch was submitted, in microseconds; 0 if there is no batch.
    oldest_us: AtomicU64,
    /// The heartbeat of the writer's thread.
    pub(crate) pulse: Heartbeat,
    /// Transactions committed.
    pub commits: Counter,
    /// Transactions committed that changed what people see: see [`WriteTx::mark_unseen`](super::tx::WriteTx::mark_unseen).
    pub changes: Counter,
    /// How often the writer noticed a commit by another program.
    pub foreign_commits: Counter,
    /// Jobs committed.
    pub jobs: Counter,
    /// Transactions that were rolled back.
    pub failures: Counter,
    /// How often copying or emptying the write-ahead log was tried.
    pub copy_tries: Counter,
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
            changes: Counter::default(),
            foreign_commits: Counter::default(),
            jobs: Counter::default(),
            copy_tries: Counter::default(),
            failures: Counter::default(),
            batch_jobs: Histogram::new(tally::AMOUNTS),
            commit_span: Histogram::new(tally::SPANS),
            accept_span: Histogram::new(tally::SPANS),
        }
    }
}

impl WorkDone {
    /// The monotonic time by which jobs are measured.
    pub(crate) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Begins a batch whose oldest job was submitted at the given time.
    pub(crate) fn begin(&self, oldest: Duration) {
        let micros = u64::try_from(oldest.as_micros()).unwrap_or(u64::MAX);
        self.oldest_us.store(micros.max(1), Ordering::Relaxed);
    }

    /// Ends the batch.
    pub(crate) fn end(&self) {
        self.oldest_us.store(0, Ordering::Relaxed);
    }

    /// Notes a committed transaction. `accepted` has the submission times of its jobs from the accept queue.
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

    /// How long ago the oldest job of the current batch was submitted; zero if the writer is idle.
    pub(crate) fn lag(&self) -> Duration {
        match self.oldest_us.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            oldest => self.now().saturating_sub(Duration::from_micros(oldest)),
        }
    }
}
