//! Checks signatures made with a provider's X.509 certificate, and the certificate's chain.
//!
//! Not here: fetching a certificate ([`super::certificate_cache`]).

use std::time::Duration;

use data_encoding::BASE64;
use ring::signature::{
    RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_2048_8192_SHA256, RsaParameters,
    UnparsedPublicKey,
};
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage};

use super::check::{Refused, bad_body};
use super::signing::Hash;
use crate::base::clock::Timestamp;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";
/// Certificates read of one chain at most.
const MAX_CHAIN: usize = 8;

/// Lengths of RSA signatures in bytes: keys have 2,048 to 4,096 bits.
pub(super) const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=512;

/// Checks a signature against the certificates in the settings, which are trusted, or else against the first fetched
/// one, whose chain the caller checks.
pub(super) fn check_signature(
    entered: Option<&str>,
    fetched: Option<&[u8]>,
    hash: Hash,
    message: &[u8],
    signature: &[u8],
) -> Result<(), Refused> {
    let signed = |der: &CertificateDer<'_>| signed_by(der, hash, message, signature);
    let is_right = match (entered, fetched) {
        (Some(text), _) => pem(text.as_bytes()).iter().any(signed),
        // Must begin with a certificate: a web page that contains one is not accepted.
        (None, Some(text)) => {
            text.starts_with(BEGIN.as_bytes()) && pem(text).first().is_some_and(signed)
        }
        (None, None) => return Err(Refused::NoSecret),
    };
    is_right.then_some(()).ok_or(Refused::Mismatch)
}

/// Checks the certificates in a scheme's settings: all of them must be readable.
pub(super) fn check_entered(text: Option<&str>) -> Result<(), String> {
    let found = text.map(|text| pem(text.as_bytes()));
    if found.is_none_or(|found| !found.is_empty() && found.iter().all(|der| key(der).is_some())) {
        return Ok(());
    }
    Err("`certificates` must be PEM certificates with RSA keys".to_owned())
}

/// The certificates in a PEM text, in order.
fn pem(text: &[u8]) -> Vec<CertificateDer<'static>> {
    let Ok(text) = std::str::from_utf8(text) else { return Vec::new() };
    let blocks = text.split(BEGIN).skip(1).filter_map(|rest| rest.split_once(END));
    let encoded = blocks.map(|(inside, _)| {
        inside.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect::<Vec<u8>>()
    });
    encoded
        .filter_map(|encoded| BASE64.decode(&encoded).ok())
        .map(CertificateDer::from)
        .take(MAX_CHAIN)
        .collect()
}

/// Checks the chain of the first certificate: through the others to one of the roots, valid at that time, and issued
/// for a host name with this ending.
pub(super) fn check_chain(
    text: &[u8],
    ending: &str,
    roots: &[TrustAnchor<'_>],
    now: Timestamp,
) -> Result<(), Refused> {
    let chain = pem(text);
    let Some((first, others)) = chain.split_first() else {
        return Err(bad_body("the fetched text contains no certificate"));
    };
    let leaf = EndEntityCert::try_from(first)
        .map_err(|_why| bad_body("the fetched certificate cannot be read"))?;
    let seconds = u64::try_from(now.secs()).unwrap_or(0);
    let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    leaf.verify_for_usage(
        ALL_VERIFICATION_ALGS,
        roots,
        others,
        time,
        KeyUsage::server_auth(),
        None,
        None,
    )
    .map_err(|_why| bad_body("the fetched certificate has no valid chain to a trusted root"))?;
    let named = leaf.valid_dns_names().any(|name| name.to_ascii_lowercase().ends_with(ending));
    if named { Ok(()) } else { Err(bad_body("the fetched certificate belongs to another host")) }
}

fn signed_by(der: &CertificateDer<'_>, hash: Hash, message: &[u8], signature: &[u8]) -> bool {
    let parameters: &RsaParameters = match hash {
        Hash::Sha1 => &RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY,
        Hash::Sha256 => &RSA_PKCS1_2048_8192_SHA256,
        Hash::Sha512 => return false,
    };
    let public = key(der).map(|key| UnparsedPublicKey::new(parameters, key));
    public.is_some_and(|public| public.verify(message, signature).is_ok())
}

/// The RSA key of a certificate in ring's form: the content of the bit string of its public key.
fn key(der: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let certificate = EndEntityCert::try_from(der).ok()?;
    let info = certificate.subject_public_key_info();
    let (inside, _) = value(0x30, info.as_ref())?;
    let (_algorithm, rest) = value(0x30, inside)?;
    let (bits, _) = value(0x03, rest)?;
    // The first byte counts the unused bits of the last one; it must be 0.
    bits.strip_prefix(&[0]).map(<[u8]>::to_vec)
}

/// The value of a DER element with that tag, and the bytes after it.
fn value(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, rest) = der.split_first()?;
    let (first, rest) = rest.split_first().filter(|_| *head == tag)?;
    let (length, rest) = match first {
        0..=127 => (usize::from(*first), rest),
        0x81 => rest.split_first().map(|(byte, rest)| (usize::from(*byte), rest))?,
        0x82 => {
            let (bytes, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*bytes)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

    use super::*;

    /// A root, and a certificate signed by it for this name, in PEM.
    fn chain(name: &str) -> (CertificateDer<'static>, String) {
        let mut root = CertificateParams::new(Vec::new()).unwrap();
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = CertifiedIssuer::self_signed(root, KeyPair::generate().unwrap()).unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let leaf = params.signed_by(&KeyPair::generate().unwrap(), &root).unwrap();
        (CertificateDer::from(root.der().to_vec()), leaf.pem())
    }

    #[test]
    fn a_certificate_needs_a_chain_to_a_root_and_the_hosts_name() {
        let now = Timestamp::from_secs(1_769_860_800);
        let (root, leaf) = chain("messageverificationcerts.paypal.com");
        let (other_root, _) = chain("messageverificationcerts.paypal.com");
        let roots = [webpki::anchor_from_trusted_cert(&root).unwrap()];
        let others = [webpki::anchor_from_trusted_cert(&other_root).unwrap()];
        let judge = |text: &str, roots: &[TrustAnchor<'_>], now| {
            check_chain(text.as_bytes(), ".paypal.com", roots, now).is_ok()
        };
        assert!(judge(&leaf, &roots, now));
        assert!(!judge(&leaf, &others, now), "another root");
        assert!(!judge(&leaf, webpki_roots::TLS_SERVER_ROOTS, now), "the web's roots");
        assert!(!judge(&leaf, &roots, Timestamp::from_secs(1_000_000)), "not valid yet");
        assert!(!judge("no certificate", &roots, now));
        for name in ["paypal.com.evil.example", "evilpaypal.com", "www.example.com"] {
            let (root, leaf) = chain(name);
            let roots = [webpki::anchor_from_trusted_cert(&root).unwrap()];
            assert!(!judge(&leaf, &roots, now), "{name}");
        }
    }

    #[test]
    fn truncated_or_too_long_der_has_no_value() {
        assert_eq!(value(0x30, &[0x30, 2, 1, 2, 3]), Some((&[1_u8, 2][..], &[3_u8][..])));
        for der in [&[][..], &[0x30], &[0x31, 0], &[0x30, 3, 1], &[0x30, 0x82, 1], &[0x30, 0x84, 0]]
        {
            assert_eq!(value(0x30, der), None);
        }
    }
}
