//! Table `outbox`, as people look at it: single events by their names, and pages.

use rusqlite::Row;

use crate::domain::event::{Event, NewEvent, Status};
use crate::domain::pii::Sealed;
use crate::store::column::{any_count, word};
use crate::store::error::Result;
use crate::store::page::{Newest, Span};
use crate::store::payloads;
use crate::store::tx::{ReadTx, first, rows};

pub(super) const BY_IDENTITY: &str = "
    SELECT seq, id, tenant, source_system, idempotency_key, event_type, aggregate_type, aggregate_id,
           target, content_type, occurred_at, received_at, not_before, ordering_key, process_id, trace_id,
           max_attempts, custom_data, status, open_deliveries, duplicate_count, differing_count,
           last_error, error_code, completed_at, sealed_fields, payload, payload_seq
      FROM outbox
     WHERE tenant = ?1
       AND source_system = ?2
       AND idempotency_key = ?3";

const BY_ID: &str = "
    SELECT seq, id, tenant, source_system, idempotency_key, event_type, aggregate_type, aggregate_id,
           target, content_type, occurred_at, received_at, not_before, ordering_key, process_id, trace_id,
           max_attempts, custom_data, status, open_deliveries, duplicate_count, differing_count,
           last_error, error_code, completed_at, sealed_fields, payload, payload_seq
      FROM outbox
     WHERE id = ?2
       AND tenant = ?1";

pub(super) const BY_SEQ: &str = "
    SELECT seq, id, tenant, source_system, idempotency_key, event_type, aggregate_type, aggregate_id,
           target, content_type, occurred_at, received_at, not_before, ordering_key, process_id, trace_id,
           max_attempts, custom_data, status, open_deliveries, duplicate_count, differing_count,
           last_error, error_code, completed_at, sealed_fields
      FROM outbox
     WHERE seq = ?1";

const PAGE: &str = "
    SELECT seq, id, tenant, source_system, idempotency_key, event_type, aggregate_type, aggregate_id,
           target, content_type, occurred_at, received_at, not_before, ordering_key, process_id, trace_id,
           max_attempts, custom_data, status, open_deliveries, duplicate_count, differing_count,
           last_error, error_code, completed_at, sealed_fields
      FROM outbox
     WHERE tenant = ?1
       AND seq < ?2
       AND (?4 IS NULL OR status = ?4)
       AND (?5 IS NULL OR event_type = ?5)
       AND (?6 IS NULL OR idempotency_key = ?6)
       AND (?7 IS NULL OR received_at >= ?7)
       AND (?8 IS NULL OR received_at < ?8)
     ORDER BY seq DESC
     LIMIT ?3";

// The partial index on aggregate_id serves it only when the column is compared outright.
pub(super) const PAGE_OF_AGGREGATE: &str = "
    SELECT seq, id, tenant, source_system, idempotency_key, event_type, aggregate_type, aggregate_id,
           target, content_type, occurred_at, received_at, not_before, ordering_key, process_id, trace_id,
           max_attempts, custom_data, status, open_deliveries, duplicate_count, differing_count,
           last_error, error_code, completed_at, sealed_fields
      FROM outbox
     WHERE aggregate_id = ?9
       AND tenant = ?1
       AND seq < ?2
       AND (?4 IS NULL OR status = ?4)
       AND (?5 IS NULL OR event_type = ?5)
       AND (?6 IS NULL OR idempotency_key = ?6)
       AND (?7 IS NULL OR received_at >= ?7)
       AND (?8 IS NULL OR received_at < ?8)
     ORDER BY seq DESC
     LIMIT ?3";

// Computed for every row of the identity index: about a microsecond each.
const BY_WEBHOOK_ID: &str = "
    SELECT tenant, source_system, idempotency_key
      FROM outbox
     WHERE tenant = ?1
       AND webhook_id(tenant, source_system, idempotency_key) = ?2
     LIMIT 1";

/// An event with its payload.
///
/// # Errors
/// When the file cannot be read.
pub fn by_id(tx: &ReadTx<'_>, tenant: &str, id: &str) -> Result<Option<Event>> {
    first(&mut *tx.prepare(BY_ID)?, (tenant, id), |row| with_payload(tx, row))
}

