//! `/openapi.json`: made from the routes, so that it cannot say less or more than there is.
//!
//! Not here: what it says of each route, which stands beside the route ([`crate::api::route`]).

mod operation;

use serde_json::{Map, Value, json};

use crate::api::call::Call;
use crate::api::kind::{Facts, Kind};
use crate::api::problem::Problem;
use crate::api::route::Answer::Now;
use crate::api::route::{Resource, Returns, doc, route, shape};
use crate::api::{Api, RESOURCES, schema};
use crate::http::message::Method::Get;
use crate::http::message::Response;

/// The document about the document.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Description",
    about: "This document.",
    routes: &[route(
        Get,
        "/openapi.json",
        None,
        Now(show),
        doc(
            "getOpenApi",
            "Show the OpenAPI document",
            "OpenAPI 3.1, of this version.",
            &[Returns::json(200, "The document.", "OpenApi")],
        ),
    )],
    shapes: &[shape("OpenApi", document_schema)],
};

/// What is true of all routes.
const ABOUT: &str = "\
Webhooks in, business events out, each exactly once.

**Who is asking**: a token in `Authorization: Bearer`, with the role that each operation names (`admin` may do \
all, `operate` what `read` and `publish` may). Webhooks come in without a token: their signature stands for it.

**Pages**: lists take `limit` and `after`; `next` of the answer is the `after` of the next page, and null on the \
last one.

**Again**: `POST /v1/events` with an `Idempotency-Key` may be sent again: the same request has the same answer, \
with `Idempotency-Replayed: true`.

**Problems**: every error is `application/problem+json` (RFC 9457). Decide by `type`, which is stable; show \
`detail` to a person. 400 means that the request does not have the form described here, 422 that it has and a \
value in it cannot be accepted.

**Strictness**: fields and query parameters that are not described here are refused, so that a misspelt one does \
not pass for none. `Content-Type` of a request with JSON is not looked at. `HEAD` is answered wherever `GET` is.";

/// The document.
pub fn document() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Oncebox",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Webhooks in, business events out, each exactly once.",
            "description": ABOUT,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/", "description": "The Oncebox that served this document." }],
        "tags": RESOURCES.iter().map(|resource| tag(resource)).collect::<Vec<_>>(),
        "paths": paths(),
        "components": {
            "schemas": schemas(),
            "responses": responses(),
            "headers": { "RequestId": {
                "description": "The request's name, which its line in the log has too.",
                "required": true, "schema": schema::text(),
            } },
            "securitySchemes": security_schemes(),
        },
    })
}

/// `GET /openapi.json`
#[expect(clippy::unnecessary_wraps, reason = "every route has this shape")]
fn show(api: &Api, _call: &Call) -> Result<Response, Problem> {
    Ok(Response::with_body(200, "application/json", api.document.to_vec()))
}

fn document_schema() -> Value {
    json!({ "type": "object", "required": ["openapi", "info", "paths", "components"] })
}

fn tag(resource: &Resource) -> Value {
    json!({ "name": resource.tag, "description": resource.about })
}

fn paths() -> Map<String, Value> {
    let mut paths = Map::new();
    for resource in RESOURCES {
        for route in resource.routes {
            let path = paths.entry(route.path).or_insert_with(|| json!({}));
            if let Value::Object(operations) = path {
                let method = route.method.as_str().to_ascii_lowercase();
                operations.insert(method, operation::of(resource.tag, route));
            }
        }
    }
    paths
}

fn schemas() -> Map<String, Value> {
    let shapes = RESOURCES.iter().flat_map(|resource| resource.shapes);
    let mut schemas: Map<String, Value> =
        shapes.map(|shape| (shape.name.to_owned(), (shape.schema)())).collect();
    schemas.insert("Problem".to_owned(), schema::problem());
    schemas
}

/// A response for every kind of problem; operations refer to them.
fn responses() -> Map<String, Value> {
    Kind::ALL.into_iter().map(|kind| (kind.facts().word.to_owned(), problem(&[kind]))).collect()
}

/// The response that problems of one status have.
fn problem(kinds: &[Kind]) -> Value {
    let about: Vec<String> = kinds
        .iter()
        .map(|kind| {
            let Facts { word, when, remedy, .. } = kind.facts();
            format!("`{word}`: {when} {remedy}")
        })
        .collect();
    let mut headers = operation::request_id();
    for (name, about, schema) in kinds.iter().filter_map(|kind| header(*kind)) {
        // Where several kinds share a status, a field of one of them need not be there.
        let shown = json!({ "description": about, "required": kinds.len() == 1, "schema": schema });
        headers.insert(name.to_owned(), shown);
    }
    json!({
        "description": about.join("\n\n"),
        "headers": headers,
        "content": { "application/problem+json": { "schema": schema::problem_of(kinds) } },
    })
}

/// The header field that a kind of problem may come with.
fn header(kind: Kind) -> Option<(&'static str, &'static str, Value)> {
    match kind {
        Kind::Unavailable | Kind::DiskFull | Kind::Throttled => {
            Some(("Retry-After", "Seconds after which to send it again.", schema::count()))
        }
        Kind::Unauthorized => Some(("WWW-Authenticate", "`Bearer`.", schema::text())),
        Kind::UnusableWebhook => {
            Some(("X-Slack-No-Retry", "`1` where Slack would send it again.", schema::text()))
        }
        Kind::MethodNotAllowed => Some(("Allow", "The methods this path answers.", schema::text())),
        _ => None,
    }
}

fn security_schemes() -> Value {
    json!({
        "bearer": {
            "type": "http", "scheme": "bearer",
            "description": "A token of `/v1/tokens`. The role named with an operation is the least it needs.",
        },
        "signature": {
            "type": "apiKey", "in": "header", "name": "webhook-signature",
            "description": "The provider's signature over the body. The field is the scheme's: \
                `webhook-signature`, `Stripe-Signature`, `X-Hub-Signature-256`, `X-Shopify-Hmac-Sha256`, or \
                what a generic scheme names.",
        },
    })
}
