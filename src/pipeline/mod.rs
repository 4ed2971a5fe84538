//! The stages and their threads. Stages never call each other: they meet in the store, and a doorbell
//! tells the next to look.
//!
//! | thread | runs | waits on |
//! |---|---|---|
//! | `writer` | [`WriterLoop`]: the only write connection | its three queues |
//! | `dispatch` | [`dispatch::Dispatcher`]: who is sent next | its letters, the next due time |
//! | `deliver-N` | [`deliver::Deliver`]: one request at a time | its assignments |
//! | `consume` | [`consume::Attendant`]: those who ask for events | requests, what becomes due, leases |
//! | `upkeep` | [`upkeep::Upkeep`]: chores by the clock | a second |
//! | `relay` | [`relay::Relay`]: events inserted by plain SQL | the write-ahead log, a quarter of a second |
//! | `backup` | [`Schedule`]: backups by the clock, where there are any | a second |
//!
//! They are started and joined here and nowhere else. The stop order is: sources (see `app`), dispatcher (nothing new is
//! started), deliverers (what is under way is finished and settled), the listener (see `appliance`), relay, upkeep,
//! writer (drains its queues and empties the write-ahead log). So what comes in is taken while deliveries end.

mod assembly;
pub mod clock_watch;
pub mod consume;
pub mod counts;
pub mod deliver;
pub mod destinations;
pub mod disk_watch;
pub mod forgetting;
pub mod inbox;
pub mod provider_cache;
pub mod publish;
pub mod receive;
pub mod refusals;
pub mod relay;
pub mod rotation;
pub mod scheduler;
pub mod sql_rows;
pub mod suspects;
pub mod threads;
pub mod upkeep;

use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Sender, bounded, unbounded};
use parking_lot::Mutex;

use crate::backup::schedule::Schedule;
use crate::base::budget::Budget;
use crate::base::clock::Clock;
use crate::base::faults::Faults;
use crate::base::id::Draw;
use crate::base::stop::Stop;
use crate::config::Live;
use crate::keys::Keyring;
use crate::keys::subject::Pseudonyms;
use crate::pipeline::assembly::{
    consume, deliver, destinations, dispatcher, entrances, privacy, upkeep,
};
use crate::pipeline::clock_watch::ClockWatch;
use crate::pipeline::consume::Consume;
use crate::pipeline::consume::manager::LeaseManager;
use crate::pipeline::counts::Counts;
use crate::pipeline::deliver::Deliver;
use crate::pipeline::destinations::Destinations;
use crate::pipeline::disk_watch::DiskWatch;
use crate::pipeline::provider_cache::ProviderCache;
use crate::pipeline::publish::Publish;
use crate::pipeline::receive::Receive;
use crate::pipeline::refusals::Refusals;
use crate::pipeline::relay::Relay;
use crate::pipeline::scheduler::decisions::Input;
use crate::pipeline::scheduler::{Assignments, Ended, Mailbox, assignments};
use crate::pipeline::suspects::Suspects;
use crate::pipeline::threads::{Spawner, join, spawn};
use crate::privacy::Privacy;
use crate::store::Store;
use crate::store::error::{Error, Result};
use crate::store::tx::{Effects, ReadTx};
use crate::store::writer::{AfterCommit, WriterLoop};
use crate::telemetry::heartbeat::Heartbeat;

/// What the stages are built from.
pub struct Parts {
    /// The file.
    pub store: Store,
    /// Its writing end.
    pub writer_loop: WriterLoop,
    /// Time.
    pub clock: Clock,
    /// Randomness.
    pub draw: Arc<dyn Draw>,
    /// What secrets are sealed with.
    pub key: Arc<Keyring>,
    /// What subjects are called in the file.
    pub names: Pseudonyms,
    /// The line to the outside.
    pub sender: Arc<dyn deliver::Sender>,
    /// What holds.
    pub settings: Live,
    /// The room on the disk.
    pub disk: Arc<DiskWatch>,
    /// The backups by the clock.
    pub backups: Option<Schedule>,
    /// What deliveries and sources take their memory from.
    pub budget: Budget,
    /// What the process may have died on.
    pub suspects: Arc<Suspects>,
    /// Planned failures.
    pub faults: Faults,
    /// Told when tokens change.
    pub on_tokens_changed: Arc<dyn Fn() + Send + Sync>,
    /// Told when sources change.
    pub on_sources_changed: Arc<dyn Fn() + Send + Sync>,
    /// Whether a source has this name: only that source speaks for it.
    pub is_source: IsSource,
    /// Asked for when the process must end.
    pub stop: Stop,
}

