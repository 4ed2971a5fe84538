//! Events by plain SQL: from a Python process's COMMIT to the receiver, and how long it and our intake wait for
//! each other when both write all the time.

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

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use rig::Options;
use rig::load::{Kind, Load};
use rig::report::Report;
use rig::server::{SECRET, Server};
use rig::sink::Sink;

const PROGRAM: &str = include_str!("rig/foreign.py");

/// Starts the foreign program.
fn foreign(data: &Path, plan: [f64; 5]) -> Child {
    let plan = plan.map(|number| number.to_string());
    let mut python = Command::new("python3");
    python.args(["-c", PROGRAM]).arg(data.join("oncebox.db")).args(plan);
    python.stdout(Stdio::piped()).spawn().expect("this bench needs python3")
}

fn told(child: Child) -> Value {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the foreign program failed");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn steady(report: &mut Report, options: Options) {
    let (server, sink) = (Server::start("relay"), Sink::start(SECRET));
    server.subscribe("bench", &sink.url("/"), "outbox", "sql.event");
    told(foreign(&server.data, [25.0, 50.0, 0.0, 0.0, 0.0]));
    sink.wait_for(25);
    sink.reset();
    let count = options.pick(150.0, 1000.0);
    let told = told(foreign(&server.data, [count, 50.0, 0.0, 0.0, 0.0]));
    let came = sink.wait_for(count as u64);
    let routed = |n: usize| told["routed_ms"][n].as_f64().unwrap();
    report.at_most("committed to routed, at 50/s: p50", routed(0), "ms", 5.0);
    report.line("committed to routed, at 50/s: p99", routed(1), "ms");
    report.line("inserted to received, at 50/s: p50", came.p50_us / 1e3, "ms");
    report.line("inserted to received, at 50/s: p99", came.p99_us / 1e3, "ms");
}

/// Both write all the time; each transaction of the foreign program is held so long, with such a pause after it.
fn beside(report: &mut Report, hold_ms: f64, pause_ms: f64, options: Options) {
    let (server, sink) = (Server::start("relay"), Sink::start(SECRET));
    server.subscribe("bench", &sink.url("/"), "outbox", "bench.event");
    let kind = Kind::Publish { token: server.token.clone(), event_type: "bench.event".to_owned() };
    let span = Duration::from_secs(options.pick(5, 15));
    let load = Load { address: server.address.clone(), kind, connections: 64, span, rate: None };
    let cpu = server.cpu_seconds();
    let other = foreign(&server.data, [0.0, 0.0, hold_ms, pause_ms, span.as_secs_f64()]);
    let loaded = load.run_with_refusals();
    let cpu = server.cpu_seconds() - cpu;
    let told = told(other);
    let wait = |n: usize| told["wait_ms"][n].as_f64().unwrap();
    let of = format!("beside transactions of {hold_ms} ms, {pause_ms} ms apart");
    report.line(format!("{of}: theirs"), told["count"].as_f64().unwrap(), "");
    report.line(format!("{of}: they wait p50"), wait(0), "ms");
    // They may wait for a transaction of ours and 100 ms; half of our answers take about as long as one.
    let ours_ms = loaded.p50_us / 1e3;
    report.at_most(format!("{of}: they wait p99"), wait(1), "ms", ours_ms + 100.0);
    report.line(format!("{of}: they wait at most"), wait(2), "ms");
    report.line(format!("{of}: ours accepted"), loaded.per_second, "/s");
    report.line(format!("{of}: ours refused"), loaded.refused as f64, "");
    let share = 100.0 * cpu / span.as_secs_f64();
    report.line(format!("{of}: our processor time"), share, "% of one");
    report.line(format!("{of}: ours answered p50"), loaded.p50_us / 1e3, "ms");
    report.line(format!("{of}: ours answered p95"), loaded.p95_us / 1e3, "ms");
    let ours = format!("{of}: ours answered p99");
    if hold_ms > 100.0 && pause_ms < 5.0 {
        // Nothing is promised beside long transactions without a pause: mostly 503, and retried by the sender.
        report.line(ours, loaded.p99_us / 1e3, "ms");
    } else {
        report.at_most(ours, loaded.p99_us / 1e3, "ms", hold_ms + 500.0);
    }
}

fn main() {
    let Some(options) = rig::begin() else { return };
    let mut report = Report::new("relay", options);
    steady(&mut report, options);
    for (hold_ms, pause_ms) in [(0.0, 0.0), (5.0, 0.0), (500.0, 5.0), (500.0, 0.0)] {
        beside(&mut report, hold_ms, pause_ms, options);
    }
}
