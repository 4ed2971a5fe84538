//! `oncebox external-call`: the latest call about each entity, where a subscription protects external calls.

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::cli::exit::Failure;
use crate::cli::noun::{Listing, Noun, Verbs};
use crate::cli::remote::ConnectArgs;
use crate::cli::shared::Shared;
use crate::cli::show::Cell::{Minute, Text};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// The latest call about each entity, the latest first
    List {
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        listing: Listing,
    },
}

#[derive(Debug, Args, Serialize)]
pub(super) struct Of {
    /// Only those of this subscription
    #[arg(long, value_name = "NAME")]
    subscription: Option<String>,
}

const CALLS: Noun = Noun {
    path: "/v1/external-calls",
    one: "External call",
    many: "external calls",
    time: Some("updated_at"),
    columns: &[
        ("ENTITY", 0, Text("entity_key")),
        ("SUBSCRIPTION", 1, Text("subscription")),
        ("STATE", 0, Text("state")),
        ("FAILED", 2, Text("failed_count")),
        ("DELIVERY", 1, Text("delivery")),
        ("ACCEPTED", 2, Text("made_by")),
        ("UPDATED (UTC)", 1, Minute("updated_at")),
    ],
    fields: &[],
};

impl Verbs for Verb {
    fn run(&self, connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
        let Self::List { of, listing } = self;
        CALLS.list(&connect.open(shared)?, listing, of)
    }
}
