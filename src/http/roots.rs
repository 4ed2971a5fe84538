//! The authorities that are trusted: the machine's, and those of `delivery.ca_file`.
//!
//! The machine's store is where an administrator puts the company's own authority (`update-ca-certificates`), and what
//! its distribution keeps up to date. The variables `SSL_CERT_FILE` and `SSL_CERT_DIR` name another.

use rustls_native_certs::load_native_certs;
use ureq::tls::{Certificate, PemItem, parse_pem};

/// The authorities to trust, each as DER: those of the machine, and those of a PEM text beside them. Empty: the machine
/// has none, and the web's that are compiled in count. `None`: the PEM text holds no certificate.
pub fn trusted(own_pem: Option<&[u8]>) -> Option<Vec<Certificate<'static>>> {
    let own = own_pem.map_or_else(Vec::new, certificates);
    if own.is_empty() && own_pem.is_some() {
        return None;
    }
    let machine = load_native_certs();
    for error in machine.errors {
        tracing::warn!(%error, "a part of the machine's trusted certificates cannot be read");
    }
    let machine = machine.certs.iter().map(|der| Certificate::from_der(der).to_owned());
    Some(machine.chain(own).collect())
}

fn certificates(pem: &[u8]) -> Vec<Certificate<'static>> {
    let items = parse_pem(pem);
    let found = items.filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        Ok(_) | Err(_) => None,
    });
    found.collect()
}
