//! Errors as the API answers them: RFC 9457 problems with a stable `type`.
//!
//! This is the only place that turns an error into a status code. What a sender can do about it stands
//! in `detail`.

use serde_json::json;

use crate::http::message::Response;
use crate::store::error::Error;

/// An error, ready to be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    status: u16,
    /// The last part of the problem's `type`.
    kind: &'static str,
    title: &'static str,
    detail: String,
    headers: Vec<(&'static str, String)>,
}

/// What every `type` starts with. A name, not an address.
const TYPE_PREFIX: &str = "urn:oncebox:problem:";

impl Problem {
    fn new(
        status: u16,
        kind: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self { status, kind, title, detail: detail.into(), headers: Vec::new() }
    }

    /// 400: the request cannot be understood.
    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(400, "bad-request", "The request cannot be understood", detail)
    }

    /// 401: there is no valid token, or no valid signature. Says nothing more on purpose.
    pub(super) fn unauthorized(detail: impl Into<String>) -> Self {
        let problem = Self::new(401, "unauthorized", "Not authorized", detail);
        problem.header("www-authenticate", "Bearer")
    }

    /// 401 of the intake: one answer for every bad signature.
    pub(super) fn bad_signature() -> Self {
        let detail = "The signature could not be verified.";
        Self::new(401, "bad-signature", "Signature not accepted", detail)
    }

    /// 403: the token's role does not allow it.
    pub(super) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(403, "forbidden", "Not permitted", detail)
    }

    /// 404: there is no such thing, or it is somebody else's.
    pub(super) fn not_found(what: &str) -> Self {
        Self::new(404, "not-found", "Not found", format!("There is no such {what}."))
    }

    /// 405: the path exists, the method does not.
    pub(super) fn method_not_allowed(allowed: &str) -> Self {
        let detail = format!("This path answers {allowed}.");
        Self::new(405, "method-not-allowed", "Method not allowed", detail).header("allow", allowed)
    }

    /// 409: it is not in a state in which this can be done.
    pub(super) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(409, "conflict", "Conflict", detail)
    }

    /// 422: understood, but a value cannot be accepted.
    pub(super) fn unprocessable(detail: impl Into<String>) -> Self {
        Self::new(422, "unprocessable", "A value cannot be accepted", detail)
    }

    /// 422: the `Idempotency-Key` was used for another request.
    pub(super) fn idempotency_mismatch() -> Self {
        let detail =
            "This Idempotency-Key was used for another request; use a new key for a new request.";
        Self::new(422, "idempotency-key-reused", "Idempotency-Key used before", detail)
    }

    /// 503: not now; come again after so many seconds.
    pub(super) fn unavailable(detail: impl Into<String>, retry_after_secs: u64) -> Self {
        Self::new(503, "unavailable", "Not available now", detail)
            .header("retry-after", retry_after_secs.to_string())
    }

    /// The listener's own refusals, by status.
    pub(super) fn of_listener(status: u16, detail: &str) -> Self {
        let (kind, title) = match status {
            400 => ("bad-request", "The request cannot be understood"),
            408 => ("timeout", "The request took too long"),
            413 => ("too-large", "Too large"),
            417 => ("expectation-failed", "Expectation failed"),
            431 => ("head-too-large", "The request's head is too large"),
            501 => ("not-implemented", "Not implemented"),
            503 => ("unavailable", "Not available now"),
            505 => ("http-version", "HTTP version not supported"),
            _ => ("internal", "Oncebox failed"),
        };
        Self::new(status, kind, title, detail)
    }

    /// The status it is answered with.
    pub(super) fn status(&self) -> u16 {
        self.status
    }

    /// The last part of its `type`.
    pub(super) fn kind(&self) -> &'static str {
        self.kind
    }

    #[must_use]
    fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match &error {
            Error::Busy | Error::Stopped | Error::Fatal(_) => {
                Self::unavailable(error.to_string(), 1)
            }
            Error::Full => Self::new(507, "disk-full", "No room to store it", error.to_string())
                .header("retry-after", "60"),
            Error::Constraint(_) => Self::unprocessable(error.to_string()),
            Error::Changed(_) => Self::conflict(error.to_string()),
            _ => {
                tracing::error!(%error, "a request failed");
                let detail = "Oncebox failed; its log says why. Nothing was acknowledged.";
                Self::new(500, "internal", "Oncebox failed", detail)
            }
        }
    }
}

impl From<Problem> for Response {
    fn from(problem: Problem) -> Self {
        let Problem { status, kind, title, detail, headers } = problem;
        let body = json!({
            "type": format!("{TYPE_PREFIX}{kind}"),
            "title": title,
            "status": status,
            "detail": detail,
        });
        let mut response =
            Self::with_body(status, "application/problem+json", body.to_string().into_bytes());
        response.headers.extend(headers);
        response
    }
}
