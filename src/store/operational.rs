//! Operational events are written into the outbox in the transaction of their cause. `model::operational` lists them.
//!
//! They are made only where a subscription names them: a pattern that begins with a star does not. What the delivery of
//! an operational event comes to, and what it does to its subscription, makes no other.

use std::sync::Arc;

use serde::Serialize;

use crate::base::id;
use crate::model::attempt::AttemptReport;
use crate::model::escalation::NewEscalation;
use crate::model::event::{NewEvent, OWN_SOURCE};
use crate::model::failure::Next;
use crate::model::hold::HoldReason;
use crate::model::lane::Key;
use crate::model::operational::{
    Completed, DeadLettered, Integration, OfCredential, OfDelivery, OfEscalation, OfSubscription,
    OperationalKind,
};
use crate::model::settlement::Settlement;
use crate::model::subscription::{Routed, Subscription};
use crate::store::column::to_json;
use crate::store::deliveries::Origin;
use crate::store::prelude::*;
use crate::store::routes::Route;
use crate::store::{outbox, subscriptions};

const OF_EVENT: &str = "
    SELECT source_system, id, event_type, aggregate_type, aggregate_id, idempotency_key,
           coalesce(trace_id, replace(id, '-', '')) FROM outbox
     WHERE seq = ?1";

const OF_WEBHOOK_EVENT: &str = "
    SELECT 'in:' || provider, id, event_type, NULL, NULL, provider_event_id,
           coalesce(trace_id, replace(id, '-', '')) FROM webhook_events
     WHERE seq = ?1";

/// What an operational event is about.
#[derive(Clone, Copy, Debug)]
pub struct Cause<'a> {
    /// Whose it is.
    pub tenant: &'a str,
    /// Names the cause among the causes of its kind, so that it is told once.
    pub key: &'a str,
    /// The kind and the name of the thing concerned.
    pub aggregate: (&'a str, &'a str),
    /// When it happened (wall time).
    pub at: Timestamp,
    /// Schedule time.
    pub now: Timestamp,
    /// The trace of the run that it is about.
    pub trace: Option<&'a str>,
}

/// Stores an operational event, where a subscription names it. The same cause makes one event.
pub fn emit(
    tx: &WriteTx<'_>,
    kind: OperationalKind,
    cause: &Cause<'_>,
    body: &impl Serialize,
) -> Result<()> {
    let Cause { tenant, key, aggregate: (aggregate_type, aggregate_id), at, now, trace } = *cause;
    if !is_named(tx, kind, tenant)? {
        return Ok(());
    }
    let key = format!("{}/{key}", kind.as_str());
    let payload = to_json("outbox.payload", body)?.into_bytes();
    let new = NewEvent {
        id: id::uuid7_of(at, &[tenant, &key]),
        tenant: tenant.to_owned(),
        source_system: OWN_SOURCE.to_owned(),
        idempotency_key: key,
        event_type: kind.as_str().to_owned(),
        aggregate_type: Some(aggregate_type.to_owned()),
        aggregate_id: Some(aggregate_id.to_owned()),
        payload,
        content_type: "application/json".to_owned(),
        received_at: at,
        trace_id: trace.map(str::to_owned),
        ..NewEvent::default()
    };
    outbox::insert(tx, &new, now).map(drop)
}

/// Whether a subscription of the tenant names the event. Where no tenant's does, this reads nothing.
fn is_named(tx: &WriteTx<'_>, kind: OperationalKind, tenant: &str) -> Result<bool> {
    let own = subscriptions::routes(tx)?.of(tenant);
    if !own.facts().names(kind) {
        return Ok(false);
    }
    let event = Routed {
        tenant,
        provider: None,
        is_own: true,
        event_type: kind.as_str(),
        target: None,
        key: Key::default(),
    };
    Ok(own.candidates(event).iter().any(|route| route.new.wants(event)))
}

/// Whether a subscription of any tenant names the event.
fn is_named_at_all(tx: &WriteTx<'_>, kind: OperationalKind) -> Result<bool> {
    Ok(subscriptions::routes(tx)?.facts().names(kind))
}

/// What a delivery carries.
struct CarriedEvent {
    source: String,
    event_id: String,
    event_type: String,
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    idempotency_key: String,
    trace: String,
}

fn carried(tx: &ReadTx<'_>, origin: Origin) -> Result<Option<CarriedEvent>> {
    let (sql, seq) = origin.choose(OF_EVENT, OF_WEBHOOK_EVENT);
    let read = in_order!(CarriedEvent {
        source,
        event_id,
        event_type,
        aggregate_type,
        aggregate_id,
        idempotency_key,
        trace
    });
    tx.first(sql, [seq], read)
}

