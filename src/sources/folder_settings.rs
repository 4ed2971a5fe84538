//! The settings of a source of kind `drop`, and which files of its folder are read.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::schema::{Character, SomeText, Text, Whole, values};
use crate::base::words::words;
use crate::model::event::FieldError;
use crate::model::event_field::EventField;
use crate::sources::cell::{Cell, TextsByField};
use crate::sources::draft::Draft;

/// The largest file: one file is one transaction, which delays others.
pub const MAX_FILE_BYTES: u64 = 16 << 20;
/// The most rows of a file, because they are stored in one transaction.
pub const MAX_FILE_ROWS: usize = 10_000;
/// The most columns of a CSV file, and attributes of an XML element.
pub const MAX_COLUMNS: usize = 1_000;
/// The longest name of a column or an element.
pub const MAX_NAME_CHARS: usize = 200;
/// The most elements and attributes of an XML row, and members of a JSON row.
pub const MAX_NODES: usize = 50_000;
/// The most bytes of all rows of a file as events: each event from CSV repeats the names of the columns.
pub const MAX_ROWS_BYTES: usize = 32 << 20;
/// The longest name of a file.
const MAX_NAME_BYTES: usize = 200;
/// The longest time for which a file must stay unchanged.
const MAX_STABLE: Duration = Duration::from_hours(24);
/// The longest limited time that files stay in `done`: a hundred years.
pub const MAX_DONE_DAYS: u32 = 36_500;
/// The ending of a file with the reason why another one was refused.
pub const REASON_ENDING: &str = ".reason";
/// The ending of a file that marks another one as complete.
pub const DONE_ENDING: &str = ".done";
/// Endings of files that are being written, or that belong to another file.
const IGNORED_ENDINGS: [&str; 5] = [".tmp", ".part", ".filepart", DONE_ENDING, REASON_ENDING];

/// Which folder is read, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(description = "")]
#[schemars(extend("x-of" = { "kind": ["drop"] }))]
pub struct FolderSettings {
    /// The absolute path of the folder.
    #[schemars(with = "Text<1, 4096>")]
    pub path: PathBuf,
    /// The format of its files; `auto` if absent: decided by the file extension.
    #[serde(default)]
    pub format: Format,
    /// How the writer shows that a file is complete. `rename` (if absent): it was renamed from `….tmp`; `done`: a file
    /// `….done` exists; `stable`: it has not changed for `stable_ms`.
    #[serde(default)]
    pub writer: Protocol,
    #[serde(default = "stable_ms")]
    #[schemars(with = "Whole<1, 86_400_000>")]
    pub stable_ms: u64,
    /// For how many days files stay in `done`; 30 if absent; 0: until somebody deletes them.
    #[serde(default = "done_days")]
    #[schemars(with = "DoneDays")]
    pub done_days: u32,
    /// Columns, members or paths of elements whose name differs from the field that they fill.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: TextsByField,
    /// Values of fields that a row does not have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub defaults: TextsByField,
    /// For XML: the path of the element that is a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SomeText")]
    pub row: Option<String>,
    /// For CSV: the character between two values; `,` if absent.
    #[serde(default = "comma")]
    #[schemars(with = "Character")]
    pub delimiter: char,
}

values! {
    /// For how many days files are kept.
    DoneDays = { "type": "integer", "minimum": 0, "maximum": MAX_DONE_DAYS }
}

words! {
    /// The format of a file.
    #[derive(Default)]
    pub enum Format {
        /// Given by the ending of its name.
        #[default]
        Auto = "auto",
        /// One JSON object, or an array of objects.
        Json = "json",
        /// One JSON object per line.
        Ndjson = "ndjson",
        /// A line of names, then lines of values.
        Csv = "csv",
        /// XML, in which an element is a row.
        Xml = "xml",
    }
}

words! {
    /// How the writer shows that a file is complete.
    #[derive(Default)]
    pub enum Protocol {
        /// It writes the file under another name, such as `x.csv.tmp`, and then renames it.
        #[default]
        Rename = "rename",
        /// It writes an empty file with the name and `.done` afterwards.
        Done = "done",
        /// It does nothing: a file that has not changed for a while is complete.
        Stable = "stable",
    }
}

const fn stable_ms() -> u64 {
    5_000
}

const fn done_days() -> u32 {
    30
}

const fn comma() -> char {
    ','
}

