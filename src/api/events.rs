//! `/v1/events`: publishing, and looking at what was published.

use std::borrow::Cow;

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::api::call::{Call, check_depth, page_found};
use crate::api::event_shapes::{self as shapes, MAX_EVENTS};
use crate::api::kind::Kind;
use crate::api::payloads::{SHOWN_FACTOR, with_payload};
use crate::api::problem::Problem;
use crate::api::request_key;
use crate::api::route::Answer::{Later, Listed, Now};
use crate::api::route::{Param, Resource, Returns, doc, route};
use crate::api::schema::{self, AFTER, LIMIT, SINCE, UNTIL};
use crate::api::{Api, lists};
use crate::base::clock::Timestamp;
use crate::base::id;
use crate::http::message::Method::{Get, Post};
use crate::http::message::Response;
use crate::http::service::Reply;
use crate::model::event::{self, Event, NewEvent, Status};
use crate::model::few::Few;
use crate::model::sealed::Sealed;
use crate::model::strict_object::Object;
use crate::model::token::{Right, Scope};
use crate::model::{lenient_int, trace};
use crate::pipeline::publish::{Idempotency, Outcome, Published};
use crate::store::{outbox_lists, quarantine};

/// The source of events that name none, unless the token names one alone.
const SOURCE_SYSTEM_DEFAULT: &str = "api";

pub(super) const ID: Param =
    Param::path("id", "The event's id.", schema::uuid, "019c1447-5800-7000-8000-000000000001");
const STATUS: Param = Param::query("status", "Only those with this status.", shapes::status, "");
const EVENT_TYPE: Param =
    Param::query("event_type", "Only those of this type.", schema::some_text, "invoice.created");
const IDEMPOTENCY_KEY: Param =
    Param::query("idempotency_key", "Only those with this key.", schema::some_text, "invoice-4711")
        .quick();
const AGGREGATE_ID: Param =
    Param::query("aggregate_id", "Only those about this thing.", schema::some_text, "4711").quick();
const WEBHOOK_ID: Param = Param::query(
    "webhook_id",
    "The one whose deliveries carry this `webhook-id`.",
    schema::some_text,
    "evt_AEBAGBAFAYDQQCIKBMGA2DQPCA",
);
const REQUEST_KEY: Param = Param::header(
    "Idempotency-Key",
    "Names this request for 24 hours: sent again with the same body, it is answered as before.",
    shapes::request_key,
    "1f0c6d3e-8a51-4f7a-9b65-0a4cf5b7f9d2",
);
const TRACEPARENT: Param = Param::header(
    "traceparent",
    "The W3C trace the events belong to; their deliveries carry it on.",
    schema::text,
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
);
const REPLAYED: &[(&str, &str)] =
    &[("Idempotency-Replayed", "`true` when this is the stored answer to the same request.")];

/// The outbox.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Events",
    about: "The outbox: business facts to carry out, each once.",
    routes: &[
        route(
            Post,
            "/v1/events",
            Some(Right::Publish),
            Later(publish),
            doc(
                "publishEvents",
                "Publish one event or many",
                "One event, or an array of up to 1,000: all are stored, or none. Answered after COMMIT. An \
                 event that was published before (the same `source_system` and `idempotency_key`) is not \
                 stored again; the first content stays. One that is quarantined is not processed: what is \
                 published again takes its place, if it can be used or says something else. A `publish` token \
                 publishes as the source systems that it lists, and is answered 403 for others. `sql`, `in:…` and \
                 the names of configured sources are answered 422: they belong to other ways in.",
                &[
                    Returns::json(201, "At least one is new.", "Publications").with_headers(REPLAYED),
                    Returns::json(200, "All were there before.", "Publications").with_headers(REPLAYED),
                ],
            )
            .params(&[REQUEST_KEY, TRACEPARENT])
            .body("NewEvents", shapes::publication_example)
            .problems(&[Kind::IdempotencyKeyReused]),
        ),
        route(
            Get,
            "/v1/events",
            Some(Right::Read),
            Listed(list),
            doc(
                "listEvents",
                "List the events",
                "The newest first, without their payloads.",
                &[Returns::page("A page of events.", "Event")],
            )
            .params(&[
                STATUS,
                EVENT_TYPE,
                IDEMPOTENCY_KEY,
                AGGREGATE_ID,
                WEBHOOK_ID,
                SINCE,
                UNTIL,
                LIMIT,
                AFTER,
            ]),
        ),
        route(
            Get,
            "/v1/events/{id}",
            Some(Right::Read),
            Now(show),
            doc(
                "getEvent",
                "Show an event",
                "With its payload: as JSON where it is JSON, else as text, else as base64.",
                &[Returns::json(200, "The event.", "EventWithPayload")],
            )
            .params(&[ID]),
        ),
    ],
    shapes: shapes::ALL,
};

