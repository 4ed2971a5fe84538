//! The stages and their threads. Stages never call each other: they meet in the store, and a message in the next
//! stage's inbox wakes it.
//!
//! | thread | runs | waits on |
//! |---|---|---|
//! | `writer` | [`WriterLoop`]: the only write connection | its three queues |
//! | `dispatch` | [`scheduler::Dispatcher`]: who is sent next | its inbox, the next due time |
//! | `deliver-N` | [`Deliverer`]: one request at a time | its assignments |
//! | `consume` | [`consume::manager::LeaseManager`]: pull consumers | requests, what becomes due, leases |
//! | `test-N` | [`SubscriptionTests`]: tests of subscriptions | tests that are asked for |
//! | `line` | [`connectivity::Line`]: whether the site is online | attempts in doubt, one second |
//! | `upkeep` | [`upkeep::Upkeep`]: periodic chores | one second |
//! | `relay` | [`relay::Relay`]: events inserted by plain SQL | the write-ahead log, 250 ms |
//! | `backup` | [`Schedule`]: scheduled backups, if configured | one second |
//!
//! All of them are started and joined here. The stop order is: sources (see `app`), dispatcher (starts nothing new),
//! deliverers (finish and settle their attempts), the listener (see `app`), relay, upkeep, writer (drains its queues
//! and empties the write-ahead log). So requests are still accepted while deliveries end.

pub mod advice;
pub mod claims;
pub mod confirmations;
pub mod connectivity;
pub mod consume;
pub mod counts;
pub mod deliver;
pub mod destinations;
pub mod history;
pub mod in_flight;
mod prelude;
pub mod probe;
pub mod provider_cache;
pub mod publish;
pub mod receive;
pub mod recent;
pub mod refusals;
pub mod refused_webhooks;
pub mod relay;
pub mod rendering;
pub mod scheduler;
pub mod source_marks;
pub mod suspects;
pub mod threads;
pub mod upkeep;

use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use parking_lot::Mutex;

use crate::backup::schedule::Schedule;
use crate::base::budget::Budget;
use crate::base::clock::Clock;
use crate::base::faults::Faults;
use crate::base::id::Draw;
use crate::base::stop::Stop;
use crate::config::Live;
use crate::databases::database::Databases;
use crate::event_types::EventTypes;
use crate::http::client::{self, Call};
use crate::keys::subject::Pseudonyms;
use crate::keys::{ConfirmTokens, Keyring};
use crate::model::attempt::AttemptReport;
use crate::pipeline::claims::Claims;
use crate::pipeline::confirmations::Confirmations;
use crate::pipeline::connectivity::{Doubts, Line};
use crate::pipeline::consume::Consume;
use crate::pipeline::consume::manager::LeaseManager;
use crate::pipeline::counts::Counts;
use crate::pipeline::deliver::deliverer::Deliverer;
use crate::pipeline::destinations::Destinations;
use crate::pipeline::in_flight::InFlight;
use crate::pipeline::probe::{ROTATIONS, SubscriptionTests, THREADS};
use crate::pipeline::provider_cache::ProviderCache;
use crate::pipeline::publish::{IsSource, Publish};
use crate::pipeline::receive::Receive;
use crate::pipeline::recent::Recent;
use crate::pipeline::refusals::Refusals;
use crate::pipeline::relay::{Relay, SqlRows};
use crate::pipeline::scheduler::decisions::Input;
use crate::pipeline::scheduler::{Dispatcher, Ended, HandOut, Mailbox, assignments};
use crate::pipeline::source_marks::SourceMarks;
use crate::pipeline::suspects::Suspects;
use crate::pipeline::threads::{Bell, Spawner, join, spawn};
use crate::pipeline::upkeep::Upkeep;
use crate::pipeline::upkeep::credential_rotation::CredentialRotation;
use crate::pipeline::upkeep::disk_watch::DiskWatch;
use crate::pipeline::upkeep::master_key_rotation::Rotation;
use crate::pipeline::upkeep::master_key_schedule::MasterKeySchedule;
use crate::pipeline::upkeep::site_watch::SiteWatch;
use crate::privacy::Privacy;
use crate::signatures::certificate_cache::{Certificates, Fetch};
use crate::store::credential_uses::CredentialUses;
use crate::store::error::{Error, Result};
use crate::store::tx::{ChangedSubscriptions, Effects, WriteTx};
use crate::store::writer::{AroundCommit, WriterLoop};
use crate::store::{Store, runs, settlement};
use crate::targets::Targets;
use crate::targets::http::Http;
use crate::telemetry::tally::Heartbeat;

