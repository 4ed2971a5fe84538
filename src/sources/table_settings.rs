//! The settings of a source of kind `sqlite`, and the check that its table is still the one that was read.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::schema::Text;
use crate::model::event_field::EventField;
use crate::sources::cell::TextsByField;

/// The longest name of a table or column.
pub(super) const MAX_NAME_CHARS: usize = 128;

/// Which table is read, and which column is which field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(description = "", extend("x-of" = { "kind": ["sqlite"] }))]
pub struct TableSettings {
    /// The absolute path of the file.
    #[schemars(with = "Text<1, 4096>")]
    pub path: PathBuf,
    /// The table; `outbox`, if absent.
    #[serde(default = "outbox")]
    #[schemars(with = "Text<1, MAX_NAME_CHARS>")]
    pub table: String,
    /// Its column that is INTEGER PRIMARY KEY AUTOINCREMENT; `id`, if absent.
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

impl TableSettings {
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

    pub(super) fn check(&self) -> Result<(), String> {
        let mut named = self.columns.values().chain([&self.table, &self.id]);
        named.try_for_each(|name| check_name(name))
    }
}

/// Refuses what cannot be the name of a table or column.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty()
        || name.chars().count() > MAX_NAME_CHARS
        || name.chars().any(char::is_control)
    {
        return Err(format!(
            "{name:?} cannot be the name of a table or column: use 1 to {MAX_NAME_CHARS} characters"
        ));
    }
    Ok(())
}

/// What identifies a table and how far it was copied. Stored in `sources.identity`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The file's device and inode.
    pub file: (u64, u64),
    /// The id of the last copied row; 0: none.
    pub last_id: i64,
    /// The columns that its fingerprint covers; fingerprints over other columns cannot be compared.
    pub columns: Vec<String>,
    /// The fingerprint of the last copied row, if it existed.
    pub last_row: Option<String>,
}

/// The present state of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableState {
    /// The file's device and inode.
    pub file: (u64, u64),
    /// The highest id it ever gave.
    pub highest: i64,
    /// The columns that fingerprints cover now.
    pub columns: Vec<String>,
    /// The fingerprint of the row at the cursor, if that row exists.
    pub at_cursor: Option<String>,
}

/// Checks that a table is the same that was copied up to `cursor`; if not, says why and how a person decides.
///
/// A file that was compacted, or copied and put back, is another file with an equal last row, and is accepted. So is a
/// file whose old rows were deleted. Only the file's inode is compared, because its device number may change with
/// each start of the machine.
pub fn check_identity(
    known: Option<&Identity>,
    cursor: i64,
    table: &TableState,
    source: &str,
) -> Result<(), String> {
    let replaced = |why: String| {
        Err(format!(
            "the file was {why}. Nothing is read until you decide: oncebox source reset {source} --cursor N \
             (the last id that is not to be copied), --from-start or --from-now"
        ))
    };
    let TableState { file, highest, columns, at_cursor } = table;
    if *highest < cursor {
        return replaced(format!(
            "restored to an older state or replaced: its highest id ever is {highest}, but row {cursor} was copied"
        ));
    }
    let Some(known) = known.filter(|known| cursor > 0 && known.last_id == cursor) else {
        return Ok(());
    };
    match (&known.last_row, at_cursor) {
        (Some(was), Some(is)) if known.columns == *columns => {
            if was == is {
                return Ok(());
            }
            replaced(format!(
                "restored to an older state or replaced, or its rows were changed: row {cursor} is not the one \
                 that was copied"
            ))
        }
        _ if known.file.1 != file.1 => replaced(format!(
            "replaced by another one, and row {cursor}, the last one copied, cannot be compared: it is gone, or \
             is read from other columns now"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(file: u64, highest: i64, at_cursor: Option<&str>) -> TableState {
        TableState {
            file: (1, file),
            highest,
            columns: columns(),
            at_cursor: at_cursor.map(str::to_owned),
        }
    }

    fn columns() -> Vec<String> {
        vec!["event_type".to_owned(), "payload".to_owned()]
    }

    fn known(last_id: i64, last_row: Option<&str>) -> Identity {
        let last_row = last_row.map(str::to_owned);
        Identity { file: (1, 7), last_id, columns: columns(), last_row }
    }

    fn check(known: Option<&Identity>, cursor: i64, now: &TableState) -> Result<(), String> {
        check_identity(known, cursor, now, "erp")
    }

    #[test]
    fn a_table_is_recognised_by_its_last_row() {
        let known = known(10, Some("x"));
        for now in [
            table(7, 10, Some("x")),
            table(7, 25, Some("x")),
            // Compacted into another file.
            table(8, 10, Some("x")),
            // Its old rows were deleted.
            table(7, 10, None),
        ] {
            assert_eq!(check(Some(&known), 10, &now), Ok(()), "{now:?}");
        }
        for (now, expected) in [
            (table(7, 9, None), "its highest id ever is 9, but row 10 was copied"),
            (table(8, 0, None), "its highest id ever is 0, but row 10 was copied"),
            (table(7, 12, Some("y")), "row 10 is not the one that was copied"),
            (table(8, 12, None), "replaced by another one, and row 10"),
        ] {
            let why = check(Some(&known), 10, &now).unwrap_err();
            assert!(why.contains(expected) && why.contains("source reset erp "), "{why}");
        }
    }

    #[test]
    fn other_columns_and_device_numbers_are_not_compared() {
        let known = known(10, Some("x"));
        let others = || vec!["kind".to_owned(), "payload".to_owned()];
        let read_otherwise = |file| TableState { columns: others(), ..table(file, 10, Some("y")) };
        assert_eq!(check(Some(&known), 10, &read_otherwise(7)), Ok(()));
        check(Some(&known), 10, &read_otherwise(8)).unwrap_err();
        let same = TableState { file: (2, 7), ..table(7, 12, None) };
        assert_eq!(check(Some(&known), 10, &same), Ok(()));
    }

    #[test]
    fn any_table_is_accepted_if_nothing_was_copied() {
        assert_eq!(check(None, 0, &table(7, 0, None)), Ok(()));
        let known = known(0, None);
        assert_eq!(check(Some(&known), 0, &table(8, 3, None)), Ok(()));
        // A person has set the cursor: the stored fingerprint belongs to another row.
        assert_eq!(check(Some(&known), 2, &table(8, 3, Some("x"))), Ok(()));
        check(None, 4, &table(8, 3, None)).unwrap_err();
    }
}
