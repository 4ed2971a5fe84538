//! Every kind of problem there is: its name, its status, what it means and what to do about it.
//!
//! Programs decide by the name, so a name is never given another meaning.

/// A kind of problem. Its name is stable: programs decide by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// 400
    BadRequest,
    /// 401 of the API.
    Unauthorized,
    /// 401 of the intake.
    BadSignature,
    /// 403
    Forbidden,
    /// 403 of every token of a suspended tenant.
    TenantSuspended,
    /// 404
    NotFound,
    /// 405
    MethodNotAllowed,
    /// 406 of the intake.
    NotAcceptable,
    /// 408
    Timeout,
    /// 409
    Conflict,
    /// 413
    TooLarge,
    /// 417
    ExpectationFailed,
    /// 422
    Unprocessable,
    /// 422 of the intake.
    UnusableWebhook,
    /// 422 of a repeated key.
    IdempotencyKeyReused,
    /// 429
    Throttled,
    /// 431
    HeadTooLarge,
    /// 500
    Internal,
    /// 501
    NotImplemented,
    /// 503
    Unavailable,
    /// 503 of `/readyz`.
    NotReady,
    /// 505
    HttpVersion,
    /// 507
    DiskFull,
}

/// What is to be known about a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The last part of the problem's `type`.
    pub word: &'static str,
    /// The status code it is always answered with.
    pub status: u16,
    /// The problem's `title`.
    pub title: &'static str,
    /// When it is answered.
    pub when: &'static str,
    /// What the sender does.
    pub remedy: &'static str,
}

/// What every `type` starts with. A name, not an address: a box without a line to the internet has its
/// own documents.
pub const TYPE_PREFIX: &str = "urn:oncebox:problem:";

impl Kind {
    /// All, by status.
    pub const ALL: [Self; 23] = [
        Self::BadRequest,
        Self::Unauthorized,
        Self::BadSignature,
        Self::Forbidden,
        Self::TenantSuspended,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::NotAcceptable,
        Self::Timeout,
        Self::Conflict,
        Self::TooLarge,
        Self::ExpectationFailed,
        Self::Unprocessable,
        Self::UnusableWebhook,
        Self::IdempotencyKeyReused,
        Self::Throttled,
        Self::HeadTooLarge,
        Self::Internal,
        Self::NotImplemented,
        Self::Unavailable,
        Self::NotReady,
        Self::HttpVersion,
        Self::DiskFull,
    ];

    /// The problem's `type`.
    pub fn uri(self) -> String {
        format!("{TYPE_PREFIX}{}", self.facts().word)
    }

    /// What is to be known about it.
    pub const fn facts(self) -> Facts {
        match self {
            Self::BadRequest => BAD_REQUEST,
            Self::Unauthorized => UNAUTHORIZED,
            Self::BadSignature => BAD_SIGNATURE,
            Self::Forbidden => FORBIDDEN,
            Self::TenantSuspended => TENANT_SUSPENDED,
            Self::NotFound => NOT_FOUND,
            Self::MethodNotAllowed => METHOD_NOT_ALLOWED,
            Self::NotAcceptable => NOT_ACCEPTABLE,
            Self::Timeout => TIMEOUT,
            Self::Conflict => CONFLICT,
            Self::TooLarge => TOO_LARGE,
            Self::ExpectationFailed => EXPECTATION_FAILED,
            Self::Unprocessable => UNPROCESSABLE,
            Self::UnusableWebhook => UNUSABLE_WEBHOOK,
            Self::IdempotencyKeyReused => IDEMPOTENCY_KEY_REUSED,
            Self::Throttled => THROTTLED,
            Self::HeadTooLarge => HEAD_TOO_LARGE,
            Self::Internal => INTERNAL,
            Self::NotImplemented => NOT_IMPLEMENTED,
            Self::Unavailable => UNAVAILABLE,
            Self::NotReady => NOT_READY,
            Self::HttpVersion => HTTP_VERSION,
            Self::DiskFull => DISK_FULL,
        }
    }
}

const BAD_REQUEST: Facts = Facts {
    word: "bad-request",
    status: 400,
    title: "The request cannot be understood",
    when: "It is not valid HTTP/1.1, its body has the wrong form, or a query parameter does not exist here.",
    remedy: "Change the request; `detail` names the place.",
};

const UNAUTHORIZED: Facts = Facts {
    word: "unauthorized",
    status: 401,
    title: "Not authorized",
    when: "There is no token, or it is unknown, revoked or expired.",
    remedy: "Send `Authorization: Bearer` with a valid token.",
};

const BAD_SIGNATURE: Facts = Facts {
    word: "bad-signature",
    status: 401,
    title: "Signature not accepted",
    when: "A webhook's signature is missing or wrong, or its time is too far from ours. The log says which.",
    remedy: "Compare secret and scheme on both sides.",
};

const FORBIDDEN: Facts = Facts {
    word: "forbidden",
    status: 403,
    title: "Not permitted",
    when: "The token's role does not allow this, or it manages tenants and is not of `default`.",
    remedy: "Use a token with the role the route needs.",
};

