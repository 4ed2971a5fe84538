//! Errors as the API answers them: RFC 9457 problems with a stable `type`.
//!
//! This is the only place that turns an error into a status code. `detail` says what a sender can do about it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::api::description::Doc;
use crate::api::kind::{Facts, Kind, TYPE_PREFIX};
use crate::api::schema::{Whole, values};
use crate::http::message::Response;
use crate::model::health::Check;
use crate::signatures::conduct::GiveUp;
use crate::store::error::Error;

/// An error, ready to be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    kind: Kind,
    detail: String,
    headers: Vec<(&'static str, String)>,
    /// All checks, if `/readyz` was asked for them.
    checks: Option<Vec<Check>>,
    /// The cause, for the log only.
    cause: Option<String>,
}

/// `Retry-After` while the disk is full: a person has to free space first.
const NO_ROOM_RETRY_AFTER_SECS: u64 = 60;

impl Problem {
    fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), headers: Vec::new(), checks: None, cause: None }
    }

    /// 400: the request cannot be understood.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(Kind::BadRequest, detail)
    }

    /// 401: there is no valid token.
    pub(super) fn unauthorized(detail: impl Into<String>) -> Self {
        let problem = Self::new(Kind::Unauthorized, detail);
        problem.header("www-authenticate", "Bearer")
    }

    /// 401 of the intake: the same answer for every bad signature, so that a sender learns nothing from it.
    pub(super) fn bad_signature() -> Self {
        let detail = "The signature could not be verified.";
        // RFC 9110, section 15.5.2: each 401 names a way to prove who one is.
        Self::new(Kind::BadSignature, detail).header("www-authenticate", "Signature")
    }

    /// 422, or the status that stops this provider's retries: the signature is right, but the body can never be used.
    pub(super) fn unusable_webhook(detail: impl Into<String>, give_up: GiveUp) -> Self {
        match give_up {
            GiveUp::NotAcceptable => Self::new(Kind::NotAcceptable, detail),
            GiveUp::Unprocessable => Self::new(Kind::UnusableWebhook, detail),
            GiveUp::SlackNoRetry => {
                Self::new(Kind::UnusableWebhook, detail).header("x-slack-no-retry", "1")
            }
        }
    }

    /// 403: the token's role does not allow it.
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(Kind::Forbidden, detail)
    }

    /// 403: the token is valid, but its tenant is suspended.
    pub(super) fn tenant_suspended() -> Self {
        let detail = "The tenant of this token is suspended; its data is kept. The administrator of \
                      this box can resume it.";
        Self::new(Kind::TenantSuspended, detail)
    }

    /// 429: too many requests without a valid token.
    pub(super) fn throttled(again_in: Duration) -> Self {
        let secs = again_in.as_secs().saturating_add(1);
        let detail = format!(
            "Too many requests with tokens that are unknown, revoked or expired came from your address. \
             A valid token is still accepted; try others again in {secs} s."
        );
        Self::new(Kind::Throttled, detail).header("retry-after", secs.to_string())
    }

    /// 401: a log-in failed.
    pub(super) fn log_in_failed(detail: impl Into<String>) -> Self {
        Self::new(Kind::Unauthorized, detail)
    }

    /// 429: too many log-ins failed.
    pub(super) fn too_many_log_ins(again_in: Duration) -> Self {
        let secs = again_in.as_secs().saturating_add(1);
        let detail = format!(
            "Too many log-ins failed, from your address or with this name. Try it again in {secs} s, or use a one-time \
             link: oncebox console link."
        );
        Self::new(Kind::Throttled, detail).header("retry-after", secs.to_string())
    }

    /// 500: Oncebox failed; the log has the cause.
    pub(super) fn internal(cause: impl Into<String>) -> Self {
        let detail = "Oncebox failed; its log says why. Nothing was acknowledged.";
        Self::new(Kind::Internal, detail).because(cause)
    }

    /// 404: there is no such thing, or it belongs to another tenant.
    pub fn not_found(what: &str) -> Self {
        Self::new(Kind::NotFound, format!("There is no such {what}."))
    }

    /// 405: the path exists, the method does not.
    pub fn method_not_allowed(allowed: &str) -> Self {
        let detail = format!("This path answers {allowed}.");
        Self::new(Kind::MethodNotAllowed, detail).header("allow", allowed)
    }

    /// 415: the body has a content coding that is not unpacked; `accepted` are those that are (RFC 9110 section 12.5.3).
    pub(super) fn unsupported_coding(detail: impl Into<String>, accepted: &str) -> Self {
        Self::new(Kind::UnsupportedCoding, detail).header("accept-encoding", accepted)
    }

    /// 409: the current state does not allow it.
    pub(super) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(Kind::Conflict, detail)
    }

    /// 422: understood, but a value cannot be accepted.
    pub fn unprocessable(detail: impl Into<String>) -> Self {
        Self::new(Kind::Unprocessable, detail)
    }

    /// 422: the source system is reserved for the configured source of that name.
    pub(super) fn of_source(name: &str) -> Self {
        let detail = format!(
            "source_system {name:?} is reserved for the source of that name; use another source_system."
        );
        Self::unprocessable(detail)
    }

    /// 422: the `Idempotency-Key` was used for another request.
    pub(super) fn idempotency_mismatch() -> Self {
        let detail =
            "This Idempotency-Key was used for another request; use a new key for a new request.";
        Self::new(Kind::IdempotencyKeyReused, detail)
    }

    /// 503: not now, but after `retry_after_secs` again.
    pub fn unavailable(detail: impl Into<String>, retry_after_secs: u64) -> Self {
        Self::new(Kind::Unavailable, detail).header("retry-after", retry_after_secs.to_string())
    }

    /// 503: a list took too long; names the filters that make it faster.
    pub(super) fn list_too_long(most: Duration, doc: &Doc) -> Self {
        let quick: Vec<&str> =
            doc.params.iter().filter(|param| param.quick).map(|param| param.name).collect();
        let quick = if quick.is_empty() { "a smaller limit".to_owned() } else { quick.join(", ") };
        let detail = format!(
            "The list took longer than {} s and was stopped. It is faster with: {quick}.",
            most.as_secs()
        );
        Self::unavailable(detail, 1)
    }

    /// 507: the disk is full, or has only the space that is reserved for results.
    pub(super) fn no_room() -> Self {
        Self::new(Kind::DiskFull, Error::Full.to_string())
            .header("retry-after", NO_ROOM_RETRY_AFTER_SECS.to_string())
    }

    /// 503: a check of `/readyz` fails; `checks` has all checks if they were asked for.
    pub(super) fn not_ready(detail: impl Into<String>, checks: Option<Vec<Check>>) -> Self {
        Self { checks, ..Self::new(Kind::NotReady, detail) }
    }

    /// A refusal by the listener, by its status.
    pub fn of_listener(status: u16, detail: &str) -> Self {
        let kind = match status {
            400 => Kind::BadRequest,
            408 => Kind::Timeout,
            413 => Kind::TooLarge,
            417 => Kind::ExpectationFailed,
            431 => Kind::HeadTooLarge,
            501 => Kind::NotImplemented,
            503 => Kind::Unavailable,
            505 => Kind::HttpVersion,
            _ => Kind::Internal,
        };
        Self::new(kind, detail)
    }

    /// Adds a cause that is only logged.
    #[must_use]
    pub(super) fn because(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// The status it is answered with.
    pub fn status(&self) -> u16 {
        self.kind.facts().status
    }

    /// The last part of its `type`.
    pub fn kind(&self) -> &'static str {
        self.kind.facts().word
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
            Error::Busy
            | Error::TooLong
            | Error::Stopped
            | Error::Fatal(_)
            | Error::WriteFailed(_) => Self::unavailable(error.to_string(), 1),
            Error::Full => Self::no_room(),
            Error::Constraint(_) => Self::unprocessable(error.to_string()),
            Error::Changed(_) => Self::conflict(error.to_string()),
            Error::OverLimit { .. } => {
                Self::new(Kind::OverLimit, format!("Over a limit: {error}."))
            }
            _ => Self::internal(error.to_string()),
        }
    }
}

