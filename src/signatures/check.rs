//! Shared by all schemes: the request, the reasons for a refusal, and the comparison of signatures with secrets and
//! public keys.

use std::time::Duration;

use data_encoding::BASE64;
use ring::signature::{UnparsedPublicKey, VerificationAlgorithm};

use super::signing::{SecretError, same};
use crate::base::clock::{Timestamp, millis};
use crate::base::headers::Headers;

/// With one signed request, a key of less than 128 bits can be found by brute force.
pub(super) const SECRET_BYTES_MIN: usize = 16;
/// Signatures checked per request. A sender that rotates its secret sends two or three.
pub(super) const MAX_SIGNATURES: usize = 64;
/// Public-key signatures checked per request: each costs far more than an HMAC.
const MAX_PUBLIC_SIGNATURES: usize = 4;
/// Public-key checks per request: two signatures for each of 32 keys.
const MAX_PUBLIC_CHECKS: usize = 64;
/// Events in one request at most: a larger transaction would delay the others.
pub(super) const MAX_ITEMS: usize = 10_000;
/// A time with more digits is beyond the year 30,000, even in milliseconds.
const MAX_TIME_DIGITS: usize = 15;

/// The parts of a request that a signature may cover.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// The method, as sent.
    pub method: &'a str,
    /// The path with its query, as the request line has it.
    pub path: &'a str,
    /// The URL that the provider posts to, with path and query. Behind a proxy it is configured.
    pub url: &'a str,
    /// All header fields.
    pub headers: &'a Headers,
    /// The body, byte for byte.
    pub body: &'a [u8],
}

/// Why a webhook is refused. Only our log shows the reason; the sender always gets the same 401.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A header that the scheme needs is missing.
    #[error("the header {header} is missing")]
    Missing {
        /// Its name.
        header: String,
    },
    /// A header is there but cannot be read.
    #[error("the header {header} cannot be read: {why}")]
    Malformed {
        /// Its name.
        header: String,
        /// Why not.
        why: &'static str,
    },
    /// The body lacks the fields that the signature needs.
    #[error("the body cannot be checked: {why}")]
    Body {
        /// Why not.
        why: &'static str,
    },
    /// The signature is correct, but its time is too far from ours. Used for correct signatures only: if our own
    /// clock may be wrong, the caller can ask for the webhook again.
    #[error("the signature is correct but {skew_secs} s away from our time")]
    Stale {
        /// The distance of its time from ours, in whole seconds.
        skew_secs: u64,
    },
    /// The time is too far from ours, so the public-key signature was not checked.
    #[error("its time is {skew_secs} s away from ours, so its signature was not checked")]
    Untimely {
        /// The distance of its time from ours, in whole seconds.
        skew_secs: u64,
    },
    /// The signature matches no secret in force.
    #[error("the signature matches no secret in force")]
    Mismatch,
    /// There is no usable secret.
    #[error("no usable secret is in force for this provider")]
    NoSecret,
}

/// A correct signature: the index of its secret, and the time that it claims.
pub(super) struct Verified {
    pub(super) secret: usize,
    pub(super) signed_at: Option<Timestamp>,
}

impl Verified {
    /// The index of the secret, or [`Refused::Stale`] if the claimed time is outside the tolerance.
    pub(super) fn if_fresh(self, now: Timestamp, tolerance: Duration) -> Result<usize, Refused> {
        match self.signed_at.and_then(|at| skew_beyond(at, now, tolerance)) {
            Some(skew_secs) => Err(Refused::Stale { skew_secs }),
            None => Ok(self.secret),
        }
    }
}

/// The distance of a time from `now` in whole seconds, if it exceeds the tolerance.
pub(super) fn skew_beyond(at: Timestamp, now: Timestamp, tolerance: Duration) -> Option<u64> {
    let skew_ms = now.ms().abs_diff(at.ms());
    let fits = i64::try_from(skew_ms).is_ok_and(|skew| skew <= millis(tolerance));
    (!fits).then_some(skew_ms / 1000)
}

pub(super) fn bad_body(why: &'static str) -> Refused {
    Refused::Body { why }
}

pub(super) fn malformed(header: &str, why: &'static str) -> Refused {
    Refused::Malformed { header: header.to_owned(), why }
}

/// The value of a header that the scheme needs.
pub(super) fn needed<'a>(headers: &'a Headers, name: &str) -> Result<&'a str, Refused> {
    headers.get(name).ok_or_else(|| Refused::Missing { header: name.to_owned() })
}

/// The bytes of a needed header in base64.
pub(super) fn needed_base64(headers: &Headers, name: &str) -> Result<Vec<u8>, Refused> {
    let decoded = BASE64.decode(needed(headers, name)?.as_bytes());
    decoded.map_err(|_where| malformed(name, "it is not base64"))
}

/// A needed header with seconds since 1970: its text, and the time.
pub(super) fn needed_seconds<'a>(
    headers: &'a Headers,
    name: &str,
) -> Result<(&'a str, Timestamp), Refused> {
    let text = needed(headers, name)?;
    let seconds =
        time_digits(text).ok_or_else(|| malformed(name, "it is not a whole number of seconds"))?;
    Ok((text, Timestamp::from_secs(seconds)))
}

/// The index of the first secret that made one of the signatures.
///
/// `expected` computes a secret's signature; `None` for a secret that cannot be used.
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
        // An empty signature would equal an empty header value, so it never matches.
        if !expected.is_empty()
            && offered.iter().take(MAX_SIGNATURES).any(|signature| same(signature, &expected))
        {
            return Ok(index);
        }
    }
    Err(refused)
}

/// The index of the first public key that verifies one of the signatures; `None` stands for a secret that is not a
/// public key.
pub(super) fn any_public_match(
    algorithm: &'static dyn VerificationAlgorithm,
    keys: &[Option<Vec<u8>>],
    offered: &[Vec<u8>],
    signed: &[u8],
) -> Result<usize, Refused> {
    let count = keys.iter().flatten().count();
    let most = MAX_PUBLIC_CHECKS.checked_div(count).ok_or(Refused::NoSecret)?;
    let offered = offered.get(..most.min(MAX_PUBLIC_SIGNATURES)).unwrap_or(offered);
    let fits = |key: &Option<Vec<u8>>| {
        let key = key.as_ref().map(|key| UnparsedPublicKey::new(algorithm, key));
        key.is_some_and(|key| offered.iter().any(|one| key.verify(signed, one).is_ok()))
    };
    keys.iter().position(fits).ok_or(Refused::Mismatch)
}

/// A count since 1970 in plain digits. Signs, spaces and fractions are refused.
pub(super) fn time_digits(text: &str) -> Option<i64> {
    let fits = (1..=MAX_TIME_DIGITS).contains(&text.len());
    (fits && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

pub(super) fn long_enough(bytes: usize) -> Result<(), SecretError> {
    if bytes < SECRET_BYTES_MIN {
        return Err(SecretError::Short { bytes, min: SECRET_BYTES_MIN });
    }
    Ok(())
}

/// Whether a header field can have this name (RFC 9110, `token`).
pub(super) fn is_header_name(name: &str) -> bool {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty() && name.bytes().all(is_token)
}
