//! `/v1/event-types`: what events look like, by type.

use std::convert::identity;

use crate::api::call::page_found;
use crate::api::prelude::*;
use crate::api::schema::{AnyValue, TypeName};
use crate::api::what_if::WhatIfPeriod;
use crate::api::what_if::schema::{AskedSchema, EventTypeOrTrial};
use crate::base::words;
use crate::event_types::infer::{MAX_SAMPLES, Samples};
use crate::event_types::json_schema::Schema;
use crate::event_types::{EventType, OnInvalid, store};
use crate::model::json::Json;
use crate::model::operational::OperationalKind;

/// Characters of a description at most.
const MAX_DESCRIPTION_CHARS: usize = 2000;
/// Paths that the search looks at, of one event type.
const MAX_SEARCH_PATHS: usize = 3;

const NAME: Param = Param::path::<TypeName>("name", "The event type.", "invoice.created");

/// Event types.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Event types",
    about: "What events look like. Publishing checks an event against the schema of its type. The `webhooks` of \
            `/openapi.json` describe the types, if it is asked for with a token.",
    routes: &[
        get("/v1/event-types", Read, Listed(list))
            .doc("listEventTypes", "List the event types", &[LIMIT, AFTER])
            .about("Those that are registered.")
            .returns(&[Returns::page::<EventType>("A page of event types, the oldest first. It ends early where they are large.")]),
        get("/v1/event-types/{name}", Read, Now(show))
            .doc("getEventType", "Show an event type", &[NAME])
            .about("One event type.")
            .returns(&[Returns::json::<EventType>(200, "The event type.")]),
        get("/v1/event-types/{name}/proposal", Read, Listed(propose))
            .doc("proposeEventType", "Propose a schema", &[NAME])
            .about("Made from the newest stored events of the type, without those that have sealed fields. Nothing is stored.")
            .returns(&[Returns::json::<Proposal>(200, "The schema that they all fit.")]),
        put("/v1/event-types/{name}", Admin, Act("event_type.set", set))
            .doc("setEventType", "Register an event type", &[NAME])
            .about(
                "Or replace it. Events that are published from the answer on are checked. What is not rejected \
                 with 422, and rows of plain SQL and of sources in any case, is quarantined with the reason.",
            )
            .returns(&[
                Returns::json::<EventType>(201, "The event type, which is new."),
                Returns::json::<EventTypeOrTrial>(
                    200,
                    "The event type as it is now. With `what_if`: what its schema would have done.",
                ),
            ])
            .body::<EventTypeForm>(
                r#"{"description":"An invoice was made.","schema":{"type":"object","required":["total"]},
                "example":{"total":"99.00"},"on_invalid":"reject"}"#,
            ),
        delete("/v1/event-types/{name}", Admin, Act("event_type.delete", remove))
            .doc("deleteEventType", "Delete an event type", &[NAME])
            .about("Its events are no longer checked.")
            .returns(&[Returns::nothing("It is deleted.")]),
    ],
};

/// `PUT /v1/event-types/{name}`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "EventTypeForm")]
struct EventTypeForm {
    /// What it means.
    #[serde(default)]
    description: Is<Text<0, MAX_DESCRIPTION_CHARS>>,
    /// JSON Schema 2020-12: an object, true or false.
    schema: Is<AnyValue, Json>,
    /// A payload that fits the schema.
    example: Option<Is<AnyValue, Json>>,
    /// What becomes of an event that does not fit; `reject` if absent.
    #[serde(default, deserialize_with = "words::optional")]
    on_invalid: Option<OnInvalid>,
    /// Where payloads have what the search finds, such as `$.number`: a text or a number of at most 100 characters. Of the
    /// box's newest 10,000 events, and those to come, with payloads of at most 16 KiB.
    #[serde(default)]
    #[schemars(length(max = MAX_SEARCH_PATHS))]
    search_paths: Vec<String>,
    /// A span, such as `7d`. Nothing is saved: the stored events of this time are compared with the schema. The newest 10,000
    /// are looked at, for two seconds; with `next` of the answer in place of the span, the older ones.
    what_if: Option<Is<WhatIfPeriod>>,
}

/// `GET /v1/event-types/{name}/proposal`
#[derive(Serialize, JsonSchema)]
struct Proposal {
    /// Events that were looked at; without any, every payload fits the schema.
    events: usize,
    schema: Is<AnyValue, Value>,
}

/// `GET /v1/event-types`
fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let after = page.after.unwrap_or(0);
    let found = lists::read(api, call, |tx| store::page(tx, &call.tenant, after, page.limit))?;
    Ok(page_found(&found, identity))
}

