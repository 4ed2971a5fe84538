//! Stripe: `Stripe-Signature: t=…,v1=…`.
//!
//! Not here: `v0` entries, which Stripe sends for test events and which prove nothing.

use data_encoding::HEXLOWER_PERMISSIVE;

use super::{Incoming, Refused, Verified, any_match, long_enough, malformed, needed, time_digits};
use crate::clock::Timestamp;
use crate::domain::pointer::text_at;
use crate::domain::signature::{Hash, SecretError, mac};

const HEADER: &str = "stripe-signature";
const PREFIX: &str = "whsec_";

pub(super) fn check_secret(text: &str) -> Result<(), SecretError> {
    let key = text.strip_prefix(PREFIX).ok_or(SecretError::NoPrefix { prefix: PREFIX })?;
    long_enough(key.len())
}

/// The key is the secret as text, `whsec_` included: it is not decoded, unlike Standard Webhooks'.
pub(super) fn verify(secrets: &[&str], incoming: &Incoming<'_>) -> Result<Verified, Refused> {
    let mut time = None;
    let mut offered = Vec::new();
    for entry in needed(incoming.headers, HEADER)?.split(',') {
        match entry.trim().split_once('=') {
            Some(("t", _)) if time.is_some() => return Err(malformed(HEADER, "it has two times")),
            Some(("t", digits)) => time = Some(digits),
            Some(("v1", encoded)) => {
                offered.extend(HEXLOWER_PERMISSIVE.decode(encoded.as_bytes()).ok());
            }
            Some(_) | None => {}
        }
    }
    let time = time.ok_or_else(|| malformed(HEADER, "it has no `t=`"))?;
    let signed_at = time_digits(time)
        .ok_or_else(|| malformed(HEADER, "`t=` is not a whole number of seconds"))?;
    if offered.is_empty() {
        return Err(malformed(HEADER, "it has no `v1=` in hex"));
    }
    let secret = any_match(secrets, &offered, |secret| {
        Some(mac(Hash::Sha256, secret.as_bytes(), &[time.as_bytes(), b".", incoming.body]))
    })?;
    Ok(Verified { secret, signed_at: Some(Timestamp::from_secs(signed_at)) })
}

pub(super) fn identify(incoming: &Incoming<'_>) -> (Option<String>, Option<String>) {
    (text_at(incoming.body, &["id"]), text_at(incoming.body, &["type"]))
}