/// What the stages are built from.
pub struct Parts {
    /// The database file.
    pub store: Store,
    /// What the writer thread runs.
    pub writer_loop: WriterLoop,
    /// Time.
    pub clock: Clock,
    /// Randomness.
    pub draw: Arc<dyn Draw>,
    /// The master keys that seal secrets.
    pub key: Arc<Keyring>,
    /// Rotates the master key.
    pub rotation: Rotation,
    /// Makes the pseudonyms of subjects.
    pub names: Pseudonyms,
    /// Makes the tokens of confirm URLs.
    pub confirm_tokens: ConfirmTokens,
    /// Sends HTTP requests.
    pub sender: Arc<dyn client::Sender>,
    /// The settings in force.
    pub settings: Live,
    /// The free space on the disk.
    pub disk: Arc<DiskWatch>,
    /// Scheduled backups, if configured.
    pub backups: Option<Schedule>,
    /// The memory budget of deliveries and sources.
    pub budget: Budget,
    /// Databases of others.
    pub databases: Databases,
    /// Work that may have ended the process.
    pub suspects: Arc<Suspects>,
    /// Planned failures.
    pub faults: Faults,
    /// How far the sources are read.
    pub source_marks: SourceMarks,
    /// Called when tokens change.
    pub on_tokens_changed: Arc<dyn Fn() + Send + Sync>,
    /// Rings when sources change.
    pub on_sources_changed: Bell,
    /// Whether a source has this name. If so, only that source may publish under it.
    pub is_source: IsSource,
    /// Asked to stop when the process must end.
    pub stop: Stop,
}

/// The running stages.
pub struct Pipeline {
    /// Databases of others.
    pub databases: Databases,
    /// Receives webhooks.
    pub receive: Receive,
    /// Publishes events.
    pub publish: Publish,
    /// Serves pull consumers.
    pub consume: Consume,
    /// Takes confirmations.
    pub confirmations: Confirmations,
    /// Records refused calls.
    pub refusals: Refusals,
    /// Rotates credentials, and runs tests of subscriptions.
    pub rotation: CredentialRotation,
    /// Counters and histograms.
    pub counts: Arc<Counts>,
    /// Starts threads that the process cannot do without.
    pub spawner: Spawner,
    /// Applies the privacy policies.
    pub privacy: Arc<Privacy>,
    /// The registered event types.
    pub event_types: Arc<EventTypes>,
    /// The deliveries being attempted.
    pub in_flight: Arc<InFlight>,
    mailbox: Mailbox,
    dispatcher_pulse: Heartbeat,
    destinations: Arc<Destinations>,
    writer_stop: Sender<()>,
    /// Asked to stop when the service does.
    pub upkeep_stop: Stop,
    /// [`Pipeline::end_deliveries`] takes and joins it, and then the deliverers.
    dispatcher: Option<JoinHandle<()>>,
    deliverers: Vec<JoinHandle<()>>,
    upkeep: JoinHandle<()>,
    line: (Arc<Line>, JoinHandle<()>),
    relay: JoinHandle<()>,
    lease_manager: JoinHandle<()>,
    writer: JoinHandle<()>,
    /// How the dispatcher ended.
    ended: Arc<Mutex<Ended>>,
    fatal: Arc<Mutex<Option<Error>>>,
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline").finish_non_exhaustive()
    }
}

