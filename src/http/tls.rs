//! TLS of the client: which servers are trusted, and why one is not.
//!
//! Trusted are the authorities of the machine and those of `delivery.ca_file`. A certificate that stands in that file is
//! also trusted itself, as a server on a local network often has one that no other client would take: an authority's
//! (`openssl req -x509`), or of X.509 version 1.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring as rustls_ring};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct,
    Error as TlsError, OtherError, RootCertStore, SignatureScheme, StreamOwned,
};
use rustls_native_certs::load_native_certs;
use ureq::Error;
use ureq::unversioned::transport::time::Instant;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport,
    TransportAdapter,
};
use webpki::{RawPublicKeyEntity, ring as algorithms};

use crate::base::clock::Timestamp;
use crate::http::answer_head::MAX_GROWTH;
use crate::http::ca_file::{CaFileError, certificates};
use crate::http::certificate::{self, CertificateFacts};
use crate::http::identity::Identity;
use crate::http::p521::{P521_SHA384, P521_SHA512};
use crate::http::socket::{MAX_UNSENT, left_of};

/// The signatures that are accepted: those of `ring`, and ECDSA over P-521.
static ALGORITHMS: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: &[
        algorithms::ECDSA_P256_SHA256,
        algorithms::ECDSA_P256_SHA384,
        algorithms::ECDSA_P384_SHA256,
        algorithms::ECDSA_P384_SHA384,
        P521_SHA384,
        P521_SHA512,
        algorithms::ED25519,
        algorithms::RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
        algorithms::RSA_PSS_2048_8192_SHA384_LEGACY_KEY,
        algorithms::RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
        algorithms::RSA_PKCS1_2048_8192_SHA256,
        algorithms::RSA_PKCS1_2048_8192_SHA384,
        algorithms::RSA_PKCS1_2048_8192_SHA512,
        algorithms::RSA_PKCS1_2048_8192_SHA256_ABSENT_PARAMS,
        algorithms::RSA_PKCS1_2048_8192_SHA384_ABSENT_PARAMS,
        algorithms::RSA_PKCS1_2048_8192_SHA512_ABSENT_PARAMS,
    ],
    // TLS 1.2 names a hash without a curve, so every curve stands under each hash.
    mapping: &[
        (
            SignatureScheme::ECDSA_NISTP384_SHA384,
            &[algorithms::ECDSA_P384_SHA384, algorithms::ECDSA_P256_SHA384, P521_SHA384],
        ),
        (
            SignatureScheme::ECDSA_NISTP256_SHA256,
            &[algorithms::ECDSA_P256_SHA256, algorithms::ECDSA_P384_SHA256],
        ),
        (SignatureScheme::ECDSA_NISTP521_SHA512, &[P521_SHA512]),
        (SignatureScheme::ED25519, &[algorithms::ED25519]),
        (SignatureScheme::RSA_PSS_SHA512, &[algorithms::RSA_PSS_2048_8192_SHA512_LEGACY_KEY]),
        (SignatureScheme::RSA_PSS_SHA384, &[algorithms::RSA_PSS_2048_8192_SHA384_LEGACY_KEY]),
        (SignatureScheme::RSA_PSS_SHA256, &[algorithms::RSA_PSS_2048_8192_SHA256_LEGACY_KEY]),
        (SignatureScheme::RSA_PKCS1_SHA512, &[algorithms::RSA_PKCS1_2048_8192_SHA512]),
        (SignatureScheme::RSA_PKCS1_SHA384, &[algorithms::RSA_PKCS1_2048_8192_SHA384]),
        (SignatureScheme::RSA_PKCS1_SHA256, &[algorithms::RSA_PKCS1_2048_8192_SHA256]),
    ],
};

/// The keys and versions that are accepted, for a person.
const ACCEPTED: &str = "accepted are TLS 1.2 and 1.3, with a key of RSA (2,048 bits or more), ECDSA (P-256, P-384, P-521) or \
     Ed25519";

/// The certificates of authorities to trust: those of the machine and those of a PEM text beside them. Empty: the machine
/// has none, and the web's that are compiled in count.
///
/// The machine's store is where an administrator puts the company's own authority (`update-ca-certificates`), and what
/// its distribution keeps up to date. The variables `SSL_CERT_FILE` and `SSL_CERT_DIR` name another.
pub fn trusted(ca_file: Option<&[u8]>) -> Result<Vec<CertificateDer<'static>>, CaFileError> {
    let own = ca_file.map_or_else(|| Ok(Vec::new()), certificates)?;
    let machine = load_native_certs();
    for error in machine.errors {
        tracing::warn!(%error, "a part of the machine's trusted certificates cannot be read");
    }
    Ok(machine.certs.into_iter().chain(own).collect())
}

