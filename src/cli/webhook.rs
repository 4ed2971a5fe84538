//! `oncebox webhook`: what providers posted to us.
//!
//! Not here: the providers themselves ([`super::provider`]), and posting a sample ([`super::trigger`]).

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::exit::Failure;
use crate::cli::job;
use crate::cli::noun::{Listing, Verbs};
use crate::cli::remote::{ConnectArgs, Remote};
use crate::cli::shared::Shared;
use crate::cli::show::text;
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
    /// Send webhook events again: one, or all that fit
    #[command(
        after_help = "One that was skipped goes to the subscriptions that match it now.\n\n  \
        oncebox webhook replay ID\n  oncebox webhook replay --provider stripe --since 2h --rate 50"
    )]
    Replay(Box<Replay>),
}

/// Which webhook events are sent again.
#[derive(Debug, Args)]
pub(super) struct Replay {
    /// The webhook event's id
    #[arg(conflicts_with = "all")]
    id: Option<String>,
    /// All that fit the other flags
    #[arg(long)]
    all: bool,
    /// Only those of this provider
    #[arg(long)]
    provider: Option<String>,
    #[command(flatten)]
    filter: job::Filter,
    #[command(flatten)]
    pace: job::Pace,
}

const REPLAY: job::Request<'_> = job::Request {
    path: "/v1/webhook-events/replay",
    many: "webhook events",
    question: ["This sends", "again"],
    done: "sent again",
    is_more: false,
};

impl Replay {
    fn run(&self, remote: &Remote) -> Result<(), Failure> {
        let Self { id, all, provider, filter, pace } = self;
        let (filter, provider) = (job::given(filter), job::given(&json!({ "provider": provider })));
        let Some(id) = id else {
            let filter = job::filter(*all, &[filter, provider])?;
            return pace.run(remote, REPLAY, json!({ "filter": filter }));
        };
        job::check_single(&filter, &provider)?;
        let body = Value::Object(filter);
        let event = remote.post(&format!("{}/replay", WEBHOOKS.at(id)), Some(&body))?;
        remote.answer(&event, format_args!("{} is {}", text(&event, "id"), text(&event, "status")))
    }
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
            Self::Replay(replay) => replay.run(&remote),
        }
    }
}
