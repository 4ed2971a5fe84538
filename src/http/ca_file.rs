//! Reads `delivery.ca_file`: PEM text, with as many certificates as a person puts into it.
//!
//! A certificate that is left out without a word is noticed only when deliveries fail. So each block that cannot be read
//! is a mistake, which is named with its number and line.

use data_encoding::BASE64;
use rustls::pki_types::CertificateDer;
use webpki::anchor_from_trusted_cert;

use crate::http::certificate;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// Why a file of certificates cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaFileError {
    /// It has no block at all.
    #[error("the ca_file holds no PEM certificate (-----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    /// It is text of 16 bits, as some editors and shells of Windows write it.
    #[error("the ca_file is UTF-16 text; save it as UTF-8 or ASCII")]
    Utf16,
    /// A block cannot be used.
    #[error("the ca_file cannot be used: block {number} (line {line}) {why}")]
    Block {
        /// The number of the block, from 1.
        number: usize,
        /// The line on which it begins, from 1.
        line: usize,
        /// The mistake, and the remedy.
        why: String,
    },
}

/// Reads the certificates of a file: PEM blocks, or one certificate as DER. Text around blocks is skipped, and so is a
/// missing line end between two.
pub fn certificates(file: &[u8]) -> Result<Vec<CertificateDer<'static>>, CaFileError> {
    if file.starts_with(&[0xff, 0xfe]) || file.starts_with(&[0xfe, 0xff]) {
        return Err(CaFileError::Utf16);
    }
    if file.starts_with(&[0x30]) {
        let certificate = CertificateDer::from(file.to_vec());
        let wrong = |why| CaFileError::Block { number: 1, line: 1, why };
        return usable(&certificate).map(|()| vec![certificate]).map_err(wrong);
    }
    let text = String::from_utf8_lossy(file);
    let mut found = Vec::new();
    let mut begins = text.match_indices(BEGIN).peekable();
    let mut number: usize = 0;
    while let Some((at, _)) = begins.next() {
        number = number.saturating_add(1);
        let (before, rest) = text.split_at_checked(at).unwrap_or_default();
        // A block ends before the next one begins.
        let size = begins.peek().map_or(rest.len(), |(next, _)| next.saturating_sub(at));
        let line = before.matches('\n').count().saturating_add(1);
        let block = rest.get(..size).unwrap_or(rest);
        let certificate = certificate_of(block);
        found.push(certificate.map_err(|why| CaFileError::Block { number, line, why })?);
    }
    if found.is_empty() { Err(CaFileError::NoCertificate) } else { Ok(found) }
}

/// The certificate of a block, which begins with `-----BEGIN `.
fn certificate_of(block: &str) -> Result<CertificateDer<'static>, String> {
    let rest = block.strip_prefix(BEGIN).unwrap_or(block);
    let (label, rest) = rest.split_once(DASHES).ok_or("has no end of its first line (-----)")?;
    match label {
        "CERTIFICATE" | "X509 CERTIFICATE" => {}
        "TRUSTED CERTIFICATE" => {
            return Err(
                "is a TRUSTED CERTIFICATE of OpenSSL; convert it with: openssl x509 -in FILE"
                    .to_owned(),
            );
        }
        "PKCS7" => {
            return Err(
                "is PKCS #7; convert it with: openssl pkcs7 -in FILE -print_certs".to_owned()
            );
        }
        other => {
            let label: String = other.chars().filter(|c| !c.is_control()).take(40).collect();
            return Err(format!("is a {label}; remove it: only certificates belong there"));
        }
    }
    let end = format!("{END}{label}{DASHES}");
    let (base64, _) = rest.split_once(&end).ok_or_else(|| format!("has no {end}"))?;
    let base64: String = base64.chars().filter(|c| !c.is_whitespace()).collect();
    let der = BASE64.decode(base64.as_bytes());
    let der = der.map_err(|error| format!("is damaged: {error} of its base64"))?;
    let certificate = CertificateDer::from(der);
    usable(&certificate)?;
    Ok(certificate)
}

/// Whether something can be trusted by it: what it issued, or the certificate itself.
fn usable(certificate: &CertificateDer<'_>) -> Result<(), String> {
    match anchor_from_trusted_cert(certificate) {
        Ok(_) => Ok(()),
        Err(_) if certificate::facts(certificate).is_some() => Ok(()),
        Err(error) => Err(format!("is no X.509 certificate that can be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn pem() -> String {
        let params = CertificateParams::new(vec!["erp.example".to_owned()]).unwrap();
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn certificates_are_read_however_their_blocks_are_joined() {
        let one = pem();
        let two = pem();
        let glued = format!("{}{}", one.trim_end(), two.trim_end());
        let windows = format!("\u{feff}{one}{two}").replace('\n', "\r\n");
        let commented = format!("subject=CN = erp\n{one}\n# the other one\n{two}");
        for file in [format!("{one}{two}"), glued, windows, commented] {
            assert_eq!(certificates(file.as_bytes()).unwrap().len(), 2, "{file}");
        }
        let der = certificates(one.as_bytes()).unwrap().remove(0);
        assert_eq!(certificates(&der).unwrap(), [der]);
    }

    #[test]
    fn a_block_that_cannot_be_read_is_named() {
        let good = pem();
        let key = KeyPair::generate().unwrap().serialize_pem();
        let lines = good.lines().count();
        let damaged = good.replacen("MII", "M*I", 1);
        let cut = good.replace("-----END CERTIFICATE-----", "");
        let no_certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let trusted = good.replace("CERTIFICATE", "TRUSTED CERTIFICATE");
        for (bad, why) in [
            (damaged.as_str(), "is damaged"),
            (&cut, "has no -----END CERTIFICATE-----"),
            (no_certificate, "no X.509 certificate"),
            (&trusted, "openssl x509"),
            (&key, "is a PRIVATE KEY"),
            ("-----BEGIN CERTIFICATE", "has no end of its first line"),
        ] {
            let error = certificates(format!("{good}{bad}").as_bytes()).unwrap_err().to_string();
            let place = format!("block 2 (line {})", lines + 1);
            assert!(error.contains(&place) && error.contains(why), "{error}");
        }
        for nothing in ["", "certificate"] {
            assert_eq!(certificates(nothing.as_bytes()), Err(CaFileError::NoCertificate));
        }
        assert_eq!(certificates(b"\xff\xfe-\0"), Err(CaFileError::Utf16));
    }
}
