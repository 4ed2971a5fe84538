//! Sockets that the manager holds: a restart refuses nobody.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::rig::{http, until};
use crate::systemd::process::Unit;

/// How requests fared.
#[derive(Default)]
struct Fared {
    answered: AtomicU32,
    refused: AtomicU32,
    /// Reset or closed before an answer.
    cut: AtomicU32,
    done: AtomicBool,
}

impl Fared {
    /// Connects and asks, again and again.
    fn ask(&self, address: SocketAddr) {
        while !self.done.load(Ordering::SeqCst) {
            let counter = match http::send(address, "GET", "/livez", &[], b"") {
                Ok(answer) if answer.status == 200 => &self.answered,
                Ok(answer) => panic!("{answer:?}"),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => &self.refused,
                Err(_) => &self.cut,
            };
            counter.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn answered(&self) -> u32 {
        self.answered.load(Ordering::SeqCst)
    }

    #[track_caller]
    fn wait_for_more(&self) {
        let before = self.answered();
        until("more requests are answered", || self.answered() > before + 20);
    }
}

#[test]
fn no_request_is_lost_over_restarts_and_no_connection_refused_over_kills() {
    let mut unit = Unit::new();
    let address = unit.pass("oncebox.socket").local_addr().unwrap();
    let fared = Fared::default();
    std::thread::scope(|scope| {
        let clients = [(); 3].map(|()| scope.spawn(|| fared.ask(address)));
        let mut service = unit.start();
        for _ in 0..3 {
            fared.wait_for_more();
            service.stop();
            service = unit.start();
        }
        fared.wait_for_more();
        let cut_by_stops = fared.cut.load(Ordering::SeqCst);
        for _ in 0..3 {
            service.kill();
            service = unit.start();
            fared.wait_for_more();
        }
        fared.done.store(true, Ordering::SeqCst);
        for client in clients {
            client.join().unwrap();
        }
        assert_eq!(cut_by_stops, 0, "a stop has cut off requests");
    });
    assert_eq!(fared.refused.load(Ordering::SeqCst), 0);
}

#[test]
fn a_receiver_that_hangs_does_not_shut_the_intake_while_the_service_stops() {
    let mut unit = Unit::new();
    unit.settings.push_str("[delivery]\nallow = [\"127.0.0.0/8\"]\n");
    let mut service = unit.start();
    let address = service.address();
    let bearer = format!("Bearer {}", service.token());
    let fields = [("Authorization", bearer.as_str())];
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", receiver.local_addr().unwrap());
    let wanted = format!(r#"{{"name":"slow","url":"{url}","event_types":["a"]}}"#);
    http::send(address, "POST", "/v1/subscriptions", &fields, wanted.as_bytes()).unwrap().is(201);
    let event = |kind: &str| {
        let body = format!(r#"{{"event_type":"{kind}","payload":{{}}}}"#);
        http::send(address, "POST", "/v1/events", &fields, body.as_bytes()).unwrap().status
    };
    assert_eq!(event("a"), 201);
    let (mut request, _) = receiver.accept().unwrap();
    assert!(http::read_message(&mut request).unwrap().is_some());
    service.signal("TERM");
    until("it says that it stops", || service.log().contains("stopping: running work"));
    for _ in 0..20 {
        assert_eq!(event("b"), 201, "taken while the delivery is under way");
    }
    request.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    assert!(service.ended().success());
    let file = rusqlite::Connection::open(service.data().join("oncebox.db")).unwrap();
    let count = |sql: &str| file.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM outbox"), 21);
    assert_eq!(count("SELECT count(*) FROM deliveries WHERE state = 'completed'"), 1);
}

#[test]
fn the_intake_s_socket_serves_the_intake_and_the_api_s_the_rest() {
    let mut unit = Unit::new();
    let intake = unit.pass("intake").local_addr().unwrap();
    let api = unit.pass("api").local_addr().unwrap();
    unit.settings.push_str("public_url = \"https://hooks.example.com/\"\n");
    let mut service = unit.start();
    assert_eq!(service.address(), api, "commands are told the API's address");
    let status =
        |address, method, path| http::send(address, method, path, &[], b"").unwrap().status;
    assert_eq!(status(intake, "GET", "/livez"), 200);
    assert_eq!(status(api, "GET", "/livez"), 200);
    assert_eq!(status(intake, "GET", "/readyz"), 404);
    assert_eq!(status(intake, "GET", "/v1/events"), 404);
    assert_eq!(status(api, "GET", "/v1/events"), 401);
    let bearer = format!("Bearer {}", service.token());
    let fields = [("Authorization", bearer.as_str())];
    let provider = br#"{"name":"plain","pii":"allow","secret":"a-shared-secret-of-32-characters",
        "scheme":{"kind":"generic","check":{"token":{"header":"X-Token"}}}}"#;
    let made = http::send(api, "POST", "/v1/providers", &fields, provider).unwrap();
    assert_eq!(made.status, 201, "{made:?}");
    let hook = |address| {
        let fields = [("X-Token", "a-shared-secret-of-32-characters")];
        http::send(address, "POST", "/in/plain", &fields, b"hook").unwrap().status
    };
    assert_eq!((hook(intake), hook(api)), (200, 404));
    let refused = http::send(intake, "GET", "/v1/providers", &fields, b"").unwrap();
    assert_eq!(refused.status, 404, "a token opens nothing on the intake's socket");
    // The commands find the intake, too.
    let secret = unit.home.path().join("secret");
    std::fs::write(&secret, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let secret = secret.to_str().unwrap();
    let url = "https://hooks.example.com/in/standard";
    let made = unit.run(&[
        "provider",
        "create",
        "standard",
        "--scheme",
        "standard",
        "--pii",
        "allow",
        "--secret-file",
        secret,
    ]);
    assert!(made.contains(&format!("URL to give to the provider: {url}")), "{made}");
    let sent = unit.run(&["trigger", "standard", "--secret-file", secret]);
    assert!(sent.contains(&format!("POST http://{intake}/in/standard")), "{sent}");
    service.stop();
}

#[test]
fn what_is_no_listening_socket_is_refused_by_its_number() {
    let mut unit = Unit::new();
    let file = std::fs::File::open("/dev/null").unwrap();
    unit.passed.push(("api".to_owned(), file.into()));
    let mut service = unit.start();
    assert_eq!(service.ended().code(), Some(1));
    assert!(service.log().contains("descriptor 3 (\"api\")"), "{}", service.log());
}

#[test]
fn an_api_that_others_can_reach_needs_an_admin_token() {
    let mut unit = Unit::new();
    let mut service = unit.start();
    service.address();
    service.stop();
    // The API lets nobody revoke the last one; time and a restored file can.
    let file = rusqlite::Connection::open(service.data().join("oncebox.db")).unwrap();
    assert_eq!(file.execute("UPDATE tokens SET revoked_at = created_at", []).unwrap(), 1);
    drop(file);
    let settings = |api: &str| format!("[listen]\napi = \"{api}\"\n");
    unit.settings = settings("0.0.0.0:0");
    let mut public = unit.start();
    assert_eq!(public.ended().code(), Some(78));
    assert!(public.log().contains("there is no valid admin token"), "{}", public.log());
    unit.settings = settings("127.0.0.1:0");
    let mut loopback = unit.start();
    loopback.address();
    loopback.stop();
    unit.settings = format!("{}console = \"0.0.0.0:0\"\n", settings("127.0.0.1:0"));
    let mut console = unit.start();
    console.address();
    console.stop();
}
