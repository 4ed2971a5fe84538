//! SQL for reports over the database and months together.

use std::path::Path;

use crate::archive::{Archive, Month};
use crate::store::error::{Error, Result};
use crate::store::read_only;

/// The views with the names of other outboxes, each with the column that identifies a row.
const VIEWS: [(&str, &str); 7] = [
    ("integration_outbox", "outbox_id"),
    ("outbox_events", "id"),
    ("webhook_deliveries", "id"),
    ("message", "msg_id"),
    ("external_call", "call_id"),
    ("request", "req_id"),
    ("response", "res_id"),
];
/// Files that `views` attaches. SQLite's limit is 10; one is left to the reader.
const MAX_ATTACHED: usize = 9;

// An ERP may have a table or a view of this name.
const HAS_VIEW: &str = "
    SELECT 1 FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS c
     WHERE m.type = 'view' AND m.name = ?1 AND c.name = ?2";

/// SQL that attaches months to the database and makes temporary views over both, named as the views of each. `months` has
/// the latest first.
pub fn views(database: &Path, archive: &Archive, months: &[Month]) -> Result<String> {
    let (attached, left_out) = months.split_at(months.len().min(MAX_ATTACHED));
    let known = |path: &Path| {
        let (reader, mut known) = (read_only(path)?, Vec::new());
        for view in VIEWS {
            known.extend(reader.tx().exists(HAS_VIEW, view)?.then_some(view));
        }
        Ok::<_, Error>(known)
    };
    let mut views: Vec<(&str, &str, String)> = known(database)?
        .into_iter()
        .map(|(name, key)| {
            (name, key, format!("CREATE TEMP VIEW {name} AS SELECT * FROM main.{name}"))
        })
        .collect();
    let mut lines = vec![format!("-- sqlite3 -readonly -init FILE {}", quoted(database))];
    lines.extend(
        left_out.iter().map(|month| format!("-- left out, {MAX_ATTACHED} are attached: {month}")),
    );
    for month in attached {
        let (path, schema) = (archive.path(month), month.schema());
        lines.push(format!("ATTACH {} AS {schema};", quoted(&path)));
        let known = known(&path)?;
        for (name, key, view) in &mut views {
            if known.contains(&(*name, *key)) {
                // An event that is being moved, or has come back, is in both.
                let part = format!("\n UNION ALL SELECT * FROM {schema}.{name} WHERE");
                view.extend([part, format!(" {key} NOT IN (SELECT {key} FROM main.{name})")]);
            } else {
                lines.push(format!("-- left out, its schema is older: {name} of {month}"));
            }
        }
    }
    lines.extend(views.into_iter().map(|(_, _, view)| view + ";"));
    Ok(lines.join("\n") + "\n")
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', "''"))
}
