//! Starts an Oncebox, from the sockets to the first request. Each part is created once, after the parts that it needs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::Parts as ApiParts;
use crate::api::auth::{Auth, TokenHasher};
use crate::api::context::{Api, Stages};
use crate::api::listeners::EndpointRole;
use crate::app::data_directory::{self, DataDirectory};
use crate::app::error::Error;
use crate::app::injected::{self, Injected, ReplaceableClient};
use crate::app::master_key::{self, Keys};
use crate::app::sockets::{self, Sockets};
use crate::app::{Appliance, installation, log_audit_head};
use crate::archive::mover::Mover;
use crate::archive::parts::Parts;
use crate::backup::schedule::{Backups, Schedule};
use crate::backup::upgrade::{self as schema_upgrade, Upgraded};
use crate::backup::{erasures, restore};
use crate::base::budget::Budget;
use crate::base::clock::Clock;
use crate::base::faults::Faults;
use crate::base::id::{self, Draw};
use crate::base::stop::Stop;
use crate::config::{Live, Settings};
use crate::databases::database::{Databases, Machine};
use crate::health_probes;
use crate::http::client::Sender;
use crate::jobs::runner::Runner;
use crate::model::audit::changes::Changes;
use crate::model::audit::{Actor, NewAuditEvent};
use crate::model::name::DEFAULT_TENANT;
use crate::model::token::{self, Role, Scope};
use crate::pipeline::suspects::Suspects;
use crate::pipeline::threads::Bell;
use crate::pipeline::upkeep::clock_watch;
use crate::pipeline::upkeep::disk_watch::DiskWatch;
use crate::pipeline::upkeep::master_key_rotation::Rotation;
use crate::pipeline::{Parts as PipelineParts, Pipeline};
use crate::sources::relays::Relaying;
use crate::sources::{self, Shared, SourceStatuses};
use crate::store::schema::{self, Steps};
use crate::store::tokens::{self, NewToken};
use crate::store::writer::WriterLoop;
use crate::store::{Store, audit_events, chores, known_time, limits, meta, runs};
use crate::sys::disk::Gauge;
use crate::sys::systemd::Passed;

/// What most parts need.
#[derive(Clone, Copy)]
struct Common<'a> {
    store: &'a Store,
    settings: &'a Live,
    clock: &'a Clock,
    draw: &'a Arc<dyn Draw>,
}

impl Appliance {
    /// Starts on the service manager's sockets. `before_answering` is called when everything but the listener is ready:
    /// from then on the process must stop in order.
    pub fn start_on(
        passed: Vec<Passed>,
        settings: Settings,
        injected: Injected,
        before_answering: impl FnOnce(),
    ) -> Result<Self, Error> {
        let Injected { clock, draw, sender, faults, limits, gauge, source_marks } = injected;
        let data = DataDirectory::lock(settings.directory())?;
        let sockets = Sockets::open(&settings.listen, passed)?;
        let (found, store, mut writer_loop) = prepare(&data, &settings, &*draw, (&clock, &faults))?;
        let Keys { ring, hasher, names, confirm_tokens, rotation } =
            master_key::unlock(&mut writer_loop, &settings, found, &draw, (clock.wall(), &faults))?;
        let first_start = first_token(&mut writer_loop, &data, &hasher, &clock, &*draw)?;
        check_guarded(&mut writer_loop, &sockets, &clock)?;
        let (clean_before, boot, suspects) = record_start(&mut writer_loop, &store, &clock)?;
        let budget = Budget::new(usize::try_from(settings.limits.memory).unwrap_or(usize::MAX));
        let (client, sender) = clients(&settings, sender)?;
        let (settings, stop, bell) = (Live::new(settings), Stop::new(), Bell::default());
        let auth = Auth::new(store.clone(), clock.clone(), Arc::clone(&hasher));
        let disk = disk_watch(gauge, &settings, &store);
        let (backups, schedule) = backups(&settings.get(), (&store, &clock), &stop);
        let flow = Pipeline::start(PipelineParts {
            store: store.clone(),
            writer_loop,
            clock: clock.clone(),
            draw: Arc::clone(&draw),
            key: Arc::clone(&ring),
            rotation: rotation.clone(),
            names,
            confirm_tokens,
            sender,
            settings: settings.clone(),
            disk: Arc::clone(&disk),
            backups: schedule,
            budget: budget.clone(),
            databases: Databases::of(&settings.get().databases.all, &Machine::ours(&clock)),
            suspects: Arc::clone(&suspects),
            faults: faults.clone(),
            source_marks,
            on_tokens_changed: forgetting(&auth),
            on_sources_changed: bell.clone(),
            is_source: sources::tables::exists,
            stop: stop.clone(),
        })?;
        let common = Common { store: &store, settings: &settings, clock: &clock, draw: &draw };
        let shared = shared(&flow, common, &disk, (&budget, Arc::clone(&suspects), &faults));
        let sources = Relaying::start(shared.clone(), &flow.spawner, bell)?;
        let workers = workers(&flow, common, (&disk, &faults))?;
        let api = Api::new(ApiParts {
            store,
            clock,
            draw,
            key: ring,
            auth,
            hasher,
            flow: stages(&flow, shared, rotation, backups, &workers),
            budget,
            settings,
        });
        before_answering();
        let (addresses, server) = sockets::listen(sockets, api.clone(), (limits, faults))?;
        Self {
            addresses,
            api,
            server,
            flow,
            sources,
            workers,
            boot,
            stop,
            first_start,
            clean_before,
            data,
            client,
        }
        .announce()
    }

