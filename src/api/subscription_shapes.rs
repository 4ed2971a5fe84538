//! The shapes of subscriptions, as `/openapi.json` describes them.

use serde_json::{Value, json};

use crate::api::route::{Shape, shape};
use crate::api::schema;
use crate::model::lane::Ordering;
use crate::model::subscription::{CallMethod, HoldReason, State, Target};

/// All of them.
pub(super) const ALL: &[Shape] = &[
    shape("Subscription", subscription),
    shape("NewSubscription", new_subscription),
    shape("SubscriptionCreation", creation),
    shape("SubscriptionChange", change),
    shape("Policy", policy),
];

/// A subscription is found by its id or its name.
pub(super) fn id() -> Value {
    json!({ "type": "string", "pattern": "^[a-z0-9-]{1,63}$" })
}

fn url() -> Value {
    let about = "Where it is called; may hold `{aggregate_id}` and its like.";
    schema::about(schema::text_of(1, 2048), about)
}

fn target() -> Value {
    let about = "`http`: events are sent to `url`. `pull`: consumers ask for them, and there is no `url`. It \
                 stays what it was made with.";
    schema::about(schema::words(Target::KINDS), about)
}

fn ordering() -> Value {
    let about = "`key`: events with the same `ordering_key`, else of the same aggregate, go one after \
                 another; `strict`: all of them do. Of events stored from then on.";
    schema::about(schema::words(Ordering::ALL.map(Ordering::as_str)), about)
}

fn event_types() -> Value {
    let pattern = json!({ "type": "string", "pattern": "^[A-Za-z0-9_+:/-]+(\\.[A-Za-z0-9_+:/-]+|\\.\\*)*$|^\\*(\\.([A-Za-z0-9_+:/-]+|\\*))*$" });
    schema::about(schema::list(pattern), "Which types it wants, like `invoice.*`; `*` for all.")
}

fn source() -> Value {
    let source = json!({ "type": "string", "pattern": "^(outbox|all|provider:[a-z0-9-]{1,63})$" });
    schema::about(source, "Where its events come from: `outbox`, `all`, or `provider:<name>`.")
}

fn owner() -> Value {
    schema::about(schema::text_of(0, 255), "The person or system that answers for it.")
}

fn method() -> Value {
    schema::words(CallMethod::ALL.map(CallMethod::as_str))
}

fn headers() -> Value {
    let value = json!({ "type": "string", "pattern": "^[ -~]*$" });
    let schema = json!({
        "type": "object", "maxProperties": 32, "additionalProperties": value,
        "propertyNames": { "pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$" },
    });
    schema::about(
        schema,
        "Further header fields of its requests. Fields that carry secrets are refused.",
    )
}

fn policy() -> Value {
    let span = schema::some_text();
    let mut steps = schema::list(span.clone());
    if let Value::Object(fields) = &mut steps {
        fields.insert("minItems".to_owned(), 1.into());
        fields.insert("maxItems".to_owned(), 50.into());
    }
    let schema = schema::request(
        &[],
        json!({
            "steps": schema::about(
                schema::nullable(steps), "Waits between attempts, like `5s`, `30min`; the last is repeated."),
            "max_attempts": schema::nullable(schema::integer(1, 1000)),
            "timeout": schema::about(schema::nullable(span.clone()), "Time for a whole attempt, like `30s`."),
            "in_flight_max": schema::nullable(schema::integer(1, 256)),
            "lease": schema::about(
                schema::nullable(span),
                "How long a pull consumer has an event to itself: `1s` to `12h`; `60s` if absent."),
        }),
    );
    schema::about(schema, "How it is called where that differs from the settings.")
}

fn subscription() -> Value {
    let or_null = schema::nullable;
    let hold = schema::object(json!({
        "reason": schema::words(HoldReason::ALL.map(HoldReason::as_str)),
        "since": schema::time(), "detail": schema::text(),
    }));
    let failures = schema::about(schema::count(), "Failed attempts since the last success.");
    schema::object(json!({
        "id": schema::uuid(), "tenant": schema::name(), "name": schema::name(),
        "owner_id": owner(), "source": source(), "event_types": event_types(),
        "target": target(), "url": or_null(url()), "method": method(), "headers": headers(), "policy": schema::of("Policy"),
        "ordering": ordering(), "state": schema::words(State::ALL.map(State::as_str)),
        "holds": schema::about(schema::list(hold), "Why it is not called for now."),
        "failure_count": failures, "failing_since": or_null(schema::time()),
        "last_success_at": or_null(schema::time()), "last_failure_at": or_null(schema::time()),
        "created_at": schema::time(), "updated_at": schema::time(),
    }))
}

fn secret() -> Value {
    json!({ "type": "string", "pattern": "^whsec_[A-Za-z0-9+/]+={0,2}$" })
}

fn new_subscription() -> Value {
    let secret =
        schema::about(secret(), "What its requests are signed with. It is shown this once.");
    schema::with(subscription(), "secret", secret)
}

fn creation() -> Value {
    let secret = schema::about(schema::nullable(secret()), "To keep one the receiver has.");
    schema::request(
        &["name"],
        json!({
            "name": schema::name(), "target": schema::nullable(target()),
            "url": schema::nullable(url()), "event_types": event_types(),
            "source": schema::nullable(source()), "owner_id": owner(), "method": method(),
            "headers": headers(), "policy": schema::of("Policy"),
            "ordering": schema::nullable(ordering()), "secret": secret,
        }),
    )
}

/// A body that is accepted.
pub(super) fn creation_example() -> Value {
    json!({ "name": "erp", "url": "https://erp.example.com/hooks", "event_types": ["invoice.*"] })
}

fn change() -> Value {
    let or_null = schema::nullable;
    schema::request(
        &[],
        json!({
            "target": or_null(target()), "url": or_null(url()),
            "event_types": or_null(event_types()), "ordering": or_null(ordering()),
            "source": or_null(source()), "owner_id": or_null(owner()),
            "method": or_null(method()), "headers": or_null(headers()),
            "policy": or_null(schema::of("Policy")),
        }),
    )
}

/// A body that is accepted.
pub(super) fn change_example() -> Value {
    json!({ "event_types": ["invoice.*", "order.created"] })
}
