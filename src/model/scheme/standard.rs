//! Standard Webhooks `v1` and `v1a`, under its own headers or under Svix' older ones, and Polar's reading
//! of it.
//!
//! Not here: the form of its secrets and its HMAC, which we use for sending too
//! ([`crate::model::signature`]).

use data_encoding::{BASE64, BASE64_NOPAD};
use ring::signature::{ED25519, UnparsedPublicKey};

use super::check::{Verified, any_match, long_enough, public_signatures, time_digits};
use super::incoming::Incoming;
use super::naming::{Naming, Place};
use super::refused::{Refused, malformed, needed};
use crate::base::clock::Timestamp;
use crate::base::headers::Headers;
use crate::model::signature::{Hash, SecretError, SigningSecret, mac};

/// How public keys of `v1a` begin.
const PUBLIC_PREFIX: &str = "whpk_";
/// An ed25519 public key. Source: RFC 8032.
const PUBLIC_BYTES: usize = 32;

struct Names {
    id: &'static str,
    timestamp: &'static str,
    signature: &'static str,
}

const WEBHOOK: Names =
    Names { id: "webhook-id", timestamp: "webhook-timestamp", signature: "webhook-signature" };
const SVIX: Names =
    Names { id: "svix-id", timestamp: "svix-timestamp", signature: "svix-signature" };

/// Types stand in the body, ids in the header of the family that is used.
pub(super) static OWN: Naming = Naming {
    ids: &[Place::Header(WEBHOOK.id)],
    types: &[Place::Body(&["type"])],
    detail: None,
    kept: &["webhook-id", "webhook-timestamp", "svix-id", "svix-timestamp"],
};
static OF_SVIX: Naming = Naming { ids: &[Place::Header(SVIX.id)], kept: &[], ..NAMING };
const NAMING: Naming =
    Naming { ids: &[], types: &[Place::Body(&["type"])], detail: None, kept: &[] };

/// What a secret's text stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// `whsec_` and the base64 of the key, or `whpk_` and the base64 of a public key.
    Decoded,
    /// The text itself is the key. Polar's libraries encode it before they hand it to those of Standard
    /// Webhooks, which decode it again.
    Verbatim,
}

/// Which family of headers a request uses: never one header of each.
fn names(headers: &Headers) -> &'static Names {
    let svix_alone =
        headers.get(WEBHOOK.signature).is_none() && headers.get(SVIX.signature).is_some();
    if svix_alone { &SVIX } else { &WEBHOOK }
}

/// The header whose id is signed: that of the other family may be anybody's.
pub(crate) fn id_header(headers: &Headers) -> &'static str {
    names(headers).id
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
    let seconds = incoming.headers.get(names(incoming.headers).timestamp)?;
    time_digits(seconds).map(Timestamp::from_secs)
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
    let seconds = needed(incoming.headers, names.timestamp)?;
    let signed_at = time_digits(seconds)
        .ok_or_else(|| malformed(names.timestamp, "it is not a whole number of seconds"))?;
    let entries = || incoming.headers.values(names.signature).flat_map(|value| value.split(' '));
    let offered = |version: &str| -> Vec<Vec<u8>> {
        let encoded = entries().filter_map(|entry| entry.strip_prefix(version));
        encoded.filter_map(|encoded| BASE64.decode(encoded.as_bytes()).ok()).collect()
    };
    let (shared, public) = (offered("v1,"), offered("v1a,"));
    if shared.is_empty() && public.is_empty() {
        return Err(malformed(names.signature, "it has no `v1,` or `v1a,` entry in base64"));
    }
    let signed_at = Some(Timestamp::from_secs(signed_at));
    let parts = [id.as_bytes(), b".", seconds.as_bytes(), b".", incoming.body];
    let by_public = by_public_key(secrets, &public, key, &parts);
    if let Some(secret) = by_public {
        return Ok(Verified { secret, signed_at });
    }
    let secret = any_match(secrets, &shared, |secret| match key {
        Key::Verbatim => Some(mac(Hash::Sha256, secret, &parts)),
        Key::Decoded => {
            let text = std::str::from_utf8(secret).ok()?;
            if public_key(text).is_some() {
                // It is a key that is in force, and it made none of these.
                return Some(Vec::new());
            }
            Some(SigningSecret::parse(text).ok()?.mac(id, seconds, incoming.body))
        }
    })?;
    Ok(Verified { secret, signed_at })
}

/// The public key that one of the signatures was made for.
fn by_public_key(
    secrets: &[&[u8]],
    offered: &[Vec<u8>],
    key: Key,
    parts: &[&[u8]],
) -> Option<usize> {
    if offered.is_empty() || key == Key::Verbatim {
        return None;
    }
    let signed = parts.concat();
    let most = public_signatures(secrets.iter().filter(|secret| is_public(secret)).count());
    secrets.iter().position(|secret| {
        let public = std::str::from_utf8(secret).ok().and_then(public_key);
        public.is_some_and(|public| {
            let public = UnparsedPublicKey::new(&ED25519, public);
            let mut looked_at = offered.iter().take(most);
            looked_at.any(|signature| public.verify(&signed, signature).is_ok())
        })
    })
}

pub(super) fn identify(incoming: &Incoming<'_>) -> (Option<String>, Option<String>) {
    let svix = names(incoming.headers).id == SVIX.id;
    if svix { OF_SVIX.identify(incoming) } else { OWN.identify(incoming) }
}