/// Tells the other threads what was committed.
struct CommitListener {
    mailbox: Mailbox,
    consume: Consume,
    destinations: Arc<Destinations>,
    providers: Arc<ProviderCache>,
    privacy: Arc<Privacy>,
    event_types: Arc<EventTypes>,
    on_sources_changed: Bell,
    on_tokens_changed: Arc<dyn Fn() + Send + Sync>,
    disk: Arc<DiskWatch>,
    fatal: Arc<Mutex<Option<Error>>>,
    stop: Stop,
}

impl AroundCommit for CommitListener {
    fn complete(&self, tx: &WriteTx<'_>) -> Result<()> {
        settlement::set_aside(tx)
    }

    fn committed(&self, effects: Effects) {
        let Effects {
            rang: woken,
            gates,
            settled,
            subscriptions_changed,
            providers_changed,
            tokens_changed,
            sources_changed,
            event_types_changed,
            subjects_erased,
            unseen_jobs: _,
        } = effects;
        self.event_types.forget(&event_types_changed);
        self.destinations.forget(&subscriptions_changed);
        self.providers.forget(&providers_changed);
        self.privacy.forget(&providers_changed);
        if subjects_erased {
            self.privacy.forget_keys();
        }
        if sources_changed {
            self.on_sources_changed.ring();
        }
        if tokens_changed {
            (self.on_tokens_changed)();
        }
        self.consume.committed(&woken, &subscriptions_changed);
        let is_for_dispatcher = !woken.is_empty()
            || !gates.is_empty()
            || !settled.is_empty()
            || !subscriptions_changed.is_empty();
        if is_for_dispatcher {
            self.mailbox.leave(|messages| {
                messages.woken.extend(woken);
                // Gates before settlements: while the old gate stands, a probe's delivery must not be released.
                let gate = |(subscription, gate)| Input::GateChanged { subscription, gate };
                messages.inputs.extend(gates.into_iter().map(gate));
                messages.inputs.extend(settled.into_iter().map(Input::Settled));
                messages.subscriptions_changed.append(subscriptions_changed);
            });
        }
    }

    fn full(&self) {
        self.disk.found_full();
    }

    fn fatal(&self, error: &Error) {
        tracing::error!(%error, "the process ends: it must not acknowledge what it cannot store");
        *self.fatal.lock() = Some(error.clone());
        self.stop.ask();
    }
}

/// Starts the scheduled backups, if there are any. A stop need not wait for their thread: a copy ends at the next MiB, and
/// the check of a backup only reads a file that has no name yet.
fn start_backups(
    backups: Option<Schedule>,
    listener: &Arc<dyn AroundCommit>,
    stop: Stop,
) -> Result<()> {
    let Some(backups) = backups else { return Ok(()) };
    spawn("backup", listener, move || backups.run(&stop)).map(drop)
}

