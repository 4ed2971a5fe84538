//! A running Oncebox: the file, the key, the stages, the API and the listener, put together.
//!
//! `serve` runs one for the process; a test runs as many as it likes.

pub mod data_directory;
mod erasing;
mod line;
pub mod master_key;
pub mod offline;
pub mod sharing;
mod sockets;
pub mod supervision;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::auth::{Auth, TokenHasher};
use crate::api::doors::{Doors, Serves};
use crate::api::{Api, DEFAULT_TENANT, Parts as ApiParts, Stages};
use crate::appliance::data_directory::{DataDirectory, DirectoryError};
use crate::appliance::line::Line;
use crate::appliance::master_key::Keys;
use crate::appliance::sharing::SharingError;
use crate::appliance::sockets::Sockets;
use crate::clock::Clock;
use crate::domain::audit::changes::Changes;
use crate::domain::audit::{Actor, NewAuditEvent};
use crate::domain::token::{self, Role};
use crate::faults::Faults;
use crate::flow::deliver::Sender;
use crate::flow::disk_watch::DiskWatch;
use crate::flow::rotation::{Rotation, RotationError};
use crate::flow::{Flow, Parts as FlowParts};
use crate::http::client::SetupError;
use crate::http::limits::Limits;
use crate::http::proxies::Proxies;
use crate::http::server::{Server, Setup};
use crate::id::{self, Draw};
use crate::keeping::Error as KeepingError;
use crate::keeping::restore;
use crate::keeping::schedule::Schedule;
use crate::keeping::upgrade::{self, Upgraded};
use crate::machine::disk::Gauge;
use crate::settings::{Change, Live, Settings};
use crate::stop::Stop;
use crate::store::error::Error as StoreError;
use crate::store::tokens::NewToken;
use crate::store::tx::WriteTx;
use crate::store::writer::{Queue, WriterLoop};
use crate::store::{Store, audit_events, boots, schema, tokens};
use crate::systemd::activation::Passed;

/// How long requests that are in hand may take when the service stops.
const LISTENER_GRACE: Duration = Duration::from_secs(5);

/// Why an Oncebox did not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The data directory.
    #[error("{0}")]
    Directory(#[from] DirectoryError),
    /// The group the database is shared with.
    #[error("{0}")]
    Sharing(#[from] SharingError),
    /// The backup before an upgrade.
    #[error("{0}")]
    Keeping(#[from] KeepingError),
    /// The master key.
    #[error("{0}")]
    Rotation(#[from] RotationError),
    /// The client's roots.
    #[error("delivery.ca_file: {0}")]
    Client(#[from] SetupError),
    /// There is a database, and the key that sealed its secrets is not there.
    #[error(
        "{path} was made with the master key {want}, but the one in force is {have}: put the right key \
         there, or give it as the previous one, and everything is sealed anew under {have}"
    )]
    OtherKey {
        /// The database.
        path: PathBuf,
        /// The key that is there.
        have: String,
        /// The key that is needed.
        want: String,
    },
    /// There is nothing to work on.
    #[error("{path} does not exist: no oncebox has run there; name its data directory with --data")]
    NoDatabase {
        /// Where the database should be.
        path: PathBuf,
    },
    /// The tenant is not there.
    #[error("there is no tenant named {0:?}")]
    NoTenant(String),
    /// The API can be reached from elsewhere, and nobody could manage it.
    #[error(
        "the API would listen on {address}, which others can reach, but there is no valid admin token: \
         make one (oncebox token create --role admin), or set listen.api to a loopback address"
    )]
    Unguarded {
        /// Where the API would listen.
        address: SocketAddr,
    },
    /// The listener.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
}

/// What a test puts in the place of the real thing.
#[derive(Clone)]
pub struct Injected {
    /// Time.
    pub clock: Clock,
    /// Randomness.
    pub draw: Arc<dyn Draw>,
    /// The line to the outside; `None`: the real client.
    pub sender: Option<Arc<dyn Sender>>,
    /// Planned failures.
    pub faults: Faults,
    /// The listener's limits.
    pub limits: Limits,
    /// How room on the disk is looked at.
    pub gauge: Gauge,
}

