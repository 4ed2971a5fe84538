//! `oncebox dead-letter`: deliveries that were given up.
//!
//! Not here: looking at a single one (`oncebox delivery show`).

use clap::{Args, Subcommand};

use crate::cli::listing::{self, List, Made, Paging, filter};
use crate::cli::remote::{ConnectArgs, Remote};
use crate::cli::show::{Column, minute, text};
use crate::cli::{Failure, Shared, delivery, exit, out};

/// Deliveries that were given up: look, send again
#[derive(Debug, Args)]
pub(super) struct DeadLetter {
    #[command(flatten)]
    reach: ConnectArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// What was given up, newest first
    List {
        /// Whose it is: a subscription's name or id
        #[arg(long)]
        subscription: Option<String>,
        #[command(flatten)]
        made: Made,
        #[command(flatten)]
        paging: Paging,
    },
    /// Send again what was given up
    Retry {
        /// Ids of deliveries
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        ids: Vec<String>,
        /// All of them, or all of a subscription
        #[arg(long)]
        all: bool,
        /// With --all: only those of this subscription
        #[arg(long, requires = "all")]
        subscription: Option<String>,
        /// With --all: do it; without, it is only said how many there are
        #[arg(long, requires = "all")]
        yes: bool,
    },
}

const COLUMNS: [Column; 8] = [
    Column { title: "ID", of: |d| text(d, "id"), rank: 0 },
    Column { title: "TO", of: |d| text(d, "subscription"), rank: 1 },
    Column { title: "TYPE", of: |d| text(d, "event_type"), rank: 1 },
    Column { title: "GIVEN UP (UTC)", of: |d| minute(d, "finished_at"), rank: 2 },
    Column { title: "TRIES", of: |d| text(d, "attempt_count"), rank: 3 },
    Column { title: "OF", of: delivery::of, rank: 2 },
    Column { title: "REASON", of: |d| text(d, "reason"), rank: 2 },
    Column { title: "EVENT", of: |d| text(d, "event_id"), rank: 4 },
];

impl DeadLetter {
    pub(super) fn run(&self, shared: &Shared) -> Result<(), Failure> {
        let remote = self.reach.open(shared)?;
        match &self.verb {
            Verb::List { subscription, made, paging } => {
                let subscription = filter("subscription", subscription.as_ref());
                let query = made.filters().into_iter().chain([subscription]).flatten().collect();
                let what = "dead letters";
                List { path: "/v1/dead-letters", query, columns: &COLUMNS, what }
                    .print(&remote, paging)
            }
            Verb::Retry { ids, all: false, .. } => delivery::each(&remote, ids, "retry"),
            Verb::Retry { subscription, yes, .. } => {
                retry_all(&remote, subscription.as_ref(), *yes)
            }
        }
    }
}

/// Goes through the list as it is now; what dies again meanwhile is not taken twice.
fn retry_all(
    remote: &Remote,
    subscription: Option<&String>,
    confirmed: bool,
) -> Result<(), Failure> {
    let query: Vec<_> = filter("subscription", subscription).into_iter().collect();
    let mut ids = Vec::new();
    listing::each(remote, "/v1/dead-letters", query, |dead| {
        ids.push(text(&dead, "id"));
        Ok(())
    })?;
    if ids.is_empty() {
        out::note("There are no dead letters.");
        return Ok(());
    }
    if !confirmed {
        let why = format!("this sends {} again; confirm with --yes", ids.len());
        return Err(Failure::new(exit::USAGE, why));
    }
    delivery::each(remote, &ids, "retry")
}
