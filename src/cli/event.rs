//! `oncebox event`: what was published, where it went and what was answered; and what a person makes of one
//! that cannot be used ([`super::repair`]).
//!
//! Not here: publishing ([`super::emit`]).

use clap::{Args, Subcommand};

use crate::cli::listing::{List, Paging, Received, filter};
use crate::cli::remote::{ConnectArgs, Remote, plain};
use crate::cli::repair::{Discard, Fix};
use crate::cli::show::{self, Column, minute, text};
use crate::cli::{Failure, Shared, out, timeline};

/// What was published, where it went and what was answered
#[derive(Debug, Args)]
#[command(after_help = "Did invoice 4711 go out, when, and what did they answer?\n  \
    oncebox event list --aggregate-id 4711\n  oncebox event show ID")]
pub(super) struct Event {
    #[command(flatten)]
    reach: ConnectArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Events, newest first
    List(Box<ListEvents>),
    /// One event with its deliveries, their attempts, and how to send it again
    Show {
        /// The event's id
        id: String,
        /// Print the payload alone
        #[arg(long)]
        payload: bool,
    },
    /// Repair a quarantined event: it is checked again and, when nothing is wrong any more, sent
    #[command(
        after_help = "Without any change it is only checked again: for when the subscription it is for is \
        there now.\n\n  oncebox event list --status quarantined\n  \
        oncebox event fix ID --payload @invoice.json\n  oncebox event fix ID --no-target"
    )]
    Fix(Box<Fix>),
    /// Give up a quarantined event: it ends as cancelled, and its row stays
    Discard(Discard),
}

#[derive(Debug, Args)]
struct ListEvents {
    #[arg(
        long,
        visible_alias = "state",
        help = "Where it stands: pending, processing, completed, failed, dead_letter, cancelled, skipped, quarantined"
    )]
    status: Option<String>,
    /// Its type
    #[arg(long)]
    event_type: Option<String>,
    /// The fact's own key
    #[arg(long, visible_alias = "key")]
    idempotency_key: Option<String>,
    /// Which thing it happened to, such as the number of an invoice
    #[arg(long)]
    aggregate_id: Option<String>,
    /// The id its deliveries carry
    #[arg(long)]
    webhook_id: Option<String>,
    #[command(flatten)]
    received: Received,
    #[command(flatten)]
    paging: Paging,
}

const COLUMNS: [Column; 7] = [
    Column { title: "ID", of: |e| text(e, "id"), rank: 0 },
    Column { title: "TYPE", of: |e| text(e, "event_type"), rank: 1 },
    Column { title: "STATUS", of: |e| text(e, "status"), rank: 1 },
    Column { title: "RECEIVED (UTC)", of: |e| minute(e, "received_at"), rank: 2 },
    Column { title: "OF", of: show::about, rank: 3 },
    Column { title: "ERROR", of: |e| text(e, "error_code"), rank: 2 },
    Column { title: "KEY", of: |e| text(e, "idempotency_key"), rank: 4 },
];

impl Event {
    pub(super) fn run(&self, shared: &Shared) -> Result<(), Failure> {
        let remote = self.reach.open(shared)?;
        match &self.verb {
            Verb::List(list) => list.run(&remote),
            Verb::Show { id, payload } => show(&remote, id, *payload),
            Verb::Fix(fix) => fix.run(&remote),
            Verb::Discard(discard) => discard.run(&remote),
        }
    }
}

impl ListEvents {
    fn run(&self, remote: &Remote) -> Result<(), Failure> {
        let Self {
            status,
            event_type,
            idempotency_key,
            aggregate_id,
            webhook_id,
            received,
            paging,
        } = self;
        let query = [
            filter("status", status.as_ref()),
            filter("event_type", event_type.as_ref()),
            filter("idempotency_key", idempotency_key.as_ref()),
            filter("aggregate_id", aggregate_id.as_ref()),
            filter("webhook_id", webhook_id.as_ref()),
        ];
        let query = query.into_iter().chain(received.filters()).flatten().collect();
        List { path: "/v1/events", query, columns: &COLUMNS, what: "such events" }
            .print(remote, paging)
    }
}

fn show(remote: &Remote, id: &str, payload: bool) -> Result<(), Failure> {
    let event = remote
        .get(&format!("/v1/events/{}", plain(id)))
        .map_err(|failure| timeline::not_an_id(failure, id))?;
    if payload {
        return out::bytes(&timeline::payload_bytes(&event)?);
    }
    if remote.json() {
        return out::json(&event);
    }
    timeline::event(&event)?;
    timeline::deliveries(remote, &event)
}
