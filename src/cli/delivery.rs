//! `oncebox delivery`: one event for one subscription; look at it, send it again, cancel it.
//!
//! Not here: many at once, when they were given up ([`super::dead_letter`]).

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::cli::listing::{List, Made, Paging, filter};
use crate::cli::remote::{ConnectArgs, Remote, plain};
use crate::cli::show::{self, Column, instant, minute, text};
use crate::cli::{Failure, Shared, out, timeline};

/// One event for one subscription: look, send again, cancel
#[derive(Debug, Args)]
pub(super) struct Deliveries {
    #[command(flatten)]
    reach: ConnectArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Deliveries, newest first
    List(Box<ListDeliveries>),
    /// One delivery with its event, its attempts, and how to send it again
    Show {
        #[arg(help = "The delivery's id, like dlv_17")]
        id: String,
    },
    /// The attempts of a delivery, oldest first
    Attempts {
        /// The delivery's id
        id: String,
        #[command(flatten)]
        paging: Paging,
    },
    /// Send again: at once if it waits, anew if it was given up or cancelled
    Retry {
        /// Ids of deliveries
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Stop deliveries that wait
    Cancel {
        /// Ids of deliveries
        #[arg(required = true)]
        ids: Vec<String>,
    },
}

#[derive(Debug, Args)]
struct ListDeliveries {
    #[arg(
        long,
        visible_alias = "status",
        help = "Where it stands: pending, leased, parked, in_doubt, completed, dead_letter, cancelled, skipped"
    )]
    state: Option<String>,
    /// Whose it is: a subscription's name or id
    #[arg(long)]
    subscription: Option<String>,
    /// What it carries: the id of an event or a webhook event
    #[arg(long)]
    event_id: Option<String>,
    #[command(flatten)]
    made: Made,
    #[command(flatten)]
    paging: Paging,
}

pub(super) const COLUMNS: [Column; 8] = [
    Column { title: "ID", of: |d| text(d, "id"), rank: 0 },
    Column { title: "TO", of: |d| text(d, "subscription"), rank: 1 },
    Column { title: "TYPE", of: |d| text(d, "event_type"), rank: 1 },
    Column { title: "STATE", of: |d| text(d, "state"), rank: 1 },
    Column { title: "TRIES", of: |d| text(d, "attempt_count"), rank: 2 },
    Column { title: "DUE OR DONE (UTC)", of: due_or_done, rank: 2 },
    Column { title: "OF", of, rank: 2 },
    Column { title: "EVENT", of: |d| text(d, "event_id"), rank: 3 },
];

const ATTEMPT_COLUMNS: [Column; 6] = [
    Column { title: "ATTEMPT", of: |a| text(a, "id"), rank: 0 },
    Column { title: "STARTED (UTC)", of: |a| instant(a, "started_at"), rank: 1 },
    Column { title: "CLASS", of: |a| text(a, "class"), rank: 1 },
    Column { title: "STATUS", of: |a| text(a, "http_status"), rank: 1 },
    Column { title: "MS", of: |a| text(a, "latency_ms"), rank: 3 },
    Column { title: "REASON", of: |a| text(a, "failed_reason"), rank: 2 },
];

/// What it is about, as a person calls it: what its event happened to, else the event's key.
pub(super) fn of(delivery: &Value) -> String {
    let about = show::about(delivery);
    if about.is_empty() { text(delivery, "key") } else { about }
}

fn due_or_done(delivery: &Value) -> String {
    let due = minute(delivery, "due_at");
    if due.is_empty() { minute(delivery, "finished_at") } else { due }
}

impl Deliveries {
    pub(super) fn run(&self, shared: &Shared) -> Result<(), Failure> {
        let remote = self.reach.open(shared)?;
        match &self.verb {
            Verb::List(list) => list.run(&remote),
            Verb::Show { id } => show(&remote, id),
            Verb::Attempts { id, paging } => {
                let path = &format!("/v1/deliveries/{}/attempts", plain(id));
                let what = "attempts yet";
                List { path, query: Vec::new(), columns: &ATTEMPT_COLUMNS, what }
                    .print(&remote, paging)
            }
            Verb::Retry { ids } => each(&remote, ids, "retry"),
            Verb::Cancel { ids } => each(&remote, ids, "cancel"),
        }
    }
}

impl ListDeliveries {
    fn run(&self, remote: &Remote) -> Result<(), Failure> {
        let Self { state, subscription, event_id, made, paging } = self;
        let query = [
            filter("state", state.as_ref()),
            filter("subscription", subscription.as_ref()),
            filter("event_id", event_id.as_ref()),
        ];
        let query = query.into_iter().chain(made.filters()).flatten().collect();
        List { path: "/v1/deliveries", query, columns: &COLUMNS, what: "such deliveries" }
            .print(remote, paging)
    }
}

fn show(remote: &Remote, id: &str) -> Result<(), Failure> {
    let delivery = remote.get(&format!("/v1/deliveries/{}", plain(id)))?;
    if remote.json() {
        return out::json(&delivery);
    }
    timeline::delivery(remote, &delivery)?;
    out::line("")?;
    let event_id = plain(&text(&delivery, "event_id"));
    let event = if text(&delivery, "of") == "webhook_event" {
        let event = remote.get(&format!("/v1/webhook-events/{event_id}"))?;
        timeline::webhook(&event)?;
        event
    } else {
        let event = remote.get(&format!("/v1/events/{event_id}"))?;
        timeline::event(&event)?;
        event
    };
    timeline::again(&event, &[delivery])
}

/// Does the same with each delivery. One that refuses does not keep the others from it; the first
/// refusal is the command's own.
pub(super) fn each(remote: &Remote, ids: &[String], action: &str) -> Result<(), Failure> {
    let mut first = None;
    for id in ids {
        let done = remote.post(&format!("/v1/deliveries/{}/{action}", plain(id)), None);
        match done {
            Ok(delivery) if remote.json() => out::json(&delivery)?,
            Ok(delivery) => {
                let due = instant(&delivery, "due_at");
                let when = if due.is_empty() { due } else { format!(", due {due} UTC") };
                let (id, state) = (text(&delivery, "id"), text(&delivery, "state"));
                out::line(format_args!("{id} is {state}{when}"))?;
            }
            Err(Failure { code, message }) => {
                let named = Failure::new(code, format!("{id}: {message}"));
                if ids.len() == 1 || code == super::exit::UNREACHABLE {
                    return Err(named);
                }
                out::note(&named.message);
                first.get_or_insert(code);
            }
        }
    }
    match first {
        None => Ok(()),
        Some(code) => Err(Failure::new(code, "not all of it could be done; see above")),
    }
}