impl Format {
    /// The format of a file with this name; `None` if its ending is unknown.
    pub fn of(self, name: &str) -> Option<Self> {
        if self != Self::Auto {
            return Some(self);
        }
        let (_, ending) = name.rsplit_once('.')?;
        match ending.to_ascii_lowercase().as_str() {
            "json" => Some(Self::Json),
            "ndjson" | "jsonl" => Some(Self::Ndjson),
            "csv" => Some(Self::Csv),
            "xml" => Some(Self::Xml),
            _ => None,
        }
    }
}

impl FolderSettings {
    /// The name of a field in a row.
    pub fn name(&self, field: EventField) -> &str {
        self.fields.get(&field).map_or(field.as_str(), String::as_str)
    }

    /// Refuses a row without a key if the settings name a key and no default. A key made from the file instead would
    /// let the same event pass as a new one in the next file.
    pub fn check_key(&self, row: &Draft) -> Result<(), FieldError> {
        let field = EventField::IdempotencyKey;
        let has = match row.get(field) {
            Some(Cell::Text(text)) => !text.is_empty(),
            other => other.is_some(),
        };
        if has || !self.fields.contains_key(&field) || self.defaults.contains_key(&field) {
            return Ok(());
        }
        let problem = "is absent, null or empty, and the source's settings name it as the key: correct the name in \
                       the settings (fields), or give each row its key. If the settings name no key, rows are \
                       identified by the file and their number";
        Err(FieldError { field: field.as_str(), problem: problem.to_owned() })
    }

    /// For how long a file must be unchanged.
    pub const fn stable(&self) -> Duration {
        Duration::from_millis(self.stable_ms)
    }

    /// For how long files stay in `done`; `None`: for ever.
    pub fn done_kept(&self) -> Option<Duration> {
        let hours = u64::from(self.done_days).saturating_mul(24);
        (hours > 0).then(|| Duration::from_hours(hours))
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let wrong = |why: &str| Err(why.to_owned());
        if self.format == Format::Xml && self.row.is_none() {
            return wrong(
                "row is missing: set it to the path of the element that is a row, like Orders/Order",
            );
        }
        if self.row.as_deref().is_some_and(|row| row.split('/').any(str::is_empty)) {
            return wrong("row must be a path of elements from the root, like Orders/Order");
        }
        if self.fields.values().any(String::is_empty) {
            return wrong("a name in fields is empty");
        }
        if matches!(self.delimiter, '"' | '\r' | '\n') || !self.delimiter.is_ascii() {
            return wrong(
                "the delimiter must be one ASCII character, such as , or ; but not a quote",
            );
        }
        if self.stable_ms == 0 || self.stable() > MAX_STABLE {
            return wrong("stable_ms must be 1 to 86400000");
        }
        if self.done_days > MAX_DONE_DAYS {
            return wrong("done_days must be 0 (for ever) to 36500");
        }
        Ok(())
    }
}

/// Whether a file of this name is read.
pub fn is_candidate(name: &str) -> bool {
    !is_ignored(name) && unusable(name).is_none()
}

/// Whether a file of this name is ignored: it begins with a dot, is still being written, or belongs to another file.
pub fn is_ignored(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    name.starts_with('.') || IGNORED_ENDINGS.iter().any(|ending| lower.ends_with(ending))
}

/// Why a file of this name cannot be read, if it cannot.
pub fn unusable(name: &str) -> Option<&'static str> {
    if name.len() > MAX_NAME_BYTES {
        return Some("has a name of more than 200 bytes: rename it");
    }
    let has_control = name.chars().any(char::is_control);
    has_control.then_some("has a control character in its name: rename it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_being_written_are_ignored() {
        for name in ["a.csv", "RE 4711.xml", "x"] {
            assert!(is_candidate(name), "{name}");
        }
        for name in
            [".a.csv", "a.csv.tmp", "a.csv.TMP", "a.part", "a.csv.done", "a.csv.reason", "a\n"]
        {
            assert!(!is_candidate(name), "{name:?}");
        }
    }

    #[test]
    fn an_unusable_name_is_not_ignored() {
        for name in ["a\nb.csv", &"x".repeat(201)] {
            assert!(!is_ignored(name) && unusable(name).is_some(), "{name:?}");
        }
        assert!(unusable(&"x".repeat(200)).is_none());
    }

    #[test]
    fn the_ending_gives_the_format() {
        assert_eq!(Format::Auto.of("a.JSONL"), Some(Format::Ndjson));
        assert_eq!(Format::Auto.of("a.csv.xml"), Some(Format::Xml));
        assert_eq!(Format::Auto.of("a.txt"), None);
        assert_eq!(Format::Csv.of("a.txt"), Some(Format::Csv));
    }
}
