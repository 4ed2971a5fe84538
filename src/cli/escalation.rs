//! `oncebox escalation`: failures that a person must see.

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::cli::listing::{List, Paging};
use crate::cli::remote::{ConnectArgs, plain};
use crate::cli::show::{self, Column, instant, minute, text};
use crate::cli::{Failure, Shared, out};

/// Failures that a person must see; this version sends them nowhere
#[derive(Debug, Args)]
pub(super) struct Escalations {
    #[command(flatten)]
    reach: ConnectArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Open escalations, newest first
    List {
        /// Those that are over as well; `--all` follows the pages
        #[arg(long)]
        resolved: bool,
        #[command(flatten)]
        paging: Paging,
    },
    /// Say that you have seen it. It stays open until its cause is gone
    Acknowledge {
        /// The escalation's id
        id: String,
    },
}

const COLUMNS: [Column; 7] = [
    Column { title: "ID", of: |e| text(e, "id"), rank: 0 },
    Column { title: "CLASS", of: |e| text(e, "class"), rank: 1 },
    Column { title: "SUBJECT", of: |e| text(e, "subject"), rank: 1 },
    Column { title: "LAST (UTC)", of: |e| minute(e, "last_at"), rank: 1 },
    Column { title: "COUNT", of: |e| text(e, "count"), rank: 2 },
    Column { title: "ACKNOWLEDGED BY", of: |e| text(e, "acknowledged_by"), rank: 3 },
    Column { title: "WHAT", of: |e| show::cut(&text(e, "detail"), 100), rank: 2 },
];

impl Escalations {
    pub(super) fn run(&self, shared: &Shared) -> Result<(), Failure> {
        let remote = self.reach.open(shared)?;
        match &self.verb {
            Verb::List { resolved, paging } => {
                let query = if *resolved { vec![("all", "true".to_owned())] } else { Vec::new() };
                let (path, what) = ("/v1/escalations", "open escalations");
                List { path, query, columns: &COLUMNS, what }.print(&remote, paging)
            }
            Verb::Acknowledge { id } => {
                let path = format!("/v1/escalations/{}/acknowledge", plain(id));
                let seen = remote.post(&path, None)?;
                if remote.json() { out::json(&seen) } else { shown(&seen) }
            }
        }
    }
}

fn shown(escalation: &Value) -> Result<(), Failure> {
    out::line(text(escalation, "id"))?;
    show::fields(&[
        ("class", text(escalation, "class")),
        ("subject", text(escalation, "subject")),
        ("what", text(escalation, "detail")),
        ("first", instant(escalation, "first_at")),
        ("last", instant(escalation, "last_at")),
        ("count", text(escalation, "count")),
        ("acknowledged", instant(escalation, "acknowledged_at")),
        ("by", text(escalation, "acknowledged_by")),
        ("over", instant(escalation, "resolved_at")),
    ])
}
