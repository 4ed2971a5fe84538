//! For receivers in Rust: verifies the signature and the time of a webhook from Oncebox (Standard Webhooks `v1`).
//!
//! Needs no service. Not here: applying a webhook exactly once ([`crate::guard`]), and other signature schemes
//! ([`crate::signatures`]).

use std::time::Duration;

use crate::base::clock::Clock;
pub use crate::base::clock::Timestamp;
use crate::base::headers::Headers;
use crate::signatures::check::{Incoming, Refused};
pub use crate::signatures::signing::SecretError;
use crate::signatures::signing::SigningSecret;
use crate::signatures::standard;

/// The largest difference between a webhook's time and ours. Standard Webhooks 1.0.0 leaves it to the receiver; its
/// libraries use five minutes.
pub const TOLERANCE: Duration = Duration::from_mins(5);

/// A verified webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Its `webhook-id`, or `svix-id` if the sender uses those headers. The same on every attempt: use it for your guard.
    pub id: String,
    /// Index of the secret that made the signature. An old secret that is no longer seen can be removed.
    pub secret: usize,
}

/// Why a webhook is refused. Answer each with the same 401, and log the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No secret was given to check with.
    #[error("no secret was given: pass at least one, as `whsec_…`")]
    NoSecret,
    /// A secret is malformed.
    #[error("secret {index} (counted from 0) cannot be used: {source}")]
    Secret {
        /// Its index.
        index: usize,
        /// The cause.
        source: SecretError,
    },
    /// A header is missing.
    #[error(
        "the header {header} is missing: the request is not a Standard Webhook, or a proxy removed it"
    )]
    Missing {
        /// Its name.
        header: String,
    },
    /// A header cannot be read.
    #[error("the header {header} cannot be read: {why}")]
    Malformed {
        /// Its name.
        header: String,
        /// The reason.
        why: String,
    },
    /// It was signed with another secret, or the body was changed.
    #[error(
        "no given secret makes this signature: is it this sender's secret, and is the body the raw bytes?"
    )]
    Mismatch,
    /// The signature is right, but made too long ago or in the future.
    #[error(
        "the signature is right, but its time is {skew_secs} s away from this machine's: an old request was \
         repeated, or a clock is wrong"
    )]
    Stale {
        /// The difference in whole seconds.
        skew_secs: u64,
    },
}

/// Verifies that a webhook was signed with one of the secrets, at most [five minutes](TOLERANCE) ago.
///
/// `headers` are the request's header fields, in any case. `body` is the raw body, before anything parses it. During a
/// rotation, give the old and the new secret.
///
/// ```
/// use oncebox::webhook;
///
/// # use oncebox::base::clock::Clock;
/// # use oncebox::signatures::signing::SigningSecret;
/// # let secret = SigningSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
/// # let now = Clock::machine().wall();
/// # let (seconds, signature) = (now.secs().to_string(), secret.sign("evt_1", now, b"{}"));
/// let headers = [
///     ("Webhook-Id", "evt_1"),
///     ("Webhook-Timestamp", &seconds),
///     ("Webhook-Signature", &signature),
/// ];
/// let verified = webhook::verify(&["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], headers, b"{}")?;
/// assert_eq!(verified.id, "evt_1");
///
/// let other = webhook::verify(&["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], headers, b"{ }");
/// assert_eq!(other, Err(webhook::Error::Mismatch));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn verify<N: AsRef<str>, V: AsRef<[u8]>>(
    secrets: &[impl AsRef<str>],
    headers: impl IntoIterator<Item = (N, V)>,
    body: &[u8],
) -> Result<Verified, Error> {
    verify_at(secrets, headers, body, Clock::machine().wall(), TOLERANCE)
}

