//! A server with a scripted service, and a client that can misbehave.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use oncebox::base::clock::Clock;
use oncebox::base::fair::Payer;
use oncebox::http::message::{Head, Request, Response};
use oncebox::http::server::{Server, Setup, bind};
use oncebox::http::service::{Limits, Reply, Service};

/// What most files of this program import.
#[allow(unused_imports, reason = "each file uses what it needs")]
pub(crate) mod prelude {
    pub(crate) use std::fs;
    pub(crate) use std::io::{Read, Write};
    pub(crate) use std::net::{SocketAddr, TcpListener, TcpStream};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    pub(crate) use std::sync::{Arc, Mutex, mpsc};
    pub(crate) use std::thread;
    pub(crate) use std::time::{Duration, Instant};

    pub(crate) use oncebox::base::clock::Clock;
    pub(crate) use oncebox::http::proxies::Proxies;
    pub(crate) use oncebox::http::server::Setup;
    pub(crate) use oncebox::http::service::Limits;

    pub(crate) use super::{Client, LARGE, Rig, echo, get, in_own_process, post, until};
}

/// Bytes of the answer to `/large`: more than the buffers of both sockets hold.
pub(crate) const LARGE: usize = 20_000_000;

/// No test waits longer than this for anything.
const PATIENCE: Duration = Duration::from_mins(3);

/// Replies that the service kept instead of sending them.
pub(crate) type Kept = Receiver<(Request, Reply)>;

/// Answers by path; what is not listed in `call` is echoed.
struct Script {
    later: Sender<(Request, Reply)>,
    held: Sender<(Request, Reply)>,
    gate: Receiver<()>,
    entered: Sender<()>,
}

impl Service for Script {
    fn body_limit(&self, head: &Head) -> Result<usize, Response> {
        match head.path.as_str() {
            "/missing" => Err(self.refusal(404, "no such path")),
            "/limit-panic" => panic!("a panic on purpose, in the limit"),
            "/tiny" => Ok(100),
            "/big" => Ok(25 * 1024 * 1024),
            _ => Ok(1024 * 1024),
        }
    }

    fn payer(&self, head: &Head) -> Payer {
        head.headers.get("tenant").map_or(Payer::Anonymous, Payer::tenant)
    }

    fn call(&self, request: Request, reply: Reply) {
        match request.head.path.as_str() {
            "/later" => self.later.send((request, reply)).unwrap(),
            "/hold" => self.held.send((request, reply)).unwrap(),
            "/panic" => panic!("a panic on purpose"),
            "/drop" => drop(reply),
            "/drop-later" => drop(thread::spawn(move || drop(reply))),
            "/who" => {
                let who = format!("{} {}", request.client_address(), request.request_id());
                reply.send(Response::with_body(200, "x/y", who.into_bytes()));
            }
            "/hang-up" => reply.send(Response::hang_up()),
            "/no-status" => reply.send(Response::new(99)),
            "/large" => reply.send(Response::with_body(200, "x/y", vec![b'x'; LARGE])),
            "/bye" => reply.send(Response { close: true, ..Response::new(200) }),
            "/block" => {
                self.entered.send(()).unwrap();
                self.gate.recv().unwrap();
                reply.send(Response::new(200));
            }
            _ => reply.send(echo(request)),
        }
    }

    fn refusal(&self, status: u16, detail: &str) -> Response {
        Response::with_body(status, "application/problem+json", detail.as_bytes().to_vec())
    }
}

pub(crate) fn echo(request: Request) -> Response {
    Response::with_body(200, "x/y", request.body)
}

/// A running server.
pub(crate) struct Rig {
    pub(crate) server: Arc<Server>,
    pub(crate) address: SocketAddr,
    /// What came to `/hold`.
    pub(crate) held: Kept,
    /// One message lets one request to `/block` go on.
    pub(crate) gate: Sender<()>,
    /// One message for each request to `/block` that a handler has begun.
    pub(crate) entered: Receiver<()>,
    later: Option<JoinHandle<()>>,
}

impl Rig {
    pub(crate) fn new(limits: Limits) -> Self {
        Self::with(Setup::new(limits, Clock::machine()))
    }

