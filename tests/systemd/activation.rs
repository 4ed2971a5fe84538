//! Sockets that the manager holds: a restart refuses nobody.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::process::Unit;
use crate::rig::{http, until};

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
fn the_intake_s_socket_serves_the_intake_and_the_api_s_the_rest() {
    let mut unit = Unit::new();
    let intake = unit.pass("intake").local_addr().unwrap();
    let api = unit.pass("api").local_addr().unwrap();
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
    let address = service.address();
    let bearer = format!("Bearer {}", service.token());
    let fields = [("Authorization", bearer.as_str())];
    let tokens = http::send(address, "GET", "/v1/tokens", &fields, b"").unwrap().json();
    let path = format!("/v1/tokens/{}", tokens["items"][0]["id"].as_str().unwrap());
    let revoked = http::send(address, "DELETE", &path, &fields, b"").unwrap();
    assert!(matches!(revoked.status, 200 | 204), "{revoked:?}");
    service.stop();
    let settings = |api: &str| format!("[listen]\napi = \"{api}\"\n");
    unit.settings = settings("0.0.0.0:0");
    let mut public = unit.start();
    assert_eq!(public.ended().code(), Some(78));
    assert!(public.log().contains("there is no valid admin token"), "{}", public.log());
    unit.settings = settings("127.0.0.1:0");
    let mut loopback = unit.start();
    loopback.address();
    loopback.stop();
}
