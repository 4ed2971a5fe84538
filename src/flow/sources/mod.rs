//! Sources: events that are read from where an ERP leaves them, beside those that are published.
//!
//! `Relays` keeps one thread for each source that is to be read and starts and ends them as sources
//! change. Such a thread is a `Relay`: it reads a little, stores it in one transaction with how far
//! it was read, and waits. Not here: what a row means (`domain::source`), and any SQL.

mod folder;
mod keyless;
mod moving;
mod relay;
pub mod survey;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::clock::{Clock, Timestamp};
use crate::domain::tenant::DEFAULT;
use crate::faults::Faults;
use crate::flow::clock_watch::ClockWatch;
use crate::flow::counts::Counts;
use crate::flow::disk_watch::DiskWatch;
use crate::flow::privacy::Privacy;
use crate::flow::sources::relay::Relay;
use crate::flow::{join, spawn};
use crate::id::Draw;
use crate::settings::{Live, Settings};
use crate::stop::Stop;
use crate::store::error::Result;
use crate::store::outbox::Inserted;
use crate::store::writer::AfterCommit;
use crate::store::{Store, sources};

/// How often it is looked which sources there are, where nothing tells.
const EVERY: Duration = Duration::from_secs(1);
/// Sources that are read at once, at most.
pub const SOURCES_MOST: u32 = 256;
/// How often it is looked whether relays have ended …
const STOP_LOOK: Duration = Duration::from_millis(5);
/// … and how many times: five seconds. One that hangs on a share is left to itself.
const STOP_LOOKS: u32 = 1_000;

/// How a source stands right now, as its relay sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Rows or files that are not read yet, at most.
    pub lag: u64,
    /// When it was last looked at.
    pub last_read_at: Option<Timestamp>,
    /// What it waits for, if that is nothing of its own.
    pub waits_for: Option<&'static str>,
}

/// How all sources stand, for who is asked.
#[derive(Clone, Debug, Default)]
pub struct Standings(Arc<Mutex<BTreeMap<i64, Standing>>>);

impl Standings {
    /// How one stands; nothing is known of one that is not read.
    pub fn of(&self, seq: i64) -> Standing {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&seq).cloned().unwrap_or_default()
    }

    /// What all of them have not read yet.
    pub fn lag(&self) -> u64 {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().map(|standing| standing.lag).fold(0, u64::saturating_add)
    }

    fn set(&self, seq: i64, change: impl FnOnce(&mut Standing)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(all.entry(seq).or_default());
    }

    fn forget(&self, seq: i64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&seq);
    }
}

/// Whether a tenant's source may lie there, and where that is once every link is followed. The service reads it
/// with its own rights: what is not the tenant's must not be reached by its name. A link can be put there at any
/// time: what is opened is the place that this returns, and it is asked again before each reading.
///
/// # Errors
/// Why not, as a sentence without its full stop.
pub fn permitted(
    settings: &Settings,
    tenant: &str,
    path: &Path,
) -> std::result::Result<PathBuf, String> {
    // The place itself may not be there yet; what leads to it is looked at as it is.
    let real = |path: &Path| {
        let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
        path.canonicalize().ok().or_else(|| Some(parent?.join(path.file_name()?)))
    };
    let place = real(path).unwrap_or_else(|| path.to_owned());
    let own = real(settings.directory()).unwrap_or_else(|| settings.directory().to_owned());
    if place.starts_with(&own) || own.starts_with(&place) {
        return Err(format!(
            "{} is in the service's own data directory, or holds it",
            path.display()
        ));
    }
    if tenant == DEFAULT {
        return Ok(place);
    }
    let Some(all) = &settings.sources.tenants_directory else {
        return Err(format!(
            "the tenant {tenant} can have no sources: set sources.tenants_directory in the settings, and \
             they may lie in the directory of its name there"
        ));
    };
    let theirs = all.join(tenant);
    if real(&theirs).is_some_and(|theirs| place != theirs && place.starts_with(theirs)) {
        return Ok(place);
    }
    Err(format!("the sources of the tenant {tenant} have to lie in {}", theirs.display()))
}

/// What relays share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) store: Store,
    pub(super) clock: Clock,
    pub(super) draw: Arc<dyn Draw>,
    pub(super) disk: Arc<DiskWatch>,
    pub(super) settings: Live,
    pub(super) counts: Arc<Counts>,
    pub(super) standings: Standings,
    pub(super) clock_watch: Arc<ClockWatch>,
    pub(super) privacy: Arc<Privacy>,
    pub(super) faults: Faults,
}

impl Shared {
    /// Counts what was stored, and says so where something was known that says something else: nobody else would.
    fn admitted<'i, I: Iterator<Item = &'i Inserted>>(&self, source: &str, stored: I) {
        let mut differing = 0_u64;
        for inserted in stored {
            let differs = matches!(inserted, Inserted::Again { differs: true, .. });
            self.counts.admitted(matches!(inserted, Inserted::Again { .. }), differs);
            differing = differing.saturating_add(u64::from(differs));
        }
        if differing > 0 {
            tracing::warn!(
                source,
                rows = differing,
                "rows have the key of an event that says something else, which stays: see its differing_count"
            );
        }
    }
}

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
        let wanted = self.shared.store.read(|tx| sources::to_read(tx, SOURCES_MOST))?;
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
