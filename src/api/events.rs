//! `/v1/events`: publishing events, and showing published ones.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::convert::identity;
use std::fmt::Display;

use data_encoding::BASE64;
use serde_json::value::RawValue;

use crate::api::archived::{self, By};
use crate::api::call::{Query, SHOWN_FACTOR, WithPayload, check_depth, page_found};
use crate::api::idempotency;
use crate::api::prelude::*;
use crate::api::schema::{Ascii, StrictBase64, TrueOrFalse, TypeName};
use crate::archive;
use crate::base::id;
use crate::base::schema::HEADER_NAME;
use crate::base::text::without_mark;
use crate::model::event::{self, Binding, Event, EventOrder, NewEvent, Status};
use crate::model::json_fields::{self, Few, Object};
use crate::model::sealed::Sealed;
use crate::model::token::Right::Publish;
use crate::model::token::Scope;
use crate::model::webhook_event::Began;
use crate::pipeline::publish::{self, Outcome, Published};
use crate::store::attempts::{self, Tries};
use crate::store::page::Newest;
use crate::store::{deliveries, outbox_lists, quarantine};

/// The most events of one request.
const MAX_EVENTS: usize = 1000;
/// The longest reason of a publisher who found an event unusable.
const MAX_REASON_CHARS: usize = 1000;
/// The source system of events that name none, unless the token lists exactly one.
const SOURCE_SYSTEM_DEFAULT: &str = "api";

pub(super) const ID: Param =
    Param::path::<Uuid>("id", "The event's id.", "019c1447-5800-7000-8000-000000000001");
const STATUS: Param = Param::query::<Status>("status", "Only those with this status.", "");
const EVENT_TYPE: Param =
    Param::query::<SomeText>("event_type", "Only those of this type.", "invoice.created");
const IDEMPOTENCY_KEY: Param =
    Param::query::<SomeText>("idempotency_key", "Only those with this key.", "invoice-4711")
        .quick();
pub(super) const TRACE_ID: Param = Param::query::<SomeText>(
    "trace_id",
    "Only those of this trace, of which at most the newest 1,000.",
    "4bf92f3577b34da6a3ce929d0e0e4736",
)
.quick();
const WAITING: Param = Param::query::<TrueOrFalse>(
    "waiting",
    "Only those that wait for their hard children, or only the others.",
    "true",
);
const AGGREGATE_TYPE: Param =
    Param::query::<SomeText>("aggregate_type", "Only those about a thing of this type.", "invoice");
const AGGREGATE_ID: Param =
    Param::query::<SomeText>("aggregate_id", "Only those about the thing with this id.", "4711")
        .quick();
const PARENT_ID: Param = Param::query::<SomeText>(
    "parent_id",
    "Only the children of the event with this id.",
    "019c1447-5800-7000-8000-000000000001",
)
.quick();
const PROCESS_ID: Param =
    Param::query::<SomeText>("process_id", "Only those of this process.", "order-4711").quick();
const WEBHOOK_ID: Param = Param::query::<SomeText>(
    "webhook_id",
    "The one whose deliveries carry this `webhook-id`.",
    "evt_AEBAGBAFAYDQQCIKBMGA2DQPCA",
);
pub(super) const OPERATIONAL: Param =
    Param::query::<TrueOrFalse>("operational", "`true`: operational events as well.", "true");
const TRACEPARENT: Param = Param::header::<String>(
    "traceparent",
    "The W3C trace of the events; their deliveries continue it.",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
);

