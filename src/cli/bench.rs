//! `oncebox bench`: the flags and the table. The measurements themselves are in [`crate::bench`].

use std::path::PathBuf;
use std::time::Duration;

use crate::bench::{self, Options, Report};
use crate::cli::out::Progress;
use crate::cli::prelude::*;
use crate::demo::site::Error;

/// Seconds of each measurement without `--seconds`: all of it then takes half a minute.
const SECONDS: u64 = 5;
/// Terabytes of a card of 32 GB that is made for speed, where `--card-tb` does not say them. Press reports of Samsung's PRO Endurance
/// (2018, 2022) have 17,520 hours of video at 26 Mbit/s for 32 GB, which are 205 TB, and up to 25 times what cards made for
/// speed take. Samsung's own pages were not seen.
const CARD_TB: u32 = 8;

/// Measure what Oncebox does on this machine, in half a minute and without an installation
///
/// Measures how long the disk takes to sync, how many events a service accepts, how many it also delivers to a receiver on this
/// machine, and how many bytes an event writes. Everything is in a directory of its own, which is removed at the end, and takes at
/// most 200 MB. The service, its load and its receiver share the processors, so a box alone does better.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  oncebox bench --dir /media/card --card-tb 200")]
pub(super) struct Bench {
    /// Directory on the disk that is measured
    #[arg(long, value_name = "DIR", default_value = ".", hide_default_value = true)]
    dir: PathBuf,
    /// Terabytes that a card takes before it is worn: TBW in its data sheet
    #[arg(long, value_name = "N", default_value_t = CARD_TB,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    card_tb: u32,
    /// Seconds of each of the five measurements
    #[arg(long, value_name = "N", default_value_t = SECONDS,
          value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    #[command(flatten)]
    format: Format,
}

impl Bench {
    pub(super) fn run(&self, _global: &GlobalArgs) -> Result<(), Failure> {
        let options = Options {
            dir: self.dir.clone(),
            span: Duration::from_secs(self.seconds),
            card_tb: self.card_tb,
        };
        let mut progress = Progress::new();
        let ran = bench::run(&options, &mut |what| progress.show(|| format!("measuring {what}")));
        progress.end();
        let report = ran.map_err(|error| match error {
            Error::Failed(_) | Error::Store(_) => Failure::failed(error),
            Error::Interrupted => Failure::failed("interrupted; the directory was removed"),
        })?;
        if self.format.json { out::json(&report) } else { print(&report) }
    }
}

fn print(report: &Report) -> Result<(), Failure> {
    let Report { syncs, accepted, delivered, written, verdicts, .. } = report;
    let bytes = written.bytes_an_event.map_or_else(
        || "not known".to_owned(),
        |bytes| format!("{}.{} kB", bytes / 1000, bytes % 1000 / 100),
    );
    let rows = [
        ("syncs of 4 KiB, median", bench::milliseconds(syncs.median_us)),
        ("syncs of 4 KiB, 99 of 100 are faster", bench::milliseconds(syncs.p99_us)),
        ("syncs of 4 KiB", format!("{}/s", syncs.per_second)),
        ("events accepted, 1 connection", format!("{}/s", accepted.one_connection)),
        ("events accepted, 16 connections", format!("{}/s", accepted.connections_16)),
        ("accepted and delivered, 16 connections", format!("{}/s", delivered.per_second)),
        ("written for an event that is alone", bytes),
    ];
    for (what, value) in rows {
        out::line(format_args!("{what:<40}{value:>12}"))?;
    }
    out::line("")?;
    for verdict in [&verdicts.syncs, &verdicts.accepted, &verdicts.delivered, &verdicts.written] {
        out::line(verdict)?;
    }
    Ok(())
}