/// `GET /v1/event-types/{name}`
fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let found = api.env.store.read(|tx| store::by_name(tx, &call.tenant, call.param(0)))?;
    Ok(ok(&found.or_not_found("event type")?))
}

/// `GET /v1/event-types/{name}/proposal`
fn propose(api: &Api, call: &Call) -> Result<Response, Problem> {
    let tenant = &call.tenant;
    let name = call.param(0);
    check_name(name).ok().or_not_found("event type")?;
    let most = usize::try_from(MAX_SAMPLES).unwrap_or(usize::MAX);
    let _share = api.share(most.saturating_mul(store::MAX_SAMPLE_BYTES))?;
    let found = lists::read(api, call, |tx| store::samples(tx, tenant, name, MAX_SAMPLES))?;
    let mut samples = Samples::default();
    for payload in found {
        samples.add(&payload);
    }
    Ok(ok(&Proposal { events: samples.count, schema: samples.schema().into() }))
}

/// Fails with 422 where no event can be of this type.
fn check_name(name: &str) -> Result<(), Problem> {
    if (1..=128).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    Err(Problem::unprocessable(
        "An event type has 1 to 128 printable ASCII characters and no space.",
    ))
}

/// Whether a text is `$`, and then names and places of lists.
fn is_search_path(path: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    let is_place = |place: &str| {
        place
            .strip_suffix(']')
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let is_step = |step: &str| {
        let (name, places) =
            step.split_once('[').map_or((step, None), |(name, rest)| (name, Some(rest)));
        is_name(name) && places.is_none_or(|places| places.split('[').all(is_place))
    };
    path.len() <= 100 && path.strip_prefix("$.").is_some_and(|steps| steps.split('.').all(is_step))
}

/// `PUT /v1/event-types/{name}`
fn set(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let EventTypeForm { description, schema, example, on_invalid, search_paths, what_if } =
        call.json()?;
    let name = call.param(0).to_owned();
    let now = api.env.clock.wall();
    let wrong = |why: String| Problem::unprocessable(format!("{why}."));
    check_name(&name)?;
    if OperationalKind::ALL.iter().any(|kind| kind.as_str() == name) {
        return Err(wrong(format!("{name} is an event of Oncebox itself, which describes it")));
    }
    let compiled = Schema::compile(&schema.0)
        .map_err(|why| wrong(format!("The schema cannot be used: {why}")))?;
    if let Some(why) =
        example.as_ref().and_then(|example| compiled.check(example.0.to_string().as_bytes(), false))
    {
        return Err(wrong(format!("The example does not fit the schema: {why}")));
    }
    if search_paths.len() > MAX_SEARCH_PATHS {
        return Err(wrong(format!("search_paths has {MAX_SEARCH_PATHS} entries at most")));
    }
    if let Some(path) = search_paths.iter().find(|path| !is_search_path(path)) {
        let form = "write names and places of lists, like $.number or $.lines[0].article";
        return Err(wrong(format!("{path:?} is no path of a value: {form}")));
    }
    if let Some(period) = &what_if {
        let found = api.env.store.read(|tx| store::by_name(tx, &call.tenant, &name))?;
        let stored = found.and_then(|found| Schema::compile_stored(&found.schema).ok());
        let asked = AskedSchema { name: &name, schema: &compiled, stored: stored.as_ref(), period };
        return asked.show(api, call);
    }
    let on_invalid = on_invalid.unwrap_or(OnInvalid::Reject);
    let created_at = now;
    let updated_at = now;
    let new = EventType {
        seq: 0,
        name,
        description: description.0,
        schema: schema.0,
        example: bare(example),
        on_invalid,
        search_paths,
        created_at,
        updated_at,
    };
    let tenant = call.tenant.clone();
    change(api, call, move |tx| {
        let before = store::by_name(tx, &tenant, &new.name)?;
        store::put(tx, &tenant, &new, now)?;
        let after = store::by_name(tx, &tenant, &new.name)?.or_not_found("event type")?;
        let after = exact(&after);
        Ok(match before {
            None => Change::made("event_type", &new.name, &after),
            Some(before) => Change::changed("event_type", &new.name, &exact(&before), &after),
        })
    })
}

/// `DELETE /v1/event-types/{name}`
fn remove(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let tenant = call.tenant.clone();
    let name = call.param(0).to_owned();
    change(api, call, move |tx| {
        let before = store::by_name(tx, &tenant, &name)?.or_not_found("event type")?;
        store::delete(tx, &tenant, &name)?;
        Ok(Change::gone("event_type", &name, &exact(&before)))
    })
}