/// The outbox.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Events",
    about: "The outbox: business events, each processed once.",
    routes: &[
        post("/v1/events", Publish, Later(publish))
            .doc("publishEvents", "Publish one event or many", &[TRACEPARENT])
            .about(
                "Takes one event, or an array of up to 1,000: all are stored, or none. Answered after \
                 COMMIT. An event that was published before (the same `source_system` and \
                 `idempotency_key`) is not stored again; the first content stays. A quarantined \
                 event is replaced by a new one with its key, if the new one is valid or has other \
                 content. A `publish` token may only use the source systems that it lists; others \
                 are answered 403. `sql`, `in:…` and the names of configured sources are reserved; \
                 they are answered 422.",
            )
            .returns(&[
                Returns::json::<Publications<'_>>(201, "At least one event is new."),
                Returns::json::<Publications<'_>>(200, "All events were published before."),
            ])
            .body::<NewEvents<'_>>(
                r#"{"event_type":"invoice.created","idempotency_key":"invoice-4711",
                "aggregate_type":"invoice","aggregate_id":"4711",
                "payload":{"total":"99.00"}}"#,
            ),
        get("/v1/events", Read, Listed(list))
            .doc("listEvents", "List the events", &[
                STATUS,
                EVENT_TYPE,
                IDEMPOTENCY_KEY,
                AGGREGATE_TYPE,
                AGGREGATE_ID,
                WEBHOOK_ID,
                PARENT_ID,
                PROCESS_ID,
                TRACE_ID,
                WAITING,
                OPERATIONAL,
                SINCE,
                UNTIL,
                LIMIT,
                AFTER,
            ])
            .about(
                "The newest first, without their payloads. Operational events, whose `source_system` is `oncebox`, \
                 are shown with `operational`, or if their type, key or `webhook-id` is given.",
            )
            .returns(&[Returns::page::<Event>("A page of events.")]),
        get("/v1/events/{id}", Read, Now(show))
            .doc("getEvent", "Show an event", &[ID])
            .about("With its payload: as JSON if it is JSON, else as text, else as base64.")
            .returns(&[Returns::json::<WithPayload<'_, TriedEvent>>(200, "The event.")]),
    ],
};

/// An event to publish. It has either a `payload` or a `payload_base64`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewEvent")]
struct Publication<'a> {
    /// What happened, like `invoice.created`.
    event_type: Is<TypeName>,
    /// Any JSON, also `null`; its bytes are sent unchanged.
    #[serde(borrow, default, deserialize_with = "any_json")]
    payload: Option<Is<Value, &'a RawValue>>,
    /// Any bytes, instead of `payload`.
    payload_base64: Option<Is<StrictBase64, Cow<'a, str>>>,
    content_type: Option<Is<Ascii<0, 255>>>,
    /// Header fields for those subscriptions that name them in `event_headers`.
    headers: Option<Is<EventHeaders, BTreeMap<String, String>>>,
    /// The system that the event comes from; `api` if absent.
    #[schemars(length(min = 1, max = 64), regex(pattern = "^(?!in:)[ -~]*$"))]
    source_system: Option<String>,
    /// The event's unique key in its source system. Without a key, a repeated event is not recognized.
    idempotency_key: Option<Is<Ascii<1, 255>>>,
    aggregate_type: Option<Is<Text<1, 64>>>,
    aggregate_id: Option<Is<Text<1, 255>>>,
    /// Only for the subscription of this name.
    target: Option<Is<Text<1, 63>>>,
    /// In the years 1973 to 2199.
    occurred_at: Option<Timestamp>,
    /// In the years 1973 to 2199.
    not_before: Option<Timestamp>,
    ordering_key: Option<Is<Text<1, 255>>>,
    /// It goes into its lane even where the subscription keeps no order.
    #[serde(default)]
    guaranteed_order: bool,
    /// Dead letters ahead of it in its lane do not block it.
    #[serde(default)]
    exclude_failed: bool,
    /// The funnel point at which `funnel_value` counts; every point if absent.
    funnel_point: Option<Is<Text<1, 255>>>,
    /// Of events with the same value, one at a time is in flight, at subscriptions with a `funnel_point`.
    funnel_value: Option<Is<Text<1, 255>>>,
    /// What `aggregate_id` is an id of, if several event types change the same thing.
    entity_type: Option<Is<Text<1, 64>>>,
    /// Its parent: an event of the same tenant, stored before.
    parent_id: Option<Is<Uuid>>,
    /// Its parent by its key in the same source system, instead of `parent_id`. It may be earlier in the same request.
    parent_key: Option<Is<Ascii<1, 255>>>,
    /// `hard`: the parent completes after this event, and is a dead letter if this is one. `soft` if absent: no influence.
    parent_binding: Option<Binding>,
    process_id: Option<Is<Text<1, 255>>>,
    #[serde(default, deserialize_with = "json_fields::whole")]
    #[schemars(with = "Option<Whole<1, 1000>>")]
    max_attempts: Option<u32>,
    custom_data: Option<Is<Text<1, 4096>>>,
    /// Why no usable event could be made of this input. It is stored quarantined with this reason, and sent to nobody.
    /// Such an event stands alone in its request.
    quarantine: Option<Is<Text<1, MAX_REASON_CHARS>>>,
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what `read` takes; it decides by the first byte")]
enum NewEvents<'a> {
    One(Box<Publication<'a>>),
    Many(#[schemars(length(min = 1, max = MAX_EVENTS))] Vec<Publication<'a>>),
}

values! {
    /// Header fields of an event.
    EventHeaders = {
        "type": "object",
        "additionalProperties": { "type": "string", "pattern": "^[ -~]*$" },
        "propertyNames": { "pattern": HEADER_NAME },
    }
}

/// Stores one event or an array of them, all or none; the reply is sent after COMMIT.
pub(super) fn publish(api: &Api, call: Call, reply: Reply) {
    match read(api, &call) {
        Err(problem) => reply.send(problem.into()),
        Ok(new) => {
            // The memory is reserved until the answer, because the events wait for the writer.
            let share = call.share;
            let idempotency = call.key;
            let count = new.events.len();
            let done = move |outcome| {
                reply.send(response(outcome, count));
                drop(share);
            };
            api.flow.publish.publish(call.tenant, new, idempotency, encode, done);
        }
    }
}

fn read(api: &Api, call: &Call) -> Result<publish::NewEvents, Problem> {
    let body = without_mark(&call.request.body);
    check_depth(body)?;
    let wrong = |error: serde_json::Error| {
        Problem::bad_request(format!("The body is not an event or an array of events: {error}."))
    };
    let Few { kept: mut publications, count }: Few<Object<Publication<'_>>, MAX_EVENTS> =
        if body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
            serde_json::from_slice(body).map_err(wrong)?
        } else {
            Few { kept: vec![serde_json::from_slice(body).map_err(wrong)?], count: 1 }
        };
    if !(1..=MAX_EVENTS).contains(&count) {
        let detail = format!("A request holds 1 to {MAX_EVENTS} events; this one has {count}.");
        return Err(Problem::unprocessable(detail));
    }
    let quarantine = match publications.as_mut_slice() {
        [Object(only)] => bare(only.quarantine.take()).map(reason).transpose()?,
        all if all.iter().any(|Object(one)| one.quarantine.is_some()) => {
            let why = "An event with quarantine stands alone in its request: send it by itself.";
            return Err(Problem::unprocessable(why));
        }
        _ => None,
    };
    let count = publications.len();
    let events = publications.into_iter().enumerate().map(|(n, Object(publication))| {
        new_event(api, call, publication)
            .map_err(|problem| Problem::unprocessable(format!("{}{problem}.", place(n, count))))
    });
    let events = events.collect::<Result<Vec<_>, _>>()?;
    check_sources(call, &events)?;
    Ok(publish::NewEvents { events, quarantine })
}

