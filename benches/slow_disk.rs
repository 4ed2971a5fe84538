//! The service on a disk whose syncs take 8 and 20 ms more, beside the same service on the machine's own disk, in turns, at the
//! paces of a box and saturated. Prints rows for `docs/performance.md`.
//!
//! The delay is a preloaded library (`benches/rig/slow_sync.c`), which this builds with `cc`. It delays each sync by itself: a card
//! that is slow with many writes between two syncs is slower than that.

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

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rig::cost::Cost;
use rig::load::{Kind, Load};
use rig::report::Report;
use rig::server::{SECRET, Server, fresh_directory};
use rig::sink::Sink;
use rig::{Options, median};

/// What a sync takes more, in milliseconds.
const DELAYS_MS: [u32; 3] = [0, 8, 20];
/// Events a second; none: as fast as they are accepted.
const PACES: [Option<u32>; 4] = [Some(20), Some(50), Some(500), None];
/// The pace of the projection: a box next to a busy ERP has so many all day.
const PROJECTED_PACE: f64 = 5.0;
/// The pace that is measured for it: each event is as alone there. The log is not copied into the database so soon, so the
/// projection lacks a tenth; `oncebox bench` has it.
const MEASURED_PACE: Option<u32> = Some(20);
const SECONDS_A_YEAR: f64 = 365.0 * 24.0 * 3600.0;

/// A disk, and a service on it with a receiver of its own.
struct Disk {
    name: String,
    server: Server,
    sink: Sink,
}

impl Disk {
    fn new(delay_ms: u32, library: &Path) -> Self {
        let data = fresh_directory(&format!("slow-disk-{delay_ms}"));
        let environment =
            [format!("LD_PRELOAD={}", library.display()), format!("SYNC_DELAY_MS={delay_ms}")];
        let runner: Vec<String> = ["env".to_owned()].into_iter().chain(environment).collect();
        // On the machine's own disk there is no library that could cost anything.
        let runner = if delay_ms == 0 { &[][..] } else { &runner };
        let server = Server::start_under(runner, &data).with_its_directory();
        let sink = Sink::start(SECRET);
        server.subscribe("hook", &sink.url("/hook"), "outbox", "bench.event");
        let name = if delay_ms == 0 { "own disk".to_owned() } else { format!("+ {delay_ms} ms") };
        Self { name, server, sink }
    }

    fn measure(&self, pace: Option<u32>, span: Duration) -> Cost {
        let load = Load {
            address: self.server.address.clone(),
            kind: Kind::Publish {
                token: self.server.token.clone(),
                event_type: "bench.event".to_owned(),
            },
            connections: 32,
            span,
            rate: pace,
        };
        Cost::of(&self.server, &self.sink, &load)
    }
}

fn build_library() -> PathBuf {
    let library = fresh_directory("slow-sync").join("slow_sync.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/rig/slow_sync.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-o"]);
    let ended = compiler.arg(&library).arg(source).status();
    assert!(ended.expect("this needs a C compiler, cc").success(), "cc failed");
    library
}

/// A figure of the table, with the digits that it deserves.
struct Figure {
    name: &'static str,
    /// As it follows the digits.
    unit: &'static str,
    digits: usize,
    of: fn(&Cost) -> f64,
}

const FIGURES: [Figure; 7] = [
    Figure { name: "accepted and delivered", unit: "/s", digits: 0, of: |cost| cost.per_second },
    Figure { name: "sent to received, p50", unit: " ms", digits: 1, of: |cost| cost.p50_ms },
    Figure { name: "sent to received, p99", unit: " ms", digits: 1, of: |cost| cost.p99_ms },
    Figure { name: "commits an event", unit: "", digits: 2, of: |cost| cost.commits },
    Figure {
        name: "written by the process an event",
        unit: " KiB",
        digits: 1,
        of: |cost| cost.written,
    },
    Figure {
        name: "written to the device an event, others' writes included",
        unit: " KiB",
        digits: 1,
        of: |cost| cost.to_device,
    },
    Figure { name: "processor time per 1,000", unit: " s", digits: 2, of: |cost| cost.processor },
];

/// The rows of one pace: medians of the rounds, a column for each disk.
fn rows(report: &mut Report, disks: &[Disk], pace: &str, costs: &[Vec<Cost>]) -> Vec<String> {
    let mut rows = Vec::new();
    for Figure { name, unit, digits, of } in FIGURES {
        let mut row = vec![format!("{pace}: {name}")];
        for (disk, costs) in disks.iter().zip(costs) {
            let values: Vec<f64> = costs.iter().map(of).collect();
            let value = median(&values);
            report.line(format!("{pace}, {}: {name}", disk.name), value, unit.trim_start());
            row.push(format!("{value:.digits$}{unit}"));
        }
        rows.push(row.join(" | "));
    }
    rows
}

fn projected(report: &mut Report, disk: &Disk, costs: &[Cost]) -> String {
    let written: Vec<f64> = costs.iter().map(|cost| cost.written * 1024.0).collect();
    let gigabytes = median(&written) * PROJECTED_PACE * SECONDS_A_YEAR / 1e9;
    report.line(format!("{}: a year at 5 events a second", disk.name), gigabytes, "GB");
    format!("At 5 events a second this box writes {gigabytes:.0} GB a year ({}).", disk.name)
}

fn measure(report: &mut Report, options: Options) -> Vec<String> {
    let library = build_library();
    let disks = DELAYS_MS.map(|delay| Disk::new(delay, &library));
    let span = Duration::from_secs(options.pick(2, 15));
    let names: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
    let mut lines = vec![format!("what | {}", names.join(" | ")), "---|---|---|---".to_owned()];
    let mut sentences = Vec::new();
    for pace in PACES {
        let mut costs = vec![Vec::new(); disks.len()];
        for _ in 0..options.pick(1, 3) {
            for (disk, costs) in disks.iter().zip(&mut costs) {
                costs.push(disk.measure(pace, span));
            }
        }
        let name = pace.map_or_else(|| "saturated".to_owned(), |pace| format!("{pace}/s"));
        lines.extend(rows(report, &disks, &name, &costs));
        if pace == MEASURED_PACE {
            let of = disks.iter().zip(&costs);
            sentences = of.map(|(disk, costs)| projected(report, disk, costs)).collect();
        }
    }
    drop(std::fs::remove_dir_all(library.parent().unwrap()));
    lines.push(String::new());
    lines.extend(sentences);
    lines
}

fn main() {
    let Some(options) = rig::begin() else { return };
    let mut report = Report::new("slow_disk", options);
    let lines = measure(&mut report, options);
    if !options.json {
        println!("\n{}", lines.join("\n"));
    }
}
