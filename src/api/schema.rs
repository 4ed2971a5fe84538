//! The words shapes are written in: small JSON Schemas (2020-12) that recur.
//!
//! Not here: the shapes themselves, which stand beside the function that reads or shows them.

use serde_json::{Value, json};

use crate::api::description::Param;
use crate::api::kind::{Facts, Kind, TYPE_PREFIX};

/// A shape, by its name.
pub(super) fn of(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// An object of an answer: all its fields are always there.
pub(super) fn object(fields: Value) -> Value {
    let names: Vec<String> = match &fields {
        Value::Object(fields) => fields.keys().cloned().collect(),
        _ => Vec::new(),
    };
    json!({ "type": "object", "required": names, "properties": fields })
}

/// An object with fields of which only some are always there.
pub(super) fn object_with(required: &[&str], fields: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": fields })
}

/// An object of a request: fields that are not named are refused.
pub(super) fn request(required: &[&str], fields: Value) -> Value {
    json!({
        "type": "object", "required": required, "properties": fields,
        "additionalProperties": false,
    })
}

/// The same, with what it is for.
pub(super) fn about(mut schema: Value, about: &str) -> Value {
    if let Value::Object(fields) = &mut schema {
        fields.insert("description".to_owned(), about.into());
    }
    schema
}

/// The same, or null.
pub(super) fn nullable(mut schema: Value) -> Value {
    match schema.get("type") {
        Some(Value::String(one)) => {
            let both = json!([one, "null"]);
            if let Value::Object(fields) = &mut schema {
                fields.insert("type".to_owned(), both);
                if let Some(Value::Array(words)) = fields.get_mut("enum") {
                    words.push(Value::Null);
                }
            }
            schema
        }
        _ => json!({ "anyOf": [schema, { "type": "null" }] }),
    }
}

/// Any text.
pub(super) fn text() -> Value {
    json!({ "type": "string" })
}

/// Any text but none.
pub(super) fn some_text() -> Value {
    json!({ "type": "string", "minLength": 1 })
}

/// A text of so many characters.
pub(super) fn text_of(least: u32, most: u32) -> Value {
    json!({ "type": "string", "minLength": least, "maxLength": most })
}

/// Printable ASCII of so many characters.
pub(super) fn ascii(least: u32, most: u32) -> Value {
    json!({ "type": "string", "minLength": least, "maxLength": most, "pattern": "^[ -~]*$" })
}

/// One of these words.
pub(super) fn words<const N: usize>(words: [&'static str; N]) -> Value {
    json!({ "type": "string", "enum": words.as_slice() })
}

/// A count: never negative.
pub(super) fn count() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

/// A whole number within bounds.
pub(super) fn integer(least: u64, most: u64) -> Value {
    json!({ "type": "integer", "minimum": least, "maximum": most })
}

/// Yes or no.
pub(super) fn yes_or_no() -> Value {
    json!({ "type": "boolean" })
}

/// A list of such.
pub(super) fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

/// A point in time.
pub(super) fn time() -> Value {
    json!({ "type": "string", "format": "date-time" })
}

/// A UUID.
pub(super) fn uuid() -> Value {
    json!({ "type": "string", "format": "uuid" })
}

/// A name people give.
pub(super) fn name() -> Value {
    json!({ "type": "string", "pattern": "^[a-z0-9-]{1,63}$" })
}

/// A page of things of a shape.
pub(super) fn page(shape: &str) -> Value {
    let next = nullable(json!({ "type": "string", "pattern": "^[0-9]+$" }));
    object(json!({
        "items": list(of(shape)),
        "next": about(next,
            "What to send as `after` for the next page; null on the last page. A page may have fewer items than `limit`, \
             or none, and another after it."),
    }))
}

/// The body of every problem.
pub(super) fn problem() -> Value {
    object_with(
        &["type", "title", "status", "detail", "request_id"],
        json!({
            "type": { "type": "string", "pattern": format!("^{TYPE_PREFIX}[a-z-]+$"),
                "description": "The kind of problem: stable, to decide by." },
            "title": about(text(), "The kind, in words."),
            "status": about(integer(400, 599), "The status code."),
            "detail": about(text(), "What is wrong with this request, for a person."),
            "request_id": about(text(), "The request's name, as in `X-Request-Id`."),
            "checks": about(list(of("Check")), "With `not-ready` and `verbose` alone: every check."),
        }),
    )
}

/// The body of problems of these kinds.
pub(super) fn problem_of(kinds: &[Kind]) -> Value {
    let types: Vec<String> = kinds.iter().map(|kind| kind.uri()).collect();
    let example = kinds.first().map(|kind| {
        let Facts { status, title, when, .. } = kind.facts();
        json!({
            "type": kind.uri(), "title": title, "status": status, "detail": when,
            "request_id": "019c1447-5800-7000-8000-000000000009",
        })
    });
    json!({
        "allOf": [of("Problem"), { "properties": { "type": { "enum": types } } }],
        "examples": [example],
    })
}

fn limit() -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": 500, "default": 50 })
}

fn cursor() -> Value {
    json!({ "type": "string", "pattern": "^[0-9]{1,18}$" })
}

/// How long a page is.
pub(super) const LIMIT: Param = Param::query("limit", "The most items of the page.", limit, "50");

/// Where a page starts.
pub(super) const AFTER: Param =
    Param::query("after", "The `next` of the page before.", cursor, "17");

/// From when on.
pub(super) const SINCE: Param =
    Param::query("since", "Not before this time.", time, "2026-01-31T12:00:00Z").quick();

/// Until when.
pub(super) const UNTIL: Param =
    Param::query("until", "Before this time.", time, "2026-02-01T00:00:00Z").quick();

/// An object with one more field, which is always there.
pub(super) fn with(mut object: Value, name: &str, field: Value) -> Value {
    if let Some(Value::Array(required)) = object.get_mut("required") {
        required.push(name.into());
    }
    with_optional(object, name, field)
}

/// An object with one more field, which may be there.
pub(super) fn with_optional(mut object: Value, name: &str, field: Value) -> Value {
    if let Some(Value::Object(fields)) = object.get_mut("properties") {
        fields.insert(name.to_owned(), field);
    }
    object
}