/// The reason of a publisher who found an event unusable.
/// Fails with 422 unless it has 1 to 1,000 characters.
fn reason(text: String) -> Result<String, Problem> {
    if text.is_empty() || text.chars().nth(MAX_REASON_CHARS).is_some() {
        let detail = format!("quarantine must be a reason of 1 to {MAX_REASON_CHARS} characters.");
        return Err(Problem::unprocessable(detail));
    }
    Ok(text)
}

/// Checks that the caller may publish as the source systems of its events. `pipeline::publish` refuses the names of
/// configured sources, in the transaction.
fn check_sources(call: &Call, events: &[NewEvent]) -> Result<(), Problem> {
    for (n, event) in events.iter().enumerate() {
        let name = event.source_system.as_str();
        let place = place(n, events.len());
        let allowed = call.scope.as_ref().map_or(Ok(()), |scope| scope.check_publish(name));
        allowed.map_err(|why| Problem::forbidden(format!("Not allowed: {place}{why}.")))?;
        event::check_http_source(name)
            .map_err(|why| Problem::unprocessable(format!("{place}{why}.")))?;
    }
    Ok(())
}

/// Reads a member that is there, which may be `null`.
fn any_json<'de: 'a, 'a, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<Is<Value, &'a RawValue>>, D::Error> {
    <&'a RawValue>::deserialize(from).map(|json| Some(json.into()))
}

/// Which event of a request a problem is about; nothing if it is the only one.
fn place(event: usize, count: usize) -> String {
    if count == 1 { String::new() } else { format!("Event {event} (counted from 0): ") }
}

