//! Signatures by public key, which cost many times what an HMAC does: which requests ask for such a check, and
//! what is told of them without it.
//!
//! Not here: the checks, which each scheme does itself; and how many are done at once, which is the intake's.

use std::time::Duration;

use super::incoming::Incoming;
use super::refused::Refused;
use super::{Scheme, generic, paypal, sendgrid, standard};
use crate::base::clock::{Timestamp, millis};

impl Scheme {
    /// Whether a request is checked with a public key.
    pub fn is_costly<S: AsRef<[u8]>>(&self, secrets: &[S]) -> bool {
        match self {
            Self::Sendgrid | Self::Paypal(_) | Self::Sns(_) => true,
            Self::Standard => secrets.iter().any(|secret| standard::is_public(secret.as_ref())),
            Self::Generic(generic) => {
                matches!(generic.settings().check, generic::Check::Ed25519(_))
            }
            _ => false,
        }
    }

    /// A public key as it is entered as the secret: the 32 bytes of one of ed25519, the point of one of P-256.
    pub fn public_text(&self, key: &[u8]) -> Option<String> {
        match self {
            Self::Standard => Some(standard::public_text(key)),
            Self::Sendgrid => Some(sendgrid::public_text(key)),
            _ => None,
        }
    }

    /// Refuses a costly request by the time it claims, before anything is fetched or computed for it.
    ///
    /// # Errors
    /// [`Refused::Untimely`] when that is further from `now` than `tolerance`. What has no readable time is
    /// for the check itself to refuse.
    pub fn in_time(
        &self,
        incoming: &Incoming<'_>,
        now: Timestamp,
        tolerance: Duration,
    ) -> Result<(), Refused> {
        let claimed = match self {
            Self::Standard => standard::claimed_time(incoming),
            Self::Sendgrid => sendgrid::claimed_time(incoming),
            Self::Paypal(_) => paypal::claimed_time(incoming),
            Self::Generic(generic) => generic.claimed_time(incoming),
            _ => None,
        };
        let skew_ms = claimed.map_or(0, |at| now.ms().abs_diff(at.ms()));
        if i64::try_from(skew_ms).is_ok_and(|skew| skew <= millis(tolerance)) {
            return Ok(());
        }
        Err(Refused::Untimely { skew_secs: skew_ms / 1000 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::headers::Headers;

    #[test]
    fn what_a_public_key_checks_is_refused_by_its_time_alone() {
        let paypal = r#"{"kind":"paypal","webhook_id":"4JH86294D6297924G"}"#;
        let keyed = r#"{"kind":"generic","check":{"ed25519":{"signed":"{ts}{body}","header":"X",
            "timestamp":{"header":"X-Time"}}}}"#;
        let of = |text: &str| serde_json::from_str::<Scheme>(text).unwrap();
        for (scheme, secret, header, time) in [
            (Scheme::Standard, "whpk_AAAA", "webhook-timestamp", "1700000301"),
            (Scheme::Standard, "whpk_AAAA", "svix-timestamp", "1700000301"),
            (Scheme::Sendgrid, "x", "x-twilio-email-event-webhook-timestamp", "1699999699"),
            (of(paypal), "", "paypal-transmission-time", "2023-11-14T22:18:21Z"),
            (of(keyed), "x", "x-time", "1700000301"),
        ] {
            assert!(scheme.is_costly(&[secret]), "{scheme:?}");
            let judge = |signature: &str, time: &str, now| {
                let mut headers = Headers::default();
                headers.push(header, time.as_bytes());
                headers.push(signature, b"x");
                let (method, path, url) = ("POST", "/", "");
                let incoming = Incoming { method, path, url, headers: &headers, body: b"" };
                scheme.in_time(&incoming, Timestamp::from_secs(now), Duration::from_mins(5))
            };
            let signature = header.replace("timestamp", "signature");
            let late = Err(Refused::Untimely { skew_secs: 301 });
            assert_eq!(judge(&signature, time, 1_700_000_000), late, "{header}");
            assert_eq!(
                judge(&signature, time, 1_700_000_001 - 2 * i64::from(time == "1699999699")),
                Ok(())
            );
            assert_eq!(judge(&signature, "none", 1_700_000_000), Ok(()));
        }
        assert!(!Scheme::Standard.is_costly(&["whsec_AAAA"]));
    }
}