/// Which servers a client trusts. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Trust(Arc<Verifier>);

impl Trust {
    /// Trusts the machine's authorities and the certificates of a PEM text.
    pub(super) fn new(ca_file: Option<&[u8]>) -> Result<Self, CaFileError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted(ca_file)?);
        if roots.is_empty() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        let own = ca_file.map_or_else(|| Ok(Vec::new()), certificates)?;
        let pinned = own.into_iter().filter_map(Pinned::of).collect();
        let mut provider = rustls_ring::default_provider();
        provider.signature_verification_algorithms = ALGORITHMS;
        let provider = Arc::new(provider);
        let issued =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let issued = issued.build().map_err(|_no_roots| CaFileError::NoCertificate)?;
        Ok(Self(Arc::new(Verifier { provider, issued, pinned })))
    }

    /// What puts TLS over a connection, with the certificate of a client.
    pub(super) fn connector(&self, identity: Option<&Identity>) -> Result<TlsConnector, TlsError> {
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.0.provider))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::<Verifier>::clone(&self.0));
        let config = match identity {
            Some(identity) => builder.with_client_cert_resolver(identity.certified()),
            None => builder.with_no_client_auth(),
        };
        Ok(TlsConnector(Arc::new(config)))
    }
}

/// A certificate of `ca_file` that is trusted as it is.
struct Pinned {
    der: CertificateDer<'static>,
    facts: CertificateFacts,
}

impl Pinned {
    fn of(der: CertificateDer<'static>) -> Option<Self> {
        let facts = certificate::facts(&der)?;
        Some(Self { der, facts })
    }

