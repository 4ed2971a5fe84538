//! An ERP's own database as source and target, beside a bare reader and a bare writer that use the same driver through
//! the same program, in turns with the service.
//!
//! Each section is a function. `cargo build --profile bench -p oncebox-odbc` comes first; a server that is not installed is left out.

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
    reason = "a bench owns its processes, ends by panicking, prints what it measures and reckons in floats"
)]

#[path = "rig/erp.rs"]
mod erp;
#[path = "rig/million.rs"]
mod million;
mod rig;

use std::time::{Duration, Instant};

use oncebox::databases::product::Product;
use serde_json::{Value, json};

use million::million;

use erp::{Erp, add_source, catch_up, commit_one, has_helper, stored};
use rig::load::{Kind, Load};
use rig::report::Report;
use rig::server::{SECRET, Server};
use rig::sink::Sink;
use rig::{Options, median, now_us, rest};

/// How much of the bare reader's and the bare writer's rate is asked for.
const RATIO: f64 = 0.6;

/// What is measured, by the names of the option `--only`.
const SECTIONS: [(&str, Section); 6] = [
    ("source", source),
    ("source-alone", source_alone),
    ("target", target),
    ("latency", latency),
    ("beside", beside),
    ("million", million),
];

/// A part of the bench.
type Section = fn(&mut Report, Options, &Erp);

/// Rates of the service and of the bare program, in turns.
#[derive(Default)]
struct Pairs {
    served: Vec<f64>,
    bare: Vec<f64>,
}

impl Pairs {
    fn add(&mut self, served: f64, bare: f64) {
        self.served.push(served);
        self.bare.push(bare);
    }

    fn report(&self, report: &mut Report, what: String, floor: &str, wanted: Option<f64>) {
        let pairs = self.served.iter().zip(&self.bare);
        let ratios: Vec<f64> = pairs.map(|(served, bare)| served / bare).collect();
        let floor = format!("{:.0}/s {floor}", median(&self.bare));
        report.ratio(what, (median(&self.served), "/s"), (floor, median(&ratios)), wanted);
    }
}

fn publishing(server: &Server, event_type: &str, rate: u32, span: Duration) -> Load {
    let kind = Kind::Publish { token: server.token.clone(), event_type: event_type.to_owned() };
    Load { address: server.address.clone(), kind, connections: 32, span, rate: Some(rate) }
}

/// Rows of an ERP that are read, stored with a delivery each, and marked.
fn source(report: &mut Report, options: Options, erp: &Erp) {
    let server = erp.serve();
    server.subscribe("bench", "http://127.0.0.1:40009/", "outbox", "bench.event");
    server.pause("bench");
    let what = "source, mark, a delivery for each row";
    source_of(report, options, erp, &server, what);
}

/// Rows that are read, stored and marked; nobody subscribes to them. The bare reader stores nothing either.
fn source_alone(report: &mut Report, options: Options, erp: &Erp) {
    source_of(report, options, erp, &erp.serve(), "source, mark, no deliveries");
}

fn source_of(report: &mut Report, options: Options, erp: &Erp, server: &Server, what: &str) {
    let rows = options.pick(5_000, 60_000);
    add_source(server);
    let mut connection = erp.connect();
    let mut pairs = Pairs::default();
    for _ in 0..options.pick(3, 7) {
        erp.fill(rows);
        let bare = erp.bare_read(&mut connection);
        erp.fill(rows);
        pairs.add(catch_up(erp, server, rows), bare);
    }
    pairs.report(report, format!("{}: {what}", erp.product()), "bare reader", Some(RATIO));
}

/// Events that wait and are written into an inbox, guard and row in one transaction.
///
/// One subscription may use half of the deliverers. While half of its deliveries are written, the others are settled and the
/// next begin: so many share a transaction as a quarter of the deliverers. The bare writer writes 50 in each.
fn target(report: &mut Report, options: Options, erp: &Erp) {
    for (deliverers, ratio) in [(64, None), (256, Some(RATIO))] {
        target_with(report, options, erp, deliverers, ratio);
    }
}

