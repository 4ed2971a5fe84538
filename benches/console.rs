//! How long each page of the console takes, and how large it is, in a file with a million events (`--full`: ten million);
//! beside the answer of the API that the page shows, and the bare answer of `/livez`.

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

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rig::report::Report;
use rig::server::{Server, fresh_directory};
use rig::{Options, now_us, quantile, wire};
use rusqlite::Connection;
use serde_json::{Value, json};

/// Subscriptions, each with its part of the events.
const SUBSCRIPTIONS: i64 = 20;
/// The largest page, in kilobytes, and the slowest, in milliseconds.
const MAX_KB: f64 = 40.0;
const MAX_MS: f64 = 20.0;
/// The most kilobytes of a page on the wire.
const MAX_WIRE_KB: f64 = 12.0;

const SUBSCRIBE: &str = "
    INSERT INTO subscriptions (id, name, event_types, url, ordering, created_at, updated_at)
    SELECT printf('019a0000-0000-7000-8000-%012x', i), printf('target-%02d', i), '[\"invoice.*\"]',
           'http://127.0.0.1:40009/hook', iif(i = 8, 'key', 'none'), 1, 1
      FROM n";

/// Of the newest tenth, all wait for a retry, at most [`MAX_OPEN`]; of all, every 50th was given up.
const STATE: &str = "iif(i % 50 = 3, 'dead_letter', iif(i > ?4, 'pending', 'completed'))";

const EVENTS: &str = "
    INSERT INTO outbox (seq, id, source_system, idempotency_key, event_type, aggregate_type, aggregate_id, payload,
                        received_at, routed_at, status, open_deliveries, completed_at, ordering_key)
    SELECT i, printf('0198%04x-%04x-7000-8000-%012x', i >> 16, i & 65535, i), 'erp', 'invoice-' || i,
           'invoice.' || CASE i % 3 WHEN 0 THEN 'booked' WHEN 1 THEN 'paid' ELSE 'sent' END,
           'Invoice', i, json_object('invoice', i, 'customer', 'C-' || (i % 5000), 'total', '1250.00', 'lines',
           json_array('4 x paper', '2 x ink', hex(randomblob(180)))),
           ?3 - (?5 - i) * 100, ?3 - (?5 - i) * 100, iif(state = 'pending', 'failed', state), state = 'pending',
           iif(state = 'pending', NULL, ?3 - (?5 - i) * 100 + 5), iif(i % 20 = 7, (i / 20) % 500, NULL)
      FROM (SELECT i, STATE AS state FROM n)";

/// Target 8 has 500 lanes; the first delivery of each that waits is its head.
const DELIVERIES: &str = "
    INSERT INTO deliveries (seq, outbox_seq, subscription_seq, tenant, order_at, state, due_at, delay_ms,
                            attempt_count, counted_failures, last_class, finished_at, created_at, lane, head, reason)
    SELECT i, i, 1 + i % 20, 'default', at, state, iif(state = 'pending', ?3 + 3000000 + i % 1000, NULL),
           iif(state = 'pending', 3600000, 0), 1, state <> 'completed',
           CASE state WHEN 'completed' THEN 'success' WHEN 'pending' THEN 'transient' ELSE 'validation' END,
           iif(state = 'pending', NULL, at + 5), at,
           iif(i % 20 = 7, 1 + (i / 20) % 500, NULL),
           iif(i % 20 = 7 AND state = 'pending', (i - ?4) / 20 < 500, 1),
           iif(state = 'dead_letter', 'the target answered 422', NULL)
      FROM (SELECT i, STATE AS state, ?3 - (?5 - i) * 100 AS at FROM n)";

const ATTEMPTS: &str = "
    INSERT INTO attempts (delivery_seq, n, started_at, finished_at, url, class, counted, http_status, latency_ms,
                          excerpt, failed_reason, key_id, span)
    SELECT i, 1, at, at + 5, 'http://127.0.0.1:40009/hook',
           CASE state WHEN 'completed' THEN 'success' WHEN 'pending' THEN 'transient' ELSE 'validation' END,
           state <> 'completed', CASE state WHEN 'completed' THEN 200 WHEN 'pending' THEN 503 ELSE 422 END, 5,
           '{\"accepted\":' || iif(state = 'completed', 'true', 'false') || '}',
           CASE state WHEN 'completed' THEN NULL WHEN 'pending' THEN 'the target answered 503'
                      ELSE 'the target answered 422' END,
           '019a0000-0000-7000-8000-000000000001', '00f067aa0ba902b7'
      FROM (SELECT i, STATE AS state, ?3 - (?5 - i) * 100 AS at FROM n)";

