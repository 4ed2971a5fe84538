//! The header `Idempotency-Key`: a request that makes, changes, deletes or does something is carried out once under its key, and a repeated
//! one gets the same answer. The key of a change is stored in the transaction of the change ([`super::audited`]); that of
//! an effect outside the file with its claim ([`super::claimed`]); that of published events with the events
//! (`pipeline::publish`).
//!
//! The answer to a change may show a secret, such as a new token, so it is kept sealed.

use std::sync::Arc;

use ring::digest;
use serde_json::Value;

use crate::api::call::Call;
use crate::api::context::Api;
use crate::api::description::Param;
use crate::api::problem::Problem;
use crate::api::schema::values;
use crate::base::clock::Timestamp;
use crate::base::id::{self, Draw};
use crate::http::message::{Head, Response};
use crate::keys::Keyring;
use crate::store::error::Result as StoreResult;
use crate::store::idempotency_keys::{self, Idempotency, SealedAnswer, Seen};
use crate::store::tx::{ReadTx, WriteTx};
use crate::store::writer::Queue;

/// The longest key that is stored as it is; of a longer one its hash is.
const MAX_STORED_CHARS: usize = 128;
/// `Retry-After` while too many answers are kept.
const FULL_RETRY_AFTER_SECS: u64 = 3600;

/// Why a repeated request is answered 409: the first one has claimed its effect, and has no answer yet.
pub(super) const RUNNING: &str = "The same request is still being carried out.";

pub(super) const HEADER: Param = Param::header::<RequestKey>(
    "Idempotency-Key",
    "Identifies this request for 24 hours: the same request gets the same answer again. With `idempotency.strict`: 32 to \
     255 characters of `A-Za-z0-9_-`.",
    "1f0c6d3e-8a51-4f7a-9b65-0a4cf5b7f9d2",
);
/// The header field of a repeated answer, and what it means.
pub(super) const REPLAYED: (&str, &str) =
    ("Idempotency-Replayed", "`true` when this is the stored answer to the same request.");

values! {
    /// An `Idempotency-Key`.
    RequestKey = { "type": "string",
        "pattern": r#"^([!#-+\--:<-\[\]-~]{1,128}|"[!#-+\--:<-\[\]-~]{1,128}")$"# }
}

/// The `Idempotency-Key` of a request and a hash of the request; `None` if it has no key.
/// Fails with 400 if the key is invalid.
pub(super) fn of(api: &Api, head: &Head, body: &[u8]) -> Result<Option<Idempotency>, Problem> {
    let mut all = head.headers.iter().filter(|(name, _)| *name == "idempotency-key");
    let Some((_, value)) = all.next() else { return Ok(None) };
    let is_strict = api.env.settings.get().idempotency.strict;
    let key = key_in(value, is_strict).filter(|_| all.next().is_none()).ok_or_else(|| {
        Problem::bad_request(if is_strict {
            "Send Idempotency-Key once, with 32 to 255 characters of A-Z, a-z, 0-9, _ and -; idempotency.strict asks for that."
        } else {
            "Send Idempotency-Key once, with 1 to 128 visible ASCII characters except quotes, \
             backslash, comma and semicolon, such as a UUID. Double quotes around it are allowed. \
             An event's own key goes into the body as idempotency_key."
        })
    })?;
    let mut context = digest::Context::new(&digest::SHA256);
    let query = head.query.as_deref().map(|query| format!("?{query}")).unwrap_or_default();
    for part in [head.method.as_str(), "\n", &head.path, &query, "\n"] {
        context.update(part.as_bytes());
    }
    context.update(body);
    let request_hash = context.finish().as_ref().to_vec();
    // A client's key has no comma.
    let is_long = key.len() > MAX_STORED_CHARS;
    let hashed = || format!("sha256,{}", id::sha256_hex(key.as_bytes()));
    let key = if is_long { hashed() } else { key.to_owned() };
    Ok(Some(Idempotency { key, request_hash }))
}

/// The key in the value of an `Idempotency-Key`, with or without the double quotes of the IETF draft.
fn key_in(value: &[u8], is_strict: bool) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?;
    let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let key = quoted.unwrap_or(text);
    // These characters have a meaning in a structured field: two parsers could read two different keys.
    let is_plain = |b: u8| b.is_ascii_graphic() && !b"\"\\,;".contains(&b);
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    let is_allowed = if is_strict {
        (32..=255).contains(&key.len()) && key.bytes().all(is_word)
    } else {
        (1..=128).contains(&key.len()) && key.bytes().all(is_plain)
    };
    is_allowed.then_some(key)
}