/// What is looked for, or 404.
pub(super) trait OrNotFound<T> {
    fn or_not_found(self, what: &str) -> Result<T, Problem>;
}

impl<T> OrNotFound<T> for Option<T> {
    fn or_not_found(self, what: &str) -> Result<T, Problem> {
        self.ok_or_else(|| Problem::not_found(what))
    }
}

impl From<Problem> for Response {
    fn from(problem: Problem) -> Self {
        let Problem { kind, detail, headers, checks, cause } = problem;
        let Facts { status, title, .. } = kind.facts();
        let body =
            ProblemBody { r#type: kind.uri(), title, status, detail, request_id: None, checks };
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = Self::with_body(status, "application/problem+json", body);
        response.headers.extend(headers);
        response.cause = cause;
        response
    }
}

values! {
    /// The type of a problem.
    ProblemType = { "type": "string", "pattern": format!("^{TYPE_PREFIX}[a-z-]+$") }
}

/// Why a request was not carried out (RFC 9457).
#[derive(Serialize, JsonSchema)]
#[schemars(
    rename = "Problem",
    extend("required" = ["type", "title", "status", "detail", "request_id"])
)]
pub(super) struct ProblemBody<'a> {
    /// The kind of problem: stable, to decide by.
    #[schemars(with = "ProblemType")]
    r#type: String,
    /// The kind, in words.
    title: &'a str,
    /// The status code.
    #[schemars(with = "Whole<400, 599>")]
    status: u16,
    /// What is wrong with this request, for a person.
    detail: String,
    /// The request's id, as in `X-Request-Id`.
    // `answered` adds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    request_id: Option<String>,
    /// All checks; only with `not-ready` and `verbose`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<Check>")]
    checks: Option<Vec<Check>>,
}
