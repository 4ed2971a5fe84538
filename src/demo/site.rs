//! The settings of a run: its processes, addresses and files; and the error of the demo.

use std::fmt::Display;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};

use crate::app::data_directory::{DATABASE, TOKEN_FILE};
use crate::base::id::{Draw, SystemDraw};
use crate::base::words::words;
use crate::http::client::{Client, ClientSettings};
use crate::http::server;
use crate::model::address::AddressPolicy;
use crate::store::error::Error as StoreError;

/// The path of Logistics' webhook endpoint.
pub(super) const LOGISTICS_PATH: &str = "/webhooks/finance";
/// The name of the cluster with the topic, in Oncebox's settings.
pub(super) const CLUSTER: &str = "centre";
/// The path of Logistics' readiness check.
pub(super) const LOGISTICS_READY: &str = "/ready";
/// The retry steps of the demo; with the default steps it could take hours.
pub(super) const STEPS: [&str; 4] = ["100ms", "500ms", "1s", "2s"];
/// Attempts before a delivery is given up: more than any run makes.
pub(super) const MAX_ATTEMPTS: u32 = 1000;
/// How long Oncebox waits for an answer of Logistics.
pub(super) const TIMEOUT: Duration = Duration::from_secs(1);
/// Most requests to Logistics in flight.
pub(super) const CAP: u32 = 32;
/// Most idle connections of a client.
const CONNECTIONS: usize = 16;
/// The first port that is tried. The range is below the system's ports for outgoing connections, so that no other
/// program takes a port while its process is dead.
const PORT_FIRST: u16 = 20_000;
/// How many ports are tried.
const PORTS: u16 = 10_000;
/// The file that the processes read when they start.
const SITE_FILE: &str = "site.json";

words! {
    /// A process of the demo.
    pub(super) enum Role {
        /// The simulated ERP.
        Finance = "Finance",
        /// The only Oncebox, or the first of a chain, beside Finance.
        Oncebox = "Oncebox",
        /// The second Oncebox of a chain, beside Logistics.
        Downstream = "Downstream",
        /// The simulated receiver.
        Logistics = "Logistics",
    }
}

impl Role {
    /// Its name in file names.
    pub(super) fn word(self) -> String {
        self.as_str().to_ascii_lowercase()
    }

    /// Whether it is an Oncebox.
    pub(super) const fn is_oncebox(self) -> bool {
        matches!(self, Self::Oncebox | Self::Downstream)
    }
}

/// The way of an event from Finance to Logistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Topology {
    /// Finance publishes over HTTP, and Oncebox delivers to Logistics.
    Direct,
    /// Finance's Oncebox reads the outbox table in Finance's database and delivers over an unreliable line to Logistics'
    /// Oncebox, which delivers to Logistics.
    Chain,
    /// Finance publishes over HTTP, Oncebox writes to a topic, and Logistics reads it.
    Kafka,
}

impl Topology {
    /// The processes, in the order in which they are started.
    pub(super) const fn roles(self) -> &'static [Role] {
        match self {
            Self::Direct | Self::Kafka => &[Role::Oncebox, Role::Logistics, Role::Finance],
            Self::Chain => &[Role::Oncebox, Role::Downstream, Role::Logistics, Role::Finance],
        }
    }

    /// The processes that are an Oncebox.
    pub(super) fn boxes(self) -> impl Iterator<Item = Role> {
        self.roles().iter().copied().filter(|role| role.is_oncebox())
    }

    /// A summary, which continues "Finance marks invoices paid;".
    pub(super) const fn summary(self) -> &'static str {
        match self {
            Self::Direct => "Oncebox delivers to Logistics; Logistics ships.",
            Self::Chain => {
                "its Oncebox reads Finance's outbox table and delivers to Logistics' Oncebox; that one \
                 delivers to Logistics; Logistics ships."
            }
            Self::Kafka => "Oncebox writes to a topic of Kafka; Logistics reads it and ships.",
        }
    }

    /// Its flag, after a space.
    pub(super) const fn flag(self) -> &'static str {
        match self {
            Self::Direct => "",
            Self::Chain => " --chain",
            Self::Kafka => " --kafka",
        }
    }
}

