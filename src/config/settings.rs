//! The table of settings: name, type, default, form and description of each.
//!
//! The structs that hold the values, their defaults, the parser, `config show`, the JSON Schema, the commented default
//! file and `docs/configuration.md` are all made from it.

#![expect(clippy::doc_markdown, reason = "descriptions of settings are plain text for people")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use serde_json::Value;

use crate::config::databases::{DatabaseAt, DatabaseTables};
use crate::config::forms::{
    Address, Addresses, Argv, BoxName, Bytes, Clusters, Commands, Domains, Flag, Form, Hosts,
    KeptFields, Maybe, Networks, Number, Path, ProxyAt, ProxyUrl, RawSetting, SecretPath, Size,
    Span, SpanOf, Steps, Text, Url, Word,
};
use crate::model::address::AddressPolicy;
use crate::model::delivery::{self, Schedule};
use crate::model::forward_proxy::{ForwardProxy, HostPattern};

/// The default address of the service: loopback only.
const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8710);
/// The default name of the master key's file in the data directory.
pub const KEY_FILE: &str = "master.key";
/// The largest `limits.payload_bytes`.
pub const MAX_PAYLOAD_BYTES: u32 = 25 << 20;
const TIMEOUT: Span = Span(*delivery::TIMEOUTS.start(), *delivery::TIMEOUTS.end());
const MANY: Number = Number(1, 1_000_000);
const PEBIBYTE: u64 = 1 << 50;

/// When a changed value takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakesEffect {
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
    /// Its description: one or more sentences.
    pub about: &'static str,
    /// When a changed value takes effect.
    pub takes: TakesEffect,
    /// For a key whose default is no value: the default in words, and an example.
    pub unset: Option<(&'static str, &'static str)>,
    put: fn(&mut Settings, RawSetting<'_>) -> Result<(), String>,
    copy: fn(&mut Settings, &Settings),
    get: fn(&Settings) -> Value,
    public: fn(&Settings) -> Value,
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

    /// Parses and sets a value. The error continues a sentence that begins with the key.
    pub fn put(&self, into: &mut Settings, given: RawSetting<'_>) -> Result<(), String> {
        (self.put)(into, given)
    }

    /// Copies the value from other settings.
    pub fn copy(&self, into: &mut Settings, from: &Settings) {
        (self.copy)(into, from);
    }

    /// The value as it is written in a file; null if there is none.
    pub fn get(&self, from: &Settings) -> Value {
        (self.get)(from)
    }

    /// The value as the API shows it; null if there is none, or if it is the place of a secret.
    pub fn shown(&self, from: &Settings) -> Value {
        (self.public)(from)
    }

    /// The allowed values as JSON Schema.
    pub fn schema(&self) -> Value {
        (self.schema)()
    }

    /// The allowed values as text.
    pub fn says(&self) -> String {
        (self.says)()
    }
}