    pub(crate) fn with(setup: Setup) -> Self {
        let (later, for_later) = unbounded::<(Request, Reply)>();
        let (for_held, held) = unbounded();
        let (gate, closed_gate) = unbounded();
        let (enter, entered) = unbounded();
        let script = Script { later, held: for_held, gate: closed_gate, entered: enter };
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::start(vec![listener], setup, Arc::new(script));
        let answer =
            move || for_later.iter().for_each(|(request, reply)| reply.send(echo(request)));
        let later = Some(thread::spawn(answer));
        Self { server: Arc::new(server.unwrap()), address, held, gate, entered, later }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// Sends one request on a connection of its own and gives the answer, and whether the server
    /// then closed the connection.
    pub(crate) fn exchange(&self, request: impl AsRef<[u8]>) -> (Answer, bool) {
        let mut client = self.client();
        client.send(request);
        let answer = client.answer();
        // A close that was announced is waited for; one that was not would come with the answer.
        let announced = answer.field("connection") == Some("close");
        let wait = if announced { PATIENCE } else { Duration::from_millis(20) };
        client.0.set_read_timeout(Some(wait)).unwrap();
        let closed = matches!(client.0.read(&mut [0]), Ok(0));
        (answer, closed)
    }

    /// Asserts that a request is answered with that status, and the connection closed.
    #[track_caller]
    pub(crate) fn refuses(&self, request: impl AsRef<[u8]>, status: u16) {
        let (answer, closed) = self.exchange(request);
        assert_eq!((answer.status, closed), (status, true), "{answer:?}");
        assert_eq!(answer.field("connection"), Some("close"));
        assert_eq!(answer.field("content-type"), Some("application/problem+json"));
        self.works();
    }

    /// Asserts that an honest request is answered.
    #[track_caller]
    pub(crate) fn works(&self) {
        let (answer, closed) = self.exchange(post("/echo", "still there?"));
        assert_eq!(
            (answer.status, answer.body.as_slice(), closed),
            (200, &b"still there?"[..], false)
        );
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if thread::panicking() {
            // What a test that failed has left at the gate must not keep it from telling so.
            for _ in 0..100 {
                self.gate.send(()).unwrap_or_default();
            }
        }
        self.server.stop(Duration::ZERO);
        let stats = self.server.stats();
        if !thread::panicking() {
            assert_eq!((stats.connections, stats.buffered_bytes), (0, 0), "something was left");
        }
        drop(self.later.take().filter(JoinHandle::is_finished).map(JoinHandle::join));
    }
}

/// A client's end of a connection.
pub(crate) struct Client(pub(crate) TcpStream);

/// An answer, taken apart.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut all = self.fields.iter().filter(|(have, _)| have == name);
        let first = all.next().map(|(_, value)| value.as_str());
        assert!(all.next().is_none(), "{name} twice: {self:?}");
        first
    }
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }

    /// Reads up to the next empty line.
    pub(crate) fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap_or_else(|error| {
                panic!("{error} after {:?}", String::from_utf8_lossy(&head));
            });
            head.push(byte[0]);
        }
        String::from_utf8(head).unwrap()
    }

    /// Reads an answer that has a body.
    pub(crate) fn answer(&mut self) -> Answer {
        let mut answer = self.answer_to_head();
        let length = answer.field("content-length").map_or(0, |text| text.parse().unwrap());
        answer.body = vec![0; length];
        self.0.read_exact(&mut answer.body).unwrap();
        answer
    }

    /// Reads an answer without its body.
    pub(crate) fn answer_to_head(&mut self) -> Answer {
        let head = self.head();
        let mut lines = head.split_terminator("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let fields = lines.filter(|line| !line.is_empty()).map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_owned(), value.to_owned())
        });
        Answer { status, fields: fields.collect(), body: Vec::new() }
    }

    /// Reads on until the server closes; gives what came.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => rest,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => rest,
            Err(error) => panic!("{error} after {} bytes", rest.len()),
        }
    }

    pub(crate) fn half_close(&mut self) {
        self.0.shutdown(Shutdown::Write).unwrap();
    }
}

pub(crate) fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}")
}

pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// Waits for something that another thread brings about.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a test in a process of its own, where limits and measurements are not those of its
/// neighbours. `shell` comes first. True in that process.
pub(crate) fn in_own_process(name: &str, shell: &str) -> bool {
    if std::env::var("ONCEBOX_TEST_ALONE").is_ok() {
        return true;
    }
    let exe = std::env::current_exe().unwrap();
    let output = Command::new("sh")
        .args(["-c", &format!("{shell}; exec \"$0\" \"$@\"")])
        .arg(exe)
        .args([&format!("listener::{name}"), "--exact", "--nocapture", "--test-threads=1"])
        .env("ONCEBOX_TEST_ALONE", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{errors}");
    false
}