/// Whether the tenant has a source of this name.
pub type IsSource = fn(&ReadTx<'_>, &str, &str) -> Result<bool>;

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

/// The running stages.
pub struct Flow {
    /// The intake.
    pub receive: Receive,
    /// The publisher.
    pub publish: Publish,
    /// The consumers' way in.
    pub consume: Consume,
    /// Where refused calls are noted.
    pub refusals: Refusals,
    /// What was counted.
    pub counts: Arc<Counts>,
    /// Whether our clock can be trusted.
    pub clock_watch: Arc<ClockWatch>,
    /// Starts threads that the process cannot do without.
    pub spawner: Spawner,
    /// What is done about personal data.
    pub privacy: Arc<Privacy>,
    mailbox: Mailbox,
    dispatcher_pulse: Heartbeat,
    destinations: Arc<Destinations>,
    writer_stop: Sender<()>,
    upkeep_stop: Stop,
    /// Taken by [`Flow::end_deliveries`], as are the deliverers.
    dispatcher: Option<JoinHandle<()>>,
    deliverers: Vec<JoinHandle<()>>,
    upkeep: JoinHandle<()>,
    relay: JoinHandle<()>,
    lease_manager: JoinHandle<()>,
    writer: JoinHandle<()>,
    /// How the dispatcher ended.
    ended: Arc<Mutex<Ended>>,
    fatal: Arc<Mutex<Option<Error>>>,
}

impl std::fmt::Debug for Flow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flow").finish_non_exhaustive()
    }
}

/// Tells the other threads what was committed.
struct CommitListener {
    mailbox: Mailbox,
    consume: Consume,
    destinations: Arc<Destinations>,
    gates: Arc<ProviderCache>,
    privacy: Arc<Privacy>,
    on_sources_changed: Arc<dyn Fn() + Send + Sync>,
    on_tokens_changed: Arc<dyn Fn() + Send + Sync>,
    disk: Arc<DiskWatch>,
    fatal: Arc<Mutex<Option<Error>>>,
    stop: Stop,
}

impl AfterCommit for CommitListener {
    fn committed(&self, effects: Effects) {
        let Effects {
            rang,
            settled,
            subscriptions_changed,
            providers_changed,
            tokens_changed,
            sources_changed,
            subjects_erased,
        } = effects;
        if subscriptions_changed {
            self.destinations.forget();
        }
        if providers_changed {
            self.gates.forget();
            self.privacy.forget();
        }
        if subjects_erased {
            self.privacy.forget_keys();
        }
        if sources_changed {
            (self.on_sources_changed)();
        }
        if tokens_changed {
            (self.on_tokens_changed)();
        }
        self.consume.committed(&rang, subscriptions_changed);
        if !rang.is_empty() || !settled.is_empty() || subscriptions_changed {
            self.mailbox.leave(|messages| {
                messages.rang.extend(rang);
                messages.inputs.extend(settled.into_iter().map(Input::Settled));
                messages.subscriptions_changed |= subscriptions_changed;
            });
        }
    }

    fn full(&self) {
        self.disk.found_full();
    }

    fn fatal(&self, error: &Error) {
        tracing::error!(%error, "the process ends, so that nothing is acknowledged that is not stored");
        *self.fatal.lock() = Some(error.clone());
        self.stop.ask();
    }
}

impl Flow {
    /// Starts every stage.
    pub fn start(parts: Parts) -> Result<Self> {
        let Parts { store, key, faults, .. } = &parts;
        let (mailbox, pulse) = (Mailbox::default(), Heartbeat::default());
        let threads = parts.settings.get().delivery.deliverers;
        let destinations = Arc::new(destinations(&parts));
        let gates = Arc::new(ProviderCache::new(store.clone(), Arc::clone(key), faults.clone()));
        let privacy = privacy(&parts);
        let clock_watch = Arc::new(ClockWatch::default());
        let counts = Arc::new(Counts::default());
        let fatal = Arc::new(Mutex::new(None));
        let (hand_out, assignments) = assignments(usize::try_from(threads).unwrap_or(1));
        // Holds at most what is in hand, which the dispatcher bounds.
        let (unsettled, unsettled_back) = unbounded();
        let deliver =
            deliver(&parts, (&destinations, &counts, &privacy), mailbox.clone(), unsettled);
        let consume = consume(&parts, &destinations, (&counts, &privacy));
        let lease_manager = LeaseManager::new(consume.clone());
        let caches = (Arc::clone(&destinations), Arc::clone(&gates), Arc::clone(&privacy));
        let bells = (mailbox.clone(), consume.clone());
        let told = told(&parts, bells, caches, &fatal);
        let (receive, publish) =
            entrances(&parts, (gates, &privacy), &clock_watch, Arc::clone(&counts));
        let dispatcher = dispatcher(&parts, (mailbox.clone(), pulse.clone()), hand_out)?;
        let upkeep = upkeep(&parts, Arc::clone(&clock_watch), unsettled_back, &deliver);
        let upkeep_stop = Stop::new();
        let relay = spawn_relay(&parts, &counts, &told, &upkeep_stop)?;
        let (writer_stop, writer_stopped) = bounded(0);
        let deliverers = spawn_deliverers(threads, &told, &deliver, &assignments)?;
        let writer_loop = parts.writer_loop;
        let after_commit = Arc::clone(&told);
        spawn_backups(parts.backups, &told, &upkeep_stop)?;
        let upkeep_told = upkeep_stop.clone();
        let ended = Arc::new(Mutex::new(Ended::default()));
        let tell_ended = Arc::clone(&ended);
        Ok(Self {
            receive,
            publish,
            consume,
            refusals: upkeep.refusals.clone(),
            counts,
            clock_watch,
            spawner: Spawner(Arc::clone(&told)),
            privacy,
            mailbox,
            dispatcher_pulse: pulse,
            destinations,
            writer_stop,
            upkeep_stop,
            deliverers,
            writer: spawn("writer", &told, move || {
                writer_loop.run(&writer_stopped, &after_commit);
            })?,
            dispatcher: Some(spawn("dispatch", &told, move || {
                let how = dispatcher.run();
                *tell_ended.lock() = how;
            })?),
            ended,
            upkeep: spawn("upkeep", &told, move || upkeep.run(&upkeep_told))?,
            relay,
            lease_manager: spawn("consume", &told, move || lease_manager.run())?,
            fatal,
        })
    }

