//! Every kind of problem: its name, its status, what it means and what to do about it.
//!
//! Programs decide by the name, so a name is never given another meaning.

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

/// Makes [`Kind`] of a table, in the order of statuses: name, status, title, when it is answered, remedy.
macro_rules! kinds {
    ($($kind:ident = $word:literal, $status:literal, $title:literal, $when:literal, $remedy:literal;)*) => {
        /// A kind of problem. Its name is stable: programs decide by it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind {
            $(#[doc = $title] $kind,)*
        }

        impl Kind {
            /// All, by status.
            pub const ALL: [Self; [$($status),*].len()] = [$(Self::$kind),*];

            /// Its facts.
            pub const fn facts(self) -> Facts {
                let (word, status, title, when, remedy) = match self {
                    $(Self::$kind => ($word, $status, $title, $when, $remedy),)*
                };
                Facts { word, status, title, when, remedy }
            }

            /// The problem's `type`.
            pub fn uri(self) -> String {
                format!("{TYPE_PREFIX}{}", self.facts().word)
            }
        }
    };
}

kinds! {
    BadRequest = "bad-request", 400, "The request cannot be understood",
        "It is not valid HTTP/1.1, its body has the wrong form, or a query parameter does not exist here.",
        "Change the request; `detail` names the place.";
    Unauthorized = "unauthorized", 401, "Not authorized",
        "There is no token, or it is unknown, revoked or expired.",
        "Send `Authorization: Bearer` with a valid token.";
    BadSignature = "bad-signature", 401, "Signature not accepted",
        "A webhook's signature is missing or wrong, or its time is too far from ours. The log says which.",
        "Compare secret and scheme on both sides.";
    Forbidden = "forbidden", 403, "Not permitted",
        "The token's role does not allow this, or it manages tenants and is not of `default`.",
        "Use a token with the role the route needs.";
    TenantSuspended = "tenant-suspended", 403, "Tenant suspended",
        "The token's tenant is suspended. Its data is kept and its deliveries wait.",
        "Ask the administrator to resume it (`oncebox tenant resume`).";
    NotFound = "not-found", 404, "Not found",
        "There is no such path or thing, or it belongs to another tenant.",
        "Check the path and the id.";
    MethodNotAllowed = "method-not-allowed", 405, "Method not allowed",
        "The path exists, but does not answer this method.",
        "Use a method of the header field `Allow`.";
    NotAcceptable = "not-acceptable", 406, "The webhook cannot be used",
        "As `unusable-webhook`, with the status after which this provider does not retry.",
        "Compare what the provider sends with its scheme here.";
    Timeout = "timeout", 408, "The request took too long",
        "Head or body did not come in time. The connection is closed.",
        "Send it again, in smaller pieces.";
    Conflict = "conflict", 409, "Conflict",
        "The state does not allow it, the name is taken, or the same request is still in progress.",
        "Read `detail`, look again, decide.";
    TooLarge = "too-large", 413, "Too large",
        "The body is larger than this route takes.",
        "Send less at once, or raise the limit (`limits.request_bytes`, a provider's `body_bytes_max`).";
    ExpectationFailed = "expectation-failed", 417, "Expectation failed",
        "The header field `Expect` asks for something other than `100-continue`.",
        "Leave the field out.";
    Unprocessable = "unprocessable", 422, "A value cannot be accepted",
        "The body has the right form, but a value in it cannot be accepted.",
        "Change the value that `detail` names.";
    UnusableWebhook = "unusable-webhook", 422, "The webhook cannot be used",
        "Its signature is right, but its body does not fit the provider's scheme. Nothing was stored.",
        "Compare what the provider sends with its scheme here.";
    IdempotencyKeyReused = "idempotency-key-reused", 422, "Idempotency-Key used before",
        "The `Idempotency-Key` was sent with another request in the last 24 hours.",
        "Use a new key for a new request.";
    Throttled = "throttled", 429, "Too many failed attempts",
        "More than ten invalid tokens came from this address within a minute. A valid token is still accepted.",
        "Send a valid token, others after `Retry-After`.";
    HeadTooLarge = "head-too-large", 431, "The request's head is too large",
        "The head has more than 16 KiB or more than 64 fields.",
        "Send fewer or shorter header fields.";
    Internal = "internal", 500, "Oncebox failed",
        "Oncebox or something below it failed. Nothing was acknowledged.",
        "Read the log. Sending it again is safe.";
    NotImplemented = "not-implemented", 501, "Not implemented",
        "Unknown method or transfer coding.",
        "Use a documented method; only `chunked` is allowed.";
    Unavailable = "unavailable", 503, "Not available now",
        "Overload, a database locked by another process, a list that took too long, a clock that was just set, or a stop. \
         Nothing was acknowledged.",
        "Send it again after `Retry-After`; filter a list as `detail` says.";
    NotReady = "not-ready", 503, "Not ready",
        "The database cannot be written, the disk is low, the clock cannot be right, or the writer is stuck. Only \
         `/readyz` answers this.",
        "Send nothing for now. `/readyz?verbose` names the failing check.";
    HttpVersion = "http-version", 505, "HTTP version not supported",
        "The request is not HTTP/1.0 or HTTP/1.1.",
        "Use HTTP/1.1; a proxy can speak others.";
    DiskFull = "disk-full", 507, "No room to store it",
        "The disk is nearly full; the rest is kept for outcomes. Nothing was acknowledged.",
        "Make room; send it again after `Retry-After`.";
}
