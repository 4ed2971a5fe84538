//! Payloads as they are shown to people and programs.

use data_encoding::{BASE64, HEXLOWER};
use ring::digest;
use serde_json::value::RawValue;

use crate::api::prelude::*;
use crate::api::schema::{Base64, Sha256};
use crate::model::json;
use crate::model::sealed::{self, Sealed};

/// How much memory showing a payload takes for each of its bytes: the payload, its JSON text, and the answer.
pub(super) const SHOWN_FACTOR: usize = 4;

/// With its payload: unchanged if it is JSON, else as text, else as base64.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "{T}WithPayload")]
pub(super) struct WithPayload<'a, T> {
    #[serde(flatten)]
    of: T,
    /// SHA-256 of the payload's exact bytes.
    #[schemars(with = "Sha256")]
    payload_sha256: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    payload_text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Base64")]
    payload_base64: Option<String>,
}

impl<T: Serialize> WithPayload<'_, T> {
    /// The answer.
    pub(super) fn response(of: T, payload: &[u8], content_type: &str, sealed: &Sealed) -> Response {
        let sha256 = digest::digest(&digest::SHA256, payload);
        // Sealed fields are opened only when a delivery is sent.
        let hidden = (sealed.fields > 0).then(|| sealed::redact(payload));
        let payload = hidden.as_deref().unwrap_or(payload);
        let is_json = content_type.contains("json") && json::is_shallow(payload);
        // A `RawValue`, because parsed JSON values would take thirty times the payload's size.
        let raw = is_json.then(|| serde_json::from_slice(payload).ok()).flatten();
        let text = std::str::from_utf8(payload).ok().filter(|_| raw.is_none());
        let is_bytes = raw.is_none() && text.is_none();
        let shown = WithPayload {
            of,
            payload_sha256: HEXLOWER.encode(sha256.as_ref()),
            payload: raw,
            payload_text: text,
            payload_base64: is_bytes.then(|| BASE64.encode(payload)),
        };
        ok(&shown)
    }
}
