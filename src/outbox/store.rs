//! The SQL of [`append`](super::append): table `outbox` in `oncebox.db`, or in an ERP's own file that a source reads.
//!
//! Nothing is routed here. The service finds a row of its own file by `routed_at IS NULL`.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Result};
use serde_json::{Map, Value};

use crate::base::clock::Timestamp;
use crate::model::event::{MAX_INLINE_BYTES, NewEvent};
use crate::model::event_field::EventField;

/// Creates the table, with a column for every field that a source reads, if it is missing.
pub(crate) const TABLE: &str = "\
CREATE TABLE IF NOT EXISTS outbox (
  -- AUTOINCREMENT: no number is used twice, because Oncebox continues after the last number that it read.
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  source_system   TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  event_type      TEXT NOT NULL,
  aggregate_type  TEXT,
  aggregate_id    TEXT,
  target          TEXT,
  payload         BLOB NOT NULL,
  content_type    TEXT NOT NULL,
  headers         TEXT,
  -- Milliseconds since 1970, UTC.
  occurred_at     INTEGER,
  not_before      INTEGER,
  ordering_key    TEXT,
  guaranteed_order INTEGER,
  exclude_failed  INTEGER,
  funnel_point    TEXT,
  funnel_value    TEXT,
  entity_type     TEXT,
  parent_key      TEXT,
  -- hard or soft.
  parent_binding  TEXT,
  process_id      TEXT,
  max_attempts    INTEGER,
  custom_data     TEXT,
  UNIQUE (source_system, idempotency_key)
);
";

// Whether the file's `outbox` is that of `oncebox.db`. If there is no such table, the insert fails.
const IS_OURS: &str =
    "SELECT EXISTS (SELECT 1 FROM pragma_table_info('outbox') WHERE name = 'routed_at')";

const FIND_PARENT: &str =
    "SELECT seq FROM outbox WHERE tenant = ?1 AND source_system = ?2 AND idempotency_key = ?3";

const FIND: &str = "
    SELECT o.id, o.event_type IS NOT ?4 OR o.aggregate_id IS NOT ?5 OR o.target IS NOT ?6
             OR CAST(coalesce(p.body, o.payload) AS BLOB) IS NOT ?7,
           o.status = 'quarantined'
      FROM outbox AS o
      LEFT JOIN payloads AS p ON p.seq = o.payload_seq
     WHERE o.tenant = ?1 AND o.source_system = ?2 AND o.idempotency_key = ?3";

const FIND_IN_ERP: &str = "
    SELECT id, event_type IS NOT ?3 OR aggregate_id IS NOT ?4 OR target IS NOT ?5
             OR CAST(payload AS BLOB) IS NOT ?6
      FROM outbox WHERE source_system = ?1 AND idempotency_key = ?2";

/// A row of the outbox: appended now, or found by its key.
pub(super) struct Row {
    /// The event's UUID; in an ERP's own file the row's number.
    pub id: String,
    pub already_there: bool,
    /// Whether the known row has other content.
    pub differs: bool,
    pub is_quarantined: bool,
}

/// Appends an event once, in the connection's transaction. `None`: its parent does not exist. In an ERP's own file that
/// is checked later.
pub(super) fn append(
    conn: &Connection,
    new: &NewEvent,
    traceparent: Option<&str>,
) -> Result<Option<Row>> {
    let is_ours = conn.prepare_cached(IS_OURS)?.query_row([], |row| row.get(0))?;
    if is_ours {
        append_to_oncebox(conn, new)
    } else {
        append_to_erp(conn, new, traceparent).map(Some)
    }
}

fn append_to_oncebox(conn: &Connection, new: &NewEvent) -> Result<Option<Row>> {
    let is_large = new.payload.len() > MAX_INLINE_BYTES;
    if is_large && let Some(row) = find(conn, new)? {
        return Ok(Some(row));
    }
    let parent = match &new.order.parent_key {
        None => None,
        Some(key) => {
            let identity = (&new.tenant, &new.source_system, key);
            let found: Option<i64> = conn
                .prepare_cached(FIND_PARENT)?
                .query_row(identity, |row| row.get(0))
                .optional()?;
            if found.is_none() {
                return Ok(None);
            }
            found
        }
    };
    let mut row = NewRow::of(new);
    row.remove(EventField::ParentKey.as_str());
    row.put("tenant", Some(new.tenant.as_str()));
    row.put("trace_id", new.trace_id.as_deref());
    row.put("parent_seq", parent);
    // Only such a row may have its payload in the table `payloads`.
    row.put("own", Some(true));
    if is_large {
        conn.prepare_cached("INSERT INTO payloads (body) VALUES (?1)")?.execute([&new.payload])?;
        row.remove(EventField::Payload.as_str());
        row.put("payload_seq", Some(conn.last_insert_rowid()));
    }
    match row.insert(conn, "tenant, source_system, idempotency_key")? {
        Some(id) => {
            Ok(Some(Row { id, already_there: false, differs: false, is_quarantined: false }))
        }
        None => find(conn, new)?.map(Some).ok_or(rusqlite::Error::QueryReturnedNoRows),
    }
}

