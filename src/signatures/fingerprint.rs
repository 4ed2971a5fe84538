//! The token or the fingerprint of a signed request: recognises a recorded request that is sent again under another, unsigned id.
//!
//! Not here: looking it up (store), and for how long it counts (the provider's settings).

use std::borrow::Cow;

use super::check::Incoming;
use super::signing::{Hash, mac};
use super::{Scheme, mailgun, paypal, twilio};

/// Bytes of a fingerprint.
const BYTES: usize = 16;

/// A digest of bytes and the event's type, keyed with a secret.
pub fn of<'a>(
    secret: &[u8],
    event_type: &'a str,
    bytes: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<u8> {
    let parts: Vec<&[u8]> = [event_type.as_bytes(), b"\0"].into_iter().chain(bytes).collect();
    let mut digest = mac(Hash::Sha256, secret, &parts);
    digest.truncate(BYTES);
    digest
}

impl Scheme {
    /// The token of a request that may be used with one body only. Schemes whose signature does not cover the body
    /// need it: otherwise a recorded signature would be valid for any body.
    pub fn nonce(&self, incoming: &Incoming<'_>) -> Option<String> {
        match self {
            Self::Mailgun => mailgun::signed_field(incoming, "token"),
            Self::Paypal(_) => incoming.headers.get(paypal::TRANSMISSION).map(str::to_owned),
            _ => None,
        }
    }

    /// A digest of the signed bytes and the event's type, keyed with the secret. `None` if the signature covers the
    /// id, so that nobody can change it, or if nothing is signed, because then a recorded request reveals the secret.
    /// The type is included because a provider may send one body under several types.
    pub fn fingerprint(
        &self,
        secret: &[u8],
        incoming: &Incoming<'_>,
        event_type: &str,
    ) -> Option<Vec<u8>> {
        let signed = self.signed_without_id(incoming)?;
        Some(of(secret, event_type, signed.iter().map(AsRef::as_ref)))
    }

    /// The signed bytes in their canonical form, if they do not contain the id.
    fn signed_without_id<'a>(&'a self, incoming: &Incoming<'a>) -> Option<Vec<Cow<'a, [u8]>>> {
        match self {
            Self::HmacHeader(scheme) => {
                scheme.has_unsigned_id().then(|| vec![incoming.body.into()])
            }
            // Without a SID the id is Twilio's token, which is not signed.
            Self::Twilio => Some(vec![twilio::signed(incoming)]),
            Self::Generic(generic) => {
                let parts = generic.signed_without_id(incoming)?;
                Some(parts.into_iter().map(Cow::Borrowed).collect())
            }
            // The id is a signed header (Standard Webhooks, a signing token of GitLab), is in the signed body or in
            // a body with a one-time token, or nothing is signed.
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::kinds;
    use super::*;
    use crate::base::headers::Headers;

    #[test]
    fn schemes_with_an_unsigned_id_have_a_fingerprint() {
        let incoming = Incoming {
            method: "POST",
            path: "/",
            url: "",
            headers: &Headers::default(),
            body: b"{}",
        };
        let found = kinds().filter_map(Scheme::of).filter_map(|scheme| {
            scheme.fingerprint(b"secret", &incoming, "a").map(|_digest| scheme.kind())
        });
        let found: Vec<_> = found.collect();
        let unsigned = ["github", "shopify", "twilio", "woocommerce", "gitea", "forgejo", "linear"];
        assert_eq!(found.len(), unsigned.len(), "{found:?}");
        assert!(unsigned.iter().all(|kind| found.contains(kind)), "{found:?}");
        for (check, is_unsigned) in [
            (r#"{"hmac":{"signed":"{body}","header":"S"}}"#, true),
            (r#"{"ed25519":{"signed":"{body}","header":"S"}}"#, true),
            (r#"{"hmac":{"signed":"{id}{body}","header":"S"}}"#, false),
            (r#"{"hmac":{"signed":"{header:x-ID}{body}","header":"S"}}"#, false),
            (r#"{"token":{"header":"S"}}"#, false),
            (r#"{"basic":{"user":"u"}}"#, false),
        ] {
            let mut headers = Headers::default();
            headers.push("x-id", b"1");
            let incoming = Incoming { headers: &headers, ..incoming };
            let of = |id: &str| -> Scheme {
                let text = format!(r#"{{"kind":"generic","check":{check},"event_id":{id}}}"#);
                serde_json::from_str(&text).unwrap()
            };
            let in_header = of(r#"{"header":"X-Id"}"#).fingerprint(b"s", &incoming, "a");
            assert_eq!(in_header.is_some(), is_unsigned, "{check}");
            if !check.contains("{id}") {
                let in_body = of(r#"{"pointer":"/id"}"#).fingerprint(b"s", &incoming, "a");
                assert_eq!(in_body, None, "{check}");
            }
        }
    }
}
