//! The member `try` of a subscription that is made or changed: what would be sent of a stored event. Nothing is saved,
//! and nothing is sent.
//!
//! What is sealed in the event stays hidden: it is opened in what is sent alone.

use std::borrow::Cow;

use data_encoding::BASE64;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::api::audited::Audited;
use crate::api::call::Call;
use crate::api::context::Api;
use crate::api::payloads::SHOWN_FACTOR;
use crate::api::problem::Problem;
use crate::api::schema::{Base64, Uuid, value};
use crate::base::id::{DeliverySeq, SubscriptionSeq, webhook_id};
use crate::formats::filter::{self, Payload};
use crate::formats::{Formats, add_headers};
use crate::model::delivery::OutgoingRequest;
use crate::model::event::{NewEvent, OWN_SOURCE};
use crate::model::lane::Key;
use crate::model::sealed;
use crate::model::subscription::{NewSubscription, Routed};
use crate::model::webhook_event::NewWebhookEvent;
use crate::store::error::Result as StoreResult;
use crate::store::tx::ReadTx;
use crate::store::{outbox_lists, webhook_events};

/// What would be sent of an event. Nothing was saved or sent.
#[derive(Serialize, JsonSchema)]
pub(super) struct Trial<'a> {
    #[schemars(with = "Uuid")]
    event: &'a str,
    /// Whether the subscription wants the event.
    matches: bool,
    /// Why it does not.
    #[schemars(with = "Option<String>")]
    why_not: Option<Cow<'a, str>>,
    /// The request's header fields, but for those of signatures and credentials.
    headers: Map<String, Value>,
    /// The request's body, where it is text. What is sealed in the event stays hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Base64")]
    body_base64: Option<String>,
}

/// The answer to a change: the subscription, or a trial.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes two kinds of answers")]
pub(super) enum OrTrial<T> {
    Subscription(T),
    Trial(Trial<'static>),
}

/// Shows what a subscription would send of an event or a webhook event.
/// Fails with 404 where there is no such event, and with 422 where it cannot be sent.
pub(super) fn show(
    api: &Api,
    call: &Call,
    new: &NewSubscription,
    event: &str,
) -> Result<Audited<Value>, Problem> {
    let found = api.store.read(|tx| stored(tx, &call.tenant, event))?;
    let (mut outgoing, target) = found.ok_or_else(|| Problem::not_found("event"))?;
    let formats = Formats::of(new).map_err(|why| Problem::unprocessable(format!("{why}.")))?;
    let factor = formats.memory_factor().unwrap_or(SHOWN_FACTOR);
    let _share = api.share(outgoing.payload.len().saturating_mul(factor))?;
    let why_not = why_not(new, &outgoing, target.as_deref());
    if outgoing.sealed_fields > 0 {
        outgoing.payload = sealed::redact(&outgoing.payload);
    }
    let more = formats
        .write(&mut outgoing)
        .map_err(|why| Problem::unprocessable(format!("This event cannot be sent: {why}.")))?;
    let mut headers = vec![("content-type".to_owned(), outgoing.content_type)];
    add_headers(&mut headers, new.headers.clone());
    add_headers(&mut headers, more);
    let body = std::str::from_utf8(&outgoing.payload).ok();
    Ok(Audited::dry_run(value(Trial {
        event,
        matches: why_not.is_none(),
        why_not,
        headers: headers.into_iter().map(|(name, value)| (name, value.into())).collect(),
        body,
        body_base64: body.is_none().then(|| BASE64.encode(&outgoing.payload)),
    })))
}

fn why_not(
    new: &NewSubscription,
    outgoing: &OutgoingRequest,
    target: Option<&str>,
) -> Option<Cow<'static, str>> {
    let routed = Routed {
        tenant: &outgoing.tenant,
        provider: outgoing.source.strip_prefix("in:"),
        is_own: outgoing.source == OWN_SOURCE,
        event_type: &outgoing.event_type,
        target,
        key: Key::default(),
    };
    if !new.wants(routed) {
        return Some("its source, its event_types or the event's target do not match".into());
    }
    if new.filter.is_empty() || target.is_some() {
        return None;
    }
    let unmet = filter::unmet(&new.filter, &Payload::read(&outgoing.payload))?;
    Some(
        format!(
            "the condition does not hold: {} {} {}",
            unmet.path,
            unmet.op.as_str(),
            unmet.value
        )
        .into(),
    )
}

/// An event or a webhook event as it would be sent, and the one subscription it is for.
fn stored(
    tx: &ReadTx<'_>,
    tenant: &str,
    id: &str,
) -> StoreResult<Option<(OutgoingRequest, Option<String>)>> {
    if let Some(found) = outbox_lists::by_id(tx, tenant, id)? {
        let target = found.new.target.clone();
        return Ok(Some((of_event(found.new), target)));
    }
    Ok(webhook_events::by_id(tx, tenant, id)?.map(|found| (of_webhook_event(found.new), None)))
}

fn of_event(new: NewEvent) -> OutgoingRequest {
    OutgoingRequest {
        delivery: DeliverySeq(0),
        subscription: SubscriptionSeq(0),
        run_no: 0,
        attempt_count: 0,
        accepted_at: new.received_at,
        webhook_id: webhook_id(&new.tenant, &new.source_system, &new.idempotency_key),
        tenant: new.tenant,
        source: new.source_system,
        event_id: new.id,
        idempotency_key: new.idempotency_key,
        event_type: new.event_type,
        aggregate_type: new.aggregate_type,
        aggregate_id: new.aggregate_id,
        payload: new.payload,
        sealed_fields: new.sealed.fields,
        content_type: new.content_type,
        headers: new.headers.unwrap_or_else(|| "{}".to_owned()),
        occurred_at: new.occurred_at,
        trace_id: new.trace_id,
        max_attempts: new.max_attempts,
    }
}

fn of_webhook_event(new: NewWebhookEvent) -> OutgoingRequest {
    let event = NewEvent {
        id: new.id,
        tenant: new.tenant,
        source_system: format!("in:{}", new.provider),
        idempotency_key: new.provider_event_id,
        event_type: new.event_type,
        payload: new.payload,
        content_type: new.content_type,
        headers: Some(json!(new.headers).to_string()),
        received_at: new.received_at,
        trace_id: new.trace_id,
        sealed: new.sealed,
        ..NewEvent::default()
    };
    of_event(event)
}
