//! The directory of one run: who listens where, where the files are, and what the parts have to know.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};

use crate::app::data_directory::{DATABASE, TOKEN_FILE};
use crate::base::id::{Draw, SystemDraw};
use crate::demo::chaos::Broken;
use crate::demo::error::Error;
use crate::demo::role::Role;
use crate::demo::story::Story;
use crate::http::client::{Client, ClientSettings};
use crate::http::server;
use crate::model::address::AddressPolicy;

/// Where Oncebox posts to Logistics.
pub(super) const LOGISTICS_PATH: &str = "/webhooks/finance";
/// Where the parent asks Logistics whether it is up.
pub(super) const LOGISTICS_READY: &str = "/ready";
/// The retry steps of the demo, so that it does not take the four hours the defaults would.
pub(super) const STEPS: [&str; 4] = ["100ms", "500ms", "1s", "2s"];
/// Attempts until a delivery is given up: more than any run makes.
pub(super) const MAX_ATTEMPTS: u32 = 1000;
/// How long Oncebox waits for an answer of Logistics.
pub(super) const TIMEOUT: Duration = Duration::from_secs(1);
/// Requests to Logistics in flight at once.
pub(super) const CAP: u32 = 32;
/// Where ports are looked for: below the range from which systems take the ports of outgoing
/// connections, so that nobody is given one of ours while its process is dead.
const PORT_FIRST: u16 = 20_000;
/// How many ports are tried.
const PORTS: u16 = 10_000;
/// What the parts read when they start.
const SITE_FILE: &str = "site.json";

/// What the parts of one run have to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Site {
    /// Where everything is.
    pub(super) dir: PathBuf,
    /// How an invoice travels.
    pub(super) story: Story,
    /// Where Oncebox listens.
    pub(super) oncebox: SocketAddr,
    /// Where the second Oncebox of a chain listens.
    pub(super) downstream: SocketAddr,
    /// Where the line between the two is entered.
    pub(super) line: SocketAddr,
    /// Where Logistics listens.
    pub(super) logistics: SocketAddr,
    /// Invoices to be paid.
    pub(super) invoices: u32,
    /// Invoices that Finance marks paid in a second; 0: as fast as it can.
    pub(super) per_second: u32,
    /// What misfortune follows from.
    pub(super) seed: u32,
    /// Whether Logistics and Finance misbehave at all.
    pub(super) faults: bool,
    /// What is broken on purpose.
    pub(super) broken: Broken,
}

impl Site {
    /// Makes the directory, which must not be there, and chooses the ports.
    pub(super) fn make(dir: &Path, story: Story) -> Result<Self, Error> {
        DirBuilder::new().mode(0o700).create(dir).map_err(Error::file(dir))?;
        let [oncebox, downstream, line, logistics] = four_ports()?;
        Ok(Self {
            dir: dir.to_owned(),
            story,
            oncebox,
            downstream,
            line,
            logistics,
            invoices: 0,
            per_second: 0,
            seed: 0,
            faults: false,
            broken: Broken::Nothing,
        })
    }

    /// Writes what the parts read when they start.
    pub(super) fn write(&self) -> Result<(), Error> {
        let path = self.file();
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| Error::Site { path: path.clone(), source: error })?;
        fs::write(&path, text).map_err(Error::file(&path))?;
        for (role, address) in [(Role::Oncebox, self.oncebox), (Role::Downstream, self.downstream)]
        {
            let path = self.settings(role);
            let text = self.settings_text(role, address);
            fs::write(&path, text).map_err(Error::file(&path))?;
        }
        Ok(())
    }

    /// Reads what [`Site::write`] wrote.
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(Error::file(path))?;
        serde_json::from_str(&text).map_err(|source| Error::Site { path: path.to_owned(), source })
    }

    /// The settings of an Oncebox of the run.
    fn settings_text(&self, role: Role, address: SocketAddr) -> String {
        let steps = STEPS.map(|step| format!("\"{step}\"")).join(", ");
        let timeout = humantime::format_duration(TIMEOUT);
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
             reserve = 0\n",
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

    /// Where the token stands that may only publish.
    pub(super) fn publish_token(&self) -> PathBuf {
        self.dir.join("finance.token")
    }

    /// Where the secret stands that the Oncebox before Logistics signs with and Logistics checks.
    pub(super) fn secret(&self) -> PathBuf {
        self.dir.join("logistics.secret")
    }

    pub(super) fn admin_token(&self, role: Role) -> PathBuf {
        self.data(role).join(TOKEN_FILE)
    }

    /// How long Finance pays, if nobody kills it.
    pub(super) fn paying_for(&self) -> Duration {
        let ms = u64::from(self.invoices)
            .saturating_mul(1000)
            .checked_div(u64::from(self.per_second))
            .unwrap_or(0);
        Duration::from_millis(ms)
    }
}

/// Reads a file with one line in it.
pub(super) fn read_line(path: &Path) -> Result<String, Error> {
    Ok(fs::read_to_string(path).map_err(Error::file(path))?.trim().to_owned())
}

/// Writes a file that only its owner may read.
pub(super) fn write_secret(path: &Path, line: &str) -> Result<(), Error> {
    let open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = open.and_then(|mut file| file.write_all(line.as_bytes()));
    written.map_err(Error::file(path))
}

/// A client that may call loopback, and nothing else that is not public.
pub(super) fn loopback_client() -> Result<Client, Error> {
    let loopback = Ipv4Net::new_assert(Ipv4Addr::LOCALHOST, 8).trunc();
    let settings = ClientSettings {
        policy: AddressPolicy::new(vec![IpNet::V4(loopback)]),
        ca_pem: None,
        connect_timeout: TIMEOUT,
        idle_connections: 2,
    };
    Client::new(settings).map_err(Error::Client)
}

/// Ports nobody listens on, all held until all are found. They are looked for from a random place: a port
/// of another demo whose process is dead just then looks free as well.
fn four_ports() -> Result<[SocketAddr; 4], Error> {
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
    Err(Error::Ports(io::Error::from(io::ErrorKind::AddrInUse)))
}
