//! `oncebox demo`: Finance marks invoices paid, Oncebox carries the fact, Logistics ships, and all of
//! them are killed on the way; with `--chain` over two Onceboxes with a bad line between them. What is shown is
//! counted from the two sides' own tables.
//!
//! Start with [`run`], then `lap` (one run of the processes), then [`finance`] and [`logistics`]. Not here: anything
//! the product needs, except [`children::end_with_parent`].

mod chaos;
pub mod children;
mod count;
mod error;
pub mod finance;
mod lap;
mod line;
pub mod logistics;
mod plot;
mod progress;
mod report;
mod setup;
mod site;
mod store;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::base::clock::Clock;
use crate::base::id::{Draw, SystemDraw};
use crate::demo::count::{Course, LedgerCounts};
use crate::demo::error::Error;
use crate::demo::progress::Progress;
use crate::demo::report::Results;
use crate::demo::site::Lap;

pub use crate::demo::site::{Broken, Story};

/// How long Finance takes over its invoices, at most and at least: long enough for every process to be
/// killed several times, short enough to wait for.
const PAYING_MOST_SECS: u32 = 20;
const PAYING_LEAST_SECS: u32 = 3;
/// Invoices a second, where that keeps it within those bounds.
const RATE: u32 = 500;
/// Of how many invoices one takes part in the lap that keeps the pace without faults.
const STEADY_SHARE: u32 = 5;
/// Invoices of that lap, and of the one that goes as fast as it can, at most.
const MAX_STEADY: u32 = 2000;
const MAX_BURST: u32 = 5000;

/// What was asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// How an invoice travels.
    pub story: Story,
    /// Invoices that Finance marks paid.
    pub invoices: u32,
    /// Decides which requests fail and who is killed when; `None`: a random one.
    pub seed: Option<u32>,
    /// Whether the directory is kept when all is well.
    pub keep: bool,
    /// Where the report goes; `None`: into the system's temporary directory.
    pub report: Option<PathBuf>,
    /// What is broken on purpose.
    pub broken: Broken,
}

/// The directory of the whole demo. Removed when dropped, unless something in it is still needed.
struct DemoDirectory {
    dir: PathBuf,
    keep: bool,
}

impl Drop for DemoDirectory {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            tracing::warn!(%error, dir = %self.dir.display(), "the demo's directory stays behind");
        }
    }
}

/// Runs the demo and tells the story as it goes.
///
/// # Errors
/// What is lost, doubled or broken, or why it could not be found out.
pub fn run(options: Options) -> Result<(), Error> {
    let draw = SystemDraw::new();
    let seed = options.seed.unwrap_or_else(|| u32::try_from(draw.below(100_000)).unwrap_or(0));
    let interrupted = interruption()?;
    let name = format!("oncebox-demo-{seed}-{}", std::process::id());
    let mut place = DemoDirectory { dir: std::env::temp_dir().join(&name), keep: true };
    fs::DirBuilder::new().create(&place.dir).map_err(Error::file(&place.dir))?;
    let clock = Clock::machine();
    let rate = rate(options.invoices);
    let storm = Lap {
        story: options.story,
        invoices: options.invoices,
        per_second: rate,
        seed,
        faults: true,
        broken: options.broken,
    };
    progress::introduce(&storm, &place.dir);
    let mut progress = Progress::new("faults and kills", storm.invoices, clock.clone());
    let outcome = storm.run(&place.dir.join("storm"), &mut progress, &interrupted, &clock);
    progress.finish();
    let (course, counts) = kept_unless_interrupted(outcome, &mut place, options.keep)?;
    progress::say(&counts.verdict(course.kills.len()));

    let mut results = Results { lap: storm, course, counts, steady: None, burst: None };
    let mut problems = results.counts.problems(&results.course);
    if problems.is_empty() {
        let outcome = calm_laps(&mut results, &place.dir, &interrupted, &clock);
        kept_unless_interrupted(outcome, &mut place, options.keep)?;
        problems.extend(results.problems_in_calm());
    }
    let report = write_report(options.report.as_deref(), &name, &report::html(&results))?;
    if !problems.is_empty() {
        let (problems, dir, report) = (problems.join("\n"), place.dir.display(), report.display());
        let kept = format!("The ledgers and logs are in {dir}; the report is {report}");
        return Err(Error::Failed(format!("{problems}\n{kept}")));
    }
    results.figures().iter().for_each(|line| progress::say(line));
    progress::say(&format!("report: {}", report.display()));
    place.keep = options.keep;
    if options.keep {
        progress::say(&format!("ledgers and logs: {}", place.dir.display()));
    }
    Ok(())
}

/// The same without faults, twice: at the same pace for the latencies, all at once for the rate.
fn calm_laps(
    results: &mut Results,
    dir: &Path,
    interrupted: &AtomicBool,
    clock: &Clock,
) -> Result<(), Error> {
    let storm = results.lap;
    let run = |name: &str, lap: Lap, what: &str| -> Result<(Course, LedgerCounts), Error> {
        let mut progress = Progress::new(what, lap.invoices, clock.clone());
        let outcome = lap.run(&dir.join(name), &mut progress, interrupted, clock);
        progress.finish();
        outcome
    };
    let calm = Lap { faults: false, broken: Broken::Nothing, ..storm };
    let steady = Lap { invoices: (storm.invoices / STEADY_SHARE).clamp(1, MAX_STEADY), ..calm };
    let burst = Lap { invoices: storm.invoices.min(MAX_BURST), per_second: 0, ..calm };
    results.steady = Some(run("steady", steady, "the same pace, no faults")?);
    results.burst = Some(run("burst", burst, "all at once, no faults")?);
    Ok(())
}

/// After Ctrl-C the directory is removed; after any other failure it is kept, to be looked at.
fn kept_unless_interrupted<T>(
    outcome: Result<T, Error>,
    place: &mut DemoDirectory,
    keep: bool,
) -> Result<T, Error> {
    if matches!(outcome, Err(Error::Interrupted)) {
        place.keep = keep;
    }
    outcome
}

/// Invoices a second: the usual rate, where that is neither over in no time nor takes for ever.
fn rate(invoices: u32) -> u32 {
    let least = invoices.div_ceil(PAYING_MOST_SECS);
    let most = invoices.div_ceil(PAYING_LEAST_SECS);
    RATE.clamp(least.min(most), most).max(1)
}

fn interruption() -> Result<Arc<AtomicBool>, Error> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&asked))
            .map_err(Error::about("a signal handler could not be set up"))?;
    }
    Ok(asked)
}

/// Writes the report; in the shared temporary directory only under a name that is free.
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
