//! Sources of kind `drop`: a folder that files are put into, and which of its files are taken.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::event::FieldError;
use crate::sources::draft::Draft;
use crate::sources::field::{Cell, Field, SettingsError};

/// The largest file that is taken: one file is one transaction, which others wait behind.
pub const MAX_FILE_BYTES: u64 = 16 << 20;
/// The most rows of a file, for the same reason.
pub const MAX_FILE_ROWS: usize = 10_000;
/// The most columns of a CSV file, and attributes of an XML element.
pub const MAX_COLUMNS: usize = 1_000;
/// The longest name of a column or an element.
pub const MAX_NAME_CHARS: usize = 200;
/// The most elements and attributes of an XML row, and members of a JSON row.
pub const MAX_NODES: usize = 50_000;
/// The most bytes that all rows of a file may have as events: with each, CSV repeats the names of its columns.
pub const MAX_ROWS_BYTES: usize = 32 << 20;
/// The longest name of a file.
const MAX_NAME_BYTES: usize = 200;
/// The longest time a file may have to stand still.
const MAX_STABLE: Duration = Duration::from_hours(24);
/// The longest time files stay in `done`, but for ever: a hundred years.
pub const MAX_DONE_DAYS: u32 = 36_500;
/// What a file is called whose reason stands beside it.
pub const REASON_ENDING: &str = ".reason";
/// What says that the file before it is whole.
pub const DONE_ENDING: &str = ".done";
/// Endings of files that are being written, or say something about another one.
const ENDINGS_LEFT: [&str; 5] = [".tmp", ".part", ".filepart", DONE_ENDING, REASON_ENDING];

/// Which folder is read, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FolderSettings {
    /// The folder.
    pub path: PathBuf,
    /// What its files are.
    #[serde(default)]
    pub format: Format,
    /// How it shows that a file is whole.
    #[serde(default)]
    pub writer: Protocol,
    /// For `stable`: for how long a file has to stand still.
    #[serde(default = "stable_ms")]
    pub stable_ms: u64,
    /// For how many days files stay in `done`; 0: until somebody takes them away.
    #[serde(default = "done_days")]
    pub done_days: u32,
    /// Columns, members or elements that are named otherwise than the field they fill.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<Field, String>,
    /// Values of fields that a row does not have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub defaults: BTreeMap<Field, String>,
    /// For XML: the path of the element that is a row, from the root: `Orders/Order`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<String>,
    /// For CSV: the character between two values.
    #[serde(default = "comma")]
    pub delimiter: char,
}

/// What a file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// By the ending of its name.
    #[default]
    Auto,
    /// One JSON object, or an array of them.
    Json,
    /// A JSON object a line.
    Ndjson,
    /// A line of names, and lines of values.
    Csv,
    /// XML, in which an element is a row.
    Xml,
}

/// How its writer says that a file is whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// It is written under another name, such as `x.csv.tmp`, and then renamed.
    #[default]
    Rename,
    /// An empty file with its name and `.done` comes after it.
    Done,
    /// It has not changed for a while.
    Stable,
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
    /// What a file of that name is; `None` where its ending says nothing.
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
    /// The name under which a field stands in a row.
    pub fn name(&self, field: Field) -> &str {
        self.fields.get(&field).map_or(field.as_str(), String::as_str)
    }

    /// Whether a row has the key that the settings say it has. Known by the file instead, the same fact would be
    /// another one in the next file, and nobody would see it.
    pub fn check_key(&self, row: &Draft) -> Result<(), FieldError> {
        let field = Field::IdempotencyKey;
        let has = match row.get(field) {
            Some(Cell::Text(text)) => !text.is_empty(),
            other => other.is_some(),
        };
        if has || !self.fields.contains_key(&field) || self.defaults.contains_key(&field) {
            return Ok(());
        }
        let problem = "is absent, null or empty, and the source's settings name it as the key: correct the name in \
                       the settings (fields), or give each row its key; without a name there, rows are known by the \
                       file and their number";
        Err(FieldError { field: field.as_str(), problem: problem.to_owned() })
    }

    /// For how long a file has to stand still.
    pub const fn stable(&self) -> Duration {
        Duration::from_millis(self.stable_ms)
    }

    /// For how long files stay in `done`; `None`: nothing is taken away from there.
    pub fn done_kept(&self) -> Option<Duration> {
        let hours = u64::from(self.done_days).saturating_mul(24);
        (hours > 0).then(|| Duration::from_hours(hours))
    }

    pub(super) fn check(&self) -> Result<(), SettingsError> {
        let wrong = |why: &str| Err(SettingsError(why.to_owned()));
        if self.format == Format::Xml && self.row.is_none() {
            return wrong(
                "row is missing: the path of the element that is a row, like Orders/Order",
            );
        }
        if self.row.as_deref().is_some_and(|row| row.split('/').any(str::is_empty)) {
            return wrong("row is a path of elements from the root, like Orders/Order");
        }
        if self.fields.values().any(String::is_empty) {
            return wrong("a name in fields is empty");
        }
        if matches!(self.delimiter, '"' | '\r' | '\n') || !self.delimiter.is_ascii() {
            return wrong("the delimiter is one ASCII character, such as , or ; and no quote");
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

/// Whether a name in the folder is one of a file to be taken.
pub fn is_candidate(name: &str) -> bool {
    !is_left(name) && unusable(name).is_none()
}

/// Whether nobody expects that a file of this name is taken: it begins with a dot, is still being written, or
/// says something about another one.
pub fn is_left(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    name.starts_with('.') || ENDINGS_LEFT.iter().any(|ending| lower.ends_with(ending))
}

/// Why a file of this name cannot be taken, where it cannot.
pub fn unusable(name: &str) -> Option<&'static str> {
    if name.len() > MAX_NAME_BYTES {
        return Some("has a name of more than 200 bytes: give it a shorter one");
    }
    let has_control = name.chars().any(char::is_control);
    has_control.then_some("has a control character in its name: give it another one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_written_is_left() {
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
    fn what_cannot_be_taken_for_its_name_is_told_from_what_is_left() {
        for name in ["a\nb.csv", &"x".repeat(201)] {
            assert!(!is_left(name) && unusable(name).is_some(), "{name:?}");
        }
        assert!(unusable(&"x".repeat(200)).is_none());
    }

    #[test]
    fn the_ending_says_what_a_file_is() {
        assert_eq!(Format::Auto.of("a.JSONL"), Some(Format::Ndjson));
        assert_eq!(Format::Auto.of("a.csv.xml"), Some(Format::Xml));
        assert_eq!(Format::Auto.of("a.txt"), None);
        assert_eq!(Format::Csv.of("a.txt"), Some(Format::Csv));
    }
}