    /// Lets the dispatcher look at the clock, which a test has moved.
    pub fn wake(&self) {
        self.mailbox.ring();
        self.consume.wake();
    }

    /// Answers consumers that wait, so that a stop of the listener need not wait for them.
    pub fn stop_waiting(&self) {
        self.consume.stop_waiting();
    }

    /// Lets everyone look at the settings again, after they were set.
    pub fn settings_changed(&self) {
        self.destinations.forget();
        self.mailbox.leave(|messages| messages.subscriptions_changed = true);
    }

    /// The dispatcher's sign of life.
    pub fn pulse(&self) -> &Heartbeat {
        &self.dispatcher_pulse
    }

    /// Starts nothing new, and lets what is under way end and be settled, as far as it does within
    /// [`dispatch::STOP_GRACE`]. The rest goes on: what comes in meanwhile is taken.
    pub fn end_deliveries(&mut self) {
        self.mailbox.leave(|messages| messages.stop = true);
        if self.is_healthy() {
            self.dispatcher.take().into_iter().for_each(join);
        }
        // A request whose grace is over may have minutes to go by its own limit. Its thread is left to
        // itself; what it hands in later finds no writer.
        if self.is_healthy() && !self.how_it_ended().busy {
            self.deliverers.drain(..).for_each(join);
        }
    }

    /// Stops what [`Flow::end_deliveries`] has left. `clean` is called while the writer still runs, and only
    /// when nothing is left over.
    /// Fails with what made the process end, if nobody asked it to.
    pub fn stop(self, clean: impl FnOnce()) -> Result<()> {
        self.consume.end();
        join(self.lease_manager);
        self.upkeep_stop.ask();
        join(self.relay);
        join(self.upkeep);
        let fatal = || self.fatal.lock();
        let drained = self.ended.lock().drained;
        if fatal().is_none() && drained {
            clean();
        }
        drop(self.writer_stop);
        join(self.writer);
        let fatal = fatal().take();
        fatal.map_or(Ok(()), Err)
    }

    fn is_healthy(&self) -> bool {
        self.fatal.lock().is_none()
    }

    fn how_it_ended(&self) -> Ended {
        *self.ended.lock()
    }
}

fn told(
    parts: &Parts,
    (mailbox, consume): (Mailbox, Consume),
    (destinations, gates, privacy): (Arc<Destinations>, Arc<ProviderCache>, Arc<Privacy>),
    fatal: &Arc<Mutex<Option<Error>>>,
) -> Arc<dyn AfterCommit> {
    Arc::new(CommitListener {
        mailbox,
        consume,
        destinations,
        gates,
        privacy,
        on_sources_changed: Arc::clone(&parts.on_sources_changed),
        on_tokens_changed: Arc::clone(&parts.on_tokens_changed),
        disk: Arc::clone(&parts.disk),
        fatal: Arc::clone(fatal),
        stop: parts.stop.clone(),
    })
}

fn spawn_relay(
    parts: &Parts,
    counts: &Arc<Counts>,
    told: &Arc<dyn AfterCommit>,
    stop: &Stop,
) -> Result<JoinHandle<()>> {
    let relay = Relay {
        store: parts.store.clone(),
        reader: parts.store.own_reader()?,
        sql_rows: assembly::sql_rows(parts),
        counts: Arc::clone(counts),
    };
    let stop = stop.clone();
    spawn("relay", told, move || relay.run(&stop))
}

fn spawn_deliverers(
    count: u32,
    told: &Arc<dyn AfterCommit>,
    deliver: &Deliver,
    assignments: &Assignments,
) -> Result<Vec<JoinHandle<()>>> {
    (0..count)
        .map(|n| {
            let (deliver, assignments) = (deliver.clone(), assignments.clone());
            spawn(&format!("deliver-{n}"), told, move || deliver.run(&assignments))
        })
        .collect()
}

/// Starts the backups by the clock. Nobody waits for their end: a copy is given up at the next MiB, and
/// reading one back only looks at a file that has no name yet.
fn spawn_backups(
    backups: Option<Schedule>,
    told: &Arc<dyn AfterCommit>,
    stop: &Stop,
) -> Result<()> {
    if let Some(backups) = backups {
        let stop = stop.clone();
        drop(spawn("backup", told, move || backups.run(&stop))?);
    }
    Ok(())
}
