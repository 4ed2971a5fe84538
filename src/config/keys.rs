//! Every key there is: its name, what may be given, what it is for. The parser, `config show`, the schema,
//! the commented default file and `docs/configuration.md` are all made from this table.

use std::time::Duration;

use serde_json::Value;

use crate::config::amount::{Bytes, Size, Span, Steps};
use crate::config::parse::{
    Address, Flag, Form, Given, Maybe, Networks, Number, Path, Text, Url, Word,
};
use crate::config::settings::{LogFormat, LogLevel, Settings};
use crate::model::delivery;

/// The largest `limits.payload_bytes`.
pub const MAX_PAYLOAD_BYTES: u32 = 25 << 20;

/// When a changed value takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// With SIGHUP.
    Reload,
    /// With the next start.
    Restart,
}

/// A key of the file.
#[derive(Debug)]
pub struct Key {
    /// Its section.
    pub section: &'static str,
    /// Its name in the section.
    pub name: &'static str,
    /// What it is for: a sentence, or some.
    pub about: &'static str,
    /// When a changed value takes effect.
    pub takes: Takes,
    /// Where there is no default that can be shown: what holds then, and a value somebody could give.
    pub unset: Option<(&'static str, &'static str)>,
    put: fn(&mut Settings, Given<'_>) -> Result<(), String>,
    copy: fn(&mut Settings, &Settings),
    get: fn(&Settings) -> Value,
    schema: fn() -> Value,
    says: fn() -> String,
}

impl Key {
    /// `section.name`
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// The variable of the environment that sets it.
    pub fn variable(&self) -> String {
        format!("ONCEBOX_{}__{}", self.section, self.name).to_ascii_uppercase()
    }

    /// Takes a value.
    ///
    /// # Errors
    /// Why it cannot be used, as the rest of a sentence that begins with the key.
    pub fn put(&self, into: &mut Settings, given: Given<'_>) -> Result<(), String> {
        (self.put)(into, given)
    }

    /// Takes the value that other settings have.
    pub fn copy(&self, into: &mut Settings, from: &Settings) {
        (self.copy)(into, from);
    }

    /// The value as it would stand in a file; null where none holds.
    pub fn get(&self, from: &Settings) -> Value {
        (self.get)(from)
    }

    /// What may be given, as JSON Schema.
    pub fn schema(&self) -> Value {
        (self.schema)()
    }

