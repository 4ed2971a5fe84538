//! What one tenant's changes cost another one: the span of a publish while the first has 480 pull subscriptions with
//! filters of 15 KB and changes twenty of them a second, and while four clients change them as fast as they are answered.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_arithmetic,
    clippy::iter_over_hash_type,
    reason = "a bench owns its processes, ends by panicking, prints what it measures and reckons in floats"
)]

mod rig;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rig::report::Report;
use rig::server::Server;
use rig::{quantile, rest, wire};
use serde_json::{Value, json};

/// Subscriptions of the tenant that changes them.
const SUBSCRIPTIONS: usize = 480;
/// Changes a second.
const CHANGES: u32 = 20;
/// Publishes a second of the other tenant.
const PUBLISHES: u32 = 50;
/// The slowest of a hundred publishes, in milliseconds.
const MAX_MS: f64 = 20.0;

/// How the first tenant changes its subscriptions.
#[derive(Clone, Copy, Debug)]
enum Changes {
    None,
    Paced,
    Fast,
}

/// A filter of 15 KB with many values; `n` makes it another one.
fn filter(n: usize) -> Value {
    let condition = |part: usize| {
        let values: Vec<String> =
            (0..100).map(|value| format!("{n:0>6}-{part}-{value:0>8}")).collect();
        json!({ "path": "$.customer", "op": "in", "value": values })
    };
    (0..7).map(condition).collect()
}

/// The `n`-th change: two of three are of terms, one is a pause or its end.
fn change(server: &Server, token: &str, n: usize) {
    let of = n / 4 % SUBSCRIPTIONS;
    let path = format!("/v1/subscriptions/s{of}");
    let (method, path, body) = match n % 4 {
        0 => ("PATCH", path, json!({ "filter": filter(n) }).to_string()),
        1 => ("POST", format!("{path}/pause"), String::new()),
        2 => ("PATCH", path, json!({ "owner_id": format!("owner-{n}") }).to_string()),
        _ => ("POST", format!("{path}/resume"), String::new()),
    };
    let (status, told) = wire::ask(&server.address, method, &path, token, &body).unwrap();
    assert!(status == 200 || status == 503, "{method} {path}: {status} {told}");
}

/// Spans of publishes of the other tenant, in microseconds, sorted.
fn publishes(server: &Server, token: &str, span: Duration) -> Vec<u32> {
    let mut spans = Vec::new();
    let begun = Instant::now();
    for n in 0_u32.. {
        let due = Duration::from_secs(1) * n / PUBLISHES;
        if due >= span {
            break;
        }
        rest(due.saturating_sub(begun.elapsed()));
        let body = json!({ "event_type": "a.b", "payload": { "customer": n } }).to_string();
        let (status, told) =
            wire::ask(&server.address, "POST", "/v1/events", token, &body).unwrap();
        assert!((200..300).contains(&status), "{status} {told}");
        // Counted from when it was due, so that one slow publish does not hide the next.
        let span = begun.elapsed().saturating_sub(due);
        spans.push(u32::try_from(span.as_micros()).unwrap());
    }
    spans.sort_unstable();
    spans
}

/// Changes subscriptions until it is over; returns how many times.
fn keep_changing(
    (server, token): (&Server, &str),
    how: Changes,
    client: usize,
    is_over: &AtomicBool,
) -> u32 {
    let begun = Instant::now();
    let mut done = 0;
    while !is_over.load(Ordering::Relaxed) {
        change(server, token, client * 1000 + done as usize);
        done += 1;
        if matches!(how, Changes::Paced) {
            let due = Duration::from_secs(1) * done / CHANGES;
            rest(due.saturating_sub(begun.elapsed()));
        }
    }
    done
}

fn measure(
    report: &mut Report,
    (server, changer, publisher): (&Server, &str, &str),
    how: Changes,
    span: Duration,
) {
    let is_over = AtomicBool::new(false);
    let clients = match how {
        Changes::None => 0,
        Changes::Paced => 1,
        Changes::Fast => 4,
    };
    let (spans, done) = thread::scope(|scope| {
        let start = |client| {
            let is_over = &is_over;
            scope.spawn(move || keep_changing((server, changer), how, client, is_over))
        };
        let threads: Vec<_> = (0..clients).map(start).collect();
        let spans = publishes(server, publisher, span);
        is_over.store(true, Ordering::Relaxed);
        let done: u32 = threads.into_iter().map(|one| one.join().unwrap()).sum();
        (spans, done)
    });
    let rate = f64::from(done) / span.as_secs_f64();
    let what = format!("publish with {rate:.0} changes a second ({how:?})");
    let ms = |share| quantile(&spans, share) / 1e3;
    report.line(format!("{what}: p50"), ms(0.5), "ms");
    report.at_most(format!("{what}: p99"), ms(0.99), "ms", MAX_MS);
    report.line(format!("{what}: most"), ms(1.0), "ms");
}

fn main() {
    let Some(options) = rig::begin() else { return };
    let mut report = Report::new("changes", options);
    let server = Server::start("changes");
    let (changer, publisher) = (server.tenant("changer"), server.tenant("publisher"));
    for n in 0..SUBSCRIPTIONS {
        let body = json!({ "name": format!("s{n}"), "target": "pull", "filter": filter(n) });
        let (status, told) =
            wire::ask(&server.address, "POST", "/v1/subscriptions", &changer, &body.to_string())
                .unwrap();
        assert_eq!(status, 201, "{told}");
    }
    let span = Duration::from_secs(options.pick(4, 30));
    for how in [Changes::None, Changes::Paced, Changes::Fast] {
        measure(&mut report, (&server, &changer, &publisher), how, span);
    }
    server.stop();
}
