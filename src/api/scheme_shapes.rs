//! The shape of the generic scheme, as `/openapi.json` describes it.

use serde_json::{Value, json};

use crate::api::schema::{about, nullable, request, text, words};

/// A scheme put together from settings.
pub(super) fn generic() -> Value {
    let check = json!({ "oneOf": [
        request(&["hmac"], json!({ "hmac": hmac() })),
        request(&["token"], json!({ "token": token() })),
        request(&["basic"], json!({ "basic": request(&["user"], json!({ "user": user() })) })),
    ] });
    let schema = request(
        &["kind", "check"],
        json!({
            "kind": words(["generic"]),
            "check": about(check, "How the provider proves itself."),
            "event_id": about(id_place(), "Where its id of the event stands; the body's digest, if absent."),
            "event_type": about(type_place(), "Where the event's type stands; `unknown`, if absent."),
        }),
    );
    about(
        schema,
        "Put together from settings: an HMAC over a template, a shared token, or basic authentication.",
    )
}

fn hmac() -> Value {
    let timestamp = request(
        &["header"],
        json!({ "header": header(), "unit": about(words(["s", "ms"]), "What it counts since 1970.") }),
    );
    let separator = json!({ "type": "string", "minLength": 1, "maxLength": 1 });
    request(
        &["signed", "header"],
        json!({
            "hash": words(["sha256", "sha1", "sha512"]),
            "signed": about(text(), "What is signed, like `{ts}.{body}`."),
            "header": about(header(), "The header field that carries the signature."),
            "prefix": about(text(), "What stands before each signature, like `sha256=`."),
            "encoding": words(["hex", "base64", "base64url"]),
            "secret_encoding": words(["utf8", "base64", "hex"]),
            "separator": about(nullable(separator), "What stands between several signatures."),
            "timestamp": about(nullable(timestamp), "The time that is signed."),
        }),
    )
}

fn token() -> Value {
    request(&["header"], json!({ "header": header(), "prefix": text() }))
}

fn user() -> Value {
    about(text(), "The user name; the secret is the password.")
}

fn header() -> Value {
    json!({ "type": "string", "pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$" })
}

fn id_place() -> Value {
    json!({ "oneOf": [
        words(["body_hash"]),
        request(&["header"], json!({ "header": header() })),
        request(&["pointer"], json!({ "pointer": text() })),
    ] })
}

fn type_place() -> Value {
    nullable(json!({ "oneOf": [
        request(&["header"], json!({ "header": header() })),
        request(&["pointer"], json!({ "pointer": text() })),
        request(&["constant"], json!({ "constant": text() })),
    ] }))
}
