//! What comes back from a target counts, however odd; and the ways to a target: TLS of a local network, a forward proxy.

use oncebox::config::ProxyUrl;
use oncebox::http::client::{Call, CallError, Client, ClientSettings, Sender};
use oncebox::model::address::AddressPolicy;
use oncebox::model::forward_proxy::HostPattern;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::rig::http::read_message;
use crate::rig::prelude::*;
use crate::rig::smtp::{Encryption, MailServer};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
/// The answer of a token endpoint.
const TOKEN: &[u8] = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"access_token\":\"t\",\"token_type\":\"Bearer\"}";
const V1: &str = include_str!("../data/tls/v1.pem");
const V1_KEY: &str = include_str!("../data/tls/v1.key");
const P521_AUTHORITY: &str = include_str!("../data/tls/p521-authority.pem");
const P521_ISSUED: &str = include_str!("../data/tls/p521-issued.pem");
const P521_ISSUED_KEY: &str = include_str!("../data/tls/p521-issued.key");

/// A server with a thread for each connection; `serve` also gets the number of the connection.
fn server(serve: impl Fn(TcpStream, usize) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for (n, stream) in listener.incoming().enumerate() {
            let (serve, stream) = (Arc::clone(&serve), stream.unwrap());
            thread::spawn(move || serve(stream, n));
        }
    });
    address
}

/// A target that gives this answer to each request, and ends the connection.
fn answering(answer: impl Into<Vec<u8>>) -> SocketAddr {
    let answer = answer.into();
    server(move |mut stream, _| {
        if let Ok(Some(_request)) = read_message(&mut stream) {
            stream.write_all(&answer).unwrap();
        }
    })
}

fn client(ca_pem: Option<&str>) -> Client {
    let policy = AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()]);
    let ca_pem = ca_pem.map(|pem| pem.as_bytes().to_vec());
    let (connect_timeout, idle_connections, proxy) = (secs(30), 4, None);
    let settings = ClientSettings { policy, ca_pem, connect_timeout, idle_connections, proxy };
    Client::new(settings).unwrap()
}

fn post<'a>(url: &'a str, body: &'a [u8]) -> Call<'a> {
    Call { method: "POST", url, body, timeout: secs(60), ..Call::default() }
}

/// A certificate and the server's side of TLS with it. A certificate of any version is shown.
#[derive(Debug)]
struct Shown(Arc<CertifiedKey>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

fn tls_of(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Arc<ServerConfig> {
    let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Shown(Arc::new(CertifiedKey::new(chain, key)))));
    Arc::new(config)
}

