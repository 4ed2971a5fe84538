//! Payloads as they are shown to people and programs.

use std::borrow::Cow;

use data_encoding::{BASE64, HEXLOWER};
use ring::digest;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::http::message::Response;
use crate::model::json;
use crate::model::json::quoted;
use crate::model::sealed::{self, Sealed};

/// How much memory a payload that is shown takes, for each of its bytes: itself, as a text of JSON, in the answer.
pub(super) const SHOWN_FACTOR: usize = 4;

/// Something with its payload, for people and programs: as it is where it is JSON, else as text, else as base64.
/// The exact bytes can be told by `payload_sha256`.
pub(super) fn with_payload(
    shown: &Value,
    payload: &[u8],
    content_type: &str,
    sealed: &Sealed,
) -> Response {
    let sha256 = digest::digest(&digest::SHA256, payload);
    let sha256 = HEXLOWER.encode(sha256.as_ref());
    // What is sealed is opened in what is sent, and nowhere else.
    let hidden = (sealed.fields > 0).then(|| sealed::hidden(payload));
    let payload = hidden.as_deref().unwrap_or(payload);
    let is_json = content_type.contains("json") && json::is_shallow(payload);
    // Read as JSON, it would take thirty times its bytes.
    let raw = is_json.then(|| serde_json::from_slice::<&RawValue>(payload).ok()).flatten();
    let (name, value) = match (raw, std::str::from_utf8(payload)) {
        (Some(raw), _) => ("payload", Cow::Borrowed(raw.get())),
        (None, Ok(text)) => ("payload_text", Cow::Owned(quoted(text))),
        (None, Err(_)) => ("payload_base64", Cow::Owned(quoted(&BASE64.encode(payload)))),
    };
    let shown = shown.to_string();
    let fields = shown.strip_suffix('}').unwrap_or(&shown);
    let body = format!(r#"{fields},"payload_sha256":"{sha256}","{name}":{value}}}"#);
    Response::with_body(200, "application/json", body.into_bytes())
}
