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
//! All of them are started and joined here and in `delivery_threads`. The stop order is: sources (see `app`), dispatcher (starts nothing new),
//! deliverers (finish and settle their attempts), the listener (see `app`), relay, upkeep, writer (drains its queues
//! and empties the write-ahead log). So requests are still accepted while deliveries end.

pub mod advice;
pub mod claims;
mod commit_listener;
pub mod confirmations;
pub mod connectivity;
pub mod consume;
pub mod counts;
pub mod deliver;
mod delivery_threads;
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
mod stage_state;
pub mod suspects;
pub mod threads;
pub mod upkeep;

use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::backup::schedule::Schedule;
use crate::base::stop::Stop;
use crate::databases::database::Databases;
use crate::env::Env;
use crate::event_types::EventTypes;
use crate::http::client;
use crate::keys::ConfirmTokens;
use crate::model::attempt::AttemptReport;
use crate::pipeline::claims::Claims;
use crate::pipeline::commit_listener::{CommitListener, FatalError};
use crate::pipeline::confirmations::Confirmations;
use crate::pipeline::connectivity::{Doubts, Line};
use crate::pipeline::consume::Consume;
use crate::pipeline::consume::manager::LeaseManager;
use crate::pipeline::counts::Counts;
use crate::pipeline::deliver::deliverer::Deliverer;
use crate::pipeline::delivery_threads::DeliveryThreads;
use crate::pipeline::destinations::Destinations;
use crate::pipeline::in_flight::InFlight;
use crate::pipeline::probe::{ROTATIONS, SubscriptionTests, THREADS};
use crate::pipeline::publish::{IsSource, Publish};
use crate::pipeline::receive::Receive;
use crate::pipeline::refusals::Refusals;
use crate::pipeline::relay::{Relay, SqlRows};
use crate::pipeline::scheduler::Mailbox;
use crate::pipeline::source_marks::SourceMarks;
use crate::pipeline::stage_state::StageState;
use crate::pipeline::suspects::Suspects;
use crate::pipeline::threads::{Bell, Spawner, join};
use crate::pipeline::upkeep::credential_rotation::CredentialRotation;
use crate::pipeline::upkeep::disk_watch::DiskWatch;
use crate::pipeline::upkeep::master_key_rotation::Rotation;
use crate::pipeline::upkeep::master_key_schedule::MasterKeySchedule;
use crate::pipeline::upkeep::{SiteChores, Upkeep};
use crate::store::error::Result;
use crate::store::tx::ChangedSubscriptions;
use crate::store::writer::{Writer, WriterLoop};
use crate::targets::Targets;
use crate::telemetry::tally::Heartbeat;
use crate::traces::SpanQueue;

/// The parts that only the pipeline needs, beside the environment.
pub struct PipelineSetup {
    /// The loop that the writer thread runs.
    pub writer_loop: WriterLoop,
    /// Rotates the master key.
    pub rotation: Rotation,
    /// Makes and verifies the tokens of confirm URLs.
    pub confirm_tokens: ConfirmTokens,
    /// Sends HTTP requests.
    pub sender: Arc<dyn client::Sender>,
    /// The free space on the disk.
    pub disk: Arc<DiskWatch>,
    /// Scheduled backups, if configured.
    pub backups: Option<Schedule>,
    /// Databases of others.
    pub databases: Databases,
    /// Work that may have ended the process.
    pub suspects: Arc<Suspects>,
    /// How far the sources are read.
    pub source_marks: SourceMarks,
    /// Where spans of attempts are left.
    pub traces: SpanQueue,
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
    /// The registered event types.
    pub event_types: Arc<EventTypes>,
    /// The deliveries being attempted.
    pub in_flight: Arc<InFlight>,
    /// Where spans of attempts are left.
    pub traces: SpanQueue,
    /// Asked to stop when the service does.
    pub upkeep_stop: Stop,
    destinations: Arc<Destinations>,
    deliveries: DeliveryThreads,
    line: Arc<Line>,
    line_thread: JoinHandle<()>,
    upkeep: JoinHandle<()>,
    relay: JoinHandle<()>,
    lease_manager: JoinHandle<()>,
    writer: WriterThread,
    fatal: FatalError,
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline").finish_non_exhaustive()
    }
}

