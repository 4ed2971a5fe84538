//! Table `outbox`, quarantine: events that cannot be used, until a person repairs or discards them.
//!
//! The tenant `default` also sees events whose tenant does not exist.

use rusqlite::params;

use crate::model::audit::changes::Changes;
use crate::model::audit::{Actor, NewAuditEvent};
use crate::model::event::{Event, NewEvent, Status};
use crate::model::sql_row::{Column, SqlRow};
use crate::store::outbox_lists::{self, OutboxFilter};
use crate::store::outbox_routing::{self, RoutingPlan};
use crate::store::page::{Newest, RowPage, SeqRange, cutoff, newest_first};
use crate::store::prelude::*;
use crate::store::{
    audit_events, families, outbox_relay, payloads, search_values, seen_keys, subjects, tenants,
};

/// The condition that a tenant may see an event: its own events, and for `default` those of unknown tenants.
macro_rules! is_visible_to {
    ($tenant:literal) => {
        concat!(
            "(tenant = ",
            $tenant,
            " OR ",
            $tenant,
            " = 'default'
              AND NOT EXISTS (SELECT 1 FROM tenants AS t WHERE t.name = outbox.tenant))"
        )
    };
}

pub(super) const PAGE: &str = newest_first!(
    "outbox" where
    "status = 'quarantined'
     AND (?5 IS NULL OR event_type = ?5)
     AND (?6 IS NULL OR idempotency_key = ?6)
     AND (?7 IS NULL OR aggregate_id = ?7)
     AND (?8 IS NULL OR webhook_id(tenant, source_system, idempotency_key) = ?8)
     AND (?9 IS NULL OR parent_seq = ?9)
     AND (?10 IS NULL OR process_id = ?10)
     AND (?11 IS NULL OR aggregate_type = ?11)
     AND ",
    is_visible_to!("?4")
);

pub(super) const CUTOFF: &str = cutoff!("outbox" where "status = 'quarantined'");

pub(super) const COUNT: &str = "SELECT count(*) FROM outbox WHERE status = 'quarantined'";

pub(super) const COUNT_OF: &str =
    concat!("SELECT count(*) FROM outbox WHERE status = 'quarantined' AND ", is_visible_to!("?1"));

const FIND: &str =
    concat!("SELECT seq, status FROM outbox WHERE id = ?2 AND ", is_visible_to!("?1"));

const TAKEN: &str = "
    SELECT EXISTS (SELECT 1 FROM outbox
           WHERE tenant = ?1 AND source_system = ?2 AND idempotency_key = ?3 AND seq <> ?4)";

// Replaces the idempotency key, so that it can be used again. The new key contains the old one, cut to 255 characters.
pub(super) const DISCARD: &str = "
    UPDATE outbox SET status = 'cancelled', completed_at = ?2, last_error = ?3,
           idempotency_key = substr('discarded ' || id || ': ' || idempotency_key, 1, 255)
     WHERE seq = ?1 AND status = 'quarantined'";

const INSERTED: &str = "SELECT payload_seq FROM outbox WHERE seq = ?1 AND own = 0";

// What is left says that there was a row, and when.
const FORGET: &str = "
    UPDATE outbox SET payload = x'', payload_seq = NULL, content_type = 'application/json', headers = '{}',
           source_system = ?2, event_type = ?3, idempotency_key = 'discarded ' || id, aggregate_type = NULL,
           aggregate_id = NULL, target = NULL, ordering_key = NULL, process_id = NULL, trace_id = NULL,
           custom_data = NULL, entity_type = NULL, funnel_point = NULL, funnel_value = NULL, replay_of = NULL
     WHERE seq = ?1";

queries! {
    /// How many events are quarantined, over all tenants.
    pub fn count() -> u64 = count COUNT;

    /// How many events of a tenant are quarantined.
    pub fn count_of(tenant: &str) -> u64 = count COUNT_OF;

    /// The number and the status of an event that a tenant may see.
    pub fn find(tenant: &str, id: &str) -> Option<(i64, String)> = first as tuple FIND;
}

/// A page of quarantined events without their payloads, newest first.
pub fn page(tx: &ReadTx<'_>, newest: Newest<'_>, filter: &OutboxFilter) -> Result<RowPage<Event>> {
    let Newest { tenant, before, limit } = newest;
    let OutboxFilter {
        event_type,
        idempotency_key,
        aggregate_type,
        aggregate_id,
        webhook_id,
        process_id,
        received,
        ..
    } = filter;
    let parent = filter.parent(tx, tenant)?;
    let mut range = SeqRange::new(tx, outbox_lists::RECEIVED_FROM, before, *received)?;
    range.limit_rows(tx, CUTOFF, &[])?;
    let seqs = range.seqs(
        tx,
        PAGE,
        limit,
        params![
            tenant,
            event_type,
            idempotency_key,
            aggregate_id,
            webhook_id,
            parent,
            process_id,
            aggregate_type
        ],
    )?;
    Ok(range.found(outbox_lists::by_seqs(tx, seqs)?, limit, |event| event.seq))
}

/// A quarantined event with its payload, for the tenant `default` also one of an unknown tenant.
pub fn of_unknown_tenant(tx: &ReadTx<'_>, tenant: &str, id: &str) -> Result<Option<Event>> {
    let Some((seq, status)) = find(tx, tenant, id)? else { return Ok(None) };
    let event =
        if status == Status::Quarantined.as_str() { outbox_lists::by_seq(tx, seq)? } else { None };
    match event {
        Some(event) => outbox_lists::by_id(tx, &event.new.tenant, id),
        None => Ok(None),
    }
}

