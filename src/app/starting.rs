//! The start of an Oncebox, from the sockets to the first request. Each part is created once, after the parts that it
//! needs: read [`Appliance::start_on`] from top to bottom.

use std::sync::Arc;

use crate::api::auth::Auth;
use crate::api::context::{Api, Stages};
use crate::app::data_directory::DataDirectory;
use crate::app::error::Error;
use crate::app::injected::{self, Injected, ReplaceableClient};
use crate::app::master_key::{self, Keys};
use crate::app::opened_database::OpenedDatabase;
use crate::app::sockets::{self, Sockets};
use crate::app::{Appliance, first_token, log_audit_head};
use crate::archive::mover::Mover;
use crate::archive::work::ArchiveWork;
use crate::backup::schedule::{Backups, Schedule};
use crate::base::budget::Budget;
use crate::base::build;
use crate::base::clock::Clock;
use crate::base::faults::Faults;
use crate::base::id::Draw;
use crate::base::stop::Stop;
use crate::config::{Live, Settings};
use crate::databases::database::{Databases, Machine};
use crate::env::Env;
use crate::health_probes;
use crate::http::client::Sender;
use crate::jobs::runner::Runner;
use crate::pipeline::suspects::Suspects;
use crate::pipeline::threads::{Bell, Spawner};
use crate::pipeline::upkeep::disk_watch::DiskWatch;
use crate::pipeline::upkeep::master_key_rotation::Rotation;
use crate::pipeline::{Pipeline, PipelineSetup};
use crate::privacy::Privacy;
use crate::sources::http_client::ListClient;
use crate::sources::relays::Relaying;
use crate::sources::{self, RelayServices, SourceStatuses};
use crate::store::writer::WriterLoop;
use crate::store::{Store, runs};
use crate::sys::disk::Gauge;
use crate::sys::systemd::Passed;
use crate::traces::exporter::Exporter;

impl Appliance {
    /// Starts on the service manager's sockets. `before_answering` is called when everything but the listener is ready:
    /// from then on the process must stop in order.
    pub fn start_on(
        passed: Vec<Passed>,
        settings: Settings,
        injected: Injected,
        before_answering: impl FnOnce(),
    ) -> Result<Self, Error> {
        let data = DataDirectory::lock(settings.directory())?;
        let sockets = Sockets::open(&settings.listen, passed)?;
        let OpenedDatabase { store, mut writer_loop, key } =
            OpenedDatabase::open(&data, &settings, &injected)?;
        let Injected { clock, draw, sender, faults, limits, gauge, source_marks } = injected;
        let keys =
            master_key::unlock(&mut writer_loop, &settings, key, &draw, clock.wall(), &faults)?;
        let first_start =
            first_token::create(&mut writer_loop, &data, &keys.hasher, &clock, &*draw)?;
        first_token::check_guarded(&mut writer_loop, &sockets, &clock)?;
        let run = StartedRun::record(&mut writer_loop, &store, &clock)?;
        let client = Arc::new(ReplaceableClient::new(injected::client(&settings.delivery)?));
        let sender = sender.unwrap_or_else(|| Arc::<ReplaceableClient>::clone(&client));
        let env = environment(store, settings, clock, draw, faults, &keys);
        let auth = Auth::new(env.store.clone(), env.clock.clone(), Arc::clone(&keys.hasher));
        let disk = disk_watch(&env, gauge);
        let stop = Stop::new();
        let backups = backups(&env, stop.clone());
        let machine = Machine::ours(&env.clock);
        let databases = Databases::of(&env.settings.get().databases.all, &machine);
        let sources_bell = Bell::default();
        let line = Arc::clone(&sender);
        let (traces, exporter) = Exporter::of(&env.settings.get())?;
        let setup = PipelineSetup {
            writer_loop,
            rotation: keys.rotation.clone(),
            confirm_tokens: keys.confirm_tokens,
            sender,
            disk: Arc::clone(&disk),
            backups: schedule(&env, &backups),
            databases: databases.clone(),
            suspects: Arc::clone(&run.suspects),
            source_marks,
            traces,
            on_tokens_changed: forgetting(&auth),
            on_sources_changed: sources_bell.clone(),
            is_source: sources::tables::exists,
            stop: stop.clone(),
        };
        let flow = Pipeline::start(&env, setup)?;
        start_exporter(exporter, &flow.spawner, stop.clone())?;
        let lists = list_client(&env, &flow, line);
        let services = source_services(&flow, disk, run.suspects, databases, lists);
        let sources = Relaying::start(services.clone(), &flow.spawner, sources_bell)?;
        let archive = Mover::start(archive_work(&env, &flow, &services.disk), &flow.spawner)?;
        let files = archive.archiving.archive.clone();
        let jobs = Runner::start(env.store.clone(), files, env.clock.clone(), &flow.spawner)?;
        let stages = stages(&flow, services, keys.rotation, backups, &jobs, &archive);
        let api = Api::new(env, auth, keys.hasher, stages);
        before_answering();
        let (addresses, server) = sockets::listen(sockets, api.clone(), limits)?;
        let started = Self {
            addresses,
            api,
            server,
            flow,
            sources,
            jobs,
            archive,
            boot: run.boot,
            stop,
            first_start,
            clean_before: run.was_clean_before,
            data,
            client,
        };
        health_probes::start(&started.flow, &started.api.flow.disk)?;
        started.announce()?;
        Ok(started)
    }

