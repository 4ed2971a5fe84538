//! From the publisher to the receiver: how many a second, how long on the way, at what cost.
//!
//! Every run asserts that the receiver got each accepted event exactly once, and that one signature in 64
//! is right.

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

use rig::cost::Cost;
use rig::floor::{Floor, Rows};
use rig::load::{Kind, Load, Loaded};
use rig::report::Report;
use rig::server::{SECRET, Server, fresh_directory, program};
use rig::sink::Sink;
use rig::{Options, facts, history, median, now_us, rest};

/// The share of the bare group-commit rate that accepted and delivered events must reach.
const SHARE: f64 = 0.45;

fn load(server: &Server, event_type: &str, connections: usize, span: Duration) -> Load {
    let kind = Kind::Publish { token: server.token.clone(), event_type: event_type.to_owned() };
    Load { address: server.address.clone(), kind, connections, span, rate: None }
}

fn steady(report: &mut Report, server: &Server, sink: &Sink, options: Options) {
    let span = Duration::from_secs(options.pick(2, 20));
    let loaded = at_rate(server, sink, 50, span);
    let came = sink.wait_for(loaded.accepted);
    report.line("accepted, at 50/s: p50", loaded.p50_us / 1e3, "ms");
    report.line("accepted, at 50/s: p99", loaded.p99_us / 1e3, "ms");
    report.at_most("sent to received, at 50/s: p50", came.p50_us / 1e3, "ms", 1.5);
    report.at_most("sent to received, at 50/s: p99", came.p99_us / 1e3, "ms", 10.0);
}

fn at_rate(server: &Server, sink: &Sink, rate: u32, span: Duration) -> Loaded {
    let mut load = load(server, "bench.event", 32, Duration::from_millis(500));
    load.rate = Some(rate);
    sink.reset();
    let warm = load.run();
    sink.wait_for(warm.accepted);
    sink.reset();
    load.span = span;
    load.run()
}

fn saturated(report: &mut Report, server: &Server, sink: &Sink, options: Options) {
    let span = Duration::from_secs(options.pick(2, 5));
    let mut floor = Floor::new();
    let (mut rates, mut floors, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut cpus, mut p50s, mut p99s) = (Vec::new(), Vec::new(), Vec::new());
    let (mut batches, mut owns, mut bare_cpus) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.pick(1, 5) {
        sink.reset();
        let (cpu, before) = (server.cpu_seconds(), server.writer());
        let loaded = load(server, "bench.event", 64, span).run();
        let came = sink.wait_for(loaded.accepted);
        let (cpu, after) = (server.cpu_seconds() - cpu, server.writer());
        let seconds = came.last_us.saturating_sub(loaded.first_us) as f64 / 1e6;
        let rate = loaded.accepted as f64 / seconds;
        let batch = (after.1 - before.1) / (after.0 - before.0);
        let bare_cpu = facts::cpu_seconds(std::process::id());
        let bare = floor.per_second(Rows::WholeLife, batch, span / 2);
        let bare_cpu = facts::cpu_seconds(std::process::id()) - bare_cpu;
        bare_cpus.push(bare_cpu * 1e3 / (bare * span.as_secs_f64() / 2.0));
        rates.push(rate);
        floors.push(bare);
        ratios.push(rate / bare);
        cpus.push(cpu * 1e3 / loaded.accepted as f64);
        p50s.push(came.p50_us / 1e3);
        p99s.push(came.p99_us / 1e3);
        batches.push(batch);
        owns.push(loaded.own_us);
    }
    let what = format!("accepted and delivered @64 (batch {:.1})", median(&batches));
    let floor = format!("{:.0}/s bare", median(&floors));
    report.ratio(what, (median(&rates), "/s"), (floor, median(&ratios)), Some(SHARE));
    report.at_most("server CPU per 1,000 events", median(&cpus), "s", 0.12);
    report.line("of which the bare database needs", median(&bare_cpus), "s");
    report.line("sent to received, at saturation: p50", median(&p50s), "ms");
    report.line("sent to received, at saturation: p99", median(&p99s), "ms");
    report.line("load generator's own CPU per request", median(&owns), "us");
}

/// What an event costs at several paces, with 32 connections and one subscription: for pairs of programs, in turns.
fn cost(report: &mut Report, options: Options) {
    let server = Server::start("deliver-cost");
    let sink = Sink::start(SECRET);
    server.subscribe("hook", &sink.url("/hook"), "outbox", "bench.event");
    rest(Duration::from_secs(1));
    report.line("RSS at rest", server.rss_mib(), "MiB");
    report.line("of which without pages of files", server.own_mib(), "MiB");
    let span = Duration::from_secs(options.pick(3, 10));
    for (pace, rate) in [("50/s", Some(50)), ("500/s", Some(500)), ("saturated", None)] {
        let load = Load { rate, ..load(&server, "bench.event", 32, span) };
        let cost = Cost::of(&server, &sink, &load);
        report.line(format!("{pace}: accepted and delivered"), cost.per_second, "/s");
        report.line(format!("{pace}: sent to received, p50"), cost.p50_ms, "ms");
        report.line(format!("{pace}: sent to received, p99"), cost.p99_ms, "ms");
        report.line(format!("{pace}: processor time per 1,000"), cost.processor, "s");
        report.line(format!("{pace}: written by the process, per event"), cost.written, "KiB");
        report.line(format!("{pace}: written to the device, per event"), cost.to_device, "KiB");
        report.line(format!("{pace}: commits per event"), cost.commits, "");
    }
    report.line("RSS at saturation", facts::peak_mib(server.process()), "MiB");
    report.line("after it, without pages of files", server.own_mib(), "MiB");
}

