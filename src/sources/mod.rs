//! Sources: events are read from an ERP's own `SQLite` file, from a table of its database, from a folder or from a provider's
//! list, besides the API.
//!
//! Every row first becomes a [`draft::Draft`], then an event. [`relays`] runs one thread (`relay`) for each active
//! source. It reads some rows, stores them and the new cursor in one transaction, and waits. [`tables`] has the SQL
//! for our own tables and for the ERP's.

pub mod cell;
pub mod database_connection;
mod database_reader;
pub mod database_settings;
mod database_stall;
pub mod database_state;
pub mod draft;
mod folder_reader;
pub mod folder_settings;
pub mod http_client;
mod http_items;
pub mod http_list;
mod http_pass;
pub mod http_presets;
mod http_reader;
pub mod http_round;
pub mod http_settings;
pub mod inspect;
pub mod reading;
pub mod reconciliation;
mod relay;
pub mod relays;
mod rows;
mod shared;
mod table_reader;
pub mod table_settings;
pub mod tables;
pub mod target_list;
mod transfer;

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde_json::{Value, json};

use crate::base::clock::Timestamp;
use crate::base::words::words;
use crate::model::event_field::EventField;
use crate::model::name::Name;
use crate::sources::database_settings::DatabaseSettings;
use crate::sources::folder_settings::FolderSettings;
use crate::sources::http_settings::HttpSettings;
use crate::sources::table_settings::TableSettings;

pub use inspect::permitted;
pub use shared::{RelayServices, SourceStatus, SourceStatuses};

/// The shortest time without an event that can raise an escalation.
pub const SILENCE_LEAST: Duration = Duration::from_secs(1);
/// The longest such time: a year.
pub const MAX_SILENCE: Duration = Duration::from_hours(366 * 24);

/// Fields without a default. With a default key, for example, only the first row would be stored.
const WITHOUT_DEFAULT: [EventField; 4] = [
    EventField::IdempotencyKey,
    EventField::Payload,
    EventField::OccurredAt,
    EventField::NotBefore,
];

/// The settings of a source.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(untagged, description = "", rename = "SourceSettings")]
pub enum Settings {
    // A table of an ERP's own SQLite file.
    Sqlite(TableSettings),
    // A folder that files are put into.
    Drop(FolderSettings),
    // A table of an ERP's own database.
    Database(DatabaseSettings),
    // A list that is read over HTTP.
    Http(Box<HttpSettings>),
}

impl Settings {
    /// Reads the settings of a kind; an error is a sentence without its full stop.
    pub fn read(kind: &str, settings: Value) -> Result<Self, String> {
        let wrong = |error: serde_json::Error| {
            format!("the settings of a source of kind {kind} are wrong: {error}")
        };
        let read = match kind {
            "sqlite" => serde_json::from_value(settings).map(Self::Sqlite).map_err(wrong),
            "drop" => serde_json::from_value(settings).map(Self::Drop).map_err(wrong),
            "database" => serde_json::from_value(settings).map(Self::Database).map_err(wrong),
            "http" => serde_json::from_value(settings).map(Self::Http).map_err(wrong),
            _ => Err(format!(
                "there is no source of kind {kind:?}; there are sqlite, drop, database and http"
            )),
        }?;
        read.check()?;
        Ok(read)
    }