/// The newest delivery was tried often.
const TRIED: &str = "
    INSERT INTO attempts (delivery_seq, n, started_at, finished_at, url, class, counted, http_status, latency_ms,
                          excerpt, failed_reason)
    SELECT ?1, n + i, started_at + i * 60000, finished_at + i * 60000, url, class, counted, http_status, latency_ms,
           printf('%.300c', 'x'), failed_reason
      FROM attempts, (WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 99) SELECT i FROM n)
     WHERE delivery_seq = ?1";

/// One for ten events.
const WEBHOOKS: &str = "
    INSERT INTO webhook_events (id, provider, provider_event_id, event_type, received_at, payload, content_type,
                                status, completed_at)
    SELECT printf('0199%04x-%04x-7000-8000-%012x', i >> 16, i & 65535, i),
           iif(i % 2 = 0, 'stripe', 'shopify'), 'evt_' || i, 'invoice.paid', ?3 - (?5 - i) * 100,
           CAST(json_object('id', i, 'data', hex(randomblob(200))) AS BLOB), 'application/json', 'skipped', ?3
      FROM n WHERE i % 10 = 0";

const ESCALATIONS: &str = "
    INSERT INTO escalations (id, tenant, class, subject, detail, first_at, last_at, count)
    SELECT printf('019b0000-0000-7000-8000-%012x', i), 'default', 'delivery.dead_lettered', 'subscription:target-' || i,
           'Deliveries were given up: the target answered 422.', 1, 1, 1000
      FROM n";

/// Deliveries that wait; the rest is history.
const MAX_OPEN: i64 = 100_000;

/// Rows of one transaction.
const CHUNK: i64 = 50_000;

fn numbered(insert: &str) -> String {
    let numbers = "WITH RECURSIVE n (i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)";
    format!("{numbers}{}", insert.replace("STATE", STATE))
}

/// Writes so many events with a delivery each, and webhooks.
fn fill(conn: &Connection, events: i64) {
    let trigger = "SELECT sql FROM sqlite_master WHERE name = 'outbox_own_columns_are_left_out'";
    let trigger: String = conn.query_row(trigger, [], |row| row.get(0)).unwrap();
    conn.execute_batch("PRAGMA synchronous = OFF; DROP TRIGGER outbox_own_columns_are_left_out")
        .unwrap();
    conn.execute(&numbered(SUBSCRIBE), (1, SUBSCRIPTIONS)).unwrap();
    let now = i64::try_from(now_us() / 1000).unwrap();
    let waiting_from = (events - (events / 10).min(MAX_OPEN)) / 20 * 20;
    let mut from = 1;
    while from <= events {
        let to = (from + CHUNK - 1).min(events);
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        conn.execute(&numbered(EVENTS), (from, to, now, waiting_from, events)).unwrap();
        conn.execute(&numbered(DELIVERIES), (from, to, now, waiting_from, events)).unwrap();
        conn.execute(&numbered(ATTEMPTS), (from, to, now, waiting_from, events)).unwrap();
        conn.execute(&numbered(WEBHOOKS), (from, to, now, 0, events)).unwrap();
        conn.execute_batch("COMMIT").unwrap();
        from = to + 1;
    }
    conn.execute(TRIED, [events]).unwrap();
    conn.execute("UPDATE deliveries SET attempt_count = 100 WHERE seq = ?1", [events]).unwrap();
    conn.execute(&numbered(ESCALATIONS), (1, 200)).unwrap();
    conn.execute_batch(&format!("{trigger}; PRAGMA synchronous = FULL")).unwrap();
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}

