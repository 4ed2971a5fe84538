//! One event to many subscriptions, and payloads of 1 MiB: how long until the last has it, and what each delivery costs.

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

use std::time::{Duration, Instant};

use rig::report::Report;
use rig::server::{SECRET, Server};
use rig::sink::Sink;
use rig::{Options, facts, median, now_us, quantile, rest, wire};

/// Subscriptions that want the event.
const WIDTHS: [u64; 4] = [1, 10, 100, 1_000];
/// Bytes of a large payload: with what stands around them 1 MiB, the most that is taken.
const LARGE_BYTES: usize = 1024 * 1024 - 64;
/// Large payloads a second.
const LARGE_PACE: u32 = 20;
const PATIENCE: Duration = Duration::from_mins(2);

/// Publishes an event with a payload of about so many bytes. Returns how long the service took to accept it, in µs.
fn publish(server: &Server, payload_bytes: usize) -> u32 {
    let pad = "x".repeat(payload_bytes);
    let begun_us = now_us();
    let body = format!(
        r#"{{"event_type":"bench.event","payload":{{"sent_us":{begun_us},"pad":"{pad}"}}}}"#
    );
    let (status, told) =
        wire::ask(&server.address, "POST", "/v1/events", &server.token, &body).unwrap();
    assert!(matches!(status, 200 | 201), "{status} {told}");
    u32::try_from(now_us() - begun_us).unwrap_or(u32::MAX)
}

/// Waits until so many requests have come; no more may.
fn wait_for_requests(sink: &Sink, wanted: u64) -> rig::sink::Came {
    let begun = Instant::now();
    while sink.came().requests < wanted {
        assert!(begun.elapsed() < PATIENCE, "{:?} of {wanted} came", sink.came());
        rest(Duration::from_millis(5));
    }
    rest(Duration::from_millis(50));
    let came = sink.came();
    assert_eq!(came.requests, wanted, "more came than was sent");
    came
}

/// What one event costs in a row of events that follow each other.
struct Spread {
    last_ms: f64,
    /// Seconds of processor time, in the kernel's steps of 10 ms.
    processor: f64,
    /// KiB that the process wrote for a delivery.
    written: f64,
}

fn spread(server: &Server, sink: &Sink, width: u64) -> Spread {
    sink.reset();
    let processor = server.cpu_seconds();
    let written = facts::written(server.process());
    let sent_us = now_us();
    publish(server, rig::load::EVENT_BYTES);
    let came = wait_for_requests(sink, width);
    // Outcomes wait up to 250 ms for company.
    rest(Duration::from_millis(300));
    Spread {
        last_ms: came.last_us.saturating_sub(sent_us) as f64 / 1e3,
        processor: server.cpu_seconds() - processor,
        written: (facts::written(server.process()) - written) / 1024.0 / width as f64,
    }
}

fn widths(report: &mut Report, options: Options) {
    for width in WIDTHS {
        let server = Server::start("width");
        let sink = Sink::start(SECRET);
        for number in 0..width {
            let url = sink.url(&format!("/{number}"));
            server.subscribe(&format!("s-{number}"), &url, "outbox", "bench.event");
        }
        spread(&server, &sink, width);
        let rounds = options.pick(7, 30);
        let spreads: Vec<Spread> = (0..rounds).map(|_| spread(&server, &sink, width)).collect();
        let of =
            |figure: fn(&Spread) -> f64| median(&spreads.iter().map(figure).collect::<Vec<_>>());
        let last_ms = of(|spread| spread.last_ms);
        report.line(format!("one event to {width}: the last has it after"), last_ms, "ms");
        let rate = width as f64 * 1e3 / last_ms;
        report.line(format!("one event to {width}: deliveries a second"), rate, "/s");
        let processor: f64 = spreads.iter().map(|spread| spread.processor).sum();
        let processor = processor * 1e6 / (spreads.len() as u64 * width) as f64;
        report.line(format!("one event to {width}: processor time a delivery"), processor, "us");
        let written = of(|spread| spread.written);
        report.line(format!("one event to {width}: written a delivery"), written, "KiB");
    }
}

/// Large payloads at a steady pace.
fn large(report: &mut Report, options: Options) {
    let server = Server::start("large");
    let sink = Sink::start(SECRET);
    server.subscribe("hook", &sink.url("/hook"), "outbox", "bench.event");
    publish(&server, LARGE_BYTES);
    wait_for_requests(&sink, 1);
    sink.reset();
    let count = LARGE_PACE * options.pick(10, 60);
    let gap = Duration::from_secs(1) / LARGE_PACE;
    let processor = server.cpu_seconds();
    let written = facts::written(server.process());
    let begun = Instant::now();
    let mut accepted_us = Vec::new();
    for number in 0..count {
        rest((gap * number).saturating_sub(begun.elapsed()));
        accepted_us.push(publish(&server, LARGE_BYTES));
    }
    let pace = f64::from(count) / begun.elapsed().as_secs_f64();
    let came = wait_for_requests(&sink, u64::from(count));
    rest(Duration::from_millis(300));
    accepted_us.sort_unstable();
    report.line("1 MiB each: events a second", pace, "/s");
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        let took = quantile(&accepted_us, share) / 1e3;
        report.line(format!("1 MiB each: accepted: {name}"), took, "ms");
    }
    report.line("1 MiB each: sent to received: p50", came.p50_us / 1e3, "ms");
    report.line("1 MiB each: sent to received: p99", came.p99_us / 1e3, "ms");
    let processor = (server.cpu_seconds() - processor) * 1e3 / f64::from(count);
    report.line("1 MiB each: processor time an event", processor, "ms");
    let written = (facts::written(server.process()) - written) / LARGE_BYTES as f64;
    report.line("1 MiB each: written an event", written / f64::from(count), "MiB");
    report.line("1 MiB each: memory, at most", facts::peak_mib(server.process()), "MiB");
}

fn main() {
    let Some(options) = rig::begin() else { return };
    let mut report = Report::new("width", options);
    widths(&mut report, options);
    large(&mut report, options);
}