/// A self-signed certificate as PEM, and TLS with it.
fn self_signed(name: &str, is_authority: bool) -> (String, Arc<ServerConfig>) {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    if is_authority {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    let key = KeyPair::generate().unwrap();
    let made = params.self_signed(&key).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    (made.pem(), tls_of(vec![made.der().clone()], key))
}

fn from_pem(certificate: &str, key: &str) -> Arc<ServerConfig> {
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    tls_of(vec![certificate], PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
}

fn over_tls(
    tls: &Arc<ServerConfig>,
    stream: TcpStream,
) -> StreamOwned<ServerConnection, TcpStream> {
    StreamOwned::new(ServerConnection::new(Arc::clone(tls)).unwrap(), stream)
}

/// Says 200 to everything.
fn https(tls: Arc<ServerConfig>) -> SocketAddr {
    server(move |stream, _| {
        let mut stream = over_tls(&tls, stream);
        // A client that does not trust us ends the handshake here.
        if let Ok(Some(_request)) = read_message(&mut stream) {
            drop(stream.write_all(OK).and_then(|()| stream.flush()));
        }
    })
}

/// Reads the beginning of a request, answers, and ends the connection while the rest is on its way.
fn answer_early(mut stream: impl Read + Write) {
    stream.read_exact(&mut [0; 64]).unwrap();
    stream
        .write_all(b"HTTP/1.1 413 Too Large\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n")
        .unwrap();
    stream.flush().unwrap();
}

#[test]
fn an_answer_by_the_head_alone_counts_though_the_body_cannot_be_written() {
    let plain = server(|stream, _| answer_early(stream));
    let (pem, tls) = self_signed("127.0.0.1", false);
    let encrypted = server(move |stream, _| {
        stream.set_nodelay(true).unwrap();
        answer_early(over_tls(&tls, stream));
    });
    let client = client(Some(&pem));
    for url in [format!("http://{plain}/"), format!("https://{encrypted}/")] {
        for size in [8_000, 4_000_000] {
            let answer = client.send(&post(&url, &vec![b'x'; size])).unwrap();
            assert_eq!((answer.status, answer.retry_after.as_deref()), (413, Some("7")), "{url}");
        }
    }
}

#[test]
fn an_answer_that_comes_while_the_target_does_not_read_counts() {
    let (done, ended) = mpsc::channel::<()>();
    let ended = Mutex::new(ended);
    let target = server(move |mut stream, _| {
        answer_early(&mut stream);
        ended.lock().unwrap().recv().unwrap();
    });
    let url = format!("http://{target}/");
    let body = vec![b'x'; 32_000_000];
    let call = Call { timeout: secs(2), ..post(&url, &body) };
    assert_eq!(client(None).send(&call).unwrap().status, 413);
    done.send(()).unwrap();
}

/// A target that ends its first connection at the second request, after `part` of an answer; also how many requests came
/// over each connection.
fn ending(part: &'static [u8]) -> (SocketAddr, Arc<Mutex<Vec<usize>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let counts = Arc::clone(&seen);
    let address = server(move |mut stream, n| {
        counts.lock().unwrap().push(0);
        while let Ok(Some(_request)) = read_message(&mut stream) {
            counts.lock().unwrap()[n] += 1;
            if n == 0 && counts.lock().unwrap()[n] == 2 {
                stream.write_all(part).unwrap();
                return;
            }
            stream.write_all(OK).unwrap();
            if n > 0 {
                return;
            }
        }
    });
    (address, seen)
}

#[test]
fn a_kept_connection_that_ends_before_an_answer_is_no_failed_attempt() {
    let (target, seen) = ending(b"");
    let (client, url) = (client(None), format!("http://{target}/"));
    for _ in 0..2 {
        assert_eq!(client.send(&post(&url, b"{}")).unwrap().status, 200);
    }
    assert_eq!(*seen.lock().unwrap(), [2, 1]);
}

#[test]
fn a_request_is_not_sent_again_if_a_part_of_the_answer_came() {
    let (target, seen) = ending(b"HTTP/1.1 2");
    let (client, url) = (client(None), format!("http://{target}/"));
    assert_eq!(client.send(&post(&url, b"{}")).unwrap().status, 200);
    assert!(matches!(client.send(&post(&url, b"{}")), Err(CallError::Failed(..))));
    assert_eq!(*seen.lock().unwrap(), [2]);
}

#[test]
fn a_request_on_a_new_connection_is_sent_once() {
    let seen = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&seen);
    let target = server(move |mut stream, _| {
        assert!(read_message(&mut stream).unwrap().is_some());
        counts.fetch_add(1, Ordering::SeqCst);
    });
    let url = format!("http://{target}/");
    assert!(matches!(client(None).send(&post(&url, b"{}")), Err(CallError::Failed(..))));
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}

#[test]
fn what_must_not_be_sent_twice_goes_over_a_new_connection() {
    let client = client(None);
    let (target, seen) = ending(b"");
    let url = format!("http://{target}/");
    assert_eq!(client.send(&post(&url, b"{}")).unwrap().status, 200);
    let once = Call { is_once: true, ..post(&url, b"{}") };
    assert_eq!(client.send(&once).unwrap().status, 200);
    assert_eq!(*seen.lock().unwrap(), [1, 1]);
}

#[test]
fn an_answer_with_an_odd_head_is_a_success_and_the_oddity_is_noted() {
    for (answer, note) in [
        (
            "HTTP/1.1 200 OK\r\nX-Policy: a\r\n  b\r\nContent-Length: 4\r\n\r\ndone",
            "a folded field",
        ),
        ("HTTP/1.1 202 OK\r\nno field\r\nContent-Length: 4\r\n\r\ndone", "a line without a colon"),
        ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\ndone", "a malformed Content-Length"),
        (
            "HTTP/1.1 200 OK\r\nB\u{e4}d: 1\r\nContent-Length: 4\r\n\r\ndone",
            "a malformed field name",
        ),
    ] {
        let rig = Rig::new();
        let url = format!("http://{}/", answering(answer));
        rig.post("/v1/subscriptions", &json!({ "name": "erp", "url": url })).is(201);
        rig.deliver("a");
        let attempt = rig.one("SELECT class || ' ' || excerpt FROM attempts");
        assert_eq!(attempt, format!("success [the head of the answer has {note}] done"));
    }
    let many = format!("HTTP/1.1 200 OK\r\n{}content-length: 0\r\n\r\n", "a: b\r\n".repeat(200));
    let answer = client(None).send(&post(&format!("http://{}/", answering(many)), b"")).unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.oddity.as_deref(), Some("the head of the answer has more than 128 fields"));
    let usual = client(None).send(&post(&format!("http://{}/", answering(OK)), b"")).unwrap();
    assert_eq!(usual.oddity, None);
}