impl Pipeline {
    /// Starts every stage.
    pub fn start(parts: Parts) -> Result<Self> {
        let common = Common::new(&parts)?;
        let (mailbox, pulse) = (Mailbox::default(), Heartbeat::default());
        let count = parts.settings.get().delivery.deliverers;
        let (hand_out, assignments) = assignments(usize::try_from(count).unwrap_or(1));
        // Needs no limit: it holds only deliveries in hand, and the dispatcher limits those.
        let (unsettled, unsettled_back) = unbounded();
        let deliver = parts.deliver(&common, mailbox.clone(), unsettled);
        let (consume, confirmations) = (parts.consume(&common), parts.confirmations(&common));
        let fatal = Arc::new(Mutex::new(None));
        let listener: Arc<dyn AroundCommit> = Arc::new(CommitListener {
            mailbox: mailbox.clone(),
            consume: consume.clone(),
            destinations: Arc::clone(&common.destinations),
            providers: Arc::clone(&common.providers),
            privacy: Arc::clone(&common.privacy),
            event_types: Arc::clone(&common.event_types),
            on_sources_changed: parts.on_sources_changed.clone(),
            on_tokens_changed: Arc::clone(&parts.on_tokens_changed),
            disk: Arc::clone(&parts.disk),
            fatal: Arc::clone(&fatal),
            stop: parts.stop.clone(),
        });
        let dispatcher = parts.dispatcher((mailbox.clone(), pulse.clone()), hand_out)?;
        let rotation = parts.rotation(&deliver, &listener)?;
        let upkeep = parts.upkeep(&common, (unsettled_back, deliver.clone()), rotation.clone())?;
        let (upkeep_stop, ended) = (Stop::new(), Arc::new(Mutex::new(Ended::default())));
        let (relay, lease_manager) = (parts.relay(&common)?, LeaseManager::new(consume.clone()));
        let (receive, publish) = (parts.receive(&common), parts.publish(&common));
        let (writer_stop, writer_stopped) = bounded(0);
        let (writer_loop, after_commit) = (parts.writer_loop, Arc::clone(&listener));
        let set_ended = Arc::clone(&ended);
        let (stop_upkeep, stop_relay) = (upkeep_stop.clone(), upkeep_stop.clone());
        let line = start_line(&common.line, common.doubts, &listener, upkeep_stop.clone())?;
        start_backups(parts.backups, &listener, upkeep_stop.clone())?;
        let deliverers = (0..count).map(|n| {
            let (deliver, assignments) = (deliver.clone(), assignments.clone());
            spawn(&format!("deliver-{n}"), &listener, move || deliver.run(&assignments))
        });
        Ok(Self {
            databases: parts.databases,
            receive,
            publish,
            consume,
            confirmations,
            refusals: upkeep.refusals.clone(),
            rotation,
            counts: common.counts,
            spawner: Spawner(Arc::clone(&listener)),
            privacy: common.privacy,
            event_types: common.event_types,
            in_flight: common.in_flight,
            mailbox,
            dispatcher_pulse: pulse,
            destinations: common.destinations,
            writer_stop,
            upkeep_stop,
            deliverers: deliverers.collect::<Result<_>>()?,
            writer: spawn("writer", &listener, move || {
                writer_loop.run(&writer_stopped, &after_commit);
            })?,
            dispatcher: Some(spawn("dispatch", &listener, move || {
                let how = dispatcher.run();
                *set_ended.lock() = how;
            })?),
            ended,
            upkeep: spawn("upkeep", &listener, move || upkeep.run(&stop_upkeep))?,
            line: (common.line, line),
            relay: spawn("relay", &listener, move || relay.run(&stop_relay))?,
            lease_manager: spawn("consume", &listener, move || lease_manager.run())?,
            fatal,
        })
    }

    /// Makes the dispatcher and the lease manager read the clock again, after a test has moved it.
    pub fn wake(&self) {
        self.mailbox.ring();
        self.consume.wake();
    }

    /// Answers consumers that wait, so that the listener can stop without waiting for them.
    pub fn stop_waiting(&self) {
        self.consume.stop_waiting();
    }

    /// Makes the stages read the settings again after a change.
    pub fn settings_changed(&self) {
        self.destinations.forget(&ChangedSubscriptions::all());
        self.mailbox.leave(|messages| messages.subscriptions_changed.all = true);
    }

    /// The dispatcher's heartbeat.
    pub fn pulse(&self) -> &Heartbeat {
        &self.dispatcher_pulse
    }

    /// Starts no more deliveries, and waits up to [`scheduler::STOP_GRACE`] until those under way are settled. New
    /// requests are still accepted meanwhile.
    pub fn end_deliveries(&mut self) {
        self.mailbox.leave(|messages| messages.stop = true);
        if self.is_healthy() {
            self.dispatcher.take().into_iter().for_each(join);
        }
        // A request that outlasts the grace may run for minutes more. Its thread is not joined, and its outcome is not
        // stored: the writer has ended by then.
        if self.is_healthy() && !self.how_it_ended().busy {
            self.deliverers.drain(..).for_each(join);
        }
    }

