//! `oncebox webhook`: what providers posted to us.
//!
//! Not here: the providers themselves ([`super::provider`]), and posting a sample ([`super::trigger`]).

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::cli::exit::Failure;
use crate::cli::noun::{Listing, Verbs};
use crate::cli::remote::ConnectArgs;
use crate::cli::shared::Shared;
use crate::cli::timeline::{self, WEBHOOKS};

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