/// Makes the structs of the settings, [`SECTIONS`] and [`KEYS`] from the table. A line is: name, type, default, form, when
/// a change takes effect, and description. If the default is no value, its meaning and an example follow; then the name in the
/// file, if it is another.
macro_rules! settings {
    (@named $name:ident) => { stringify!($name) };
    (@named $name:ident $shown:literal) => { $shown };
    (@unset) => { None };
    (@unset $says:literal $example:literal) => { Some(($says, $example)) };
    ($($section:ident: $Section:ident, $about:literal {
        $($name:ident: $type:ty = $default:expr, $form:expr, $takes:ident, $what:literal
            $(, unset $says:literal, $example:literal)? $(, named $shown:literal)?;)*
    })*) => {
        /// The settings in force. The fields are the sections of the file.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Settings {
            $(#[doc = $about] pub $section: $Section,)*
        }

        $(
            #[doc = $about]
            #[derive(Clone, Debug, PartialEq)]
            pub struct $Section {
                $(#[doc = $what] pub $name: $type,)*
            }

            impl Default for $Section {
                fn default() -> Self {
                    Self { $($name: $default,)* }
                }
            }
        )*

        /// The sections, in the order of the file, and what they are about.
        pub const SECTIONS: &[(&str, &str)] = &[$((without_raw_mark(stringify!($section)), $about),)*];

        /// The keys, in the order of the file.
        pub const KEYS: &[Key] = &[$($(
            Key {
                section: without_raw_mark(stringify!($section)),
                name: settings!(@named $name $($shown)?),
                about: $what,
                takes: TakesEffect::$takes,
                unset: settings!(@unset $($says $example)?),
                put: |settings, given| {
                    settings.$section.$name = $form.read(given)?;
                    Ok(())
                },
                copy: |into, from| into.$section.$name.clone_from(&from.$section.$name),
                get: |settings| $form.shown(&settings.$section.$name),
                public: |settings| $form.public(&settings.$section.$name),
                schema: || $form.schema(),
                says: || $form.says(),
            },
        )*)*];
    };
}

/// A name without the mark of a word that Rust keeps for itself.
const fn without_raw_mark(name: &str) -> &str {
    match name.as_bytes() {
        [b'r', b'#', ..] => name.split_at(2).1,
        _ => name,
    }
}

settings! {
    listen: Listen, "Addresses on which the service listens." {
        api: SocketAddr = LISTEN_DEFAULT, Address, Restart,
            "Address of the API. Put a TLS proxy in front of anything but loopback.";
        intake: Option<SocketAddr> = None, Maybe(Address), Restart,
            "Address of the intake (/in/…), so that a proxy reaches the intake only.",
            unset "the API's", "\"127.0.0.1:8711\"";
        console: Option<SocketAddr> = None, Maybe(Address), Restart,
            "Address of the console (/console/…), so that a proxy reaches the console only.",
            unset "the API's", "\"127.0.0.1:8712\"";
        public_url: Option<String> = None, Maybe(Url), Reload,
            "URL of the intake, as the proxy shows it.",
            unset "none", "\"https://hooks.example.com\"";
        trusted_proxies: Vec<IpNet> = Vec::new(), Networks, Restart,
            "Proxies whose X-Forwarded-For and Forwarded count.";
    }
    r#box: ThisBox, "This box among others (docs/scaling.md)." {
        name: Option<String> = None, Maybe(BoxName), Restart,
            "Its name, sent as oncebox-box with every event and in the source of CloudEvents. Set it before the first event.",
            unset "none", "\"shop-17\"";
    }
    database: Database, "The data directory and who may open the database." {
        directory: PathBuf = PathBuf::from("oncebox-data"), Path, Restart,
            "Directory of the database and the first token; by default also of the master key.",
            unset "systemd's state directory, else ~/.local/share/oncebox", "\"/var/lib/oncebox\"";
        group: Option<String> = None, Maybe(Text), Restart,
            "Unix group that may open the database and the archive, for an ERP on this machine: modes 2770 and 0660 instead of 0700 and 0600.",
            unset "none", "\"erp\"";
        checkpoints: bool = true, Flag, Restart,
            "Whether Oncebox empties the write-ahead log. Set false only if Litestream does; otherwise the log grows without end.";
    }
    keys: Keys, "The master key, under which every stored secret is sealed." {
        master_key_file: Option<PathBuf> = None, Maybe(SecretPath), Restart,
            "File of the master key, mode 0600. The systemd credential oncebox-master-key and the variable ONCEBOX_MASTER_KEY take precedence.",
            unset "master.key in the data directory", "\"/etc/oncebox/master.key\"";
        command: Vec<String> = Vec::new(), Argv, Restart,
            "Program that writes the master key to its output, such as a look-up in Vault, a TPM or systemd-creds; it takes precedence over master_key_file. Runs for 30 s at most. For an older key, ONCEBOX_KEY_ID in its environment has the id.",
            unset "none", "[\"/usr/bin/systemd-creds\", \"decrypt\", \"/etc/oncebox/master.cred\", \"-\"]";
        rotate_every: Option<Duration> = None, Maybe(Span(Duration::from_hours(1), Duration::from_hours(24 * 3660))), Reload,
            "How often the master key is rotated by itself. Only a key in master_key_file is. Keep the old keys as long as a backup names them.",
            unset "never", "\"365d\"";
    }
    delivery: Delivery, "Attempts, timeouts and concurrency of deliveries." {
        allow: Vec<IpNet> = Vec::new(), Networks, Reload,
            "Private address ranges that may be called, such as your ERP's.";
        ca_file: Option<PathBuf> = None, Maybe(Path), Reload,
            "PEM file of authorities to trust beside the machine's, for deliveries and mail.",
            unset "only the machine's", "\"/etc/oncebox/ca.pem\"";
        steps: Vec<Duration> = Schedule::default().steps().to_vec(), Steps, Reload,
            "Waits between the attempts of a delivery. The last one is repeated.";
        max_attempts: u32 = Schedule::default().max_attempts(), Number(1, 1000), Reload,
            "Counted attempts until a delivery is given up and becomes a dead letter.";
        timeout: Duration = Duration::from_secs(30), TIMEOUT, Reload,
            "Time for a whole attempt.";
        connect_timeout: Duration = Duration::from_secs(10), TIMEOUT, Reload,
            "Time to connect.";
        proxy: Option<ProxyUrl> = None, Maybe(ProxyAt), Reload,
            "Forward proxy through which targets, token endpoints and alert channels of HTTP are called (docs/operating.md). Addresses that are not public are called directly.",
            unset "none: everything is called directly", "\"http://proxy.example.com:3128\"";
        proxy_user: Option<String> = None, Maybe(Text), Reload,
            "The user to log on to the proxy with (Basic).",
            unset "none: no log-on", "\"oncebox\"";
        proxy_password_file: Option<PathBuf> = None, Maybe(SecretPath), Reload,
            "File of the user's password for the proxy, mode 0600.",
            unset "none: an empty password", "\"/etc/oncebox/proxy-password\"";
        proxy_except: Vec<HostPattern> = Vec::new(), Hosts, Reload,
            "Hosts that are called without the proxy: names with all names below them, address ranges, or *.";
        proxy_allow: Vec<HostPattern> = Vec::new(), Hosts, Reload,
            "Hosts that the proxy may be asked for although they look local or are denied.";
        proxy_deny: Vec<HostPattern> = Vec::new(), Hosts, Reload,
            "Hosts that the proxy is not asked for. The proxy looks names up, so delivery.allow cannot judge them; names that look local (erp, nas.local) are refused by themselves.";
        line_probe: Vec<SocketAddr> = Vec::new(), Addresses, Reload,
            "Addresses that show whether the site is online, such as your provider's DNS server. Empty: a default route.";
        cap: u32 = 8, Number(1, 256), Reload,
            "Requests in flight per subscription, usually: an endpoint that answers fast may get more. `policy.in_flight_max` is never exceeded.";
        deliverers: u32 = 64, Number(1, 256), Restart,
            "Requests in flight in all (threads). Endpoints that hang share half of them; so does a tenant while another has something due.";
    }
    limits: Limits, "Sizes, memory and connections." {
        request_bytes: u32 = 16 << 20, Bytes(1 << 10, 256 << 20), Reload,
            "The largest body of a publish request.";
        payload_bytes: u32 = 1 << 20, Bytes(1, MAX_PAYLOAD_BYTES), Reload,
            "The largest payload of one event.";
        memory: u32 = 128 << 20, Bytes(16 << 20, 2 << 30), Restart,
            "Memory for bodies, outgoing requests and rows in work. Above it requests get 503, and deliveries and sources wait.";
        connections: u32 = 10_000, MANY, Restart,
            "Open connections.";
        connections_per_address: u32 = 1_000, MANY, Restart,
            "Open connections per IPv4 address or IPv6 /64. A trusted proxy may have any number; each client behind it may have this many requests at once.";
    }
    tenants: Tenants, "What each tenant may have. What would exceed it is refused with 422." {
        subscriptions_max: u32 = 1_000, MANY, Reload,
            "Subscriptions. After a start those beyond it are paused, the newest first.";
        event_types_max: u32 = 1_000, MANY, Reload,
            "Event types.";
        providers_max: u32 = 200, MANY, Reload,
            "Providers.";
        sources_max: u32 = 50, MANY, Reload,
            "Sources.";
        channels_max: u32 = 50, MANY, Reload,
            "Alert channels.";
        tokens_max: u32 = 1_000, MANY, Reload,
            "Tokens that are not revoked.";
        users_max: u32 = 1_000, MANY, Reload,
            "Users.";
        terms_bytes_max: u32 = 8 << 20, Bytes(64 << 10, 1 << 30), Reload,
            "Text of its filters, templates, policies, schemas and the like, all together. After a start subscriptions beyond it are paused, the newest first.";
        all_terms_bytes_max: u32 = 64 << 20, Bytes(64 << 10, 1 << 30), Reload,
            "The same of all tenants together. A tenant may have three times what is left, so that one alone has three quarters. After a start subscriptions beyond equal shares are paused, the newest first.";
    }
    credentials: Credentials, "Rotation of credentials." {
        commands: BTreeMap<String, Vec<String>> = BTreeMap::new(), Commands, Reload,
            "Commands that make the next secret of a credential and write it to their output, by name. They run as the service, for 30 s at most.";
        auth_commands_per_day_max: u32 = 3, Number(0, 1_000), Reload,
            "How often commands are run for a subscription on a day (UTC) because its target refuses its credential.";
    }
    sources: Sources, "Sources of events other than the API." {
        tenants_directory: Option<PathBuf> = None, Maybe(Path), Reload,
            "Holds one directory per tenant other than default, for its sources and the folders that it writes to. Those of default may be anywhere but in the data directory.",
            unset "these tenants can have no sources and no folders", "\"/srv/tenants\"";
    }
    events: Events, "Events that are published." {
        unregistered: Unregistered = Unregistered::Accept, Word(Unregistered::WORDS), Reload,
            "What becomes of an event whose type is not registered: accept, or reject. What cannot be answered, such as rows of plain SQL, is quarantined.";
        keep_headers: Vec<String> = Vec::new(), KeptFields, Reload,
            "Header fields of a publish over HTTP that are kept with its events, such as user-agent; at most 16, and none that has a secret. Tenants with a policy on personal data keep none.";
    }
    databases: Databases, "Databases of others, such as an ERP's own, for sources and subscriptions (docs/databases.md)." {
        all: BTreeMap<String, DatabaseAt> = BTreeMap::new(), DatabaseTables, Restart,
            "A database under a name of yours.",
            unset "none", "{ driver = \"PostgreSQL Unicode\", server = \"10.0.0.5\", user = \"oncebox\" }", named "name";
    }
    idempotency: Idempotency, "The header Idempotency-Key." {
        strict: bool = false, Flag, Reload,
            "Whether a key must have 32 to 255 characters of A-Z, a-z, 0-9, _ and -. Otherwise 1 to 128 visible ASCII characters, except quotes, backslash, comma and semicolon.";
    }
    disk: Disk, "Free space that is kept." {
        reserve: Option<u64> = None, Maybe(Size(0, PEBIBYTE)), Reload,
            "Below this free space new work is refused with 507; outcomes are still stored. 0: never.",
            unset "the smallest of max(64 MB, 5 %), 25 % of the file system and 1 GiB", "\"256MiB\"";
    }
    console: Console, "The console, for people in a browser." {
        enabled: bool = true, Flag, Reload,
            "Whether there is a console.";
        public_url: Option<String> = None, Maybe(Url), Reload,
            "URL of the console, as the proxy shows it.",
            unset "listen.public_url, if the console has the intake's address", "\"https://oncebox.example.com\"";
        idle_timeout: Duration = Duration::from_hours(8), Span(Duration::from_mins(5), Duration::from_hours(24 * 30)), Reload,
            "A session that was not used for this long has ended.";
        session_lifetime: Duration = Duration::from_hours(7 * 24), Span(Duration::from_mins(5), Duration::from_hours(24 * 366)), Reload,
            "A session ends after this time at the latest.";
    }
    backup: Backup, "Scheduled backups." {
        directory: Option<PathBuf> = None, Maybe(Path), Restart,
            "Where scheduled backups are written, best on another disk.",
            unset "backups in the data directory", "\"/var/backups/oncebox\"";
        every: Option<Duration> = None, Maybe(Span(Duration::from_mins(1), Duration::from_hours(24 * 366))), Restart,
            "How often a backup is made.",
            unset "never", "\"24h\"";
        keep: u32 = 7, Number(1, 10_000), Restart,
            "How many scheduled backups are kept.";
    }
    archive: Archive, "Files with finished events, in archive/ beside the database (docs/data.md)." {
        after: Duration = Duration::from_hours(24 * 30), Span(Duration::from_hours(24), Duration::from_hours(24 * 3660)), Reload,
            "How long finished events stay in the database. Then they move into the file of the month in which they finished.";
        after_of: BTreeMap<String, Duration> = BTreeMap::new(), SpanOf(Duration::from_hours(24), Duration::from_hours(24 * 3660)), Reload,
            "The same of tenants for which it differs, by their names.";
        keep: Duration = Duration::from_hours(8_766), Span(Duration::from_hours(24), Duration::from_hours(24 * 3660)), Reload,
            "How long a file is kept after the end of its month. Then it is deleted, unless a legal hold needs it.";
        delete_when_full: bool = false, Flag, Reload,
            "Deletes the oldest file when the disk is as full as disk.reserve allows. An escalation tells it before and after.";
    }
    alerts: Alerts, "Alerts to people (docs/alerts.md)." {
        commands: BTreeMap<String, Vec<String>> = BTreeMap::new(), Commands, Reload,
            "Commands that alert channels may name, each a program and its arguments. The alert is on stdin as JSON.";
        allowed_domains: Vec<String> = Vec::new(), Domains, Reload,
            "Domains to which e-mail may go, of channels and of subscriptions, without their subdomains. Empty: any.";
        emails_per_day_max: u32 = 200, MANY, Reload,
            "E-mails of alerts of each tenant in a day (UTC). A quarter of them, at least one, is kept for critical escalations. What is over it waits for the next day.";
    }
    smtp: Smtp, "The mail server for alerts, and for subscriptions that send mails (docs/files.md)." {
        host: Option<String> = None, Maybe(Text), Reload,
            "Its name. Its certificate must be for that name.",
            unset "none: no e-mail", "\"mail.example.com\"";
        port: Option<u32> = None, Maybe(Number(1, 65_535)), Reload,
            "Its port.",
            unset "587; 465 with tls; 25 with none", "587";
        tls: SmtpTls = SmtpTls::StartTls, Word(SmtpTls::WORDS), Reload,
            "How the connection is encrypted. none is for localhost only.";
        user: Option<String> = None, Maybe(Text), Reload,
            "The user to log on with.",
            unset "none: no log-on", "\"alerts@example.com\"";
        password_file: Option<PathBuf> = None, Maybe(SecretPath), Reload,
            "File of the password, mode 0600.",
            unset "the systemd credential oncebox-smtp-password", "\"/etc/oncebox/smtp-password\"";
        from: Option<String> = None, Maybe(Text), Reload,
            "The sender's address.",
            unset "oncebox@ and the host", "\"Oncebox <alerts@example.com>\"";
        timeout: Duration = Duration::from_secs(20), TIMEOUT, Reload,
            "Time to connect, and for each answer. A mail may take four times as long.";
        event_mails_per_day_max: u32 = 1_000, MANY, Reload,
            "E-mails of events of each tenant in a day (UTC). They count apart from those of alerts. What is over it waits for the next day.";
    }
    kafka: Kafka, "Clusters of Kafka or Redpanda, for subscriptions with the target kafka (docs/kafka.md)." {
        clusters: BTreeMap<String, Vec<String>> = BTreeMap::new(), Clusters, Reload,
            "The brokers of each cluster, by its name: each a host and a port. A cluster that names others as its brokers is refused.";
        tls: bool = true, Flag, Reload,
            "Whether connections are encrypted. The certificates to trust are those of deliveries (delivery.ca_file).";
        sasl: KafkaSasl = KafkaSasl::None, Word(KafkaSasl::WORDS), Reload,
            "How subscriptions log on: with a credential of the kind basic, with oauthbearer of the kind oauth2.";
        compression: KafkaCompression = KafkaCompression::Lz4, Word(KafkaCompression::WORDS), Reload,
            "How batches are compressed.";
    }
    log: Log, "The log on stderr." {
        level: LogLevel = LogLevel::Info, Word(LogLevel::WORDS), Restart,
            "The lowest level that is logged.";
        format: LogFormat = LogFormat::Auto, Word(LogFormat::WORDS), Restart,
            "auto: logfmt on a terminal, JSON elsewhere.";
    }
    traces: Traces, "Traces of attempts for a collector of OpenTelemetry (docs/operating.md)." {
        endpoint: Option<String> = None, Maybe(Url), Restart,
            "Where spans go: OTLP over HTTP, as JSON. It is called directly, whatever delivery.allow says.",
            unset "none, and no spans are made", "\"http://127.0.0.1:4318/v1/traces\"";
    }
    metrics: Metrics, "Access to /metrics." {
        public: bool = false, Flag, Restart,
            "Whether /metrics needs no token; otherwise a token with the role read.";
    }
}