impl std::fmt::Debug for Injected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Injected").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl Default for Injected {
    /// The machine's clock and randomness, the real client, and no planned failures.
    fn default() -> Self {
        Self {
            clock: Clock::machine(),
            draw: Arc::new(id::SystemDraw::new()),
            sender: None,
            faults: Faults::none(),
            limits: Limits::default(),
            gauge: Gauge::machine(),
        }
    }
}

/// A running Oncebox.
#[derive(Debug)]
pub struct Appliance {
    /// Where it listens, the API first.
    addresses: Vec<(Serves, SocketAddr)>,
    store: Store,
    clock: Clock,
    server: Server,
    flow: Flow,
    boot: i64,
    stop: Stop,
    first_start: bool,
    clean_before: bool,
    data: DataDirectory,
    settings: Live,
    line: Arc<Line>,
}

impl Appliance {
    /// Starts everything: when this returns, requests are accepted and deliveries are made.
    ///
    /// # Errors
    /// What is in the way, and what to do about it.
    pub fn start(settings: Settings, injected: Injected) -> Result<Self, Error> {
        Self::start_on(Vec::new(), settings, injected)
    }

    /// The same, on sockets that the service manager has handed over.
    ///
    /// # Errors
    /// What is in the way, and what to do about it.
    pub fn start_on(
        passed: Vec<Passed>,
        settings: Settings,
        injected: Injected,
    ) -> Result<Self, Error> {
        let Injected { clock, draw, sender, faults, limits, gauge } = injected;
        let data = DataDirectory::lock(settings.directory())?;
        let sockets = Sockets::open(&settings.listen, passed)?;
        carry_on_restoring(&data, &faults)?;
        let found = master_key::find(&settings, &*draw)?;
        let database = up_to_date(&data, &clock, &faults)?;
        let (store, mut writer_loop) = Store::open(&database, faults.clone())?;
        sharing::share(&database, settings.database.group.as_deref())?;
        if !settings.database.checkpoints {
            writer_loop.leave_checkpoints()?;
        }
        erasing::again(&mut writer_loop, &database, &settings)?;
        let told = (clock.wall(), &faults);
        let Keys { ring, hasher, names, rotation } =
            master_key::unlock(&mut writer_loop, &settings, found, &draw, told)?;
        let first_start = first_token(&mut writer_loop, &data, &hasher, &clock, &*draw)?;
        check_guarded(&mut writer_loop, &sockets, &clock)?;
        let (clean_before, boot) = note_start(&mut writer_loop, &store, &clock)?;
        let line = Arc::new(Line::new(line::client(&settings.delivery)?));
        let sender = sender.unwrap_or_else(|| Arc::<Line>::clone(&line));
        let settings = Live::new(settings);
        let stop = Stop::new();
        let auth = Auth::new(store.clone(), clock.clone(), Arc::clone(&hasher));
        let forgetful = auth.clone();
        let path = settings.get().directory().to_owned();
        let disk = Arc::new(DiskWatch::new(gauge, path, settings.clone()));
        let flow = Flow::start(FlowParts {
            store: store.clone(),
            writer_loop,
            clock: clock.clone(),
            draw: Arc::clone(&draw),
            key: Arc::clone(&ring),
            names,
            sender,
            settings: settings.clone(),
            disk: Arc::clone(&disk),
            backups: schedule(&settings.get(), &store, &clock),
            faults: faults.clone(),
            on_tokens_changed: Arc::new(move || forgetful.forget()),
            stop: stop.clone(),
        })?;
        let api = Api::new(ApiParts {
            store: store.clone(),
            clock: clock.clone(),
            draw,
            key: ring,
            auth,
            hasher,
            flow: stages(&flow, disk, rotation),
            settings: settings.clone(),
        });
        let (addresses, server) = listen(sockets, api, (limits, faults))?;
        let appliance = Self {
            addresses,
            store,
            clock,
            server,
            flow,
            boot,
            stop,
            first_start,
            clean_before,
            data,
            settings,
            line,
        };
        appliance.data.write_intake(appliance.own_intake())?;
        appliance.data.write_address(appliance.address())?;
        Ok(appliance)
    }