/// The subscription of an attempt and the event that it carried; `None` where that is an operational event.
fn attempted(
    tx: &WriteTx<'_>,
    settlement: &Settlement,
    origin: Origin,
) -> Result<Option<(Arc<Route>, CarriedEvent)>> {
    let Some(route) = subscriptions::routes(tx)?.get(settlement.report.subscription) else {
        return Ok(None);
    };
    let carried = carried(tx, origin)?.filter(|carried| carried.source != OWN_SOURCE);
    Ok(carried.map(|carried| (route, carried)))
}

/// Tells that a delivery is completed or given up. `attempts` includes the last one.
pub(super) fn delivery(
    tx: &WriteTx<'_>,
    settlement: &Settlement,
    origin: Origin,
    attempts: u32,
) -> Result<()> {
    let kinds: &[OperationalKind] = match settlement.verdict.next {
        Next::Complete => &[OperationalKind::DeliveryCompleted, OperationalKind::RunCompleted],
        Next::GiveUp(_) => &[OperationalKind::DeliveryDeadLettered],
        Next::Confirm(_) | Next::Retry(_) | Next::Park(_) => &[],
    };
    for kind in kinds {
        if !is_named_at_all(tx, *kind)? {
            continue;
        }
        let Some((route, carried)) = attempted(tx, settlement, origin)? else { return Ok(()) };
        tell_delivery(tx, *kind, settlement, attempts, &route, carried)?;
    }
    Ok(())
}

fn tell_delivery(
    tx: &WriteTx<'_>,
    kind: OperationalKind,
    settlement: &Settlement,
    attempts: u32,
    route: &Route,
    carried: CarriedEvent,
) -> Result<()> {
    let Settlement { report, verdict } = settlement;
    let AttemptReport { delivery, run_no, attempt, now, .. } = &**report;
    let tenant = route.new.tenant.as_str();
    let at = attempt.finished_at;
    let delivery_id = delivery.to_string();
    let trace = carried.trace;
    let body = OfDelivery {
        trace_id: trace.clone(),
        delivery_id: delivery_id.clone(),
        webhook_id: id::webhook_id(tenant, &carried.source, &carried.idempotency_key),
        event_id: carried.event_id,
        event_type: carried.event_type,
        aggregate_type: carried.aggregate_type,
        aggregate_id: carried.aggregate_id,
        idempotency_key: carried.idempotency_key,
        subscription: route.new.name.to_string(),
        attempts,
        http_status: attempt.http_status,
    };
    // As the event's own, so that a URL can name the invoice that was delivered.
    let aggregate_type = body.aggregate_type.clone();
    let aggregate_id = body.aggregate_id.clone();
    let aggregate = match (&aggregate_type, &aggregate_id) {
        (Some(kind), Some(id)) => (kind.as_str(), id.as_str()),
        _ => ("delivery", delivery_id.as_str()),
    };
    let key = format!("{delivery_id}.{run_no}");
    let cause = Cause { tenant, key: &key, aggregate, at, now: *now, trace: Some(&trace) };
    if let Next::GiveUp(why) = &verdict.next {
        let class = attempt.class;
        let body =
            DeadLettered { delivery: body, class, reason: why.clone(), dead_lettered_at: at };
        return emit(tx, kind, &cause, &body);
    }
    emit(tx, kind, &cause, &Completed { delivery: body, completed_at: at })
}

/// Tells that a delivery has begun to fail, or works again.
pub(super) fn integration(
    tx: &WriteTx<'_>,
    settlement: &Settlement,
    origin: Origin,
    failure: i64,
    kind: OperationalKind,
) -> Result<()> {
    if !is_named_at_all(tx, kind)? {
        return Ok(());
    }
    let Some((route, carried)) = attempted(tx, settlement, origin)? else { return Ok(()) };
    let AttemptReport { delivery, run_no, attempt, code, now, .. } = &*settlement.report;
    let is_dead_letter = matches!(settlement.verdict.next, Next::GiveUp(_));
    let failure = format!("flr_{failure}");
    let trace = carried.trace;
    let body = Integration {
        trace_id: trace.clone(),
        failure_id: failure.clone(),
        delivery_id: delivery.to_string(),
        subscription: route.new.name.to_string(),
        event_id: carried.event_id,
        event_type: carried.event_type,
        class: attempt.class,
        code: code.clone(),
        reason: attempt.failed_reason.clone(),
        is_dead_letter,
        at: attempt.finished_at,
    };
    let end = if is_dead_letter { ".dead" } else { "" };
    let key =
        if *run_no > 1 { format!("{failure}.{run_no}{end}") } else { format!("{failure}{end}") };
    let cause = Cause {
        tenant: &route.new.tenant,
        key: &key,
        aggregate: ("failure", &failure),
        at: attempt.finished_at,
        now: *now,
        trace: Some(&trace),
    };
    emit(tx, kind, &cause, &body)
}

