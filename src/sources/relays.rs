//! The threads of the sources: `sources` starts and stops the others as sources change; `source-N` reads one source.

use std::collections::BTreeMap;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::base::stop::Stop;
use crate::env::Env;
use crate::model::duty::Duty;
use crate::pipeline::threads::{Bell, Spawner, join};
use crate::sources::reconciliation::runner::ABANDONED;
use crate::sources::relay::Relay;
use crate::sources::{RelayServices, reconciliation, tables};
use crate::store::chores;
use crate::store::error::Result;
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;

/// How often the list of sources is read when the bell does not ring.
const EVERY: Duration = Duration::from_secs(1);
/// Sources read at once, at most.
pub const MAX_SOURCES: u32 = 256;
/// How long the records of a folder's files are kept.
const FILES_KEPT: Duration = Duration::from_hours(365 * 24);
/// How often old records of files are deleted.
const LOOK_EVERY: Duration = Duration::from_mins(1);
/// Records of files deleted per transaction.
const MAX_FORGOTTEN: u32 = 500;
/// How often to check whether relays have ended …
const STOP_POLL: Duration = Duration::from_millis(5);
/// … and how many times: for five seconds. A thread that hangs on a network share is abandoned.
const STOP_POLLS: u32 = 1_000;

/// The thread `sources`, which manages the relays.
#[derive(Debug)]
pub struct Relaying {
    stop: Stop,
    bell: Bell,
    thread: JoinHandle<()>,
}

impl Relaying {
    /// Starts it.
    pub fn start(shared: RelayServices, spawner: &Spawner, bell: Bell) -> Result<Self> {
        let stop = Stop::new();
        let relays = Relays {
            look_at: Duration::ZERO,
            shared,
            spawner: spawner.clone(),
            running: BTreeMap::new(),
            ending: Vec::new(),
        };
        let asked = stop.clone();
        let rang = bell.clone();
        let thread = spawner.spawn("sources", move || relays.run(&asked, &rang))?;
        Ok(Self { stop, bell, thread })
    }

    /// Stops the thread and its relays.
    pub fn stop(self) {
        self.stop.ask();
        self.bell.ring();
        join(self.thread);
    }
}

/// A running relay.
struct Running {
    stop: Stop,
    thread: JoinHandle<()>,
}

/// All relays.
struct Relays {
    shared: RelayServices,
    spawner: Spawner,
    running: BTreeMap<i64, Running>,
    /// Relays that were asked to stop and still run; a new relay of the same source waits until they have ended.
    ending: Vec<(i64, Running)>,
    /// When old records of files are deleted next.
    look_at: Duration,
}

impl Relays {
    /// Updates the relays whenever the bell rings, and once a second, until a stop is asked for.
    fn run(mut self, stop: &Stop, bell: &Bell) {
        while !stop.asked() {
            if let Err(error) = self.update() {
                tracing::error!(%error, "the sources cannot be looked up; it is retried");
            }
            if let Err(error) = self.end_abandoned() {
                tracing::error!(%error, "reconciliations of paused sources cannot be ended; it is retried");
            }
            if let Err(error) = self.forget_files() {
                tracing::error!(%error, "old records of files cannot be deleted; it is retried tomorrow");
            }
            bell.wait(EVERY);
        }
        self.end();
    }

    /// Starts missing relays of sources that are to be read, and stops all others.
    fn update(&mut self) -> Result<()> {
        let sources = self.shared.env.store.read(|tx| tables::to_read(tx, MAX_SOURCES))?;
        let is_read = |seq: &i64| sources.iter().any(|source| source.seq == *seq);
        let over: Vec<i64> = self.running.keys().filter(|seq| !is_read(seq)).copied().collect();
        for seq in over {
            if let Some(running) = self.running.remove(&seq) {
                running.stop.ask();
                self.ending.push((seq, running));
            }
            self.shared.statuses.forget(seq);
            self.shared.marks.forget(seq);
        }
        self.ending.retain(|(_, ending)| !ending.thread.is_finished());
        for source in &sources {
            let seq = source.seq;
            let is_running = self.running.contains_key(&seq)
                || self.ending.iter().any(|(ending, _)| *ending == seq);
            if !is_running {
                let stop = Stop::new();
                let relay = Relay::new(self.shared.clone(), seq, stop.clone());
                let thread = self.spawner.spawn(&format!("source-{seq}"), move || relay.run())?;
                self.running.insert(seq, Running { stop, thread });
            }
        }
        Ok(())
    }

    /// Ends reconciliations whose source was paused or deleted.
    fn end_abandoned(&self) -> Result<()> {
        let Env { store, clock, .. } = &self.shared.env;
        if !store.read(reconciliation::store::has_abandoned)? {
            return Ok(());
        }
        let now = clock.wall();
        store.writer().write(Queue::Upkeep, move |tx| {
            reconciliation::store::end_abandoned(tx, ABANDONED, now)
        })
    }

    /// Once a day, deletes old records of files.
    fn forget_files(&mut self) -> Result<()> {
        let Env { store, clock, .. } = &self.shared.env;
        if clock.monotonic() < self.look_at {
            return Ok(());
        }
        self.look_at = clock.monotonic() + LOOK_EVERY;
        // While the clock may be wrong, no age is reliable.
        let Some(now) = clock.sure_now() else { return Ok(()) };
        if !store.read(|tx| chores::is_due(tx, Duty::DeleteFileRecords, now))? {
            return Ok(());
        }
        let by = now.minus(FILES_KEPT);
        loop {
            let old = store.read(|tx| tables::old_files(tx, by, MAX_FORGOTTEN))?;
            if old.is_empty() {
                let done = move |tx: &WriteTx<'_>| chores::done(tx, Duty::DeleteFileRecords, now);
                return store.writer().write(Queue::Upkeep, done);
            }
            let run = move |tx: &WriteTx<'_>| tables::forget_files(tx, &old, by);
            store.writer().write(Queue::Upkeep, run)?;
        }
    }

    fn end(self) {
        let running = self.running.into_values();
        let all: Vec<Running> = running.chain(self.ending.into_iter().map(|(_, it)| it)).collect();
        for relay in &all {
            relay.stop.ask();
        }
        let wait = Stop::new();
        for _ in 0..STOP_POLLS {
            if all.iter().all(|relay| relay.thread.is_finished()) || wait.wait(STOP_POLL) {
                return;
            }
        }
        tracing::warn!("a source does not answer; its thread is abandoned");
    }
}
