//! TLS client certificates: the PEM that a person brings, checked before it is stored and before it is used.
//!
//! Not here: who presents which ([`crate::pipeline`]).

use std::sync::Arc;

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls_pki_types::pem::{PemObject, SectionKind};
use zeroize::Zeroizing;

use crate::base::clock::Timestamp;
use crate::base::text::without_mark;
use crate::http::certificate::valid_until;

/// Certificates of one chain at most.
const MAX_CHAIN: usize = 8;

/// A certificate, its chain and its key.
pub struct Identity {
    /// The SHA-256 of the certificate, in hex.
    pub fingerprint: String,
    /// When the certificate expires.
    pub valid_until: Timestamp,
    /// Certificates and key as they were brought.
    #[cfg(feature = "kafka")]
    pub pem: Zeroizing<String>,
    certified: Arc<SingleCertAndKey>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({})", self.fingerprint)
    }
}

impl Identity {
    /// Reads a certificate, then its chain, and an unencrypted key anywhere between them.
    /// The error says what is wrong and what to do.
    pub fn read(pem: &str) -> Result<Self, String> {
        if pem.contains("ENCRYPTED") {
            let how = "decrypt it with: openssl pkey -in KEY.pem";
            return Err(format!("the private key is encrypted; {how}"));
        }
        let mut chain = Vec::new();
        let mut keys = Vec::new();
        for item in <(SectionKind, Vec<u8>)>::pem_slice_iter(without_mark(pem.as_bytes())) {
            let (kind, der) = item.map_err(|error| format!("the PEM is damaged: {error}"))?;
            match kind {
                SectionKind::Certificate => chain.push(CertificateDer::from(der)),
                SectionKind::PrivateKey
                | SectionKind::RsaPrivateKey
                | SectionKind::EcPrivateKey => keys.push(Zeroizing::new(der)),
                _ => {}
            }
        }
        let leaf = chain.first().ok_or("it holds no certificate (-----BEGIN CERTIFICATE-----)")?;
        let leaf = leaf.clone();
        let key = match keys.as_slice() {
            [] => return Err("it holds no private key (-----BEGIN PRIVATE KEY-----)".to_owned()),
            [key] => key,
            _ => return Err("it holds several private keys".to_owned()),
        };
        if chain.len() > MAX_CHAIN {
            return Err(format!("it holds {} certificates; at most {MAX_CHAIN}", chain.len()));
        }
        let key_der = PrivateKeyDer::try_from(key.to_vec())
            .map_err(|why| format!("the private key cannot be used: {why}"))?;
        let certified = CertifiedKey::from_der(chain, key_der, &default_provider());
        let certified = certified.map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                "the private key does not belong to the first certificate; put that of the key first"
                    .to_owned()
            }
            other => format!("certificate and key cannot be used: {other}"),
        })?;
        Ok(Self {
            fingerprint: HEXLOWER.encode(digest(&SHA256, &leaf).as_ref()),
            valid_until: valid_until(&leaf).ok_or("the certificate has no readable expiry")?,
            #[cfg(feature = "kafka")]
            pem: Zeroizing::new(pem.to_owned()),
            certified: Arc::new(SingleCertAndKey::from(certified)),
        })
    }

    /// What presents the certificate in a handshake.
    pub(super) fn certified(&self) -> Arc<SingleCertAndKey> {
        Arc::clone(&self.certified)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn made(year: i32) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["erp.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(year, 3, 4);
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    #[test]
    fn a_certificate_is_read_with_its_expiry() {
        for (year, at) in [
            (2027, "2027-03-04T00:00:00Z"),
            (2049, "2049-03-04T00:00:00Z"),
            (2051, "2051-03-04T00:00:00Z"),
        ] {
            let (certificate, key) = made(year);
            for pem in [format!("{certificate}{key}"), format!("{key}\n{certificate}")] {
                let identity = Identity::read(&pem).unwrap();
                assert_eq!(identity.valid_until, Timestamp::parse(at).unwrap(), "{year}");
                assert_eq!(identity.fingerprint.len(), 64);
            }
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_the_reason() {
        let (certificate, key) = made(2027);
        let (other, _) = made(2027);
        let refused = |pem: &str| Identity::read(pem).unwrap_err();
        assert!(refused("").contains("no certificate"));
        assert!(refused(&certificate).contains("no private key"));
        assert!(refused(&format!("{certificate}{key}{key}")).contains("several private keys"));
        assert!(refused(&format!("{other}{certificate}{key}")).contains("does not belong"));
        assert!(refused(&format!("{}{key}", certificate.repeat(9))).contains("9 certificates"));
        let encrypted = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
        assert!(refused(&format!("{certificate}{encrypted}")).contains("openssl pkey"));
        let cut = certificate.replacen("MII", "", 1);
        assert!(Identity::read(&format!("{cut}{key}")).is_err());
        let no_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert!(refused(&format!("{certificate}{no_key}")).contains("private key cannot be used"));
    }
}
