//! The SQL of [`append`](super::append): table `outbox` in `oncebox.db`, or in an ERP's own file that a source reads.
//!
//! Nothing is routed here. The service finds a row of its own file by `routed_at IS NULL`.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Result, ToSql};
use serde_json::{Map, Value};

use crate::base::clock::Timestamp;
use crate::model::event::{Binding, MAX_INLINE_BYTES, NewEvent};

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

// Omitted columns have their default. Only a row with own = 1 may have its payload in the table `payloads`.
const APPEND: &str = "
    INSERT INTO outbox
           (tenant, source_system, idempotency_key, event_type, aggregate_type, aggregate_id, target,
            payload, payload_seq, content_type, occurred_at, not_before, ordering_key, process_id, trace_id,
            max_attempts, custom_data, headers, guaranteed_order, funnel_value, parent_seq, parent_binding,
            exclude_failed, funnel_point, entity_type, own)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, coalesce(?18, '{}'),
            ?19, ?20, ?21, ?22, ?23, ?24, ?25, 1)
        ON CONFLICT (tenant, source_system, idempotency_key) DO NOTHING
 RETURNING id";

const FIND_PARENT: &str =
    "SELECT seq FROM outbox WHERE tenant = ?1 AND source_system = ?2 AND idempotency_key = ?3";

const FIND: &str = "
    SELECT o.id, o.event_type IS NOT ?4 OR o.aggregate_id IS NOT ?5 OR o.target IS NOT ?6
             OR CAST(coalesce(p.body, o.payload) AS BLOB) IS NOT ?7,
           o.status = 'quarantined'
      FROM outbox AS o
      LEFT JOIN payloads AS p ON p.seq = o.payload_seq
     WHERE o.tenant = ?1 AND o.source_system = ?2 AND o.idempotency_key = ?3";

const APPEND_TO_ERP: &str = "
    INSERT INTO outbox
           (source_system, idempotency_key, event_type, aggregate_type, aggregate_id, target, payload,
            content_type, headers, occurred_at, not_before, ordering_key, process_id, max_attempts, custom_data,
            guaranteed_order, funnel_value, parent_key, parent_binding)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)
        ON CONFLICT (source_system, idempotency_key) DO NOTHING
 RETURNING id";

// As APPEND_TO_ERP, with the columns that a file of an earlier version lacks.
const APPEND_TO_ERP_WITH_ORDER: &str = "
    INSERT INTO outbox
           (source_system, idempotency_key, event_type, aggregate_type, aggregate_id, target, payload,
            content_type, headers, occurred_at, not_before, ordering_key, process_id, max_attempts, custom_data,
            guaranteed_order, funnel_value, parent_key, parent_binding, exclude_failed, funnel_point, entity_type)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)
        ON CONFLICT (source_system, idempotency_key) DO NOTHING
 RETURNING id";

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
    let payload_seq = if is_large {
        conn.prepare_cached("INSERT INTO payloads (body) VALUES (?1)")?.execute([&new.payload])?;
        Some(conn.last_insert_rowid())
    } else {
        None
    };
    let inline = (!is_large).then(|| payload(new));
    let params = rusqlite::params![
        new.tenant,
        new.source_system,
        new.idempotency_key,
        new.event_type,
        new.aggregate_type,
        new.aggregate_id,
        new.target,
        inline,
        payload_seq,
        new.content_type,
        new.occurred_at.map(Timestamp::ms),
        new.not_before.map(Timestamp::ms),
        new.ordering_key,
        new.process_id,
        new.trace_id,
        new.max_attempts,
        new.custom_data,
        new.headers,
        new.order.guaranteed,
        new.order.funnel_value,
        parent,
        new.order.parent_binding.map(Binding::as_str),
        new.order.exclude_failed,
        new.order.funnel_point,
        new.order.entity_type,
    ];
    let id = conn.prepare_cached(APPEND)?.query_row(params, |row| row.get(0)).optional()?;
    match id {
        Some(id) => {
            Ok(Some(Row { id, already_there: false, differs: false, is_quarantined: false }))
        }
        None => find(conn, new)?.map(Some).ok_or(rusqlite::Error::QueryReturnedNoRows),
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
    let has_new_columns = new.order.exclude_failed
        || new.order.funnel_point.is_some()
        || new.order.entity_type.is_some();
    let content = payload(new);
    let occurred_at = new.occurred_at.map(Timestamp::ms);
    let not_before = new.not_before.map(Timestamp::ms);
    let binding = new.order.parent_binding.map(Binding::as_str);
    let common: [&dyn ToSql; 19] = [
        &new.source_system,
        &new.idempotency_key,
        &new.event_type,
        &new.aggregate_type,
        &new.aggregate_id,
        &new.target,
        &content,
        &new.content_type,
        &headers,
        &occurred_at,
        &not_before,
        &new.ordering_key,
        &new.process_id,
        &new.max_attempts,
        &new.custom_data,
        &new.order.guaranteed,
        &new.order.funnel_value,
        &new.order.parent_key,
        &binding,
    ];
    let more: [&dyn ToSql; 3] =
        [&new.order.exclude_failed, &new.order.funnel_point, &new.order.entity_type];
    let (sql, more) = if has_new_columns {
        (APPEND_TO_ERP_WITH_ORDER, &more[..])
    } else {
        (APPEND_TO_ERP, &[][..])
    };
    let params: Vec<&dyn ToSql> = common.iter().chain(more).copied().collect();
    let row = |row: &rusqlite::Row<'_>, already_there, differs| {
        let id: i64 = row.get(0)?;
        Ok(Row { id: id.to_string(), already_there, differs, is_quarantined: false })
    };
    let appended = conn
        .prepare_cached(sql)?
        .query_row(&params[..], |inserted| row(inserted, false, false))
        .optional()?;
    if let Some(appended) = appended {
        return Ok(appended);
    }
    let asked = (
        &new.source_system,
        &new.idempotency_key,
        &new.event_type,
        &new.aggregate_id,
        &new.target,
        &new.payload,
    );
    conn.prepare_cached(FIND_IN_ERP)?.query_row(asked, |found| row(found, true, found.get(1)?))
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