impl Pipeline {
    /// Starts every stage.
    pub fn start(env: &Env, setup: PipelineSetup) -> Result<Self> {
        let (line, doubts) = Line::new(env.clone(), Arc::clone(&setup.sender))?;
        let state = StageState::new(env, line, setup.source_marks.clone())?;
        let destinations = Arc::clone(&state.destinations);
        let consume =
            Consume::new(env.clone(), Arc::clone(&destinations), Arc::clone(&state.counts));
        let mailbox = Mailbox::default();
        let fatal = FatalError::default();
        let spawner = Spawner(Arc::new(CommitListener {
            mailbox: mailbox.clone(),
            consume: consume.clone(),
            destinations: Arc::clone(&destinations),
            providers: Arc::clone(&state.providers),
            privacy: Arc::clone(&env.privacy),
            event_types: Arc::clone(&state.event_types),
            on_sources_changed: setup.on_sources_changed.clone(),
            on_tokens_changed: Arc::clone(&setup.on_tokens_changed),
            disk: Arc::clone(&setup.disk),
            fatal: Arc::clone(&fatal),
            stop: setup.stop.clone(),
        }));
        // Needs no limit: it holds only deliveries in hand, and the dispatcher limits those.
        let (unsettled, unsettled_back) = unbounded();
        let deliver = deliver(env, &setup, &state, mailbox, unsettled);
        let rotation = credential_rotation(env, &deliver, &spawner)?;
        let upkeep = upkeep(env, &setup, deliver.clone(), unsettled_back, rotation.clone())?;
        let relay = relay(env, &state)?;
        let lease_manager = LeaseManager::new(consume.clone());
        let upkeep_stop = Stop::new();
        let relay_stop = upkeep_stop.clone();
        start_backups(setup.backups, &spawner, upkeep_stop.clone())?;
        Ok(Self {
            receive: Receive::new(
                env.clone(),
                Arc::clone(&state.providers),
                Arc::clone(&state.counts),
                Arc::clone(&setup.sender),
            ),
            publish: publish(env, &state, setup.is_source),
            consume,
            confirmations: upkeep.confirmations.clone(),
            refusals: upkeep.refusals.clone(),
            rotation,
            deliveries: DeliveryThreads::start(env, &deliver, &spawner)?,
            line_thread: start_line(&state.line, doubts, &spawner, upkeep_stop.clone())?,
            writer: WriterThread::start(env.store.writer().clone(), setup.writer_loop, &spawner)?,
            upkeep: start_upkeep(upkeep, &spawner, upkeep_stop.clone())?,
            relay: spawner.spawn("relay", move || relay.run(&relay_stop))?,
            lease_manager: spawner.spawn("consume", move || lease_manager.run())?,
            traces: setup.traces,
            counts: state.counts,
            event_types: state.event_types,
            in_flight: state.in_flight,
            line: state.line,
            spawner,
            upkeep_stop,
            destinations,
            fatal,
        })
    }

    /// Makes the dispatcher and the lease manager read the clock again, after a test has moved it.
    pub fn wake(&self) {
        self.deliveries.mailbox().ring();
        self.consume.wake();
    }

    /// Answers consumers that wait, so that the listener can stop without waiting for them.
    pub fn stop_waiting(&self) {
        self.consume.stop_waiting();
    }

    /// Makes the stages read the settings again after a change.
    pub fn settings_changed(&self) {
        self.destinations.forget(&ChangedSubscriptions::all());
        self.deliveries.mailbox().leave(|messages| messages.subscriptions_changed.all = true);
    }

    /// The dispatcher's heartbeat.
    pub fn pulse(&self) -> &Heartbeat {
        self.deliveries.pulse()
    }

    /// Starts no more deliveries, and waits up to [`scheduler::STOP_GRACE`] until those under way are settled. New
    /// requests are still accepted meanwhile.
    pub fn end_deliveries(&mut self) {
        let fatal = &self.fatal;
        self.deliveries.end(|| fatal.lock().is_none());
    }

    /// Stops the other stages. Calls `clean` while the writer still runs, if every delivery was settled and no fatal
    /// error occurred. Fails with the fatal error, if there was one.
    pub fn stop(self, clean: impl FnOnce()) -> Result<()> {
        self.consume.end();
        join(self.lease_manager);
        self.upkeep_stop.ask();
        self.line.wake();
        join(self.line_thread);
        join(self.relay);
        join(self.upkeep);
        let is_healthy = self.fatal.lock().is_none();
        if is_healthy && self.deliveries.is_drained() {
            clean();
        }
        self.writer.stop();
        let fatal = self.fatal.lock().take();
        fatal.map_or(Ok(()), Err)
    }
}

/// The writer's thread, and how it is stopped.
struct WriterThread {
    writer: Writer,
    thread: JoinHandle<()>,
}

