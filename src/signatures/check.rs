//! What every scheme needs to check a request: the request, the reasons for a refusal, and the comparison of
//! secrets and public keys with the signatures.

use std::time::Duration;

use data_encoding::BASE64;
use ring::signature::{UnparsedPublicKey, VerificationAlgorithm};

use super::signing::{SecretError, same};
use crate::base::clock::{Timestamp, millis};
use crate::base::headers::Headers;

/// A key of less than 128 bits can be found by trying, given one signed request.
pub(super) const SECRET_BYTES_MIN: usize = 16;
/// Signatures of one request that are checked. A sender that rotates its secret sends two or three.
pub(super) const MAX_SIGNATURES: usize = 64;
/// Signatures by public key of one request that are checked: each costs far more than an HMAC.
const MAX_PUBLIC_SIGNATURES: usize = 4;
/// Checks by public key for one request: two signatures for each of 32 keys.
const MAX_PUBLIC_CHECKS: usize = 64;
/// Events in one request at most: one transaction with more would keep the others waiting.
pub(super) const MAX_ITEMS: usize = 10_000;
/// A time with more digits lies beyond the year 30,000 in milliseconds.
const MAX_TIME_DIGITS: usize = 15;

/// A request, as far as its signature may cover it.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// The method, as sent.
    pub method: &'a str,
    /// The path with its query, as the request line has it.
    pub path: &'a str,
    /// The URL at which the provider knows us, with path and query. Behind a proxy it is configured.
    pub url: &'a str,
    /// All header fields.
    pub headers: &'a Headers,
    /// The body, not a byte changed.
    pub body: &'a [u8],
}

/// Why a webhook is refused. For our log: outside, every reason is the same 401.
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
        /// What is wrong with it.
        why: &'static str,
    },
    /// The body lacks what the scheme signs with.
    #[error("the body cannot be checked: {why}")]
    Body {
        /// What is wrong with it.
        why: &'static str,
    },
    /// The signature is correct, but its time is too far away. Only said of a correct signature: a caller whose
    /// own clock may be wrong can ask for the webhook again.
    #[error("the signature is correct but {skew_secs} s away from our time")]
    Stale {
        /// How far its time is from ours, in whole seconds, either way.
        skew_secs: u64,
    },
    /// The time is too far away for the signature to be worth a check by public key.
    #[error("its time is {skew_secs} s away from ours, so its signature was not checked")]
    Untimely {
        /// How far its time is from ours, in whole seconds, either way.
        skew_secs: u64,
    },
    /// No secret in force makes this signature.
    #[error("no secret in force makes this signature")]
    Mismatch,
    /// There is no usable secret to check with.
    #[error("no usable secret is in force for this provider")]
    NoSecret,
}

/// A correct signature: the place of its secret, and when it says it was made.
pub(super) struct Verified {
    pub(super) secret: usize,
    pub(super) signed_at: Option<Timestamp>,
}

impl Verified {
    /// Which secret made the signature, unless it was made longer ago or further ahead than the tolerance.
    pub(super) fn if_fresh(self, now: Timestamp, tolerance: Duration) -> Result<usize, Refused> {
        match self.signed_at.and_then(|at| skew_beyond(at, now, tolerance)) {
            Some(skew_secs) => Err(Refused::Stale { skew_secs }),
            None => Ok(self.secret),
        }
    }
}

/// How far a time is from `now`, in whole seconds, where that is more than the tolerance.
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

/// A needed header that counts seconds since 1970: its text, and the time.
pub(super) fn needed_seconds<'a>(
    headers: &'a Headers,
    name: &str,
) -> Result<(&'a str, Timestamp), Refused> {
    let text = needed(headers, name)?;
    let seconds =
        time_digits(text).ok_or_else(|| malformed(name, "it is not a whole number of seconds"))?;
    Ok((text, Timestamp::from_secs(seconds)))
}

/// The first secret that makes one of the signatures.
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
        // An empty signature equals an empty one, and proves nothing.
        if !expected.is_empty()
            && offered.iter().take(MAX_SIGNATURES).any(|signature| same(signature, &expected))
        {
            return Ok(index);
        }
    }
    Err(refused)
}

/// The first public key that fits one of the signatures; a secret that is no public key stands as `None`.
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

/// A count since 1970 in plain digits. Signs, spaces and fractions are not taken.
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
