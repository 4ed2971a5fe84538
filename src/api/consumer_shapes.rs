//! The shapes of leases, as `/openapi.json` describes them, and how much of them is taken.

use serde_json::{Value, json};

use crate::api::route::{Shape, shape};
use crate::api::schema;
use crate::model::delivery::State;
use crate::model::subscription::HoldReason;
use crate::pipeline::consume::{MAX_ITEMS, MAX_WAIT};

/// Leases that one request may speak of.
pub(super) const MAX_WORDS: usize = 500;
/// Characters of a reason that are kept.
pub(super) const MAX_REASON_CHARS: usize = 2048;

/// All of them.
pub(super) const ALL: &[Shape] = &[
    shape("Leases", leases),
    shape("LeasedEvent", leased_event),
    shape("Acknowledgements", acknowledgements),
    shape("Returns", returns),
    shape("Extension", extension),
    shape("Heard", heard),
];

/// A subscription is found by its id or its name.
pub(super) fn id() -> Value {
    json!({ "type": "string", "pattern": "^[a-z0-9-]{1,63}$" })
}

pub(super) fn max() -> Value {
    schema::integer(1, MAX_ITEMS.into())
}

pub(super) fn wait() -> Value {
    schema::integer(0, MAX_WAIT.as_secs())
}

pub(super) fn payload_form() -> Value {
    schema::words(["json", "base64"])
}

fn delivery() -> Value {
    json!({ "type": "string", "pattern": "^dlv_[0-9]+$" })
}

fn any_delivery() -> Value {
    json!({ "type": "string", "pattern": "^(dlv_)?[0-9]{1,18}$" })
}

fn span(about: &str) -> Value {
    schema::about(schema::nullable(schema::some_text()), about)
}

fn leases() -> Value {
    let held = schema::nullable(schema::words(HoldReason::ALL.map(HoldReason::as_str)));
    schema::object(json!({
        "items": schema::list(schema::of("LeasedEvent")),
        "held": schema::about(held, "Why nothing is given for now."),
    }))
}

fn leased_event() -> Value {
    let headers = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let headers = schema::about(headers, "The header fields that a request with it would have.");
    let attempt =
        schema::about(schema::integer(1, 1 << 31), "1, and one more each time it is given.");
    let lease = schema::about(schema::uuid(), "To be shown with whatever is said of it.");
    let event = schema::object(json!({
        "delivery": delivery(), "lease": lease, "lease_until": schema::time(), "attempt": attempt,
        "event_id": schema::uuid(),
        "webhook_id": schema::about(schema::text(), "The same whenever it is given: for the guard."),
        "event_type": schema::text(), "aggregate_type": schema::nullable(schema::text()),
        "aggregate_id": schema::nullable(schema::text()), "headers": headers,
        "content_type": schema::text(),
    }));
    let payload = schema::about(json!({}), "The payload, where it is JSON.");
    let base64 = json!({ "type": "string", "contentEncoding": "base64" });
    let base64 = schema::about(base64, "The payload's bytes, where it is not.");
    let event = schema::with_optional(event, "payload", payload);
    schema::with_optional(event, "payload_base64", base64)
}

fn items(item: Value) -> Value {
    json!({ "type": "array", "items": item, "minItems": 1, "maxItems": MAX_WORDS })
}

fn spoken() -> Value {
    schema::request(
        &["delivery", "lease"],
        json!({ "delivery": any_delivery(), "lease": schema::text() }),
    )
}

fn acknowledgements() -> Value {
    schema::request(&["items"], json!({ "items": items(spoken()) }))
}

/// A body that is accepted.
pub(super) fn ack_example() -> Value {
    let lease = "019c1447-5800-7000-8000-000000000001";
    json!({ "items": [{ "delivery": "dlv_17", "lease": lease }] })
}

fn returns() -> Value {
    let reason = json!({ "type": "string" });
    let about = format!("Why; the first {MAX_REASON_CHARS} characters are kept.");
    let counted = "false: it was not tried, which brings the end no nearer.";
    let item = schema::request(
        &["delivery", "lease"],
        json!({
            "delivery": any_delivery(), "lease": schema::text(),
            "reason": schema::about(schema::nullable(reason), &about),
            "delay": span("When it may be given again, like `30s`, at most `7days`; by the schedule if absent."),
            "dead": schema::about(schema::yes_or_no(), "It will never work: a dead letter at once."),
            "counted": schema::about(schema::yes_or_no(), counted),
        }),
    );
    schema::request(&["items"], json!({ "items": items(item) }))
}

/// A body that is accepted.
pub(super) fn nack_example() -> Value {
    let lease = "019c1447-5800-7000-8000-000000000001";
    let item =
        json!({ "delivery": "dlv_17", "lease": lease, "reason": "no stock", "delay": "5min" });
    json!({ "items": [item] })
}

fn extension() -> Value {
    let fields = json!({ "items": items(spoken()), "lease": span("From now on, like `5min`.") });
    schema::request(&["items"], fields)
}

/// A body that is accepted.
pub(super) fn extend_example() -> Value {
    let lease = "019c1447-5800-7000-8000-000000000001";
    json!({ "items": [{ "delivery": "dlv_17", "lease": lease }], "lease": "5min" })
}

fn heard() -> Value {
    let status = "As if it had been asked alone: 200; 404: there is no such delivery here; 409: it is not \
                  this lease's to say, and `detail` says why; 500: its rows are spoiled, and the log says how.";
    let until = schema::nullable(schema::time());
    let item = schema::object_with(
        &["delivery", "status"],
        json!({
            "delivery": delivery(),
            "status": schema::about(json!({ "enum": [200, 404, 409, 500] }), status),
            "state": schema::about(schema::words(State::ALL.map(State::as_str)), "The delivery's, now."),
            "lease_until": schema::about(until, "When an extended lease ends."),
            "already_processed": schema::about(json!({ "const": true }), "It had been said before."),
            "detail": schema::text(),
        }),
    );
    schema::object(json!({ "items": schema::list(item) }))
}