/// The key of a change, and what seals its answer.
pub(super) struct ChangeKey {
    tenant: String,
    of: Idempotency,
    now: Timestamp,
    keyring: Arc<Keyring>,
    draw: Arc<dyn Draw>,
}

impl ChangeKey {
    /// The key of a call, if it has one.
    pub(super) fn new(api: &Api, call: &Call) -> Option<Self> {
        let keyring = Arc::clone(&api.env.keyring);
        let draw = Arc::clone(&api.env.draw);
        let tenant = call.tenant.clone();
        let now = api.env.clock.now();
        call.key.clone().map(|of| Self { tenant, of, now, keyring, draw })
    }

    fn seen(&self, tx: &ReadTx<'_>) -> StoreResult<Option<Seen>> {
        let Idempotency { key, request_hash } = &self.of;
        idempotency_keys::seen(tx, &self.tenant, key, request_hash, self.now)
    }

    /// Why the change is not carried out: the key was used, or too many answers are kept. A stored answer is sent in place
    /// of this problem ([`Api::acted`]).
    pub(super) fn check(&self, tx: &WriteTx<'_>) -> StoreResult<Result<(), Problem>> {
        Ok(match self.seen(tx)? {
            Some(Seen::OtherRequest) => Err(Problem::idempotency_mismatch()),
            Some(Seen::Running) => Err(Problem::conflict(RUNNING)),
            Some(_) => Err(Problem::conflict("The same request was carried out before.")),
            None if !idempotency_keys::has_room(tx, &self.tenant)? => {
                let detail = "Too many answers to requests with an Idempotency-Key are kept, for 24 hours each. \
                              Send it without one, or later.";
                Err(Problem::unavailable(detail, FULL_RETRY_AFTER_SECS))
            }
            None => Ok(()),
        })
    }

    /// The key and the request that it stands for.
    pub(super) fn request(&self) -> Idempotency {
        self.of.clone()
    }

    /// Stores the answer with the change.
    pub(super) fn keep(&self, tx: &WriteTx<'_>, status: u16, body: &[u8]) -> StoreResult<()> {
        let sealed = self.keyring.current().seal(&self.context(), body, &*self.draw);
        let answer = SealedAnswer { status, body: &sealed };
        idempotency_keys::keep(tx, &self.tenant, &self.of, answer, self.now)
    }

    /// Replaces the stored answer.
    fn complete(&self, tx: &WriteTx<'_>, body: &[u8]) -> StoreResult<()> {
        let sealed = self.keyring.current().seal(&self.context(), body, &*self.draw);
        idempotency_keys::complete(tx, &self.tenant, &self.of.key, &sealed)
    }

    fn context(&self) -> String {
        idempotency_keys::context(&self.tenant, &self.of.key)
    }
}

impl Api {
    /// The stored answer to the same change, if there is one.
    /// Fails with 422 if the key was used for another request, and with 409 while the same one is carried out.
    pub(super) fn replayed(&self, call: &Call) -> Result<Option<Response>, Problem> {
        let Some(key) = ChangeKey::new(self, call) else { return Ok(None) };
        match self.env.store.read(|tx| key.seen(tx))? {
            None => Ok(None),
            Some(Seen::Answered { status, body }) => {
                let opened = self.env.keyring.open(&key.context(), &body).map_err(|_other_key| {
                    Problem::conflict(
                        "This request was carried out before. Its answer was sealed under a master key that is gone.",
                    )
                })?;
                Ok(Some(replay(status, opened.expose().to_vec())))
            }
            Some(Seen::Running) => Err(Problem::conflict(RUNNING)),
            Some(_) => Err(Problem::idempotency_mismatch()),
        }
    }
}

/// Replaces the stored answer to a change by the one that is sent: a later step has completed it. Until then, a repeated
/// request gets the answer of the change.
pub(super) fn complete(api: &Api, call: &Call, body: &Value) {
    let Some(key) = ChangeKey::new(api, call) else { return };
    let text = body.to_string();
    let complete = move |tx: &WriteTx<'_>| key.complete(tx, text.as_bytes());
    if let Err(error) = api.env.store.writer().write(Queue::Accept, complete) {
        tracing::warn!(%error, "the stored answer to a change could not be completed");
    }
}

/// A stored answer, sent again.
pub(super) fn replay(status: u16, body: Vec<u8>) -> Response {
    let response = match status {
        204 => Response::new(status),
        _ => Response::with_body(status, "application/json", body),
    };
    response.header("idempotency-replayed", "true")
}
