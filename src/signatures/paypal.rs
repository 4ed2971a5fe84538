//! PayPal: RSA over transmission id, time, webhook id and the body's CRC-32, with a certificate that the request
//! names. Only certificates on PayPal's own hosts are accepted.
//!
//! It is easy to make another body with an equal CRC-32, so each transmission id is accepted with one body only
//! ([`super::Scheme::nonce`]).

use webpki_roots::TLS_SERVER_ROOTS;

use super::certificate::{RSA_BYTES, check_chain, check_entered, check_signature};
use super::check::{Incoming, Refused, Verified, malformed, needed, needed_base64};
use super::naming::Facts;
use super::naming::Locator::Body;
use super::signing::Hash;
use crate::base::clock::Timestamp;

pub(super) const TRANSMISSION: &str = "paypal-transmission-id";
pub(super) const TIME: &str = "paypal-transmission-time";
const SIGNATURE: &str = "paypal-transmission-sig";
const CERTIFICATE: &str = "paypal-cert-url";
const ALGORITHM: &str = "paypal-auth-algo";
const HOST_ENDING: &str = ".paypal.com";
const PATH_BEGINNING: &str = "v1/notifications/certs/";

pub(super) static FACTS: Facts = Facts {
    ids: &[Body(&["id"])],
    types: &[Body(&["event_type"])],
    kept: &[TRANSMISSION, TIME],
    ..Facts::new("paypal", "PAYMENT.CAPTURE.COMPLETED")
};

/// Settings of `paypal`.
#[derive(
    Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct Paypal {
    /// The id that PayPal's console shows for the webhook. It is signed, but not part of any request.
    #[schemars(length(min = 8, max = 64))]
    pub webhook_id: String,
    /// PayPal's certificates, PEM, for machines that cannot fetch them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<String>,
}

impl Paypal {
    pub(super) fn check(&self) -> Result<(), String> {
        let is_id = self.webhook_id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if is_id && (8..=64).contains(&self.webhook_id.len()) {
            return check_entered(self.certificates.as_deref());
        }
        Err("`webhook_id` is the webhook's id in PayPal's console: 8 to 64 letters and digits"
            .to_owned())
    }
}

/// The URL of the certificate.
pub(super) fn certificate_url(incoming: &Incoming<'_>) -> Result<String, Refused> {
    // Nothing is fetched for a request that would be refused anyway.
    let _signed = parts(incoming)?;
    let url = needed(incoming.headers, CERTIFICATE)?;
    if is_own(url) {
        return Ok(url.to_owned());
    }
    Err(malformed(CERTIFICATE, "it is not a certificate on PayPal's hosts"))
}

/// Whether a URL names a certificate on one of PayPal's hosts, without user, port or query.
fn is_own(url: &str) -> bool {
    let Some((host, path)) = url.strip_prefix("https://").and_then(|url| url.split_once('/'))
    else {
        return false;
    };
    let is_word = |text: &str, marks: &[u8]| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || marks.contains(&b))
    };
    let name = path.strip_prefix(PATH_BEGINNING).unwrap_or_default();
    is_word(host, b".-") && host.to_ascii_lowercase().ends_with(HOST_ENDING) && is_word(name, b"-_")
}

/// The transmission id, the time as text and parsed, and the signature.
fn parts<'a>(incoming: &Incoming<'a>) -> Result<(&'a str, &'a str, Timestamp, Vec<u8>), Refused> {
    let id = needed(incoming.headers, TRANSMISSION)?;
    let time = needed(incoming.headers, TIME)?;
    let at = Timestamp::parse(time).ok_or_else(|| malformed(TIME, "it is not an RFC 3339 time"))?;
    if needed(incoming.headers, ALGORITHM)? != "SHA256withRSA" {
        return Err(malformed(ALGORITHM, "it is not SHA256withRSA"));
    }
    let signature = needed_base64(incoming.headers, SIGNATURE)?;
    if !RSA_BYTES.contains(&signature.len()) {
        return Err(malformed(SIGNATURE, "it does not have the length of an RSA signature"));
    }
    Ok((id, time, at, signature))
}

pub(super) fn verify(
    paypal: &Paypal,
    fetched: Option<&[u8]>,
    incoming: &Incoming<'_>,
    now: Timestamp,
) -> Result<Verified, Refused> {
    let (id, time, at, signature) = parts(incoming)?;
    let sum = crc32fast::hash(incoming.body);
    let message = format!("{id}|{time}|{}|{sum}", paypal.webhook_id);
    let entered = paypal.certificates.as_deref();
    check_signature(entered, fetched, Hash::Sha256, message.as_bytes(), &signature)?;
    // A chain costs more than a signature, so it is checked last.
    if let (None, Some(fetched)) = (entered, fetched) {
        check_chain(fetched, HOST_ENDING, TLS_SERVER_ROOTS, now)?;
    }
    Ok(Verified { secret: 0, signed_at: Some(at) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_url_has_a_host_of_paypal_and_a_name() {
        let path = "/v1/notifications/certs/CERT-360caa42";
        assert!(is_own(&format!("https://api.PayPal.com{path}")));
        for host in [
            "http://api.paypal.com",
            "https://api.paypal.com:8443",
            "https://api.paypal.com@evil.example",
            "https://evil.example#.paypal.com",
            "https://evil.example?.paypal.com",
            "https://evilpaypal.com",
            "//api.paypal.com",
            "",
        ] {
            assert!(!is_own(&format!("{host}{path}")), "{host}");
        }
        for path in ["", "/", "/a", "/v1/notifications/certs/", "/v1/notifications/certs/a/b"] {
            assert!(!is_own(&format!("https://api.paypal.com{path}")), "{path}");
        }
        for end in ["?a", "#a", "%2e"] {
            assert!(!is_own(&format!("https://api.paypal.com{path}{end}")), "{end}");
        }
    }
}
