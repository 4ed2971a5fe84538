//! Table `deliveries`, as people look at it: single ones and pages, joined with what they carry.

use rusqlite::Row;

use crate::domain::delivery::{Delivery, State};
use crate::domain::failure::Class;
use crate::id::DeliverySeq;
use crate::store::column::word;
use crate::store::error::Result;
use crate::store::page::Newest;
use crate::store::tx::{ReadTx, first, rows};

const BY_SEQ: &str = "
    SELECT d.seq, d.tenant, coalesce(o.id, w.id), d.webhook_seq IS NOT NULL,
           coalesce(o.event_type, w.event_type), s.name, d.state, d.due_at, d.attempt_count,
           d.counted_failures, d.last_class, d.run_no, d.finished_at, d.reason,
           d.lease_until, d.head = 0 AND d.state = 'pending',
           o.aggregate_type, o.aggregate_id, coalesce(o.idempotency_key, w.provider_event_id)
      FROM deliveries AS d
      JOIN subscriptions AS s ON s.seq = d.subscription_seq
      LEFT JOIN outbox AS o ON o.seq = d.outbox_seq
      LEFT JOIN webhook_events AS w ON w.seq = d.webhook_seq
     WHERE d.seq = ?2
       AND d.tenant = ?1";

// CROSS JOIN keeps the scan on deliveries, newest first, so that a page ends after its last row.
const PAGE: &str = "
    SELECT d.seq, d.tenant, coalesce(o.id, w.id), d.webhook_seq IS NOT NULL,
           coalesce(o.event_type, w.event_type), s.name, d.state, d.due_at, d.attempt_count,
           d.counted_failures, d.last_class, d.run_no, d.finished_at, d.reason,
           d.lease_until, d.head = 0 AND d.state = 'pending',
           o.aggregate_type, o.aggregate_id, coalesce(o.idempotency_key, w.provider_event_id)
      FROM deliveries AS d
     CROSS JOIN subscriptions AS s ON s.seq = d.subscription_seq
      LEFT JOIN outbox AS o ON o.seq = d.outbox_seq
      LEFT JOIN webhook_events AS w ON w.seq = d.webhook_seq
     WHERE d.tenant = ?1
       AND d.seq < ?2
       AND (?4 IS NULL OR d.state = ?4)
       AND (?5 IS NULL OR s.name = ?5 OR s.id = ?5)
     ORDER BY d.seq DESC
     LIMIT ?3";

pub(super) const PAGE_OF_DEAD: &str = "
    SELECT d.seq, d.tenant, coalesce(o.id, w.id), d.webhook_seq IS NOT NULL,
           coalesce(o.event_type, w.event_type), s.name, d.state, d.due_at, d.attempt_count,
           d.counted_failures, d.last_class, d.run_no, d.finished_at, d.reason,
           d.lease_until, d.head = 0 AND d.state = 'pending',
           o.aggregate_type, o.aggregate_id, coalesce(o.idempotency_key, w.provider_event_id)
      FROM deliveries AS d
     CROSS JOIN subscriptions AS s ON s.seq = d.subscription_seq
      LEFT JOIN outbox AS o ON o.seq = d.outbox_seq
      LEFT JOIN webhook_events AS w ON w.seq = d.webhook_seq
     WHERE d.state = 'dead_letter'
       AND d.tenant = ?1
       AND d.seq < ?2
       AND (?4 IS NULL OR s.name = ?4 OR s.id = ?4)
     ORDER BY d.seq DESC
     LIMIT ?3";

pub(super) const PAGE_IN_DOUBT: &str = "
    SELECT d.seq, d.tenant, coalesce(o.id, w.id), d.webhook_seq IS NOT NULL,
           coalesce(o.event_type, w.event_type), s.name, d.state, d.due_at, d.attempt_count,
           d.counted_failures, d.last_class, d.run_no, d.finished_at, d.reason,
           d.lease_until, d.head = 0 AND d.state = 'pending',
           o.aggregate_type, o.aggregate_id, coalesce(o.idempotency_key, w.provider_event_id)
      FROM deliveries AS d
     CROSS JOIN subscriptions AS s ON s.seq = d.subscription_seq
      LEFT JOIN outbox AS o ON o.seq = d.outbox_seq
      LEFT JOIN webhook_events AS w ON w.seq = d.webhook_seq
     WHERE d.state = 'in_doubt'
       AND d.tenant = ?1
       AND d.seq < ?2
       AND (?4 IS NULL OR s.name = ?4 OR s.id = ?4)
     ORDER BY d.seq DESC
     LIMIT ?3";

