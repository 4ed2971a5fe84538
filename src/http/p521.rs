//! ECDSA signatures over the curve P-521, which `ring` lacks: company authorities and devices that inspect TLS use it.
//!
//! Only signatures of servers and of authorities are checked. Keys of our own are never on this curve.

use p521::ecdsa::signature::hazmat::PrehashVerifier;
use p521::ecdsa::{Signature, VerifyingKey};
use ring::digest::{Algorithm, SHA384, SHA512, digest};
use rustls::pki_types::{
    AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, alg_id,
};

/// ECDSA with P-521 and SHA-384.
pub(super) static P521_SHA384: &dyn SignatureVerificationAlgorithm =
    &P521 { hash: &SHA384, signature_id: alg_id::ECDSA_SHA384 };
/// ECDSA with P-521 and SHA-512.
pub(super) static P521_SHA512: &dyn SignatureVerificationAlgorithm =
    &P521 { hash: &SHA512, signature_id: alg_id::ECDSA_SHA512 };

#[derive(Debug)]
struct P521 {
    hash: &'static Algorithm,
    signature_id: AlgorithmIdentifier,
}

impl SignatureVerificationAlgorithm for P521 {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let key = VerifyingKey::from_sec1_bytes(public_key).map_err(invalid)?;
        let signature = Signature::from_der(signature).map_err(invalid)?;
        let hash = digest(self.hash, message);
        key.verify_prehash(hash.as_ref(), &signature).map_err(invalid)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_P521
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.signature_id
    }
}

fn invalid(_why: p521::ecdsa::Error) -> InvalidSignature {
    InvalidSignature
}