    /// Writes the addresses into the data directory.
    fn announce(&self) -> Result<(), Error> {
        self.data.write_intake(self.own_intake())?;
        self.data.write_address(self.address())?;
        Ok(())
    }
}

/// The run that begins: its number, and how the one before it ended.
struct StartedRun {
    boot: i64,
    was_clean_before: bool,
    /// Work that may have crashed the run before it.
    suspects: Arc<Suspects>,
}

impl StartedRun {
    /// Records the run in the database.
    fn record(writer: &mut WriterLoop, store: &Store, clock: &Clock) -> Result<Self, Error> {
        let was_clean_before = writer.read(runs::last_was_clean)?.unwrap_or(true);
        let version = build::VERSION;
        let boot = writer.direct(|tx| runs::start(tx, clock.wall(), version))?;
        let suspects = Suspects::at_start(writer, store.clone(), clock.clone(), boot)?;
        log_audit_head(store);
        Ok(Self { boot, was_clean_before, suspects: Arc::new(suspects) })
    }
}

fn environment(
    store: Store,
    settings: Settings,
    clock: Clock,
    draw: Arc<dyn Draw>,
    faults: Faults,
    keys: &Keys,
) -> Env {
    let keyring = Arc::clone(&keys.ring);
    let privacy =
        Privacy::new(store.clone(), Arc::clone(&keyring), keys.names.clone(), Arc::clone(&draw));
    let budget = Budget::new(usize::try_from(settings.limits.memory).unwrap_or(usize::MAX));
    Env {
        store,
        clock,
        draw,
        settings: Live::new(settings),
        budget,
        keyring,
        privacy: Arc::new(privacy),
        faults,
    }
}

fn disk_watch(env: &Env, gauge: Gauge) -> Arc<DiskWatch> {
    let room = Arc::clone(env.store.writer().room());
    Arc::new(DiskWatch::new(gauge, env.settings.clone(), room))
}

fn backups(env: &Env, stop: Stop) -> Backups {
    let settings = env.settings.get();
    Backups {
        store: env.store.clone(),
        clock: env.clock.clone(),
        directory: settings.backup_directory(),
        keep: usize::try_from(settings.backup.keep).unwrap_or(usize::MAX),
        stop,
        running: Arc::default(),
    }
}

/// The schedule of backups, if the settings have one.
fn schedule(env: &Env, backups: &Backups) -> Option<Schedule> {
    let every = env.settings.get().backup.every?;
    Some(Schedule { backups: backups.clone(), every })
}

/// A callback that makes the cache of tokens forget what has changed.
fn forgetting(auth: &Auth) -> Arc<dyn Fn() + Send + Sync> {
    let cached = auth.clone();
    Arc::new(move || cached.forget())
}

/// Starts what sends traces, if the settings name a collector. A stop does not wait for it.
fn start_exporter(exporter: Option<Exporter>, spawner: &Spawner, stop: Stop) -> Result<(), Error> {
    let Some(exporter) = exporter else { return Ok(()) };
    spawner.spawn("traces", move || exporter.run(&stop))?;
    Ok(())
}

/// What reads lists of providers, over the line of the deliveries.
fn list_client(env: &Env, flow: &Pipeline, sender: Arc<dyn Sender>) -> ListClient {
    let uses = Arc::clone(flow.receive.providers.uses());
    ListClient { env: env.clone(), sender, uses }
}

fn source_services(
    flow: &Pipeline,
    disk: Arc<DiskWatch>,
    suspects: Arc<Suspects>,
    databases: Databases,
    lists: ListClient,
) -> RelayServices {
    RelayServices {
        env: lists.env.clone(),
        disk,
        counts: Arc::clone(&flow.counts),
        statuses: SourceStatuses::default(),
        marks: flow.publish.source_marks.clone(),
        event_types: Arc::clone(&flow.event_types),
        suspects,
        databases,
        receive: flow.receive.clone(),
        lists,
    }
}

fn archive_work(env: &Env, flow: &Pipeline, disk: &Arc<DiskWatch>) -> ArchiveWork {
    ArchiveWork { env: env.clone(), disk: Arc::clone(disk), claims: flow.rotation.claims().clone() }
}

/// The stages that the API hands work to.
fn stages(
    flow: &Pipeline,
    services: RelayServices,
    rotation: Rotation,
    backups: Backups,
    jobs: &Runner,
    archive: &Mover,
) -> Stages {
    Stages {
        rotation,
        receive: flow.receive.clone(),
        publish: flow.publish.clone(),
        consume: flow.consume.clone(),
        confirmations: flow.confirmations.clone(),
        refusals: flow.refusals.clone(),
        tests: flow.rotation.tests().clone(),
        claims: flow.rotation.claims().clone(),
        credential_rotation: flow.rotation.clone(),
        disk: services.disk,
        suspects: services.suspects,
        sources: services.statuses,
        databases: services.databases,
        lists: services.lists,
        in_flight: Arc::clone(&flow.in_flight),
        backups,
        spawner: flow.spawner.clone(),
        jobs: jobs.bell().clone(),
        archiving: archive.archiving.clone(),
        traces: flow.traces.clone(),
    }
}
