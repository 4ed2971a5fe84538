//! The load generator: N connections that stay open, requests that are built beforehand, one thread.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use data_encoding::{BASE64, BASE64_NOPAD};
use ring::hmac;
use serde_json::{Value, json};

use super::epoll::Lines;
use super::{facts, now_us, play_as, quantile, wire};

/// Bytes of an event's payload.
pub(crate) const EVENT_BYTES: usize = 500;

/// What is sent.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// `POST /v1/events` with this token, for this event type.
    Publish { token: String, event_type: String },
    /// The same, each event with an ordering key of its own.
    Ordered { token: String, event_type: String },
    /// `POST /in/{provider}`, Standard Webhooks with this secret.
    Intake { provider: String, secret: String },
}

/// A run of the generator.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) address: String,
    pub(crate) kind: Kind,
    pub(crate) connections: usize,
    pub(crate) span: Duration,
    /// Requests a second; `None`: each connection sends again as soon as it is answered.
    pub(crate) rate: Option<u32>,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loaded {
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    pub(crate) first_us: u64,
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p95_us: f64,
    pub(crate) p99_us: f64,
    /// Processor time of the generator for one request, in microseconds.
    pub(crate) own_us: f64,
}

impl Load {
    /// Runs it in a process of its own; nothing may be refused.
    pub(crate) fn run(&self) -> Loaded {
        let loaded = self.run_with_refusals();
        assert_eq!(loaded.refused, 0, "requests were refused");
        loaded
    }

    /// The same where refusals are part of what is measured.
    pub(crate) fn run_with_refusals(&self) -> Loaded {
        let mut child = play_as("load", &self.plan());
        let mut told = String::new();
        child.stdout.take().unwrap().read_to_string(&mut told).unwrap();
        assert!(child.wait().unwrap().success(), "the load generator failed");
        let told: Value = serde_json::from_str(&told).unwrap();
        let number = |name: &str| told[name].as_f64().unwrap();
        Loaded {
            accepted: told["accepted"].as_u64().unwrap(),
            refused: told["refused"].as_u64().unwrap(),
            first_us: told["first_us"].as_u64().unwrap(),
            per_second: number("per_second"),
            p50_us: number("p50_us"),
            p95_us: number("p95_us"),
            p99_us: number("p99_us"),
            own_us: number("own_us"),
        }
    }

    fn plan(&self) -> Value {
        let (kind, name, secret) = match &self.kind {
            Kind::Publish { token, event_type } => ("publish", event_type, token),
            Kind::Ordered { token, event_type } => ("ordered", event_type, token),
            Kind::Intake { provider, secret } => ("intake", provider, secret),
        };
        json!({
            "address": self.address, "kind": kind, "name": name, "secret": secret,
            "connections": self.connections, "rate": self.rate,
            "span_ms": u64::try_from(self.span.as_millis()).unwrap(),
        })
    }
}

/// A request with holes for what differs.
struct Request {
    bytes: Vec<u8>,
    /// Where the key stands.
    keys: Vec<usize>,
    sent: usize,
    sign: Option<Sign>,
}

struct Sign {
    key: hmac::Key,
    id: usize,
    timestamp: usize,
    signature: usize,
    body: usize,
}

const KEY: &str = "KKKKKKKKKKKKKKKKKKKKKKKK";
const SENT: &str = "1000000000000000";