const TENANT_SUSPENDED: Facts = Facts {
    word: "tenant-suspended",
    status: 403,
    title: "Tenant suspended",
    when: "The token's tenant is suspended. Its data is kept and its deliveries wait.",
    remedy: "Ask the administrator to resume it (`oncebox tenant resume`).",
};

const NOT_FOUND: Facts = Facts {
    word: "not-found",
    status: 404,
    title: "Not found",
    when: "There is no such path or thing, or it belongs to another tenant.",
    remedy: "Check the path and the id.",
};

const METHOD_NOT_ALLOWED: Facts = Facts {
    word: "method-not-allowed",
    status: 405,
    title: "Method not allowed",
    when: "The path exists, but does not answer this method.",
    remedy: "Use a method of the header field `Allow`.",
};

const TIMEOUT: Facts = Facts {
    word: "timeout",
    status: 408,
    title: "The request took too long",
    when: "Head or body did not come in time. The connection is closed.",
    remedy: "Send it again, in smaller pieces.",
};

const CONFLICT: Facts = Facts {
    word: "conflict",
    status: 409,
    title: "Conflict",
    when: "The state does not allow it, the name is taken, or the same request is still in progress.",
    remedy: "Read `detail`, look again, decide.",
};

const TOO_LARGE: Facts = Facts {
    word: "too-large",
    status: 413,
    title: "Too large",
    when: "The body is larger than this route takes.",
    remedy: "Send less at once, or raise the limit (`limits.request_bytes`, a provider's `body_bytes_max`).",
};

const EXPECTATION_FAILED: Facts = Facts {
    word: "expectation-failed",
    status: 417,
    title: "Expectation failed",
    when: "The header field `Expect` asks for something other than `100-continue`.",
    remedy: "Leave the field out.",
};

const UNPROCESSABLE: Facts = Facts {
    word: "unprocessable",
    status: 422,
    title: "A value cannot be accepted",
    when: "The body has the right form, but a value in it cannot be accepted.",
    remedy: "Change the value that `detail` names.",
};

const UNUSABLE_WEBHOOK: Facts = Facts {
    word: "unusable-webhook",
    status: 422,
    title: "The webhook cannot be used",
    when: "Its signature is right, but its body does not fit the provider's scheme. Nothing was stored.",
    remedy: "Compare what the provider sends with its scheme here.",
};

const NOT_ACCEPTABLE: Facts = Facts {
    word: "not-acceptable",
    status: 406,
    title: "The webhook cannot be used",
    when: "As `unusable-webhook`, with the status after which this provider does not retry.",
    remedy: "Compare what the provider sends with its scheme here.",
};

const IDEMPOTENCY_KEY_REUSED: Facts = Facts {
    word: "idempotency-key-reused",
    status: 422,
    title: "Idempotency-Key used before",
    when: "The `Idempotency-Key` was sent with another request in the last 24 hours.",
    remedy: "Use a new key for a new request.",
};

const THROTTLED: Facts = Facts {
    word: "throttled",
    status: 429,
    title: "Too many failed attempts",
    when: "More than ten invalid tokens came from this address within a minute. A valid token is still accepted.",
    remedy: "Send a valid token, others after `Retry-After`.",
};

const HEAD_TOO_LARGE: Facts = Facts {
    word: "head-too-large",
    status: 431,
    title: "The request's head is too large",
    when: "The head has more than 16 KiB or more than 64 fields.",
    remedy: "Send fewer or shorter header fields.",
};

const INTERNAL: Facts = Facts {
    word: "internal",
    status: 500,
    title: "Oncebox failed",
    when: "Oncebox or something below it failed. Nothing was acknowledged.",
    remedy: "Read the log. Sending it again is safe.",
};

const NOT_IMPLEMENTED: Facts = Facts {
    word: "not-implemented",
    status: 501,
    title: "Not implemented",
    when: "Unknown method or transfer coding.",
    remedy: "Use a documented method; only `chunked` is allowed.",
};

const UNAVAILABLE: Facts = Facts {
    word: "unavailable",
    status: 503,
    title: "Not available now",
    when: "Overload, a database locked by another process, a list that took too long, a clock that was just set, or a stop. Nothing was acknowledged.",
    remedy: "Send it again after `Retry-After`; filter a list as `detail` says.",
};

const NOT_READY: Facts = Facts {
    word: "not-ready",
    status: 503,
    title: "Not ready",
    when: "The database cannot be written, the disk is low, the clock cannot be right, or the writer is \
           stuck. Only `/readyz` answers this.",
    remedy: "Send nothing for now. `/readyz?verbose` names the failing check.",
};

const HTTP_VERSION: Facts = Facts {
    word: "http-version",
    status: 505,
    title: "HTTP version not supported",
    when: "The request is not HTTP/1.0 or HTTP/1.1.",
    remedy: "Use HTTP/1.1; a proxy can speak others.",
};

const DISK_FULL: Facts = Facts {
    word: "disk-full",
    status: 507,
    title: "No room to store it",
    when: "The disk is nearly full; the rest is kept for outcomes. Nothing was acknowledged.",
    remedy: "Make room; send it again after `Retry-After`.",
};
