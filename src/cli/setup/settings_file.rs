//! The settings of a setup, and their file: `conf.d/setup.toml` beside the settings file.
//!
//! That file is written anew by each run, and keeps what an earlier run has set. The settings file itself is made if there
//! is none, and never changed.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use crate::cli::prelude::*;
use crate::cli::setup::Report;
use crate::cli::setup::wishes::Wishes;
use crate::config::settings::{KEYS, Key, TakesEffect};
use crate::config::{Origin, RawSetting, Settings};
use crate::model::address::Reason;
use crate::model::target_url::TargetUrl;
use crate::sys::files::{NewFile, directory_of};

/// Where the settings go if there is no settings file.
const MAIN: &str = "oncebox.toml";
/// Beside it.
const OWN: &str = "conf.d/setup.toml";
const MAIN_TEXT: &str = "# Settings of Oncebox. `oncebox config default` prints all keys with their defaults.\n\
                         # More files: conf.d/*.toml beside this one; each overrides what was read before.\n";
const OWN_TEXT: &str = "# Written by `oncebox setup`, which writes it anew. It overrides oncebox.toml beside this directory. Your own settings\n\
                        # belong there, or into a file here with a later name, which overrides this one.\n";

/// What the wishes change of the settings.
pub(super) struct SettingsChange {
    pub(super) settings: Settings,
    /// The keys whose values change, or were changed by an earlier run.
    keys: Vec<&'static Key>,
    changed: Vec<&'static Key>,
    /// The settings file.
    main: PathBuf,
    /// The addresses of the target that are allowed now, each with the reason why it was not.
    allowed: Vec<(IpAddr, Reason)>,
}

impl SettingsChange {
    pub(super) fn of(global: &GlobalArgs, wishes: &Wishes) -> Result<Self, Failure> {
        let loaded = global.sources().load()?;
        let mut settings = loaded.settings.clone();
        put(&mut settings, "listen.api", "--listen", wishes.listen.as_deref())?;
        put(&mut settings, "listen.public_url", "--public-url", wishes.public_url.as_deref())?;
        let proxies = wishes.trusted_proxies.join(", ");
        let proxies = Some(proxies.as_str()).filter(|proxies| !proxies.is_empty());
        put(&mut settings, "listen.trusted_proxies", "--trusted-proxy", proxies)?;
        let target = wishes.target.as_deref();
        let allowed = target.map(|url| allow(&mut settings, url)).transpose()?.unwrap_or_default();

        let main = loaded.file.clone().unwrap_or_else(|| MAIN.into());
        let own = directory_of(&main).join(OWN);
        let is_own =
            |key: &&&Key| matches!(loaded.origin(key), Origin::File { path, .. } if path == own);
        let is_changed = |key: &&&Key| key.get(&loaded.settings) != key.get(&settings);
        let changed: Vec<&'static Key> = KEYS.iter().filter(|key| is_changed(&key)).collect();
        let keys = KEYS.iter().filter(|key| is_changed(&key) || is_own(&key)).collect();
        Ok(Self { settings, keys, changed, main, allowed })
    }

    /// Whether a change takes effect with a restart only.
    pub(super) fn needs_restart(&self) -> bool {
        self.changed.iter().any(|key| key.takes == TakesEffect::Restart)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changed.is_empty()
    }

    /// Whether a key's value changes.
    pub(super) fn changes(&self, path: &str) -> bool {
        self.changed.iter().any(|key| key.path() == path)
    }

    /// The keys that setup has set, each with its value as the API shows it.
    pub(super) fn shown(&self) -> BTreeMap<String, Value> {
        self.keys.iter().map(|key| (key.path(), key.shown(&self.settings))).collect()
    }

    /// Writes the file, if anything changes, and checks that nothing overrides it.
    pub(super) fn write(&self, global: &GlobalArgs, report: &mut Report) -> Result<(), Failure> {
        report.part("settings", json!(self.shown()));
        if self.is_empty() {
            return report.say("Settings: nothing to change");
        }
        let own = directory_of(&self.main).join(OWN);
        let written = write_all(&self.main, &own, &self.text());
        written.map_err(|error| unwritable(&own, &error))?;
        self.check(global)?;
        report.say(format_args!("Settings: {}", own.display()))?;
        for key in &self.changed {
            let value = key.get(&self.settings);
            report.say(format_args!("  {} = {value}", key.path()))?;
        }
        for (ip, reason) in &self.allowed {
            report.say(format_args!(
                "  ({ip} is {reason}, which is not called unless it is allowed)"
            ))?;
        }
        Ok(())
    }

