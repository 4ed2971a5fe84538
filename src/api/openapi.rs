//! `/openapi.json`: generated from the route table and the types that it names.
//!
//! It is generated at the first request and cached.

use std::collections::BTreeMap;

use schemars::SchemaGenerator;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::api::RESOURCES;
use crate::api::call::{Call, answer};
use crate::api::context::Api;
use crate::api::idempotency;
use crate::api::kind::{Facts, Kind};
use crate::api::problem::{Problem, ProblemBody};
use crate::api::route::Answer::Now;
use crate::api::route::{Body, Content, Param, Place, Resource, Returns, Route, public};
use crate::api::schema::{AnyObject, Describe, of, settings};
use crate::base::build;
use crate::event_types::{EventType, store};
use crate::http::message::Method::Get;
use crate::http::message::Response;
use crate::model::json::{Json, carried};
use crate::model::operational::OperationalKind;
use crate::model::token::Right;

/// The route of the document.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Description",
    about: "This document.",
    routes: &[public(Get, "/openapi.json", Now(show))
        .doc("getOpenApi", "Show the OpenAPI document", &[])
        .about("OpenAPI 3.1, of this version.")
        .returns(&[Returns::json::<AnyObject>(200, "The document.")])],
};

/// What applies to all routes.
const ABOUT: &str = "\
Webhooks in, business events out, each exactly once.

**Authentication**: send a token in `Authorization: Bearer`. Each operation names the role that it needs. `admin` \
may do everything; `operate` includes `read` and `publish`. Webhooks need no token: their signature is checked instead.

**Pages**: lists take `limit` and `after`. For the next page, send `next` of the answer as `after`. On the last page \
`next` is null.

**Retries**: a POST, PUT, PATCH or DELETE with an `Idempotency-Key` can be retried. For 24 hours the same request gets the same answer, with \
`Idempotency-Replayed: true`; another request with the key, also to another path, gets 422. A request that failed may be \
sent again under its key.

**Problems**: every error is `application/problem+json` (RFC 9457). Decide by `type`, which is stable; show \
`detail` to a person. 400: the request does not have the form described here. 422: it has this form, but a value \
cannot be accepted.

**Strictness**: unknown fields and query parameters are refused, so that a misspelt one is not ignored. The \
`Content-Type` of a JSON request is not checked. `HEAD` is answered wherever `GET` is.";

/// What the listener may refuse before it knows the route.
const LISTENER_PROBLEMS: [Kind; 9] = [
    Kind::BadRequest,
    Kind::Timeout,
    Kind::TooLarge,
    Kind::ExpectationFailed,
    Kind::HeadTooLarge,
    Kind::Internal,
    Kind::NotImplemented,
    Kind::Unavailable,
    Kind::HttpVersion,
];

/// Event types that are read at once.
const TYPES_AT_ONCE: u32 = 50;
/// Bytes of event types after which the document lists no more of them.
const MAX_TYPES_BYTES: usize = 8 << 20;

/// The document.
pub fn document() -> Value {
    let mut parts = Components::new();
    let paths = paths(&mut parts);
    let webhooks = webhooks(&mut parts);
    let Components { sent, answered, responses } = parts;
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Oncebox",
            "version": build::VERSION,
            "summary": "Webhooks in, business events out, each exactly once.",
            "description": ABOUT,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/", "description": "The Oncebox that served this document." }],
        "tags": RESOURCES.iter()
            .map(|resource| json!({ "name": resource.tag, "description": resource.about }))
            .collect::<Vec<_>>(),
        "paths": paths,
        "webhooks": webhooks,
        "components": {
            "schemas": schemas(sent, answered),
            "responses": responses,
            "headers": { "RequestId": {
                "description": "The request's id. The log names it too.",
                "required": true, "schema": { "type": "string" },
            } },
            "securitySchemes": security_schemes(),
        },
    })
}

