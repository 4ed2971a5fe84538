//! Key pairs for samples of schemes that are checked with a public key: made here, kept by whoever tries them.
//!
//! Not here: what is signed ([`crate::signatures::sample`]).

use std::path::Path;

use data_encoding::BASE64;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use zeroize::Zeroizing;

use crate::base::id::{Draw, SystemDraw};
use crate::cli::secrets::unwritable;
use crate::cli::{Failure, exit};
use crate::signatures::Scheme;
use crate::sys::files;

/// How private keys of `v1a` begin; 32 bytes of the private and 32 of the public key follow, in base64.
const PREFIX: &str = "whsk_";
const SEED_BYTES: usize = 32;

/// A private key that signs samples.
pub(super) enum KeyPair {
    /// Of Standard Webhooks `v1a`.
    Ed25519(Ed25519KeyPair),
    /// Of SendGrid, in PKCS#8.
    P256(EcdsaKeyPair),
}

impl KeyPair {
    /// Reads a private key; `None` where the scheme's secrets are no key pairs.
    pub(super) fn read(scheme: &Scheme, text: &str) -> Result<Option<Self>, Failure> {
        let pair = match scheme {
            Scheme::Standard => {
                let Some(text) = text.strip_prefix(PREFIX) else { return Ok(None) };
                let bytes = BASE64.decode(text.as_bytes()).map(Zeroizing::new).ok();
                let halves = bytes.as_ref().and_then(|bytes| bytes.split_at_checked(SEED_BYTES));
                halves
                    .and_then(|(seed, key)| {
                        Ed25519KeyPair::from_seed_and_public_key(seed, key).ok()
                    })
                    .map(Self::Ed25519)
            }
            Scheme::Sendgrid => {
                let bytes = BASE64.decode(text.as_bytes()).map(Zeroizing::new).ok();
                bytes.as_ref().and_then(|bytes| p256(bytes)).map(Self::P256)
            }
            _ => return Ok(None),
        };
        pair.map(Some)
            .ok_or_else(|| Failure::input("the secret file holds no private key").and(make(scheme)))
    }

    /// Makes a pair. The private key goes into a new file, the public one beside it, which is returned.
    pub(super) fn create(scheme: &Scheme, path: &Path) -> Result<std::path::PathBuf, Failure> {
        let public_path = path.with_added_extension("pub");
        for path in [path, &public_path] {
            if path.exists() {
                let why = format!("{} is there already; nothing was overwritten", path.display());
                return Err(Failure::new(exit::CONFLICT, why));
            }
        }
        let (private, public) = match scheme {
            Scheme::Standard => {
                let mut seed = Zeroizing::new([0_u8; SEED_BYTES]);
                SystemDraw::new().fill(seed.as_mut_slice());
                let pair = Ed25519KeyPair::from_seed_unchecked(seed.as_slice())
                    .map_err(Failure::failed)?;
                let public = pair.public_key().as_ref().to_vec();
                let both = Zeroizing::new([seed.as_slice(), &public].concat());
                (Zeroizing::new(format!("{PREFIX}{}", BASE64.encode(&both))), public)
            }
            Scheme::Sendgrid => {
                let made = EcdsaKeyPair::generate_pkcs8(
                    &ECDSA_P256_SHA256_ASN1_SIGNING,
                    &SystemRandom::new(),
                );
                let made = made.map_err(Failure::failed)?;
                let pair = p256(made.as_ref()).ok_or_else(|| Failure::failed("no key was made"))?;
                let private = Zeroizing::new(BASE64.encode(made.as_ref()));
                (private, pair.public_key().as_ref().to_vec())
            }
            _ => {
                let why =
                    format!("{} is not checked with a public key: a secret signs", scheme.kind());
                return Err(Failure::new(exit::USAGE, why));
            }
        };
        let public = scheme.public_text(&public).unwrap_or_default();
        for (path, line) in [(path, private.as_str()), (&public_path, &public)] {
            let line = Zeroizing::new(format!("{line}\n"));
            files::write_private(path, line.as_bytes())
                .map_err(|error| unwritable(path, &error))?;
        }
        Ok(public_path)
    }

    /// The signature of a message.
    pub(super) fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Ed25519(pair) => Some(pair.sign(message).as_ref().to_vec()),
            Self::P256(pair) => pair
                .sign(&SystemRandom::new(), message)
                .ok()
                .map(|signature| signature.as_ref().to_vec()),
        }
    }
}

/// How a pair is made.
pub(super) fn make(scheme: &Scheme) -> String {
    format!("Sign with a pair of your own: oncebox trigger {} --new-key FILE", scheme.kind())
}

fn p256(pkcs8: &[u8]) -> Option<EcdsaKeyPair> {
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8, &SystemRandom::new()).ok()
}
