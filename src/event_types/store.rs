//! Table `event_types`: the event types that a tenant has registered. Also reads stored events to infer a schema from.

use rusqlite::Row;
use serde_json::Value;

use crate::base::clock::Timestamp;
use crate::event_types::{EventType, OnInvalid};
use crate::store::column::{json, to_json, word};
use crate::store::error::Result;
use crate::store::page::{self, Found};
use crate::store::tx::{ReadTx, WriteTx, first, rows};

const PUT: &str = "
    INSERT INTO event_types (tenant, name, description, schema, example, on_invalid, created_at, updated_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7)
        ON CONFLICT (tenant, name) DO UPDATE
           SET description = excluded.description, schema = excluded.schema, example = excluded.example,
               on_invalid = excluded.on_invalid, updated_at = excluded.updated_at";

const DELETE: &str = "
    DELETE FROM event_types
     WHERE tenant = ?1
       AND name = ?2";

/// What [`event_type`] reads, in its order.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT seq, name, description, schema, example, on_invalid, created_at, updated_at
               FROM event_types
              WHERE tenant = ?1 ",
            $rest
        )
    };
}

const CHECK: &str = "
    SELECT schema, on_invalid
      FROM event_types
     WHERE tenant = ?1
       AND name = ?2";

const BY_NAME: &str = select!("AND name = ?2");

const PAGE: &str = select!("AND seq > ?2 ORDER BY seq LIMIT ?3");

// Bounded by the rows that are looked at, so that a rare type does not cost a look at the whole table.
const SAMPLES: &str = "
    SELECT payload
      FROM (SELECT event_type, sealed_fields, status, payload
              FROM outbox
             WHERE tenant = ?1
             ORDER BY seq DESC
             LIMIT 10000)
     WHERE event_type = ?2
       AND sealed_fields = 0
       AND status <> 'quarantined'
       AND payload IS NOT NULL
     LIMIT ?3";

/// Stores an event type, or replaces the one of its name.
pub fn put(tx: &WriteTx<'_>, tenant: &str, new: &EventType, now: Timestamp) -> Result<()> {
    let EventType { name, description, schema, example, on_invalid, .. } = new;
    tx.prepare(PUT)?.execute((
        tenant,
        name,
        description,
        to_json("event_types.schema", schema)?,
        example.as_ref().map(Value::to_string),
        on_invalid.as_str(),
        now,
    ))?;
    tx.event_types_changed();
    Ok(())
}

/// Deletes an event type; tells whether there was one.
pub fn delete(tx: &WriteTx<'_>, tenant: &str, name: &str) -> Result<bool> {
    tx.event_types_changed();
    Ok(tx.prepare(DELETE)?.execute((tenant, name))? > 0)
}

/// An event type by its name.
pub fn by_name(tx: &ReadTx<'_>, tenant: &str, name: &str) -> Result<Option<EventType>> {
    first(&mut *tx.prepare(BY_NAME)?, (tenant, name), event_type)
}

/// The schema of an event type as text, and what becomes of an event that does not fit.
pub fn check(tx: &ReadTx<'_>, tenant: &str, name: &str) -> Result<Option<(String, OnInvalid)>> {
    first(&mut *tx.prepare(CHECK)?, (tenant, name), |row| {
        let on_invalid: String = row.get(1)?;
        Ok((row.get(0)?, word("event_types.on_invalid", &on_invalid, OnInvalid::parse)?))
    })
}

/// Event types by number, after `after`.
pub fn page(tx: &ReadTx<'_>, tenant: &str, after: i64, limit: u32) -> Result<Found<EventType>> {
    let (params, row) = ((tenant, after, limit), (|found: &EventType| found.seq, event_type));
    page::page(&mut *tx.prepare(PAGE)?, params, limit, row)
}

/// Bytes of a payload that a schema is proposed from at most; `limit` of them are in memory at once.
pub const MAX_SAMPLE_BYTES: usize = 16 * 1024;

/// The payloads of the newest events of a type that have nothing sealed, at most `limit`, without large ones.
pub fn samples(tx: &ReadTx<'_>, tenant: &str, name: &str, limit: u32) -> Result<Vec<Vec<u8>>> {
    let found = rows(&mut *tx.prepare(SAMPLES)?, (tenant, name, limit), |row| {
        // Plain SQL may have left text or bytes.
        let payload = row.get_ref(0)?.as_bytes_or_null().ok().flatten().unwrap_or_default();
        Ok((payload.len() <= MAX_SAMPLE_BYTES).then(|| payload.to_vec()))
    })?;
    Ok(found.into_iter().flatten().collect())
}

fn event_type(row: &Row<'_>) -> Result<EventType> {
    let text = |column| row.get::<_, String>(column);
    let example: Option<String> = row.get(4)?;
    Ok(EventType {
        seq: row.get(0)?,
        name: text(1)?,
        description: text(2)?,
        schema: json("event_types.schema", &text(3)?)?,
        example: example.map(|text| json("event_types.example", &text)).transpose()?,
        on_invalid: word("event_types.on_invalid", &text(5)?, OnInvalid::parse)?,
        created_at: row.get(6)?,
        updated_at: row.get(7)?,
    })
}