/// Plans the routing of an event that passed [`crate::store::sql_rows::check`]. The inner error says why it cannot be routed:
/// another event has its key, or its target still does not exist.
pub fn ready(
    tx: &WriteTx<'_>,
    seq: i64,
    event: &NewEvent,
    now: Timestamp,
) -> Result<std::result::Result<Ready, String>> {
    let identity = (&event.tenant, &event.source_system, &event.idempotency_key, seq);
    let known = (identity.0.as_str(), identity.1.as_str(), identity.2.as_str());
    let is_archived = seen_keys::find(tx, seen_keys::EVENT, known)?.is_some();
    if is_archived || tx.value(TAKEN, identity)? {
        let key = &event.idempotency_key;
        return Ok(Err(format!("there is another event of its source with the key {key:?}")));
    }
    let plan = outbox_routing::plan(tx, event, now)?.at_original_place();
    Ok(match &event.target {
        Some(target) if plan.open() == 0 => Err(format!(
            "there is still no subscription named {target:?} that takes events of the outbox"
        )),
        _ => Ok(Ready(plan)),
    })
}

/// The routing plan of a repaired event.
#[derive(Debug)]
pub struct Ready(RoutingPlan);

/// Routes a repaired event; `is_replaced` says whether its payload changed.
/// Fails with `Changed` if it is no longer quarantined.
pub fn release(
    tx: &WriteTx<'_>,
    row: &mut SqlRow,
    event: &NewEvent,
    is_replaced: bool,
    ready: &Ready,
    now: Timestamp,
) -> Result<Status> {
    let left = families::leave(tx, row.seq)?;
    // Sets the columns as an INSERT does, because the routing in the same transaction expects that.
    let reopened = update!(tx, "outbox" of event {
        source_system, idempotency_key, event_type, aggregate_type, aggregate_id, target, content_type,
        headers: row.text(Column::Headers), ordering_key, process_id, trace_id, custom_data, occurred_at, not_before,
        status: "pending", routed_at: None::<Timestamp>, error_code: None::<&str>, last_error: None::<&str>,
        parent_seq: row.parent_seq
    } "WHERE seq = ? AND status = 'quarantined'", [row.seq])?;
    one_row(reopened, "the event")?;
    if is_replaced {
        let payload_seq = outbox_relay::replace_payload(tx, row.seq, event)?;
        if let Some(old) = std::mem::replace(&mut row.payload_seq, payload_seq) {
            payloads::remove(tx, old)?;
        }
        if let Some(key) = &event.sealed.key {
            subjects::keep(tx, key, event.received_at)?;
        }
    }
    let status = outbox_relay::route(tx, row, event, &ready.0, now)?;
    if let Some(parent) = left {
        families::refresh(tx, parent, false, now)?;
    }
    search_values::add(tx, row.seq)?;
    Ok(status)
}

/// Discards a quarantined event whose key is published again, because it must not block a usable event. The audit
/// event names Oncebox as the actor.
pub(super) fn discard_republished(
    tx: &WriteTx<'_>,
    kept: &Event,
    new: &NewEvent,
    now: Timestamp,
) -> Result<()> {
    let reason = format!("it was published again, as the event {}", new.id);
    discard(tx, kept.seq, &reason, now)?;
    let event =
        NewAuditEvent::local(new.received_at, &new.tenant, Actor::system(), "event.discard");
    let changes = Changes::none().and("status", "cancelled").and("last_error", reason);
    audit_events::append(tx, &event.of("event", &kept.new.id, changes))
}

/// Discards a quarantined event: it is never routed, and its key is free. Its error code stays. If its tenant has a
/// policy on personal data, the content of a row that plain SQL inserted is removed: it has passed no policy.
/// Fails with `Changed` when it is not quarantined.
pub fn discard(tx: &WriteTx<'_>, seq: i64, reason: &str, now: Timestamp) -> Result<()> {
    tx.change_one(DISCARD, (seq, now, reason), "the event")?;
    forget(tx, seq)?;
    families::changed(tx, seq, now)
}

fn forget(tx: &WriteTx<'_>, seq: i64) -> Result<()> {
    let Some(Event { new, .. }) = outbox_lists::by_seq(tx, seq)? else { return Ok(()) };
    let pii = tenants::pii(tx, &new.tenant)?;
    let inserted: Option<Option<i64>> = tx.find(INSERTED, [seq])?;
    let (Some(policy), Some(payload)) = (pii.rules(), inserted) else { return Ok(()) };
    let masked = |text: String| policy.masked(&text).unwrap_or(text);
    tx.execute(FORGET, (seq, masked(new.source_system), masked(new.event_type)))?;
    payload.map_or(Ok(()), |payload| payloads::remove(tx, payload))?;
    // The write-ahead log is emptied as for a key that was destroyed.
    tx.subjects_erased();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::FORGET;
    use crate::store::tests::unforgotten;

    #[test]
    fn a_new_column_of_a_discarded_row_is_forgotten_or_said_to_stay() {
        let left = unforgotten(&["outbox"], |conn| {
            assert_eq!(conn.execute(FORGET, (1, "", "")), Ok(1));
        });
        let kept = ["id", "tenant", "parent_binding", "status", "error_code", "last_error"];
        assert_eq!(left, kept.map(|column| format!("outbox.{column}")));
    }
}