/// What the file lacks: what is sealed or hashed is made by the API.
fn furnish(server: &Server, erp: &Path) {
    for provider in ["stripe", "shopify"] {
        server.provide(provider);
    }
    for n in 0..100 {
        server.ask(
            "POST",
            "/v1/users",
            &json!({ "name": format!("person-{n}"), "role": "operate" }),
        );
        server.ask(
            "POST",
            "/v1/tokens",
            &json!({ "name": format!("program-{n}"), "role": "read" }),
        );
    }
    for n in 0..20 {
        let url = "http://127.0.0.1:40009/hook";
        let channel = json!({ "name": format!("channel-{n}"), "kind": "webhook", "url": url, "severity": "critical" });
        server.ask("POST", "/v1/alert-channels", &channel);
        let path = format!("/v1/subscriptions/target-{:02}/credentials", n + 1);
        server.ask("POST", &path, &json!({ "kind": "signing" }));
    }
    // Changes with many fields, and more than are verified at once.
    for n in 0..1_200 {
        let types: Vec<String> = (0..20).map(|m| format!("invoice.type-{n}-{m}")).collect();
        server.ask("PATCH", "/v1/subscriptions/target-02", &json!({ "event_types": types }));
    }
    server.ask("POST", "/v1/users", &json!({ "name": "anna", "role": "admin" }));
    let erp = erp.join("erp.db");
    let table = "CREATE TABLE outbox (id INTEGER PRIMARY KEY, event_type TEXT, payload TEXT)";
    Connection::open(&erp).unwrap().execute_batch(table).unwrap();
    let source = json!({ "name": "erp", "kind": "sqlite", "settings": { "path": erp } });
    server.ask("POST", "/v1/sources", &source);
    server.ask("PUT", "/v1/event-types/invoice.booked", &json!({ "schema": true }));
    let replay = json!({ "filter": { "subscription": "target-04" }, "rate": 1 });
    server.ask("POST", "/v1/dead-letters/replay", &replay);
}

/// A connection that stays open.
struct Line {
    address: String,
    /// The header field that says who asks.
    who: String,
    socket: TcpStream,
}

struct Got {
    status: u16,
    bytes: usize,
    etag: Option<String>,
    span: Duration,
}

impl Line {
    fn new(address: &str, who: String) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        Self { address: address.to_owned(), who, socket }
    }

    /// Somebody's browser: logs in by a one-time link.
    fn browser(server: &Server, name: &str) -> Self {
        let made = server.ask("POST", &format!("/v1/users/{name}/link"), &Value::Null);
        let link = made["url"].as_str().unwrap().split_once('?').unwrap().1.to_owned();
        let mut browser = Self::new(&server.address, String::new());
        let head = browser.exchange(&format!(
            "POST /console/enter HTTP/1.1\r\nhost: rig\r\ncontent-length: {}\r\n\r\n{link}",
            link.len()
        ));
        let cookie = wire::field(&head, b"set-cookie:").expect("the session's cookie");
        let cookie = String::from_utf8_lossy(cookie).split(';').next().unwrap().to_owned();
        browser.who = format!("cookie: {cookie}\r\n");
        browser
    }

    /// Sends a request, and returns the whole answer.
    fn exchange(&mut self, request: &str) -> Vec<u8> {
        self.socket.write_all(request.as_bytes()).unwrap();
        let (mut input, mut scratch) = (Vec::new(), vec![0; 128 * 1024]);
        while wire::ends(&input).is_none() {
            let length = self.socket.read(&mut scratch).unwrap();
            assert!(length > 0, "it hung up: {request}");
            input.extend_from_slice(&scratch[..length]);
        }
        if wire::field(&input, b"connection:") == Some(b"close") {
            self.socket = TcpStream::connect(&self.address).unwrap();
            self.socket.set_nodelay(true).unwrap();
        }
        input
    }

    fn get(&mut self, path: &str, etag: Option<&str>) -> Got {
        let etag = etag.map(|etag| format!("if-none-match: {etag}\r\n")).unwrap_or_default();
        let request = format!("GET {path} HTTP/1.1\r\nhost: rig\r\n{}{etag}\r\n", self.who);
        let begun = Instant::now();
        let input = self.exchange(&request);
        let span = begun.elapsed();
        let (head, whole) = wire::ends(&input).unwrap();
        let etag = wire::field(&input[..head], b"etag:");
        Got {
            status: std::str::from_utf8(&input[9..12]).unwrap().parse().unwrap(),
            bytes: whole - head,
            etag: etag.map(|etag| String::from_utf8_lossy(etag).into_owned()),
            span,
        }
    }

    /// The kilobytes of a page's body as browsers ask for it: compressed.
    fn compressed(&mut self, path: &str) -> f64 {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: rig\r\naccept-encoding: gzip\r\n{}\r\n",
            self.who
        );
        let input = self.exchange(&request);
        let (head, whole) = wire::ends(&input).unwrap();
        (whole - head) as f64 / 1e3
    }

    /// Median and p99 in milliseconds, and the largest answer in kilobytes.
    fn measure(&mut self, path: &str, times: u32) -> (f64, f64, f64) {
        let (mut spans, mut bytes) = (Vec::new(), 0);
        for n in 0..times + 3 {
            let got = self.get(path, None);
            assert_eq!(got.status, 200, "{path}");
            bytes = bytes.max(got.bytes);
            // The first ones fill the caches.
            if n >= 3 {
                spans.push(u32::try_from(got.span.as_micros()).unwrap());
            }
        }
        spans.sort_unstable();
        (quantile(&spans, 0.5) / 1e3, quantile(&spans, 0.99) / 1e3, bytes as f64 / 1e3)
    }
}

