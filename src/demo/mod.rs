//! `oncebox demo`: Finance marks invoices paid, Oncebox delivers the events, Logistics ships, and all of them are killed
//! again and again. With `--chain`, two Onceboxes are connected by an unreliable line; with `--kafka`, a topic of Kafka
//! lies between Oncebox and Logistics. The results are counted in the
//! tables of Finance and Logistics. With `--databases`, invoices of a PostgreSQL become bookings of a `MariaDB`
//! ([`databases`]).
//!
//! Read [`run`] first, then `driver` (one run of the processes), then [`finance`] and [`logistics`].

mod chaos;
mod children;
mod count;
pub mod databases;
mod driver;
pub mod finance;
mod line;
pub mod logistics;
mod plot;
pub mod process;
mod progress;
mod report;
pub mod setup;
pub mod site;
mod store;
mod topic;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use crate::base::clock::Clock;
use crate::base::id::{Draw, SystemDraw};
use crate::demo::report::Results;
use crate::demo::site::{Error, Run};
use crate::sys::host;
use crate::targets::kafka;

pub use crate::demo::site::{Broken, Topology};

/// How long Finance pays, at most and at least: long enough to kill every process several times, short enough to wait
/// for.
const MAX_PAYING_SECS: u32 = 20;
const MIN_PAYING_SECS: u32 = 3;
/// Invoices a second, within those bounds.
const RATE: u32 = 500;
/// The run without faults at the same rate has a fifth of the invoices.
const STEADY_SHARE: u32 = 5;
/// Most invoices of that run, and of the run at full speed.
const MAX_STEADY: u32 = 2000;
const MAX_BURST: u32 = 5000;

/// The demo's settings.
#[derive(Clone, Debug)]
pub struct Options {
    /// The way of an event from Finance to Logistics.
    pub topology: Topology,
    /// Invoices that Finance marks paid.
    pub invoices: u32,
    /// Seed of the failing requests and of the kills; `None`: random.
    pub seed: Option<u32>,
    /// Whether to keep the directory after a success.
    pub keep: bool,
    /// File of the report; `None`: in the system's temporary directory.
    pub report: Option<PathBuf>,
    /// The part of Logistics that is broken on purpose.
    pub broken: Broken,
}

/// The directory of a run. It is removed when dropped, unless `keep` is set.
pub struct DemoDirectory {
    /// Its path.
    pub dir: PathBuf,
    /// Whether it stays.
    pub keep: bool,
}

impl Drop for DemoDirectory {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            tracing::warn!(%error, dir = %self.dir.display(), "the directory could not be removed");
        }
    }
}

/// Runs the demo and prints its progress. The error names lost and doubled shipments, damaged files, or why the demo could
/// not run.
pub fn run(options: Options) -> Result<(), Error> {
    if options.topology == Topology::Kafka {
        kafka::built().map_err(|why| Error::Failed(why.to_owned()))?;
    }
    let draw = SystemDraw::new();
    let seed = options.seed.unwrap_or_else(|| u32::try_from(draw.below(100_000)).unwrap_or(0));
    let interrupted = host::stop_flag().map_err(Error::about("signal handlers"))?;
    let name = format!("oncebox-demo-{seed}-{}", std::process::id());
    let mut directory = DemoDirectory { dir: std::env::temp_dir().join(&name), keep: true };
    fs::DirBuilder::new().create(&directory.dir).map_err(Error::file(&directory.dir))?;
    let clock = Clock::machine();
    let rate = rate(options.invoices);
    let storm = Run {
        topology: options.topology,
        invoices: options.invoices,
        per_second: rate,
        seed,
        faults: true,
        broken: options.broken,
    };
    progress::introduce(&storm, &directory.dir);
    let performed = perform(storm, &directory.dir, &interrupted, &clock);
    if matches!(performed, Err(Error::Interrupted)) {
        // After any other failure the directory is kept, to be examined.
        directory.keep = options.keep;
    }
    let (results, problems) = performed?;
    let report = write_report(options.report.as_deref(), &name, &report::html(&results))?;
    if !problems.is_empty() {
        let problems = problems.join("\n");
        let dir = directory.dir.display();
        let report = report.display();
        let kept = format!("The ledgers and logs are in {dir}; the report is {report}");
        return Err(Error::Failed(format!("{problems}\n{kept}")));
    }
    results.figures().iter().for_each(|line| progress::say(line));
    progress::say(&format!("report: {}", report.display()));
    directory.keep = options.keep;
    if options.keep {
        progress::say(&format!("ledgers and logs: {}", directory.dir.display()));
    }
    Ok(())
}

/// The run with faults. If it has no problems, two runs without: one at the same rate, for the latencies, and one at
/// full speed, for the rate.
fn perform(
    storm: Run,
    dir: &Path,
    interrupted: &AtomicBool,
    clock: &Clock,
) -> Result<(Results, Vec<String>), Error> {
    let run = |name: &str, run: Run, what: &str| run.run(&dir.join(name), what, interrupted, clock);
    let (observed, counts) = run("storm", storm, "faults and kills")?;
    progress::say(&counts.verdict(observed.kills.len()));
    let mut results = Results { run: storm, observed, counts, steady: None, burst: None };
    let mut problems = results.counts.problems(&results.observed);
    if problems.is_empty() {
        let calm = Run { faults: false, broken: Broken::Nothing, ..storm };
        let invoices = (storm.invoices / STEADY_SHARE).clamp(1, MAX_STEADY);
        let steady = run("steady", Run { invoices, ..calm }, "the same rate, no faults")?;
        let burst = Run { invoices: storm.invoices.min(MAX_BURST), per_second: 0, ..calm };
        results.burst = Some(run("burst", burst, "full speed, no faults")?);
        results.steady = Some(steady);
        problems = results.problems_without_faults();
    }
    Ok((results, problems))
}

/// Invoices a second: [`RATE`], unless paying would then be too short or too long.
fn rate(invoices: u32) -> u32 {
    let least = invoices.div_ceil(MAX_PAYING_SECS);
    let most = invoices.div_ceil(MIN_PAYING_SECS);
    RATE.clamp(least.min(most), most).max(1)
}

/// Writes the report. In the shared temporary directory it never overwrites a file.
fn write_report(asked: Option<&Path>, name: &str, html: &str) -> Result<PathBuf, Error> {
    let path = match asked {
        Some(path) => path.to_owned(),
        None => std::env::temp_dir().join(format!("{name}.html")),
    };
    let mut open = OpenOptions::new();
    open.write(true);
    if asked.is_some() {
        open.create(true).truncate(true)
    } else {
        open.create_new(true)
    };
    let written = open.open(&path).and_then(|mut file| file.write_all(html.as_bytes()));
    written.map_err(Error::file(&path))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finance_pays_for_three_to_twenty_seconds() {
        assert_eq!(rate(10_000), 500);
        assert_eq!(rate(300), 100);
        assert_eq!(rate(100_000), 5000);
        assert_eq!(rate(1), 1);
    }
}
