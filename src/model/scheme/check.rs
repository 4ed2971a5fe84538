//! What the checks of all schemes share: secrets against signatures, and their bounds.

use super::refused::Refused;
use crate::base::clock::Timestamp;
use crate::model::signature::{SecretError, same};

/// Keys below 128 bits can be searched for by who holds one signed request.
pub(super) const SECRET_BYTES_MIN: usize = 16;
/// Signatures of one request that are looked at: a sender that rotates gives two or three.
pub(super) const MAX_SIGNATURES: usize = 64;
/// The same of those by public key, each of which costs far more.
const MAX_PUBLIC_SIGNATURES: usize = 4;
/// Checks by public key of one request, every key with every signature: two signatures for each of as many
/// keys as a provider may have.
const MAX_PUBLIC_CHECKS: usize = 64;
/// Events of one request at most: beyond, one transaction would keep the others waiting.
pub(super) const MAX_ITEMS: usize = 10_000;
/// Times with more digits than this lie beyond the year 30,000 in milliseconds.
const MAX_TIME_DIGITS: usize = 15;

/// A correct signature: whose, and when it says it was made.
pub(super) struct Verified {
    pub(super) secret: usize,
    pub(super) signed_at: Option<Timestamp>,
}

/// The signature that is right under one of the usable secrets, if any is.
///
/// `expected` gives what a secret would have signed, `None` for a secret that cannot be used.
pub(super) fn any_match(
    secrets: &[&[u8]],
    offered: &[Vec<u8>],
    expected: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> Result<usize, Refused> {
    let mut refused = Refused::NoSecret;
    for (index, secret) in secrets.iter().enumerate() {
        // Anybody can sign with an empty key.
        if secret.is_empty() {
            continue;
        }
        let Some(expected) = expected(secret) else { continue };
        refused = Refused::Mismatch;
        // Nothing equals nothing, and proves nothing.
        if !expected.is_empty()
            && offered.iter().take(MAX_SIGNATURES).any(|signature| same(signature, &expected))
        {
            return Ok(index);
        }
    }
    Err(refused)
}

/// How many signatures are tried with each of so many public keys.
pub(super) fn public_signatures(keys: usize) -> usize {
    MAX_PUBLIC_SIGNATURES.min(MAX_PUBLIC_CHECKS.checked_div(keys).unwrap_or(0))
}

/// A count since 1970 in plain digits; signs, spaces and fractions are not taken.
pub(super) fn time_digits(text: &str) -> Option<i64> {
    let plain = (1..=MAX_TIME_DIGITS).contains(&text.len());
    (plain && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

pub(super) fn long_enough(bytes: usize) -> Result<(), SecretError> {
    if bytes < SECRET_BYTES_MIN {
        return Err(SecretError::Short { bytes, min: SECRET_BYTES_MIN });
    }
    Ok(())
}