    /// Stops the other stages. Calls `clean` while the writer still runs, if every delivery was settled and no fatal
    /// error occurred. Fails with the fatal error, if there was one.
    pub fn stop(self, clean: impl FnOnce()) -> Result<()> {
        self.consume.end();
        join(self.lease_manager);
        self.upkeep_stop.ask();
        let (line, thread) = self.line;
        line.wake();
        join(thread);
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

fn start_line(
    line: &Arc<Line>,
    doubts: Doubts,
    listener: &Arc<dyn AroundCommit>,
    stop: Stop,
) -> Result<JoinHandle<()>> {
    let line = Arc::clone(line);
    spawn("line", listener, move || line.run(&doubts, &stop))
}

/// What several stages share.
struct Common {
    destinations: Arc<Destinations>,
    providers: Arc<ProviderCache>,
    privacy: Arc<Privacy>,
    event_types: Arc<EventTypes>,
    counts: Arc<Counts>,
    line: Arc<Line>,
    doubts: Doubts,
    in_flight: Arc<InFlight>,
    source_marks: SourceMarks,
}

impl Common {
    fn new(parts: &Parts) -> Result<Self> {
        let Parts { store, key, settings, names, draw, faults, clock, sender, .. } = parts;
        let uses = Arc::new(CredentialUses::new(store.clone(), clock.clone()));
        let opens = (Arc::clone(key), Arc::clone(&uses));
        let destinations =
            Destinations::new(store.clone(), Arc::clone(key), uses, settings.clone());
        let providers = ProviderCache::new(store.clone(), opens, faults.clone());
        let privacy = Privacy::new(store.clone(), Arc::clone(key), names.clone(), Arc::clone(draw));
        let (line, doubts) =
            Line::new((store.clone(), clock.clone()), settings.clone(), Arc::clone(sender))?;
        let recent = Recent::new(clock.clone());
        let stored = store.read(|tx| runs::minutes(tx, &recent.span()))?;
        Ok(Self {
            destinations: Arc::new(destinations),
            providers: Arc::new(providers),
            privacy: Arc::new(privacy),
            event_types: Arc::new(EventTypes::new(store.clone(), settings.clone())),
            counts: Arc::new(Counts::new(recent.after(stored))),
            line: Arc::new(line),
            doubts,
            in_flight: Arc::default(),
            source_marks: parts.source_marks.clone(),
        })
    }
}

impl Parts {
    fn dispatcher(&self, inbox: (Mailbox, Heartbeat), hand_out: HandOut) -> Result<Dispatcher> {
        let (clock, reader) = (self.clock.clone(), self.store.own_reader()?);
        let (settings, faults) = (self.settings.clone(), self.faults.clone());
        Ok(Dispatcher::new(clock, inbox, reader, hand_out, settings, faults))
    }

    fn deliver(
        &self,
        common: &Common,
        mailbox: Mailbox,
        unsettled: Sender<Arc<AttemptReport>>,
    ) -> Deliverer {
        Deliverer {
            store: self.store.clone(),
            clock: self.clock.clone(),
            draw: Arc::clone(&self.draw),
            sender: Arc::clone(&self.sender),
            destinations: Arc::clone(&common.destinations),
            mailbox,
            unsettled,
            line: Arc::clone(&common.line),
            in_flight: Arc::clone(&common.in_flight),
            counts: Arc::clone(&common.counts),
            privacy: Arc::clone(&common.privacy),
            targets: Targets::new(
                Http {
                    store: self.store.clone(),
                    clock: self.clock.clone(),
                    key: Arc::clone(&self.key),
                    sender: Arc::clone(&self.sender),
                },
                self.settings.clone(),
                self.databases.clone(),
                self.faults.clone(),
            ),
            budget: self.budget.clone(),
            suspects: Arc::clone(&self.suspects),
            confirm_tokens: self.confirm_tokens.clone(),
            faults: self.faults.clone(),
        }
    }

    fn consume(&self, common: &Common) -> Consume {
        Consume::new(
            (self.store.clone(), self.clock.clone(), Arc::clone(&self.draw)),
            Arc::clone(&common.destinations),
            self.settings.clone(),
            (Arc::clone(&common.counts), Arc::clone(&common.privacy)),
        )
    }

    fn confirmations(&self, common: &Common) -> Confirmations {
        Confirmations {
            store: self.store.clone(),
            clock: self.clock.clone(),
            draw: Arc::clone(&self.draw),
            settings: self.settings.clone(),
            privacy: Arc::clone(&common.privacy),
            counts: Arc::clone(&common.counts),
            tokens: self.confirm_tokens.clone(),
        }
    }

    fn upkeep(
        &self,
        common: &Common,
        outcomes: (Receiver<Arc<AttemptReport>>, Deliverer),
        rotation: CredentialRotation,
    ) -> Result<Upkeep> {
        let (store, clock) = (self.store.clone(), self.clock.clone());
        let refusals = Refusals::new(store.clone(), clock.clone())?;
        let seen = (store.clone(), clock.clone(), self.settings.clone());
        let claims = rotation.claims().clone();
        let master_key = MasterKeySchedule::new(seen.clone(), self.rotation.clone(), claims);
        let site = SiteWatch::new(seen, Arc::clone(&self.disk));
        Ok(Upkeep::new(
            (store, clock, self.settings.clone()),
            Arc::clone(&self.disk),
            refusals,
            outcomes,
            (site, rotation, master_key, self.confirmations(common)),
        ))
    }

    fn rotation(
        &self,
        deliver: &Deliverer,
        listener: &Arc<dyn AroundCommit>,
    ) -> Result<CredentialRotation> {
        let start = |threads| {
            SubscriptionTests::start(deliver.clone(), &Spawner(Arc::clone(listener)), threads)
        };
        let tests = [start(THREADS)?, start(ROTATIONS)?];
        let parts = (self.store.clone(), self.clock.clone(), Arc::clone(&self.draw));
        let (store, clock, draw) = parts.clone();
        let claims = Claims::new(store, clock, draw, Arc::clone(&self.key));
        let key = Arc::clone(&self.key);
        Ok(CredentialRotation::new(parts, key, self.settings.clone(), tests, claims))
    }

    fn sql_rows(&self, common: &Common) -> SqlRows {
        let (clock, draw) = (self.clock.clone(), Arc::clone(&self.draw));
        let event_types = Arc::clone(&common.event_types);
        SqlRows { clock, draw, settings: self.settings.clone(), event_types }
    }

    fn relay(&self, common: &Common) -> Result<Relay> {
        Ok(Relay {
            store: self.store.clone(),
            reader: self.store.own_reader()?,
            sql_rows: self.sql_rows(common),
            budget: self.budget.clone(),
            source_marks: common.source_marks.clone(),
            counts: Arc::clone(&common.counts),
        })
    }

    fn publish(&self, common: &Common) -> Publish {
        Publish {
            store: self.store.clone(),
            clock: self.clock.clone(),
            counts: Arc::clone(&common.counts),
            privacy: Arc::clone(&common.privacy),
            event_types: Arc::clone(&common.event_types),
            sql_rows: self.sql_rows(common),
            source_marks: common.source_marks.clone(),
            is_source: self.is_source,
            budget: self.budget.clone(),
        }
    }

    /// The client that sends deliveries also fetches certificates: one address policy, one set of root certificates.
    fn fetch(&self) -> Fetch {
        let sender = Arc::clone(&self.sender);
        Box::new(move |url, timeout| {
            let call = Call { method: "GET", url, timeout, ..Call::default() };
            sender.send(&call).map(|answer| (answer.status, answer.body)).map_err(|e| e.to_string())
        })
    }

    fn receive(&self, common: &Common) -> Receive {
        let certificates = Certificates::new(self.fetch(), self.clock.clone());
        Receive {
            store: self.store.clone(),
            clock: self.clock.clone(),
            draw: Arc::clone(&self.draw),
            providers: Arc::clone(&common.providers),
            certificates: Arc::new(certificates),
            asymmetric_checks: Arc::default(),
            counts: Arc::clone(&common.counts),
            privacy: Arc::clone(&common.privacy),
            budget: self.budget.clone(),
        }
    }
}