    /// The file's text. A value is written in TOML as in JSON.
    fn text(&self) -> String {
        let mut lines = vec![OWN_TEXT.to_owned()];
        let mut section = "";
        for key in &self.keys {
            if key.section != section {
                section = key.section;
                lines.push(format!("[{section}]"));
            }
            lines.push(format!("{} = {}", key.name, key.get(&self.settings)));
        }
        lines.join("\n") + "\n"
    }

    /// Fails if a variable, or a file that is read later, sets a changed key to something else.
    fn check(&self, global: &GlobalArgs) -> Result<(), Failure> {
        let loaded = global.sources().load()?;
        for key in &self.changed {
            if key.get(&loaded.settings) != key.get(&self.settings) {
                let path = key.path();
                let origin = loaded.origin(key);
                let why = format!("{path} is set elsewhere, and that goes first: {origin}");
                return Err(Failure::new(exit::BAD_CONFIGURATION, why)
                    .and("Change it there, or remove it. Then run setup again."));
            }
        }
        Ok(())
    }
}

/// Sets a key as a flag says.
fn put(
    settings: &mut Settings,
    path: &str,
    flag: &str,
    value: Option<&str>,
) -> Result<(), Failure> {
    let Some(value) = value else { return Ok(()) };
    set(settings, path, value).map_err(|wrong| Failure::usage(format!("{flag} {wrong}")))
}

/// Sets a key to a text. The error continues a sentence that begins with the key.
pub(super) fn set(settings: &mut Settings, path: &str, value: &str) -> Result<(), String> {
    let key = KEYS.iter().find(|key| key.path() == path);
    key.map_or(Ok(()), |key| key.put(settings, RawSetting::Text(value)))
}

/// Whether a key has another value than its default.
pub(super) fn is_set(settings: &Settings, path: &str) -> bool {
    let key = KEYS.iter().find(|key| key.path() == path);
    key.is_some_and(|key| key.get(settings) != key.get(&Settings::default()))
}

/// Allows the addresses of a target that would not be called. Returns them.
fn allow(settings: &mut Settings, url: &str) -> Result<Vec<(IpAddr, Reason)>, Failure> {
    let parsed = TargetUrl::parse(url).map_err(|why| Failure::usage(format!("--target: {why}")))?;
    let host = parsed.host();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    // The port does not matter here.
    let addresses = match (bare, 80).to_socket_addrs() {
        Ok(addresses) => addresses.map(|address| address.ip()).collect(),
        Err(error) => {
            out::note(format_args!(
                "{host} has no address now ({error}): it is called once it has."
            ));
            Vec::new()
        }
    };
    let mut allowed = Vec::new();
    for ip in addresses {
        let Err(refused) = settings.delivery.policy().check(ip) else { continue };
        if refused.reason == Reason::Metadata {
            return Err(Failure::input(format!("--target: {ip} is {}", refused.reason)));
        }
        settings.delivery.allow.push(refused.entry);
        allowed.push((ip, refused.reason));
    }
    Ok(allowed)
}

/// Writes both files, so that the service's user may read them. The settings file is only made.
fn write_all(main: &Path, own: &Path, text: &str) -> std::io::Result<()> {
    if !main.exists() {
        NewFile::create(main)?.readable()?.finish(MAIN_TEXT.as_bytes())?;
    }
    fs::create_dir_all(directory_of(own))?;
    NewFile::create(own)?.readable()?.finish(text.as_bytes())
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    let why = format!("{}: {error}", path.display());
    if error.kind() == std::io::ErrorKind::PermissionDenied {
        return Failure::new(exit::NOT_PERMITTED, why)
            .and("Run it as root (sudo oncebox setup …).");
    }
    Failure::failed(why)
}
