//! A source: a place besides the API where events are read from, such as an ERP's own `SQLite` file or a folder.
//!
//! What is read becomes a [`draft::Draft`] first, whatever the kind, and an event after that. [`relays`] keeps one
//! thread for each source that is to be read. Such a thread (`relay`) reads a little, stores it in one transaction
//! with how far it was read, and waits. [`tables`] has the SQL: of our own tables, and of the ERP's.

pub mod draft;
pub mod field;
mod folder_reader;
pub mod folder_settings;
pub mod inspect;
pub mod reading;
mod relay;
pub mod relays;
mod shared;
mod table_reader;
pub mod table_settings;
pub mod tables;
mod transfer;

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::base::clock::Timestamp;
use crate::model::name::Name;
use crate::sources::field::{Field, SettingsError};
use crate::sources::folder_settings::FolderSettings;
use crate::sources::table_settings::TableSettings;

pub use inspect::permitted;
pub use shared::{Shared, SourceStatus, SourceStatuses};

/// The shortest time without an event that can be an escalation.
pub const SILENCE_LEAST: Duration = Duration::from_secs(1);
/// The longest: a year.
pub const MAX_SILENCE: Duration = Duration::from_hours(366 * 24);

/// Fields that are a row's own. With one key for all, the first row would be the only one.
const WITHOUT_DEFAULT: [Field; 4] =
    [Field::IdempotencyKey, Field::Payload, Field::OccurredAt, Field::NotBefore];

/// How a source is read, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settings {
    /// A table of an ERP's own `SQLite` file.
    Sqlite(TableSettings),
    /// A folder that files are put into.
    Drop(FolderSettings),
}

impl Settings {
    /// Reads the settings of a kind.
    pub fn read(kind: &str, settings: Value) -> Result<Self, SettingsError> {
        let wrong = |error: serde_json::Error| {
            SettingsError(format!("the settings of a source of kind {kind} are wrong: {error}"))
        };
        let read = match kind {
            "sqlite" => serde_json::from_value(settings).map(Self::Sqlite).map_err(wrong),
            "drop" => serde_json::from_value(settings).map(Self::Drop).map_err(wrong),
            _ => Err(SettingsError(format!(
                "there is no source of kind {kind:?}; there are sqlite and drop"
            ))),
        }?;
        read.check()?;
        Ok(read)
    }

    /// The word of the kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "sqlite",
            Self::Drop(_) => "drop",
        }
    }

    /// The file or folder that is read.
    pub fn path(&self) -> &Path {
        match self {
            Self::Sqlite(table) => &table.path,
            Self::Drop(folder) => &folder.path,
        }
    }

    /// The same, with the file or folder at another path.
    #[must_use]
    pub fn at(&self, path: PathBuf) -> Self {
        match self {
            Self::Sqlite(table) => Self::Sqlite(TableSettings { path, ..table.clone() }),
            Self::Drop(folder) => Self::Drop(FolderSettings { path, ..folder.clone() }),
        }
    }

    /// What is stored and shown.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Sqlite(table) => json!(table),
            Self::Drop(folder) => json!(folder),
        }
    }

    /// Values of fields that a row does not have.
    pub const fn defaults(&self) -> &BTreeMap<Field, String> {
        match self {
            Self::Sqlite(table) => &table.defaults,
            Self::Drop(folder) => &folder.defaults,
        }
    }

    /// Names that fields have in the source, where these are others.
    pub const fn names(&self) -> &BTreeMap<Field, String> {
        match self {
            Self::Sqlite(table) => &table.columns,
            Self::Drop(folder) => &folder.fields,
        }
    }

    fn check(&self) -> Result<(), SettingsError> {
        let path = self.path();
        let plain = path.components().all(|part| !matches!(part, Component::ParentDir));
        if !path.is_absolute() || !plain {
            let why = format!("the path {} must begin with / and have no .. in it", path.display());
            return Err(SettingsError(why));
        }
        let odd = WITHOUT_DEFAULT.iter().find(|field| self.defaults().contains_key(field));
        if let Some(field) = odd {
            let (field, why) = (field.as_str(), "each row has its own, or none");
            return Err(SettingsError(format!("{field} can have no default: {why}")));
        }
        match self {
            Self::Sqlite(table) => table.check(),
            Self::Drop(folder) => folder.check(),
        }
    }
}

/// Whether it is read. Stored in `sources.state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is read.
    Active,
    /// A person has paused it: what is there waits.
    Paused,
}

impl State {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Active, Self::Paused];

    /// The word in SQL and API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "ACTIVE",
            Self::Paused => "PAUSED",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// A source to be stored.
#[derive(Clone, Debug)]
pub struct NewSource {
    /// A fresh UUIDv7.
    pub id: String,
    /// Whose it is.
    pub tenant: String,
    /// Unique per tenant; also the `source_system` of its events.
    pub name: Name,
    /// How it is read.
    pub settings: Settings,
    /// Behind which row it begins.
    pub cursor: i64,
    /// No event for this long is an escalation.
    pub silent_after: Option<Duration>,
}

/// A source as kept.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its number in the file.
    pub seq: i64,
    /// What it was stored with; `cursor` is where it stands now.
    pub new: NewSource,
    /// Whether it is read.
    pub state: State,
    /// What the file was when it was last read, as JSON.
    pub identity: Option<String>,
    /// Events that came from it.
    pub event_count: u64,
    /// When the last of them came.
    pub last_event_at: Option<Timestamp>,
    /// When it was last read, as far as that was stored.
    pub last_read_at: Option<Timestamp>,
    /// Why it cannot be read now.
    pub last_error: Option<String>,
    /// Since when.
    pub failing_since: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed by a person.
    pub updated_at: Timestamp,
}

impl Source {
    /// Since when it is silent, if that is for too long now.
    pub fn silent_since(&self, now: Timestamp) -> Option<Timestamp> {
        let after = self.new.silent_after?;
        // A resume or a change starts the wait anew.
        let since = self.last_event_at.map_or(self.updated_at, |at| at.max(self.updated_at));
        (self.state == State::Active && now.since(since) >= after).then_some(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_back_as_they_are_shown() {
        let given = json!({ "path": "/srv/erp.db", "columns": { "event_type": "kind" } });
        let read = Settings::read("sqlite", given).unwrap();
        assert_eq!(Settings::read(read.kind(), read.to_json()), Ok(read));
    }

    #[test]
    fn what_cannot_be_used_is_said() {
        for (kind, settings, why) in [
            ("odbc", json!({}), "no source of kind"),
            ("sqlite", json!({}), "missing field `path`"),
            ("sqlite", json!({ "path": "erp.db" }), "must begin with /"),
            ("sqlite", json!({ "path": "/srv/../etc/x" }), "no .."),
            ("sqlite", json!({ "path": "/x", "tabel": "outbox" }), "unknown field `tabel`"),
            ("sqlite", json!({ "path": "/x", "columns": { "typ": "a" } }), "unknown variant `typ`"),
            ("sqlite", json!({ "path": "/x", "table": "" }), "table"),
            (
                "sqlite",
                json!({ "path": "/x", "defaults": { "idempotency_key": "k" } }),
                "idempotency_key can have no default",
            ),
            ("drop", json!({ "path": "/x", "format": "xml" }), "row is missing"),
            ("drop", json!({ "path": "/x", "delimiter": "\"" }), "delimiter"),
            ("drop", json!({ "path": "/x", "writer": "guess" }), "unknown variant"),
        ] {
            let error = Settings::read(kind, settings).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