impl WriterThread {
    fn start(writer: Writer, writer_loop: WriterLoop, spawner: &Spawner) -> Result<Self> {
        let listener = Arc::clone(&spawner.0);
        let thread = spawner.spawn("writer", move || writer_loop.run(&listener))?;
        Ok(Self { writer, thread })
    }

    /// Lets the writer empty its queues, and waits for its end.
    fn stop(self) {
        self.writer.ask_to_stop();
        join(self.thread);
    }
}

/// Starts the scheduled backups, if there are any. A stop need not wait for their thread: a copy ends at the next MiB, and
/// the check of a backup only reads a file that has no name yet.
fn start_backups(backups: Option<Schedule>, spawner: &Spawner, stop: Stop) -> Result<()> {
    let Some(backups) = backups else { return Ok(()) };
    spawner.spawn("backup", move || backups.run(&stop)).map(drop)
}

fn start_line(
    line: &Arc<Line>,
    doubts: Doubts,
    spawner: &Spawner,
    stop: Stop,
) -> Result<JoinHandle<()>> {
    let line = Arc::clone(line);
    spawner.spawn("line", move || line.run(&doubts, &stop))
}

fn start_upkeep(upkeep: Upkeep, spawner: &Spawner, stop: Stop) -> Result<JoinHandle<()>> {
    spawner.spawn("upkeep", move || upkeep.run(&stop))
}

fn deliver(
    env: &Env,
    setup: &PipelineSetup,
    state: &StageState,
    mailbox: Mailbox,
    unsettled: Sender<Arc<AttemptReport>>,
) -> Deliverer {
    let sender = Arc::clone(&setup.sender);
    Deliverer {
        env: env.clone(),
        sender: Arc::clone(&sender),
        destinations: Arc::clone(&state.destinations),
        mailbox,
        unsettled,
        line: Arc::clone(&state.line),
        in_flight: Arc::clone(&state.in_flight),
        counts: Arc::clone(&state.counts),
        traces: setup.traces.clone(),
        targets: Targets::new(env, sender, setup.databases.clone()),
        suspects: Arc::clone(&setup.suspects),
        confirm_tokens: setup.confirm_tokens.clone(),
    }
}

/// Starts the threads of tests and rotations. Rotations by the clock have threads of their own, so that they delay no
/// person.
fn credential_rotation(
    env: &Env,
    deliver: &Deliverer,
    spawner: &Spawner,
) -> Result<CredentialRotation> {
    let tests = SubscriptionTests::start(deliver.clone(), spawner, THREADS)?;
    let by_clock = SubscriptionTests::start(deliver.clone(), spawner, ROTATIONS)?;
    let claims = Claims::new(env.clone());
    Ok(CredentialRotation::new(env.clone(), tests, by_clock, claims))
}

fn upkeep(
    env: &Env,
    setup: &PipelineSetup,
    deliver: Deliverer,
    unsettled: Receiver<Arc<AttemptReport>>,
    rotation: CredentialRotation,
) -> Result<Upkeep> {
    let claims = rotation.claims().clone();
    Ok(Upkeep {
        env: env.clone(),
        disk: Arc::clone(&setup.disk),
        refusals: Refusals::new(env.store.clone(), env.clock.clone())?,
        unsettled,
        rotation,
        master_key: MasterKeySchedule::new(env.clone(), setup.rotation.clone(), claims),
        confirmations: Confirmations {
            env: env.clone(),
            counts: Arc::clone(&deliver.counts),
            tokens: setup.confirm_tokens.clone(),
        },
        site: SiteChores::new(env, Arc::clone(&setup.disk), Arc::clone(&deliver.in_flight)),
        deliver,
    })
}

fn sql_rows(env: &Env, state: &StageState) -> SqlRows {
    SqlRows { env: env.clone(), event_types: Arc::clone(&state.event_types) }
}

fn relay(env: &Env, state: &StageState) -> Result<Relay> {
    Ok(Relay {
        env: env.clone(),
        reader: env.store.own_reader()?,
        sql_rows: sql_rows(env, state),
        source_marks: state.source_marks.clone(),
        counts: Arc::clone(&state.counts),
    })
}

fn publish(env: &Env, state: &StageState, is_source: IsSource) -> Publish {
    Publish {
        env: env.clone(),
        counts: Arc::clone(&state.counts),
        event_types: Arc::clone(&state.event_types),
        sql_rows: sql_rows(env, state),
        source_marks: state.source_marks.clone(),
        is_source,
    }
}