/// A hold that was put or has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct HoldChange<'a> {
    /// Of which subscription.
    pub(super) subscription: SubscriptionSeq,
    /// The hold's reason.
    pub(super) reason: HoldReason,
    /// Since when it stands.
    pub(super) since: Timestamp,
    /// Who or what put it.
    pub(super) detail: &'a str,
    /// The delivered thing of the causing attempt; `None`: a person's doing.
    pub(super) by: Option<Origin>,
    /// When.
    pub(super) at: Timestamp,
}

/// Tells that a subscription is held or disabled.
pub(super) fn held(tx: &WriteTx<'_>, change: &HoldChange<'_>) -> Result<()> {
    match OperationalKind::of_hold(change.reason) {
        Some(kind) if is_named_at_all(tx, kind)? && !is_by_own(tx, change)? => {
            tell_hold(tx, kind, change)
        }
        _ => Ok(()),
    }
}

/// Tells that a hold has ended. If the delivery of an operational event ended it, that is told only where the hold was
/// told: so each `subscription.resumed` has a cause that was not such a delivery.
pub(super) fn resumed(tx: &WriteTx<'_>, change: &HoldChange<'_>) -> Result<()> {
    let Some(put) = OperationalKind::of_hold(change.reason) else { return Ok(()) };
    if !is_named_at_all(tx, OperationalKind::SubscriptionResumed)? {
        return Ok(());
    }
    if is_by_own(tx, change)? {
        let Some(found) = subscriptions::by_seq(tx, change.subscription)? else { return Ok(()) };
        let key = format!("{}/{}", put.as_str(), hold_key(&found, change));
        if !outbox::is_stored(tx, (&found.new.tenant, OWN_SOURCE, &key))? {
            return Ok(());
        }
    }
    tell_hold(tx, OperationalKind::SubscriptionResumed, change)
}

fn is_by_own(tx: &WriteTx<'_>, change: &HoldChange<'_>) -> Result<bool> {
    let Some(origin) = change.by else { return Ok(false) };
    Ok(carried(tx, origin)?.is_some_and(|carried| carried.source == OWN_SOURCE))
}

fn hold_key(subscription: &Subscription, change: &HoldChange<'_>) -> String {
    let HoldChange { reason, since, .. } = change;
    format!("{}/{}/{}", subscription.new.id, reason.as_str(), since.ms())
}

fn tell_hold(tx: &WriteTx<'_>, kind: OperationalKind, change: &HoldChange<'_>) -> Result<()> {
    let Some(found) = subscriptions::by_seq(tx, change.subscription)? else { return Ok(()) };
    let HoldChange { reason, detail, at, .. } = *change;
    let body = OfSubscription {
        subscription_id: found.new.id.clone(),
        subscription: found.new.name.to_string(),
        reason: reason.as_str(),
        detail: detail.to_owned(),
        at,
    };
    let cause = Cause {
        tenant: &found.new.tenant,
        key: &hold_key(&found, change),
        aggregate: ("subscription", found.new.name.as_str()),
        at,
        now: at,
        trace: None,
    };
    emit(tx, kind, &cause, &body)
}

/// Tells that a credential was rotated, or that a rotation failed.
pub fn credential(
    tx: &WriteTx<'_>,
    (kind, tenant): (OperationalKind, &str),
    body: &OfCredential,
) -> Result<()> {
    let (id, at) = (body.credential_id.as_str(), body.at);
    let cause = Cause { tenant, key: id, aggregate: ("credential", id), at, now: at, trace: None };
    emit(tx, kind, &cause, body)
}

/// Tells of an escalation about a source or the site that is new, or was reopened at a time.
pub(super) fn raised(
    tx: &WriteTx<'_>,
    new: &NewEscalation,
    reopened_at: Option<Timestamp>,
    at: Timestamp,
) -> Result<()> {
    tell_escalation(tx, OperationalKind::of_escalation(new.class), new, reopened_at, at)
}

/// Tells that an escalation about a source or the site is over. It may have been reopened before.
pub(super) fn resolved(
    tx: &WriteTx<'_>,
    over: &NewEscalation,
    reopened_at: Option<Timestamp>,
    at: Timestamp,
) -> Result<()> {
    tell_escalation(tx, OperationalKind::of_end(over.class), over, reopened_at, at)
}

fn tell_escalation(
    tx: &WriteTx<'_>,
    kind: Option<OperationalKind>,
    about: &NewEscalation,
    reopened_at: Option<Timestamp>,
    at: Timestamp,
) -> Result<()> {
    let NewEscalation { id, tenant, class, subject, detail } = about;
    let Some(kind) = kind else { return Ok(()) };
    let body = OfEscalation {
        subject: subject.clone(),
        condition: class.as_str(),
        escalation_id: id.clone(),
        detail: detail.clone(),
        at,
    };
    let aggregate = ("escalation", id.as_str());
    // Each time that it is reopened is told.
    let key = reopened_at.map_or_else(|| id.clone(), |since| format!("{id}/{}", since.ms()));
    emit(tx, kind, &Cause { tenant, key: &key, aggregate, at, now: at, trace: None }, &body)
}
