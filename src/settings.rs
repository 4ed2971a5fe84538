//! Settings: what `oncebox.toml`, the environment and the flags say, checked once, then read only.
//!
//! [`Raw`] is what somebody typed, as typed; [`Settings`] is what holds. Nothing else reads the
//! environment.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;

use crate::domain::address::AddressPolicy;
use crate::domain::disk::Budget;
use crate::domain::retry::{self, Schedule};

/// Where the service listens unless it is told: loopback only.
pub const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8710);
/// The largest body of a publish request: 16 MiB.
const REQUEST_BYTES_DEFAULT: u32 = 16 << 20;
/// The largest payload of one event: 1 MiB.
const PAYLOAD_BYTES_DEFAULT: u32 = 1 << 20;

/// The file as it is written. Every key may be left out; an unknown one is refused.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    /// Address and port to listen on, like `127.0.0.1:8710`.
    pub listen: Option<SocketAddr>,
    /// The directory for the database, the key and the first token.
    pub data: Option<PathBuf>,
    /// How requests are sent.
    #[serde(default)]
    pub delivery: RawDelivery,
    /// How much is accepted.
    #[serde(default)]
    pub limits: RawLimits,
    /// How much room is kept free.
    #[serde(default)]
    pub disk: RawDisk,
}

/// `[disk]` as it is written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawDisk {
    /// Bytes that are kept free for results.
    pub reserve: Option<u64>,
}

/// `[delivery]` as it is written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawDelivery {
    /// Address ranges that may be called although they are not public.
    #[serde(default)]
    pub allow: Vec<IpNet>,
    /// PEM roots to trust instead of the web's.
    pub ca_file: Option<PathBuf>,
    /// Waits between attempts; the last is repeated.
    pub steps: Option<Vec<String>>,
    /// Counted attempts until a delivery is given up.
    pub max_attempts: Option<u32>,
    /// Time for a whole attempt.
    pub timeout: Option<String>,
    /// Time to connect.
    pub connect_timeout: Option<String>,
    /// Requests in flight at once, per subscription.
    pub cap: Option<u32>,
    /// Requests in flight at once, in all.
    pub deliverers: Option<u32>,
}

/// `[limits]` as it is written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawLimits {
    /// The largest body of a publish request, in bytes.
    pub request_bytes: Option<u32>,
    /// The largest payload of one event, in bytes.
    pub payload_bytes: Option<u32>,
}

/// What holds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the service listens.
    pub listen: SocketAddr,
    /// The directory for the database, the key and the first token.
    pub data: PathBuf,
    /// How requests are sent.
    pub delivery: Delivery,
    /// The largest body of a publish request, in bytes.
    pub request_bytes: u32,
    /// The largest payload of one event, in bytes.
    pub payload_bytes: u32,
    /// How much room is kept free.
    pub disk: Budget,
}

/// How requests are sent.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Which addresses may be called.
    pub policy: AddressPolicy,
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

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not what it should be; the message has line and column.
    #[error("{path}: {source}")]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong and where.
        source: Box<toml::de::Error>,
    },
    /// A value is out of bounds.
    #[error("{key}: {problem}")]
    Value {
        /// The key, with its section.
        key: &'static str,
        /// What is wrong and what would be right.
        problem: String,
    },
}

impl Raw {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or has a key or value that is not known.
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| SettingsError::Unreadable { path: path.to_owned(), source })?;
        toml::from_str(&text).map_err(|source| SettingsError::Wrong {
            path: path.to_owned(),
            source: Box::new(source),
        })
    }

    /// Reads the file that was named, else `./oncebox.toml`, else `/etc/oncebox/oncebox.toml`, else none.
    ///
    /// # Errors
    /// When the one that is read cannot be used.
    pub fn find(named: Option<&Path>) -> Result<Self, SettingsError> {
        if let Some(path) = named {
            return Self::read(path);
        }
        for path in [Path::new("oncebox.toml"), Path::new("/etc/oncebox/oncebox.toml")] {
            if path.exists() {
                return Self::read(path);
            }
        }
        Ok(Self::default())
    }

    /// Checks the values and fills in the defaults.
    ///
    /// # Errors
    /// The first value that is out of bounds.
    pub fn resolve(self) -> Result<Settings, SettingsError> {
        let Self { listen, data, delivery, limits, disk } = self;
        let request_bytes = limits.request_bytes.unwrap_or(REQUEST_BYTES_DEFAULT);
        let payload_bytes = limits.payload_bytes.unwrap_or(PAYLOAD_BYTES_DEFAULT);
        within("limits.request_bytes", request_bytes, 1024, 256 << 20)?;
        within("limits.payload_bytes", payload_bytes, 1, 25 << 20)?;
        Ok(Settings {
            listen: listen.unwrap_or(LISTEN_DEFAULT),
            data: data.unwrap_or_else(data_default),
            delivery: delivery.resolve()?,
            request_bytes,
            payload_bytes,
            disk: Budget { reserve: disk.reserve },
        })
    }
}

