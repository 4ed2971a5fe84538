//! The shape of the generic scheme, as `/openapi.json` describes it.

use serde_json::{Value, json};

use crate::api::schema::{about, list, nullable, of, request, text, text_of, words, yes_or_no};
use crate::signatures::Scheme;
use crate::signatures::kinds;

/// All forms that a scheme has.
pub(super) fn all() -> Vec<Value> {
    let bare = |kind: &&str| *kind != "adyen" && Scheme::of(kind).is_some();
    let plain: Vec<&str> = kinds().filter(bare).collect();
    let plain = json!({ "type": "string", "enum": plain });
    let user = about(text_of(1, 255), "The user name; the secret is the password.");
    vec![
        request(&["kind"], json!({ "kind": plain })),
        request(
            &["kind"],
            json!({
                "kind": words(["adyen"]),
                "accepted": about(yes_or_no(), "Answer the text `[accepted]`, which older accounts wait for."),
            }),
        ),
        request(
            &["kind", "webhook_id"],
            json!({
                "kind": words(["paypal"]),
                "webhook_id": about(text_of(8, 64), "The webhook's id in PayPal's console."),
                "certificates": certificates(),
            }),
        ),
        request(
            &["kind", "topics"],
            json!({
                "kind": words(["sns"]),
                "topics": about(list(text_of(8, 512)), "The topics that are believed, by their ARNs."),
                "confirm": about(yes_or_no(), "Whether a subscription of theirs is confirmed without a person."),
                "certificates": certificates(),
            }),
        ),
        request(&["kind", "user"], json!({ "kind": words(["chargebee"]), "user": user })),
        of("GenericScheme"),
    ]
}

fn certificates() -> Value {
    about(nullable(text()), "The provider's certificates, PEM, for boxes that may not fetch them.")
}

/// A scheme put together from settings.
pub(super) fn generic() -> Value {
    let check = json!({ "oneOf": [
        request(&["hmac"], json!({ "hmac": signed(Some(words(["sha256", "sha1", "sha512"]))) })),
        request(&["ed25519"], json!({ "ed25519": signed(None) })),
        request(&["token"], json!({ "token": token() })),
        request(&["basic"], json!({ "basic": request(&["user"], json!({ "user": user() })) })),
    ] });
    let schema = request(
        &["kind", "check"],
        json!({
            "kind": words(["generic"]),
            "check": about(check, "How the provider proves itself."),
            "event_id": about(id_place(), "Where its id of the event stands; the body's digest, if absent."),
            "items": about(
                nullable(text_of(0, 512)),
                "Where a list of events stands in the body, each taken for itself; empty: the body is it.",
            ),
            "event_type": about(type_place(), "Where the event's type stands; `unknown`, if absent."),
        }),
    );
    about(
        schema,
        "Put together from settings: an HMAC or ed25519 over a template, a shared token, or basic \
         authentication.",
    )
}

fn signed(hash: Option<Value>) -> Value {
    let timestamp = request(
        &["header"],
        json!({ "header": header(), "unit": about(words(["s", "ms"]), "What it counts since 1970.") }),
    );
    let separator = json!({ "type": "string", "minLength": 1, "maxLength": 1 });
    let mut shape = request(
        &["signed", "header"],
        json!({
            "signed": about(text(), "What is signed, like `{ts}.{body}`."),
            "header": about(header(), "The header field that carries the signature."),
            "prefix": about(text(), "What stands before each signature, like `sha256=`."),
            "encoding": words(["hex", "base64", "base64url"]),
            "secret_encoding": words(["utf8", "base64", "hex"]),
            "separator": about(nullable(separator), "What stands between several signatures."),
            "timestamp": about(nullable(timestamp), "The time that is signed."),
        }),
    );
    if let (Some(hash), Some(Value::Object(fields))) = (hash, shape.get_mut("properties")) {
        fields.insert("hash".to_owned(), nullable(hash));
    }
    shape
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
