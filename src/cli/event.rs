//! `oncebox event`: what was published, where it went, what was answered; and repairing a quarantined event.
//!
//! Not here: publishing ([`super::emit`]).

use clap::{Args, Subcommand};
use data_encoding::BASE64;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::cli::exit::Failure;
use crate::cli::noun::{self, Confirm, Listing, Verbs};
use crate::cli::remote::{ConnectArgs, Remote};
use crate::cli::shared::Shared;
use crate::cli::show::text;
use crate::cli::timeline::{self, EVENTS};
use crate::cli::{input, job, process};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
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
    /// The events of a process and their descendants, as a tree
    Process {
        /// The process of its events
        id: String,
    },
    /// Repair a quarantined event: it is checked again, and sent when it has no error any more
    #[command(
        after_help = "Without a change it is only checked again, for example once its subscription exists.\n\n  \
        oncebox event list --status quarantined\n  \
        oncebox event fix ID --payload @invoice.json\n  oncebox event fix ID --no-target"
    )]
    Fix(Box<Fix>),
    /// Send events again: one, or all that fit
    #[command(
        after_help = "Deliveries keep their webhook-id, so a consumer with a guard takes each once.\n\n  \
        oncebox event replay ID\n  oncebox event replay ID --subscription warehouse\n  \
        oncebox event replay ID --payload @invoice.json   (corrected, as a new event)\n  \
        oncebox event replay --subscription warehouse --since 2h --rate 50"
    )]
    Replay(Box<Replay>),
    /// Stop an event: its open deliveries are not tried again
    Cancel {
        /// The event's id
        id: String,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Give up a quarantined event: it ends as cancelled, and its row stays
    Discard {
        /// The event's id
        id: String,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

#[derive(Debug, Args, Serialize)]
pub(super) struct ListEvents {
    #[arg(
        long,
        visible_alias = "state",
        help = "Its status: pending, processing, completed, failed, dead_letter, cancelled, skipped, quarantined"
    )]
    status: Option<String>,
    /// Its type
    #[arg(long)]
    event_type: Option<String>,
    /// Its idempotency key
    #[arg(long, visible_alias = "key")]
    idempotency_key: Option<String>,
    /// Which thing it happened to, such as the number of an invoice
    #[arg(long)]
    aggregate_id: Option<String>,
    /// The webhook-id that its deliveries carry
    #[arg(long)]
    webhook_id: Option<String>,
    /// Only the children of the event with this id
    #[arg(long, value_name = "ID")]
    parent_id: Option<String>,
    /// Its process
    #[arg(long, value_name = "ID")]
    process_id: Option<String>,
    #[command(flatten)]
    #[serde(skip)]
    listing: Listing,
}

/// Which events are sent again, and how.
#[derive(Debug, Args)]
pub(super) struct Replay {
    /// The event's id
    #[arg(conflicts_with = "all")]
    id: Option<String>,
    /// All that fit the other flags
    #[arg(long)]
    all: bool,
    /// As a new event, with a webhook-id of its own
    #[arg(long, requires = "id")]
    as_new: bool,
    /// With another body, as a new event: JSON, @file, or - for stdin
    #[arg(long, requires = "id")]
    payload: Option<String>,
    /// The content type of that body
    #[arg(long, value_name = "TYPE", requires = "payload")]
    content_type: Option<String>,
    #[command(flatten)]
    filter: job::Filter,
    #[command(flatten)]
    aggregate: job::Aggregate,
    #[command(flatten)]
    pace: job::Pace,
}

const REPLAY: job::Request<'_> = job::Request {
    path: "/v1/events/replay",
    many: "events",
    question: ["This sends", "again"],
    done: "sent again",
    is_more: false,
};

impl Replay {
    fn run(&self, remote: &Remote) -> Result<(), Failure> {
        let Self { id, all, as_new, payload, content_type, filter, aggregate, pace } = self;
        let given = [job::given(filter), job::given(aggregate)];
        let Some(id) = id else {
            let filter = job::filter(*all, &given)?;
            return pace.run(remote, REPLAY, json!({ "filter": filter }));
        };
        let [mut body, aggregate] = given;
        job::check_single(&body, &aggregate)?;
        if *as_new {
            body.insert("as_new".to_owned(), true.into());
        }
        body.extend(content_type.clone().map(|kind| ("content_type".to_owned(), kind.into())));
        if let Some(payload) = payload {
            let bytes = BASE64.encode(&input::bytes(payload)?);
            body.insert("payload_base64".to_owned(), bytes.into());
        }
        change(remote, id, "replay", Value::Object(body))
    }
}

