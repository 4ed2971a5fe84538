//! `oncebox webhook`: what providers posted to us.
//!
//! Not here: the providers themselves ([`super::provider`]), and posting a sample ([`super::trigger`]).

use clap::{Args, Subcommand};

use crate::cli::listing::{List, Paging, Received, filter};
use crate::cli::remote::{ConnectArgs, Remote, plain};
use crate::cli::show::{Column, minute, text};
use crate::cli::{Failure, Shared, out, timeline};

/// What providers posted to us
#[derive(Debug, Args)]
pub(super) struct Webhook {
    #[command(flatten)]
    reach: ConnectArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
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

#[derive(Debug, Args)]
struct ListWebhooks {
    /// Where it stands: received, processing, completed, failed, skipped
    #[arg(long)]
    status: Option<String>,
    /// Who sent it
    #[arg(long)]
    provider: Option<String>,
    /// The provider's type for it
    #[arg(long)]
    event_type: Option<String>,
    /// The provider's id for it, in full: found at once
    #[arg(long)]
    provider_event_id: Option<String>,
    /// How the provider's id for it begins, its own id, or its webhook-id
    #[arg(long)]
    id: Option<String>,
    #[command(flatten)]
    received: Received,
    #[command(flatten)]
    paging: Paging,
}

const COLUMNS: [Column; 6] = [
    Column { title: "ID", of: |e| text(e, "id"), rank: 0 },
    Column { title: "TYPE", of: |e| text(e, "event_type"), rank: 1 },
    Column { title: "STATUS", of: |e| text(e, "status"), rank: 1 },
    Column { title: "RECEIVED (UTC)", of: |e| minute(e, "received_at"), rank: 2 },
    Column { title: "PROVIDER", of: |e| text(e, "provider"), rank: 3 },
    Column { title: "PROVIDER'S ID", of: |e| text(e, "provider_event_id"), rank: 4 },
];

impl Webhook {
    pub(super) fn run(&self, shared: &Shared) -> Result<(), Failure> {
        let remote = self.reach.open(shared)?;
        match &self.verb {
            Verb::List(list) => list.run(&remote),
            Verb::Show { id, payload } => show(&remote, id, *payload),
        }
    }
}

impl ListWebhooks {
    fn run(&self, remote: &Remote) -> Result<(), Failure> {
        let Self { status, provider, event_type, provider_event_id, id, received, paging } = self;
        let query = [
            filter("status", status.as_ref()),
            filter("provider", provider.as_ref()),
            filter("event_type", event_type.as_ref()),
            filter("provider_event_id", provider_event_id.as_ref()),
            filter("id", id.as_ref()),
        ];
        let query = query.into_iter().chain(received.filters()).flatten().collect();
        let what = "such webhook events";
        List { path: "/v1/webhook-events", query, columns: &COLUMNS, what }.print(remote, paging)
    }
}

fn show(remote: &Remote, id: &str, payload: bool) -> Result<(), Failure> {
    let event = remote.get(&format!("/v1/webhook-events/{}", plain(id)))?;
    if payload {
        return out::bytes(&timeline::payload_bytes(&event)?);
    }
    if remote.json() {
        return out::json(&event);
    }
    timeline::webhook(&event)?;
    timeline::deliveries(remote, &event)
}
