//! `/v1/webhook-events`: looking at what came in.

use serde_json::{Map, Value, json};

use crate::api::Api;
use crate::api::call::{Call, ok, page_of};
use crate::api::events::shown_payload;
use crate::api::problem::Problem;
use crate::domain::webhook_event::{NewWebhookEvent, Status, WebhookEvent};
use crate::http::message::Response;
use crate::store::webhook_events;

/// `GET /v1/webhook-events`
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let query =
        call.query(&["status", "provider", "event_type", "provider_event_id", "since", "until"])?;
    let page = query.page()?;
    let filter = webhook_events::Filter {
        status: query.word("status", Status::parse)?,
        provider: query.text("provider"),
        event_type: query.text("event_type"),
        provider_event_id: query.text("provider_event_id"),
        since: query.time("since")?,
        until: query.time("until")?,
    };
    let before = page.after.unwrap_or(i64::MAX);
    let found =
        api.store.read(|tx| webhook_events::page(tx, &call.tenant, &filter, before, page.limit))?;
    Ok(page_of(&found, page, |event| event.seq, summary))
}

/// `GET /v1/webhook-events/{id}`
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let found = api.store.read(|tx| webhook_events::by_id(tx, &call.tenant, call.param(0)))?;
    let event = found.ok_or_else(|| Problem::not_found("webhook event"))?;
    let mut shown = summary(&event);
    if let Value::Object(fields) = &mut shown {
        fields.extend(shown_payload(&event.new.payload, &event.new.content_type));
    }
    Ok(ok(&shown))
}

fn summary(event: &WebhookEvent) -> Value {
    let webhook_id = event.webhook_id();
    let WebhookEvent {
        seq: _,
        new,
        status,
        open_deliveries,
        duplicate_count,
        retry_count,
        processing_started_at,
        completed_at,
        error_message,
    } = event;
    let NewWebhookEvent {
        id,
        tenant,
        provider,
        provider_event_id,
        event_type,
        received_at,
        payload: _,
        content_type,
        headers,
        key_id,
        trace_id,
    } = new;
    let headers: Map<String, Value> =
        headers.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    json!({
        "id": id, "webhook_id": webhook_id, "tenant": tenant, "provider": provider,
        "provider_event_id": provider_event_id, "event_type": event_type,
        "received_at": received_at, "content_type": content_type, "headers": headers,
        "key_id": key_id, "trace_id": trace_id, "status": status.as_str(),
        "open_deliveries": open_deliveries, "duplicate_count": duplicate_count,
        "retry_count": retry_count, "processing_started_at": processing_started_at,
        "completed_at": completed_at, "error_message": error_message,
    })
}
