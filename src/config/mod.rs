//! Settings from `oncebox.toml`, the environment and flags, checked once and then read only.
//!
//! [`settings::KEYS`] lists all of them. [`Sources::load`] applies defaults, file, environment and flags in this order,
//! and keeps the origin of every value. No other room reads the environment.

pub mod databases;
pub mod declared;
mod declared_terms;
mod environment;
mod field_form;
mod file;
mod forms;
pub mod pages;
mod permitted;
mod problem;
pub mod settings;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;

pub use environment::{CREDENTIALS, Environment, environment, own_variables};
#[cfg(any(test, feature = "internals"))]
pub use forms::ProxyUrl;
pub use forms::RawSetting;
pub use permitted::permitted;
pub use problem::{Origin, Problem, SettingsError};
#[cfg(any(test, feature = "internals"))]
pub use settings::KEY_FILE;
#[cfg(feature = "kafka")]
pub use settings::KafkaCompression;
pub use settings::{
    Delivery, Kafka, KafkaSasl, Listen, Log, LogFormat, LogLevel, Settings, Smtp, SmtpTls, Tenants,
    Unregistered,
};

use crate::sys::files::{self, directory_of};
use problem::{SourceText, did_you_mean};
use settings::{KEYS, Key, TakesEffect};

/// The paths of the file if none is named.
const DEFAULT_PATHS: [&str; 2] = ["oncebox.toml", "/etc/oncebox/oncebox.toml"];

/// The directory of more files, beside the file.
const MORE: &str = "conf.d";

/// The sources of settings.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file; `None`: the first of the default paths that exists, or none.
    pub file: Option<PathBuf>,
    /// The environment.
    pub environment: Environment,
    /// Flags: the key that each sets, the flag's name, and its value.
    pub flags: Vec<(String, String, String)>,
}

/// Loaded settings, and the origin of each.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The settings.
    pub settings: Settings,
    /// The file that was read, without the files of `conf.d`.
    pub file: Option<PathBuf>,
    /// What the file declares for `oncebox apply`.
    pub declared: declared::Declared,
    origins: BTreeMap<String, Origin>,
}

impl Loaded {
    /// The origin of a key's value.
    pub fn origin(&self, key: &Key) -> Origin {
        self.origins.get(&key.path()).cloned().unwrap_or_default()
    }

    fn set_origin(&mut self, key: &Key, origin: Origin) {
        self.origins.insert(key.path(), origin);
    }
}

impl Sources {
    /// Reads and checks everything. The error names every mistake.
    pub fn load(&self) -> Result<Loaded, SettingsError> {
        let mut loaded = Loaded::default();
        let mut problems = Vec::new();
        loaded.settings.database.directory = self.environment.data_directory();
        loaded.file = self.path();
        for path in loaded.file.as_deref().map(with_more).transpose()?.unwrap_or_default() {
            let text = files::read_text(&path).map_err(unreadable(&path))?;
            file::read(SourceText { path: &path, text: &text }, &mut loaded, &mut problems);
        }
        file::variables(self.environment.settings(), &mut loaded, &mut problems);
        for (path, flag, value) in &self.flags {
            let Some(key) = KEYS.iter().find(|key| key.path() == *path) else {
                let known: Vec<String> = KEYS.iter().map(Key::path).collect();
                let near = did_you_mean(path, known.iter().map(String::as_str));
                problems.push(Problem::new(flag, format!("there is no key {path}{near}")));
                continue;
            };
            match key.put(&mut loaded.settings, RawSetting::Text(value)) {
                Ok(()) => loaded.set_origin(key, Origin::Flag(flag.clone())),
                Err(wrong) => problems.push(Problem::new(flag, format!("{path} {wrong}"))),
            }
        }
        if problems.is_empty() { Ok(loaded) } else { Err(SettingsError::Wrong(problems)) }
    }

    /// Adds a flag that sets a key.
    pub fn flag(&mut self, path: &str, flag: &str, value: impl ToString) {
        self.flags.push((path.to_owned(), flag.to_owned(), value.to_string()));
    }

    /// The file to read: the named one, or the first default path that exists.
    fn path(&self) -> Option<PathBuf> {
        let usual = || DEFAULT_PATHS.iter().map(PathBuf::from).find(|path| Path::exists(path));
        self.file.clone().or_else(usual)
    }
}

