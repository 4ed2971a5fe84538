//! A running Oncebox: the file, the key, the stages, the API and the listener, put together.
//!
//! `serve` runs one for the process; a test runs as many as it likes.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::api::auth::{Auth, TokenHasher};
use crate::api::{Api, DEFAULT_TENANT, Parts as ApiParts, Stages};
use crate::clock::Clock;
use crate::domain::token::{self, Role};
use crate::faults::Faults;
use crate::flow::deliver::Sender;
use crate::flow::destinations::Defaults;
use crate::flow::{Flow, Parts as FlowParts};
use crate::http::client::{self, Client, ClientSettings, SetupError};
use crate::http::limits::Limits;
use crate::http::server::{self, Server};
use crate::id::{self, Draw};
use crate::secret::{KeyTextError, MasterKey};
use crate::settings::Settings;
use crate::stop::Stop;
use crate::store::error::Error as StoreError;
use crate::store::tokens::NewToken;
use crate::store::writer::WriterLoop;
use crate::store::{Store, boots, meta, tokens};

/// The database in the data directory.
pub const DATABASE: &str = "oncebox.db";
/// The master key in the data directory.
pub const KEY_FILE: &str = "master.key";
/// The first admin token in the data directory.
pub const TOKEN_FILE: &str = "admin.token";
/// What a running service locks in the data directory.
pub const LOCK_FILE: &str = "oncebox.lock";
/// Where a running service says on which address it listens.
pub const ADDRESS_FILE: &str = "oncebox.address";
/// How long requests that are in hand may take when the service stops.
const LISTENER_GRACE: Duration = Duration::from_secs(5);

/// Why an Oncebox did not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The client's roots.
    #[error("delivery.ca_file: {0}")]
    Client(#[from] SetupError),
    /// A file or directory in the data directory.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The key file is not a key.
    #[error("{path}: {source}")]
    Key {
        /// The key file.
        path: PathBuf,
        /// What is wrong with it.
        source: KeyTextError,
    },
    /// The key file can be read by others.
    #[error(
        "{path} has mode {mode:03o}: others could read the master key; set it to 600 (chmod 600 {path})"
    )]
    KeyMode {
        /// The key file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// There is a database, and the key that sealed its secrets is not there.
    #[error(
        "{path} was made with the master key {want}, but the key file holds {have}: put the right key there"
    )]
    OtherKey {
        /// The database.
        path: PathBuf,
        /// The key that is there.
        have: String,
        /// The key that is needed.
        want: String,
    },
    /// Another process serves this data directory.
    #[error("{path} is locked: another oncebox ({holder}) serves this data directory")]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// Who holds it.
        holder: String,
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
        }
    }
}

/// A running Oncebox.
#[derive(Debug)]
pub struct Appliance {
    address: SocketAddr,
    store: Store,
    clock: Clock,
    server: Server,
    flow: Flow,
    boot: i64,
    stop: Stop,
    first_start: bool,
    clean_before: bool,
    data: PathBuf,
    /// Held open for its lock.
    _lock: File,
}

