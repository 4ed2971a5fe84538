//! Client certificates: a real TLS server that wants one and says which it saw.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::rig::http::read_message;
use crate::rig::prelude::*;

pub(crate) type Authority = CertifiedIssuer<'static, KeyPair>;

pub(crate) fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate and its key as PEM, valid until that year.
pub(crate) fn issued(by: &Authority, until: i32) -> String {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["oncebox.example".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(until, 1, 1);
    let certificate = params.signed_by(&key, by).unwrap();
    format!("{}{}", certificate.pem(), key.serialize_pem())
}

/// A certificate of an authority that nobody knows.
pub(crate) fn pem(until: i32) -> String {
    issued(&authority("nobody"), until)
}

/// A server that takes certificates of this authority alone and keeps connections open. For each request the
/// fingerprint it saw, and the number of its connection.
pub(crate) struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<(String, usize)>>>,
}

impl Server {
    fn new(clients: &Authority, ca_file: &Path) -> Self {
        let own = authority("server");
        fs::write(ca_file, own.pem()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let chain = vec![params.signed_by(&key, &own).unwrap().der().clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut roots = RootCertStore::empty();
        roots.add(clients.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(chain, key)
            .unwrap();
        let (config, listener) = (Arc::new(config), TcpListener::bind(("127.0.0.1", 0)).unwrap());
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<(String, usize)>>> = Arc::default();
        let noted = Arc::clone(&seen);
        thread::spawn(move || {
            for (n, stream) in listener.incoming().enumerate() {
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                let stream = StreamOwned::new(connection, stream.unwrap());
                let noted = Arc::clone(&noted);
                thread::spawn(move || serve(stream, n, &noted));
            }
        });
        Self { address, seen }
    }

    pub(crate) fn seen(&self) -> Vec<(String, usize)> {
        self.seen.lock().unwrap().clone()
    }
}

/// A client without the right certificate ends the handshake here.
fn serve(
    mut stream: StreamOwned<ServerConnection, TcpStream>,
    n: usize,
    noted: &Mutex<Vec<(String, usize)>>,
) {
    while let Ok(Some(_request)) = read_message(&mut stream) {
        let peer = stream.conn.peer_certificates().unwrap()[0].clone();
        let digest = ring::digest::digest(&ring::digest::SHA256, &peer);
        let fingerprint = HEXLOWER.encode(digest.as_ref());
        noted.lock().unwrap().push((fingerprint, n));
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"));
    }
}

pub(crate) fn site(clients: &Authority) -> (Rig, Server, TempDir) {
    let home = tempfile::tempdir().unwrap();
    let ca_file = home.path().join("ca.pem");
    let server = Server::new(clients, &ca_file);
    let rig = Rig::with(|settings| settings.delivery.ca_file = Some(ca_file));
    let url = format!("https://{}/hook", server.address);
    rig.post("/v1/subscriptions", &json!({ "name": "erp", "url": url })).is(201);
    (rig, server, home)
}

fn set(rig: &Rig, pem: &str) -> Value {
    let body = json!({ "kind": "client_certificate", "secret": pem });
    rig.post("/v1/subscriptions/erp/credentials", &body).is(201).json()
}

fn deliver(rig: &Rig) -> String {
    rig.deliver("a");
    let sql = "SELECT class || ' ' || coalesce(failed_reason, '') FROM attempts ORDER BY delivery_seq DESC, n DESC";
    rig.lines(sql).remove(0)
}

#[test]
fn a_client_certificate_is_presented_and_its_connections_end_with_it() {
    let clients = authority("clients");
    let (mut rig, server, _home) = site(&clients);
    let first = set(&rig, &issued(&clients, 2090));
    let of = |made: &Value| text(&made["settings"], "fingerprint");
    assert_eq!((deliver(&rig), deliver(&rig)), ("success ".to_owned(), "success ".to_owned()));
    assert_eq!(server.seen(), [(of(&first), 0), (of(&first), 0)], "one connection is used again");
    // A change of the subscription keeps the connection, another certificate does not.
    rig.patch("/v1/subscriptions/erp", &json!({ "owner_id": "x" })).is(200);
    assert_eq!(deliver(&rig), "success ");
    assert_eq!(server.seen().pop().unwrap(), (of(&first), 0));
    let second = set(&rig, &issued(&clients, 2091));
    assert_eq!(deliver(&rig), "success ");
    assert_eq!(server.seen().pop().unwrap(), (of(&second), 1));
    assert_eq!(second["valid_until"], "2091-01-01T00:00:00.000Z");
    rig.restart();
    assert_eq!(deliver(&rig), "success ");
    assert_eq!(server.seen().pop().unwrap().0, of(&second));
    // A bearer token goes with it.
    let body = json!({ "kind": "bearer", "secret": "x" });
    rig.post("/v1/subscriptions/erp/credentials", &body).is(201);
    assert_eq!(deliver(&rig), "success ");
}

#[test]
fn without_the_right_certificate_the_reason_is_clear() {
    let clients = authority("clients");
    let (rig, server, _home) = site(&clients);
    // Which of the two it is depends on whether the server's last word is read before its end.
    let is_clear = |attempt: &str, alert: &str| {
        attempt.starts_with("transient ")
            && (attempt.contains(alert) || attempt.contains("client certificate"))
    };
    let attempt = deliver(&rig);
    assert!(is_clear(&attempt, "CertificateRequired"), "{attempt}");
    set(&rig, &pem(2090));
    rig.pass(Duration::from_secs(5));
    let attempt = deliver(&rig);
    assert!(is_clear(&attempt, "UnknownCA"), "{attempt}");
    assert_eq!(server.seen(), []);
}

#[test]
fn an_expired_certificate_is_refused_and_one_that_expires_is_shown() {
    let clients = authority("clients");
    let (rig, _server, _home) = site(&clients);
    let body = json!({ "kind": "client_certificate", "secret": issued(&clients, 2026) });
    rig.post("/v1/subscriptions/erp/credentials", &body)
        .is(422)
        .tells("expired at 2026-01-01T00:00:00.000Z");
    let made = set(&rig, &issued(&clients, 2027));
    rig.advance(Duration::from_hours(24 * 400));
    let shown = rig.get(&format!("/v1/credentials/{}", made["id"].as_str().unwrap()));
    has(&shown, &json!({ "valid_until": "2027-01-01T00:00:00.000Z", "state": "active" }));
}
