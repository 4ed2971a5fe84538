//! HTTPS targets: a real TLS server with certificates of its own.

use oncebox::app::{Appliance, Injected};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::rig::http::read_message;
use crate::rig::prelude::*;

/// A server that answers 200 to everything, with a certificate for `name` from an authority of its
/// own, whose certificate is written to `ca_file`.
pub(crate) fn https_server(name: &str, ca_file: &Path) -> SocketAddr {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    fs::write(ca_file, authority.pem()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let (config, listener) = (Arc::new(config), TcpListener::bind(("127.0.0.1", 0)).unwrap());
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, stream.unwrap());
            // A client that does not trust us ends the handshake here.
            if let Ok(Some(_request)) = read_message(&mut stream) {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                drop(stream.write_all(answer));
            }
        }
    });
    address
}

fn attempt_at(rig: &Rig, host: &str, port: u16) -> String {
    let url = format!("https://{host}:{port}/hook");
    rig.post("/v1/subscriptions", &json!({ "name": "erp", "url": url })).is(201);
    rig.deliver("a");
    rig.one("SELECT class || coalesce(': ' || failed_reason, '') FROM attempts")
}

#[test]
fn a_server_whose_authority_is_trusted_is_delivered_to() {
    let home = tempfile::tempdir().unwrap();
    let ca_file = home.path().join("ca.pem");
    let address = https_server("127.0.0.1", &ca_file);
    let rig = Rig::with(|settings| settings.delivery.ca_file = Some(ca_file));
    assert_eq!(attempt_at(&rig, "127.0.0.1", address.port()), "success");
}

#[test]
fn a_server_whose_authority_is_not_trusted_is_tried_again_and_the_reason_is_clear() {
    let home = tempfile::tempdir().unwrap();
    let address = https_server("127.0.0.1", &home.path().join("ca.pem"));
    let rig = Rig::new();
    let attempt = attempt_at(&rig, "127.0.0.1", address.port());
    assert!(attempt.starts_with("transient: "), "{attempt}");
    assert!(attempt.contains("UnknownIssuer"), "{attempt}");
}

#[test]
fn a_certificate_for_another_host_is_not_accepted() {
    let home = tempfile::tempdir().unwrap();
    let ca_file = home.path().join("ca.pem");
    let address = https_server("erp.example", &ca_file);
    let rig = Rig::with(|settings| settings.delivery.ca_file = Some(ca_file));
    let attempt = attempt_at(&rig, "127.0.0.1", address.port());
    assert!(
        attempt.starts_with("transient: ") && attempt.contains("not valid for name"),
        "{attempt}"
    );
}

#[test]
fn a_ca_file_without_a_certificate_is_refused_at_the_start() {
    let rig = Rig::new();
    let ca_file = rig.home().join("empty.pem");
    fs::write(&ca_file, "nothing in here\n").unwrap();
    let mut settings = oncebox::config::Settings::default();
    settings.database.directory = rig.home().join("other");
    settings.listen.api = SocketAddr::from(([127, 0, 0, 1], 0));
    settings.delivery.ca_file = Some(ca_file);
    let refused = Appliance::start(settings, Injected::default()).unwrap_err();
    assert!(refused.to_string().starts_with("delivery.ca_file: "), "{refused}");
}