impl Appliance {
    /// Starts everything: when this returns, requests are accepted and deliveries are made.
    ///
    /// # Errors
    /// What is in the way, and what to do about it.
    pub fn start(settings: Settings, injected: Injected) -> Result<Self, Error> {
        let Injected { clock, draw, sender, faults, limits } = injected;
        let data = settings.data.clone();
        make_directory(&data)?;
        let lock = lock(&data)?;
        let listener = bind(settings.listen)?;
        let key = Arc::new(master_key(&data, &*draw)?);
        make_private(&data.join(DATABASE))?;
        let (store, mut writer_loop) = Store::open(&data.join(DATABASE), faults.clone())?;
        check_key(&mut writer_loop, &store, &key)?;
        let hasher = Arc::new(TokenHasher::new(&key));
        let first_start = first_token(&mut writer_loop, &data, &hasher, &clock, &*draw)?;
        let clean_before = writer_loop.direct(|tx| boots::last_was_clean(tx))?.unwrap_or(true);
        let version = env!("CARGO_PKG_VERSION");
        let boot = writer_loop.direct(|tx| boots::start(tx, clock.wall(), version))?;
        let sender = match sender {
            Some(sender) => sender,
            None => Arc::new(real_client(&settings)?),
        };
        let stop = Stop::new();
        let auth = Auth::new(store.clone(), clock.clone(), Arc::clone(&hasher));
        let defaults = Defaults {
            schedule: settings.delivery.schedule.clone(),
            timeout: settings.delivery.timeout,
        };
        let forgetful = auth.clone();
        let flow = Flow::start(FlowParts {
            store: store.clone(),
            writer_loop,
            clock: clock.clone(),
            draw: Arc::clone(&draw),
            key: Arc::clone(&key),
            sender,
            defaults: defaults.clone(),
            cap: settings.delivery.cap,
            deliverers: settings.delivery.deliverers,
            faults,
            on_tokens_changed: Arc::new(move || forgetful.forget()),
            stop: stop.clone(),
        })?;
        let api = Api::new(ApiParts {
            store: store.clone(),
            clock: clock.clone(),
            draw,
            key,
            auth,
            hasher,
            flow: Stages { receive: flow.receive.clone(), publish: flow.publish.clone() },
            settings: Arc::new(settings),
            defaults,
        });
        let (address, server) = listen(listener, limits, clock.clone(), api)?;
        write_private(&data.join(ADDRESS_FILE), format!("{address}\n").as_bytes())?;
        Ok(Self {
            address,
            store,
            clock,
            server,
            flow,
            boot,
            stop,
            first_start,
            clean_before,
            data,
            _lock: lock,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
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

    /// Lets the dispatcher look at the clock, which a test has moved.
    pub fn wake(&self) {
        self.flow.wake();
    }

    /// Stops in order: no new requests, what is under way is finished, everything is on the disk.
    ///
    /// # Errors
    /// What made it end, if it was not asked to.
    pub fn stop(self) -> Result<(), Error> {
        self.server.stop(LISTENER_GRACE);
        let (boot, now) = (self.boot, self.clock.wall());
        let writer = self.store.writer().clone();
        let noted = writer.write(
            crate::store::writer::Queue::Accept,
            move |tx: &crate::store::tx::WriteTx<'_>| boots::stop(tx, boot, now),
        );
        if let Err(error) = noted {
            tracing::warn!(%error, "the clean stop could not be noted");
        }
        let removed = fs::remove_file(self.data.join(ADDRESS_FILE));
        if let Err(error) = removed {
            tracing::debug!(%error, "the address file was gone already");
        }
        Ok(self.flow.stop()?)
    }
}

fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { path, source }
}

fn make_directory(data: &Path) -> Result<(), Error> {
    fs::create_dir_all(data).map_err(file_error(data))?;
    fs::set_permissions(data, fs::Permissions::from_mode(0o700)).map_err(file_error(data))
}

/// Makes a file only its owner may read, where there is none; SQLite gives its log the same mode.
fn make_private(path: &Path) -> Result<(), Error> {
    let open = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    open.map(drop).map_err(file_error(path))
}

/// Writes a file that only its owner may read, and syncs it.
fn write_private(path: &Path, content: &[u8]) -> Result<(), Error> {
    let open = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    let mut file = open.map_err(file_error(path))?;
    file.write_all(content).and_then(|()| file.sync_all()).map_err(file_error(path))
}

fn lock(data: &Path) -> Result<File, Error> {
    let path = data.join(LOCK_FILE);
    let open = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path);
    let mut file = open.map_err(file_error(&path))?;
    if file.try_lock().is_err() {
        let mut holder = String::new();
        // The holder is only named for the person; an unreadable name changes nothing.
        let named = file.read_to_string(&mut holder).is_ok() && !holder.trim().is_empty();
        let holder = if named { holder.trim().to_owned() } else { "unknown".to_owned() };
        return Err(Error::Locked { path, holder });
    }
    let process = format!("process {}\n", std::process::id());
    file.set_len(0).and_then(|()| file.write_all(process.as_bytes())).map_err(file_error(&path))?;
    Ok(file)
}

/// Reads the key, or makes it where there is no database yet.
fn master_key(data: &Path, draw: &dyn Draw) -> Result<MasterKey, Error> {
    let path = data.join(KEY_FILE);
    if !path.exists() && !data.join(DATABASE).exists() {
        let key = MasterKey::generate(draw);
        write_private(&path, key.to_text().as_bytes())?;
        return Ok(key);
    }
    let mode = fs::metadata(&path).map_err(file_error(&path))?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(Error::KeyMode { path, mode });
    }
    let text = zeroize::Zeroizing::new(fs::read_to_string(&path).map_err(file_error(&path))?);
    MasterKey::from_text(&text).map_err(|source| Error::Key { path, source })
}

/// A database remembers which key sealed its secrets.
fn check_key(writer: &mut WriterLoop, store: &Store, key: &MasterKey) -> Result<(), Error> {
    let have = key.key_id();
    match store.read(meta::master_key_id)? {
        Some(want) if want != have => {
            Err(Error::OtherKey { path: store.path().to_owned(), have, want })
        }
        Some(_) => Ok(()),
        None => Ok(writer.direct(|tx| meta::set_master_key_id(tx, &have))?),
    }
}

/// Makes the first admin token where there is none at all; tells whether it did.
fn first_token(
    writer: &mut WriterLoop,
    data: &Path,
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
    write_private(&data.join(TOKEN_FILE), format!("{secret}\n").as_bytes())?;
    let new = NewToken {
        id: id::uuid7(now, draw),
        tenant: DEFAULT_TENANT.to_owned(),
        name: "first admin token".to_owned(),
        role: Role::Admin,
        hash: hasher.hash(&secret),
        expires_at: None,
    };
    writer.direct(|tx| tokens::insert(tx, &new, now))?;
    Ok(true)
}

fn real_client(settings: &Settings) -> Result<Client, Error> {
    let delivery = &settings.delivery;
    let ca_pem = delivery.ca_file.as_deref().map(client::read_ca_file).transpose()?;
    Ok(Client::new(ClientSettings {
        policy: delivery.policy.clone(),
        ca_pem,
        connect_timeout: delivery.connect_timeout,
        idle_connections: usize::try_from(delivery.deliverers).unwrap_or(64),
    })?)
}

fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    server::bind(address).map_err(|source| Error::Listen { address, source })
}

fn listen(
    listener: TcpListener,
    limits: Limits,
    clock: Clock,
    api: Api,
) -> Result<(SocketAddr, Server), Error> {
    let wanted = api.settings.listen;
    let refused = |source| Error::Listen { address: wanted, source };
    let address = listener.local_addr().map_err(refused)?;
    let server = Server::start(vec![listener], limits, clock, Arc::new(api)).map_err(refused)?;
    Ok((address, server))
}
