//! The receiver: answers 200 at once, and counts what came and how long it was on its way.
//!
//! A path that begins with `/hang` is never answered. `GET /stats` and `GET /reset` are for the bench.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Child;
use std::time::{Duration, Instant};

use data_encoding::{BASE64, BASE64_NOPAD};
use ring::hmac;
use serde_json::{Value, json};

use super::epoll::{DOOR, Lines};
use super::{now_us, play_as, quantile, rest, wire};

/// One in so many signatures is checked.
const CHECKED: u64 = 64;
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A receiver in a process of its own.
pub(crate) struct Sink {
    child: Child,
    pub(crate) address: String,
}

/// What came since the last reset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came {
    pub(crate) requests: u64,
    /// Different `webhook-id`s.
    pub(crate) unique: u64,
    pub(crate) hanging: u64,
    pub(crate) last_us: u64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

impl Sink {
    /// Starts one that checks signatures made with this secret.
    pub(crate) fn start(secret: &str) -> Self {
        let mut child = play_as("sink", &json!({ "secret": secret }));
        let mut address = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
        Self { child, address: address.trim().to_owned() }
    }

    /// The URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Forgets what came.
    pub(crate) fn reset(&self) {
        wire::ask(&self.address, "GET", "/reset", "", "").unwrap();
    }

    /// What came so far.
    pub(crate) fn came(&self) -> Came {
        let (_, told) = wire::ask(&self.address, "GET", "/stats", "", "").unwrap();
        let count = |name: &str| told[name].as_u64().unwrap();
        assert_eq!(count("forged"), 0, "a signature was wrong");
        Came {
            requests: count("requests"),
            unique: count("unique"),
            hanging: count("hanging"),
            last_us: count("last_us"),
            p50_us: told["p50_us"].as_f64().unwrap(),
            p99_us: told["p99_us"].as_f64().unwrap(),
        }
    }

    /// Waits until that many different events have come, and asserts that each came once.
    pub(crate) fn wait_for(&self, wanted: u64) -> Came {
        let begun = Instant::now();
        loop {
            let came = self.came();
            if came.unique >= wanted {
                // A second copy would come later than the first.
                rest(Duration::from_millis(50));
                let came = self.came();
                assert_eq!((came.unique, came.requests), (wanted, wanted), "not exactly once");
                return came;
            }
            assert!(begun.elapsed() < Duration::from_mins(2), "{came:?} of {wanted} came");
            rest(Duration::from_millis(20));
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[derive(Default)]
struct Tally {
    requests: u64,
    unique: HashSet<Vec<u8>>,
    hanging: u64,
    forged: u64,
    last_us: u64,
    latencies: Vec<u32>,
}

impl Tally {
    fn note(&mut self, head: &[u8], body: &[u8], key: &hmac::Key) {
        let now = now_us();
        self.requests += 1;
        self.last_us = now;
        let id = wire::field(head, b"webhook-id:").unwrap();
        if self.requests.is_multiple_of(CHECKED) && !genuine(head, id, body, key) {
            self.forged += 1;
        }
        self.unique.insert(id.to_vec());
        let sent = wire::number_after(&body[..64.min(body.len())], b"\"sent_us\":").unwrap_or(now);
        self.latencies.push(u32::try_from(now.saturating_sub(sent)).unwrap_or(u32::MAX));
    }

    fn told(&mut self) -> String {
        self.latencies.sort_unstable();
        json!({
            "requests": self.requests, "unique": self.unique.len(), "hanging": self.hanging,
            "forged": self.forged, "last_us": self.last_us,
            "p50_us": quantile(&self.latencies, 0.5), "p99_us": quantile(&self.latencies, 0.99),
        })
        .to_string()
    }
}

fn genuine(head: &[u8], id: &[u8], body: &[u8], key: &hmac::Key) -> bool {
    let mut mac = hmac::Context::with_key(key);
    for part in [id, b".", wire::field(head, b"webhook-timestamp:").unwrap(), b".", body] {
        mac.update(part);
    }
    let wanted = format!("v1,{}", BASE64.encode(mac.sign().as_ref()));
    wire::field(head, b"webhook-signature:") == Some(wanted.as_bytes())
}

/// The part of the receiver.
pub(crate) fn play(plan: &str) {
    let plan: Value = serde_json::from_str(plan).unwrap();
    let encoded = plan["secret"].as_str().unwrap().strip_prefix("whsec_").unwrap();
    let bytes = BASE64_NOPAD.decode(encoded.trim_end_matches('=').as_bytes()).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &bytes);
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    door.set_nonblocking(true).unwrap();
    println!("{}", door.local_addr().unwrap());
    let mut lines = Lines::new();
    lines.watch(&door, DOOR);
    let mut tally = Tally::default();
    loop {
        for line in lines.wait(None) {
            if line == DOOR {
                lines.accept(&door);
            } else if !lines.read(line) || !serve(&mut lines, line, &mut tally, &key) {
                lines.drop_line(line);
            }
        }
    }
}

/// Answers what is whole; false when the line is broken.
fn serve(lines: &mut Lines, key: usize, tally: &mut Tally, secret: &hmac::Key) -> bool {
    let Some(line) = lines.open.get_mut(&key) else { return true };
    while let Some((head_end, whole)) = wire::ends(&line.input) {
        let (head, body) = (&line.input[..head_end], &line.input[head_end..whole]);
        let sent = if head.starts_with(b"GET /reset") {
            *tally = Tally::default();
            line.socket.write_all(ANSWER)
        } else if head.starts_with(b"GET /stats") {
            let told = tally.told();
            let length = told.len();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{told}");
            line.socket.write_all(answer.as_bytes())
        } else if head.starts_with(b"POST /hang") {
            tally.hanging += 1;
            Ok(())
        } else {
            tally.note(head, body, secret);
            line.socket.write_all(ANSWER)
        };
        line.input.drain(..whole);
        if sent.is_err() {
            return false;
        }
    }
    true
}