/// Pages, each with the answer of the API that it shows.
const PAGES: [(&str, &str); 55] = [
    ("", "stats"),
    ("start", "stats"),
    ("search?q={seq}", "search?q={seq}"),
    ("search?q=47", "search?q=47"),
    ("search?q=invoice-4", "search?q=invoice-4"),
    ("search?q=invoice.", "search?q=invoice."),
    ("search?q=nothing-like-it", "search?q=nothing-like-it"),
    ("search?q=evt_nothing-like-it", "search?q=evt_nothing-like-it"),
    ("events", "events"),
    ("events?status=failed", "events?status=failed"),
    ("events?status=quarantined", "events?status=quarantined"),
    ("events?event_type=invoice.booked", "events?event_type=invoice.booked"),
    ("events?event_type=none", "events?event_type=none"),
    ("events?until=2026-01-01T00:00:00Z", "events?until=2026-01-01T00:00:00Z"),
    ("events/{newest}", "events/{newest}"),
    ("events/{old}", "events/{old}"),
    ("events/{old}/payload", "events/{old}"),
    ("events/{old}/support", "events/{old}"),
    ("webhooks", "webhook-events"),
    ("webhooks?provider=stripe&status=failed", "webhook-events?provider=stripe&status=failed"),
    ("webhooks/{webhook}", "webhook-events/{webhook}"),
    ("deliveries", "deliveries"),
    ("deliveries?state=pending", "deliveries?state=pending"),
    (
        "deliveries?state=dead_letter&subscription=target-04",
        "deliveries?state=dead_letter&subscription=target-04",
    ),
    ("deliveries?state=cancelled", "deliveries?state=cancelled"),
    ("deliveries/dlv_{last}", "deliveries/dlv_{last}"),
    ("deliveries/dlv_{dead}", "deliveries/dlv_{dead}"),
    ("dead-letters", "dead-letters/summary"),
    ("dead-letters?subscription=target-04", "dead-letters/summary?subscription=target-04"),
    ("jobs", "jobs"),
    ("jobs/{job}", "jobs/{job}"),
    ("lanes", "lanes"),
    ("lanes?blocked=true", "lanes?blocked=true"),
    ("lanes/{lane}", "lanes/{lane}"),
    ("subscriptions", "subscriptions?limit=20"),
    ("subscriptions/target-02", "subscriptions/target-02"),
    ("sources", "sources"),
    ("sources/erp", "sources/erp"),
    ("providers/stripe", "providers/stripe"),
    ("alerts", "escalations?limit=50"),
    ("audit", "audit-events"),
    ("audit?action=user.delete", "audit-events?action=user.delete"),
    ("audit/1000", "audit-events/1000"),
    ("events/types", "event-types"),
    ("events/types/invoice.booked", "event-types/invoice.booked"),
    ("subscriptions/tests/{test}", "subscription-tests/{test}"),
    ("settings", "stats"),
    ("settings/my-sessions", "sessions"),
    ("settings/users", "users?limit=50"),
    ("settings/sessions", "sessions?limit=50"),
    ("settings/tokens", "tokens?limit=50"),
    ("settings/tenants", "tenants"),
    ("settings/in-force", "settings"),
    ("settings/databases", "databases"),
    ("settings/backups", "backups"),
];

