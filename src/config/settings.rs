//! What holds: every setting with its final type, and its default.
//!
//! Not here: names, bounds and words of the keys ([`super::keys`]), and where a value came from.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;

use crate::model::address::AddressPolicy;
use crate::model::delivery::Schedule;

/// Where the service listens unless it is told: loopback only.
const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8710);
/// The file in the data directory that holds the master key unless another is named.
pub const KEY_FILE: &str = "master.key";

/// What holds. The fields are the sections of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// `[listen]`
    pub listen: Listen,
    /// `[database]`
    pub database: Database,
    /// `[keys]`
    pub keys: Keys,
    /// `[delivery]`
    pub delivery: Delivery,
    /// `[limits]`
    pub limits: Limits,
    /// `[sources]`
    pub sources: Sources,
    /// `[disk]`
    pub disk: Disk,
    /// `[backup]`
    pub backup: Backup,
    /// `[log]`
    pub log: Log,
    /// `[metrics]`
    pub metrics: Metrics,
}

/// Where it is reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Listen {
    /// Address and port of the API.
    pub api: SocketAddr,
    /// Address and port of the intake, where it is another one.
    pub intake: Option<SocketAddr>,
    /// Under which URL providers reach the intake, as a proxy in front shows it.
    pub public_url: Option<String>,
    /// Proxies whose word about the client's address is taken.
    pub trusted_proxies: Vec<IpNet>,
}

/// Where the data are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    /// The directory of the database, the key and the first token.
    pub directory: PathBuf,
    /// A unix group that may open the database too.
    pub group: Option<String>,
    /// Whether the write-ahead log is emptied by us; Litestream wants to do it itself.
    pub checkpoints: bool,
}

/// Where the master key is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// Its file, where it is not in the data directory.
    pub master_key_file: Option<PathBuf>,
}

/// How requests are sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// Address ranges that may be called although they are not public.
    pub allow: Vec<IpNet>,
    /// PEM roots to trust instead of the web's.
    pub ca_file: Option<PathBuf>,
    /// Waits between attempts, and how many attempts.
    pub schedule: Schedule,
    /// Time for a whole attempt.
    pub timeout: Duration,
    /// Time to connect.
    pub connect_timeout: Duration,
    /// Requests in flight at once, per subscription.
    pub cap: u32,
    /// Requests in flight at once, in all.
    pub deliverers: u32,
}

/// How much is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest body of a publish request, in bytes.
    pub request_bytes: u32,
    /// The largest payload of one event, in bytes.
    pub payload_bytes: u32,
    /// What bodies, parcels and rows that are worked on may take together, in bytes.
    pub memory: u32,
    /// Open connections.
    pub connections: u32,
    /// Open connections from one IPv4 address or one IPv6 /64, or requests of a client of a trusted proxy.
    pub connections_per_address: u32,
}

/// Where events are read from besides the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// Where those of tenants other than `default` may lie; `None`: nowhere.
    pub tenants_directory: Option<PathBuf>,
}

/// How much of the disk is left free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// Bytes; `None`: by the size of the file system.
    pub reserve: Option<u64>,
}

/// Backups by the clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// Where they are written; `None`: `backups` in the data directory.
    pub directory: Option<PathBuf>,
    /// How often; `None`: never.
    pub every: Option<Duration>,
    /// How many are kept.
    pub keep: u32,
}

/// What is logged, and how it looks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The least that is logged.
    pub level: LogLevel,
    /// How a line looks.
    pub format: LogFormat,
}

/// The least that is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// What went wrong and needs a person.
    Error,
    /// What went wrong and was dealt with, too.
    Warn,
    /// What happened, too.
    #[default]
    Info,
    /// How it happened, too.
    Debug,
    /// Everything.
    Trace,
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// logfmt on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// `key=value`
    Logfmt,
    /// One object a line.
    Json,
}

/// Who may read `/metrics`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Whether no token is needed.
    pub public: bool,
}

impl Default for Listen {
    fn default() -> Self {
        Self { api: LISTEN_DEFAULT, intake: None, public_url: None, trusted_proxies: Vec::new() }
    }
}

impl Default for Database {
    /// A directory right here; a process has a better one, see [`super::Sources::load`].
    fn default() -> Self {
        Self { directory: PathBuf::from("oncebox-data"), group: None, checkpoints: true }
    }
}

impl Default for Delivery {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            ca_file: None,
            schedule: Schedule::default(),
            timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            cap: 8,
            deliverers: 64,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_bytes: 16 << 20,
            payload_bytes: 1 << 20,
            memory: 128 << 20,
            connections: 10_000,
            connections_per_address: 1_000,
        }
    }
}

impl Default for Backup {
    fn default() -> Self {
        Self { directory: None, every: None, keep: 7 }
    }
}

impl Settings {
    /// Where webhooks are taken: where the API is, unless told otherwise.
    pub fn intake(&self) -> SocketAddr {
        self.listen.intake.unwrap_or(self.listen.api)
    }

    /// The file of the master key.
    pub fn master_key_file(&self) -> PathBuf {
        let inside = || self.directory().join(KEY_FILE);
        self.keys.master_key_file.clone().unwrap_or_else(inside)
    }

    /// The directory of the database, the first token and, unless told otherwise, the key.
    pub fn directory(&self) -> &Path {
        &self.database.directory
    }

    /// Where backups by the clock are written.
    pub fn backup_directory(&self) -> PathBuf {
        let inside = || self.directory().join("backups");
        self.backup.directory.clone().unwrap_or_else(inside)
    }
}

impl Delivery {
    /// Which addresses may be called.
    pub fn policy(&self) -> AddressPolicy {
        AddressPolicy::new(self.allow.clone())
    }
}

impl LogLevel {
    /// The words for the levels, most urgent first.
    pub(super) const WORDS: [(&'static str, Self); 5] = [
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];
}

impl LogFormat {
    /// The words for the formats.
    pub(super) const WORDS: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("logfmt", Self::Logfmt), ("json", Self::Json)];
}
