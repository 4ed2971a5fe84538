//! `/v1/webhook-events`: looking at what came in.

use serde_json::{Map, Value, json};

use crate::api::call::{Call, page_found};
use crate::api::event_shapes::with_payload as with_payload_shape;
use crate::api::payloads::{SHOWN_FACTOR, with_payload};
use crate::api::problem::Problem;
use crate::api::route::Answer::{Listed, Now};
use crate::api::route::{Param, Resource, Returns, doc, route, shape};
use crate::api::schema::{self, AFTER, LIMIT, SINCE, UNTIL};
use crate::api::{Api, lists};
use crate::http::message::Method::Get;
use crate::http::message::Response;
use crate::model::token::Right;
use crate::model::webhook_event::{NewWebhookEvent, Status, WebhookEvent};
use crate::store::webhook_events;

const ID: Param = Param::path(
    "id",
    "The webhook event's id.",
    schema::uuid,
    "019c1447-5800-7000-8000-000000000001",
);
const STATUS: Param = Param::query("status", "Only those with this status.", status_schema, "");
const PROVIDER: Param = Param::query(
    "provider",
    "Only those of the provider of this name.",
    schema::some_text,
    "stripe",
);
const EVENT_TYPE: Param =
    Param::query("event_type", "Only those of this type.", schema::some_text, "invoice.paid");
const PROVIDER_EVENT_ID: Param = Param::query(
    "provider_event_id",
    "Only those with this id at the provider.",
    schema::some_text,
    "evt_1NG8Du2eZvKYlo2CUI79vXWy",
)
.quick();
const ANY_ID: Param = Param::query(
    "id",
    "Only the one with this id or this `webhook-id`, and those whose id at the provider begins so.",
    schema::some_text,
    "order-4711",
);

/// What came in.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Webhook events",
    about: "What providers sent, each once.",
    routes: &[
        route(
            Get,
            "/v1/webhook-events",
            Some(Right::Read),
            Listed(list),
            doc(
                "listWebhookEvents",
                "List the webhook events",
                "The newest first, without their payloads.",
                &[Returns::page("A page of webhook events.", "WebhookEvent")],
            )
            .params(&[
                STATUS,
                PROVIDER,
                EVENT_TYPE,
                PROVIDER_EVENT_ID,
                ANY_ID,
                SINCE,
                UNTIL,
                LIMIT,
                AFTER,
            ]),
        ),
        route(
            Get,
            "/v1/webhook-events/{id}",
            Some(Right::Read),
            Now(show),
            doc(
                "getWebhookEvent",
                "Show a webhook event",
                "With its payload: as JSON where it is JSON, else as text, else as base64.",
                &[Returns::json(200, "The webhook event.", "WebhookEventWithPayload")],
            )
            .params(&[ID]),
        ),
    ],
    shapes: &[
        shape("WebhookEvent", webhook_event_schema),
        shape("WebhookEventWithPayload", webhook_event_with_payload_schema),
    ],
};

/// `GET /v1/webhook-events`
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let query = &call.query;
    let page = query.page()?;
    let filter = webhook_events::Filter {
        status: query.one_of("status", Status::ALL, Status::as_str)?,
        provider: query.text("provider"),
        event_type: query.text("event_type"),
        provider_event_id: query.text("provider_event_id"),
        id: query.text("id"),
        received: query.span()?,
    };
    let newest = page.newest(&call.tenant);
    let found = lists::read(api, call, |tx| webhook_events::page(tx, newest, &filter))?;
    Ok(page_found(&found, summary))
}

/// `GET /v1/webhook-events/{id}`
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let found = api.store.read(|tx| webhook_events::by_id(tx, &call.tenant, call.param(0)))?;
    let event = found.ok_or_else(|| Problem::not_found("webhook event"))?;
    let NewWebhookEvent { payload, content_type, sealed, .. } = &event.new;
    let _share = api.share(payload.len().saturating_mul(SHOWN_FACTOR))?;
    Ok(with_payload(&summary(&event), payload, content_type, sealed))
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
        batch,
        sealed,
    } = new;
    let (batch_id, item_no) = batch.clone().unzip();
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
        "batch_id": batch_id, "item_no": item_no,
        "sealed_fields": sealed.fields,
    })
}

fn status_schema() -> Value {
    schema::words(Status::ALL.map(Status::as_str))
}

fn webhook_event_schema() -> Value {
    let or_null = schema::nullable;
    let headers = json!({ "type": "object", "additionalProperties": schema::text() });
    let headers = schema::about(headers, "Those that are kept.");
    let key = schema::about(or_null(schema::text()), "The secret that verified it.");
    schema::object(json!({
        "id": schema::uuid(), "webhook_id": schema::text(), "tenant": schema::name(),
        "provider": schema::name(), "provider_event_id": schema::text(),
        "event_type": schema::text(), "received_at": schema::time(),
        "content_type": schema::text(), "headers": headers, "key_id": key,
        "trace_id": or_null(schema::text()), "status": status_schema(),
        "open_deliveries": schema::count(),
        "duplicate_count": schema::about(schema::count(), "How often it came again."),
        "retry_count": schema::count(), "processing_started_at": or_null(schema::time()),
        "completed_at": or_null(schema::time()), "error_message": or_null(schema::text()),
        "batch_id": schema::about(or_null(schema::uuid()), "The batch it came in."),
        "item_no": schema::about(or_null(schema::count()), "Its place there, counted from 1."),
        "sealed_fields": schema::about(
            schema::count(), "How many places of the body are sealed; they are shown as `[sealed]`."),
    }))
}

fn webhook_event_with_payload_schema() -> Value {
    with_payload_shape(webhook_event_schema())
}
