//! Table `event_types`: the event types that a tenant has registered. Also reads stored events to infer a schema from.

use crate::base::clock::Timestamp;
use crate::event_types::{EventType, OnInvalid};
use crate::store::column::{Json, words};
use crate::store::error::Result;
use crate::store::page::{self, RowPage};
use crate::store::search_values;
use crate::store::sql::{columns, insert, queries};
use crate::store::tx::{ReadTx, WriteTx, tuple};

const DELETE: &str = "DELETE FROM event_types WHERE tenant = ?1 AND name = ?2";

words! {
    OnInvalid;
}

columns! {
    fn event_type() -> EventType = "event_types" [
        seq, name, description, schema as Json(schema), example, on_invalid, search_paths as Json(search_paths),
        created_at, updated_at
    ] { seq, name, description, schema, example: Json::optional(example), on_invalid, search_paths, created_at, updated_at }
    /// An event type by its name.
    pub fn by_name(tenant: &str, name: &str) -> Option = "WHERE tenant = ?1 AND name = ?2";
    const PAGE = "WHERE tenant = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
}

// Bounded by the rows that are looked at, so that a rare type does not cost a look at the whole table.
const SAMPLES: &str = "
    SELECT payload
      FROM (SELECT event_type, sealed_fields, status, payload
              FROM outbox
             WHERE tenant = ?1
             ORDER BY seq DESC
             LIMIT 10000)
     WHERE event_type = ?2 AND sealed_fields = 0 AND status <> 'quarantined' AND payload IS NOT NULL
     LIMIT ?3";

queries! {
    /// The schema of an event type as text, and what becomes of an event that does not fit.
    pub fn check(tenant: &str, name: &str) -> Option<(String, OnInvalid)> = first as tuple
        "SELECT schema, on_invalid FROM event_types WHERE tenant = ?1 AND name = ?2";
}

/// Stores an event type, or replaces the one of its name.
pub fn put(tx: &WriteTx<'_>, tenant: &str, new: &EventType, now: Timestamp) -> Result<()> {
    let EventType { name, description, schema, example, on_invalid, search_paths, .. } = new;
    let before = by_name(tx, tenant, name)?.map(|before| before.search_paths).unwrap_or_default();
    if before != *search_paths {
        search_values::forget(tx, tenant, name)?;
    }
    insert!(tx, "event_types" {
        tenant, name, description, schema: Json(schema), example: example.as_ref().map(ToString::to_string), on_invalid,
        search_paths: Json(search_paths), created_at: now, updated_at: now
    } "ON CONFLICT (tenant, name) DO UPDATE
           SET description = excluded.description, schema = excluded.schema, example = excluded.example,
               on_invalid = excluded.on_invalid, search_paths = excluded.search_paths, updated_at = excluded.updated_at")?;
    tx.event_type_changed(tenant, name);
    Ok(())
}

/// Deletes an event type; tells whether there was one.
pub fn delete(tx: &WriteTx<'_>, tenant: &str, name: &str) -> Result<bool> {
    search_values::forget(tx, tenant, name)?;
    tx.event_type_changed(tenant, name);
    Ok(tx.execute(DELETE, (tenant, name))? > 0)
}

/// Event types by number, after `after`.
pub fn page(tx: &ReadTx<'_>, tenant: &str, after: i64, limit: u32) -> Result<RowPage<EventType>> {
    let params = (tenant, after, limit);
    let seq = |found: &EventType| found.seq;
    page::page(&mut *tx.prepare(PAGE)?, params, limit, seq, event_type)
}

/// Bytes of a payload that a schema is proposed from at most; `limit` of them are in memory at once.
pub const MAX_SAMPLE_BYTES: usize = 16 * 1024;

/// The payloads of the newest events of a type that have nothing sealed, at most `limit`, without large ones.
pub fn samples(tx: &ReadTx<'_>, tenant: &str, name: &str, limit: u32) -> Result<Vec<Vec<u8>>> {
    let found = tx.rows(SAMPLES, (tenant, name, limit), |row| {
        // Plain SQL may have left text or bytes.
        let payload = row.get_ref(0)?.as_bytes_or_null().ok().flatten().unwrap_or_default();
        Ok((payload.len() <= MAX_SAMPLE_BYTES).then(|| payload.to_vec()))
    })?;
    Ok(found.into_iter().flatten().collect())
}
