//! Every kind of problem: its name, its status, what it means and what to do about it.
//!
//! Programs decide by the name, so a name is never given another meaning.

/// The description of a kind.
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
    /// What the sender can do.
    pub remedy: &'static str,
}

/// The prefix of every `type`. It is a URN, not a URL: a box may have no access to the internet.
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
        "There is no token, or it is unknown, revoked or expired. Or a log-in failed.",
        "Send `Authorization: Bearer` with a valid token.";
    BadSignature = "bad-signature", 401, "Signature not accepted",
        "A webhook's signature is missing or wrong, or its time differs too much from this machine's clock. The log says which.",
        "Compare the secret and the scheme on both sides.";
    Forbidden = "forbidden", 403, "Not permitted",
        "The role of the token or user does not allow this, or only a token of the tenant `default` may do it.",
        "Use a token or user with the role the route needs.";
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
        "Like `unusable-webhook`, but with the status after which this provider does not retry.",
        "Compare what the provider sends with its scheme here.";
    Timeout = "timeout", 408, "The request took too long",
        "The head or the body did not arrive in time. The connection is closed.",
        "Send it again, or send less at once.";
    Conflict = "conflict", 409, "Conflict",
        "The state does not allow it, the name is taken, or the same request is still in progress.",
        "Read `detail`, fetch the current state, then decide.";
    TooLarge = "too-large", 413, "Too large",
        "The body is larger than this route takes.",
        "Send less at once, or raise the limit (`limits.request_bytes`, a provider's `body_bytes_max`).";
    UnsupportedCoding = "unsupported-coding", 415, "The content coding is not supported",
        "`Content-Encoding` names a coding that is not unpacked, or too many of them.",
        "Send the body plain, or with a coding of the header field `Accept-Encoding`.";
    ExpectationFailed = "expectation-failed", 417, "Expectation failed",
        "The header field `Expect` asks for something other than `100-continue`.",
        "Leave the field out.";
    Unprocessable = "unprocessable", 422, "A value cannot be accepted",
        "The body has the right form, but a value in it cannot be accepted.",
        "Change the value that `detail` names.";
    UnusableWebhook = "unusable-webhook", 422, "The webhook cannot be used",
        "Its signature is right, but its body does not fit the provider's scheme. Nothing was stored.",
        "Compare what the provider sends with its scheme here.";
    OverLimit = "over-limit", 422, "Over a limit of the tenant",
        "The tenant would have more of it than the settings in `[tenants]` allow. Nothing was changed.",
        "Delete what the tenant does not need, or raise the setting that `detail` names.";
    IdempotencyKeyReused = "idempotency-key-reused", 422, "Idempotency-Key used before",
        "The `Idempotency-Key` was sent with another request in the last 24 hours.",
        "Use a new key for a new request.";
    Throttled = "throttled", 429, "Too many failed attempts",
        "Too many invalid tokens or failed log-ins came from this address, or too many log-ins with this name failed. A valid token is still accepted.",
        "Send a valid token, or wait for `Retry-After`.";
    HeadTooLarge = "head-too-large", 431, "The request's head is too large",
        "The head has more than 16 KiB or more than 64 fields.",
        "Send fewer or shorter header fields.";
    Internal = "internal", 500, "Oncebox failed",
        "Oncebox or something below it failed. Nothing was acknowledged.",
        "Read the log. Sending it again is safe.";
    NotImplemented = "not-implemented", 501, "Not implemented",
        "Unknown method or transfer coding.",
        "Use a documented method; the only transfer coding is `chunked`.";
    Unavailable = "unavailable", 503, "Not available now",
        "Overload, a database locked by another process, a list that took too long, a clock that may be wrong, or a shutdown. \
         Nothing was acknowledged.",
        "Send it again after `Retry-After`; filter a list as `detail` says.";
    NotReady = "not-ready", 503, "Not ready",
        "The database cannot be written, the disk is low, the clock cannot be right, or the writer is stuck. Only \
         `/readyz` answers this.",
        "Send nothing for now. `/readyz?verbose` names the failing check.";
    HttpVersion = "http-version", 505, "HTTP version not supported",
        "The request is not HTTP/1.0 or HTTP/1.1.",
        "Use HTTP/1.1; a proxy can translate other versions.";
    DiskFull = "disk-full", 507, "No room to store it",
        "The disk is nearly full; the remaining space is reserved for results of deliveries. Nothing was acknowledged.",
        "Free disk space; send it again after `Retry-After`.";
}