    /// Where the API listens.
    pub fn address(&self) -> SocketAddr {
        let unknown = SocketAddr::from(([0; 4], 0));
        self.addresses.first().map_or(unknown, |(_, address)| *address)
    }

    /// Where the intake listens: the API's address, where it has none of its own.
    pub fn intake_address(&self) -> SocketAddr {
        self.own_intake().unwrap_or_else(|| self.address())
    }

    fn own_intake(&self) -> Option<SocketAddr> {
        let own = self.addresses.iter().find(|(serves, _)| *serves == Serves::Intake);
        own.map(|(_, address)| *address)
    }

    /// The file.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Asked for when the process has to end; asking it stops nothing by itself.
    pub fn stop_signal(&self) -> &Stop {
        &self.stop
    }

    /// Whether the data directory was made by this start.
    pub fn is_first_start(&self) -> bool {
        self.first_start
    }

    /// Whether the process before this one ended cleanly.
    pub fn was_clean_before(&self) -> bool {
        self.clean_before
    }

    /// Asks the threads that others depend on for a sign of life.
    pub fn ask_pulse(&self) {
        self.store.writer().pulse().ask();
        self.flow.pulse().ask();
        self.flow.wake();
        self.server.ask_pulse();
    }

    /// The threads that have shown no sign of life since they were asked.
    pub fn missing_pulses(&self) -> Vec<&'static str> {
        [
            ("the writer", self.store.writer().pulse().has_answered()),
            ("the dispatcher", self.flow.pulse().has_answered()),
            ("the listener", self.server.has_pulse()),
        ]
        .into_iter()
        .filter_map(|(thread, answered)| (!answered).then_some(thread))
        .collect()
    }

    /// Lets the dispatcher look at the clock, which a test has moved.
    pub fn wake(&self) {
        self.flow.wake();
    }

    /// The settings that hold right now.
    pub fn settings(&self) -> &Live {
        &self.settings
    }

    /// Takes what can be taken of other settings without a restart, and tells what changed.
    ///
    /// # Errors
    /// When they cannot be used; what held before still holds.
    pub fn reload(&self, fresh: &Settings) -> Result<Change, Error> {
        let change = self.settings.change_to(fresh);
        // Also where no setting of the client changed: the file of authorities may have.
        self.line.replace(line::client(&change.settings.delivery)?);
        self.settings.set(change.settings.clone());
        self.flow.settings_changed();
        Ok(change)
    }

    /// Stops in order: no new requests, what is under way is finished, everything is on the disk.
    ///
    /// # Errors
    /// What made it end, if it was not asked to.
    pub fn stop(self) -> Result<(), Error> {
        self.flow.stop_waiting();
        self.server.stop(LISTENER_GRACE);
        self.data.remove_address();
        let (boot, clock, writer) = (self.boot, self.clock, self.store.writer().clone());
        let store = self.store;
        Ok(self.flow.stop(move || {
            log_audit_head(&store);
            let run = move |tx: &WriteTx<'_>| boots::stop(tx, boot, clock.wall());
            if let Err(error) = writer.write(Queue::Upkeep, run) {
                tracing::warn!(%error, "the clean stop could not be noted");
            }
        })?)
    }
}

/// Notes the start; tells whether the process before ended cleanly, and the number of this start.
fn note_start(writer: &mut WriterLoop, store: &Store, clock: &Clock) -> Result<(bool, i64), Error> {
    let clean_before = writer.direct(|tx| boots::last_was_clean(tx))?.unwrap_or(true);
    let version = env!("CARGO_PKG_VERSION");
    let boot = writer.direct(|tx| boots::start(tx, clock.wall(), version))?;
    log_audit_head(store);
    Ok((clean_before, boot))
}

/// The log is kept elsewhere than the file: a chain that was made anew as a whole shows against it.
fn log_audit_head(store: &Store) {
    match store.read(audit_events::head) {
        Ok(head) => tracing::info!(%head, "the last audit event"),
        Err(error) => tracing::warn!(%error, "the last audit event cannot be read"),
    }
}

