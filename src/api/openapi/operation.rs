//! One route as an operation of the document.

use serde_json::{Map, Value, json};

use crate::api::kind::Kind;
use crate::api::route::{Body, Content, Param, Place, Returns, Route};
use crate::api::{openapi, schema};
use crate::http::message::Method;
use crate::model::token::Right;

/// What the listener may refuse before it knows the route.
const OF_ALL: [Kind; 9] = [
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

/// The operation of a route.
pub(super) fn of(tag: &str, route: &Route) -> Value {
    let doc = &route.doc;
    let mut operation = Map::new();
    operation.insert("tags".to_owned(), json!([tag]));
    operation.insert("summary".to_owned(), doc.summary.into());
    operation.insert("description".to_owned(), doc.about.into());
    operation.insert("operationId".to_owned(), doc.id.into());
    operation.insert("security".to_owned(), security(route));
    let params: Vec<Value> = doc.params.iter().map(parameter).collect();
    if !params.is_empty() {
        operation.insert("parameters".to_owned(), params.into());
    }
    if let Some(body) = &doc.body {
        operation.insert("requestBody".to_owned(), request_body(*body));
    }
    operation.insert("responses".to_owned(), responses(route));
    Value::Object(operation)
}

/// The kinds of problems a route may answer: its own, and those that follow from what it is.
pub(super) fn problems(route: &Route) -> Vec<Kind> {
    let mut kinds = OF_ALL.to_vec();
    kinds.extend_from_slice(route.doc.problems);
    if route.right.is_some() {
        kinds.extend([Kind::Unauthorized, Kind::Forbidden, Kind::TenantSuspended, Kind::Throttled]);
    }
    if route.path.contains('{') {
        kinds.push(Kind::NotFound);
    }
    if route.method != Method::Get {
        kinds.extend([Kind::DiskFull, Kind::Conflict, Kind::Unprocessable]);
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

/// The least role that has a right.
const fn role(right: Right) -> &'static str {
    match right {
        Right::Publish => "publish",
        Right::Read => "read",
        Right::Operate => "operate",
        Right::Admin | Right::Box => "admin",
    }
}

fn parameter(param: &Param) -> Value {
    let Param { place, name, about, schema, example, bare, quick } = param;
    let more = if *quick { " Quick, however many there are." } else { "" };
    let mut shown = json!({
        "name": name, "in": place.as_str(), "description": format!("{about}{more}"),
        "required": *place == Place::Path, "schema": schema(),
    });
    if let Value::Object(fields) = &mut shown
        && !example.is_empty()
    {
        let schema = schema();
        let number = schema.get("type").is_some_and(|of| of == "integer");
        let example = if number {
            example.parse::<u64>().map_or(Value::Null, Into::into)
        } else {
            Value::from(*example)
        };
        fields.insert("example".to_owned(), example);
    }
    if let (true, Value::Object(fields)) = (*bare, &mut shown) {
        fields.insert("allowEmptyValue".to_owned(), true.into());
    }
    shown
}

fn request_body(body: Body) -> Value {
    match body {
        Body::Json { shape, example } => json!({
            "required": true,
            "content": { "application/json": { "schema": schema::of(shape), "example": example() } },
        }),
        Body::Any => json!({
            "required": true,
            "description": "The webhook as the provider signed it, to the byte.",
            "content": { "*/*": { "schema": {} } },
        }),
    }
}

fn responses(route: &Route) -> Value {
    let mut responses = Map::new();
    for returns in route.doc.returns {
        responses.insert(returns.status.to_string(), response(returns));
    }
    for same_status in problems(route).chunk_by(|a, b| a.facts().status == b.facts().status) {
        let [first, rest @ ..] = same_status else { continue };
        let shown = if rest.is_empty() {
            json!({ "$ref": format!("#/components/responses/{}", first.facts().word) })
        } else {
            openapi::problem(same_status)
        };
        responses.insert(first.facts().status.to_string(), shown);
    }
    Value::Object(responses)
}

fn response(returns: &Returns) -> Value {
    let mut shown = Map::new();
    shown.insert("description".to_owned(), returns.about.into());
    let mut headers = request_id();
    for (name, about) in returns.headers {
        let shown = json!({ "description": about, "schema": schema::text() });
        headers.insert((*name).to_owned(), shown);
    }
    shown.insert("headers".to_owned(), headers.into());
    let content = match returns.content {
        Content::Nothing => None,
        Content::Json(shape) => Some(("application/json", schema::of(shape))),
        Content::Page(shape) => Some(("application/json", schema::page(shape))),
        Content::Text(media_type) => Some((media_type, schema::text())),
        Content::JsonOrText(shape) => {
            let both = json!({
                "application/json": { "schema": schema::of(shape) },
                "text/plain": { "schema": schema::text() },
            });
            shown.insert("content".to_owned(), both);
            None
        }
    };
    if let Some((media_type, schema)) = content {
        shown.insert("content".to_owned(), json!({ media_type: { "schema": schema } }));
    }
    Value::Object(shown)
}

/// The header fields of every answer.
pub(super) fn request_id() -> Map<String, Value> {
    let mut headers = Map::new();
    headers.insert("X-Request-Id".to_owned(), json!({ "$ref": "#/components/headers/RequestId" }));
    headers
}
