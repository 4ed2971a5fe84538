//! A site was offline for a week and comes back: a file with open deliveries of twenty subscriptions, a third of them in lanes, and
//! targets that take 50 ms each. How fast it is empty, in which order, with how much memory, and how long new events wait meanwhile.
//!
//! `--open N` says how many are open: 1,000,000 by itself, 20,000 with `--quick`. Draws `drain.svg` beside the scratch files.

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

mod backlog;
#[path = "../rig/mod.rs"]
mod rig;
mod slow_sink;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use backlog::{Backlog, SUBSCRIPTIONS};
use rig::load::{Kind, Load, Loaded};
use rig::plot::{Panel, svg};
use rig::report::Report;
use rig::server::{Server, fresh_directory};
use rig::{facts, median, now_us, quantile, rest};
use slow_sink::{SlowSink, TAKES, Tally};

/// Deliverers of a service with its usual settings.
const DELIVERERS: u64 = 64;
/// The share of what they can do.
const SHARE: f64 = 0.95;
/// Memory that the service may hold.
const MOST_MIB: f64 = 64.0;
/// New events a second meanwhile.
const FRESH: u32 = 20;
/// Nothing may come for so long before all has come.
const PATIENCE: Duration = Duration::from_mins(2);

/// What 64 deliverers can do in a second.
fn most_a_second() -> f64 {
    DELIVERERS as f64 / TAKES.as_secs_f64()
}

/// What was seen while the file became empty.
struct Drained {
    /// Requests in each second since the start.
    seconds: Vec<f64>,
    /// Memory in each second, in MiB.
    memory: Vec<f64>,
    ready_after: Duration,
    peak_mib: f64,
    own_mib: f64,
    /// The fewest and the most of a subscription without a lane, when half of all had come.
    halfway: [u64; 2],
    loaded: Loaded,
    tally: Tally,
}

/// Makes the file: subscriptions over the API, their deliveries by SQL.
fn fill(data: &Path, sink: &SlowSink, backlog: Backlog) {
    let server = Server::start_on(data);
    for number in 1..=SUBSCRIPTIONS {
        let name = format!("s-{number}");
        server.subscribe(&name, &sink.url("/old"), "outbox", &format!("bench.{name}"));
        server.order(&name, "key");
    }
    server.subscribe("fresh", &sink.url("/fresh"), "outbox", "bench.fresh");
    server.stop();
    let conn = rig::floor::open(&data.join("oncebox.db"));
    backlog.write(&conn, now_us() / 1000);
}

fn drain(data: &Path, sink: &SlowSink, backlog: Backlog) -> Drained {
    let begun_us = now_us();
    let server = Server::start_on(data);
    let load = Load {
        address: server.address.clone(),
        kind: Kind::Publish { token: server.token.clone(), event_type: "bench.fresh".to_owned() },
        connections: 8,
        // Shorter than the drain: new events are measured beside the old ones, and not after them.
        span: Duration::from_secs_f64((backlog.open as f64 / most_a_second() * 0.8).max(2.0)),
        rate: Some(FRESH),
    };
    let mut memory = Vec::new();
    let mut halfway = [0, 0];
    let loaded = std::thread::scope(|scope| {
        let loading = scope.spawn(|| load.run());
        let mut last = (sink.old(), Instant::now());
        while last.0 < backlog.open {
            rest(Duration::from_secs(1));
            memory.push(server.rss_mib());
            let old = sink.old();
            if old > last.0 {
                last = (old, Instant::now());
            }
            if halfway == [0, 0] && old >= backlog.open / 2 {
                halfway = sink.tally().least_and_most();
            }
            assert!(last.1.elapsed() < PATIENCE, "{old} of {} came, and no more", backlog.open);
        }
        loading.join().unwrap()
    });
    while sink.fresh() < loaded.accepted {
        rest(Duration::from_millis(50));
    }
    // A second copy would come later than the first.
    rest(Duration::from_secs(1));
    let tally = sink.tally();
    let peak_mib = facts::peak_mib(server.process());
    let own_mib = server.own_mib();
    let ready_after = server.ready_after;
    server.stop();
    let seconds = by_second(&tally, begun_us / 1_000_000);
    Drained { seconds, memory, ready_after, peak_mib, own_mib, halfway, loaded, tally }
}