fn new_event(api: &Api, call: &Call, publication: Publication<'_>) -> Result<NewEvent, String> {
    let received_at = api.env.clock.wall();
    let id = id::uuid7(received_at, &*api.env.draw);
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
    let most = usize::try_from(api.env.settings.get().limits.payload_bytes).unwrap_or(usize::MAX);
    if payload.len() > most {
        return Err(format!(
            "the payload has {} bytes; at most {most} are accepted",
            payload.len()
        ));
    }
    let has_parent = publication.parent_id.is_some() || publication.parent_key.is_some();
    if publication.parent_binding.is_some() && !has_parent {
        return Err("parent_binding needs a parent: give parent_id or parent_key".to_owned());
    }
    let trace = call.request.head.headers.get("traceparent");
    let own = bare(publication.headers).unwrap_or_default();
    let event = NewEvent {
        idempotency_key: bare(publication.idempotency_key).unwrap_or_else(|| format!("auto-{id}")),
        id,
        tenant: call.tenant.clone(),
        source_system: publication.source_system.unwrap_or_else(|| {
            let only = call.scope.as_ref().and_then(Scope::only_source);
            only.unwrap_or(SOURCE_SYSTEM_DEFAULT).to_owned()
        }),
        event_type: publication.event_type.0,
        aggregate_type: bare(publication.aggregate_type),
        aggregate_id: bare(publication.aggregate_id),
        target: bare(publication.target),
        payload,
        content_type: bare(publication.content_type).unwrap_or_else(|| default_type.to_owned()),
        headers: kept_headers(api, call, own),
        occurred_at: publication.occurred_at,
        received_at,
        not_before: publication.not_before,
        ordering_key: bare(publication.ordering_key),
        order: EventOrder {
            guaranteed: publication.guaranteed_order,
            exclude_failed: publication.exclude_failed,
            funnel_point: bare(publication.funnel_point),
            funnel_value: bare(publication.funnel_value),
            entity_type: bare(publication.entity_type),
            parent_id: bare(publication.parent_id),
            parent_key: bare(publication.parent_key),
            parent_binding: publication.parent_binding,
        },
        process_id: bare(publication.process_id),
        trace_id: trace.and_then(event::trace_id),
        max_attempts: publication.max_attempts,
        custom_data: bare(publication.custom_data),
        sealed: Sealed::default(),
    };
    event.check().map_err(|error| error.to_string())?;
    Ok(event)
}

/// The header fields of an event: its own, and those of the request that are kept. One that cannot be stored is left
/// out, and all of them where a policy on personal data could refuse the event for them.
fn kept_headers(api: &Api, call: &Call, own: BTreeMap<String, String>) -> Option<String> {
    let json = |fields: &BTreeMap<String, String>| value(fields).to_string();
    let mut fields = own;
    let sent = &call.request.head.headers;
    for (name, value) in event::trace_fields(|name| sent.get(name)) {
        if fields.keys().all(|have| !have.eq_ignore_ascii_case(name)) {
            fields.insert(name.to_owned(), value.to_owned());
            if event::check_headers(&json(&fields)).is_err() {
                fields.remove(name);
            }
        }
    }
    let settings = api.env.settings.get();
    let kept = &settings.events.keep_headers;
    let has_policy = || api.env.privacy.has_policy(&call.tenant).unwrap_or(true);
    let may_keep = !kept.is_empty() && !has_policy();
    for name in kept.iter().filter(|_| may_keep) {
        let is_own = fields.keys().any(|have| have.eq_ignore_ascii_case(name));
        if let Some(sent) = call.request.head.headers.get(name).filter(|_| !is_own) {
            fields.insert(name.clone(), sent.to_owned());
            if event::check_headers(&json(&fields)).is_err() {
                fields.remove(name);
            }
        }
    }
    (!fields.is_empty()).then(|| json(&fields))
}

#[derive(Serialize, JsonSchema)]
struct Publications<'a> {
    /// One for each event of the request, in its order.
    events: Vec<PublicationAnswer<'a>>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Publication")]
struct PublicationAnswer<'a> {
    id: Is<Uuid, &'a str>,
    /// The `webhook-id` of its deliveries.
    webhook_id: &'a str,
    /// A `quarantined` event is not sent until it is repaired, or published again in a valid form.
    status: Status,
    /// It was published before; always false for a quarantined event.
    already_processed: bool,
    /// It was published before with other content.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    differs: bool,
    /// It is stored, but held until a person releases it: the database was restored, and this event may have been sent
    /// before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    in_doubt: bool,
}

/// 201 if any event is new, 200 if none is.
fn encode(published: &[Published]) -> (u16, Vec<u8>) {
    let status = if published.iter().all(|event| event.repeated) { 200 } else { 201 };
    let events = published
        .iter()
        .map(|Published { id, webhook_id, status, repeated, differs, in_doubt }| {
            PublicationAnswer {
                id: id.as_str().into(),
                webhook_id,
                status: *status,
                already_processed: *repeated && *status != Status::Quarantined,
                differs: *differs,
                in_doubt: *in_doubt,
            }
        })
        .collect();
    (status, serde_json::to_vec(&Publications { events }).unwrap_or_default())
}

