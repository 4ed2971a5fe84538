//! PayPal: RSA over transmission, time, webhook and the body's CRC-32, with a certificate that the request
//! names.
//!
//! A CRC-32 is easily met by another body, so each transmission is taken with one body only
//! ([`super::Scheme::nonce`]).
//!
//! Not here: fetching the certificate, which is PayPal's own or none: the host is pinned.

use data_encoding::BASE64;
use webpki_roots::TLS_SERVER_ROOTS;

use super::certificate::{self, Proof, RSA_BYTES};
use super::check::Verified;
use super::incoming::Incoming;
use super::naming::{Naming, Place};
use super::refused::{Refused, malformed, needed};
use crate::base::clock::Timestamp;
use crate::model::signature::Hash;

pub(super) const TRANSMISSION: &str = "paypal-transmission-id";
const TIME: &str = "paypal-transmission-time";
const SIGNATURE: &str = "paypal-transmission-sig";
const CERTIFICATE: &str = "paypal-cert-url";
const ALGORITHM: &str = "paypal-auth-algo";
const HOST_ENDING: &str = ".paypal.com";
const PATH_BEGINNING: &str = "/v1/notifications/certs/";

pub(super) static NAMING: Naming = Naming {
    ids: &[Place::Body(&["id"])],
    types: &[Place::Body(&["event_type"])],
    detail: None,
    kept: &[TRANSMISSION, TIME],
};

/// Settings of `paypal`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, try_from = "Unchecked")]
pub struct Paypal {
    /// The id that PayPal's console shows for the webhook. It is signed, and in no request.
    pub webhook_id: String,
    /// PayPal's certificates, PEM, for boxes that may not fetch them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificates: Option<String>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    webhook_id: String,
    #[serde(default)]
    certificates: Option<String>,
}

impl TryFrom<Unchecked> for Paypal {
    type Error = &'static str;

    fn try_from(Unchecked { webhook_id, certificates }: Unchecked) -> Result<Self, &'static str> {
        let graphic = webhook_id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !graphic || !(8..=64).contains(&webhook_id.len()) {
            return Err(
                "`webhook_id` is the webhook's id in PayPal's console: 8 to 64 letters and digits",
            );
        }
        if certificates.as_deref().is_some_and(|text| !certificate::check_pem(text)) {
            return Err("`certificates` must be PEM certificates with RSA keys");
        }
        Ok(Self { webhook_id, certificates })
    }
}

/// Where the certificate is to be fetched, unless there is one already.
pub(super) fn certificate_url(
    paypal: &Paypal,
    incoming: &Incoming<'_>,
) -> Result<Option<String>, Refused> {
    if paypal.certificates.is_some() {
        return Ok(None);
    }
    // Nothing is fetched for a request that could not be believed anyway.
    let _proof = parts(incoming)?;
    let url = needed(incoming.headers, CERTIFICATE)?;
    let own = certificate::https_host(url).is_some_and(|(host, path)| {
        let name = path.strip_prefix(PATH_BEGINNING).unwrap_or_default();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        host.ends_with(HOST_ENDING)
            && !name.is_empty()
            && name.bytes().all(plain)
            && !url.contains('?')
    });
    if own {
        Ok(Some(url.to_owned()))
    } else {
        Err(malformed(CERTIFICATE, "it is no certificate of PayPal's"))
    }
}

/// The time that a request says it was signed at.
pub(super) fn claimed_time(incoming: &Incoming<'_>) -> Option<Timestamp> {
    Timestamp::parse(incoming.headers.get(TIME)?)
}

/// Transmission, time as it is written and as it is meant, and signature.
fn parts<'a>(incoming: &Incoming<'a>) -> Result<(&'a str, &'a str, Timestamp, Vec<u8>), Refused> {
    let id = needed(incoming.headers, TRANSMISSION)?;
    let time = needed(incoming.headers, TIME)?;
    let at = Timestamp::parse(time).ok_or_else(|| malformed(TIME, "it is no RFC 3339 time"))?;
    if needed(incoming.headers, ALGORITHM)? != "SHA256withRSA" {
        return Err(malformed(ALGORITHM, "it is not SHA256withRSA"));
    }
    let signature = BASE64
        .decode(needed(incoming.headers, SIGNATURE)?.as_bytes())
        .map_err(|_where| malformed(SIGNATURE, "it is not base64"))?;
    if !RSA_BYTES.contains(&signature.len()) {
        return Err(malformed(SIGNATURE, "it is as long as no RSA signature"));
    }
    Ok((id, time, at, signature))
}

pub(super) fn verify(
    paypal: &Paypal,
    proof: Proof<'_>,
    incoming: &Incoming<'_>,
    now: Timestamp,
) -> Result<Verified, Refused> {
    let (id, time, at, signature) = parts(incoming)?;
    let sum = crc32fast::hash(incoming.body);
    let message = format!("{id}|{time}|{}|{sum}", paypal.webhook_id);
    let right = match (&paypal.certificates, proof.fetched) {
        (Some(own), _) => {
            certificate::signed_by_any(own, Hash::Sha256, message.as_bytes(), &signature)
        }
        (None, Some(fetched)) => {
            certificate::signed_by_first(fetched, Hash::Sha256, message.as_bytes(), &signature)
        }
        (None, None) => return Err(Refused::NoSecret),
    };
    // A chain costs more than a signature, so it is looked at last.
    if let (true, None, Some(fetched)) = (right, &paypal.certificates, proof.fetched) {
        certificate::vouched_for(fetched, HOST_ENDING, TLS_SERVER_ROOTS, now)?;
    }
    let verified = Verified { secret: 0, signed_at: Some(at) };
    right.then_some(verified).ok_or(Refused::Mismatch)
}