    /// What may be given, for people.
    pub fn says(&self) -> String {
        (self.says)()
    }
}

/// The sections, in the order of the file, and what they are about.
pub const SECTIONS: [(&str, &str); 10] = [
    ("listen", "Where the service is reached."),
    ("database", "Where the data are."),
    ("keys", "The master key, under which every stored secret is sealed."),
    ("delivery", "How requests are sent."),
    ("limits", "How much is accepted."),
    ("sources", "Where events are read from besides the API."),
    ("disk", "How much of the disk is left free."),
    ("backup", "Backups by the clock."),
    ("log", "The log, which goes to stderr."),
    ("metrics", "What /metrics shows, and to whom."),
];

const TIMEOUT: Span = Span(*delivery::TIMEOUTS.start(), *delivery::TIMEOUTS.end());
const MANY: Number = Number(1, 1_000_000);
const PEBIBYTE: u64 = 1 << 50;
const ATTEMPTS: Number = Number(1, 1000);

/// One line of the table: `section.name`, its form, when a change takes effect, and what it is for.
macro_rules! key {
    ($section:ident . $name:ident, $form:expr, $takes:ident, $about:literal) => {
        key!($section.$name, $form, $takes, $about, None)
    };
    ($section:ident . $name:ident, $form:expr, $takes:ident, $about:literal, $unset:expr) => {
        Key {
            section: stringify!($section),
            name: stringify!($name),
            about: $about,
            takes: Takes::$takes,
            unset: $unset,
            put: |settings, given| {
                settings.$section.$name = $form.read(given)?;
                Ok(())
            },
            copy: |into, from| into.$section.$name.clone_from(&from.$section.$name),
            get: |settings| $form.shown(&settings.$section.$name),
            schema: || $form.schema(),
            says: || $form.says(),
        }
    };
}

/// The keys, in the order of the file.
pub const KEYS: [Key; 29] = [
    key!(
        listen.api,
        Address,
        Restart,
        "Address of the API. Put a TLS proxy in front of anything but loopback."
    ),
    key!(
        listen.intake,
        Maybe(Address),
        Restart,
        "Address of the intake (/in/…), so that a proxy reaches the intake only.",
        Some(("the API's", "\"127.0.0.1:8711\""))
    ),
    key!(
        listen.public_url,
        Maybe(Url),
        Reload,
        "URL of the intake, as the proxy shows it.",
        Some(("none", "\"https://hooks.example.com\""))
    ),
    key!(
        listen.trusted_proxies,
        Networks,
        Restart,
        "Proxies whose X-Forwarded-For and Forwarded count."
    ),
    key!(
        database.directory,
        Path,
        Restart,
        "Directory of the database and the first token; by default also of the master key.",
        Some(("systemd's state directory, else ~/.local/share/oncebox", "\"/var/lib/oncebox\""))
    ),
    key!(
        database.group,
        Maybe(Text),
        Restart,
        "Unix group that may open the database, for an ERP on this machine: modes 2770 and 0660 instead of 0700 and 0600.",
        Some(("none", "\"erp\""))
    ),
    key!(
        database.checkpoints,
        Flag,
        Restart,
        "Whether Oncebox empties the write-ahead log. Set false only if Litestream does; otherwise the log grows without end."
    ),
    key!(
        keys.master_key_file,
        Maybe(Path),
        Restart,
        "File of the master key, mode 0600. The systemd credential oncebox-master-key and the variable ONCEBOX_MASTER_KEY take precedence.",
        Some(("master.key in the data directory", "\"/etc/oncebox/master.key\""))
    ),
    key!(
        delivery.allow,
        Networks,
        Reload,
        "Private address ranges that may be called, such as your ERP's."
    ),
    key!(
        delivery.ca_file,
        Maybe(Path),
        Reload,
        "PEM file of the authorities to trust.",
        Some(("the web's", "\"/etc/oncebox/ca.pem\""))
    ),
    Key {
        section: "delivery",
        name: "steps",
        about: "Waits between attempts. The last one repeats.",
        takes: Takes::Reload,
        unset: None,
        put: |settings, given| {
            let most = settings.delivery.schedule.max_attempts();
            let schedule = delivery::Schedule::new(Steps.read(given)?, most);
            settings.delivery.schedule = schedule.map_err(|error| error.to_string())?;
            Ok(())
        },
        copy: |into, from| {
            let most = into.delivery.schedule.max_attempts();
            let steps = from.delivery.schedule.clone().with_max_attempts(most);
            into.delivery.schedule =
                steps.unwrap_or_else(|_within_bounds| from.delivery.schedule.clone());
        },
        get: |settings| Steps.shown(&settings.delivery.schedule.steps().to_vec()),
        schema: || Steps.schema(),
        says: || Steps.says(),
    },
    Key {
        section: "delivery",
        name: "max_attempts",
        about: "Counted attempts until a delivery becomes a dead letter.",
        takes: Takes::Reload,
        unset: None,
        put: |settings, given| {
            let most = ATTEMPTS.read(given)?;
            let schedule = settings.delivery.schedule.clone().with_max_attempts(most);
            settings.delivery.schedule = schedule.map_err(|error| error.to_string())?;
            Ok(())
        },
        copy: |into, from| {
            let most = from.delivery.schedule.max_attempts();
            let schedule = into.delivery.schedule.clone().with_max_attempts(most);
            into.delivery.schedule =
                schedule.unwrap_or_else(|_within_bounds| from.delivery.schedule.clone());
        },
        get: |settings| ATTEMPTS.shown(&settings.delivery.schedule.max_attempts()),
        schema: || ATTEMPTS.schema(),
        says: || ATTEMPTS.says(),
    },
    key!(delivery.timeout, TIMEOUT, Reload, "Time for a whole attempt."),
    key!(delivery.connect_timeout, TIMEOUT, Reload, "Time to connect."),
    key!(delivery.cap, Number(1, 256), Reload, "Requests in flight per subscription."),
    key!(
        delivery.deliverers,
        Number(1, 256),
        Restart,
        "Requests in flight in all (threads). Endpoints that hang share half of them; so does a tenant while another has something due."
    ),
    key!(
        limits.request_bytes,
        Bytes(1 << 10, 256 << 20),
        Reload,
        "The largest body of a publish request."
    ),
    key!(
        limits.payload_bytes,
        Bytes(1, MAX_PAYLOAD_BYTES),
        Reload,
        "The largest payload of one event."
    ),
    key!(
        limits.memory,
        Bytes(16 << 20, 2 << 30),
        Restart,
        "Memory for bodies, outgoing requests and rows in work. Above it requests get 503, and deliveries and sources wait."
    ),
    key!(limits.connections, MANY, Restart, "Open connections."),
    key!(
        limits.connections_per_address,
        MANY,
        Restart,
        "Open connections per IPv4 address or IPv6 /64. A trusted proxy may have any number; each client behind it may have this many requests at once."
    ),
    key!(
        sources.tenants_directory,
        Maybe(Path),
        Reload,
        "Holds one directory per tenant other than default, for its sources. Those of default may be anywhere but in the data directory.",
        Some(("these tenants can have no sources", "\"/srv/tenants\""))
    ),
    key!(
        disk.reserve,
        Maybe(Size(0, PEBIBYTE)),
        Reload,
        "Below this free space new work is refused with 507; outcomes are still stored. 0: never.",
        Some(("the smallest of max(64 MB, 5 %), 25 % of the file system and 1 GiB", "\"256MiB\""))
    ),
    key!(
        backup.directory,
        Maybe(Path),
        Restart,
        "Where scheduled backups are written, best on another disk.",
        Some(("backups in the data directory", "\"/var/backups/oncebox\""))
    ),
    key!(
        backup.every,
        Maybe(Span(Duration::from_mins(1), Duration::from_hours(24 * 366))),
        Restart,
        "How often a backup is made.",
        Some(("never", "\"24h\""))
    ),
    key!(backup.keep, Number(1, 10_000), Restart, "How many scheduled backups are kept."),
    key!(log.level, Word(&LogLevel::WORDS), Restart, "The lowest level that is logged."),
    key!(
        log.format,
        Word(&LogFormat::WORDS),
        Restart,
        "auto: logfmt on a terminal, JSON elsewhere."
    ),
    key!(
        metrics.public,
        Flag,
        Restart,
        "Whether /metrics needs no token; otherwise a token with the role read."
    ),
];