/// An event as it is published. `payload` (any JSON) or `payload_base64` (any bytes, with their
/// `content_type`) is required, and `event_type`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Publication<'a> {
    event_type: String,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    payload_base64: Option<Cow<'a, str>>,
    content_type: Option<String>,
    source_system: Option<String>,
    idempotency_key: Option<String>,
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    target: Option<String>,
    occurred_at: Option<Timestamp>,
    not_before: Option<Timestamp>,
    ordering_key: Option<String>,
    process_id: Option<String>,
    #[serde(default, deserialize_with = "lenient_int::optional")]
    max_attempts: Option<u32>,
    custom_data: Option<String>,
}

/// Stores one event or an array of them, all or none; the reply is sent after COMMIT.
pub(super) fn publish(api: &Api, call: Call, reply: Reply) {
    match read(api, &call) {
        Err(problem) => reply.send(problem.into()),
        Ok((events, idempotency)) => {
            // Until the answer: what is stored waits for the writer.
            let share = call.share;
            let done = move |outcome| {
                reply.send(response(outcome));
                drop(share);
            };
            api.flow.publish.publish(call.tenant, events, idempotency, encode, done);
        }
    }
}

fn read(api: &Api, call: &Call) -> Result<(Vec<NewEvent>, Option<Idempotency>), Problem> {
    let body = &call.request.body;
    check_depth(body)?;
    let wrong = |error: serde_json::Error| {
        Problem::bad_request(format!("The body is not an event or an array of events: {error}."))
    };
    let Few { kept: publications, count }: Few<Object<Publication<'_>>, MAX_EVENTS> =
        if body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
            serde_json::from_slice(body).map_err(wrong)?
        } else {
            Few { kept: vec![serde_json::from_slice(body).map_err(wrong)?], count: 1 }
        };
    if !(1..=MAX_EVENTS).contains(&count) {
        let detail = format!("A request holds 1 to {MAX_EVENTS} events; this one has {count}.");
        return Err(Problem::unprocessable(detail));
    }
    let single = publications.len() == 1;
    let events = publications.into_iter().enumerate().map(|(n, Object(publication))| {
        new_event(api, call, publication).map_err(|problem| {
            let place =
                if single { String::new() } else { format!("Event {n} (counted from 0): ") };
            Problem::unprocessable(format!("{place}{problem}."))
        })
    });
    let events = events.collect::<Result<Vec<_>, _>>()?;
    check_sources(call, &events)?;
    Ok((events, request_key::of(call)?))
}

/// Whether the caller may publish as the source systems of its events. Names of configured sources are refused by
/// `flow::publish`, in the transaction.
fn check_sources(call: &Call, events: &[NewEvent]) -> Result<(), Problem> {
    for (n, event) in events.iter().enumerate() {
        let name = event.source_system.as_str();
        let place =
            if events.len() == 1 { String::new() } else { format!("Event {n} (counted from 0): ") };
        let allowed = call.scope.as_ref().map_or(Ok(()), |scope| scope.check_publish(name));
        allowed.map_err(|why| Problem::forbidden(format!("Not allowed: {place}{why}.")))?;
        event::check_http_source(name)
            .map_err(|why| Problem::unprocessable(format!("{place}{why}.")))?;
    }
    Ok(())
}

fn new_event(api: &Api, call: &Call, publication: Publication<'_>) -> Result<NewEvent, String> {
    let received_at = api.clock.wall();
    let id = id::uuid7(received_at, &*api.draw);
    let (payload, default_type) = match (publication.payload, publication.payload_base64) {
        (Some(json), None) => (json.get().as_bytes().to_vec(), "application/json"),
        (None, Some(text)) => {
            let bytes = BASE64
                .decode(text.as_bytes())
                .map_err(|error| format!("payload_base64 is not base64: {error}"))?;
            (bytes, "application/octet-stream")
        }
        _ => return Err("an event has either a payload or a payload_base64".to_owned()),
    };
    let most = usize::try_from(api.settings.get().limits.payload_bytes).unwrap_or(usize::MAX);
    if payload.len() > most {
        return Err(format!(
            "the payload has {} bytes; at most {most} are accepted",
            payload.len()
        ));
    }
    let headers = &call.request.head.headers;
    let event = NewEvent {
        idempotency_key: publication.idempotency_key.unwrap_or_else(|| format!("auto-{id}")),
        id,
        tenant: call.tenant.clone(),
        source_system: publication.source_system.unwrap_or_else(|| {
            let only = call.scope.as_ref().and_then(Scope::only_source);
            only.unwrap_or(SOURCE_SYSTEM_DEFAULT).to_owned()
        }),
        event_type: publication.event_type,
        aggregate_type: publication.aggregate_type,
        aggregate_id: publication.aggregate_id,
        target: publication.target,
        payload,
        content_type: publication.content_type.unwrap_or_else(|| default_type.to_owned()),
        occurred_at: publication.occurred_at,
        received_at,
        not_before: publication.not_before,
        ordering_key: publication.ordering_key,
        process_id: publication.process_id,
        trace_id: headers.get("traceparent").and_then(trace::trace_id),
        max_attempts: publication.max_attempts,
        custom_data: publication.custom_data,
        sealed: Sealed::default(),
    };
    event.check().map_err(|error| error.to_string())?;
    Ok(event)
}

