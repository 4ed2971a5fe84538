//! Shopify: `X-Shopify-Hmac-Sha256` over the body.
//!
//! Not here: a check of `X-Shopify-Triggered-At`. The signature does not cover it, so it proves
//! nothing, and Shopify's own retries come up to four hours after it.

use data_encoding::BASE64;

use super::{Incoming, Refused, Verified, any_match, malformed, needed};
use crate::domain::signature::{Hash, mac};

const SIGNATURE: &str = "x-shopify-hmac-sha256";
/// The event's id, the same for all subscriptions of a shop.
const EVENT_ID: &str = "x-shopify-event-id";
/// The id of one subscription's copy; the same over its retries.
const WEBHOOK_ID: &str = "x-shopify-webhook-id";
const TOPIC: &str = "x-shopify-topic";

pub(super) fn verify(secrets: &[&str], incoming: &Incoming<'_>) -> Result<Verified, Refused> {
    let offered = BASE64
        .decode(needed(incoming.headers, SIGNATURE)?.as_bytes())
        .map_err(|_where| malformed(SIGNATURE, "it is not base64"))?;
    let secret = any_match(secrets, &[offered], |secret| {
        Some(mac(Hash::Sha256, secret.as_bytes(), &[incoming.body]))
    })?;
    Ok(Verified { secret, signed_at: None })
}

pub(super) fn identify(incoming: &Incoming<'_>) -> (Option<String>, Option<String>) {
    let text = |name: &str| incoming.headers.get(name).filter(|value| !value.trim().is_empty());
    let id = text(EVENT_ID).or_else(|| text(WEBHOOK_ID));
    (id.map(str::to_owned), text(TOPIC).map(str::to_owned))
}
