//! `/v1/webhook-events`: the webhooks that were received.

use std::convert::identity;

use crate::api::archived::{self, By};
use crate::api::call::{SHOWN_FACTOR, WithPayload, page_found};
use crate::api::events::{TRACE_ID, in_flight};
use crate::api::prelude::*;
use crate::archive;
use crate::model::webhook_event::{NewWebhookEvent, Status, WebhookEvent};
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
            .doc(
                "listWebhookEvents",
                "List the webhook events",
                &[
                    STATUS,
                    PROVIDER,
                    EVENT_TYPE,
                    PROVIDER_EVENT_ID,
                    ANY_ID,
                    TRACE_ID,
                    SINCE,
                    UNTIL,
                    LIMIT,
                    AFTER,
                ],
            )
            .about("The newest first, without their payloads.")
            .returns(&[Returns::page::<WebhookEvent>("A page of webhook events.")]),
        get("/v1/webhook-events/{id}", Read, Now(show))
            .doc("getWebhookEvent", "Show a webhook event", &[ID])
            .about("With its payload: as JSON if it is JSON, else as text, else as base64.")
            .returns(&[Returns::json::<WithPayload<'_, WebhookEvent>>(200, "The webhook event.")]),
    ],
};

/// `GET /v1/webhook-events`
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let query = &call.query;
    let page = query.page()?;
    let filter = webhook_events::WebhookEventFilter {
        status: query.one_of("status", Status::ALL, Status::as_str)?,
        provider: query.text("provider"),
        event_type: query.text("event_type"),
        provider_event_id: query.text("provider_event_id"),
        id: query.text("id"),
        trace_id: query.text("trace_id"),
        received: query.span()?,
        in_flight: in_flight(api)?.1,
    };
    let newest = page.newest(&call.tenant);
    let key =
        filter.provider_event_id.as_deref().map(|key| (archive::ArchivedKind::WebhookEvent, key));
    let found =
        archived::page(api, call, page.limit, key, |tx| webhook_events::page(tx, newest, &filter))?;
    Ok(page_found(&found, identity))
}

/// `GET /v1/webhook-events/{id}`
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let by = By::Id(call.param(0));
    let found =
        archived::find(api, by, |tx| webhook_events::by_id(tx, &call.tenant, call.param(0)))?;
    let mut event = found.or_not_found("webhook event")?;
    event.see_in_flight(&in_flight(api)?.1);
    let NewWebhookEvent { payload, content_type, sealed, .. } = &event.new;
    let _share = api.share(payload.len().saturating_mul(SHOWN_FACTOR))?;
    Ok(WithPayload::response(value(&event), payload, content_type, sealed))
}
