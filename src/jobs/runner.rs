//! The thread `jobs`: runs one batch of each running job in turn, until all are finished.

use std::collections::BTreeMap;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::base::clock::Clock;
use crate::base::stop::Stop;
use crate::jobs::{Job, Looked, Pace, Progress, State, tables};
use crate::pipeline::threads::{Spawner, join};
use crate::store::Store;
use crate::store::error::{Error, Result};
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;

/// How often the thread looks for jobs when nobody rings.
const EVERY: Duration = Duration::from_secs(1);
/// Jobs that take turns; the others wait for their end.
const MAX_AT_ONCE: u32 = 16;

/// Tells the thread that a job was made or cancelled.
#[derive(Clone, Debug)]
pub struct Bell(Sender<()>, Receiver<()>);

impl Bell {
    fn new() -> Self {
        let (sender, receiver) = bounded(1);
        Self(sender, receiver)
    }

    /// Rings. One ring that waits is enough.
    pub fn ring(&self) {
        let _rings_already = self.0.try_send(()).is_err();
    }
}

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
    pub fn start(store: Store, clock: Clock, spawner: &Spawner) -> Result<Self> {
        let (stop, bell) = (Stop::new(), Bell::new());
        let running = Running { store, clock, stop: stop.clone(), paces: BTreeMap::new() };
        let rang = bell.clone();
        let thread = spawner.spawn("jobs", move || running.run(&rang))?;
        Ok(Self { stop, bell, thread })
    }

    /// What wakes it.
    pub const fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Ends it after the batch it is at. Jobs go on after the next start.
    pub fn stop(self) {
        self.stop.ask();
        self.bell.ring();
        join(self.thread);
    }
}

/// What the thread has.
struct Running {
    store: Store,
    clock: Clock,
    stop: Stop,
    /// Of jobs with a rate, by their numbers.
    paces: BTreeMap<i64, Pace>,
}

impl Running {
    /// Gives each job a batch in turn, until a stop is asked for.
    fn run(mut self, bell: &Bell) {
        while !self.stop.asked() {
            let wait = self.turn().unwrap_or_else(|error| {
                tracing::error!(%error, "jobs cannot be looked up; it is tried again");
                EVERY
            });
            if !wait.is_zero() {
                let _rang = bell.1.recv_timeout(wait).is_ok();
            }
        }
    }

    /// One batch of each job; returns when the next one can go on.
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

    /// One batch of a job; returns when it can go on.
    fn batch(&mut self, job: &Job) -> Result<Duration> {
        let now = self.clock.monotonic();
        let pace = self.paces.get(&job.seq).copied().unwrap_or_default();
        if pace.next_at > now {
            return Ok(pace.next_at.saturating_sub(now));
        }
        let Some(looked) = self.look(job)? else { return Ok(EVERY) };
        let (job_then, clock) = (job.clone(), self.clock.clone());
        let run = move |tx: &WriteTx<'_>| tables::advance(tx, &job_then, &looked, clock.now());
        let progress: Option<Progress> = self.store.writer().write(Queue::Upkeep, run)?;
        if let (Some(rate), Some(progress)) = (job.new.rate, progress) {
            self.paces.entry(job.seq).or_default().note(progress.deliveries, rate, now);
        }
        Ok(Duration::ZERO)
    }

    /// The next ones, however far it is to them; `None` when a stop is asked for.
    fn look(&self, job: &Job) -> Result<Option<Looked>> {
        let mut cursor = job.new.cursor.clone();
        while !self.stop.asked() {
            let looked = self.store.snapshot(|tx| tables::next_batch(tx, &job.new, &cursor))?;
            if looked.is_over || !looked.items.is_empty() {
                return Ok(Some(looked));
            }
            cursor = looked.cursor;
        }
        Ok(None)
    }

    /// Ends a job that cannot go on. What passes is tried again after the wait that is returned.
    fn fail(&self, job: &Job, error: &Error) -> Duration {
        let passes = matches!(
            error,
            Error::Busy | Error::TooLong | Error::Full | Error::WriteFailed(_) | Error::Stopped
        );
        if passes {
            tracing::warn!(%error, job = job.new.id, "a job could not go on; it is tried again");
            return EVERY;
        }
        tracing::error!(%error, job = job.new.id, "a job has failed");
        let (seq, why, now) = (job.seq, error.to_string(), self.clock.now());
        let run =
            move |tx: &WriteTx<'_>| tables::end(tx, seq, (State::Failed, Some(why.as_str())), now);
        if let Err(error) = self.store.writer().write(Queue::Upkeep, run) {
            tracing::error!(%error, job = job.new.id, "it could not be noted that a job failed");
        }
        EVERY
    }
}