/// The file, and those of [`MORE`] beside it by their names. Each overrides those before it.
fn with_more(file: &Path) -> Result<Vec<PathBuf>, SettingsError> {
    let directory = directory_of(file).join(MORE);
    let mut more = Vec::new();
    if directory.is_dir() {
        for entry in std::fs::read_dir(&directory).map_err(unreadable(&directory))? {
            more.push(entry.map_err(unreadable(&directory))?.path());
        }
    }
    more.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    more.sort();
    more.insert(0, file.to_owned());
    Ok(more)
}

fn unreadable(path: &Path) -> impl FnOnce(std::io::Error) -> SettingsError {
    let path = path.to_owned();
    move |source| SettingsError::Unreadable { path, source }
}

/// The current settings. Clones share them.
#[derive(Clone, Debug)]
pub struct Live {
    settings: Arc<RwLock<Arc<Settings>>>,
    origins: Arc<RwLock<BTreeMap<String, Origin>>>,
}

/// What a reload changes.
#[derive(Debug)]
pub struct Change {
    /// The settings after the reload.
    pub settings: Settings,
    /// Changed keys that take effect now.
    pub taken: Vec<&'static Key>,
    /// Changed keys that take effect after a restart.
    pub waiting: Vec<&'static Key>,
}

impl Live {
    /// Starts with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { settings: Arc::new(RwLock::new(Arc::new(settings))), origins: Arc::default() }
    }

    /// The current settings.
    pub fn get(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read())
    }

    /// Replaces the settings.
    pub fn set(&self, settings: Settings) {
        *self.settings.write() = Arc::new(settings);
    }

    /// The origin of the value of a key.
    pub fn origin(&self, key: &Key) -> Origin {
        self.origins.read().get(&key.path()).cloned().unwrap_or_default()
    }

    /// Takes over the origins of the values that are in force. The others wait for a restart.
    pub fn set_origins(&self, loaded: &Loaded) {
        let settings = self.get();
        let is_in_force = |key: &&Key| key.get(&settings) == key.get(&loaded.settings);
        let mut origins = self.origins.write();
        for key in KEYS.iter().filter(is_in_force) {
            origins.insert(key.path(), loaded.origin(key));
        }
    }

    /// Compares with `fresh`: the settings that a reload would lead to, and the changed keys.
    pub fn change_to(&self, fresh: &Settings) -> Change {
        let mut settings = Settings::clone(&self.get());
        let mut taken = Vec::new();
        let mut waiting = Vec::new();
        let differs = |key: &&Key| key.get(&settings) != key.get(fresh);
        let changed: Vec<&'static Key> = KEYS.iter().filter(differs).collect();
        for key in changed {
            match key.takes {
                TakesEffect::Restart => waiting.push(key),
                TakesEffect::Reload => {
                    key.copy(&mut settings, fresh);
                    taken.push(key);
                }
            }
        }
        Change { settings, taken, waiting }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str, environment: Environment) -> Result<Loaded, String> {
        let mut loaded = Loaded::default();
        let mut problems = Vec::new();
        file::read(
            SourceText { path: Path::new("oncebox.toml"), text },
            &mut loaded,
            &mut problems,
        );
        file::variables(environment.settings(), &mut loaded, &mut problems);
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        if lines.is_empty() { Ok(loaded) } else { Err(lines.join("\n")) }
    }

    fn parse(text: &str) -> Result<Settings, String> {
        load(text, Environment::default()).map(|loaded| loaded.settings)
    }

    #[test]
    fn an_empty_file_gives_the_documented_defaults() {
        let settings = parse("").unwrap();
        assert_eq!(settings.listen.api.to_string(), "127.0.0.1:8710");
        assert_eq!(settings.delivery.deliverers, 64);
        assert_eq!(settings.delivery.cap, 8);
        assert_eq!(settings.delivery.max_attempts, 22);
    }

    #[test]
    fn every_problem_is_named_with_its_place_and_what_was_meant() {
        let text = "[delivery]\nstepps = []\ncap = 0\ntimeout = \"soon\"\n\n[limit]\n[disk]\nreserve = true\n";
        let lines = parse(text).unwrap_err();
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(
            lines,
            [
                "oncebox.toml:3:7: delivery.cap is 0; it must be 1 to 256",
                "oncebox.toml:2:1: unknown key delivery.stepps; did you mean steps?",
                "oncebox.toml:4:11: delivery.timeout \"soon\" is not a span like 500ms, 30s or 5min",
                "oncebox.toml:8:11: disk.reserve is true or false; it must be a whole number",
                "oncebox.toml:6:2: unknown section limit; did you mean limits?",
            ]
        );
        for timeout in ["0s", "15min"] {
            let refusal = parse(&format!("[delivery]\ntimeout = \"{timeout}\"\n")).unwrap_err();
            assert!(refusal.ends_with("it must be 100ms to 10m"), "{refusal}");
        }
        assert_eq!(parse("[a\n").unwrap_err().lines().count(), 1);
    }

    #[test]
    fn a_key_that_moved_is_refused_with_where_it_is_now() {
        assert!(parse("data = \"x\"").unwrap_err().contains("[database] directory"));
        assert!(parse("listen = \"x\"").unwrap_err().contains("[listen]"));
        assert!(parse("[log]\ncap = 1").unwrap_err().contains("it belongs in [delivery]"));
    }

    #[test]
    fn the_environment_beats_the_file_and_both_are_remembered() {
        let environment = Environment::of([
            ("ONCEBOX_DELIVERY__CAP", "3"),
            ("ONCEBOX_DELIVERY__ALLOW", "10.0.0.0/8, 192.0.2.7"),
            ("ONCEBOX_TOKEN", "not a setting"),
        ]);
        let loaded = load("[delivery]\ncap = 4\ntimeout = \"3s\"\n", environment).unwrap();
        assert_eq!(loaded.settings.delivery.cap, 3);
        assert_eq!(loaded.settings.delivery.allow.len(), 2);
        let origin = |path: &str| {
            loaded.origin(KEYS.iter().find(|key| key.path() == path).unwrap()).to_string()
        };
        assert_eq!(origin("delivery.cap"), "environment ONCEBOX_DELIVERY__CAP");
        assert_eq!(origin("delivery.timeout"), "oncebox.toml:3");
        assert_eq!(origin("log.level"), "default");
        let wrong = Environment::of([("ONCEBOX_DELIVERY__CAPP", "3"), ("ONCEBOX_LOG__LEVEL", "x")]);
        let refusal = load("", wrong).unwrap_err();
        assert!(
            refusal.contains(
                "ONCEBOX_DELIVERY__CAPP: sets no key; did you mean ONCEBOX_DELIVERY__CAP?"
            )
        );
        assert!(refusal.contains("ONCEBOX_LOG__LEVEL: log.level is \"x\"; it must be error, warn"));
    }

    #[test]
    fn what_is_shown_is_read_back_as_the_same() {
        for key in KEYS {
            let shown = key.get(&Settings::default());
            if shown.is_null() {
                continue;
            }
            let text = format!("[{}]\n{} = {shown}\n", key.section, key.name);
            let read = parse(&text).unwrap_or_else(|error| panic!("{error} in {text}"));
            assert_eq!(read, Settings::default(), "{}", key.path());
        }
    }

    #[test]
    fn every_example_can_be_used_and_every_section_has_keys() {
        for key in KEYS {
            assert!(settings::SECTIONS.iter().any(|(section, _)| *section == key.section));
            let Some((_, example)) = key.unset else { continue };
            let text = format!("[{}]\n{} = {example}\n", key.section, key.name);
            assert!(parse(&text).is_ok(), "{text}");
        }
        for &(section, _) in settings::SECTIONS {
            assert!(KEYS.iter().any(|key| key.section == section), "{section} has no key");
        }
    }

    #[test]
    fn sizes_take_units() {
        let of = |text: &str| parse(&format!("[limits]\npayload_bytes = {text}\n"));
        assert_eq!(of("\"2MiB\"").unwrap().limits.payload_bytes, 2 << 20);
        assert_eq!(of("0x100").unwrap().limits.payload_bytes, 256);
        for wrong in ["\"2 apples\"", "0", "\"26MiB\"", "-1", "\"99999999999999999999GiB\"", "1.5"]
        {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_change_takes_what_can_be_taken_and_leaves_the_rest_as_it_was() {
        let live = Live::new(Settings::default());
        let mut fresh = Settings::default();
        fresh.delivery.cap = 3;
        fresh.delivery.deliverers = 2;
        fresh.delivery.max_attempts = 5;
        let change = live.change_to(&fresh);
        let paths = |keys: &[&Key]| keys.iter().map(|key| key.path()).collect::<Vec<_>>();
        assert_eq!(paths(&change.taken), ["delivery.max_attempts", "delivery.cap"]);
        assert_eq!(paths(&change.waiting), ["delivery.deliverers"]);
        live.set(change.settings);
        assert_eq!(live.get().delivery.max_attempts, 5);
        assert_eq!(live.get().delivery.deliverers, 64);
        assert!(live.change_to(&live.get()).taken.is_empty());
    }
}
