//! Providers that list a time and signatures in one header: Stripe's `t=…,v1=…`, Paddle's `ts=…;h1=…`.
//!
//! Entries under other names are ignored, such as Stripe's `v0`, which it sends for test events and which proves
//! nothing.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

use super::check::{
    Incoming, Refused, Verified, any_match, long_enough, malformed, needed, time_digits,
};
use super::naming::Facts;
use super::naming::Locator::Body;
use super::signing::{Hash, SecretError, mac};
use crate::base::clock::Timestamp;

/// The format of such a header, and the facts of the scheme.
#[derive(Debug)]
pub struct HeaderList {
    pub(super) facts: Facts,
    pub(super) header: &'static str,
    separator: char,
    time: &'static str,
    signature: &'static str,
    /// The text between time and body in the signed bytes.
    between: &'static str,
    /// The prefix of secrets. Unlike in Standard Webhooks it is part of the key, and nothing is decoded.
    pub(super) secret_prefix: &'static str,
}

impl PartialEq for HeaderList {
    fn eq(&self, other: &Self) -> bool {
        self.facts.kind == other.facts.kind
    }
}

pub(super) static STRIPE: HeaderList = HeaderList {
    header: "stripe-signature",
    separator: ',',
    time: "t",
    signature: "v1",
    between: ".",
    secret_prefix: "whsec_",
    facts: Facts {
        ids: &[Body(&["id"])],
        types: &[Body(&["type"])],
        ..Facts::new("stripe", "invoice.paid")
    },
};

/// The id is `event_id`; `notification_id` names one destination's copy.
pub(super) static PADDLE: HeaderList = HeaderList {
    header: "paddle-signature",
    separator: ';',
    time: "ts",
    signature: "h1",
    between: ":",
    secret_prefix: "",
    facts: Facts {
        ids: &[Body(&["event_id"])],
        types: &[Body(&["event_type"])],
        ..Facts::new("paddle", "transaction.completed")
    },
};

impl HeaderList {
    pub(super) fn check_secret(&self, text: &str) -> Result<(), SecretError> {
        let prefix = self.secret_prefix;
        let key = text.strip_prefix(prefix).ok_or(SecretError::NoPrefix { prefix })?;
        long_enough(key.len())
    }

    pub(super) fn verify(
        &self,
        secrets: &[&[u8]],
        incoming: &Incoming<'_>,
    ) -> Result<Verified, Refused> {
        let mut time = None;
        let mut offered = Vec::new();
        for entry in needed(incoming.headers, self.header)?.split(self.separator) {
            let Some((name, value)) = entry.trim().split_once('=') else { continue };
            if name == self.time {
                if time.is_some() {
                    return Err(malformed(self.header, "it has two times"));
                }
                time = Some(value);
            } else if name == self.signature {
                offered.extend(HEXLOWER_PERMISSIVE.decode(value.as_bytes()).ok());
            }
        }
        let time = time.ok_or_else(|| malformed(self.header, "it has no time"))?;
        let signed_at = time_digits(time)
            .ok_or_else(|| malformed(self.header, "its time is not a whole number of seconds"))?;
        if offered.is_empty() {
            return Err(malformed(self.header, "it has no signature in hex"));
        }
        let secret =
            any_match(secrets, &offered, |secret| Some(self.mac(secret, time, incoming.body)))?;
        Ok(Verified { secret, signed_at: Some(Timestamp::from_secs(signed_at)) })
    }

    fn mac(&self, secret: &[u8], time: &str, body: &[u8]) -> Vec<u8> {
        mac(Hash::Sha256, secret, &[time.as_bytes(), self.between.as_bytes(), body])
    }

    /// The header's value for a body that is signed at `at`.
    pub(super) fn sign(&self, secret: &[u8], at: Timestamp, body: &[u8]) -> String {
        let Self { separator, time, signature, .. } = self;
        let seconds = at.secs().to_string();
        let signed = HEXLOWER.encode(&self.mac(secret, &seconds, body));
        format!("{time}={seconds}{separator}{signature}={signed}")
    }
}