#[derive(Serialize)]
struct Answer<'a> {
    events: Vec<Line<'a>>,
}

#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    webhook_id: &'a str,
    status: &'static str,
    already_processed: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    differs: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    in_doubt: bool,
}

/// 201 when anything is new, 200 when all of it was there.
fn encode(published: &[Published]) -> (u16, Vec<u8>) {
    let status = if published.iter().all(|event| event.repeated) { 200 } else { 201 };
    let events = published
        .iter()
        .map(|Published { id, webhook_id, status, repeated, differs, in_doubt }| Line {
            id,
            webhook_id,
            status: status.as_str(),
            already_processed: *repeated && *status != Status::Quarantined,
            differs: *differs,
            in_doubt: *in_doubt,
        })
        .collect();
    (status, serde_json::to_vec(&Answer { events }).unwrap_or_default())
}

fn response(outcome: Outcome) -> Response {
    match outcome {
        Outcome::Stored(published) => {
            let (status, body) = encode(&published);
            Response::with_body(status, "application/json", body)
        }
        Outcome::Replayed { status, body } => Response::with_body(status, "application/json", body)
            .header("idempotency-replayed", "true"),
        Outcome::OtherRequest => Problem::idempotency_mismatch().into(),
        Outcome::Running => {
            Problem::conflict("The same request is still being carried out.").into()
        }
        Outcome::Refused { event, why } => {
            let detail = format!("Event {event} (counted from 0) is not taken: {why}.");
            Problem::unprocessable(detail).into()
        }
        Outcome::OfSource(name) => Problem::of_source(&name).into(),
        Outcome::Failed(error) => Problem::from(error).into(),
    }
}

/// `GET /v1/events`
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let query = &call.query;
    let page = query.page()?;
    let filter = outbox_lists::Filter {
        status: query.one_of("status", Status::ALL, Status::as_str)?,
        event_type: query.text("event_type"),
        idempotency_key: query.text("idempotency_key"),
        aggregate_id: query.text("aggregate_id"),
        webhook_id: query.text("webhook_id"),
        received: query.span()?,
    };
    let newest = page.newest(&call.tenant);
    let found = lists::read(api, call, |tx| match filter.status {
        Some(Status::Quarantined) => quarantine::page(tx, newest, &filter),
        _ => outbox_lists::page(tx, newest, &filter),
    })?;
    Ok(page_found(&found, summary))
}

/// `GET /v1/events/{id}`
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let found = api.store.read(|tx| {
        Ok(match outbox_lists::by_id(tx, &call.tenant, call.param(0))? {
            None => quarantine::nobodys(tx, &call.tenant, call.param(0))?,
            event => event,
        })
    });
    let event = found?.ok_or_else(|| Problem::not_found("event"))?;
    let Event { new: NewEvent { payload, content_type, sealed, .. }, .. } = &event;
    let _share = api.share(payload.len().saturating_mul(SHOWN_FACTOR))?;
    Ok(with_payload(&summary(&event), payload, content_type, sealed))
}

pub(super) fn summary(event: &Event) -> Value {
    let webhook_id = event.webhook_id();
    let Event {
        seq: _,
        new,
        status,
        open_deliveries,
        duplicate_count,
        differing_count,
        last_error,
        error_code,
        completed_at,
    } = event;
    let NewEvent {
        id,
        tenant,
        source_system,
        idempotency_key,
        event_type,
        aggregate_type,
        aggregate_id,
        target,
        payload: _,
        content_type,
        occurred_at,
        received_at,
        not_before,
        ordering_key,
        process_id,
        trace_id,
        max_attempts,
        custom_data,
        sealed,
    } = new;
    json!({
        "id": id, "webhook_id": webhook_id, "tenant": tenant, "source_system": source_system,
        "idempotency_key": idempotency_key, "event_type": event_type,
        "aggregate_type": aggregate_type, "aggregate_id": aggregate_id, "target": target,
        "content_type": content_type, "occurred_at": occurred_at, "received_at": received_at,
        "not_before": not_before, "ordering_key": ordering_key, "process_id": process_id,
        "trace_id": trace_id, "max_attempts": max_attempts, "custom_data": custom_data,
        "status": status.as_str(), "open_deliveries": open_deliveries,
        "duplicate_count": duplicate_count, "differing_count": differing_count,
        "last_error": last_error, "error_code": error_code, "completed_at": completed_at,
        "sealed_fields": sealed.fields,
    })
}
