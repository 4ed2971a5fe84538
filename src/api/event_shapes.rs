//! The shapes of events, as `/openapi.json` describes them, and how many are taken at once.

use serde_json::{Value, json};

use crate::api::route::{Shape, shape};
use crate::api::schema;
use crate::model::event::Status;

/// Events of one request at most.
pub(super) const MAX_EVENTS: usize = 1000;

/// All of them.
pub(super) const ALL: &[Shape] = &[
    shape("Event", event),
    shape("EventWithPayload", event_with_payload),
    shape("NewEvent", publication),
    shape("NewEvents", publications),
    shape("Publications", published),
];

/// Which times are taken.
const LIKELY: &str = "In the years 1973 to 2199.";

/// A key of a request.
pub(super) fn request_key() -> Value {
    let key = r"[!#-+\--:<-\[\]-~]{1,128}";
    json!({ "type": "string", "pattern": format!("^({key}|\"{key}\")$") })
}

/// A status of an event.
pub(super) fn status() -> Value {
    schema::words(Status::ALL.map(Status::as_str))
}

fn event_type() -> Value {
    schema::about(schema::ascii(1, 128), "What happened, like `invoice.created`.")
}

fn publications() -> Value {
    let many = json!({
        "type": "array", "items": schema::of("NewEvent"), "minItems": 1, "maxItems": MAX_EVENTS,
    });
    json!({ "anyOf": [schema::of("NewEvent"), many] })
}

fn publication() -> Value {
    let or_null = schema::nullable;
    let source = json!({
        "type": "string", "minLength": 1, "maxLength": 64, "pattern": "^(?!in:)[ -~]*$",
        "description": "The system the fact comes from; `api`, if absent.",
    });
    let key = "The fact's own name there. Without one nothing is recognized as published before.";
    let mut schema = schema::request(
        &["event_type"],
        json!({
            "event_type": event_type(),
            "payload": { "description": "Any JSON; it is sent to the byte as it was published." },
            "payload_base64": schema::about(
                or_null(json!({ "type": "string", "contentEncoding": "base64",
                    "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$" })),
                "Any bytes, instead of `payload`."),
            "content_type": or_null(schema::ascii(0, 255)),
            "source_system": or_null(source),
            "idempotency_key": schema::about(or_null(schema::ascii(1, 255)), key),
            "aggregate_type": or_null(schema::text_of(1, 64)),
            "aggregate_id": or_null(schema::text_of(1, 255)),
            "target": schema::about(
                or_null(schema::text_of(1, 63)), "Only for the subscription of this name."),
            "occurred_at": schema::about(or_null(schema::time()), LIKELY),
            "not_before": schema::about(or_null(schema::time()), LIKELY),
            "ordering_key": or_null(schema::text_of(1, 255)),
            "process_id": or_null(schema::text_of(1, 255)),
            "max_attempts": or_null(schema::integer(1, 1000)),
            "custom_data": or_null(schema::text_of(1, 4096)),
        }),
    );
    if let Value::Object(fields) = &mut schema {
        let one_payload = json!([{ "required": ["payload"] }, { "required": ["payload_base64"] }]);
        fields.insert("oneOf".to_owned(), one_payload);
    }
    schema
}

/// An event that is accepted.
pub(super) fn publication_example() -> Value {
    json!({
        "event_type": "invoice.created", "idempotency_key": "invoice-4711",
        "aggregate_type": "invoice", "aggregate_id": "4711", "payload": { "total": "99.00" },
    })
}

fn published() -> Value {
    let differs =
        json!({ "const": true, "description": "It was published before with other content." });
    let in_doubt = json!({ "const": true, "description": "It is stored, and held until a person \
        releases it: the database was restored, and this event may have been sent before." });
    let line = schema::object_with(
        &["id", "webhook_id", "status", "already_processed"],
        json!({
            "id": schema::uuid(),
            "webhook_id": schema::about(schema::text(), "The `webhook-id` its deliveries carry."),
            "status": schema::about(status(), "A `quarantined` event is sent to nobody until it is \
                repaired, or published again with what it lacks."),
            "already_processed": schema::about(schema::yes_or_no(),
                "It was published before; never true of one that is quarantined."),
            "differs": differs,
            "in_doubt": in_doubt,
        }),
    );
    let events =
        schema::about(schema::list(line), "One for each event of the request, in its order.");
    schema::object(json!({ "events": events }))
}

fn event() -> Value {
    let or_null = schema::nullable;
    let duplicates = "How often it was published again.";
    schema::object(json!({
        "id": schema::text(), "webhook_id": schema::text(), "tenant": schema::text(),
        "source_system": schema::text(), "idempotency_key": schema::text(),
        "event_type": schema::text(), "aggregate_type": or_null(schema::text()),
        "aggregate_id": or_null(schema::text()), "target": or_null(schema::text()),
        "content_type": schema::text(), "occurred_at": or_null(schema::time()),
        "received_at": schema::time(), "not_before": or_null(schema::time()),
        "ordering_key": or_null(schema::text()), "process_id": or_null(schema::text()),
        "trace_id": or_null(schema::text()), "max_attempts": or_null(schema::count()),
        "custom_data": or_null(schema::text()), "status": status(),
        "open_deliveries": schema::count(),
        "duplicate_count": schema::about(schema::count(), duplicates),
        "differing_count": schema::about(schema::count(), "How often with other content."),
        "last_error": or_null(schema::text()),
        "error_code": schema::about(or_null(schema::text()),
            "Why it is quarantined, or was when it was discarded, such as `bad_payload`."),
        "completed_at": or_null(schema::time()),
        "sealed_fields": schema::about(
            schema::count(), "How many places of the payload are sealed; they are shown as `[sealed]`."),
    }))
}

fn event_with_payload() -> Value {
    with_payload(event())
}

/// What `shown_payload` adds to an event.
pub(super) fn with_payload(event: Value) -> Value {
    let sha256 = json!({ "type": "string", "pattern": "^[0-9a-f]{64}$" });
    let sha256 = schema::about(sha256, "SHA-256 of the payload's exact bytes.");
    let schema = schema::with(event, "payload_sha256", sha256);
    let schema = schema::with_optional(schema, "payload", json!({}));
    let schema = schema::with_optional(schema, "payload_text", schema::text());
    let base64 = json!({ "type": "string", "contentEncoding": "base64" });
    schema::with_optional(schema, "payload_base64", base64)
}