/// The paths of those pages and answers in this file.
fn pages(server: &Server, events: i64) -> Vec<(String, String)> {
    let id = |front: &str, seq: i64| {
        format!("{front}{:04x}-{:04x}-7000-8000-{seq:012x}", seq >> 16, seq & 65535)
    };
    let first_of = |path: &str| {
        let listed = server.ask("GET", path, &Value::Null);
        listed["items"][0]["id"].as_str().unwrap_or_else(|| panic!("{path}: {listed}")).to_owned()
    };
    let old = events / 20 * 10;
    let begun =
        server.ask("POST", "/v1/subscriptions/target-01/test", &json!({ "background": true }));
    let names = [
        ("{test}", begun["id"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned()),
        ("{seq}", old.to_string()),
        ("{last}", events.to_string()),
        ("{dead}", (events / 50 * 40 + 3).to_string()),
        ("{newest}", id("0198", events)),
        ("{old}", id("0198", old)),
        ("{webhook}", id("0199", old)),
        ("{job}", first_of("/v1/jobs")),
        ("{lane}", first_of("/v1/lanes")),
    ];
    let filled = |path: &str| {
        names.iter().fold(path.to_owned(), |path, (name, value)| path.replace(name, value))
    };
    let all = PAGES.iter();
    all.map(|(page, api)| (filled(&format!("/console/{page}")), filled(&format!("/v1/{api}"))))
        .collect()
}

/// Whether a path is one of a page: `{…}` stands for any part.
fn is_of(page: &str, path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    page.split('/').count() == path.split('/').count()
        && page.split('/').zip(path.split('/')).all(|(of, is)| of == is || of.starts_with('{'))
}

/// How often a page that did not change is answered 304, and how long that takes.
fn unchanged(report: &mut Report, line: &mut Line, path: &str, times: u32) {
    let (mut spans, mut etag) = (Vec::new(), None);
    for _ in 0..times {
        let got = line.get(path, etag.as_deref());
        if got.status == 304 {
            spans.push(u32::try_from(got.span.as_micros()).unwrap());
        } else {
            etag = got.etag;
        }
    }
    let share = spans.len() as f64 * 100.0 / f64::from(times);
    spans.sort_unstable();
    let (p50, p99) = (quantile(&spans, 0.5) / 1e3, quantile(&spans, 0.99) / 1e3);
    report.line(format!("{path} unchanged: 304"), share, "%");
    report.line(format!("{path} unchanged: p50"), p50, "ms");
    report.line(format!("{path} unchanged: p99"), p99, "ms");
}

fn measure(report: &mut Report, server: &Server, (events, options): (i64, Options)) {
    let times = options.pick(20, 200);
    let mut browser = Line::browser(server, "anna");
    let mut program =
        Line::new(&server.address, format!("authorization: Bearer {}\r\n", server.token));
    let all = pages(server, events);
    // A backup is a file.
    for page in oncebox::console::pages().filter(|page| !page.ends_with("/backups/{name}")) {
        assert!(all.iter().any(|(path, _)| is_of(page, path)), "{page} is not measured");
    }
    let (p50, p99, _) = program.measure("/livez", times);
    report.line("/livez: p50", p50, "ms");
    report.line("/livez: p99", p99, "ms");
    for (page, api) in &all {
        let (bare, _, _) = program.measure(api, times);
        let (p50, p99, kilobytes) = browser.measure(page, times);
        report.times(
            format!("{page}: p50"),
            (p50, "ms"),
            (format!("{bare:.2} ms {api}"), p50 / bare),
            None,
        );
        report.at_most(format!("{page}: p99"), p99, "ms", MAX_MS);
        report.at_most(format!("{page}: size"), kilobytes, "kB", MAX_KB);
        let on_the_wire = browser.compressed(page);
        report.at_most(format!("{page}: on the wire"), on_the_wire, "kB", MAX_WIRE_KB);
    }
    for path in ["/console/", "/console/events", "/console/deliveries?state=pending"] {
        unchanged(report, &mut browser, path, times);
    }
}

fn main() {
    let Some(options) = rig::begin() else { return };
    let mut report = Report::new("console", options);
    let events = if options.full { 10_000_000 } else { options.pick(20_000, 1_000_000) };
    let data = fresh_directory("console");
    Server::start_on(&data).stop();
    let conn = rig::floor::open(&data.join("oncebox.db"));
    fill(&conn, events);
    drop(conn);
    let server = Server::start_on(&data);
    let erp = fresh_directory("erp");
    furnish(&server, &erp);
    measure(&mut report, &server, (events, options));
    server.stop();
    drop(std::fs::remove_dir_all(data));
    drop(std::fs::remove_dir_all(erp));
}