/// A planted fault of Logistics, to show that the count detects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Broken {
    /// Nothing.
    Nothing,
    /// It ignores its guard.
    Guard,
    /// It omits some shipments.
    Effect,
}

/// The settings of a run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Run {
    /// The way of an event from Finance to Logistics.
    pub(super) topology: Topology,
    /// Number of invoices.
    pub(super) invoices: u32,
    /// Invoices that Finance marks paid in a second; 0: as fast as it can.
    pub(super) per_second: u32,
    /// Seed of the failing requests and of the kills.
    pub(super) seed: u32,
    /// Whether there are faults and kills.
    pub(super) faults: bool,
    /// The part of Logistics that is broken on purpose.
    pub(super) broken: Broken,
}

/// The parameters of a run for its processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Site {
    /// The run's directory.
    pub(super) dir: PathBuf,
    pub(super) run: Run,
    /// Oncebox's address.
    pub(super) oncebox: SocketAddr,
    /// The address of the second Oncebox of a chain.
    pub(super) downstream: SocketAddr,
    /// The address of the line between the two.
    pub(super) line: SocketAddr,
    /// Logistics' address.
    pub(super) logistics: SocketAddr,
    /// The brokers of the topic between Oncebox and Logistics; empty if there is none.
    pub(super) brokers: Vec<String>,
}

impl Site {
    /// Creates the directory, chooses the ports, and writes the files that the processes read.
    pub(super) fn make(dir: &Path, run: Run, brokers: Vec<String>) -> Result<Self, Error> {
        DirBuilder::new().mode(0o700).create(dir).map_err(Error::file(dir))?;
        let [oncebox, downstream, line, logistics] = four_ports()?;
        let dir = dir.to_owned();
        let site = Self { dir, run, oncebox, downstream, line, logistics, brokers };
        site.write()?;
        Ok(site)
    }

    /// Writes the files that the processes read when they start.
    fn write(&self) -> Result<(), Error> {
        let path = self.file();
        let text = serde_json::to_string_pretty(self).map_err(Error::file(&path))?;
        fs::write(&path, text).map_err(Error::file(&path))?;
        for (role, address) in [(Role::Oncebox, self.oncebox), (Role::Downstream, self.downstream)]
        {
            let path = self.settings(role);
            let text = self.settings_text(role, address);
            fs::write(&path, text).map_err(Error::file(&path))?;
        }
        Ok(())
    }

