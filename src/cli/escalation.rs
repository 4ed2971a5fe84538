//! `oncebox escalation`: failures that a person must see.

use clap::Subcommand;
use serde_json::json;

use crate::cli::exit::Failure;
use crate::cli::noun::{Listing, Noun, Verbs};
use crate::cli::remote::ConnectArgs;
use crate::cli::shared::Shared;
use crate::cli::show::Cell::{By, Instant, Minute, Text};
use crate::cli::show::{cut, text};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Open escalations, newest first
    List {
        /// Also list resolved ones
        #[arg(long)]
        resolved: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// One escalation: what happened, since when, how often
    Show {
        /// The escalation's id
        id: String,
    },
    /// Mark an escalation as seen; it stays open until its cause is gone
    Acknowledge {
        /// The escalation's id
        id: String,
    },
}

const ESCALATIONS: Noun = Noun {
    path: "/v1/escalations",
    one: "Escalation",
    many: "open escalations",
    time: Some("last_at"),
    columns: &[
        ("ID", 0, Text("id")),
        ("CLASS", 1, Text("class")),
        ("SUBJECT", 1, Text("subject")),
        ("LAST (UTC)", 1, Minute("last_at")),
        ("COUNT", 2, Text("count")),
        ("ACKNOWLEDGED BY", 3, Text("acknowledged_by")),
        ("DETAIL", 2, By(|e| cut(&text(e, "detail"), 100))),
    ],
    fields: &[
        ("class", Text("class")),
        ("subject", Text("subject")),
        ("detail", Text("detail")),
        ("first", Instant("first_at")),
        ("last", Instant("last_at")),
        ("count", Text("count")),
        ("acknowledged", Instant("acknowledged_at")),
        ("by", Text("acknowledged_by")),
        ("resolved", Instant("resolved_at")),
    ],
};

impl Verbs for Verb {
    fn run(&self, connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
        let remote = connect.open(shared)?;
        match self {
            Self::List { resolved, listing } => {
                ESCALATIONS.list(&remote, listing, &json!({ "all": resolved }))
            }
            Self::Show { id } => ESCALATIONS.show(&remote, id),
            Self::Acknowledge { id } => ESCALATIONS.act(&remote, id, "acknowledge", None),
        }
    }
}