    /// Starts the health probes, and writes the addresses into the data directory.
    fn announce(self) -> Result<Self, Error> {
        health_probes::start(&self.flow, &self.api.flow.disk)?;
        self.data.write_intake(self.own_intake())?;
        self.data.write_address(self.address())?;
        Ok(self)
    }
}

/// The client of the settings, which a reload replaces, and who sends: the client, unless another was injected.
fn clients(
    settings: &Settings,
    injected: Option<Arc<dyn Sender>>,
) -> Result<(Arc<ReplaceableClient>, Arc<dyn Sender>), Error> {
    let client = Arc::new(ReplaceableClient::new(injected::client(&settings.delivery)?));
    let sender = injected.unwrap_or_else(|| Arc::<ReplaceableClient>::clone(&client));
    Ok((client, sender))
}

fn disk_watch(gauge: Gauge, settings: &Live, store: &Store) -> Arc<DiskWatch> {
    let room = Arc::clone(store.writer().room());
    Arc::new(DiskWatch::new(gauge, settings.clone(), room))
}

/// Finds the master key and opens the database, after finishing an interrupted restore, upgrading the schema and
/// repeating erasures.
fn prepare(
    data: &DataDirectory,
    settings: &Settings,
    draw: &dyn Draw,
    (clock, faults): (&Clock, &Faults),
) -> Result<(master_key::LocatedKey, Store, WriterLoop), Error> {
    finish_restore(data, faults)?;
    installation::check(settings)?;
    let found = master_key::find_or_create(settings, draw)?;
    let database = upgrade(data, clock, faults)?;
    let (store, mut writer_loop) = open(&database, settings, faults)?;
    clock_watch::begin(clock, writer_loop.read(known_time::known)?);
    if !clock.is_suspect() {
        writer_loop.direct(|tx| chores::expect(tx, clock.now()))?;
    }
    note_database(&mut writer_loop, settings, clock, draw)?;
    pause_beyond_limits(&mut writer_loop, settings, clock, draw)?;
    // A restored database must not bring back erased data. An erasure may be recorded beside the database only, if it was
    // interrupted, or beside the backups only.
    let mut recorded = erasures::read(&erasures::beside(&database))?;
    recorded.extend(erasures::read(&erasures::within(&settings.backup_directory()))?);
    let erased = writer_loop.erase_again(&recorded)?;
    if erased > 0 {
        tracing::warn!(erased, "destroyed again the keys of erased subjects");
    }
    Ok((found, store, writer_loop))
}

