//! Sources: events that are read from where an ERP leaves them, beside those that are published.
//!
//! `Relays` keeps one thread for each source that is to be read and starts and ends them as sources
//! change. Such a thread is a `Relay`: it reads a little, stores it in one transaction with how far
//! it was read, and waits. Not here: what a row means (`domain::source`), and any SQL.

mod folder;
pub mod inspect;
mod keyless;
mod mistakes;
mod permission;
mod relay;
mod shared;
mod source_error;
mod table;
mod transfer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::base::stop::Stop;
use crate::pipeline::sources::relay::Relay;
use crate::pipeline::threads::{join, spawn};
use crate::store::error::Result;
use crate::store::sources;
use crate::store::writer::AfterCommit;

pub use permission::permitted;
pub(super) use shared::Shared;
pub use shared::{Standing, Standings};

/// How often it is looked which sources there are, where nothing tells.
const EVERY: Duration = Duration::from_secs(1);
/// Sources that are read at once, at most.
pub const MAX_SOURCES: u32 = 256;
/// How often it is looked whether relays have ended …
const STOP_LOOK: Duration = Duration::from_millis(5);
/// … and how many times: five seconds. One that hangs on a share is left to itself.
const STOP_LOOKS: u32 = 1_000;

/// Tells that sources were changed.
#[derive(Clone, Debug)]
pub(super) struct Bell(Sender<()>);

impl Bell {
    /// Rings. One ring that waits is enough.
    pub(super) fn ring(&self) {
        let _rings_already = self.0.try_send(()).is_err();
    }
}

/// A bell, and who hears it.
pub(super) fn bell() -> (Bell, Receiver<()>) {
    let (sender, receiver) = bounded(1);
    (Bell(sender), receiver)
}

/// The thread that keeps the relays.
pub(super) struct Started {
    stop: Stop,
    bell: Bell,
    thread: JoinHandle<()>,
}

impl Started {
    /// Starts it.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(super) fn new(
        shared: Shared,
        told: &Arc<dyn AfterCommit>,
        bell: Bell,
        rang: Receiver<()>,
    ) -> Result<Self> {
        let stop = Stop::new();
        let relays =
            Relays { shared, told: Arc::clone(told), running: BTreeMap::new(), ending: Vec::new() };
        let asked = stop.clone();
        let thread = spawn("sources", told, move || relays.run(&asked, &rang))?;
        Ok(Self { stop, bell, thread })
    }

    /// Ends it and its relays.
    pub(super) fn stop(self) {
        self.stop.ask();
        self.bell.ring();
        join(self.thread);
    }
}

/// A relay that runs.
struct Running {
    stop: Stop,
    thread: JoinHandle<()>,
}

/// All relays.
struct Relays {
    shared: Shared,
    told: Arc<dyn AfterCommit>,
    running: BTreeMap<i64, Running>,
    /// Asked to end, and not yet seen to have ended: the next relay of the same source waits for it.
    ending: Vec<(i64, Running)>,
}

impl Relays {
    /// Looks whenever it rings, and once a second, until a stop is asked for.
    fn run(mut self, stop: &Stop, rang: &Receiver<()>) {
        while !stop.asked() {
            if let Err(error) = self.look() {
                tracing::error!(%error, "the sources cannot be looked up; it is tried again");
            }
            let _rang = rang.recv_timeout(EVERY).is_ok();
        }
        self.end();
    }

    /// Starts what is to be read and is not, ends what is not to be read and is.
    fn look(&mut self) -> Result<()> {
        let wanted = self.shared.store.read(|tx| sources::to_read(tx, MAX_SOURCES))?;
        let is_wanted = |seq: &i64| wanted.iter().any(|source| source.seq == *seq);
        let over: Vec<i64> = self.running.keys().filter(|seq| !is_wanted(seq)).copied().collect();
        for seq in over {
            if let Some(running) = self.running.remove(&seq) {
                running.stop.ask();
                self.ending.push((seq, running));
            }
            self.shared.standings.forget(seq);
        }
        self.ending.retain(|(_, ending)| !ending.thread.is_finished());
        for source in &wanted {
            let seq = source.seq;
            let there = self.running.contains_key(&seq)
                || self.ending.iter().any(|(ending, _)| *ending == seq);
            if !there {
                let stop = Stop::new();
                let relay = Relay::new(self.shared.clone(), seq, stop.clone());
                let thread = spawn(&format!("source-{seq}"), &self.told, move || relay.run())?;
                self.running.insert(seq, Running { stop, thread });
            }
        }
        Ok(())
    }

    fn end(self) {
        let running = self.running.into_values();
        let all: Vec<Running> = running.chain(self.ending.into_iter().map(|(_, it)| it)).collect();
        for relay in &all {
            relay.stop.ask();
        }
        let wait = Stop::new();
        for _ in 0..STOP_LOOKS {
            if all.iter().all(|relay| relay.thread.is_finished()) || wait.wait(STOP_LOOK) {
                return;
            }
        }
        tracing::warn!("a source does not answer; its thread is left to itself");
    }
}
