//! `oncebox demo`: the flags; the story itself is in [`crate::demo`].

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::Failure;
use crate::demo::{self, Broken, Options};

/// Show and prove it: 10,000 invoices through crashes, lost answers and hanging receivers
#[derive(Debug, Args)]
pub(super) struct Demo {
    /// Invoices that Finance marks paid
    #[arg(long, default_value_t = 10_000, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    invoices: u32,
    /// Decides which requests fail and when which process is killed [default: a random one]
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
    /// Keep the directory with the three databases and logs
    #[arg(long)]
    keep: bool,
    /// Where the report goes [default: into the system's temporary directory]
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Breaks Logistics on purpose, to show that the count finds it
    #[arg(long = "break", hide = true, value_name = "WHAT")]
    broken: Option<Break>,
}

/// What is broken on purpose.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Break {
    /// Logistics does not look at its guard
    Guard,
    /// Logistics forgets some shipments
    Effect,
}

impl Demo {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let Self { invoices, seed, keep, report, broken } = self;
        let broken = match broken {
            None => Broken::Nothing,
            Some(Break::Guard) => Broken::Guard,
            Some(Break::Effect) => Broken::Effect,
        };
        let (invoices, seed, keep, report) = (*invoices, *seed, *keep, report.clone());
        demo::run(Options { invoices, seed, keep, report, broken }).map_err(Failure::failed)
    }
}

/// One side of the demo
#[derive(Debug, Args)]
pub(super) struct Part {
    /// Which side
    side: Side,
    /// What it has to know
    #[arg(long, value_name = "FILE")]
    site: PathBuf,
    /// How often it was started before
    #[arg(long, value_name = "N")]
    life: u32,
}

/// The sides that stand in for other people's systems.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Side {
    /// The ERP that publishes
    Finance,
    /// The system that ships
    Logistics,
}

impl Part {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let part = match self.side {
            Side::Finance => demo::finance::run,
            Side::Logistics => demo::logistics::run,
        };
        part(&self.site, self.life).map_err(Failure::failed)
    }
}
