//! The thread `jobs`: runs one batch of each running job in turn, until all are finished.

use std::collections::BTreeMap;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::archive::Archive;
use crate::base::clock::Clock;
use crate::base::stop::Stop;
use crate::jobs::{Batch, Job, JobState, Pace, Progress, expunging, tables};
use crate::pipeline::threads::{Bell, Spawner, join};
use crate::store::Store;
use crate::store::error::{Error, Result};
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;

/// How often the thread looks for jobs if nobody rings.
const EVERY: Duration = Duration::from_secs(1);
/// Jobs that run in turn; the others wait until one has ended.
const MAX_AT_ONCE: u32 = 16;

/// The thread that runs jobs.
#[derive(Debug)]
pub struct Runner {
    stop: Stop,
    bell: Bell,
    thread: JoinHandle<()>,
}

impl Runner {
    /// Starts it.
    /// Fails when a thread cannot be started.
    pub fn start(store: Store, archive: Archive, clock: Clock, spawner: &Spawner) -> Result<Self> {
        let stop = Stop::new();
        let bell = Bell::default();
        let running = Running { store, archive, clock, stop: stop.clone(), paces: BTreeMap::new() };
        let rang = bell.clone();
        let thread = spawner.spawn("jobs", move || running.run(&rang))?;
        Ok(Self { stop, bell, thread })
    }

    /// The bell that wakes it.
    pub const fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Ends it after the current batch. Jobs continue after the next start.
    pub fn stop(self) {
        self.stop.ask();
        self.bell.ring();
        join(self.thread);
    }
}

/// The state of the thread.
struct Running {
    store: Store,
    archive: Archive,
    clock: Clock,
    stop: Stop,
    /// For jobs with a rate, by their numbers.
    paces: BTreeMap<i64, Pace>,
}

impl Running {
    /// Gives each job a batch in turn, until a stop is asked for.
    fn run(mut self, bell: &Bell) {
        while !self.stop.asked() {
            let wait = self.turn().unwrap_or_else(|error| {
                tracing::error!(%error, "jobs cannot be read; the thread tries again");
                EVERY
            });
            if !wait.is_zero() {
                bell.wait(wait);
            }
        }
    }

    /// Handles one batch of each job; returns the wait until the next one.
    fn turn(&mut self) -> Result<Duration> {
        let jobs = self.store.read(|tx| tables::running(tx, MAX_AT_ONCE))?;
        self.paces.retain(|seq, _| jobs.iter().any(|job| job.seq == *seq));
        let mut wait = EVERY;
        for job in &jobs {
            if self.stop.asked() {
                break;
            }
            wait = wait.min(self.batch(job).unwrap_or_else(|error| self.fail(job, &error)));
        }
        Ok(wait)
    }

    /// Handles one batch of a job; returns the wait until it can continue.
    fn batch(&mut self, job: &Job) -> Result<Duration> {
        if job.new.kind.is_expunging() {
            expunging::batch(&self.store, &self.archive, job, self.clock.now())?;
            return Ok(Duration::ZERO);
        }
        let now = self.clock.monotonic();
        let pace = self.paces.get(&job.seq).copied().unwrap_or_default();
        if pace.next_at > now {
            return Ok(pace.next_at.saturating_sub(now));
        }
        let Some(batch) = self.next(job)? else { return Ok(EVERY) };
        let job_then = job.clone();
        let clock = self.clock.clone();
        let run = move |tx: &WriteTx<'_>| tables::advance(tx, &job_then, &batch, None, clock.now());
        let progress: Option<Progress> = self.store.writer().write(Queue::Upkeep, run)?;
        if let (Some(rate), Some(progress)) = (job.new.rate, progress) {
            self.paces.entry(job.seq).or_default().note(progress.deliveries, rate, now);
        }
        Ok(Duration::ZERO)
    }

    /// Searches until there is a batch that is not empty; `None` if a stop is asked for.
    fn next(&self, job: &Job) -> Result<Option<Batch>> {
        let mut cursor = job.new.cursor.clone();
        while !self.stop.asked() {
            let batch = self.store.snapshot(|tx| tables::next_batch(tx, &job.new, &cursor))?;
            if batch.is_last || !batch.items.is_empty() {
                return Ok(Some(batch));
            }
            cursor = batch.cursor;
        }
        Ok(None)
    }

    /// Ends a job that cannot continue. After a temporary error it is tried again; returns the wait until then.
    fn fail(&self, job: &Job, error: &Error) -> Duration {
        let is_temporary = matches!(
            error,
            Error::Busy | Error::TooLong | Error::Full | Error::WriteFailed(_) | Error::Stopped
        );
        if is_temporary {
            tracing::warn!(%error, job = job.new.id, "a job could not continue; it is tried again");
            return EVERY;
        }
        tracing::error!(%error, job = job.new.id, "a job has failed");
        let seq = job.seq;
        let why = error.to_string();
        let now = self.clock.now();
        let run = move |tx: &WriteTx<'_>| tables::end(tx, seq, JobState::Failed, Some(&why), now);
        if let Err(error) = self.store.writer().write(Queue::Upkeep, run) {
            tracing::error!(%error, job = job.new.id, "the failure of a job could not be stored");
        }
        EVERY
    }
}
