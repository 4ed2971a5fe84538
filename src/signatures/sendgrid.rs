//! SendGrid's event webhook: ECDSA (P-256) over time and body; its public key is entered as the secret.

use data_encoding::BASE64;
use ring::signature::ECDSA_P256_SHA256_ASN1;

use super::check::{Incoming, Refused, Verified, any_public_match, needed_base64, needed_seconds};
use super::naming::Facts;
use super::naming::Locator::Body;
use super::signing::SecretError;
use crate::base::clock::Timestamp;

pub(super) const SIGNATURE: &str = "x-twilio-email-event-webhook-signature";
pub(super) const TIMESTAMP: &str = "x-twilio-email-event-webhook-timestamp";

/// The bytes before the point in the DER of a P-256 public key. Source: RFC 5480.
const SPKI_HEAD: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// The length of an uncompressed point of P-256.
const POINT_BYTES: usize = 65;

pub(super) static FACTS: Facts = Facts {
    ids: &[Body(&["sg_event_id"])],
    types: &[Body(&["event"])],
    kept: &[TIMESTAMP],
    ..Facts::new("sendgrid", "delivered")
};

pub(super) fn check_secret(text: &str) -> Result<(), SecretError> {
    let encoding = "the base64 public key of SendGrid's signed event webhook";
    point(text.as_bytes()).map(drop).ok_or(SecretError::Encoding { encoding })
}

fn point(secret: &[u8]) -> Option<Vec<u8>> {
    let der = BASE64.decode(secret).ok()?;
    let point = der.strip_prefix(&SPKI_HEAD)?;
    (point.len() == POINT_BYTES).then(|| point.to_vec())
}

pub(super) fn public_text(point: &[u8]) -> String {
    BASE64.encode(&[&SPKI_HEAD, point].concat())
}

/// The time that a request says it was signed at.
pub(super) fn claimed_time(incoming: &Incoming<'_>) -> Option<Timestamp> {
    needed_seconds(incoming.headers, TIMESTAMP).ok().map(|(_, at)| at)
}

pub(super) fn verify(secrets: &[&[u8]], incoming: &Incoming<'_>) -> Result<Verified, Refused> {
    let signature = needed_base64(incoming.headers, SIGNATURE)?;
    let (time, signed_at) = needed_seconds(incoming.headers, TIMESTAMP)?;
    let keys: Vec<Option<Vec<u8>>> = secrets.iter().map(|secret| point(secret)).collect();
    let signed = [time.as_bytes(), incoming.body].concat();
    let secret = any_public_match(&ECDSA_P256_SHA256_ASN1, &keys, &[signature], &signed)?;
    Ok(Verified { secret, signed_at: Some(signed_at) })
}