/// What an event with a key of its own costs more when the subscription keeps an order: processor time, in turns with
/// one that keeps none.
fn ordered(report: &mut Report, options: Options) {
    let span = Duration::from_secs(options.pick(2, 5));
    let setups = ["none", "key"].map(|ordering| {
        let server = Server::start(&format!("deliver-{ordering}"));
        let sink = Sink::start(SECRET);
        server.subscribe("hook", &sink.url("/hook"), "outbox", "bench.event");
        server.order("hook", ordering);
        (server, sink)
    });
    let mut costs: [Vec<f64>; 2] = Default::default();
    for _ in 0..options.pick(3, 7) {
        for ((server, sink), costs) in setups.iter().zip(&mut costs) {
            sink.reset();
            let cpu = server.cpu_seconds();
            let kind =
                Kind::Ordered { token: server.token.clone(), event_type: "bench.event".to_owned() };
            let loaded = Load { kind, ..load(server, "bench.event", 64, span) }.run();
            sink.wait_for(loaded.accepted);
            costs.push((server.cpu_seconds() - cpu) * 1e6 / loaded.accepted as f64);
        }
    }
    let [none, key] = costs.each_ref().map(|costs| median(costs));
    report.line("server CPU of an event, no order", none, "us");
    report.at_most("a lane, an event accepted and delivered", key - none, "us", 3.0);
}

/// A healthy endpoint beside so many that never answer, which belong to so many tenants. Where there are more than
/// deliverers it has answered before: nothing tells it from them otherwise.
fn beside_hanging(report: &mut Report, options: Options, count: usize, tenants: usize) {
    let server = Server::start("hanging");
    let sink = Sink::start(SECRET);
    server.subscribe("healthy", &sink.url("/healthy"), "outbox", "bench.event");
    if count > 64 {
        load(&server, "bench.event", 1, Duration::from_millis(100)).run();
    }
    let tokens: Vec<String> = (0..tenants).map(|n| server.tenant(&format!("tenant-{n}"))).collect();
    for n in 0..count {
        let token = tokens.get(n % tenants.max(1)).unwrap_or(&server.token);
        server.subscribe_as(token, &format!("hang-{n}"), &sink.url("/hang"), "hang.event");
    }
    for token in tokens.iter().chain([&server.token]) {
        let kind = Kind::Publish { token: token.clone(), event_type: "hang.event".to_owned() };
        let load = load(&server, "hang.event", 8, Duration::from_millis(100));
        Load { kind, ..load }.run();
    }
    // Long enough for them to take all they are given.
    rest(Duration::from_secs(2));
    sink.reset();
    // With more of them than deliverers the time limit of the first ones, 30 s, ends meanwhile.
    let span = options.pick(3, if count > 64 { 45 } else { 10 });
    let mut load = load(&server, "bench.event", 32, Duration::from_secs(span));
    load.rate = Some(50);
    let loaded = load.run();
    rest(Duration::from_secs(1));
    let came = sink.came();
    let all = came.unique == loaded.accepted;
    let p99 = if all { came.p99_us / 1e3 } else { f64::INFINITY };
    let whose = if tenants > 0 { format!(" of {tenants} tenants") } else { String::new() };
    let what = format!("healthy p99 beside {count} that hang{whose}, at 50/s");
    report.at_most(what, p99, "ms", 1000.0);
    report.line("of its events delivered meanwhile", came.unique as f64, "");
}

fn all_hanging(report: &mut Report, options: Options) {
    for (count, tenants) in [(30, 0), (100, 0), (100, 20)] {
        beside_hanging(report, options, count, tenants);
    }
}

fn million_open(report: &mut Report) {
    let data = fresh_directory("million");
    Server::start_on(&data).stop();
    let conn = rig::floor::open(&data.join("oncebox.db"));
    history::subscribe(&conn, "http://127.0.0.1:40009/hook");
    let now = i64::try_from(now_us() / 1000).unwrap();
    history::write(&conn, 1_000_000, now, Some(now + 3_000_000));
    drop(conn);
    let server = Server::start_on(&data);
    report.at_most(
        "start with 1,000,000 open deliveries",
        server.ready_after.as_secs_f64(),
        "s",
        5.0,
    );
    load(&server, "bench.event", 64, Duration::from_secs(2)).run();
    rest(Duration::from_secs(2));
    report.at_most("RSS with 1,000,000 open deliveries", server.rss_mib(), "MiB", 256.0);
    drop(server);
    drop(std::fs::remove_dir_all(data));
}

fn binary(report: &mut Report) {
    let size = std::fs::metadata(program()).unwrap().len();
    report.at_most("binary", size as f64 / 1e6, "MB", 10.0);
}

fn main() {
    let Some(options) = rig::begin() else { return };
    let mut report = Report::new("deliver", options);
    if std::env::args().any(|arg| arg == "--hanging") {
        return all_hanging(&mut report, options);
    }
    if std::env::args().any(|arg| arg == "--ordered") {
        return ordered(&mut report, options);
    }
    if std::env::args().any(|arg| arg == "--cost") {
        return cost(&mut report, options);
    }
    binary(&mut report);
    let server = Server::start("deliver");
    let sink = Sink::start(SECRET);
    server.subscribe("hook", &sink.url("/hook"), "outbox", "bench.event");
    rest(Duration::from_secs(1));
    report.at_most("RSS at rest", server.rss_mib(), "MiB", 24.0);
    steady(&mut report, &server, &sink, options);
    saturated(&mut report, &server, &sink, options);
    report.at_most("RSS at saturation", facts::peak_mib(server.process()), "MiB", 64.0);
    server.stop();
    ordered(&mut report, options);
    all_hanging(&mut report, options);
    if options.full {
        million_open(&mut report);
    }
}
