//! Standard Webhooks `v1` and `v1a`, with its own headers or the older ones of Svix; and Polar's variant of it.
//!
//! Not here: its secrets and its HMAC, which sending uses too ([`crate::signatures::signing`]).

use std::time::Duration;

use data_encoding::{BASE64, BASE64_NOPAD};
use ring::signature::ED25519;

use super::check::{
    Incoming, Refused, Verified, any_match, any_public_match, long_enough, malformed, needed,
    needed_seconds,
};
#[cfg(feature = "service")]
use super::naming::Locator::{Body, Encoded, Header};
#[cfg(feature = "service")]
use super::naming::{Facts, StatedIdentity};
use super::signing::{Hash, SecretError, SigningSecret, mac};
use crate::base::clock::Timestamp;
#[cfg(feature = "service")]
use crate::base::headers::EVENT_TYPE;
use crate::base::headers::Headers;

/// The prefix of public keys of `v1a`.
const PUBLIC_PREFIX: &str = "whpk_";
/// An ed25519 public key. Source: RFC 8032.
const PUBLIC_BYTES: usize = 32;

struct HeaderNames {
    id: &'static str,
    timestamp: &'static str,
    signature: &'static str,
}

const WEBHOOK: HeaderNames = HeaderNames {
    id: "webhook-id",
    timestamp: "webhook-timestamp",
    signature: "webhook-signature",
};
const SVIX: HeaderNames =
    HeaderNames { id: "svix-id", timestamp: "svix-timestamp", signature: "svix-signature" };

#[cfg(feature = "service")]
const BASE: Facts = Facts {
    ids: &[Header(WEBHOOK.id)],
    // The second one is of another Oncebox that sends its payloads as they are.
    types: &[Body(&["type"]), Encoded(EVENT_TYPE)],
    kept: &["webhook-id", "webhook-timestamp", "svix-id", "svix-timestamp"],
    ..Facts::new("standard", "invoice.paid")
};
#[cfg(feature = "service")]
pub(super) static STANDARD: Facts = BASE;
#[cfg(feature = "service")]
pub(super) static POLAR: Facts = Facts { kind: "polar", ..BASE };
#[cfg(feature = "service")]
static SVIX_FACTS: Facts = Facts { ids: &[Header(SVIX.id)], ..BASE };

/// How a secret's text becomes a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// `whsec_` and the base64 of the key, or `whpk_` and the base64 of a public key.
    Decoded,
    /// The text itself is the key: Polar encodes it in base64 before it calls a library of Standard Webhooks.
    Verbatim,
}

/// Verifies a webhook; returns the index of the secret that signed it, and the signed id.
pub(crate) fn verify_fresh<'a>(
    secrets: &[&str],
    incoming: &Incoming<'a>,
    now: Timestamp,
    tolerance: Duration,
) -> Result<(usize, &'a str), Refused> {
    let secrets: Vec<&[u8]> = secrets.iter().map(|secret| secret.as_bytes()).collect();
    let secret = verify(&secrets, incoming, Key::Decoded)?.if_fresh(now, tolerance)?;
    // The id in the other family of headers is not signed.
    Ok((secret, incoming.headers.get(names(incoming.headers).id).unwrap_or_default()))
}

/// The family of headers that a request uses; the two are never mixed.
fn names(headers: &Headers) -> &'static HeaderNames {
    let svix_alone =
        headers.get(WEBHOOK.signature).is_none() && headers.get(SVIX.signature).is_some();
    if svix_alone { &SVIX } else { &WEBHOOK }
}

pub(super) fn check_secret(text: &str, key: Key) -> Result<(), SecretError> {
    match key {
        Key::Verbatim => long_enough(text.len()),
        Key::Decoded if text.starts_with(PUBLIC_PREFIX) => public_key(text)
            .map(drop)
            .ok_or(SecretError::Encoding { encoding: "`whpk_` and the base64 of 32 bytes" }),
        Key::Decoded => SigningSecret::parse(text).map(drop),
    }
}

pub(super) fn is_public(secret: &[u8]) -> bool {
    secret.starts_with(PUBLIC_PREFIX.as_bytes())
}

pub(super) fn public_text(key: &[u8]) -> String {
    format!("{PUBLIC_PREFIX}{}", BASE64.encode(key))
}

/// The time that a request says it was signed at.
pub(super) fn claimed_time(incoming: &Incoming<'_>) -> Option<Timestamp> {
    let header = names(incoming.headers).timestamp;
    needed_seconds(incoming.headers, header).ok().map(|(_, at)| at)
}

fn public_key(text: &str) -> Option<Vec<u8>> {
    let encoded = text.strip_prefix(PUBLIC_PREFIX)?.trim_end_matches('=');
    let key = BASE64_NOPAD.decode(encoded.as_bytes()).ok()?;
    (key.len() == PUBLIC_BYTES).then_some(key)
}

pub(super) fn verify(
    secrets: &[&[u8]],
    incoming: &Incoming<'_>,
    key: Key,
) -> Result<Verified, Refused> {
    let names = names(incoming.headers);
    needed(incoming.headers, names.signature)?;
    let id = needed(incoming.headers, names.id)?;
    let (seconds, signed_at) = needed_seconds(incoming.headers, names.timestamp)?;
    let entries = || incoming.headers.values(names.signature).flat_map(|value| value.split(' '));
    let offered = |version: &str| -> Vec<Vec<u8>> {
        let encoded = entries().filter_map(|entry| entry.strip_prefix(version));
        encoded.filter_map(|encoded| BASE64.decode(encoded.as_bytes()).ok()).collect()
    };
    let shared = offered("v1,");
    let public = offered("v1a,");
    if shared.is_empty() && public.is_empty() {
        return Err(malformed(names.signature, "it has no `v1,` or `v1a,` entry in base64"));
    }
    let signed_at = Some(signed_at);
    let parts = [id.as_bytes(), b".", seconds.as_bytes(), b".", incoming.body];
    if !public.is_empty() && key == Key::Decoded {
        let keys: Vec<_> =
            secrets.iter().map(|secret| public_key(std::str::from_utf8(secret).ok()?)).collect();
        if let Ok(secret) = any_public_match(&ED25519, &keys, &public, &parts.concat()) {
            return Ok(Verified { secret, signed_at });
        }
    }
    let secret = any_match(secrets, &shared, |secret| match key {
        Key::Verbatim => Some(mac(Hash::Sha256, secret, &parts)),
        Key::Decoded => {
            let text = std::str::from_utf8(secret).ok()?;
            if public_key(text).is_some() {
                // A valid key that made none of the signatures: the result is a mismatch, not a missing secret.
                return Some(Vec::new());
            }
            Some(SigningSecret::parse(text).ok()?.mac(id, seconds, incoming.body))
        }
    })?;
    Ok(Verified { secret, signed_at })
}

#[cfg(feature = "service")]
pub(super) fn identify(incoming: &Incoming<'_>) -> StatedIdentity {
    let svix = names(incoming.headers).id == SVIX.id;
    if svix { SVIX_FACTS.identify(incoming) } else { STANDARD.identify(incoming) }
}
