//! Signs outgoing requests (Standard Webhooks `v1`); and the HMAC, comparison and encodings that all schemes use.
//!
//! Not here: verifying incoming requests ([`super::Scheme`]), and which secret is in force.

use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};
use ring::{digest, hmac};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::base::clock::Timestamp;
use crate::base::id::Draw;
use crate::base::secret::SecretBytes;
use crate::base::words::words;

const PREFIX: &str = "whsec_";
/// Source: Standard Webhooks 1.0.0, "Signature scheme": secrets have 24 to 64 bytes.
const BYTES_MIN: usize = 24;
const MAX_BYTES: usize = 64;
const BYTES_NEW: usize = 32;

/// Why a text cannot serve as a secret, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The scheme has no secret.
    #[error("this scheme has no secret: its providers sign with a certificate")]
    None,
    /// The text is empty.
    #[error("the secret is empty; copy it from the provider's webhook settings")]
    Empty,
    /// It contains white space or a control character, most often from pasting.
    #[error("the secret contains white space or a control character; paste it again without")]
    Blank,
    /// Too long to be a secret.
    #[error("the secret has {bytes} bytes; at most {max} are accepted, so this is something else")]
    Long {
        /// Its length.
        bytes: usize,
        /// The longest accepted.
        max: usize,
    },
    /// Too short to be safe.
    #[error(
        "the secret has {bytes} bytes, at least {min} are needed; set a longer one on both sides"
    )]
    Short {
        /// Its length, once decoded.
        bytes: usize,
        /// The shortest accepted.
        min: usize,
    },
    /// It lacks the prefix of the scheme's secrets.
    #[error("the secret does not begin with `{prefix}`; copy the signing secret, not an API key")]
    NoPrefix {
        /// The expected prefix.
        prefix: &'static str,
    },
    /// The text is not in the encoding that the scheme or the settings require.
    #[error("the secret is not {encoding}; copy all of it, or set its encoding")]
    Encoding {
        /// The expected encoding.
        encoding: &'static str,
    },
    /// Standard Webhooks secrets have 24 to 64 bytes.
    #[error("the secret has {bytes} bytes, Standard Webhooks requires 24 to 64; make a new one")]
    Length {
        /// Its length, once decoded.
        bytes: usize,
    },
}

/// A symmetric secret of Standard Webhooks 1.0.0: 24 to 64 bytes, written as `whsec_` and base64.
///
/// ```
/// use oncebox::base::clock::Timestamp;
/// use oncebox::signatures::signing::SigningSecret;
/// let secret = SigningSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
/// let at = Timestamp::from_secs(1_614_265_330);
/// let signed = secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", at, br#"{"test": 2432232314}"#);
/// assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
/// # Ok::<(), oncebox::signatures::signing::SecretError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningSecret(SecretBytes);

impl SigningSecret {
    /// A new secret of 32 random bytes.
    pub fn generate(draw: &dyn Draw) -> Self {
        let mut bytes = vec![0; BYTES_NEW];
        draw.fill(&mut bytes);
        Self(SecretBytes::new(bytes))
    }

    /// Reads `whsec_…`, with or without the padding of base64.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        if text.is_empty() {
            return Err(SecretError::Empty);
        }
        let encoded = text.strip_prefix(PREFIX).ok_or(SecretError::NoPrefix { prefix: PREFIX })?;
        let bytes = BASE64_NOPAD
            .decode(encoded.trim_end_matches('=').as_bytes())
            .map_err(|_where| SecretError::Encoding { encoding: "base64 after `whsec_`" })?;
        let bytes = SecretBytes::new(bytes);
        if !(BYTES_MIN..=MAX_BYTES).contains(&bytes.expose().len()) {
            return Err(SecretError::Length { bytes: bytes.expose().len() });
        }
        Ok(Self(bytes))
    }

    /// The text form: `whsec_` and padded base64.
    pub fn to_text(&self) -> Zeroizing<String> {
        let encoded = Zeroizing::new(BASE64.encode(self.0.expose()));
        Zeroizing::new(format!("{PREFIX}{}", encoded.as_str()))
    }

    /// One entry of `webhook-signature`: `v1,` and the base64 of HMAC-SHA256 over `id.seconds.body`.
    ///
    /// `at` is the time of this attempt, which also goes into `webhook-timestamp` in whole seconds.
    pub fn sign(&self, webhook_id: &str, at: Timestamp, body: &[u8]) -> String {
        let seconds = at.secs().to_string();
        format!("v1,{}", BASE64.encode(&self.mac(webhook_id, &seconds, body)))
    }

    /// The signature's bytes; `seconds` is the text of the timestamp header.
    pub(super) fn mac(&self, webhook_id: &str, seconds: &str, body: &[u8]) -> Vec<u8> {
        let parts = [webhook_id.as_bytes(), b".", seconds.as_bytes(), b".", body];
        mac(Hash::Sha256, self.0.expose(), &parts)
    }
}