/// A row to be inserted: its columns that have a value. Others have their default, and may be missing in an ERP's table.
struct NewRow<'e> {
    values: Vec<(&'static str, ToSqlOutput<'e>)>,
}

impl<'e> NewRow<'e> {
    /// The event's fields, each in the column of its name.
    fn of(new: &'e NewEvent) -> Self {
        let mut row = Self { values: Vec::new() };
        let flag = |is_set: bool| is_set.then_some(true);
        for field in EventField::ALL {
            let column = field.as_str();
            match field {
                EventField::Payload => row.put(column, Some(payload(new))),
                EventField::OccurredAt => row.put(column, new.occurred_at.map(Timestamp::ms)),
                EventField::NotBefore => row.put(column, new.not_before.map(Timestamp::ms)),
                EventField::GuaranteedOrder => row.put(column, flag(new.order.guaranteed)),
                EventField::ExcludeFailed => row.put(column, flag(new.order.exclude_failed)),
                EventField::MaxAttempts => row.put(column, new.max_attempts),
                text => row.put(column, new.text(text)),
            }
        }
        row
    }

    /// Adds a column, if it has a value.
    fn put<T: Into<ToSqlOutput<'e>>>(&mut self, column: &'static str, value: Option<T>) {
        self.values.extend(value.map(|value| (column, value.into())));
    }

    fn remove(&mut self, column: &str) {
        self.values.retain(|(have, _)| *have != column);
    }

    /// Inserts it once by its key; returns its id, or `None` if the key is there.
    fn insert<I: rusqlite::types::FromSql>(
        &self,
        conn: &Connection,
        key: &str,
    ) -> Result<Option<I>> {
        let columns: Vec<&str> = self.values.iter().map(|(column, _)| *column).collect();
        let marks = vec!["?"; columns.len()].join(", ");
        let columns = columns.join(", ");
        let sql = format!(
            "INSERT INTO outbox ({columns}) VALUES ({marks}) ON CONFLICT ({key}) DO NOTHING RETURNING id"
        );
        let values = rusqlite::params_from_iter(self.values.iter().map(|(_, value)| value));
        conn.prepare_cached(&sql)?.query_row(values, |row| row.get(0)).optional()
    }
}

fn find(conn: &Connection, new: &NewEvent) -> Result<Option<Row>> {
    let asked = (
        &new.tenant,
        &new.source_system,
        &new.idempotency_key,
        &new.event_type,
        &new.aggregate_id,
        &new.target,
        &new.payload,
    );
    let row = |row: &rusqlite::Row<'_>| {
        let (id, differs, is_quarantined) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(Row { id, already_there: true, differs, is_quarantined })
    };
    conn.prepare_cached(FIND)?.query_row(asked, row).optional()
}

fn append_to_erp(conn: &Connection, new: &NewEvent, traceparent: Option<&str>) -> Result<Row> {
    // A source reads the trace from this column, too.
    let mut headers: Map<String, Value> =
        new.headers.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    headers.extend(traceparent.map(|text| ("traceparent".to_owned(), text.into())));
    let headers = (!headers.is_empty()).then(|| Value::Object(headers).to_string());
    let mut inserted = NewRow::of(new);
    inserted.remove(EventField::Headers.as_str());
    inserted.put(EventField::Headers.as_str(), headers);
    let row = |id: i64, already_there, differs| Row {
        id: id.to_string(),
        already_there,
        differs,
        is_quarantined: false,
    };
    if let Some(id) = inserted.insert(conn, "source_system, idempotency_key")? {
        return Ok(row(id, false, false));
    }
    let asked = (
        &new.source_system,
        &new.idempotency_key,
        &new.event_type,
        &new.aggregate_id,
        &new.target,
        &new.payload,
    );
    conn.prepare_cached(FIND_IN_ERP)?
        .query_row(asked, |found| Ok(row(found.get(0)?, true, found.get(1)?)))
}

/// Stores UTF-8 as text, so that other programs can read it.
fn payload(new: &NewEvent) -> ToSqlOutput<'_> {
    ToSqlOutput::Borrowed(match std::str::from_utf8(&new.payload) {
        Ok(text) => ValueRef::Text(text.as_bytes()),
        Err(_binary) => ValueRef::Blob(&new.payload),
    })
}

/// Whether the file has no such table, or one with other columns.
pub(super) fn is_wrong_table(error: &rusqlite::Error) -> bool {
    let text = error.to_string();
    text.contains("no such table")
        || text.contains("no column named")
        || text.contains("no such column")
        || text.contains("ON CONFLICT clause does not match")
}
