//! A door before a cluster: TLS, a log-on and client certificates, which the mock of the library has not.

use std::io;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::kafka::cluster::Cluster;
use crate::rig::prelude::*;

/// Who may come in.
#[derive(Default)]
pub(crate) struct Guard {
    /// The log-on that is let in, as it is sent; `None`: nobody logs on.
    pub(crate) log_on: Option<String>,
    /// Those who tried, in order.
    pub(crate) tried: Vec<String>,
    /// Certificates that were shown, and how many each had.
    pub(crate) chains: Vec<usize>,
}

/// The door, and the directory with the certificate of who vouches for it.
pub(crate) struct Door {
    pub(crate) address: String,
    pub(crate) ca_file: PathBuf,
    pub(crate) guard: Arc<Mutex<Guard>>,
    clients: CertifiedIssuer<'static, KeyPair>,
    _home: TempDir,
}

/// What may sign others. OpenSSL tells them apart by name.
fn signer(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    CertifiedIssuer::self_signed(signer(name), KeyPair::generate().unwrap()).unwrap()
}

impl Door {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        let (own, clients) = (authority("brokers"), authority("clients"));
        let home = tempfile::tempdir().unwrap();
        let ca_file = home.path().join("ca.pem");
        fs::write(&ca_file, own.pem()).unwrap();
        let config = Arc::new(config(&own, &clients));
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (guard, broker) = (Arc::<Mutex<Guard>>::default(), cluster.brokers().remove(0));
        let guards = Arc::clone(&guard);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                let stream = StreamOwned::new(connection, stream.unwrap());
                let (guard, broker) = (Arc::clone(&guards), broker.clone());
                thread::spawn(move || pass(stream, &broker, port, &guard));
            }
        });
        // As long as the address that the mock names, in whose place it comes.
        let address = format!("localhost:{port}");
        Self { address, ca_file, guard, clients, _home: home }
    }

    /// A certificate that is let in, another that vouches for it, and the key, as PEM.
    pub(crate) fn certificate(&self) -> String {
        let (key, middle_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let middle = signer("middle");
        let signed = middle.signed_by(&middle_key, &self.clients).unwrap();
        let issuer = rcgen::Issuer::new(middle, middle_key);
        let params = CertificateParams::new(vec!["oncebox.example".to_owned()]).unwrap();
        let leaf = params.signed_by(&key, &issuer).unwrap();
        format!("{}{}{}", key.serialize_pem(), leaf.pem(), signed.pem())
    }
}

fn config(
    own: &CertifiedIssuer<'_, KeyPair>,
    clients: &CertifiedIssuer<'_, KeyPair>,
) -> ServerConfig {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let chain = vec![params.signed_by(&key, own).unwrap().der().clone()];
    let mut roots = RootCertStore::empty();
    roots.add(clients.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.allow_unauthenticated().build().unwrap())
        .with_single_cert(
            chain,
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .unwrap()
}

/// A frame: a length of four bytes, and as many bytes.
fn frame(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    from.read_exact(&mut frame)?;
    Ok(frame)
}

fn write(to: &mut impl Write, frame: &[u8]) -> io::Result<()> {
    to.write_all(&(u32::try_from(frame.len()).unwrap()).to_be_bytes())?;
    to.write_all(frame)?;
    to.flush()
}

/// The kinds of requests that the door answers, or whose answers it completes. Source: the protocol guide of Kafka.
const HANDSHAKE: u16 = 17;
const VERSIONS: u16 = 18;
const AUTHENTICATE: u16 = 36;
/// The code of a log-on that is refused, and what is said of it: a length and a text.
const REFUSED: [u8; 2] = [0, 58];
const WHY: &[u8] = b"\0\x0anot let in";

/// Lets one connection through, request by request.
fn pass(
    mut client: StreamOwned<ServerConnection, TcpStream>,
    broker: &str,
    port: u16,
    guard: &Mutex<Guard>,
) {
    let mut behind = TcpStream::connect(broker).unwrap();
    let behind_port: u16 = broker.rsplit_once(':').unwrap().1.parse().unwrap();
    let [old, new] = [("127.0.0.1", behind_port), ("localhost", port)]
        .map(|(host, port)| [host.as_bytes(), &u32::from(port).to_be_bytes()].concat());
    let mut through = || -> io::Result<()> {
        loop {
            let request = frame(&mut client)?;
            let mut answer = match u16::from_be_bytes([request[0], request[1]]) {
                HANDSHAKE => [&request[4..8], &[0; 6]].concat(),
                AUTHENTICATE => [&request[4..8], &log_on(&request, guard)].concat(),
                kind => {
                    let shown = client.conn.peer_certificates().map_or(0, <[_]>::len);
                    guard.lock().unwrap().chains.push(shown);
                    write(&mut behind, &request)?;
                    let mut answer = frame(&mut behind)?;
                    // The first time the mock says that it knows version 0 alone.
                    if kind == VERSIONS && answer[4..6] == [0, 0] {
                        // A number, a code, how many there are; each has kind, from, to.
                        answer[9] += 2;
                        answer.extend([[0, 17, 0, 0, 0, 1], [0, 36, 0, 0, 0, 0]].concat());
                    }
                    answer
                }
            };
            for at in 0..answer.len().saturating_sub(old.len()) {
                if answer[at..].starts_with(&old) {
                    answer[at..at + new.len()].copy_from_slice(&new);
                }
            }
            write(&mut client, &answer)?;
        }
    };
    // Whoever goes away ends it.
    let _gone = through();
}

/// What is answered to a log-on: a code, why, and nothing else to say.
fn log_on(request: &[u8], guard: &Mutex<Guard>) -> Vec<u8> {
    let name = usize::from(u16::from_be_bytes([request[8], request[9]]));
    let tried = String::from_utf8(request[10 + name + 4..].to_vec()).unwrap();
    let mut guard = guard.lock().unwrap();
    let is_in = guard.log_on.as_ref() == Some(&tried);
    guard.tried.push(tried);
    if is_in {
        return vec![0, 0, 255, 255, 0, 0, 0, 0];
    }
    [&REFUSED[..], WHY, &[0; 4]].concat()
}