    /// Checks the dates, and the name where the certificate has names (`subjectAltName`). One without names is trusted
    /// for each host: whoever has its key could issue another with that name, as the file makes it an authority.
    fn check(&self, name: &ServerName<'_>, now: UnixTime) -> Result<(), TlsError> {
        let at = Timestamp::from_secs(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        if at < self.facts.valid_from {
            return Err(CertificateError::NotValidYet.into());
        }
        if at > self.facts.valid_until {
            return Err(CertificateError::Expired.into());
        }
        match ParsedCertificate::try_from(&self.der) {
            Ok(parsed) if self.facts.has_names => verify_server_name(&parsed, name),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Checks the signature of a handshake by the certificate's key. The library does not read all such certificates.
    fn verify(
        &self,
        message: &[u8],
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let key = SubjectPublicKeyInfoDer::from(self.facts.public_key.as_slice());
        let key = RawPublicKeyEntity::try_from(&key);
        let key = key.map_err(|_why| TlsError::from(CertificateError::BadEncoding))?;
        let mut known = ALGORITHMS.mapping.iter().filter(|(scheme, _)| *scheme == signed.scheme);
        let fits = known.any(|(_, algorithms)| {
            let mut all = algorithms.iter();
            all.any(|one| key.verify_signature(*one, message, signed.signature()).is_ok())
        });
        if fits {
            return Ok(HandshakeSignatureValid::assertion());
        }
        Err(CertificateError::BadSignature.into())
    }
}

/// Verifies the certificates of servers.
struct Verifier {
    provider: Arc<CryptoProvider>,
    issued: Arc<WebPkiServerVerifier>,
    pinned: Vec<Pinned>,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("pinned", &self.pinned.len()).finish_non_exhaustive()
    }
}

impl Verifier {
    fn pinned(&self, server: &CertificateDer<'_>) -> Option<&Pinned> {
        self.pinned.iter().find(|pinned| pinned.der == *server)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        if let Some(pinned) = self.pinned(server) {
            return pinned.check(name, now).map(|()| ServerCertVerified::assertion());
        }
        self.issued.verify_server_cert(server, others, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        match self.pinned(server) {
            Some(pinned) => pinned.verify(message, signed),
            None => self.issued.verify_tls12_signature(message, server, signed),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let is_old = matches!(
            signed.scheme,
            SignatureScheme::RSA_PKCS1_SHA256
                | SignatureScheme::RSA_PKCS1_SHA384
                | SignatureScheme::RSA_PKCS1_SHA512
        );
        match self.pinned(server) {
            Some(pinned) if !is_old => pinned.verify(message, signed),
            Some(_) | None => self.issued.verify_tls13_signature(message, server, signed),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.issued.supported_verify_schemes()
    }
}

/// Why TLS failed, with what to do, for a person.
pub(super) fn explained(error: &TlsError) -> String {
    let why = match error {
        TlsError::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "put the certificate of its issuer, or a self-signed one itself, into delivery.ca_file"
                .to_owned()
        }
        TlsError::InvalidCertificate(CertificateError::Other(other)) => match unusable(other) {
            Some(why) => return format!("the server's certificate {why}"),
            None => return error.to_string(),
        },
        TlsError::InvalidCertificate(
            CertificateError::BadSignature
            | CertificateError::UnsupportedSignatureAlgorithmContext { .. }
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. },
        ) => format!(
            "a certificate of the server has a key or signature that is not accepted: {ACCEPTED}"
        ),
        TlsError::AlertReceived(
            AlertDescription::HandshakeFailure
            | AlertDescription::InsufficientSecurity
            | AlertDescription::ProtocolVersion,
        ) => format!(
            "the server has no TLS version, cipher or key that is accepted, or wants a client certificate: {ACCEPTED}"
        ),
        _ => return error.to_string(),
    };
    format!("{error}: {why}")
}

/// Why a certificate that is not in `ca_file` itself cannot be a server's.
fn unusable(error: &OtherError) -> Option<&'static str> {
    match error.0.downcast_ref::<webpki::Error>()? {
        webpki::Error::CaUsedAsEndEntity => Some(
            "is that of an authority (CA:TRUE): put that certificate itself into delivery.ca_file, or make one for \
             the server with: openssl req -x509 … -addext basicConstraints=critical,CA:FALSE",
        ),
        webpki::Error::UnsupportedCertVersion => Some(
            "is of X.509 version 1: put that certificate itself into delivery.ca_file, or make one of version 3 with \
             a subjectAltName",
        ),
        _ => None,
    }
}

/// Puts TLS over the connection to an `https` server.
#[derive(Clone, Debug)]
pub(super) struct TlsConnector(Arc<ClientConfig>);

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = Either<In, Tls>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        let Some(transport) = chained else { return Ok(None) };
        if !details.needs_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let host = details.uri.host().unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(bare).map_err(|_why| {
            Error::BadUri(format!("the host {host:?} cannot be the name of a certificate"))
        })?;
        let connection = ClientConnection::new(Arc::clone(&self.0), name).map_err(wrapped)?;
        let now = Arc::clone(&details.current_time);
        let mut inner = TransportAdapter::new(transport.boxed(), now);
        inner.set_timeout(left(details));
        let mut stream = StreamOwned { conn: connection, sock: inner };
        stream.conn.complete_io(&mut stream.sock)?;
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(Either::B(Tls { buffers, stream, unsent: Vec::new() })))
    }
}

/// What is left of the time to connect.
fn left(details: &ConnectionDetails<'_>) -> NextTimeout {
    match (details.now, (details.current_time)()) {
        (Instant::Exact(begun), Instant::Exact(now)) => {
            left_of(details.timeout, now.saturating_duration_since(begun))
        }
        _ => details.timeout,
    }
}

fn wrapped(error: TlsError) -> Error {
    Error::Io(io::Error::new(io::ErrorKind::InvalidData, error))
}

/// A connection with TLS.
pub(super) struct Tls {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
    /// What goes into the next record. Head and body are one record if they fit: a server that answers by the head alone
    /// then has read both, and can close without a reset that would overtake its answer.
    unsent: Vec<u8>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Transport for Tls {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.sock.set_timeout(timeout);
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        if self.unsent.len().saturating_add(output.len()) > MAX_UNSENT {
            let sent = self.stream.write_all(&self.unsent);
            self.unsent.clear();
            sent?;
        }
        self.unsent.extend(output);
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.sock.set_timeout(timeout);
        if !self.unsent.is_empty() {
            let sent = self.stream.write_all(&self.unsent);
            self.unsent.clear();
            sent?;
        }
        let room = self.buffers.input_append_buf();
        let most = room.len().saturating_sub(MAX_GROWTH);
        let amount = self.stream.read(room.get_mut(..most).unwrap_or_default())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}
