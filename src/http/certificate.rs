//! A look at a server's certificate, for a person: the TLS version, and until when the certificate is valid.
//!
//! It takes a connection of its own and trusts nobody: the handshake ends when the certificate is there, and nothing is
//! sent. Whether the certificate is accepted is decided in the handshake of the call itself.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};

use crate::base::clock::{Clock, Timestamp};

/// How long a look takes at most.
pub(super) const TIMEOUT: Duration = Duration::from_secs(3);

/// What was seen of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Like `TLSv1_3`.
    pub version: String,
    /// When the certificate ends; `None` if that cannot be read.
    pub until: Option<Timestamp>,
}

/// Notes the server's certificate and refuses it.
#[derive(Debug)]
struct Noting {
    provider: Arc<CryptoProvider>,
    noted: Mutex<Option<Vec<u8>>>,
}

impl ServerCertVerifier for Noting {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        *self.noted.lock() = Some(server.to_vec());
        Err(refusal())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _server: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(refusal())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _server: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(refusal())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn refusal() -> Error {
    Error::General("only the certificate was asked for".to_owned())
}

/// Looks at the certificate that a server shows for a host name, over a connection to it; `None` if it shows none.
pub(super) fn look(mut stream: TcpStream, host: &str, clock: &Clock) -> Option<Seen> {
    let until = clock.monotonic().saturating_add(TIMEOUT);
    let provider = Arc::new(ring::default_provider());
    let noting = Arc::new(Noting { provider: Arc::clone(&provider), noted: Mutex::default() });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .ok()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::<Noting>::clone(&noting))
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).ok()?;
    let mut connection = ClientConnection::new(Arc::new(config), name).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    stream.set_write_timeout(Some(TIMEOUT)).ok()?;
    while connection.is_handshaking() && clock.monotonic() < until {
        if connection.wants_write() {
            connection.write_tls(&mut stream).ok()?;
        } else if connection.read_tls(&mut stream).ok()? == 0
            || connection.process_new_packets().is_err()
        {
            break;
        }
    }
    let version = format!("{:?}", connection.protocol_version()?);
    let noted = noting.noted.lock().take()?;
    Some(Seen { version, until: valid_until(&noted) })
}

/// What is read of a certificate without a library, which would not take all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateFacts {
    /// When it begins to be valid.
    pub(crate) valid_from: Timestamp,
    /// When it expires.
    pub(crate) valid_until: Timestamp,
    /// Its `subjectPublicKeyInfo`, as DER.
    pub(crate) public_key: Vec<u8>,
    /// Whether it has the extension `subjectAltName`.
    pub(crate) has_names: bool,
}

/// Reads the facts of a certificate of any version; `None` if it is none. Source: RFC 5280, section 4.1.
pub(crate) fn facts(certificate: &[u8]) -> Option<CertificateFacts> {
    /// The object identifier of `subjectAltName`, 2.5.29.17, as DER.
    const NAMES: [u8; 5] = [0x06, 0x03, 0x55, 0x1d, 0x11];
    let (0x30, inside, _) = element(certificate)? else { return None };
    let (0x30, mut fields, _) = element(inside)? else { return None };
    // version (may be absent), serial number, signature algorithm, issuer, then the validity.
    if fields.first() == Some(&0xa0) {
        fields = element(fields)?.2;
    }
    for tag in [0x02, 0x30, 0x30] {
        let (found, _, rest) = element(fields)?;
        fields = (found == tag).then_some(rest)?;
    }
    let (0x30, validity, after) = element(fields)? else { return None };
    let (_, _, end) = element(validity)?;
    let (0x30, _subject, key) = element(after)? else { return None };
    let (0x30, _, extensions) = element(key)? else { return None };
    let key_length = key.len().checked_sub(extensions.len())?;
    Some(CertificateFacts {
        valid_from: time(validity)?,
        valid_until: time(end)?,
        public_key: key.get(..key_length)?.to_vec(),
        has_names: extensions.windows(NAMES.len()).any(|bytes| bytes == NAMES),
    })
}

/// When a certificate expires.
pub(crate) fn valid_until(certificate: &[u8]) -> Option<Timestamp> {
    facts(certificate).map(|facts| facts.valid_until)
}

/// The time of a DER element: `UTCTime` or `GeneralizedTime`.
fn time(der: &[u8]) -> Option<Timestamp> {
    let (tag, text, _) = element(der)?;
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let text = match (tag, text.get(..2)?.parse::<u8>().ok()?) {
        (0x17, 50..) => format!("19{text}"),
        (0x17, _) => format!("20{text}"),
        (0x18, _) => text.to_owned(),
        _ => return None,
    };
    let part = |from: usize, to: usize| text.get(from..to);
    let year = part(0, 4)?;
    let month = part(4, 6)?;
    let day = part(6, 8)?;
    let hour = part(8, 10)?;
    let minute = part(10, 12)?;
    let second = part(12, 14)?;
    Timestamp::parse(&format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z"))
}

/// The tag and the content of a DER element, and the bytes after it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let [tag, first, rest @ ..] = der else { return None };
    let (length, rest) = match first {
        0..=127 => (usize::from(*first), rest),
        0x81..=0x83 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (bytes.iter().fold(0, |sum, byte| (sum << 8) | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn the_end_of_a_certificate_is_read_in_both_forms_of_time() {
        for (year, text) in [(2031, "2031-02-03T00:00:00Z"), (2061, "2061-02-03T00:00:00Z")] {
            let mut params = CertificateParams::new(vec!["erp.example".to_owned()]).unwrap();
            params.not_after = date_time_ymd(year, 2, 3);
            let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            assert_eq!(valid_until(made.der()), Timestamp::parse(text));
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        for der in [&b""[..], b"\x30", b"\x30\x82\x01", b"\x30\x03\x30\x01\x02", &[0x30; 64]] {
            assert_eq!(valid_until(der), None);
        }
    }
}
