//! Standard Webhooks `v1`, under its own headers or under Svix' older ones.
//!
//! Not here: the form of its secrets and its HMAC, which we use for sending too
//! ([`crate::domain::signature`]).

use data_encoding::BASE64;

use super::{Incoming, Refused, Verified, any_match, malformed, needed, time_digits};
use crate::clock::Timestamp;
use crate::domain::pointer::text_at;
use crate::domain::signature::{SecretError, SigningSecret};

struct Names {
    id: &'static str,
    timestamp: &'static str,
    signature: &'static str,
}

const WEBHOOK: Names =
    Names { id: "webhook-id", timestamp: "webhook-timestamp", signature: "webhook-signature" };
const SVIX: Names =
    Names { id: "svix-id", timestamp: "svix-timestamp", signature: "svix-signature" };

/// Which family of headers a request uses: never one header of each.
fn names(incoming: &Incoming<'_>) -> &'static Names {
    let svix_alone = incoming.headers.get(WEBHOOK.signature).is_none()
        && incoming.headers.get(SVIX.signature).is_some();
    if svix_alone { &SVIX } else { &WEBHOOK }
}

pub(super) fn check_secret(text: &str) -> Result<(), SecretError> {
    SigningSecret::parse(text).map(drop)
}

pub(super) fn verify(secrets: &[&str], incoming: &Incoming<'_>) -> Result<Verified, Refused> {
    let names = names(incoming);
    needed(incoming.headers, names.signature)?;
    let id = needed(incoming.headers, names.id)?;
    let seconds = needed(incoming.headers, names.timestamp)?;
    let signed_at = time_digits(seconds)
        .ok_or_else(|| malformed(names.timestamp, "it is not a whole number of seconds"))?;
    let offered: Vec<Vec<u8>> = incoming
        .headers
        .values(names.signature)
        .flat_map(|value| value.split(' '))
        .filter_map(|entry| entry.strip_prefix("v1,"))
        .filter_map(|encoded| BASE64.decode(encoded.as_bytes()).ok())
        .collect();
    if offered.is_empty() {
        return Err(malformed(names.signature, "it has no `v1,` entry in base64"));
    }
    let secret = any_match(secrets, &offered, |secret| {
        let secret = SigningSecret::parse(secret).ok()?;
        Some(secret.mac(id, seconds, incoming.body))
    })?;
    Ok(Verified { secret, signed_at: Some(Timestamp::from_secs(signed_at)) })
}

pub(super) fn identify(incoming: &Incoming<'_>) -> (Option<String>, Option<String>) {
    let id = incoming.headers.get(names(incoming).id).map(str::to_owned);
    (id, text_at(incoming.body, &["type"]))
}
