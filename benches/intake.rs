//! How many events a second are taken in, each on the disk before it is answered.
//!
//! `POST /v1/events` and a signed `POST /in/{provider}`, 500 bytes each, at 1, 8 and 64 connections; with
//! nobody who wants the event, and with one paused subscription. Each beside the bare database.

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

use std::time::Duration;

use rig::floor::{Floor, Rows};
use rig::load::{Kind, Load};
use rig::report::Report;
use rig::server::{SECRET, Server};
use rig::{Options, median};

/// The share of the bare group-commit rate that 64 connections must reach.
const SHARE: f64 = 0.60;

struct Case {
    name: &'static str,
    rows: Rows,
    kind: Kind,
}

fn cases(server: &Server) -> Vec<Case> {
    let publish = |event_type: &str| Kind::Publish {
        token: server.token.clone(),
        event_type: event_type.to_owned(),
    };
    let intake =
        |provider: &str| Kind::Intake { provider: provider.to_owned(), secret: SECRET.to_owned() };
    vec![
        Case { name: "events, nobody wants them", rows: Rows::Event, kind: publish("none.event") },
        Case {
            name: "events, one paused subscription",
            rows: Rows::EventAndDelivery,
            kind: publish("paused.event"),
        },
        Case { name: "webhooks, nobody wants them", rows: Rows::Webhook, kind: intake("none") },
        Case {
            name: "webhooks, one paused subscription",
            rows: Rows::WebhookAndDelivery,
            kind: intake("paused"),
        },
    ]
}

fn prepare() -> Server {
    let server = Server::start("intake");
    for (name, source, event_type) in
        [("events", "outbox", "paused.event"), ("webhooks", "provider:paused", "*")]
    {
        server.subscribe(name, "http://127.0.0.1:40009/hook", source, event_type);
        server.pause(name);
    }
    server.provide("none");
    server.provide("paused");
    server
}

fn measure(
    report: &mut Report,
    server: &Server,
    case: &Case,
    connections: usize,
    options: Options,
) {
    let span = Duration::from_millis(options.pick(500, 2000));
    let mut floor = Floor::new();
    let (mut rates, mut floors, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut cpus, mut batches, mut p99s) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.pick(1, 3) {
        let (before, cpu) = (server.writer(), server.cpu_seconds());
        let load = Load {
            address: server.address.clone(),
            kind: case.kind.clone(),
            connections,
            span,
            rate: None,
        };
        let loaded = load.run();
        let (cpu, after) = (server.cpu_seconds() - cpu, server.writer());
        let batch = (after.1 - before.1) / (after.0 - before.0);
        let bare = floor.per_second(case.rows, batch, span / 2);
        rates.push(loaded.per_second);
        floors.push(bare);
        ratios.push(loaded.per_second / bare);
        cpus.push(cpu * 1e6 / loaded.accepted as f64);
        batches.push(batch);
        p99s.push(loaded.p99_us / 1e3);
    }
    let what = format!(
        "{} @{connections} (batch {:.1}, {:.0} us CPU, p99 {:.1} ms)",
        case.name,
        median(&batches),
        median(&cpus),
        median(&p99s)
    );
    let floor = format!("{:.0}/s bare", median(&floors));
    let least = (connections == 64).then_some(SHARE);
    report.ratio(what, (median(&rates), "/s"), (floor, median(&ratios)), least);
}

fn main() {
    let Some(options) = rig::begin() else { return };
    let mut report = Report::new("intake", options);
    let server = prepare();
    for case in cases(&server) {
        for connections in options.pick(vec![1, 64], vec![1, 8, 64]) {
            measure(&mut report, &server, &case, connections, options);
        }
    }
    server.stop();
}