/// Gives the database an id if it has none, and notes it beside the master key. In the package only root may write there:
/// the unit runs `oncebox keys bind` after each start.
fn note_database(
    writer: &mut WriterLoop,
    settings: &Settings,
    clock: &Clock,
    draw: &dyn Draw,
) -> Result<(), Error> {
    let known = writer.read(meta::database_id)?;
    let id = known.unwrap_or_else(|| id::uuid7(clock.wall(), draw));
    writer.direct(|tx| meta::set_database_id(tx, &id))?;
    if let Err(error) = installation::note(settings, Some(&id)) {
        tracing::debug!(%error, "the database could not be noted beside the master key");
    }
    Ok(())
}

/// Pauses the subscriptions that are beyond their tenant's limits.
fn pause_beyond_limits(
    writer: &mut WriterLoop,
    settings: &Settings,
    clock: &Clock,
    draw: &dyn Draw,
) -> Result<(), Error> {
    let now = clock.wall();
    let new_id = || id::uuid7(now, draw);
    let count = writer.direct(|tx| limits::pause_beyond(tx, &settings.tenants, now, new_id))?;
    if count > 0 {
        tracing::error!(count, "subscriptions beyond the limits of their tenants were paused");
    }
    Ok(())
}

/// What the threads of the sources share.
fn shared(
    flow: &Pipeline,
    Common { store, settings, clock, draw }: Common<'_>,
    disk: &Arc<DiskWatch>,
    (budget, suspects, faults): (&Budget, Arc<Suspects>, &Faults),
) -> Shared {
    Shared {
        store: store.clone(),
        clock: clock.clone(),
        draw: Arc::clone(draw),
        disk: Arc::clone(disk),
        settings: settings.clone(),
        counts: Arc::clone(&flow.counts),
        statuses: SourceStatuses::default(),
        marks: flow.publish.source_marks.clone(),
        privacy: Arc::clone(&flow.privacy),
        event_types: Arc::clone(&flow.event_types),
        budget: budget.clone(),
        suspects,
        faults: faults.clone(),
        databases: flow.databases.clone(),
    }
}

/// Opens the database.
fn open(
    database: &Path,
    settings: &Settings,
    faults: &Faults,
) -> Result<(Store, WriterLoop), Error> {
    let (store, mut writer_loop) = Store::open(database, faults.clone())?;
    writer_loop.wait_for_others();
    data_directory::share(database, settings.database.group.as_deref())?;
    if !settings.database.checkpoints {
        writer_loop.leave_checkpoints();
    }
    Ok((store, writer_loop))
}

/// Records the start. Returns whether the last process ended cleanly, the number of this start, and the work that may have
/// crashed the last process.
fn record_start(
    writer: &mut WriterLoop,
    store: &Store,
    clock: &Clock,
) -> Result<(bool, i64, Arc<Suspects>), Error> {
    let clean_before = writer.read(runs::last_was_clean)?.unwrap_or(true);
    let version = env!("CARGO_PKG_VERSION");
    let boot = writer.direct(|tx| runs::start(tx, clock.wall(), version))?;
    let suspects = Arc::new(Suspects::at_start(writer, (store, clock), boot)?);
    log_audit_head(store);
    Ok((clean_before, boot, suspects))
}

/// Finishes an interrupted restore, before anything else opens the database.
fn finish_restore(data: &DataDirectory, faults: &Faults) -> Result<(), Error> {
    if restore::finish(&data.database(), faults)? {
        tracing::warn!("an interrupted restore was finished");
    }
    Ok(())
}

/// Backs up and upgrades an older database, before anything else opens it. Returns its path.
pub(super) fn upgrade(
    data: &DataDirectory,
    clock: &Clock,
    faults: &Faults,
) -> Result<PathBuf, Error> {
    let database = data.private_database()?;
    let by = (clock.wall(), Actor::system());
    let done = schema_upgrade::run(&database, Steps::RELEASED, &by, faults, &mut |_| true)?;
    if let Some(Upgraded { from, backup }) = done {
        let backup = backup.display();
        tracing::info!(from, to = schema::VERSION, %backup, "the database was upgraded");
    }
    Ok(database)
}

