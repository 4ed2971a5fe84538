//! What a subscription's requests are signed with: a shared secret (`v1`) or an ed25519 key pair (`v1a`), both of
//! Standard Webhooks 1.0.0.
//!
//! Not here: which keys are in force, and checking signatures ([`super::standard`]).

use data_encoding::{BASE64, BASE64_NOPAD};
use ring::signature::{Ed25519KeyPair, KeyPair};
use zeroize::Zeroizing;

use super::signing::{SecretError, SigningSecret};
use super::standard::public_text;
use crate::base::clock::Timestamp;
use crate::base::id::Draw;
use crate::base::secret::SecretBytes;
use crate::model::credential::{CredentialKind, Settings};

const PRIVATE_PREFIX: &str = "whsk_";
const SEED_BYTES: usize = 32;

/// A key that signs requests.
#[derive(Debug)]
pub enum SigningKey {
    /// `whsec_…`
    Shared(SigningSecret),
    /// `whsk_…`
    Ed25519(Ed25519Key),
}

impl SigningKey {
    /// A new key of that kind; `None` when the kind does not sign.
    pub fn generate(kind: CredentialKind, draw: &dyn Draw) -> Option<Self> {
        match kind {
            CredentialKind::Signing => Some(Self::Shared(SigningSecret::generate(draw))),
            CredentialKind::SigningEd25519 => Ed25519Key::generate(draw).map(Self::Ed25519),
            _ => None,
        }
    }

    /// Reads `whsec_…` or `whsk_…`.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        if text.starts_with(PRIVATE_PREFIX) {
            return Ed25519Key::parse(text).map(Self::Ed25519);
        }
        SigningSecret::parse(text).map(Self::Shared)
    }

    /// The text form, which is the same however it was padded.
    pub fn to_text(&self) -> Zeroizing<String> {
        match self {
            Self::Shared(secret) => secret.to_text(),
            Self::Ed25519(key) => key.to_text(),
        }
    }

    /// The settings of its credential.
    pub fn settings(&self) -> Settings {
        match self {
            Self::Shared(_) => Settings::Signing {},
            Self::Ed25519(key) => {
                Settings::SigningEd25519 { public_key: public_text(key.public()) }
            }
        }
    }

    /// One entry of `webhook-signature`.
    pub fn sign(&self, webhook_id: &str, at: Timestamp, body: &[u8]) -> String {
        match self {
            Self::Shared(secret) => secret.sign(webhook_id, at, body),
            Self::Ed25519(key) => {
                let seconds = at.secs().to_string();
                let parts = [webhook_id.as_bytes(), b".", seconds.as_bytes(), b".", body];
                format!("v1a,{}", BASE64.encode(key.pair.sign(&parts.concat()).as_ref()))
            }
        }
    }
}

/// An ed25519 key pair, written as `whsk_` and the base64 of its seed and public key.
#[derive(Debug)]
pub struct Ed25519Key {
    seed: SecretBytes,
    pair: Ed25519KeyPair,
}

impl Ed25519Key {
    fn generate(draw: &dyn Draw) -> Option<Self> {
        let mut seed = vec![0; SEED_BYTES];
        draw.fill(&mut seed);
        Self::of_seed(SecretBytes::new(seed))
    }

    fn of_seed(seed: SecretBytes) -> Option<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed.expose()).ok()?;
        Some(Self { seed, pair })
    }

    /// Reads the base64 of a seed, alone or with its public key, which must belong to it.
    fn parse(text: &str) -> Result<Self, SecretError> {
        let wrong =
            || SecretError::Encoding { encoding: "`whsk_` and the base64 of an ed25519 key" };
        let encoded = text.strip_prefix(PRIVATE_PREFIX).ok_or_else(wrong)?;
        let bytes = BASE64_NOPAD.decode(encoded.trim_end_matches('=').as_bytes());
        let bytes = SecretBytes::new(bytes.map_err(|_where| wrong())?);
        let (seed, public) = bytes.expose().split_at_checked(SEED_BYTES).ok_or_else(wrong)?;
        let key = Self::of_seed(SecretBytes::new(seed.to_vec())).ok_or_else(wrong)?;
        if public.is_empty() || public == key.public() { Ok(key) } else { Err(wrong()) }
    }

    fn public(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    fn to_text(&self) -> Zeroizing<String> {
        let both = Zeroizing::new([self.seed.expose(), self.public()].concat());
        let encoded = Zeroizing::new(BASE64.encode(&both));
        Zeroizing::new(format!("{PRIVATE_PREFIX}{}", encoded.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::SystemDraw;

    #[test]
    fn a_new_key_survives_its_text_form_and_shows_its_public_key() {
        let key = SigningKey::generate(CredentialKind::SigningEd25519, &SystemDraw::new()).unwrap();
        let text = key.to_text();
        let again = SigningKey::parse(&text).unwrap();
        assert_eq!(again.to_text(), text);
        assert_eq!(again.settings(), key.settings());
        // The seed alone is enough.
        let seed = BASE64.decode(&text.as_bytes()[5..]).unwrap()[..32].to_vec();
        let short = format!("whsk_{}", BASE64.encode(&seed));
        assert_eq!(SigningKey::parse(&short).unwrap().to_text(), text);
        let Settings::SigningEd25519 { public_key } = key.settings() else { panic!("of its kind") };
        assert!(public_key.starts_with("whpk_") && public_key.len() == 49, "{public_key}");
        assert!(SigningKey::generate(CredentialKind::Bearer, &SystemDraw::new()).is_none());
    }

    /// RFC 8032, section 7.1, test 1.
    #[test]
    fn a_known_seed_has_its_known_public_key() {
        let seed = data_encoding::HEXLOWER
            .decode(b"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
            .unwrap();
        let key = SigningKey::parse(&format!("whsk_{}", BASE64.encode(&seed))).unwrap();
        let public = data_encoding::HEXLOWER
            .decode(b"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
            .unwrap();
        let public_key = format!("whpk_{}", BASE64.encode(&public));
        assert_eq!(key.settings(), Settings::SigningEd25519 { public_key });
    }

    #[test]
    fn a_wrong_key_is_refused_with_the_reason() {
        let of = |bytes: usize| format!("whsk_{}", BASE64.encode(&vec![9; bytes]));
        for text in ["whsk_".to_owned(), "whsk_*".to_owned(), of(31), of(33), of(64)] {
            let refused = SigningKey::parse(&text).unwrap_err();
            assert!(matches!(refused, SecretError::Encoding { .. }), "{text}: {refused}");
        }
        let public = SigningKey::parse("whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=");
        assert_eq!(public.unwrap_err(), SecretError::NoPrefix { prefix: "whsec_" });
    }
}