/// A restore that was decided and cut off comes before anything else looks at the file.
fn carry_on_restoring(data: &DataDirectory, faults: &Faults) -> Result<(), Error> {
    if restore::finish(&data.database(), faults)? {
        tracing::warn!("a restore that was cut off was carried to its end");
    }
    Ok(())
}

/// The database; an older one is backed up and upgraded before anything else looks at it.
fn up_to_date(data: &DataDirectory, clock: &Clock, faults: &Faults) -> Result<PathBuf, Error> {
    let database = data.private_database()?;
    if let Some(Upgraded { from, backup }) =
        upgrade::run(&database, &(clock.wall(), Actor::system()), faults, &mut |_| true)?
    {
        let backup = backup.display();
        tracing::info!(from, to = schema::VERSION, %backup, "the database was upgraded");
    }
    Ok(database)
}

/// The backups by the clock, where some are asked for.
fn schedule(settings: &Settings, store: &Store, clock: &Clock) -> Option<Schedule> {
    Some(Schedule {
        store: store.clone(),
        clock: clock.clone(),
        directory: settings.backup_directory(),
        every: settings.backup.every?,
        keep: usize::try_from(settings.backup.keep).unwrap_or(usize::MAX),
    })
}

/// Makes the first admin token where there is none at all; tells whether it did.
fn first_token(
    writer: &mut WriterLoop,
    data: &DataDirectory,
    hasher: &TokenHasher,
    clock: &Clock,
    draw: &dyn Draw,
) -> Result<bool, Error> {
    if writer.direct(|tx| tokens::any(tx))? {
        return Ok(false);
    }
    let secret = token::generate(draw);
    let now = clock.wall();
    // The file comes first: a token in the database that nobody knows would lock everybody out.
    data.write_token(&secret)?;
    let new = NewToken {
        id: id::uuid7(now, draw),
        tenant: DEFAULT_TENANT.to_owned(),
        name: "first admin token".to_owned(),
        role: Role::Admin,
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

/// An API that others can reach needs somebody who may manage it.
fn check_guarded(writer: &mut WriterLoop, sockets: &Sockets, clock: &Clock) -> Result<(), Error> {
    let public = |(serves, address): &(Serves, SocketAddr)| {
        serves.has_api() && !address.ip().to_canonical().is_loopback()
    };
    let Some((_, address)) = sockets.addresses().find(public) else { return Ok(()) };
    if writer.direct(|tx| tokens::any_admin(tx, clock.wall()))? {
        return Ok(());
    }
    Err(Error::Unguarded { address })
}

fn stages(flow: &Flow, disk: Arc<DiskWatch>, rotation: Rotation) -> Stages {
    Stages {
        rotation,
        receive: flow.receive.clone(),
        publish: flow.publish.clone(),
        consume: flow.consume.clone(),
        refusals: flow.refusals.clone(),
        disk,
        sources: flow.standings.clone(),
    }
}

/// Answers on the sockets; tells what each serves and where it listens.
fn listen(
    sockets: Sockets,
    api: Api,
    (limits, faults): (Limits, Faults),
) -> Result<(Vec<(Serves, SocketAddr)>, Server), Error> {
    let settings = api.settings.get();
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let limits = Limits {
        connections: count(settings.limits.connections),
        connections_per_address: count(settings.limits.connections_per_address),
        ..limits
    };
    let proxies = Proxies::new(settings.listen.trusted_proxies.clone());
    let (clock, draw) = (api.clock.clone(), Arc::clone(&api.draw));
    let setup = Setup { limits, proxies, clock, draw, faults };
    let addresses: Vec<_> = sockets.addresses().collect();
    let (purposes, sockets) = sockets.into_parts();
    let address = settings.listen.api;
    let line = api.line.clone();
    let started = Server::start(sockets, setup, Arc::new(Doors::new(api, purposes)));
    let server = started.map_err(|source| Error::Listen { address, source })?;
    line.follow(&server);
    Ok((addresses, server))
}
