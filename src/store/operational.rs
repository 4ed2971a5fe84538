//! Operational events: Oncebox's own, written into the outbox in the transaction of their cause.
//!
//! They are made only where a subscription asks for them by name (a pattern that begins with a star does not), and the
//! delivery of one makes no other.

use serde_json::json;

use crate::base::id;
use crate::model::event::{NewEvent, OWN_SOURCE};
use crate::model::failure::{Next, Settlement};
use crate::model::sealed::Sealed;
use crate::store::deliveries::Origin;
use crate::store::error::Result;
use crate::store::tx::{WriteTx, first};
use crate::store::{outbox, subscriptions};

const OF_EVENT: &str = "
    SELECT source_system, id, event_type
      FROM outbox
     WHERE seq = ?1";

const OF_WEBHOOK_EVENT: &str = "
    SELECT '', id, event_type
      FROM webhook_events
     WHERE seq = ?1";

/// Tells that a delivery has begun to fail, or works again.
pub(super) fn integration(
    tx: &WriteTx<'_>,
    settlement: &Settlement,
    origin: Origin,
    (failure, event_type): (i64, &'static str),
) -> Result<()> {
    let routes = subscriptions::routes(tx)?;
    if !routes.iter().any(|route| route.new.event_types.names(event_type)) {
        return Ok(());
    }
    let (sql, seq) = match origin {
        Origin::Outbox(seq) => (OF_EVENT, seq),
        Origin::WebhookEvent(seq) => (OF_WEBHOOK_EVENT, seq),
    };
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let found: Option<(String, String, String)> = first(&mut *tx.prepare(sql)?, [seq], read)?;
    let route = routes.iter().find(|route| route.seq == settlement.subscription);
    let (Some((source, event_id, about)), Some(route)) = (found, route) else { return Ok(()) };
    if source == OWN_SOURCE {
        return Ok(());
    }
    let attempt = &settlement.attempt;
    let failure = format!("flr_{failure}");
    let body = json!({
        "failure_id": failure,
        "delivery_id": settlement.delivery.to_string(),
        "subscription": route.new.name.as_str(),
        "event_id": event_id,
        "event_type": about,
        "class": attempt.class.as_str(),
        "code": settlement.code,
        "reason": attempt.failed_reason,
        "is_dead_letter": matches!(settlement.next, Next::GiveUp(_)),
        "at": attempt.finished_at,
    });
    let key = format!("{event_type}/{failure}");
    let tenant = route.new.tenant.clone();
    let new = NewEvent {
        id: id::uuid7_of(attempt.finished_at, &[&tenant, &key]),
        tenant,
        source_system: OWN_SOURCE.to_owned(),
        idempotency_key: key,
        event_type: event_type.to_owned(),
        aggregate_type: Some("failure".to_owned()),
        aggregate_id: Some(failure),
        target: None,
        payload: body.to_string().into_bytes(),
        content_type: "application/json".to_owned(),
        occurred_at: None,
        received_at: attempt.finished_at,
        not_before: None,
        ordering_key: None,
        process_id: None,
        trace_id: None,
        max_attempts: None,
        custom_data: None,
        sealed: Sealed::default(),
    };
    outbox::insert(tx, &new, settlement.now).map(drop)
}
