//! `oncebox demo`: the flags. The demo itself is in [`crate::demo`].

use std::path::PathBuf;

use clap::ValueEnum;

use crate::cli::prelude::*;
use crate::demo::databases::{self, DatabasesOptions};
use crate::demo::{self, Broken, Options, Topology};

/// Number of invoices without `--invoices`.
const INVOICES: u32 = 10_000;
const LONG_INVOICES: u32 = 20_000;
const DATABASES_INVOICES: u32 = 500;

#[derive(Debug, Args)]
pub(super) struct Demo {
    #[command(flatten)]
    way: Way,
    /// Invoices that Finance marks paid [default: 10000; with --chain or --kafka 20000, with --databases 500]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    invoices: Option<u32>,
    /// Seed of the failing requests and of the kills [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
    /// Keep the directory with the databases and logs
    #[arg(long)]
    keep: bool,
    /// File for the report [default: in the system's temporary directory]
    #[arg(long, value_name = "FILE", conflicts_with = "databases")]
    report: Option<PathBuf>,
    /// Break Logistics on purpose, to show that the count detects it
    #[arg(long = "break", hide = true, value_name = "WHAT", conflicts_with = "databases")]
    broken: Option<Break>,
}

/// The way of an event.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct Way {
    /// Use two Onceboxes, one for each system, with an unreliable connection between them
    #[arg(long)]
    chain: bool,
    /// Put a topic of Kafka between Oncebox and Logistics, on a mock of a cluster
    #[arg(long)]
    kafka: bool,
    #[arg(long, help = DATABASES)]
    databases: bool,
}

/// The help of a flag.
const DATABASES: &str = "Book invoices of an ERP on PostgreSQL in an ERP on MariaDB, on servers that the demo starts; says \
                         what is missing where there are none";

/// The part that is broken on purpose.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Break {
    /// Logistics ignores its guard
    Guard,
    /// Logistics omits some shipments
    Effect,
}

impl Demo {
    pub(super) fn run(&self, _global: &GlobalArgs) -> Result<(), Failure> {
        let Self { way, invoices, seed, keep, report, broken } = self;
        let Way { chain, kafka, databases } = way;
        if *databases {
            let invoices = invoices.unwrap_or(DATABASES_INVOICES);
            let options = DatabasesOptions { invoices, seed: *seed, keep: *keep };
            return databases::run(options).map_err(Failure::failed);
        }
        let (topology, usual) = match (chain, kafka) {
            (true, _) => (Topology::Chain, LONG_INVOICES),
            (_, true) => (Topology::Kafka, LONG_INVOICES),
            _ => (Topology::Direct, INVOICES),
        };
        let broken = match broken {
            None => Broken::Nothing,
            Some(Break::Guard) => Broken::Guard,
            Some(Break::Effect) => Broken::Effect,
        };
        let options = Options {
            topology,
            invoices: invoices.unwrap_or(usual),
            seed: *seed,
            keep: *keep,
            report: report.clone(),
            broken,
        };
        demo::run(options).map_err(Failure::failed)
    }
}

/// One process of the demo
#[derive(Debug, Args)]
pub(super) struct DemoPart {
    /// Which system it plays
    side: Side,
    /// File with its parameters
    #[arg(long, value_name = "FILE")]
    site: PathBuf,
    /// Number of earlier starts
    #[arg(long, value_name = "N")]
    life: u32,
}

/// The simulated systems.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Side {
    /// The ERP that publishes
    Finance,
    /// The system that ships
    Logistics,
}

impl DemoPart {
    pub(super) fn run(&self, _global: &GlobalArgs) -> Result<(), Failure> {
        let part = match self.side {
            Side::Finance => demo::finance::run,
            Side::Logistics => demo::logistics::run,
        };
        part(&self.site, self.life).map_err(Failure::failed)
    }
}
