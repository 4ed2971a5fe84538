//! Mailgun: the body contains time, token and signature, and the signature covers only time and token.
//!
//! A recorded signature would be valid for any body, so each token is accepted with one body only
//! ([`super::Scheme::nonce`]).
//!
//! Not here: `parent-signature`, which webhooks of subaccounts contain as well.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

use super::check::{Incoming, Refused, Verified, any_match, bad_body, time_digits};
use super::naming::Facts;
use super::naming::Locator::Body;
use super::signing::{Hash, mac};
use crate::base::clock::Timestamp;
use crate::model::pointer::text_at;

pub(super) static FACTS: Facts = Facts {
    ids: &[Body(&["event-data", "id"])],
    types: &[Body(&["event-data", "event"])],
    ..Facts::new("mailgun", "delivered")
};

pub(super) fn verify(secrets: &[&[u8]], incoming: &Incoming<'_>) -> Result<Verified, Refused> {
    let field = |name| text_at(incoming.body, &["signature", name]);
    let (Some(time), Some(token), Some(signature)) =
        (field("timestamp"), field("token"), field("signature"))
    else {
        return Err(bad_body("it has no signature.timestamp, .token and .signature"));
    };
    let at = time_digits(&time)
        .ok_or_else(|| bad_body("its timestamp is not a whole number of seconds"))?;
    // Without a token a recorded signature could not be recognised.
    if token.is_empty() {
        return Err(bad_body("its token is empty"));
    }
    let offered = HEXLOWER_PERMISSIVE
        .decode(signature.as_bytes())
        .map_err(|_where| bad_body("its signature is not hex"))?;
    let secret = any_match(secrets, &[offered], |secret| {
        Some(mac(Hash::Sha256, secret, &[time.as_bytes(), token.as_bytes()]))
    })?;
    Ok(Verified { secret, signed_at: Some(Timestamp::from_secs(at)) })
}

/// The signature in hex.
pub(super) fn sign(secret: &str, time: &str, token: &str) -> String {
    let parts = [time.as_bytes(), token.as_bytes()];
    HEXLOWER.encode(&mac(Hash::Sha256, secret.as_bytes(), &parts))
}