pub(super) const OF_EVENT: &str = "
    SELECT d.seq, d.tenant, o.id, 0, o.event_type, s.name, d.state, d.due_at, d.attempt_count,
           d.counted_failures, d.last_class, d.run_no, d.finished_at, d.reason,
           d.lease_until, d.head = 0 AND d.state = 'pending',
           o.aggregate_type, o.aggregate_id, o.idempotency_key
      FROM outbox AS o
     CROSS JOIN deliveries AS d ON d.outbox_seq = o.seq
     CROSS JOIN subscriptions AS s ON s.seq = d.subscription_seq
     WHERE o.id = ?2
       AND o.tenant = ?1
       AND d.seq < ?3
       AND (?5 IS NULL OR d.state = ?5)
       AND (?6 IS NULL OR s.name = ?6 OR s.id = ?6)
     ORDER BY d.seq DESC
     LIMIT ?4";

pub(super) const OF_WEBHOOK_EVENT: &str = "
    SELECT d.seq, d.tenant, w.id, 1, w.event_type, s.name, d.state, d.due_at, d.attempt_count,
           d.counted_failures, d.last_class, d.run_no, d.finished_at, d.reason,
           d.lease_until, d.head = 0 AND d.state = 'pending',
           NULL, NULL, w.provider_event_id
      FROM webhook_events AS w
     CROSS JOIN deliveries AS d ON d.webhook_seq = w.seq
     CROSS JOIN subscriptions AS s ON s.seq = d.subscription_seq
     WHERE w.id = ?2
       AND w.tenant = ?1
       AND d.seq < ?3
       AND (?5 IS NULL OR d.state = ?5)
       AND (?6 IS NULL OR s.name = ?6 OR s.id = ?6)
     ORDER BY d.seq DESC
     LIMIT ?4";

/// Which deliveries a list shows. Absent means any.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Where they stand.
    pub state: Option<State>,
    /// Their subscription, by name or UUID.
    pub subscription: Option<String>,
    /// The UUID of the event or webhook event they carry.
    pub event_id: Option<String>,
}

/// A delivery.
///
/// # Errors
/// When the file cannot be read.
pub fn by_seq(tx: &ReadTx<'_>, tenant: &str, seq: DeliverySeq) -> Result<Option<Delivery>> {
    first(&mut *tx.prepare(BY_SEQ)?, (tenant, seq), delivery)
}

/// Deliveries, newest first.
///
/// # Errors
/// When the file cannot be read.
pub fn page(tx: &ReadTx<'_>, newest: Newest<'_>, filter: &Filter) -> Result<Vec<Delivery>> {
    let Newest { tenant, before, limit } = newest;
    let Filter { state, subscription, event_id } = filter;
    if let Some(event_id) = event_id {
        let params =
            (tenant, event_id, before, limit, state.map(State::as_str), subscription.as_deref());
        let found = rows(&mut *tx.prepare(OF_EVENT)?, params, delivery)?;
        if !found.is_empty() {
            return Ok(found);
        }
        return rows(&mut *tx.prepare(OF_WEBHOOK_EVENT)?, params, delivery);
    }
    // Two states that a person waits for have an index; it only serves a state that is named outright.
    let indexed = match state {
        Some(State::DeadLetter) => Some(PAGE_OF_DEAD),
        Some(State::InDoubt) => Some(PAGE_IN_DOUBT),
        _ => None,
    };
    if let Some(sql) = indexed {
        return rows(&mut *tx.prepare(sql)?, (tenant, before, limit, subscription), delivery);
    }
    let params = (tenant, before, limit, state.map(State::as_str), subscription);
    rows(&mut *tx.prepare(PAGE)?, params, delivery)
}

fn delivery(row: &Row<'_>) -> Result<Delivery> {
    let state: String = row.get(6)?;
    let class: Option<String> = row.get(10)?;
    Ok(Delivery {
        seq: row.get(0)?,
        tenant: row.get(1)?,
        event_id: row.get(2)?,
        of_webhook_event: row.get(3)?,
        event_type: row.get(4)?,
        subscription: row.get(5)?,
        state: word("deliveries.state", &state, State::parse)?,
        due_at: row.get(7)?,
        lease_until: row.get(14)?,
        is_behind: row.get(15)?,
        attempt_count: row.get(8)?,
        counted_failures: row.get(9)?,
        last_class: class
            .map(|class| word("deliveries.last_class", &class, Class::parse))
            .transpose()?,
        run_no: row.get(11)?,
        finished_at: row.get(12)?,
        reason: row.get(13)?,
        aggregate_type: row.get(16)?,
        aggregate_id: row.get(17)?,
        key: row.get(18)?,
    })
}
