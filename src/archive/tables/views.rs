//! SQL for reports over the database and months together: views with the names and columns of other platforms.

use std::path::Path;

use crate::archive::{Archive, Month};
use crate::store::error::Result;
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

// The tables of the file that other platforms have under the same names, with their columns. `{file}` is the file.
const WEBHOOK_EVENTS: &str = "SELECT w.event_id,
       strftime('%Y-%m-%d %H:%M:%f', w.received_at / 1000.0, 'unixepoch') AS received_at,
       w.provider, w.provider_event_id, w.event_type,
       coalesce(w.payload, (SELECT body FROM {file}.payloads WHERE seq = w.payload_seq)) AS payload,
       w.status,
       strftime('%Y-%m-%d %H:%M:%f', w.processing_started_at / 1000.0, 'unixepoch') AS processing_started_at,
       iif(w.status = 'completed', strftime('%Y-%m-%d %H:%M:%f', w.completed_at / 1000.0, 'unixepoch'), NULL) AS completed_at,
       w.error_message, w.retry_count, w.tenant
  FROM {file}.webhook_events AS w";

const AUDIT_EVENTS: &str = "SELECT a.seq AS id,
       strftime('%Y-%m-%d %H:%M:%f', a.at / 1000.0, 'unixepoch') AS occurred_at,
       CASE a.actor_type WHEN 'token' THEN 'SERVICE' WHEN 'cli' THEN 'USER' ELSE upper(a.actor_type) END AS actor_type,
       a.actor_id, a.actor_display, a.address AS actor_ip, a.user_agent AS actor_user_agent,
       a.action, a.resource_type, a.resource_id, a.result, a.correlation_id, a.request_id, a.method, a.path,
       a.status AS status_code,
       (SELECT json_group_object(key, json_extract(value, '$.before')) FROM json_each(a.changes)) AS diff_before,
       (SELECT json_group_object(key, json_extract(value, '$.after')) FROM json_each(a.changes)) AS diff_after,
       a.tenant
  FROM {file}.audit_events AS a";

// A file of an older schema does not have what the views read.
const HAS_EVENT_ID: &str =
    "SELECT 1 FROM pragma_table_xinfo('webhook_events') WHERE name = 'event_id'";

/// The files with what has left the database, the latest first.
pub struct Months<'a> {
    /// The files with events.
    pub events: (&'a Archive, Vec<Month>),
    /// The files with audit events.
    pub audit: (&'a Archive, Vec<Month>),
    /// Whether audit events come first where there are more files than can be attached.
    pub is_audit_first: bool,
}

/// SQL that attaches months to the database and makes temporary views over both, named as the views and tables of each.
pub fn views(database: &Path, months: &Months<'_>) -> Result<String> {
    let events = &months.events.1;
    let audit = &months.audit.1;
    let (events_most, audit_most) = if months.is_audit_first {
        (MAX_ATTACHED.saturating_sub(audit.len()), MAX_ATTACHED)
    } else {
        (MAX_ATTACHED, MAX_ATTACHED.saturating_sub(events.len()))
    };
    let mut lines = vec![format!("-- sqlite3 -readonly -init FILE {}", quoted(database))];
    let mut views: Vec<View> =
        known(database)?.into_iter().map(|(name, key)| View::of_view(name, key)).collect();
    views.push(View::of_table("webhook_events", "event_id", WEBHOOK_EVENTS));
    let mut trail = View::of_table("audit_events", "seq", AUDIT_EVENTS);
    let left_out = |what: &str, month: &Month| {
        format!("-- left out, {MAX_ATTACHED} are attached: {month}{what}")
    };
    let (attached, others) = events.split_at(events.len().min(events_most));
    lines.extend(others.iter().map(|month| left_out("", month)));
    for month in attached {
        let path = months.events.0.path(month);
        let schema = month.schema();
        lines.push(format!("ATTACH {} AS {schema};", quoted(&path)));
        let known = known(&path)?;
        let has_table = read_only(&path)?.tx().exists(HAS_EVENT_ID, [])?;
        for view in &mut views {
            let is_known = known.iter().any(|(name, _)| *name == view.name);
            if is_known || (view.is_of_table && has_table) {
                view.add(&schema);
            } else {
                lines.push(format!("-- left out, its schema is older: {} of {month}", view.name));
            }
        }
    }
    let (attached, others) = audit.split_at(audit.len().min(audit_most));
    lines.extend(
        others.iter().map(|month| left_out(" of the audit events, see --audit-first", month)),
    );
    for month in attached {
        let schema = format!("audit_{}", month.schema());
        lines.push(format!("ATTACH {} AS {schema};", quoted(&months.audit.0.path(month))));
        trail.add(&schema);
    }
    lines.extend(views.into_iter().chain([trail]).map(|view| view.sql + ";"));
    Ok(lines.join("\n") + "\n")
}

/// The views that a file has.
fn known(path: &Path) -> Result<Vec<(&'static str, &'static str)>> {
    let reader = read_only(path)?;
    let mut known = Vec::new();
    for view in VIEWS {
        known.extend(reader.tx().exists(HAS_VIEW, view)?.then_some(view));
    }
    Ok(known)
}

/// A temporary view over several files.
struct View {
    name: &'static str,
    /// The column that identifies a row.
    key: &'static str,
    /// What it reads of a file.
    part: String,
    is_of_table: bool,
    sql: String,
}

impl View {
    fn of_view(name: &'static str, key: &'static str) -> Self {
        Self::new(name, key, format!("SELECT * FROM {{file}}.{name}"), false)
    }

    fn of_table(name: &'static str, key: &'static str, part: &'static str) -> Self {
        Self::new(name, key, part.to_owned(), true)
    }

    fn new(name: &'static str, key: &'static str, part: String, is_of_table: bool) -> Self {
        let sql = format!("CREATE TEMP VIEW {name} AS {}", part.replace("{file}", "main"));
        Self { name, key, part, is_of_table, sql }
    }

    /// Adds what another file has and the database has not: a row that is being moved, or has come back, is in both.
    fn add(&mut self, file: &str) {
        let Self { name, key, .. } = self;
        let part = self.part.replace("{file}", file);
        let but = format!(" WHERE {key} NOT IN (SELECT {key} FROM main.{name})");
        self.sql.extend(["\n UNION ALL ", part.as_str(), but.as_str()]);
    }
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', "''"))
}