/// `GET /openapi.json`
fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let bytes = {
        let mut kept = api.document.lock();
        kept.get_or_insert_with(|| document().to_string().into_bytes()).clone()
    };
    // What a tenant's events look like is shown to its tokens alone. Any other token is as good as none.
    let Ok(token) = api.auth.authorize(&call.request.head, Right::Read) else {
        return Ok(Response::with_body(200, "application/json", bytes));
    };
    let mut document = members(&bytes);
    let mut webhooks =
        document.remove("webhooks").map(|raw| members(raw.get().as_bytes())).unwrap_or_default();
    let mut after = Some(0);
    let mut bytes = 0_usize;
    while let Some(from) = after.filter(|_| bytes < MAX_TYPES_BYTES) {
        // Only a page of them is in memory as values.
        let found = api.env.store.read(|tx| store::page(tx, &token.tenant, from, TYPES_AT_ONCE))?;
        after = found.next;
        for EventType { name, description, schema, example, .. } in found.rows {
            // A base of its own, so that its references are not those of this document.
            let mut schema = carried_value(&schema);
            if let Value::Object(members) = &mut schema {
                let id = format!("urn:oncebox:event-type:{}", plain(&name));
                members.entry("$id").or_insert_with(|| id.into());
            }
            let example = example.as_ref().map(carried_value);
            let described = webhook(&name, &description, &schema, example.as_ref());
            let described = RawValue::from_string(carried::written(&described)).unwrap_or_default();
            bytes = bytes.saturating_add(described.get().len());
            webhooks.insert(name, described);
        }
    }
    document.insert("webhooks".to_owned(), raw(&webhooks));
    Ok(answer(200, &document))
}

/// The members of an object of this program, as text.
fn members(object: &[u8]) -> BTreeMap<String, Box<RawValue>> {
    serde_json::from_slice(object).unwrap_or_default()
}

/// What a tenant has registered, as a part of a larger value that [`carried::written`] writes.
fn carried_value(value: &Json) -> Value {
    carried::read(value.to_string().as_bytes()).unwrap_or_default()
}

/// A value as text.
fn raw(value: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap_or_default()
}

/// The operational events, by name.
fn webhooks(parts: &mut Components) -> Map<String, Value> {
    let described = OperationalKind::ALL.into_iter().map(|kind| {
        let schema = kind.schema(&mut parts.answered).to_value();
        (
            kind.as_str().to_owned(),
            webhook(kind.as_str(), kind.about(), &schema, Some(&kind.example())),
        )
    });
    described.collect()
}

/// A request that a subscription's target gets.
fn webhook(name: &str, about: &str, schema: &Value, example: Option<&Value>) -> Value {
    let content = with(json!({ "schema": schema }), "example", example.cloned());
    json!({ "post": {
        "operationId": operation_of(name),
        "tags": ["Event types"],
        "summary": name,
        "description": about,
        // Its signature proves it (docs/formats.md), which the receiver checks.
        "security": [],
        "requestBody": { "required": true, "content": { "application/json": content } },
        "responses": { "2XX": { "description": "The event is accepted." } },
    } })
}

/// The id of the operation that a webhook is, such as `on_invoice_paid`. Of two names there are two ids, with the letters that
/// generators of clients take.
fn operation_of(name: &str) -> String {
    let letters = name.chars().map(|c| match c {
        '.' => "_".to_owned(),
        c if c.is_ascii_alphanumeric() => c.to_string(),
        c => format!("_x{:x}", u32::from(c)),
    });
    format!("on_{}", letters.collect::<String>())
}

/// Adds a member to an object, if there is a value.
fn with(mut object: Value, name: &str, value: Option<Value>) -> Value {
    if let (Value::Object(members), Some(value)) = (&mut object, value) {
        members.insert(name.to_owned(), value);
    }
    object
}

