//! Views for reports in an upgrade: a step that makes one again drops the older one of ours. A table or a view of the same
//! name that belongs to an ERP stays, and ours is left out.

use rusqlite::{Connection, OptionalExtension};

use crate::store::error::Result;
use crate::store::schema_shape::bare;

/// How the statement begins that makes such a view.
const BEGIN: &str = "CREATE VIEW IF NOT EXISTS ";

const VIEW: &str = "SELECT sql FROM sqlite_master WHERE type = 'view' AND name = ?1";

/// Drops the views that `step` makes, where the file has them as one of the `steps` made them.
pub(super) fn drop_older(conn: &Connection, step: &str, steps: &[&str]) -> Result<()> {
    for (name, _) in views(step) {
        let stored: Option<String> = conn.query_row(VIEW, [name], |row| row.get(0)).optional()?;
        let Some(stored) = stored.map(|sql| bare(&sql)) else { continue };
        let is_ours = steps
            .iter()
            .flat_map(|step| views(step))
            .any(|(made, rest)| made == name && bare(&format!("CREATE VIEW {rest}")) == stored);
        if is_ours {
            conn.execute_batch(&format!("DROP VIEW {name}"))?;
        }
    }
    Ok(())
}

/// The views that a step makes: the name, and the statement from the name on.
fn views(step: &str) -> impl Iterator<Item = (&str, &str)> {
    step.split(BEGIN).skip(1).filter_map(|rest| {
        let (statement, _) = rest.split_once(";\n").unwrap_or((rest, ""));
        Some((statement.split_whitespace().next()?, statement))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLDER: &str = "CREATE VIEW IF NOT EXISTS report AS\nSELECT 1 AS a -- one\n;\n";
    const NEWER: &str = "CREATE VIEW IF NOT EXISTS report AS\nSELECT 1 AS a, 2 AS b;\n";

    fn stepped(before: &str) -> String {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(before).unwrap();
        drop_older(&conn, NEWER, &[OLDER, NEWER]).unwrap();
        conn.execute_batch(NEWER).unwrap();
        conn.query_row("SELECT sql FROM sqlite_master WHERE name = 'report'", [], |row| row.get(0))
            .unwrap()
    }

    #[test]
    fn a_view_of_ours_is_made_again_and_what_an_erp_has_of_its_name_stays() {
        assert!(stepped(OLDER).contains("2 AS b"));
        assert!(stepped("").contains("2 AS b"));
        for theirs in ["CREATE VIEW report AS SELECT 7", "CREATE TABLE report (no INTEGER)"] {
            assert_eq!(stepped(theirs), theirs);
        }
    }
}