/// An event with its payload, by its tenant, source system and key.
pub(super) fn by_identity(tx: &ReadTx<'_>, identity: (&str, &str, &str)) -> Result<Option<Event>> {
    first(&mut *tx.prepare(BY_IDENTITY)?, identity, |row| with_payload(tx, row))
}

/// An event without its payload, by its number.
///
/// # Errors
/// When the file cannot be read.
pub fn by_seq(tx: &ReadTx<'_>, seq: i64) -> Result<Option<Event>> {
    first(&mut *tx.prepare(BY_SEQ)?, [seq], event)
}

/// An event with its payload, by the `webhook-id` its deliveries carry. Looks at every event there is.
///
/// # Errors
/// When the file cannot be read.
pub fn by_webhook_id(tx: &ReadTx<'_>, tenant: &str, webhook_id: &str) -> Result<Option<Event>> {
    let identity = first(&mut *tx.prepare(BY_WEBHOOK_ID)?, (tenant, webhook_id), |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
    })?;
    match identity {
        Some((tenant, source_system, key)) => by_identity(tx, (&tenant, &source_system, &key)),
        None => Ok(None),
    }
}

/// Which events a list shows. Absent means any.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Where they stand.
    pub status: Option<Status>,
    /// Their exact type.
    pub event_type: Option<String>,
    /// Their own key.
    pub idempotency_key: Option<String>,
    /// What they happened to.
    pub aggregate_id: Option<String>,
    /// When they were received.
    pub received: Span,
}

/// Events without their payloads, newest first.
///
/// # Errors
/// When the file cannot be read.
pub fn page(tx: &ReadTx<'_>, newest: Newest<'_>, filter: &Filter) -> Result<Vec<Event>> {
    let Newest { tenant, before, limit } = newest;
    let Filter { status, event_type, idempotency_key, aggregate_id, received } = filter;
    let Span { since, until } = received;
    let status = status.map(Status::as_str);
    match aggregate_id {
        None => rows(
            &mut *tx.prepare(PAGE)?,
            (tenant, before, limit, status, event_type, idempotency_key, since, until),
            event,
        ),
        Some(aggregate_id) => rows(
            &mut *tx.prepare(PAGE_OF_AGGREGATE)?,
            (
                tenant,
                before,
                limit,
                status,
                event_type,
                idempotency_key,
                since,
                until,
                aggregate_id,
            ),
            event,
        ),
    }
}

fn with_payload(tx: &ReadTx<'_>, row: &Row<'_>) -> Result<Event> {
    let mut event = event(row)?;
    event.new.payload = payloads::fetch(tx, row.get_ref(26)?, row.get(27)?)?;
    Ok(event)
}

fn event(row: &Row<'_>) -> Result<Event> {
    let status: String = row.get(18)?;
    Ok(Event {
        seq: row.get(0)?,
        new: NewEvent {
            id: row.get(1)?,
            tenant: row.get(2)?,
            source_system: row.get(3)?,
            idempotency_key: row.get(4)?,
            event_type: row.get(5)?,
            aggregate_type: row.get(6)?,
            aggregate_id: row.get(7)?,
            target: row.get(8)?,
            payload: Vec::new(),
            content_type: row.get(9)?,
            occurred_at: row.get(10)?,
            received_at: row.get(11)?,
            not_before: row.get(12)?,
            ordering_key: row.get(13)?,
            process_id: row.get(14)?,
            trace_id: row.get(15)?,
            max_attempts: row.get(16)?,
            custom_data: row.get(17)?,
            sealed: Sealed { fields: any_count(row, 25)?, key: None },
        },
        status: word("outbox.status", &status, Status::parse)?,
        open_deliveries: any_count(row, 19)?,
        duplicate_count: any_count(row, 20)?,
        differing_count: any_count(row, 21)?,
        last_error: row.get(22)?,
        error_code: row.get(23)?,
        completed_at: row.get(24)?,
    })
}
