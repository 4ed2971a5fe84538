//! Encodings of signatures and secrets.

use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::signing::SecretError;

/// The encoding of a signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// Hex digits of either case.
    #[default]
    Hex,
    /// Base64 with its padding.
    Base64,
    /// Base64 with `-` and `_`, padding or not.
    Base64url,
}

/// The encoding of a secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecretEncoding {
    /// The text is the key.
    #[default]
    Utf8,
    /// The text is the base64 of the key, padding or not.
    Base64,
    /// The text is the hex of the key.
    Hex,
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
