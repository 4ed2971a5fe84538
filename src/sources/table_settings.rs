//! Sources of kind `sqlite`: a table of an ERP's own file, and whether it is still the one that was read.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::sources::field::{Field, SettingsError};

/// Characters of a name in the file.
const MAX_NAME_CHARS: usize = 128;

/// Which table is read, and which column is which field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableSettings {
    /// The file.
    pub path: PathBuf,
    /// The table.
    #[serde(default = "outbox")]
    pub table: String,
    /// The column that numbers the rows: INTEGER PRIMARY KEY AUTOINCREMENT.
    #[serde(default = "id")]
    pub id: String,
    /// Columns that are named otherwise than their field.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub columns: BTreeMap<Field, String>,
    /// Values of fields that a row does not have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub defaults: BTreeMap<Field, String>,
}

fn outbox() -> String {
    "outbox".to_owned()
}

fn id() -> String {
    "id".to_owned()
}

impl TableSettings {
    /// The column of a field.
    pub fn column(&self, field: Field) -> &str {
        self.columns.get(&field).map_or(field.as_str(), String::as_str)
    }

    /// Whether the column of a field has to be there: it was named, or nothing goes without it.
    pub fn needs(&self, field: Field) -> bool {
        self.columns.contains_key(&field)
            || field == Field::Payload
            || (field == Field::EventType && !self.defaults.contains_key(&field))
    }

    pub(super) fn check(&self) -> Result<(), SettingsError> {
        let named = self.columns.values().chain([&self.table, &self.id]);
        for name in named {
            if name.is_empty()
                || name.chars().count() > MAX_NAME_CHARS
                || name.chars().any(char::is_control)
            {
                return Err(SettingsError(format!(
                    "{name:?} is no name of a table or column: it has 1 to {MAX_NAME_CHARS} characters"
                )));
            }
        }
        Ok(())
    }
}

/// What a table was when it was last read. Stored in `sources.identity`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The file's device and number.
    pub file: (u64, u64),
    /// The last row that was copied; 0: none.
    pub last_id: i64,
    /// The columns that its fingerprint was taken of: of others it would be another one.
    pub columns: Vec<String>,
    /// Its fingerprint, where it was there.
    pub last_row: Option<String>,
}

/// Why a table is not the one that was read before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// It has never had the row that was copied last.
    Older {
        /// The highest id it ever gave.
        highest: i64,
        /// The last one that was copied.
        cursor: i64,
    },
    /// The row that was copied last is another one there.
    OtherRow(i64),
    /// Another file, and the last row cannot be compared: nothing shows that it is the same table.
    OtherFile(i64),
}

impl fmt::Display for Replaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Older { highest, cursor } => write!(
                f,
                "the file was restored to an older state or replaced: its highest id ever is {highest}, \
                 but row {cursor} was copied"
            ),
            Self::OtherRow(cursor) => write!(
                f,
                "the file was restored to an older state or replaced, or its rows were changed: row \
                 {cursor} is not the one that was copied"
            ),
            Self::OtherFile(cursor) => write!(
                f,
                "the file was replaced by another one, and row {cursor}, the last one copied, \
                 cannot be compared: it is gone, or is read from other columns now"
            ),
        }?;
        write!(
            f,
            ". Nothing is read until somebody decides: oncebox source reset NAME --cursor N (the last id \
             that is not to be copied), --from-start or --from-now"
        )
    }
}

/// What is there now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The file's device and number.
    pub file: (u64, u64),
    /// The highest id it ever gave.
    pub highest: i64,
    /// The columns that fingerprints are taken of now.
    pub columns: Vec<String>,
    /// The fingerprint of the row at the cursor, where that row is still there.
    pub at_cursor: Option<String>,
}

/// Whether what is there now is the table that was copied up to `cursor`.
///
/// A file that was compacted, or copied and put back, is another file with the same row in it, which is accepted.
/// So is one whose old rows were deleted. Of a file only its number counts: that of its device may be another
/// one after each start of the machine.
pub fn judge(kept: Option<&Identity>, cursor: i64, found: &Found) -> Result<(), Replaced> {
    let Found { file, highest, columns, at_cursor } = found;
    if *highest < cursor {
        return Err(Replaced::Older { highest: *highest, cursor });
    }
    let Some(kept) = kept.filter(|kept| cursor > 0 && kept.last_id == cursor) else {
        return Ok(());
    };
    match (&kept.last_row, at_cursor) {
        (Some(was), Some(is)) if kept.columns == *columns => {
            if was == is {
                Ok(())
            } else {
                Err(Replaced::OtherRow(cursor))
            }
        }
        _ if kept.file.1 != file.1 => Err(Replaced::OtherFile(cursor)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: u64, highest: i64, at_cursor: Option<&str>) -> Found {
        Found {
            file: (1, file),
            highest,
            columns: columns(),
            at_cursor: at_cursor.map(str::to_owned),
        }
    }

    fn columns() -> Vec<String> {
        vec!["event_type".to_owned(), "payload".to_owned()]
    }

    fn kept(last_id: i64, last_row: Option<&str>) -> Identity {
        let last_row = last_row.map(str::to_owned);
        Identity { file: (1, 7), last_id, columns: columns(), last_row }
    }

    #[test]
    fn a_table_is_known_again_by_its_last_row() {
        let kept = kept(10, Some("x"));
        for (now, expected) in [
            (found(7, 10, Some("x")), Ok(())),
            (found(7, 25, Some("x")), Ok(())),
            // Compacted into another file.
            (found(8, 10, Some("x")), Ok(())),
            // Its old rows were deleted.
            (found(7, 10, None), Ok(())),
            (found(7, 9, None), Err(Replaced::Older { highest: 9, cursor: 10 })),
            (found(8, 0, None), Err(Replaced::Older { highest: 0, cursor: 10 })),
            (found(7, 12, Some("y")), Err(Replaced::OtherRow(10))),
            (found(8, 12, None), Err(Replaced::OtherFile(10))),
        ] {
            assert_eq!(judge(Some(&kept), 10, &now), expected, "{now:?}");
        }
    }

    #[test]
    fn other_columns_are_not_compared_and_a_device_has_any_number() {
        let kept = kept(10, Some("x"));
        let others = || vec!["kind".to_owned(), "payload".to_owned()];
        let read_otherwise = |file| Found { columns: others(), ..found(file, 10, Some("y")) };
        assert_eq!(judge(Some(&kept), 10, &read_otherwise(7)), Ok(()));
        assert_eq!(judge(Some(&kept), 10, &read_otherwise(8)), Err(Replaced::OtherFile(10)));
        let elsewhere = Found { file: (2, 7), ..found(7, 12, None) };
        assert_eq!(judge(Some(&kept), 10, &elsewhere), Ok(()));
    }

    #[test]
    fn where_nothing_was_copied_any_table_will_do() {
        assert_eq!(judge(None, 0, &found(7, 0, None)), Ok(()));
        let kept = kept(0, None);
        assert_eq!(judge(Some(&kept), 0, &found(8, 3, None)), Ok(()));
        // A person has set the cursor: what was kept is not about that row.
        assert_eq!(judge(Some(&kept), 2, &found(8, 3, Some("x"))), Ok(()));
        assert!(judge(None, 4, &found(8, 3, None)).is_err());
    }
}