fn tls_failure(client: &Client, address: SocketAddr) -> String {
    match client.send(&post(&format!("https://{address}/"), b"{}")) {
        Err(CallError::Failed(oncebox::model::outcome::Cause::Tls, why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_certificate_that_is_in_the_ca_file_itself_is_trusted() {
    let authority = self_signed("127.0.0.1", true);
    let usual = self_signed("127.0.0.1", false);
    let old = (V1.to_owned(), from_pem(V1, V1_KEY));
    for (pem, tls) in [authority, usual, old] {
        let address = https(tls);
        let url = format!("https://{address}/");
        assert_eq!(client(Some(&pem)).send(&post(&url, b"{}")).unwrap().status, 200);
        let why = tls_failure(&client(None), address);
        assert!(why.contains("delivery.ca_file"), "it says what to do: {why}");
    }
    let (pem, tls) = self_signed("erp.example", true);
    let why = tls_failure(&client(Some(&pem)), https(tls));
    assert!(why.contains("not valid for name"), "{why}");
    let (pem, _) = self_signed("127.0.0.1", true);
    let (_, other) = self_signed("127.0.0.1", true);
    tls_failure(&client(Some(&pem)), https(other));
}

#[test]
fn an_authority_that_is_used_as_a_server_is_refused_with_the_way_out() {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issued = params.signed_by(&key, &authority).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let address = https(tls_of(vec![issued.der().clone()], key));
    let why = tls_failure(&client(Some(&authority.pem())), address);
    shows(&why, &["CA:TRUE", "delivery.ca_file"]);
}

#[test]
fn an_authority_with_a_key_on_p_521_is_trusted() {
    let address = https(from_pem(P521_ISSUED, P521_ISSUED_KEY));
    let url = format!("https://{address}/");
    assert_eq!(client(Some(P521_AUTHORITY)).send(&post(&url, b"{}")).unwrap().status, 200);
    // Another certificate with the same key, under a signature that is not its own.
    let mut forged = CertificateDer::from_pem_slice(P521_ISSUED.as_bytes()).unwrap().to_vec();
    *forged.last_mut().unwrap() ^= 1;
    let key = PrivateKeyDer::from_pem_slice(P521_ISSUED_KEY.as_bytes()).unwrap();
    let address = https(tls_of(vec![forged.into()], key));
    let why = tls_failure(&client(Some(P521_AUTHORITY)), address);
    assert!(why.contains("P-521"), "it names what is accepted: {why}");
}

#[test]
fn a_block_of_the_ca_file_that_cannot_be_read_is_named_at_the_start() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ca.pem");
    fs::write(&path, format!("{V1}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
        .unwrap();
    let refused = Rig::refused(|settings| settings.delivery.ca_file = Some(path)).to_string();
    let line = V1.lines().count() + 1;
    shows(&refused, &["delivery.ca_file", &format!("block 2 (line {line})")]);
}

#[test]
fn a_mail_goes_to_the_addresses_that_the_server_accepts() {
    let home = tempfile::tempdir().unwrap();
    let server = MailServer::start(Encryption::None, &home.path().join("ca.pem"));
    server.refuse("gone@b.example", "550 5.1.1 no such user");
    let rig = Rig::with(|settings| {
        settings.smtp.host = Some("localhost".to_owned());
        settings.smtp.port = Some(server.address.port().into());
        settings.smtp.tls = oncebox::config::SmtpTls::None;
    });
    let to = ["gone@b.example", "there@b.example", "too@b.example"];
    rig.post("/v1/alert-channels", &json!({ "name": "ops", "kind": "email", "to": to })).is(201);
    rig.post("/v1/alert-channels/ops/test", &Value::Null).is(200);
    until("it was tried", || rig.one("SELECT count(*) FROM attempts") == "1");
    let attempt = rig.one("SELECT class || ' ' || coalesce(excerpt, failed_reason) FROM attempts");
    shows(&attempt, &["success 250", "not to gone@b.example", "550", "no such user"]);
    let mails = server.mails();
    assert_eq!(mails.len(), 1);
    assert_eq!(mails[0].to, ["TO:<there@b.example>", "TO:<too@b.example>"]);
}

/// A forward proxy that knows where every name is. It notes the first line of each request and its user.
struct ForwardProxy {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl ForwardProxy {
    /// Passes tunnels on to `target`, and answers other requests itself.
    fn start(target: SocketAddr, answer: &'static [u8]) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&seen);
        let address = server(move |mut stream, _| {
            let Ok(Some(request)) = read_message(&mut stream) else { return };
            let user = request.field("proxy-authorization").unwrap_or("nobody").to_owned();
            notes.lock().unwrap().push(format!("{} {user}", request.first_line));
            if !request.first_line.starts_with("CONNECT") {
                stream.write_all(answer).unwrap();
                return;
            }
            stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
            let mut out = TcpStream::connect(target).unwrap();
            let (mut back, mut from) = (stream.try_clone().unwrap(), out.try_clone().unwrap());
            thread::spawn(move || drop(std::io::copy(&mut from, &mut back)));
            thread::spawn(move || drop(std::io::copy(&mut stream, &mut out)));
        });
        Self { address, seen }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    fn rig(&self, change: impl FnOnce(&mut oncebox::config::Settings)) -> Rig {
        let (host, port) = (self.address.ip().to_string(), self.address.port());
        Rig::with(|settings| {
            settings.delivery.proxy = Some(ProxyUrl { host, port });
            change(settings);
        })
    }
}

#[test]
fn targets_are_called_through_the_forward_proxy() {
    let home = tempfile::tempdir().unwrap();
    let (ca_file, password) = (home.path().join("ca.pem"), home.path().join("password"));
    let (pem, tls) = self_signed("hooks.example.com", false);
    fs::write(&ca_file, pem).unwrap();
    fs::write(&password, "\u{feff}s3cret\r\n").unwrap();
    let proxy = ForwardProxy::start(https(tls), OK);
    let open = Rig::refused(|settings| {
        settings.delivery.proxy = Some(ProxyUrl { host: "127.0.0.1".to_owned(), port: 1 });
        settings.delivery.proxy_user = Some("erp".to_owned());
        settings.delivery.proxy_password_file = Some(home.path().to_owned());
    });
    shows(&open.to_string(), &["delivery.proxy_password_file"]);
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let rig = proxy.rig(|settings| {
        settings.delivery.ca_file = Some(ca_file);
        settings.delivery.proxy_user = Some("erp".to_owned());
        settings.delivery.proxy_password_file = Some(password);
    });
    for (name, url) in
        [("s", "https://hooks.example.com/a"), ("p", "http://plain.example.com/b?c=d")]
    {
        let more = json!({ "name": name, "url": url, "event_types": [name] });
        rig.post("/v1/subscriptions", &more).is(201);
        rig.deliver(name);
    }
    let user = format!("Basic {}", BASE64.encode(b"erp:s3cret"));
    assert_eq!(rig.lines("SELECT class FROM attempts"), ["success", "success"]);
    assert_eq!(
        proxy.seen(),
        [
            format!("CONNECT hooks.example.com:443 HTTP/1.1 {user}"),
            format!("POST http://plain.example.com/b?c=d HTTP/1.1 {user}"),
        ]
    );
    let test = rig.call("POST", "/v1/subscriptions/s/test", b"").is(200).json();
    assert_eq!(test["ok"], true, "{test}");
    let steps = test["steps"].to_string();
    shows(&steps, &["by the proxy (delivery.proxy)", "the proxy may be asked for this name"]);
    shows(&steps, &["TLSv1.3"]);
}

#[test]
fn what_the_proxy_looks_up_is_checked_by_name_and_exceptions_are_called_directly() {
    let target = Receiver::new();
    let proxy = ForwardProxy::start(target.address, OK);
    let rig = proxy.rig(|settings| {
        settings.delivery.proxy_deny = vec![HostPattern::parse("bad.example.com").unwrap()];
    });
    for (n, (url, why)) in [
        ("http://erp/", "delivery.proxy_except"),
        ("http://vault.internal/", "delivery.proxy_allow"),
        ("http://a.bad.example.com/", "delivery.proxy_deny"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("s{n}");
        rig.post("/v1/subscriptions", &json!({ "name": name, "url": url, "event_types": ["x"] }))
            .is(201);
        let test = rig.call("POST", &format!("/v1/subscriptions/{name}/test"), b"").is(200).json();
        shows(&test["steps"].to_string(), &["\"policy\"", why]);
    }
    rig.subscribe("near", &target);
    rig.deliver("a");
    rig.sent(&target, 1);
    assert_eq!(proxy.seen(), Vec::<String>::new(), "nothing of it goes through the proxy");
}

#[test]
fn a_proxy_that_wants_a_user_is_named_and_a_token_comes_through_it() {
    let proxy = ForwardProxy::start(
        SocketAddr::from(([127, 0, 0, 1], 1)),
        b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n",
    );
    let rig = proxy.rig(|_| {});
    rig.post("/v1/subscriptions", &json!({ "name": "erp", "url": "http://hooks.example.com/" }))
        .is(201);
    rig.deliver("a");
    let attempt = rig.one("SELECT class || ' ' || failed_reason FROM attempts");
    shows(&attempt, &["transient", "wants a user (407)", "delivery.proxy_user"]);

    let proxy = ForwardProxy::start(SocketAddr::from(([127, 0, 0, 1], 1)), TOKEN);
    let target = Receiver::new();
    let rig = proxy.rig(|_| {});
    rig.subscribe("erp", &target);
    let token_url = "http://auth.example.com/token";
    let made = json!({ "kind": "oauth2", "token_url": token_url, "client_id": "c", "secret": "s" });
    rig.post("/v1/subscriptions/erp/credentials", &made).is(201);
    rig.deliver("a");
    rig.sent(&target, 1);
    assert_eq!(target.seen()[0].field("authorization"), Some("Bearer t"));
    assert_eq!(proxy.seen(), ["POST http://auth.example.com/token HTTP/1.1 nobody"]);
}

#[test]
fn alerts_and_probes_go_through_the_proxy() {
    let proxy = ForwardProxy::start(SocketAddr::from(([127, 0, 0, 1], 1)), OK);
    let rig = proxy.rig(|_| {});
    let url = "http://chat.example.com/alerts";
    rig.post("/v1/alert-channels", &json!({ "name": "ops", "kind": "webhook", "url": url }))
        .is(201);
    rig.post("/v1/alert-channels/ops/test", &Value::Null).is(200);
    until("the alert has come", || proxy.seen().len() == 1);
    let probe = json!({ "every": "5min", "method": "GET", "path": "/health" });
    let probed =
        json!({ "name": "erp", "url": "http://erp.example.com/", "policy": { "probe": probe } });
    rig.post("/v1/subscriptions", &probed).is(201);
    until("the target is probed", || proxy.seen().len() == 2);
    assert_eq!(
        proxy.seen(),
        [
            "POST http://chat.example.com/alerts HTTP/1.1 nobody",
            "GET http://erp.example.com/health HTTP/1.1 nobody",
        ]
    );
}