    /// Reads the file of [`Site::write`].
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(Error::file(path))?;
        serde_json::from_str(&text).map_err(Error::file(path))
    }

    /// The settings of an Oncebox of the run.
    fn settings_text(&self, role: Role, address: SocketAddr) -> String {
        let steps = STEPS.map(|step| format!("\"{step}\"")).join(", ");
        let timeout = humantime::format_duration(TIMEOUT);
        let kafka = if self.brokers.is_empty() {
            String::new()
        } else {
            format!("\n[kafka]\ntls = false\nclusters = {{ {CLUSTER} = {:?} }}\n", self.brokers)
        };
        format!(
            "# Written by `oncebox demo`. The short steps are for the demo alone.\n\
             [listen]\n\
             api = \"{address}\"\n\n\
             [database]\n\
             directory = {:?}\n\n\
             [delivery]\n\
             allow = [\"127.0.0.0/8\"]\n\
             steps = [{steps}]\n\
             max_attempts = {MAX_ATTEMPTS}\n\
             timeout = \"{timeout}\"\n\
             connect_timeout = \"{timeout}\"\n\
             cap = {CAP}\n\n\
             [disk]\n\
             reserve = 0\n\
             {kafka}",
            self.data(role).display().to_string(),
        )
    }

    pub(super) fn file(&self) -> PathBuf {
        self.dir.join(SITE_FILE)
    }

    pub(super) fn settings(&self, role: Role) -> PathBuf {
        self.dir.join(format!("{}.toml", role.word()))
    }

    fn data(&self, role: Role) -> PathBuf {
        self.dir.join(role.word())
    }

    /// The database of an Oncebox.
    pub(super) fn database(&self, role: Role) -> PathBuf {
        self.data(role).join(DATABASE)
    }

    pub(super) fn finance_db(&self) -> PathBuf {
        self.dir.join("finance.db")
    }

    pub(super) fn logistics_db(&self) -> PathBuf {
        self.dir.join("logistics.db")
    }

    /// The file of Finance's publish token.
    pub(super) fn publish_token(&self) -> PathBuf {
        self.dir.join("finance.token")
    }

    /// The file of the secret that the last Oncebox signs with.
    pub(super) fn secret(&self) -> PathBuf {
        self.dir.join("logistics.secret")
    }

    pub(super) fn admin_token(&self, role: Role) -> PathBuf {
        self.data(role).join(TOKEN_FILE)
    }

    /// How long Finance pays if it is not killed.
    pub(super) fn paying_for(&self) -> Duration {
        let ms = u64::from(self.run.invoices)
            .saturating_mul(1000)
            .checked_div(u64::from(self.run.per_second))
            .unwrap_or(0);
        Duration::from_millis(ms)
    }
}

/// Reads a file with one line in it.
pub fn read_line(path: &Path) -> Result<String, Error> {
    Ok(fs::read_to_string(path).map_err(Error::file(path))?.trim().to_owned())
}

/// Writes a file that only its owner may read.
pub(super) fn write_secret(path: &Path, line: &str) -> Result<(), Error> {
    let open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = open.and_then(|mut file| file.write_all(line.as_bytes()));
    written.map_err(Error::file(path))
}

/// A client that may call loopback addresses.
pub fn loopback_client() -> Result<Client, Error> {
    let loopback = Ipv4Net::new_assert(Ipv4Addr::LOCALHOST, 8).trunc();
    let settings = ClientSettings {
        policy: AddressPolicy::new(vec![IpNet::V4(loopback)]),
        ca_pem: None,
        connect_timeout: TIMEOUT,
        idle_connections: CONNECTIONS,
        proxy: None,
    };
    Client::new(settings).map_err(|error| Error::Failed(error.to_string()))
}

/// Finds four free ports. The search starts at a random port, because the port of another demo's killed process also looks
/// free.
pub fn four_ports() -> Result<[SocketAddr; 4], Error> {
    let start = u16::try_from(SystemDraw::new().below(u64::from(PORTS))).unwrap_or(0);
    let mut found = Vec::new();
    for step in 0..PORTS {
        let port = PORT_FIRST.saturating_add(start.wrapping_add(step) % PORTS);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let Ok(held) = server::bind(address) else { continue };
        found.push((address, held));
        if let [(a, _), (b, _), (c, _), (d, _)] = found.as_slice() {
            return Ok([*a, *b, *c, *d]);
        }
    }
    Err(Error::Failed("not enough free ports on 127.0.0.1".to_owned()))
}

/// Why the demo fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A database could not be read or written.
    #[error("a database of the demo: {0}")]
    Store(#[from] StoreError),
    /// Any other failure.
    #[error("{0}")]
    Failed(String),
    /// Ctrl-C was pressed.
    #[error("interrupted; the processes were ended")]
    Interrupted,
}

impl Error {
    /// An error about something, such as a file.
    pub fn about<E: Display>(what: impl Display) -> impl FnOnce(E) -> Self {
        move |error| Self::Failed(format!("{what}: {error}"))
    }

    /// An error about a file.
    pub fn file<E: Display>(path: &Path) -> impl FnOnce(E) -> Self {
        Self::about(path.display().to_string())
    }
}