words! {
    /// The hash function of an HMAC.
    #[derive(Default)]
    pub enum Hash {
        /// SHA-256: 32 bytes.
        #[default]
        Sha256 = "sha256",
        /// SHA-1: 20 bytes. Only for providers that offer nothing else.
        Sha1 = "sha1",
        /// SHA-512: 64 bytes.
        Sha512 = "sha512",
    }
}

/// The HMAC of the concatenated parts.
///
/// ```
/// use oncebox::signatures::signing::{Hash, mac};
/// assert_eq!(mac(Hash::Sha256, b"k", &[b"a", b"bc"]), mac(Hash::Sha256, b"k", &[b"abc"]));
/// ```
pub fn mac(hash: Hash, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let algorithm = match hash {
        Hash::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        Hash::Sha256 => hmac::HMAC_SHA256,
        Hash::Sha512 => hmac::HMAC_SHA512,
    };
    let mut context = hmac::Context::with_key(&hmac::Key::new(algorithm, key));
    for part in parts {
        context.update(part);
    }
    context.sign().as_ref().to_vec()
}

/// Whether two signatures are equal, in constant time; their length is public.
pub fn same(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

/// Whether two shared secrets are equal, in constant time and without revealing the length of the right one.
pub fn same_secret(one: &[u8], other: &[u8]) -> bool {
    let one = digest::digest(&digest::SHA256, one);
    let other = digest::digest(&digest::SHA256, other);
    same(one.as_ref(), other.as_ref())
}

words! {
    /// The encoding of a signature.
    #[derive(Default)]
    pub enum Encoding {
        /// Hex digits of either case.
        #[default]
        Hex = "hex",
        /// Base64 with its padding.
        Base64 = "base64",
        /// Base64 with `-` and `_`, padding or not.
        Base64url = "base64url",
    }
}

words! {
    /// The encoding of a secret.
    #[derive(Default)]
    pub enum SecretEncoding {
        /// The text is the key.
        #[default]
        Utf8 = "utf8",
        /// The text is the base64 of the key, padding or not.
        Base64 = "base64",
        /// The text is the hex of the key.
        Hex = "hex",
    }
}

impl Encoding {
    pub(super) fn decode(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::Hex => HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok(),
            Self::Base64 => BASE64.decode(text.as_bytes()).ok(),
            Self::Base64url => BASE64URL_NOPAD.decode(text.trim_end_matches('=').as_bytes()).ok(),
        }
    }

    pub(super) fn encode(self, bytes: &[u8]) -> String {
        match self {
            Self::Hex => HEXLOWER.encode(bytes),
            Self::Base64 => BASE64.encode(bytes),
            Self::Base64url => BASE64URL_NOPAD.encode(bytes),
        }
    }
}

impl SecretEncoding {
    pub(super) fn key(self, secret: &[u8]) -> Result<Zeroizing<Vec<u8>>, SecretError> {
        let text = secret.trim_ascii_end();
        let unpadded = text.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
        let (decoded, encoding) = match self {
            Self::Utf8 => return Ok(Zeroizing::new(secret.to_vec())),
            Self::Base64 => {
                (BASE64_NOPAD.decode(text.get(..unpadded).unwrap_or_default()), "base64")
            }
            Self::Hex => (HEXLOWER_PERMISSIVE.decode(text), "hex"),
        };
        decoded.map(Zeroizing::new).map_err(|_where| SecretError::Encoding { encoding })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::SystemDraw;

    #[test]
    fn a_new_secret_survives_its_text_form() {
        let secret = SigningSecret::generate(&SystemDraw::new());
        let text = secret.to_text();
        assert_eq!(SigningSecret::parse(&text), Ok(secret.clone()));
        assert_eq!(SigningSecret::parse(text.trim_end_matches('=')), Ok(secret));
    }

    #[test]
    fn a_wrong_secret_is_refused_with_the_reason() {
        let of = |bytes: usize| format!("whsec_{}", BASE64.encode(&vec![9; bytes]));
        assert_eq!(SigningSecret::parse(""), Err(SecretError::Empty));
        assert_eq!(
            SigningSecret::parse("sk_live_1"),
            Err(SecretError::NoPrefix { prefix: "whsec_" })
        );
        assert!(matches!(SigningSecret::parse("whsec_*"), Err(SecretError::Encoding { .. })));
        assert_eq!(SigningSecret::parse(&of(23)), Err(SecretError::Length { bytes: 23 }));
        assert_eq!(SigningSecret::parse(&of(65)), Err(SecretError::Length { bytes: 65 }));
        assert!(SigningSecret::parse(&of(24)).is_ok() && SigningSecret::parse(&of(64)).is_ok());
    }

    #[test]
    fn shared_secrets_of_different_length_are_different() {
        assert!(same_secret(b"abc", b"abc"));
        assert!(!same_secret(b"abc", b"abcd") && !same_secret(b"", b"a"));
    }
}