/// What makes backups, and their schedule if there is one.
fn backups(
    settings: &Settings,
    (store, clock): (&Store, &Clock),
    stop: &Stop,
) -> (Backups, Option<Schedule>) {
    let backups = Backups {
        store: store.clone(),
        clock: clock.clone(),
        directory: settings.backup_directory(),
        keep: usize::try_from(settings.backup.keep).unwrap_or(usize::MAX),
        stop: stop.clone(),
        running: Arc::default(),
    };
    let schedule = |every| Schedule { backups: backups.clone(), every };
    let schedule = settings.backup.every.map(schedule);
    (backups, schedule)
}

/// Creates the first admin token if there is no token at all; returns whether it did.
fn first_token(
    writer: &mut WriterLoop,
    data: &DataDirectory,
    hasher: &TokenHasher,
    clock: &Clock,
    draw: &dyn Draw,
) -> Result<bool, Error> {
    if writer.read(tokens::any)? {
        return Ok(false);
    }
    let secret = token::generate(draw);
    let now = clock.wall();
    // The file is written first: once the database has a token, no other first token is created, so it must be readable.
    data.write_token(&secret)?;
    let new = NewToken {
        id: id::uuid7(now, draw),
        tenant: DEFAULT_TENANT.to_owned(),
        name: "first admin token".to_owned(),
        role: Role::Admin,
        scope: Scope::default(),
        hash: hasher.hash(&secret),
        expires_at: None,
    };
    let after = json!({ "name": new.name, "role": new.role.as_str() });
    let changes = Changes::between(&Value::Null, &after);
    let event = NewAuditEvent::local(now, DEFAULT_TENANT, Actor::system(), "token.create");
    let event = event.of("token", &new.id, changes);
    writer.direct(|tx| {
        tokens::insert(tx, &new, now)?;
        audit_events::append(tx, &event)
    })?;
    Ok(true)
}

/// Refuses to listen for other machines without an admin token.
fn check_guarded(writer: &mut WriterLoop, sockets: &Sockets, clock: &Clock) -> Result<(), Error> {
    let public = |(serves, address): &(EndpointRole, SocketAddr)| {
        serves.api && !address.ip().to_canonical().is_loopback()
    };
    let Some((_, address)) = sockets.addresses().find(public) else { return Ok(()) };
    if writer.read(|tx| tokens::any_admin(tx, clock.wall()))? {
        return Ok(());
    }
    Err(Error::Unguarded { address })
}

/// Makes the cache of tokens forget what has changed.
fn forgetting(auth: &Auth) -> Arc<dyn Fn() + Send + Sync> {
    let cached = auth.clone();
    Arc::new(move || cached.forget())
}

/// Starts the threads that run jobs and archive finished events.
fn workers(
    flow: &Pipeline,
    Common { store, settings, clock, .. }: Common<'_>,
    (disk, faults): (&Arc<DiskWatch>, &Faults),
) -> Result<(Runner, Mover), Error> {
    let parts = Parts {
        store: store.clone(),
        clock: clock.clone(),
        settings: settings.clone(),
        disk: Arc::clone(disk),
        claims: flow.rotation.claims().clone(),
        faults: faults.clone(),
    };
    let mover = Mover::start(parts, &flow.spawner)?;
    let files = (store.clone(), mover.archiving.archive.clone());
    Ok((Runner::start(files, clock.clone(), &flow.spawner)?, mover))
}

fn stages(
    flow: &Pipeline,
    shared: Shared,
    rotation: Rotation,
    backups: Backups,
    (jobs, mover): &(Runner, Mover),
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
        disk: shared.disk,
        suspects: shared.suspects,
        sources: shared.statuses,
        databases: shared.databases,
        in_flight: Arc::clone(&flow.in_flight),
        backups,
        spawner: flow.spawner.clone(),
        jobs: jobs.bell().clone(),
        archiving: mover.archiving.clone(),
    }
}
