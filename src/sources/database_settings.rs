//! The settings of a source of kind `database`: a table of an ERP's own `PostgreSQL`, `MariaDB` or SQL Server.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::schema::Text;
use crate::base::words::words;
use crate::model::event_field::EventField;
use crate::model::name::Name;
use crate::sources::cell::TextsByField;
use crate::sources::table_settings::{MAX_NAME_CHARS, check_name};

words! {
    /// How it is known which rows were read.
    pub enum Mode as "SourceMode" {
        /// Each row that was read is marked in the table.
        Mark = "mark",
        /// For two boxes on one table: a box claims rows, then reads and marks its own.
        Claim = "claim",
        /// `PostgreSQL` only: rows are read in the order of the transactions that wrote them; nothing is changed.
        Xid8 = "xid8",
    }
}

impl Mode {
    /// The flag of `source ddl` that prints a table for it.
    pub const fn ddl_flag(self) -> &'static str {
        match self {
            Self::Mark => "",
            Self::Claim => " --two-boxes",
            Self::Xid8 => " --read-only",
        }
    }
}

/// Which table of which database is read, and which column is which field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(description = "", extend("x-of" = { "kind": ["database"] }))]
pub struct DatabaseSettings {
    /// The name of the database in the settings file: `[databases.NAME]`.
    pub database: Name,
    /// The table, with its schema before it where that is needed: `sales.outbox`; `outbox`, if absent.
    #[serde(default = "outbox")]
    #[schemars(with = "Text<1, MAX_NAME_CHARS>")]
    pub table: String,
    /// How it is known which rows were read: `mark` (if absent), `claim` for two boxes on one table, `xid8` without any
    /// right to change the table (`PostgreSQL` only).
    #[serde(default = "mark")]
    pub mode: Mode,
    /// Its column with a whole number that no other row has; `id`, if absent.
    #[serde(default = "id")]
    #[schemars(with = "Text<1, MAX_NAME_CHARS>")]
    pub id: String,
    /// Columns whose name differs from the field that they fill.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub columns: TextsByField,
    /// Values of fields that a row does not have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub defaults: TextsByField,
}

fn outbox() -> String {
    "outbox".to_owned()
}

fn id() -> String {
    "id".to_owned()
}

const fn mark() -> Mode {
    Mode::Mark
}

impl DatabaseSettings {
    /// The name of a field's column.
    pub fn column(&self, field: EventField) -> &str {
        self.columns.get(&field).map_or(field.as_str(), String::as_str)
    }

    /// Whether the table must have a column for this field: the settings name it, or an event needs it.
    pub fn needs(&self, field: EventField) -> bool {
        self.columns.contains_key(&field)
            || field == EventField::Payload
            || (field == EventField::EventType && !self.defaults.contains_key(&field))
    }

    /// The columns of our own in the table, which no event has.
    pub const fn own_columns(&self) -> &'static [&'static str] {
        match self.mode {
            Mode::Mark => &["taken_at"],
            Mode::Claim => &["taken_at", "taken_by"],
            Mode::Xid8 => &["tx"],
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let mut named = self.columns.values().chain([&self.table, &self.id]);
        named.try_for_each(|name| check_name(name))
    }
}