    /// The name of the kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "sqlite",
            Self::Drop(_) => "drop",
            Self::Database(_) => "database",
            Self::Http(_) => "http",
        }
    }

    /// The file or folder that is read; a database and a list have none.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Sqlite(table) => Some(&table.path),
            Self::Drop(folder) => Some(&folder.path),
            Self::Database(_) | Self::Http(_) => None,
        }
    }

    /// These settings with another path.
    #[must_use]
    pub fn at(&self, path: PathBuf) -> Self {
        match self {
            Self::Sqlite(table) => Self::Sqlite(TableSettings { path, ..table.clone() }),
            Self::Drop(folder) => Self::Drop(FolderSettings { path, ..folder.clone() }),
            Self::Database(_) | Self::Http(_) => self.clone(),
        }
    }

    /// The stored and shown form.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Sqlite(table) => json!(table),
            Self::Drop(folder) => json!(folder),
            Self::Database(database) => json!(database),
            Self::Http(list) => json!(list),
        }
    }

    /// Values for fields that a row does not have.
    pub fn defaults(&self) -> &BTreeMap<EventField, String> {
        match self {
            Self::Sqlite(table) => &table.defaults.0,
            Self::Drop(folder) => &folder.defaults.0,
            Self::Database(database) => &database.defaults.0,
            Self::Http(list) => &list.defaults.0,
        }
    }

    /// Names of fields in the source that differ from ours.
    pub fn names(&self) -> &BTreeMap<EventField, String> {
        match self {
            Self::Sqlite(table) => &table.columns.0,
            Self::Drop(folder) => &folder.fields.0,
            Self::Database(database) => &database.columns.0,
            Self::Http(list) => &list.fields.0,
        }
    }

    fn check(&self) -> Result<(), String> {
        if let Some(path) = self.path() {
            check_path(path)?;
        }
        let odd = WITHOUT_DEFAULT.iter().find(|field| self.defaults().contains_key(field));
        if let Some(field) = odd {
            let field = field.as_str();
            return Err(format!("{field} can have no default: each row has its own, or none"));
        }
        match self {
            Self::Sqlite(table) => table.check(),
            Self::Drop(folder) => folder.check(),
            Self::Database(database) => database.check(),
            Self::Http(list) => list.check(),
        }
    }
}

fn check_path(path: &Path) -> Result<(), String> {
    let is_plain = path.components().all(|part| !matches!(part, Component::ParentDir));
    if path.is_absolute() && is_plain {
        return Ok(());
    }
    let shown = path.display();
    Err(format!("the path {shown} must begin with / and have no .. in it"))
}

words! {
    /// Whether a source is read. Stored in `sources.state`.
    pub enum SourceState as "SourceState" {
        /// It is read.
        Active = "ACTIVE",
        /// A person has paused it: its rows or files wait.
        Paused = "PAUSED",
    }
}

/// A source to be stored.
#[derive(Clone, Debug)]
pub struct NewSource {
    /// A fresh UUIDv7.
    pub id: String,
    /// The tenant that owns it.
    pub tenant: String,
    /// Unique per tenant; also the `source_system` of its events.
    pub name: Name,
    /// How it is read.
    pub settings: Settings,
    /// The last row that is not read again. For a list the time up to which it was read, in milliseconds.
    pub cursor: i64,
    /// After this time without an event an escalation is raised.
    pub silent_after: Option<Duration>,
}

/// A stored source.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its number in the file.
    pub seq: i64,
    /// Its settings, and its current cursor.
    pub new: NewSource,
    /// Whether it is read.
    pub state: SourceState,
    /// What identified the table when it was last read ([`table_settings::Identity`]), as JSON.
    pub identity: Option<String>,
    /// Events read from it.
    pub event_count: u64,
    /// When the last event was read.
    pub last_event_at: Option<Timestamp>,
    /// When reading it was last stored; it may have been read since without new rows.
    pub last_read_at: Option<Timestamp>,
    /// Why it cannot be read now.
    pub last_error: Option<String>,
    /// Since when it cannot be read.
    pub failing_since: Option<Timestamp>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When a person last changed it.
    pub updated_at: Timestamp,
}

impl Source {
    /// Since when it is silent, if that is too long.
    pub fn silent_since(&self, now: Timestamp) -> Option<Timestamp> {
        let after = self.new.silent_after?;
        // A resume or a change restarts the wait.
        let since = self.last_event_at.map_or(self.updated_at, |at| at.max(self.updated_at));
        (self.state == SourceState::Active && now.since(since) >= after).then_some(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_their_json_form() {
        let given = json!({ "path": "/srv/erp.db", "columns": { "event_type": "kind" } });
        let read = Settings::read("sqlite", given).unwrap();
        assert_eq!(Settings::read(read.kind(), read.to_json()), Ok(read));
    }

    #[test]
    fn wrong_settings_are_refused_with_the_reason() {
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
            ("database", json!({}), "missing field `database`"),
            ("database", json!({ "database": "ERP" }), "kind database are wrong"),
            (
                "database",
                json!({ "database": "erp", "mode": "cursor" }),
                "unknown variant `cursor`",
            ),
            ("database", json!({ "database": "erp", "id": "" }), "name of a table or column"),
            ("drop", json!({ "path": "/x", "format": "xml" }), "row is missing"),
            ("drop", json!({ "path": "/x", "delimiter": "\"" }), "delimiter"),
            ("drop", json!({ "path": "/x", "writer": "guess" }), "unknown variant"),
        ] {
            let error = Settings::read(kind, settings).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
