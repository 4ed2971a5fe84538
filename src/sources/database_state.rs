//! What is kept of a database between two reads, and the decisions that follow from it. Pure.

use serde::{Deserialize, Serialize};

use crate::base::clock::Timestamp;
use crate::sources::database_settings::{DatabaseSettings, Mode};

/// What is kept of a database. Stored in `sources.identity`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseState {
    /// The latest restore of our own file that came before the source, or after which a person has reopened it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_at: Option<Timestamp>,
    /// What a person asked for that is not done yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
    /// How far a source of the mode `xid8` is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
}

/// What a person asks for that changes marks in the database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// Marks that are not older than this are taken back, so that their rows are read again.
    Reopen(Timestamp),
    /// The claims of this box are given back.
    Release(String),
}

/// How far a source of the mode `xid8` is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The transaction of the last row that was read.
    pub tx: u64,
    /// Its id.
    pub id: i64,
    /// The fingerprint of that row; none: no row was read yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<String>,
    /// The cluster's number, where we may read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
}

/// What `PostgreSQL` says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// The cluster's number, where we may read it.
    pub number: Option<String>,
    /// Every transaction before this one has ended.
    pub ended: u64,
    /// The next transaction's number.
    pub next: u64,
}

impl DatabaseState {
    /// Reads what is stored; nothing stored is the beginning.
    pub fn read(stored: Option<&str>) -> Self {
        stored.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// The stored form.
    pub fn to_text(&self) -> Option<String> {
        serde_json::to_string(self).ok()
    }

    /// The state of a source that begins, in a file with this latest restore.
    pub fn begun(restored_at: Option<Timestamp>) -> Self {
        Self { restored_at, ..Self::default() }
    }

    /// Refuses to read a table whose marks may be ahead of our file: the file was restored since it was last reopened.
    pub fn check_restore(
        &self,
        settings: &DatabaseSettings,
        restored_at: Option<Timestamp>,
        source: &str,
    ) -> Result<(), String> {
        // Position and events of this mode are one transaction of our file.
        if settings.mode == Mode::Xid8 || restored_at == self.restored_at {
            return Ok(());
        }
        let table = &settings.table;
        Err(format!(
            "this box was restored from a backup, and rows that were read after the backup are marked in {table}. \
             Nothing is read until you decide: oncebox source reopen {source} --since TIME, with the time of the \
             backup. Rows marked since then are read again; known keys are not stored again"
        ))
    }
}

impl Position {
    /// After all transactions that have ended: rows of others are read.
    pub fn before(system: &System) -> Self {
        let tx = system.ended.saturating_sub(1);
        Self { tx, id: i64::MAX, row: None, system: system.number.clone() }
    }

    /// Refuses a database in which our position means nothing, or whose earlier rows are not the rows that were read. `row`
    /// is the fingerprint of the row at the position now, if that row is still there.
    pub fn check(&self, system: &System, row: Option<&str>, source: &str) -> Result<(), String> {
        let replaced = |why: String| {
            Err(format!(
                "the database was {why}. Nothing is read until you decide: oncebox source reset {source} --from-start \
                 (known keys are not stored again) or --from-now"
            ))
        };
        match (&self.system, &system.number) {
            (Some(was), Some(is)) if was != is => {
                return replaced(format!(
                    "replaced: its system identifier is {is}, and rows up to transaction {} were read from {was}",
                    self.tx
                ));
            }
            _ => {}
        }
        if self.tx >= system.next {
            return replaced(format!(
                "restored to an older state or replaced: its next transaction is {}, but rows up to transaction {} \
                 were read",
                system.next, self.tx
            ));
        }
        match (self.row.as_deref(), row) {
            (Some(was), Some(is)) if was != is => replaced(format!(
                "restored to an older state or replaced, or its rows were changed: row {} is not the one that was read",
                self.id
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(mode: &str) -> DatabaseSettings {
        let text = format!(r#"{{"database":"erp","mode":"{mode}"}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_state_survives_its_stored_form() {
        let state = DatabaseState {
            restored_at: Some(Timestamp::from_secs(1_800_000_000)),
            asked: Some(Asked::Release("north".to_owned())),
            position: Some(Position { tx: 9_007_199_254_740_993, id: 4, row: None, system: None }),
        };
        assert_eq!(DatabaseState::read(state.to_text().as_deref()), state);
        assert_eq!(DatabaseState::read(None), DatabaseState::default());
    }

    #[test]
    fn a_source_with_marks_stops_after_each_restore_of_the_box() {
        let at = |secs| Some(Timestamp::from_secs(secs));
        let fresh = DatabaseState::begun(at(10));
        for mode in ["mark", "claim"] {
            assert_eq!(fresh.check_restore(&settings(mode), at(10), "erp"), Ok(()));
            for (state, restored) in [(&fresh, at(20)), (&DatabaseState::default(), at(10))] {
                let why = state.check_restore(&settings(mode), restored, "erp").unwrap_err();
                assert!(why.contains("oncebox source reopen erp --since"), "{why}");
            }
        }
        assert_eq!(fresh.check_restore(&settings("xid8"), at(20), "erp"), Ok(()));
    }

    #[test]
    fn a_position_is_valid_in_its_own_cluster_alone() {
        let system = |number: Option<&str>, next| System {
            number: number.map(str::to_owned),
            ended: next,
            next,
        };
        let read =
            Position { tx: 100, id: 7, row: Some("x".to_owned()), system: Some("a".to_owned()) };
        for (system, row) in [
            (system(Some("a"), 101), Some("x")),
            // Not every user may read the number; an old row may be deleted.
            (system(None, 500), None),
        ] {
            assert_eq!(read.check(&system, row, "erp"), Ok(()), "{system:?}");
        }
        for (system, row, expected) in [
            (system(Some("b"), 500), Some("x"), "its system identifier is b"),
            (system(Some("a"), 100), None, "its next transaction is 100"),
            (system(None, 500), Some("y"), "row 7 is not the one"),
        ] {
            let why = read.check(&system, row, "erp").unwrap_err();
            assert!(why.contains(expected) && why.contains("source reset erp"), "{why}");
        }
        assert_eq!(Position::default().check(&system(None, 3), None, "erp"), Ok(()));
    }
}