/// A name as part of a URN.
fn plain(name: &str) -> String {
    percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// What operations refer to.
struct Components {
    /// Types of requests: a member that has a default may be absent.
    sent: SchemaGenerator,
    /// Types of answers: a member is required unless its type says otherwise.
    answered: SchemaGenerator,
    /// Responses with problems, by the kinds that share a status.
    responses: BTreeMap<String, Value>,
}

impl Components {
    fn new() -> Self {
        let mut parts = Self {
            sent: settings().for_deserialize().into_generator(),
            answered: settings().for_serialize().into_generator(),
            responses: BTreeMap::new(),
        };
        // Some kinds belong to no operation, such as an unknown path or method.
        for kind in Kind::ALL {
            parts.problem(&[kind]);
        }
        parts
    }

    fn answered(&mut self, describe: Describe) -> Value {
        describe(&mut self.answered).to_value()
    }

    /// A reference to the response that these kinds of problems share.
    fn problem(&mut self, kinds: &[Kind]) -> Value {
        let words: Vec<&str> = kinds.iter().map(|kind| kind.facts().word).collect();
        let name = words.join("-or-");
        let shown = json!({ "$ref": format!("#/components/responses/{name}") });
        if !self.responses.contains_key(&name) {
            let schema = self.answered(of::<ProblemBody<'_>>);
            self.responses.insert(name, problem(kinds, &schema));
        }
        shown
    }
}

/// The types of requests and answers. A type of both has the schema of requests.
fn schemas(mut sent: SchemaGenerator, mut answered: SchemaGenerator) -> Map<String, Value> {
    let mut schemas = answered.take_definitions(true);
    schemas.extend(sent.take_definitions(true));
    schemas.sort_keys();
    schemas.values_mut().for_each(simplify);
    schemas
}

/// The description of a type in one line, without what is for readers of the code: its shape, which the schema has, and the
/// example in Rust.
fn for_users(about: &str) -> String {
    let marks = ["*Shape*", "```"].iter().filter_map(|mark| about.find(mark));
    let own = about.get(..marks.min().unwrap_or(about.len())).unwrap_or(about);
    own.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Removes what client generators do not understand: formats of whole numbers, defaults, `true` for any value.
fn simplify(schema: &mut Value) {
    if *schema == Value::Bool(true) {
        *schema = json!({});
    }
    let Value::Object(members) = schema else { return };
    members.remove("default");
    let format = members.get("format").and_then(Value::as_str).unwrap_or_default();
    if format.starts_with("int") || format.starts_with("uint") {
        members.remove("format");
    }
    if let Some(Value::String(about)) = members.get_mut("description") {
        *about = for_users(about);
    }
    for (name, inner) in members.iter_mut() {
        match (name.as_str(), inner) {
            ("properties", Value::Object(properties)) => properties.values_mut().for_each(simplify),
            ("anyOf" | "oneOf", Value::Array(parts)) => parts.iter_mut().for_each(simplify),
            ("items", inner) => simplify(inner),
            _ => {}
        }
    }
}

fn paths(parts: &mut Components) -> Map<String, Value> {
    let mut paths = Map::new();
    for resource in RESOURCES {
        for route in resource.routes {
            let path = paths.entry(route.path).or_insert_with(|| json!({}));
            if let Value::Object(operations) = path {
                let method = route.method.as_str().to_ascii_lowercase();
                operations.insert(method, operation(resource.tag, route, parts));
            }
        }
    }
    paths
}

fn operation(tag: &str, route: &Route, parts: &mut Components) -> Value {
    let doc = &route.doc;
    let operation = json!({
        "tags": [tag], "summary": doc.summary, "description": doc.about, "operationId": doc.id,
        "security": security(route),
    });
    let key = route.takes_key().then_some(&idempotency::HEADER);
    let params = doc.params.iter().chain(key).map(|param| parameter(param, parts));
    let params: Vec<Value> = params.collect();
    let params = (!params.is_empty()).then_some(params.into());
    let operation = with(operation, "parameters", params);
    let body = doc.body.map(|body| request_body(body, parts));
    let operation = with(operation, "requestBody", body);
    let mut responses = Map::new();
    for returns in doc.returns {
        let described = response(returns, route.takes_key(), parts);
        responses.insert(returns.status.to_string(), described);
    }
    for kinds in problems(route).chunk_by(|a, b| a.facts().status == b.facts().status) {
        let status = kinds.first().map(|kind| kind.facts().status.to_string());
        responses.insert(status.unwrap_or_default(), parts.problem(kinds));
    }
    with(operation, "responses", Some(responses.into()))
}

/// The kinds of problems a route may answer: its own, and those that follow from its right, path and method.
fn problems(route: &Route) -> Vec<Kind> {
    let mut kinds = LISTENER_PROBLEMS.to_vec();
    kinds.extend_from_slice(route.doc.problems);
    if route.right.is_some() {
        kinds.extend([Kind::Unauthorized, Kind::Forbidden, Kind::TenantSuspended, Kind::Throttled]);
    }
    if route.path.contains('{') {
        kinds.push(Kind::NotFound);
    }
    if route.method != Get {
        kinds.extend([Kind::DiskFull, Kind::Conflict, Kind::Unprocessable]);
    }
    if route.is_audited() {
        kinds.push(Kind::OverLimit);
    }
    if route.takes_key() {
        kinds.push(Kind::IdempotencyKeyReused);
    }
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

fn security(route: &Route) -> Value {
    match route.right {
        Some(right) => json!([{ "bearer": [role(right)] }]),
        None if matches!(route.doc.body, Some(Body::Any)) => json!([{ "signature": [] }]),
        None => json!([]),
    }
}

/// The lowest role that has a right.
const fn role(right: Right) -> &'static str {
    match right {
        Right::Publish => "publish",
        Right::Read => "read",
        Right::Operate => "operate",
        Right::Admin | Right::Box => "admin",
    }
}

fn parameter(param: &Param, parts: &mut Components) -> Value {
    let Param { place, name, about, describe, example, bare, quick } = param;
    let more = if *quick { " Fast even in a long list." } else { "" };
    let schema = describe(&mut parts.sent).to_value();
    let number = schema.get("type").is_some_and(|of| of == "integer");
    let shown = json!({
        "name": name, "in": place.as_str(), "description": format!("{about}{more}"),
        "required": *place == Place::Path, "schema": schema,
    });
    let as_number = example.parse::<u64>().ok().filter(|_| number);
    let example =
        (!example.is_empty()).then(|| as_number.map_or_else(|| (*example).into(), Value::from));
    let shown = with(shown, "example", example);
    with(shown, "allowEmptyValue", bare.then_some(true.into()))
}

fn request_body(body: Body, parts: &mut Components) -> Value {
    match body {
        Body::Json { describe, example, is_optional } => {
            let schema = describe(&mut parts.sent).to_value();
            let example: Value = serde_json::from_str(example).unwrap_or_default();
            json!({
                "required": !is_optional,
                "content": { "application/json": { "schema": schema, "example": example } },
            })
        }
        Body::Any => json!({
            "required": true,
            "description": "The exact bytes that the provider signed. Any `Content-Type` is accepted.",
            "content": { "application/octet-stream": { "schema": { "type": "string", "format": "binary" } } },
        }),
    }
}

fn response(returns: &Returns, takes_key: bool, parts: &mut Components) -> Value {
    let mut headers = request_id();
    let replayed = takes_key.then_some(&idempotency::REPLAYED);
    for (name, about) in returns.headers.iter().chain(replayed) {
        let shown = json!({ "description": about, "schema": { "type": "string" } });
        headers.insert((*name).to_owned(), shown);
    }
    let shown = json!({ "description": returns.about, "headers": headers });
    let text = || json!({ "schema": { "type": "string" } });
    let content = match returns.content {
        Content::Nothing => return shown,
        Content::Json(describe) => {
            json!({ "application/json": { "schema": parts.answered(describe) } })
        }
        Content::Text(media_type) => json!({ media_type: text() }),
        Content::JsonOrText(describe) => json!({
            "application/json": { "schema": parts.answered(describe) }, "text/plain": text(),
        }),
    };
    with(shown, "content", Some(content))
}

/// The header fields of every answer.
fn request_id() -> Map<String, Value> {
    let mut headers = Map::new();
    headers.insert("X-Request-Id".to_owned(), json!({ "$ref": "#/components/headers/RequestId" }));
    headers
}

/// The response of kinds of problems that share a status.
fn problem(kinds: &[Kind], schema: &Value) -> Value {
    let mut headers = request_id();
    let mut examples = Map::new();
    let mut about = Vec::new();
    for kind in kinds {
        let Facts { word, status, title, when, remedy } = kind.facts();
        about.push(format!("`{word}`: {when} {remedy}"));
        let example = json!({
            "type": kind.uri(), "title": title, "status": status, "detail": when,
            "request_id": "019c1447-5800-7000-8000-000000000009",
        });
        examples.insert(word.to_owned(), json!({ "value": example }));
        if let Some((name, about, schema)) = header(*kind) {
            // If several kinds share a status, a field of only one of them is optional.
            let shown =
                json!({ "description": about, "required": kinds.len() == 1, "schema": schema });
            headers.insert(name.to_owned(), shown);
        }
    }
    json!({
        "description": about.join("\n\n"),
        "headers": headers,
        "content": { "application/problem+json": { "schema": schema, "examples": examples } },
    })
}

/// The header field that a kind of problem may have.
fn header(kind: Kind) -> Option<(&'static str, &'static str, Value)> {
    let text = json!({ "type": "string" });
    match kind {
        Kind::Unavailable | Kind::DiskFull | Kind::Throttled => Some((
            "Retry-After",
            "Seconds to wait before sending it again.",
            json!({ "type": "integer", "minimum": 0 }),
        )),
        Kind::Unauthorized => Some(("WWW-Authenticate", "`Bearer`.", text)),
        Kind::BadSignature => Some(("WWW-Authenticate", "`Signature`.", text)),
        Kind::UnusableWebhook => {
            Some(("X-Slack-No-Retry", "`1` tells Slack not to send it again.", text))
        }
        Kind::MethodNotAllowed => Some(("Allow", "The methods this path answers.", text)),
        Kind::UnsupportedCoding => {
            Some(("Accept-Encoding", "The codings that are unpacked.", text))
        }
        _ => None,
    }
}

fn security_schemes() -> Value {
    json!({
        "bearer": {
            "type": "http", "scheme": "bearer",
            "description": "A token made with `/v1/tokens`. Each operation names the lowest role that it needs.",
        },
        "signature": {
            "type": "apiKey", "in": "header", "name": "webhook-signature",
            "description": "The provider's signature over the body. The header field depends on the provider's scheme: \
                `webhook-signature`, `Stripe-Signature`, `X-Hub-Signature-256`, `X-Shopify-Hmac-Sha256`, or \
                the field that a generic scheme names.",
        },
    })
}
