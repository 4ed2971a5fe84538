//! GitHub: `X-Hub-Signature-256` over the body.
//!
//! Not here: the older SHA-1 header. A request that has only that one is refused; who still needs it
//! sets up a generic scheme. The signature covers neither delivery id nor event name nor a time, so
//! against a replay of a recorded request only TLS helps.

use data_encoding::HEXLOWER_PERMISSIVE;

use super::{Incoming, Refused, Verified, any_match, malformed, needed};
use crate::domain::pointer::text_at;
use crate::domain::signature::{Hash, mac};

const SIGNATURE: &str = "x-hub-signature-256";
const DELIVERY: &str = "x-github-delivery";
const EVENT: &str = "x-github-event";

pub(super) fn verify(secrets: &[&str], incoming: &Incoming<'_>) -> Result<Verified, Refused> {
    let offered = needed(incoming.headers, SIGNATURE)?
        .strip_prefix("sha256=")
        .and_then(|encoded| HEXLOWER_PERMISSIVE.decode(encoded.as_bytes()).ok())
        .ok_or_else(|| malformed(SIGNATURE, "it is not `sha256=` and hex"))?;
    let secret = any_match(secrets, &[offered], |secret| {
        Some(mac(Hash::Sha256, secret.as_bytes(), &[incoming.body]))
    })?;
    Ok(Verified { secret, signed_at: None })
}

/// The type is the event's name and, where the body has one, its action: `pull_request.opened`.
pub(super) fn identify(incoming: &Incoming<'_>) -> (Option<String>, Option<String>) {
    let id = incoming.headers.get(DELIVERY).map(str::to_owned);
    let event = incoming.headers.get(EVENT).map(str::trim).filter(|event| !event.is_empty());
    let name = event.map(|event| match text_at(incoming.body, &["action"]) {
        Some(action) if !action.is_empty() => format!("{event}.{action}"),
        Some(_) | None => event.to_owned(),
    });
    (id, name)
}
