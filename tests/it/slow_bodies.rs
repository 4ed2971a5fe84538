//! Clients that announce bodies and do not send them: signed webhooks are taken beside them.

use std::sync::{MutexGuard, PoisonError};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};

use crate::rig::prelude::*;

/// Unfinished requests. Each takes two of the files that this process may open.
const SLOW: usize = 4_500;
/// The addresses that they come from.
const ADDRESSES: u8 = 5;
/// Files of the tests that run beside one of these.
const OTHERS: u64 = 3_000;
const SECRET: &str = "a-shared-secret-of-32-characters";

/// Lets this process open enough files, for one of these tests at a time; `None` if the system forbids it.
fn may_open_files() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    let needed = 2 * u64::try_from(SLOW).unwrap() + OTHERS;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let new = maximum.map_or(needed, |maximum| maximum.min(needed)).max(current.unwrap_or(0));
    setrlimit(Resource::Nofile, Rlimit { current: Some(new), maximum }).unwrap();
    (new >= needed).then(|| ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A connection that comes from `127.0.0.number`.
fn connect_from(number: u8, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, number], 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}

/// A webhook of 1 MiB is announced, its first byte is sent.
fn begin(mut stream: &TcpStream, field: &str) {
    let length = 1024 * 1024;
    let head = format!("POST /in/github HTTP/1.1\r\nHost: a\r\n{field}Content-Length: {length}");
    stream.write_all(format!("{head}\r\n\r\n{{").as_bytes()).unwrap();
}

/// A signed webhook of its own connection; gives its status.
fn webhook(rig: &Rig, name: &str) -> u16 {
    let body = format!("{{\"action\":\"opened\",\"name\":\"{name}\"}}");
    let signature = http::github(SECRET, body.as_bytes());
    let fields = [
        ("X-Hub-Signature-256", signature.as_str()),
        ("X-GitHub-Delivery", name),
        ("X-GitHub-Event", "pull_request"),
        ("X-Forwarded-For", "198.51.100.99"),
    ];
    rig.send("POST", "/in/github", &fields, body.as_bytes()).status
}

/// 400 signed webhooks from four clients at once: all are taken while the slow ones still send.
#[track_caller]
fn all_are_taken(rig: &Rig) {
    let send = |client: usize| -> Vec<_> {
        (0..100).map(|number| webhook(rig, &format!("{client}-{number}"))).collect()
    };
    let answers: Vec<u16> = thread::scope(|scope| {
        let clients = [0, 1, 2, 3].map(|client| scope.spawn(move || send(client)));
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    assert_eq!(answers, [200; 400]);
}

fn hold(rig: &Rig, open: impl Fn(u8) -> TcpStream, field: impl Fn(u8) -> String) {
    rig.provider("github", &json!({ "kind": "github" }), SECRET);
    let addresses = (2..2 + ADDRESSES).cycle().take(SLOW);
    let slow: Vec<TcpStream> = addresses
        .map(|number| {
            let stream = open(number);
            begin(&stream, &field(number));
            stream
        })
        .collect();
    until("all bodies are begun", || {
        let page = rig.call("GET", "/metrics", b"").text();
        let line =
            page.lines().find_map(|line| line.strip_prefix("oncebox_http_connections_total "));
        line.and_then(|number| number.parse().ok()).is_some_and(|open: usize| open >= SLOW)
    });
    all_are_taken(rig);
    drop(slow);
}

#[test]
fn webhooks_are_taken_while_five_addresses_announce_bodies_and_do_not_send_them() {
    let Some(_alone) = may_open_files() else {
        return skipped("this process may not open 12,000 files");
    };
    let rig = Rig::new();
    hold(&rig, |number| connect_from(number, rig.address()), |_| String::new());
}

#[test]
fn webhooks_are_taken_while_clients_of_a_proxy_announce_bodies_and_do_not_send_them() {
    let Some(_alone) = may_open_files() else {
        return skipped("this process may not open 12,000 files");
    };
    let proxies = vec!["127.0.0.1/32".parse().unwrap()];
    let rig = Rig::with(|settings| settings.listen.trusted_proxies = proxies);
    let field = |number| format!("X-Forwarded-For: 203.0.113.{number}\r\n");
    hold(&rig, |_| connect_from(1, rig.address()), field);
}