fn target_with(
    report: &mut Report,
    options: Options,
    erp: &Erp,
    deliverers: u32,
    ratio: Option<f64>,
) {
    let server = erp.serve_with(deliverers);
    let subscription = json!({
        "name": "bench", "url": "database:erp", "event_types": ["bench.event"],
        "template": { "inbox": "oncebox_inbox" },
    });
    server.ask("POST", "/v1/subscriptions", &subscription);
    let mut connection = erp.connect();
    let mut pairs = Pairs::default();
    let mut together = Vec::new();
    for _ in 0..options.pick(3, 7) {
        server.pause("bench");
        let span = Duration::from_secs(options.pick(1, 3));
        let events = publishing(&server, "bench.event", 2_000, span).run().accepted;
        erp.run("TRUNCATE TABLE processed_events; TRUNCATE TABLE oncebox_inbox");
        let bare = erp.bare_write(&mut connection, events as usize);
        erp.run("TRUNCATE TABLE processed_events; TRUNCATE TABLE oncebox_inbox");
        let before = if erp.product() == Product::Mariadb { erp.commits() } else { 0.0 };
        let begun = Instant::now();
        server.ask("POST", "/v1/subscriptions/bench/resume", &Value::Null);
        while open_deliveries(&server) > 0 {
            assert!(begun.elapsed() < Duration::from_mins(5), "the target does not get its events");
            rest(Duration::from_millis(5));
        }
        pairs.add(events as f64 / begun.elapsed().as_secs_f64(), bare);
        assert_eq!(erp.run("SELECT count(*) FROM oncebox_inbox"), events.to_string());
        together.push(events as f64 / (erp.commits() - before));
    }
    let what = format!("{}: target, {deliverers} deliverers", erp.product());
    pairs.report(report, what.clone(), "bare writer, 50 a transaction", ratio);
    report.line(format!("{what}: events a transaction"), median(&together), "");
}

fn open_deliveries(server: &Server) -> u64 {
    server.ask("GET", "/v1/stats", &Value::Null)["pending"].as_u64().unwrap()
}

/// From before the commit in the ERP until the webhook is received, one event now and then.
fn latency(report: &mut Report, options: Options, erp: &Erp) {
    let server = erp.serve();
    let sink = Sink::start(SECRET);
    server.subscribe("bench", &sink.url("/"), "outbox", "bench.event");
    erp.run("TRUNCATE TABLE outbox");
    add_source(&server);
    server.ask("POST", "/v1/sources/erp/resume", &Value::Null);
    let mut connection = erp.connect();
    commit_one(&mut connection, now_us());
    sink.wait_for(1);
    sink.reset();
    let events = options.pick(40, 200);
    for _ in 0..events {
        commit_one(&mut connection, now_us());
        // No part of the interval at which a source is polled.
        rest(Duration::from_millis(97));
    }
    let came = sink.wait_for(events);
    let product = erp.product();
    report.line(format!("{product}: committed to received, p50"), came.p50_us / 1e3, "ms");
    report.line(format!("{product}: committed to received, p99"), came.p99_us / 1e3, "ms");
}

/// An event that is published while a source catches up: its rows are stored 500 in a transaction.
fn beside(report: &mut Report, options: Options, erp: &Erp) {
    let server = erp.serve();
    add_source(&server);
    let rows = options.pick(15_000, 50_000);
    erp.fill(rows);
    let load = publishing(&server, "other.event", 100, Duration::from_secs(options.pick(2, 5)));
    let alone = load.run();
    let rate = std::thread::scope(|scope| {
        let catching = scope.spawn(|| catch_up(erp, &server, rows));
        while stored(&server) == 0 {
            rest(Duration::from_millis(1));
        }
        let loaded = load.run();
        let was_reading = !catching.is_finished();
        let product = erp.product();
        let what = format!("{product}: accepted at 100/s beside {rows} rows");
        report.line(format!("{what}, p50"), loaded.p50_us / 1e3, "ms");
        report.line(format!("{what}, p99"), loaded.p99_us / 1e3, "ms");
        report.line(format!("{what}: the source read all the time"), f64::from(was_reading), "");
        catching.join().unwrap()
    });
    let product = erp.product();
    report.line(format!("{product}: accepted at 100/s alone, p50"), alone.p50_us / 1e3, "ms");
    report.line(format!("{product}: accepted at 100/s alone, p99"), alone.p99_us / 1e3, "ms");
    report.line(format!("{product}: source beside them"), rate, "/s");
}

fn main() {
    let Some(options) = rig::begin() else { return };
    let mut report = Report::new("databases", options);
    if !has_helper() {
        return;
    }
    for product in [Product::Postgresql, Product::Mariadb] {
        let Some(erp) = Erp::start(product) else { continue };
        for (name, section) in SECTIONS {
            if rig::is_wanted(name) {
                section(&mut report, options, &erp);
            }
        }
    }
}