/// Makes the types of values that are one word of several.
macro_rules! words {
    ($($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ })+) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant),)+];
        }
    )+};
}

words! {
    /// The lowest level that is logged.
    LogLevel {
        /// Errors that need a person.
        Error = "error",
        /// Also errors that were dealt with.
        Warn = "warn",
        /// Also what happened.
        Info = "info",
        /// Also how it happened.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
    /// What becomes of events whose type is not registered.
    Unregistered {
        /// They pass unchecked.
        Accept = "accept",
        /// They are refused.
        Reject = "reject",
    }
    /// How the connection to the mail server is encrypted.
    SmtpTls {
        /// It begins in the clear and must become TLS before anything is said.
        StartTls = "starttls",
        /// TLS from the first byte.
        Tls = "tls",
        /// Not at all.
        None = "none",
    }
    /// How a connection to a broker logs on.
    KafkaSasl {
        /// Not at all, or by its client certificate.
        None = "none",
        /// With user and password, which TLS protects.
        Plain = "plain",
        /// With a proof of the password, SHA-256.
        ScramSha256 = "scram-sha-256",
        /// With a proof of the password, SHA-512.
        ScramSha512 = "scram-sha-512",
        /// With a token of OAuth 2.0, which TLS protects.
        Oauthbearer = "oauthbearer",
    }
    /// How what is written to Kafka is compressed.
    KafkaCompression {
        /// Not at all.
        None = "none",
        /// zlib.
        Gzip = "gzip",
        /// Snappy.
        Snappy = "snappy",
        /// LZ4.
        Lz4 = "lz4",
        /// Zstandard.
        Zstd = "zstd",
    }
    /// The format of the log.
    LogFormat {
        /// logfmt on a terminal, JSON elsewhere.
        Auto = "auto",
        /// `key=value`
        Logfmt = "logfmt",
        /// One object a line.
        Json = "json",
    }
}

impl Settings {
    /// The intake's address: its own, or the API's.
    pub fn intake(&self) -> SocketAddr {
        self.listen.intake.unwrap_or(self.listen.api)
    }

    /// The public URL of the console: its own, or the intake's where both have one address.
    pub fn console_url(&self) -> Option<&str> {
        let Listen { intake, console, public_url, .. } = &self.listen;
        let is_shared = intake.is_none() && console.is_none();
        let shared = public_url.as_deref().filter(|_| is_shared);
        self.console.public_url.as_deref().or(shared)
    }

    /// The file of the master key.
    pub fn master_key_file(&self) -> PathBuf {
        let inside = || self.directory().join(KEY_FILE);
        self.keys.master_key_file.clone().unwrap_or_else(inside)
    }

    /// The directory of the database, the first token and, by default, the key.
    pub fn directory(&self) -> &FilePath {
        &self.database.directory
    }

    /// Where scheduled backups are written.
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

    /// The forward proxy and its rules.
    pub fn forward_proxy(&self) -> Option<ForwardProxy> {
        let ProxyUrl { host, port } = self.proxy.clone()?;
        let [except, allow, deny] =
            [&self.proxy_except, &self.proxy_allow, &self.proxy_deny].map(Vec::clone);
        Some(ForwardProxy { host, port, except, allow, deny })
    }

    /// The waits and the number of attempts. Their bounds were checked when they were read.
    pub fn schedule(&self) -> Schedule {
        Schedule::new(self.steps.clone(), self.max_attempts).unwrap_or_default()
    }
}
