//! Table `outbox` in an ERP's own file, which a source of kind `sqlite` reads: the embedding program writes it in its
//! own transaction, as [`crate::store::appending`] does in ours.

use rusqlite::Connection;
use rusqlite::types::{ToSqlOutput, ValueRef};
use serde_json::json;

use crate::model::event::NewEvent;
use crate::store::appending::Row;
use crate::store::error::{Error, Result};
use crate::store::tx::{ReadTx, first};

/// The table, with a column for every field that a source takes. Does nothing where it is.
pub(crate) const TABLE: &str = "\
CREATE TABLE IF NOT EXISTS outbox (
  -- AUTOINCREMENT: Oncebox reads on from the last number it saw, so that none may be given twice.
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
  process_id      TEXT,
  max_attempts    INTEGER,
  custom_data     TEXT,
  UNIQUE (source_system, idempotency_key)
);
";

// Where there is no such table either, the insert says so.
const IS_OURS: &str = "
    SELECT EXISTS (
           SELECT 1
             FROM pragma_table_info('outbox')
            WHERE name = 'routed_at')";

const APPEND: &str = "
    INSERT INTO outbox
           (source_system, idempotency_key, event_type, aggregate_type, aggregate_id, target, payload,
            content_type, headers, occurred_at, not_before, ordering_key, process_id, max_attempts, custom_data)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
        ON CONFLICT (source_system, idempotency_key) DO NOTHING
 RETURNING id";

const THERE: &str = "
    SELECT id, event_type IS NOT ?3 OR aggregate_id IS NOT ?4 OR target IS NOT ?5
             OR CAST(payload AS BLOB) IS NOT CAST(?6 AS BLOB)
      FROM outbox
     WHERE source_system = ?1
       AND idempotency_key = ?2";

/// What cannot be used is quarantined in our file, and stays here as it is.
fn row(id: i64, already_there: bool, differs: bool) -> Row {
    Row { id: id.to_string(), already_there, differs, is_quarantined: false }
}

/// Whether the file's `outbox` is that of `oncebox.db`.
pub(crate) fn is_ours(conn: &Connection) -> Result<bool> {
    Ok(conn.prepare_cached(IS_OURS)?.query_row([], |row| row.get(0))?)
}

/// Appends an event once, in whatever transaction the connection is in.
pub(crate) fn append(conn: &Connection, new: &NewEvent, traceparent: Option<&str>) -> Result<Row> {
    let tx = ReadTx::new(conn);
    let headers = traceparent.map(|text| json!({ "traceparent": text }).to_string());
    let payload = match std::str::from_utf8(&new.payload) {
        Ok(text) => ValueRef::Text(text.as_bytes()),
        Err(_binary) => ValueRef::Blob(&new.payload),
    };
    let inserted = first(
        &mut *tx.prepare(APPEND)?,
        rusqlite::params![
            new.source_system,
            new.idempotency_key,
            new.event_type,
            new.aggregate_type,
            new.aggregate_id,
            new.target,
            ToSqlOutput::Borrowed(payload),
            new.content_type,
            headers,
            new.occurred_at,
            new.not_before,
            new.ordering_key,
            new.process_id,
            new.max_attempts,
            new.custom_data,
        ],
        |row| Ok(row.get::<_, i64>(0)?),
    )?;
    if let Some(id) = inserted {
        return Ok(row(id, false, false));
    }
    let asked = (
        &new.source_system,
        &new.idempotency_key,
        &new.event_type,
        &new.aggregate_id,
        &new.target,
        ToSqlOutput::Borrowed(payload),
    );
    let there = first(&mut *tx.prepare(THERE)?, asked, |row| {
        Ok(self::row(row.get(0)?, true, row.get(1)?))
    })?;
    there.ok_or(Error::Changed("the event"))
}