/// Like [`verify`], but at a given time and with another tolerance: for tests and stored requests. Returns [`Error::Stale`]
/// only if everything else is right.
pub fn verify_at<N: AsRef<str>, V: AsRef<[u8]>>(
    secrets: &[impl AsRef<str>],
    headers: impl IntoIterator<Item = (N, V)>,
    body: &[u8],
    now: Timestamp,
    tolerance: Duration,
) -> Result<Verified, Error> {
    let secrets: Vec<&str> = secrets.iter().map(AsRef::as_ref).collect();
    for (index, secret) in secrets.iter().enumerate() {
        SigningSecret::parse(secret).map_err(|source| Error::Secret { index, source })?;
    }
    let mut fields = Headers::default();
    for (name, value) in headers {
        fields.push(name.as_ref(), value.as_ref());
    }
    // Standard Webhooks sign only the headers and the body.
    let incoming = Incoming { method: "", path: "", url: "", headers: &fields, body };
    let (secret, id) = standard::verify_fresh(&secrets, &incoming, now, tolerance)?;
    Ok(Verified { id: id.to_owned(), secret })
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Missing { header } => Self::Missing { header },
            Refused::Malformed { header, why } => Self::Malformed { header, why: why.to_owned() },
            Refused::Stale { skew_secs } | Refused::Untimely { skew_secs } => {
                Self::Stale { skew_secs }
            }
            // Standard Webhooks have the signature only in headers.
            Refused::Mismatch | Refused::Body { .. } => Self::Mismatch,
            Refused::NoSecret => Self::NoSecret,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::SystemDraw;

    const AT: Timestamp = Timestamp::from_secs(1_700_000_000);

    fn signed(secret: &SigningSecret) -> [(&'static str, String); 3] {
        [
            ("Webhook-ID", "evt_1".to_owned()),
            ("Webhook-Timestamp", AT.secs().to_string()),
            ("Webhook-Signature", secret.sign("evt_1", AT, b"{}")),
        ]
    }

    fn at(
        secrets: &[&str],
        headers: &[(&str, String)],
        body: &[u8],
        late: u64,
    ) -> Result<Verified, Error> {
        let now = AT.plus(Duration::from_secs(late));
        verify_at(secrets, headers.iter().map(|(n, v)| (n, v)), body, now, TOLERANCE)
    }

    #[test]
    fn the_id_is_the_one_that_was_signed() {
        let secret = SigningSecret::generate(&SystemDraw::new());
        let text = secret.to_text();
        let time = AT.secs().to_string();
        let own = secret.sign("evt_1", AT, b"{}");
        let other = "evt_9".to_owned();
        let svix = [
            ("svix-id", "evt_1".to_owned()),
            ("svix-timestamp", time),
            ("svix-signature", own),
            ("webhook-id", other.clone()),
            ("webhook-timestamp", "1".to_owned()),
        ];
        let right = Verified { id: "evt_1".to_owned(), secret: 0 };
        assert_eq!(at(&[&text], &svix, b"{}", 0), Ok(right.clone()));
        let mut webhook = signed(&secret).to_vec();
        webhook.insert(0, ("svix-id", other));
        assert_eq!(at(&[&text], &webhook, b"{}", 0), Ok(right));
    }

    #[test]
    fn each_refusal_says_why() {
        let secret = SigningSecret::generate(&SystemDraw::new());
        let other = SigningSecret::generate(&SystemDraw::new());
        let text = secret.to_text();
        let other = other.to_text();
        let headers = signed(&secret);
        let right = Verified { id: "evt_1".to_owned(), secret: 1 };
        assert_eq!(at(&[&other, &text], &headers, b"{}", 300), Ok(right));
        assert_eq!(at(&[], &headers, b"{}", 0), Err(Error::NoSecret));
        assert_eq!(at(&[&other], &headers, b"{}", 0), Err(Error::Mismatch));
        assert_eq!(at(&[&text], &headers, b"{ }", 0), Err(Error::Mismatch));
        assert_eq!(at(&[&text], &headers, b"{}", 301), Err(Error::Stale { skew_secs: 301 }));
        let missing = Error::Missing { header: "webhook-signature".to_owned() };
        assert_eq!(at(&[&text], &headers[..2], b"{}", 0), Err(missing));
        let refused = at(&[&text, "sk_live_1"], &headers, b"{}", 0).unwrap_err();
        assert!(
            refused.to_string().starts_with("secret 1 (counted from 0) cannot be used"),
            "{refused}"
        );
    }
}
