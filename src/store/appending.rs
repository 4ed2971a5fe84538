//! Table `outbox`, as a program that is not the service writes it: in its own transaction, like any plain SQL.
//!
//! Such a row is not routed here. The service finds it by `routed_at IS NULL`.

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use crate::model::event::NewEvent;
use crate::store::error::Result;
use crate::store::payloads;
use crate::store::tx::{Remembered, WriteTx, first};

// What is left out (id, received_at, status, routed_at) has its default. Nothing but own = 1 may say where a
// large payload stands.
const APPEND: &str = "
    INSERT INTO outbox
           (tenant, source_system, idempotency_key, event_type, aggregate_type, aggregate_id, target,
            payload, payload_seq, content_type, occurred_at, not_before, ordering_key, process_id, trace_id,
            max_attempts, custom_data, own)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, 1)
        ON CONFLICT (tenant, source_system, idempotency_key) DO NOTHING
 RETURNING id";

const THERE: &str = "
    SELECT id, event_type, aggregate_id, target, payload, payload_seq, status = 'quarantined'
      FROM outbox
     WHERE tenant = ?1
       AND source_system = ?2
       AND idempotency_key = ?3";

/// The row of an appended event.
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) already_there: bool,
    pub(crate) differs: bool,
    pub(crate) is_quarantined: bool,
}

/// Appends an event once, in whatever transaction the connection is in.
pub(crate) fn append(conn: &Connection, new: &NewEvent) -> Result<Row> {
    let remembered = Remembered::default();
    let tx = WriteTx::new(conn, &remembered);
    // A large payload is only stored apart once it is known to be the first.
    if new.payload.len() > payloads::MAX_INLINE_BYTES
        && let Some(row) = there(&tx, new)?
    {
        return Ok(row);
    }
    let placed = payloads::place(&tx, &new.payload)?;
    // JSON stands there as text, as an ERP that looks at its events would want it.
    let inline = placed.inline().map(|bytes| match std::str::from_utf8(bytes) {
        Ok(_) => ValueRef::Text(bytes),
        Err(_binary) => ValueRef::Blob(bytes),
    });
    let params = rusqlite::params![
        new.tenant,
        new.source_system,
        new.idempotency_key,
        new.event_type,
        new.aggregate_type,
        new.aggregate_id,
        new.target,
        inline.map(rusqlite::types::ToSqlOutput::Borrowed),
        placed.apart(),
        new.content_type,
        new.occurred_at,
        new.not_before,
        new.ordering_key,
        new.process_id,
        new.trace_id,
        new.max_attempts,
        new.custom_data,
    ];
    let inserted = first(&mut *tx.prepare(APPEND)?, params, |row| Ok(row.get(0)?))?;
    if let Some(id) = inserted {
        return Ok(Row { id, already_there: false, differs: false, is_quarantined: false });
    }
    there(&tx, new)?.ok_or(crate::store::error::Error::Changed("the event"))
}

/// The event that was there before.
fn there(tx: &WriteTx<'_>, new: &NewEvent) -> Result<Option<Row>> {
    let identity = (&new.tenant, &new.source_system, &new.idempotency_key);
    first(&mut *tx.prepare(THERE)?, identity, |row| {
        let payload = payloads::fetch(tx, row.get_ref(4)?, row.get(5)?)?;
        let (event_type, aggregate_id, target): (String, Option<String>, Option<String>) =
            (row.get(1)?, row.get(2)?, row.get(3)?);
        let differs = payload != new.payload
            || event_type != new.event_type
            || aggregate_id != new.aggregate_id
            || target != new.target;
        let is_quarantined = row.get(6)?;
        Ok(Row { id: row.get(0)?, already_there: true, differs, is_quarantined })
    })
}

/// Whether the file has no such table, or one of another shape.
pub(crate) fn is_shape(error: &rusqlite::Error) -> bool {
    let text = error.to_string();
    text.contains("no such table")
        || text.contains("no column named")
        || text.contains("no such column")
        || text.contains("ON CONFLICT clause does not match")
}
