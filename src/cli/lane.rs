//! `oncebox lane`: which lanes wait for what, and what is in a lane.
//!
//! Not here: what is done with a delivery of a lane ([`super::delivery`]).

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::Value;

use crate::cli::exit::Failure;
use crate::cli::noun::{Listing, Noun, Verbs};
use crate::cli::remote::{ConnectArgs, Remote};
use crate::cli::shared::Shared;
use crate::cli::show::Cell::{By, Instant, Minute, Text};
use crate::cli::show::{self, Column, cut, minute, text};
use crate::cli::{out, timeline};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Lanes in which something waits, the blocked ones first
    List(ListLanes),
    /// One lane: what is first, why it waits, what is behind it, and what was parked
    Show {
        /// The lane's id
        id: String,
    },
}

#[derive(Debug, Args, Serialize)]
pub(super) struct ListLanes {
    /// Only lanes whose first delivery is for this subscription: a name or an id
    #[arg(long)]
    subscription: Option<String>,
    /// Only lanes that a dead letter blocks
    #[arg(long)]
    blocked: bool,
    #[command(flatten)]
    #[serde(skip)]
    listing: Listing,
}

const LANES: Noun = Noun {
    path: "/v1/lanes",
    one: "Lane",
    many: "such lanes",
    time: Some("since"),
    columns: &[
        ("ID", 0, Text("id")),
        ("SUBSCRIPTION", 1, Text("subscription")),
        ("KEY", 1, Text("key")),
        ("FIRST", 0, Text("delivery")),
        ("STATE", 1, By(state)),
        ("BEHIND", 1, By(behind)),
        ("SINCE (UTC)", 2, Minute("since")),
        ("WHY", 2, By(|lane| cut(&text(lane, "why"), 100))),
    ],
    fields: &[
        ("subscription", Text("subscription")),
        ("group", Text("group")),
        ("key", Text("key")),
        ("first", Text("delivery")),
        ("state", By(state)),
        ("since", Instant("since")),
        ("behind it", By(behind)),
        ("waits", Text("why")),
    ],
};

const DELIVERIES: &[Column] = &[
    ("ID", 0, Text("id")),
    ("TO", 1, Text("subscription")),
    ("TYPE", 1, Text("event_type")),
    ("OF", 1, By(show::about)),
    ("ORDER (UTC)", 2, By(|d| minute(d, "order_at"))),
    ("STATE", 1, By(timeline::state)),
    ("LATE", 3, By(|d| if text(d, "late") == "true" { "late".to_owned() } else { String::new() })),
];

fn state(lane: &Value) -> String {
    if text(lane, "blocked") == "true" { "blocked".to_owned() } else { text(lane, "state") }
}

fn behind(lane: &Value) -> String {
    let more = if text(lane, "more") == "true" { "more than " } else { "" };
    format!("{more}{}", text(lane, "waiting"))
}

impl Verbs for Verb {
    fn run(&self, connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
        let remote = connect.open(shared)?;
        match self {
            Self::List(list) => LANES.list(&remote, &list.listing, list),
            Self::Show { id } => show(&remote, id),
        }
    }
}

fn show(remote: &Remote, id: &str) -> Result<(), Failure> {
    let found = remote.get(&LANES.at(id))?;
    if remote.json() {
        return out::json(&found);
    }
    match found.get("lane").filter(|lane| lane.is_object()) {
        Some(lane) => {
            out::line(format_args!("{} {}", LANES.one, text(lane, "id")))?;
            show::fields(lane, LANES.fields)?;
        }
        None => {
            out::line(format_args!("{} {}: nothing waits in it", LANES.one, text(&found, "id")))?;
        }
    }
    for (field, heading) in
        [("deliveries", "In its order"), ("parked", "Parked (of the tenant's first 20,000)")]
    {
        let rows = found.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
        if !rows.is_empty() {
            out::line(format_args!("\n{heading}:"))?;
            show::table(DELIVERIES, &rows)?;
        }
    }
    let first = found.pointer("/lane/delivery").and_then(Value::as_str).unwrap_or_default();
    if found.pointer("/lane/blocked") == Some(&Value::Bool(true)) {
        out::line(format_args!(
            "\nLet it go on:\n  oncebox delivery retry {first}   (send it again first)"
        ))?;
        out::line(format_args!("  oncebox delivery skip {first}   (without it)"))?;
    }
    Ok(())
}