fn publish(event_type: &str, token: &str, more: &str) -> Request {
    let payload = padded("{\"sent_us\":");
    let body = format!(
        "{{\"event_type\":\"{event_type}\",\"idempotency_key\":\"{KEY}\",{more}\"payload\":{payload}}}"
    );
    let length = body.len();
    let bytes = format!(
        "POST /v1/events HTTP/1.1\r\nhost: rig\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    request(bytes, None)
}

fn intake(provider: &str, secret: &str) -> Request {
    let body = padded("{\"type\":\"bench.event\",\"sent_us\":");
    let signature = "S".repeat(44);
    let bytes = format!(
        "POST /in/{provider} HTTP/1.1\r\nhost: rig\r\nwebhook-id: {KEY}\r\n\
         webhook-timestamp: TTTTTTTTTT\r\nwebhook-signature: v1,{signature}\r\n\
         content-type: application/json\r\ncontent-length: {EVENT_BYTES}\r\n\r\n{body}"
    );
    let place = |mark: &str| wire::find(bytes.as_bytes(), mark.as_bytes()).unwrap();
    let encoded = secret.strip_prefix("whsec_").unwrap().trim_end_matches('=');
    let sign = Sign {
        key: hmac::Key::new(hmac::HMAC_SHA256, &BASE64_NOPAD.decode(encoded.as_bytes()).unwrap()),
        id: place(KEY),
        timestamp: place("TTTTTTTTTT"),
        signature: place(&signature),
        body: bytes.len() - EVENT_BYTES,
    };
    request(bytes, Some(sign))
}

fn padded(start: &str) -> String {
    let rest = EVENT_BYTES - start.len() - SENT.len() - ",\"pad\":\"\"}".len();
    format!("{start}{SENT},\"pad\":\"{}\"}}", "x".repeat(rest))
}

fn request(bytes: String, sign: Option<Sign>) -> Request {
    let sent = wire::find(bytes.as_bytes(), SENT.as_bytes()).unwrap();
    let keys = bytes.match_indices(KEY).map(|(at, _)| at).collect();
    Request { bytes: bytes.into_bytes(), keys, sent, sign }
}

impl Request {
    /// Fills the holes.
    fn fill(&mut self, prefix: u64, n: u64) -> u64 {
        let now = now_us();
        for key in &self.keys {
            digits(&mut self.bytes[*key..key + 12], prefix);
            digits(&mut self.bytes[key + 12..key + KEY.len()], n);
        }
        digits(&mut self.bytes[self.sent..self.sent + SENT.len()], now);
        if let Some(sign) = &self.sign {
            digits(&mut self.bytes[sign.timestamp..sign.timestamp + 10], now / 1_000_000);
            let mut mac = hmac::Context::with_key(&sign.key);
            mac.update(&self.bytes[sign.id..sign.id + KEY.len()]);
            mac.update(b".");
            mac.update(&self.bytes[sign.timestamp..sign.timestamp + 10]);
            mac.update(b".");
            mac.update(&self.bytes[sign.body..]);
            let place = &mut self.bytes[sign.signature..sign.signature + 44];
            BASE64.encode_mut(mac.sign().as_ref(), place);
        }
        now
    }
}

fn digits(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// The generator at work.
struct Generator {
    lines: Lines,
    request: Request,
    /// Different in every run, so that no key comes twice.
    prefix: u64,
    sent: u64,
    accepted: u64,
    refused: u64,
    /// When each connection has sent, in microseconds; by key.
    sent_at: std::collections::HashMap<usize, u64>,
    /// In turns, so that the server closes none for being idle.
    idle: VecDeque<usize>,
    latencies: Vec<u32>,
}

impl Generator {
    fn send(&mut self, key: usize) {
        self.sent += 1;
        let at = self.request.fill(self.prefix, self.sent);
        self.sent_at.insert(key, at);
        let socket = &mut self.lines.open.get_mut(&key).unwrap().socket;
        // A request fits into an empty socket buffer.
        socket.write_all(&self.request.bytes).unwrap();
    }

    /// Takes an answer if it is whole.
    fn take(&mut self, key: usize) -> bool {
        assert!(self.lines.read(key), "the server closed a connection");
        let input = &mut self.lines.open.get_mut(&key).unwrap().input;
        let Some((_, whole)) = wire::ends(input) else { return false };
        assert_eq!(input.len(), whole, "more came than was asked for");
        if input[9] == b'2' {
            self.accepted += 1;
        } else {
            self.refused += 1;
        }
        input.clear();
        let latency = now_us().saturating_sub(self.sent_at[&key]);
        self.latencies.push(u32::try_from(latency).unwrap_or(u32::MAX));
        true
    }

    /// Every connection sends again as soon as it is answered.
    fn closed(&mut self, span: Duration) {
        let begun = Instant::now();
        for key in std::mem::take(&mut self.idle) {
            self.send(key);
        }
        while self.accepted + self.refused < self.sent {
            let late = begun.elapsed() >= span;
            for key in self.lines.wait(Some(Duration::from_secs(10))) {
                if self.take(key) && !late {
                    self.send(key);
                }
            }
        }
    }

    /// So many a second, whether they are answered or not, as long as a connection is free.
    fn open(&mut self, span: Duration, rate: u32) {
        let begun = Instant::now();
        let gap = Duration::from_secs(1) / rate;
        while begun.elapsed() < span || self.accepted + self.refused < self.sent {
            let next = gap * u32::try_from(self.sent).unwrap();
            let due = next < span && !self.idle.is_empty();
            let wait = next.saturating_sub(begun.elapsed());
            let wait = if due { wait } else { Duration::from_millis(10) };
            for key in self.lines.wait(Some(wait)) {
                if self.take(key) {
                    self.idle.push_back(key);
                }
            }
            // With none free the server is so far behind that the next one waits for it.
            if next < span
                && begun.elapsed() >= next
                && let Some(key) = self.idle.pop_front()
            {
                self.send(key);
            }
        }
    }
}

/// The part of the generator.
pub(crate) fn play(plan: &str) {
    let plan: Value = serde_json::from_str(plan).unwrap();
    let text = |name: &str| plan[name].as_str().unwrap();
    let request = match text("kind") {
        "publish" => publish(text("name"), text("secret"), ""),
        "ordered" => publish(text("name"), text("secret"), &format!("\"ordering_key\":\"{KEY}\",")),
        _ => intake(text("name"), text("secret")),
    };
    let mut lines = Lines::new();
    let connections = plan["connections"].as_u64().unwrap();
    let idle =
        (0..connections).map(|_| lines.add(TcpStream::connect(text("address")).unwrap())).collect();
    let first_us = now_us();
    let mut generator = Generator {
        lines,
        request,
        prefix: first_us % 1_000_000_000_000,
        sent: 0,
        accepted: 0,
        refused: 0,
        sent_at: std::collections::HashMap::new(),
        idle,
        latencies: Vec::new(),
    };
    let span = Duration::from_millis(plan["span_ms"].as_u64().unwrap());
    match plan["rate"].as_u64() {
        None => generator.closed(span),
        Some(rate) => generator.open(span, u32::try_from(rate).unwrap()),
    }
    let seconds = now_us().saturating_sub(first_us) as f64 / 1e6;
    let cpu = facts::cpu_seconds(std::process::id());
    generator.latencies.sort_unstable();
    let told = json!({
        "accepted": generator.accepted, "refused": generator.refused, "first_us": first_us,
        "per_second": generator.accepted as f64 / seconds,
        "p50_us": quantile(&generator.latencies, 0.5),
        "p95_us": quantile(&generator.latencies, 0.95),
        "p99_us": quantile(&generator.latencies, 0.99),
        "own_us": cpu * 1e6 / generator.sent.max(1) as f64,
    });
    println!("{told}");
}
