//! The shapes of providers, as `/openapi.json` describes them, and the bounds of their numbers.

use serde_json::{Value, json};

use crate::api::route::{Shape, shape};
use crate::api::{pii_shapes, schema, scheme_shapes};
use crate::signatures::provider::{MAX_BODY_BYTES, MAX_REPLAY_WINDOW, MAX_TOLERANCE};

/// The longest tolerance that may be set.
pub(super) const MAX_TOLERANCE_SECS: u64 = MAX_TOLERANCE.as_secs();
/// Secrets of a provider that is made, at most.
pub(super) const MAX_SECRETS: usize = 32;

/// All of them.
pub(super) const ALL: &[Shape] = &[
    shape("Provider", provider_schema),
    shape("ProviderCreation", creation_schema),
    shape("ProviderChange", change_schema),
    shape("PiiPolicy", pii_shapes::policy),
    shape("Scheme", scheme_schema),
    shape("GenericScheme", scheme_shapes::generic),
];

fn public_url_schema() -> Value {
    let url = json!({ "type": "string", "maxLength": 2048, "pattern": "^(https?://.*)?$" });
    schema::about(
        url,
        "The URL the provider posts to, byte for byte, where it is another than that of the settings: \
         some signatures cover it. In a change, an empty one takes it away.",
    )
}

fn body_bytes_schema() -> Value {
    let bytes = schema::integer(1, u64::from(MAX_BODY_BYTES));
    schema::about(bytes, "The largest body it may send.")
}

fn tolerance_schema() -> Value {
    let secs = schema::integer(1, MAX_TOLERANCE_SECS);
    schema::about(secs, "How far its signed time may be from ours.")
}

fn replay_window_schema() -> Value {
    let secs = schema::integer(0, MAX_REPLAY_WINDOW.as_secs());
    schema::about(
        secs,
        "For how long the same signed bytes and type count once, whatever their id; 0: each id is an event. It only \
         concerns schemes whose signature does not cover the id (docs/providers.md).",
    )
}

/// A secret of a provider.
pub(super) fn secret_schema() -> Value {
    schema::about(
        schema::text_of(1, 1024),
        "A secret it signs with. It is kept sealed and shown nowhere.",
    )
}

fn scheme_schema() -> Value {
    let schema = json!({ "oneOf": scheme_shapes::all() });
    schema::about(schema, "How it signs. docs/providers.md says what each needs.")
}

fn provider_schema() -> Value {
    schema::object(json!({
        "id": schema::uuid(), "tenant": schema::name(), "name": schema::name(),
        "scheme": schema::of("Scheme"), "pii": pii_shapes::stated(),
        "path": schema::about(schema::text(), "Where its webhooks are taken in."),
        "public_url": schema::about(
            schema::nullable(schema::text()),
            "The URL it posts to, where that was said; null: it is the settings'.",
        ),
        "url": schema::about(
            schema::nullable(schema::text()),
            "The URL to give to it: its own, or the settings' with its path; null where neither is set.",
        ),
        "body_bytes_max": body_bytes_schema(), "tolerance_secs": tolerance_schema(),
        "replay_window_secs": replay_window_schema(), "created_at": schema::time(), "updated_at": schema::time(),
    }))
}

fn creation_schema() -> Value {
    let mut secrets = schema::list(secret_schema());
    if let Value::Object(fields) = &mut secrets {
        fields.insert("maxItems".to_owned(), MAX_SECRETS.into());
    }
    let secrets = schema::about(secrets, "Several, while one replaces another; the newest first.");
    schema::request(
        &["name", "scheme", "pii"],
        json!({
            "name": schema::name(), "scheme": schema::of("Scheme"), "pii": pii_shapes::stated(),
            "secret": schema::nullable(secret_schema()), "secrets": secrets,
            "public_url": schema::nullable(public_url_schema()),
            "body_bytes_max": schema::nullable(body_bytes_schema()),
            "tolerance_secs": schema::nullable(tolerance_schema()),
            "replay_window_secs": schema::nullable(replay_window_schema()),
        }),
    )
}

/// An example of a provider to be made.
pub(super) fn creation_example() -> Value {
    json!({
        "name": "stripe", "scheme": { "kind": "stripe" }, "pii": "allow",
        "secret": "whsec_an_example_secret_of_the_provider",
    })
}

fn change_schema() -> Value {
    schema::request(
        &[],
        json!({
            "scheme": schema::nullable(schema::of("Scheme")),
            "pii": schema::nullable(pii_shapes::stated()),
            "secret": schema::nullable(secret_schema()),
            "public_url": schema::nullable(public_url_schema()),
            "body_bytes_max": schema::nullable(body_bytes_schema()),
            "tolerance_secs": schema::nullable(tolerance_schema()),
            "replay_window_secs": schema::nullable(replay_window_schema()),
        }),
    )
}

/// An example of a change.
pub(super) fn change_example() -> Value {
    json!({ "tolerance_secs": 600 })
}
