//! `oncebox webhook`: what providers posted to us.
//!
//! Not here: the providers themselves ([`super::provider`]), and posting a sample ([`super::trigger`]).

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::cli::noun::{Listing, Noun, Verbs};
use crate::cli::remote::ConnectArgs;
use crate::cli::show::Cell::{Minute, Text};
use crate::cli::{Failure, Shared, timeline};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Webhook events, newest first
    List(Box<ListWebhooks>),
    /// One webhook event with its deliveries and their attempts
    Show {
        /// The webhook event's id
        id: String,
        /// Print the payload alone
        #[arg(long)]
        payload: bool,
    },
}

#[derive(Debug, Args, Serialize)]
pub(super) struct ListWebhooks {
    /// Its status: received, processing, completed, failed, skipped
    #[arg(long, visible_alias = "state")]
    status: Option<String>,
    /// The provider that sent it
    #[arg(long)]
    provider: Option<String>,
    /// The provider's type for it
    #[arg(long)]
    event_type: Option<String>,
    /// The provider's id for it, in full: found at once
    #[arg(long)]
    provider_event_id: Option<String>,
    /// The beginning of the provider's id for it, its own id, or its webhook-id
    #[arg(long)]
    id: Option<String>,
    #[command(flatten)]
    #[serde(skip)]
    listing: Listing,
}

pub(super) const WEBHOOKS: Noun = Noun {
    path: "/v1/webhook-events",
    one: "Webhook event",
    many: "such webhook events",
    time: None,
    columns: &[
        ("ID", 0, Text("id")),
        ("TYPE", 1, Text("event_type")),
        ("STATUS", 1, Text("status")),
        ("RECEIVED (UTC)", 2, Minute("received_at")),
        ("PROVIDER", 3, Text("provider")),
        ("PROVIDER'S ID", 4, Text("provider_event_id")),
    ],
    fields: &[],
};

impl Verbs for Verb {
    fn run(&self, connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
        let remote = connect.open(shared)?;
        match self {
            Self::List(list) => WEBHOOKS.list(&remote, &list.listing, list),
            Self::Show { id, payload } => {
                timeline::show(&remote, &remote.get(&WEBHOOKS.at(id))?, *payload)
            }
        }
    }
}