/// Requests of each second since a second of the clock.
fn by_second(tally: &Tally, first: u64) -> Vec<f64> {
    let last = tally.seconds.keys().copied().max().unwrap_or(first);
    (first..=last).map(|at| tally.seconds.get(&at).copied().unwrap_or(0) as f64).collect()
}

fn tell(report: &mut Report, drained: &Drained, backlog: Backlog) {
    let Drained { seconds, tally, loaded, .. } = drained;
    report.line("open deliveries", backlog.open as f64, "");
    report.line("of which in lanes", (backlog.open as f64 / 3.0).round(), "");
    report.line("lanes", (backlog.lanes() * SUBSCRIPTIONS) as f64, "");
    report.line("ready after", drained.ready_after.as_secs_f64(), "s");
    // The last second is not whole.
    let whole = &seconds[..seconds.len().saturating_sub(1)];
    let usual = median(whole);
    let is_full = |rate: &f64| *rate >= usual * SHARE;
    let ramp = whole.iter().position(is_full).unwrap_or(0);
    report.line("seconds until it is as fast as it gets", ramp as f64, "s");
    let end = whole.iter().rposition(is_full).map_or(whole.len(), |at| at + 1);
    let full = &whole[ramp..end];
    let rate = full.iter().sum::<f64>() / full.len() as f64;
    let most = format!("{:.0}/s", most_a_second());
    let share = rate / most_a_second();
    report.ratio("delivered a second, then", (rate, "/s"), (most, share), Some(SHARE));
    let slowest = full.iter().copied().fold(f64::INFINITY, f64::min);
    report.line("of it in the slowest second", slowest, "/s");
    report.line("requests at once, at most", tally.width as f64, "");
    report.at_most("memory, at most", drained.peak_mib, "MiB", MOST_MIB);
    report.line("of it at the end, without pages of files", drained.own_mib, "MiB");
    report.line("accepting 20/s meanwhile: p50", loaded.p50_us / 1e3, "ms");
    report.at_most("accepting 20/s meanwhile: p99", loaded.p99_us / 1e3, "ms", 50.0);
    let mut fresh = tally.fresh_us.clone();
    fresh.sort_unstable();
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        let what = format!("new ones of another subscription, sent to received: {name}");
        report.line(what, quantile(&fresh, share) / 1e3, "ms");
    }
    report.at_most("in a lane and out of order", tally.out_of_order as f64, "", 0.0);
    report.at_most("sent twice", tally.twice as f64, "", 0.0);
    let overtaken = tally.most_overtaken as f64;
    report.at_most("older ones that one overtook, at most", overtaken, "", DELIVERERS as f64);
    let [least, most] = drained.halfway;
    report.line("halfway, the subscription with the fewest has", least as f64, "");
    report.line("and the one with the most", most as f64, "");
}

fn draw(drained: &Drained) {
    let panels = [
        Panel {
            title: "delivered in each second",
            lines: vec![
                ("delivered", drained.seconds.clone()),
                ("64 deliverers can", vec![most_a_second(); drained.seconds.len()]),
            ],
        },
        Panel {
            title: "memory, MiB",
            lines: vec![
                ("memory", drained.memory.clone()),
                ("asked, at most", vec![MOST_MIB; drained.memory.len()]),
            ],
        },
    ];
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("drain.svg");
    fs::write(&path, svg(&panels, 60)).unwrap();
    println!("  {}", path.display());
}

/// The number after a flag.
fn number(flag: &str) -> Option<u64> {
    let mut words = std::env::args().skip_while(|word| word != flag).skip(1);
    words.next().map(|word| word.parse().unwrap())
}

fn main() {
    let Some(options) = rig::begin() else { return };
    let open = number("--open").unwrap_or_else(|| options.pick(20_000, 1_000_000));
    let backlog = Backlog { open };
    let mut report = Report::new("drain", options);
    let data = fresh_directory("drain");
    let sink = SlowSink::start(backlog);
    fill(&data, &sink, backlog);
    let drained = drain(&data, &sink, backlog);
    drop(fs::remove_dir_all(data));
    tell(&mut report, &drained, backlog);
    if !options.json {
        draw(&drained);
    }
}