/// Which event, and what is changed about it.
#[derive(Debug, Args, Serialize)]
pub(super) struct Fix {
    /// The event's id
    #[serde(skip)]
    id: String,
    /// Another body: JSON, @file, or - for stdin
    #[arg(long)]
    #[serde(skip)]
    payload: Option<String>,
    /// Another type
    #[arg(long, value_name = "TYPE")]
    event_type: Option<String>,
    /// Another subscription it is for, by name
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// For every subscription that matches
    #[arg(long, conflicts_with = "target")]
    #[serde(skip)]
    no_target: bool,
    /// Another idempotency key
    #[arg(long)]
    #[serde(rename = "idempotency_key")]
    key: Option<String>,
    /// Another content type
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Another parent, by its key in the same source system
    #[arg(long, value_name = "KEY")]
    parent_key: Option<String>,
    #[arg(
        long,
        value_name = "FIELD=JSON",
        help = "Another field, its value as JSON: --set custom_data=null"
    )]
    #[serde(skip)]
    set: Vec<String>,
}

impl Verbs for Verb {
    fn run(&self, connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
        let remote = connect.open(shared)?;
        match self {
            Self::List(list) => EVENTS.list(&remote, &list.listing, list),
            Self::Show { id, payload } => {
                let event = remote.get(&EVENTS.at(id));
                let event = event.map_err(|failure| timeline::not_an_id(failure, id))?;
                timeline::show(&remote, &event, *payload)
            }
            Self::Process { id } => process::show(&remote, id),
            Self::Fix(fix) => change(&remote, &fix.id, "fix", fix.body()?),
            Self::Replay(replay) => replay.run(&remote),
            Self::Cancel { id, confirm } => {
                confirm.ask(format_args!("Cancel the event {id}"))?;
                change(&remote, id, "cancel", json!({}))
            }
            Self::Discard { id, reason, confirm } => {
                confirm.ask(format_args!("Discard the event {id}"))?;
                change(&remote, id, "discard", json!({ "reason": reason }))
            }
        }
    }
}

fn change(remote: &Remote, id: &str, action: &str, body: Value) -> Result<(), Failure> {
    let event = remote.post(&format!("{}/{action}", EVENTS.at(id)), Some(&body));
    let event = event.map_err(|failure| timeline::not_an_id(failure, id))?;
    remote.answer(&event, format_args!("{} is {}", text(&event, "id"), text(&event, "status")))
}

impl Fix {
    fn body(&self) -> Result<Value, Failure> {
        let mut body = self.set.iter().map(|field| set(field)).collect::<Result<Map<_, _>, _>>()?;
        body.extend(noun::body(self));
        if self.no_target {
            body.insert("target".to_owned(), Value::Null);
        }
        if let Some(payload) = &self.payload {
            // As bytes, so that it is kept as it was given. The service says whether it is JSON.
            let bytes = input::bytes(payload)?;
            body.insert("payload_base64".to_owned(), BASE64.encode(&bytes).into());
        }
        Ok(Value::Object(body))
    }
}

fn set(field: &str) -> Result<(String, Value), Failure> {
    let pair = field.split_once('=');
    let value: Option<Value> = pair.and_then(|(_, value)| serde_json::from_str(value).ok());
    let (Some((name, _)), Some(value)) = (pair, value) else {
        return Err(Failure::input(format!(
            "--set {field}: give a field and its value as JSON, such as aggregate_id='\"4711\"' or custom_data=null"
        )));
    };
    if matches!(name, "occurred_at" | "not_before") && value.is_number() {
        return Err(Failure::input(format!(
            "--set {field}: here a time is a text, such as {name}='\"2026-01-31T12:00:00Z\"'"
        )));
    }
    Ok((name.to_owned(), value))
}