fn response(outcome: Outcome, count: usize) -> Response {
    let refused = |event, why: &dyn Display| {
        let it = if count == 1 { "The event" } else { "it" };
        Problem::unprocessable(format!("{}{it} {why}.", place(event, count))).into()
    };
    match outcome {
        Outcome::Stored(published) => {
            let (status, body) = encode(&published);
            Response::with_body(status, "application/json", body)
        }
        Outcome::Replayed { status, body } => idempotency::replay(status, body),
        Outcome::OtherRequest => Problem::idempotency_mismatch().into(),
        Outcome::Running => Problem::conflict(idempotency::RUNNING).into(),
        Outcome::Refused { event, why } => refused(event, &format_args!("is not accepted: {why}")),
        Outcome::Misfit { event, why } => {
            refused(event, &format_args!("does not fit its event type: {why}"))
        }
        Outcome::NoParent { event, why } => {
            let detail = format!("Event {event} (counted from 0) cannot be stored: {why}.");
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
    let filter = outbox_lists::OutboxFilter {
        status: query.one_of("status", Status::ALL, Status::as_str)?,
        event_type: query.text("event_type"),
        idempotency_key: query.text("idempotency_key"),
        aggregate_type: query.text("aggregate_type"),
        aggregate_id: query.text("aggregate_id"),
        webhook_id: query.text("webhook_id"),
        parent_id: query.text("parent_id"),
        process_id: query.text("process_id"),
        trace_id: query.text("trace_id"),
        waiting: query.word("waiting", |text| text.parse().ok())?,
        received: query.span()?,
        in_flight: in_flight(api)?.0,
        operational: is_operational(query)?,
    };
    if let Some(webhook_id) = &filter.webhook_id
        && let Some((month, of_month, seq)) = archived::of_webhook_id(api, call, webhook_id)?
    {
        let one = Newest {
            before: page.after.unwrap_or(i64::MAX).min(seq.saturating_add(1)),
            limit: 1,
            tenant: &call.tenant,
        };
        let mut found = lists::read(&of_month, call, |tx| outbox_lists::page(tx, one, &filter))?;
        found.next = None;
        found.rows.iter_mut().for_each(|event| event.archived_in = Some(month.to_string()));
        return Ok(page_found(&found, identity));
    }
    let newest = page.newest(&call.tenant);
    let key = filter.idempotency_key.as_deref().map(|key| (archive::ArchivedKind::Event, key));
    let found = archived::page(api, call, page.limit, key, |tx| match filter.status {
        Some(Status::Quarantined) => quarantine::page(tx, newest, &filter),
        _ => outbox_lists::page(tx, newest, &filter),
    })?;
    Ok(page_found(&found, identity))
}

/// The events and webhook events that are being attempted, by number, the latter with its start. Only this process knows
/// them.
pub(super) fn in_flight(api: &Api) -> Result<(Vec<i64>, Vec<Began>), Problem> {
    let all = api.flow.in_flight.all();
    Ok(api.env.store.read(|tx| deliveries::events_of(tx, &all))?)
}

/// An event and its attempts.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TriedEvent")]
struct TriedEvent<'a> {
    #[serde(flatten)]
    event: &'a Event,
    #[serde(flatten)]
    tries: Tries,
}

/// Whether operational events are asked for.
/// Fails with 400 if the parameter is neither `true` nor `false`.
pub(super) fn is_operational(query: &Query) -> Result<bool, Problem> {
    Ok(query.word("operational", |text| text.parse().ok())?.unwrap_or(false))
}

/// `GET /v1/events/{id}`
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let found = archived::find_with(api, By::Id(call.param(0)), |tx| {
        let found = match outbox_lists::by_id(tx, &call.tenant, call.param(0))? {
            None => quarantine::of_unknown_tenant(tx, &call.tenant, call.param(0))?,
            event => event,
        };
        found
            .map(|event| Ok((attempts::tries(tx, event.seq)?, event)))
            .transpose()
            .map(|found| found.map(|(tries, event)| (event, tries)))
    });
    let (mut event, tries) = found?.or_not_found("event")?;
    event.see_in_flight(&in_flight(api)?.0);
    let Event { new: NewEvent { payload, content_type, sealed, .. }, .. } = &event;
    let _share = api.share(payload.len().saturating_mul(SHOWN_FACTOR))?;
    let shown = value(&TriedEvent { event: &event, tries });
    Ok(WithPayload::response(shown, payload, content_type, sealed))
}