impl RawDelivery {
    fn resolve(self) -> Result<Delivery, SettingsError> {
        let Self { allow, ca_file, steps, max_attempts, timeout, connect_timeout, cap, deliverers } =
            self;
        let default = Schedule::default();
        let most = max_attempts.unwrap_or_else(|| default.max_attempts());
        let schedule = match steps {
            None => default.with_max_attempts(most),
            Some(steps) => {
                let spans = steps.iter().map(|step| span("delivery.steps", step));
                Schedule::new(spans.collect::<Result<Vec<_>, _>>()?, most)
            }
        };
        let schedule = schedule.map_err(|error| SettingsError::Value {
            key: "delivery.steps",
            problem: error.to_string(),
        })?;
        let timeout = limit("delivery.timeout", timeout, Duration::from_secs(30))?;
        let connect_timeout =
            limit("delivery.connect_timeout", connect_timeout, Duration::from_secs(10))?;
        let (cap, deliverers) = (cap.unwrap_or(8), deliverers.unwrap_or(64));
        within("delivery.cap", cap, 1, 256)?;
        within("delivery.deliverers", deliverers, 1, 256)?;
        let policy = AddressPolicy::new(allow);
        Ok(Delivery { policy, ca_file, schedule, timeout, connect_timeout, cap, deliverers })
    }
}

/// A time limit, within the bounds that hold for subscriptions as well.
fn limit(
    key: &'static str,
    text: Option<String>,
    default: Duration,
) -> Result<Duration, SettingsError> {
    let limit = text.map_or(Ok(default), |text| span(key, &text))?;
    if retry::TIMEOUTS.contains(&limit) {
        return Ok(limit);
    }
    Err(SettingsError::Value { key, problem: "must be 100ms to 10min".to_owned() })
}

fn span(key: &'static str, text: &str) -> Result<Duration, SettingsError> {
    humantime::parse_duration(text).map_err(|error| SettingsError::Value {
        key,
        problem: format!("{text:?} is not a span like 500ms, 5s or 30min: {error}"),
    })
}

fn within(key: &'static str, have: u32, least: u32, most: u32) -> Result<(), SettingsError> {
    if (least..=most).contains(&have) {
        return Ok(());
    }
    Err(SettingsError::Value { key, problem: format!("is {have}; it must be {least} to {most}") })
}

/// A variable of the environment; `None` when it is not set or not text.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// systemd's state directory, else the user's own data directory, else a directory right here.
fn data_default() -> PathBuf {
    if let Some(state) = environment("STATE_DIRECTORY") {
        return PathBuf::from(state);
    }
    if let Some(home) = environment("XDG_DATA_HOME") {
        return PathBuf::from(home).join("oncebox");
    }
    match environment("HOME") {
        Some(home) => PathBuf::from(home).join(".local/share/oncebox"),
        None => PathBuf::from("oncebox-data"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings, String> {
        let raw: Raw = toml::from_str(text).map_err(|error| error.to_string())?;
        raw.resolve().map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_file_gives_the_documented_defaults() {
        let settings = parse("").unwrap();
        assert_eq!(settings.listen.to_string(), "127.0.0.1:8710");
        assert_eq!(settings.delivery.deliverers, 64);
        assert_eq!(settings.delivery.cap, 8);
        assert_eq!(settings.delivery.schedule.max_attempts(), 22);
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_place() {
        let refusal = parse("[delivery]\nstepps = []\n").unwrap_err();
        assert!(refusal.contains("stepps") && refusal.contains("line 2"), "{refusal}");
    }

    #[test]
    fn a_value_out_of_bounds_is_refused_with_its_bounds() {
        let refusal = parse("[delivery]\ndeliverers = 0\n").unwrap_err();
        assert_eq!(refusal, "delivery.deliverers: is 0; it must be 1 to 256");
        assert!(parse("[delivery]\ntimeout = \"soon\"\n").unwrap_err().contains("30min"));
        for timeout in ["0s", "15min"] {
            let refusal = parse(&format!("[delivery]\ntimeout = \"{timeout}\"\n")).unwrap_err();
            assert_eq!(refusal, "delivery.timeout: must be 100ms to 10min");
        }
    }
}
