//! What a request can be told by that is sent again under another id: its signed bytes, where the id is none of them.
//!
//! Not here: looking for it, and for how long it counts, which is the store's and the provider's.

use std::borrow::Cow;

use super::Scheme;
use super::check::Incoming;
use super::signing::{Hash, mac};
use super::twilio;

/// Bytes of a fingerprint.
const BYTES: usize = 16;

impl Scheme {
    /// A digest of what was signed, and of the event's type, under the secret that it was signed with. `None` where
    /// the signature covers the id, so that nobody can change it, and where nothing is signed at all: anybody who has
    /// seen such a request has the secret. The type counts because a provider may send one body under several.
    pub fn fingerprint(
        &self,
        secret: &[u8],
        incoming: &Incoming<'_>,
        event_type: &str,
    ) -> Option<Vec<u8>> {
        let signed = self.signed_without_id(incoming)?;
        let signed = signed.iter().map(AsRef::as_ref);
        let parts: Vec<&[u8]> = [event_type.as_bytes(), b"\0"].into_iter().chain(signed).collect();
        let mut digest = mac(Hash::Sha256, secret, &parts);
        digest.truncate(BYTES);
        Some(digest)
    }

    /// What is signed, in the one form in which it is, where the id stands outside of it.
    fn signed_without_id<'a>(&'a self, incoming: &Incoming<'a>) -> Option<Vec<Cow<'a, [u8]>>> {
        match self {
            Self::HmacHeader(scheme) => {
                scheme.has_unsigned_id().then(|| vec![incoming.body.into()])
            }
            // Only where it has no SID, but then its token is not signed.
            Self::Twilio => Some(vec![twilio::signed(incoming)]),
            Self::Generic(generic) => {
                let parts = generic.signed_without_id(incoming)?;
                Some(parts.into_iter().map(Cow::Borrowed).collect())
            }
            // The id is a signed header (Standard Webhooks, a signing token of GitLab), stands in the signed body
            // or in one with a token that is used up, or nothing is signed.
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
    fn it_follows_from_the_scheme_where_the_id_is_not_signed() {
        let incoming = Incoming {
            method: "POST",
            path: "/",
            url: "",
            headers: &Headers::default(),
            body: b"{}",
        };
        let told = kinds().filter_map(Scheme::of).filter_map(|scheme| {
            scheme.fingerprint(b"secret", &incoming, "a").map(|_digest| scheme.kind())
        });
        let told: Vec<_> = told.collect();
        let unsigned = ["github", "shopify", "twilio", "woocommerce", "gitea", "forgejo", "linear"];
        assert_eq!(told.len(), unsigned.len(), "{told:?}");
        assert!(unsigned.iter().all(|kind| told.contains(kind)), "{told:?}");
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
