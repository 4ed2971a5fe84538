//! An answer to a stored webhook, as it is set for a provider.
//!
//! Not here: which answer a request gets ([`super::answering`]).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The status of an answer, unless another one is set.
pub(super) const OK: u16 = 200;
/// The longest body of an answer that may be set, in bytes.
const MAX_BODY_BYTES: usize = 4096;
/// The longest media type of an answer.
const MAX_CONTENT_TYPE_BYTES: usize = 255;

/// The answer to a webhook that was stored, now or before.
///
/// *Shape*: `{"status":200,"content_type":"text/plain","body":"ok"}`; all are optional, an empty object is 200 with
/// an empty body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WebhookAnswer")]
pub struct Acknowledgement {
    /// The status, 200 to 299; default: 200.
    #[serde(default = "ok_status")]
    #[schemars(range(min = 200, max = 299))]
    pub status: u16,
    /// The media type; it goes with a body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_CONTENT_TYPE_BYTES))]
    pub content_type: Option<String>,
    /// The body; default: empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = MAX_BODY_BYTES))]
    pub body: String,
}

const fn ok_status() -> u16 {
    OK
}

/// Why an answer cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcknowledgementError {
    /// The status would ask the provider to send again.
    #[error(
        "the `status` of `answer` must be 200 to 299: with another one the provider sends the webhook again"
    )]
    Status,
    /// These statuses have no body.
    #[error("an `answer` with status 204 or 205 has no body")]
    BodyOfNone,
    /// The body is too long.
    #[error("the `body` of `answer` has {0} bytes; it may have {MAX_BODY_BYTES}")]
    Long(usize),
    /// The media type cannot be sent.
    #[error("the `content_type` of `answer` must have 1 to 255 printable ASCII characters")]
    ContentType,
    /// A body without a media type, or the reverse.
    #[error("the `body` and the `content_type` of `answer` go together")]
    Half,
}

impl Acknowledgement {
    /// Checks that it can be sent.
    pub(super) fn fit(&self) -> Result<(), AcknowledgementError> {
        if !(200..=299).contains(&self.status) {
            return Err(AcknowledgementError::Status);
        }
        if matches!(self.status, 204 | 205) && !self.body.is_empty() {
            return Err(AcknowledgementError::BodyOfNone);
        }
        if self.body.len() > MAX_BODY_BYTES {
            return Err(AcknowledgementError::Long(self.body.len()));
        }
        if self.content_type.is_some() == self.body.is_empty() {
            return Err(AcknowledgementError::Half);
        }
        let is_sendable = |text: &String| {
            (1..=MAX_CONTENT_TYPE_BYTES).contains(&text.len())
                && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        };
        match &self.content_type {
            Some(text) if !is_sendable(text) => Err(AcknowledgementError::ContentType),
            Some(_) | None => Ok(()),
        }
    }
}
