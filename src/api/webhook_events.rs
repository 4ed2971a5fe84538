//! `/v1/webhook-events`: the webhooks that were received.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::api::call::{Call, page_found};
use crate::api::context::Api;
use crate::api::payloads::{SHOWN_FACTOR, WithPayload};
use crate::api::problem::Problem;
use crate::api::route::Answer::{Listed, Now};
use crate::api::route::{AFTER, LIMIT, Param, Resource, Returns, SINCE, UNTIL, get};
use crate::api::schema::{NameText, SomeText, Uuid, answers};
use crate::api::{lists, payloads};
use crate::base::clock::Timestamp;
use crate::http::message::Response;
use crate::model::sealed::Sealed;
use crate::model::token::Right::Read;
use crate::model::webhook_event::{NewWebhookEvent, Status, WebhookEvent};
use crate::store::deliveries::{self, Origin};
use crate::store::webhook_events;

pub(super) const ID: Param =
    Param::path::<Uuid>("id", "The webhook event's id.", "019c1447-5800-7000-8000-000000000001");
const STATUS: Param = Param::query::<Status>("status", "Only those with this status.", "");
const PROVIDER: Param =
    Param::query::<SomeText>("provider", "Only those of the provider of this name.", "stripe");
const EVENT_TYPE: Param =
    Param::query::<SomeText>("event_type", "Only those of this type.", "invoice.paid");
const PROVIDER_EVENT_ID: Param = Param::query::<SomeText>(
    "provider_event_id",
    "Only those with this id at the provider.",
    "evt_1NG8Du2eZvKYlo2CUI79vXWy",
)
.quick();
const ANY_ID: Param = Param::query::<SomeText>(
    "id",
    "Only the one with this id or `webhook-id`, and those whose id at the provider starts with it.",
    "order-4711",
);

/// Webhook events.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Webhook events",
    about: "Webhooks that providers sent, each stored once.",
    routes: &[
        get("/v1/webhook-events", Read, Listed(list))
            .doc("listWebhookEvents", "List the webhook events")
            .about("The newest first, without their payloads.")
            .returns(&[Returns::page::<WebhookEventAnswer>("A page of webhook events.")])
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
        get("/v1/webhook-events/{id}", Read, Now(show))
            .doc("getWebhookEvent", "Show a webhook event")
            .about("With its payload: as JSON if it is JSON, else as text, else as base64.")
            .returns(&[Returns::json::<WithPayload<'_, WebhookEventAnswer>>(
                200,
                "The webhook event.",
            )])
            .params(&[ID]),
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
    Ok(page_found(&found, WebhookEventAnswer::of))
}

/// `GET /v1/webhook-events/{id}`
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let found = api.store.read(|tx| webhook_events::by_id(tx, &call.tenant, call.param(0)))?;
    let mut event = found.ok_or_else(|| Problem::not_found("webhook event"))?;
    if event.status == Status::Received {
        let origin = Origin::WebhookEvent(event.seq);
        let open = api.store.read(|tx| deliveries::open_of(tx, origin))?;
        if api.flow.in_flight.any(&open) {
            event.status = Status::Processing;
        }
    }
    let NewWebhookEvent { payload, content_type, sealed, .. } = &event.new;
    let _share = api.share(payload.len().saturating_mul(SHOWN_FACTOR))?;
    Ok(WithPayload::response(WebhookEventAnswer::of(&event), payload, content_type, sealed))
}

/// A webhook event, without its payload.
#[derive(Serialize, JsonSchema)]
#[serde(remote = "WebhookEvent")]
#[schemars(rename = "WebhookEvent")]
pub(super) struct WebhookEventAnswer {
    #[serde(flatten, with = "NewWebhookEventAnswer")]
    new: NewWebhookEvent,
    #[serde(getter = "WebhookEvent::webhook_id")]
    webhook_id: String,
    status: Status,
    open_deliveries: u32,
    /// How often it was received again.
    duplicate_count: u32,
    retry_count: u32,
    processing_started_at: Option<Timestamp>,
    completed_at: Option<Timestamp>,
    error_message: Option<String>,
}
answers!(WebhookEventAnswer, WebhookEvent);

#[derive(Serialize, JsonSchema)]
#[serde(remote = "NewWebhookEvent")]
struct NewWebhookEventAnswer {
    #[schemars(with = "Uuid")]
    id: String,
    #[schemars(with = "NameText")]
    tenant: String,
    #[schemars(with = "NameText")]
    provider: String,
    provider_event_id: String,
    event_type: String,
    received_at: Timestamp,
    content_type: String,
    /// The header fields that are kept.
    #[serde(serialize_with = "as_object")]
    #[schemars(with = "BTreeMap<String, String>")]
    headers: Vec<(String, String)>,
    /// The id of the secret that verified it.
    key_id: Option<String>,
    trace_id: Option<String>,
    #[serde(flatten, serialize_with = "as_batch")]
    #[schemars(with = "BatchAnswer<'static>")]
    batch: Option<(String, u32)>,
    /// How many fields of the body are sealed; they are shown as `[sealed]`.
    #[serde(rename = "sealed_fields", with = "payloads::sealed_fields")]
    #[schemars(with = "u32")]
    sealed: Sealed,
    /// The key of its lane, where its provider says where to find one.
    ordering_key: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct BatchAnswer<'a> {
    /// The batch it came in.
    #[schemars(with = "Option<Uuid>")]
    batch_id: Option<&'a str>,
    /// Its position in the batch, counted from 1.
    item_no: Option<u32>,
}

fn as_object<S: Serializer>(pairs: &[(String, String)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

#[expect(clippy::ref_option, reason = "serde passes a field by reference")]
fn as_batch<S: Serializer>(batch: &Option<(String, u32)>, to: S) -> Result<S::Ok, S::Error> {
    let (batch_id, item_no) = batch.as_ref().map(|(id, no)| (id.as_str(), *no)).unzip();
    BatchAnswer { batch_id, item_no }.serialize(to)
}
