//! `oncebox delivery`, `dead-letter` and `in-doubt`: one event for one subscription; those that were given up; and
//! those that may have been made before a restore.

use std::collections::BTreeMap;
use std::fmt::Display;

use clap::{Args, Subcommand};
use data_encoding::BASE64;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::exit::{self, Failure};
use crate::cli::input::{self, time};
use crate::cli::noun::{self, Confirm, DryRun, Listing, Noun, Verbs};
use crate::cli::remote::{ConnectArgs, Remote, with_query};
use crate::cli::shared::Shared;
use crate::cli::show::Cell::{By, Instant, Minute, Text};
use crate::cli::show::{self, Column, Field, instant, minute, text};
use crate::cli::subscription_content::header;
use crate::cli::{job, out, timeline};

#[derive(Debug, Subcommand)]
pub(super) enum DeliveryVerb {
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
        listing: Listing,
    },
    /// Send again: at once if it waits, anew if it was given up or cancelled
    Retry {
        /// Ids of deliveries
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Set deliveries aside, so that their lanes go on
    Park(Chosen),
    /// Let deliveries be sent that are parked or in doubt, each at its place in its lane
    Release {
        #[command(flatten)]
        chosen: Chosen,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// End deliveries without sending them, so that their lanes go on
    Skip {
        #[command(flatten)]
        chosen: Chosen,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Move deliveries behind all others of their lanes
    MoveToEnd(Chosen),
    /// Send another payload in place of a delivery, as a new event at its place in its lane
    EditAndResend {
        /// The delivery's id
        id: String,
        /// The new body: JSON, @file, or - for stdin
        #[arg(long)]
        payload: String,
        /// The content type of that body [default: the event's]
        #[arg(long, value_name = "TYPE")]
        content_type: Option<String>,
        /// A header field of the event, 'Name: value', instead of those it has; may be repeated
        #[arg(long = "header", value_name = "FIELD", value_parser = header)]
        headers: Vec<(String, String)>,
    },
    /// Stop deliveries that wait
    Cancel {
        /// Ids of deliveries
        #[arg(required = true)]
        ids: Vec<String>,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Report that the target has done what it accepted, or has failed
    Confirm {
        /// The delivery's id
        id: String,
        /// It failed, and why; it counts as a failed attempt
        #[arg(long, value_name = "REASON")]
        failed: Option<String>,
        /// Give it up: it can never succeed
        #[arg(long = "final", requires = "failed")]
        is_final: bool,
    },
}

/// Deliveries, and why something is done with them.
#[derive(Debug, Args)]
pub(super) struct Chosen {
    /// Ids of deliveries
    #[arg(required = true)]
    ids: Vec<String>,
    /// Why; kept in the audit log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Chosen {
    fn act(&self, remote: &Remote, action: &str) -> Result<(), Failure> {
        each(remote, &self.ids, action, self.reason.as_deref())
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum DeadLetterVerb {
    /// Deliveries that were given up, newest first
    List {
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        listing: Listing,
    },
    /// One dead letter with its event, its attempts, and how to send it again
    Show {
        /// The delivery's id
        id: String,
    },
    /// Count dead letters by subscription and error; at most the newest 1,000
    Summary {
        #[command(flatten)]
        of: Of,
        /// Only rows from this time on: 2026-01-31T12:00:00Z, the day 2026-01-31 (UTC), or 2h for two hours ago
        #[arg(long, value_name = "TIME", value_parser = time)]
        since: Option<String>,
        /// Only rows before this time
        #[arg(long, value_name = "TIME", value_parser = time)]
        until: Option<String>,
    },
    /// Send dead letters again, the oldest first, each in its order and under its webhook-id
    #[command(alias = "retry")]
    Replay(Box<DeadLetters>),
    /// Give up dead letters for good
    Discard {
        /// Why; kept with each of them
        #[arg(long, value_name = "TEXT")]
        reason: String,
        #[command(flatten)]
        which: Box<DeadLetters>,
    },
}

/// Which dead letters.
#[derive(Debug, Args)]
pub(super) struct DeadLetters {
    /// Ids of deliveries
    #[arg(conflicts_with = "all")]
    ids: Vec<String>,
    /// All that fit the other flags
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    filter: job::Filter,
    #[command(flatten)]
    aggregate: job::Aggregate,
    #[command(flatten)]
    pace: job::Pace,
}

#[derive(Debug, Subcommand)]
pub(super) enum InDoubtVerb {
    /// When the database was restored, from which backup, and how many deliveries are in doubt
    Show,
    /// The deliveries in doubt, newest first
    List {
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        listing: Listing,
    },
    /// Send them; each keeps its webhook-id, so a consumer with a guard takes it once
    Release(Which),
    /// Mark them as done: they were made before the restore and are not sent
    Settle(Which),
    /// Stop holding new events for review; what is in doubt stays in doubt
    End,
}

#[derive(Debug, Args, Serialize)]
pub(super) struct ListDeliveries {
    #[arg(
        long,
        visible_alias = "status",
        help = "Its state: pending, leased, waiting, parked, in_doubt, completed, dead_letter, cancelled, skipped"
    )]
    state: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    of: Of,
    /// What it carries: the id of an event or a webhook event
    #[arg(long)]
    event_id: Option<String>,
    #[command(flatten)]
    #[serde(skip)]
    listing: Listing,
}

#[derive(Debug, Args, Serialize)]
pub(super) struct Of {
    /// The subscription it is for: a name or an id
    #[arg(long)]
    subscription: Option<String>,
}

/// Which deliveries in doubt.
#[derive(Debug, Args)]
pub(super) struct Which {
    /// Ids of deliveries
    #[arg(conflicts_with_all = ["all", "subscription", "event_type", "since", "until"])]
    ids: Vec<String>,
    /// All of them
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    dry_run: DryRun,
    #[command(flatten)]
    confirm: Confirm,
}

#[derive(Debug, Args, Serialize)]
struct Filter {
    /// All of a subscription
    #[arg(long)]
    subscription: Option<String>,
    /// All of an event type
    #[arg(long, value_name = "TYPE")]
    event_type: Option<String>,
    /// All that were received from this time on: 2026-01-31T12:00:00Z, the day 2026-01-31 (UTC), or 2h for two hours ago
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<String>,
    /// All that were received before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<String>,
}

const COLUMNS: &[Column] = &[
    ("ID", 0, Text("id")),
    ("TO", 1, Text("subscription")),
    ("TYPE", 1, Text("event_type")),
    ("STATE", 1, By(timeline::state)),
    ("TRIES", 2, Text("attempt_count")),
    ("DUE OR DONE (UTC)", 2, By(due_or_done)),
    ("OF", 2, By(of)),
    ("EVENT", 3, Text("event_id")),
];

const DELIVERIES: Noun = Noun {
    path: "/v1/deliveries",
    one: "Delivery",
    many: "such deliveries",
    columns: COLUMNS,
    time: None,
    fields: &[],
};

const IN_DOUBT: Noun = Noun { many: "deliveries in doubt", ..DELIVERIES };

const DEAD_LETTERS: Noun = Noun {
    path: "/v1/dead-letters",
    many: "dead letters",
    columns: &[
        ("ID", 0, Text("id")),
        ("TO", 1, Text("subscription")),
        ("TYPE", 1, Text("event_type")),
        ("GIVEN UP (UTC)", 2, Minute("finished_at")),
        ("TRIES", 3, Text("attempt_count")),
        ("OF", 2, By(of)),
        ("REASON", 2, Text("reason")),
        ("EVENT", 4, Text("event_id")),
    ],
    ..DELIVERIES
};

const ATTEMPTS: Noun = Noun {
    many: "attempts yet",
    time: Some("started_at"),
    columns: &[
        ("ATTEMPT", 0, Text("id")),
        ("STARTED (UTC)", 1, Instant("started_at")),
        ("CLASS", 1, Text("class")),
        ("STATUS", 1, Text("http_status")),
        ("MS", 3, Text("latency_ms")),
        ("REASON", 2, Text("failed_reason")),
    ],
    ..DELIVERIES
};

const RESTORED: &[Field] = &[
    ("restored", Instant("restored_at")),
    ("from", Text("restored_from")),
    ("times restored", Text("epoch")),
    ("deliveries in doubt", Text("in_doubt")),
    ("new events held until", Instant("until")),
    ("if they happened before", Instant("lost_at")),
];

/// What the delivery is about: what its event happened to, else the event's key.
fn of(delivery: &Value) -> String {
    let about = show::about(delivery);
    if about.is_empty() { text(delivery, "key") } else { about }
}

fn due_or_done(delivery: &Value) -> String {
    let due = minute(delivery, "due_at");
    if due.is_empty() { minute(delivery, "finished_at") } else { due }
}

impl Verbs for DeliveryVerb {
    fn run(&self, connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
        let remote = connect.open(shared)?;
        match self {
            Self::List(list) => DELIVERIES.list(&remote, &list.listing, list),
            Self::Show { id } => show(&remote, id),
            Self::Attempts { id, listing } => {
                ATTEMPTS.list_at(&format!("{}/attempts", ATTEMPTS.at(id)), &remote, listing, &())
            }
            Self::Retry { ids } => each(&remote, ids, "retry", None),
            Self::Park(chosen) => chosen.act(&remote, "park"),
            Self::Release { chosen, confirm } => {
                confirm.ask(format_args!("Release {}", chosen.ids.join(", ")))?;
                chosen.act(&remote, "release")
            }
            Self::Skip { chosen, confirm } => {
                confirm.ask(format_args!("Skip {}", chosen.ids.join(", ")))?;
                chosen.act(&remote, "skip")
            }
            Self::MoveToEnd(chosen) => chosen.act(&remote, "move-to-end"),
            Self::EditAndResend { id, payload, content_type, headers } => {
                let headers: BTreeMap<_, _> = headers.iter().cloned().collect();
                let body = noun::body(&json!({
                    "payload_base64": BASE64.encode(&input::bytes(payload)?),
                    "content_type": content_type,
                    "headers": headers,
                }));
                let path = format!("{}/edit-and-resend", DELIVERIES.at(id));
                let made = remote.post(&path, Some(&Value::Object(body)))?;
                let [new, event] = ["id", "event_id"].map(|field| text(&made, field));
                remote.answer(
                    &made,
                    format_args!("{id} is skipped; {new} of event {event} is sent in its place"),
                )
            }
            Self::Cancel { ids, confirm } => {
                confirm.ask(format_args!("Cancel {}", ids.join(", ")))?;
                each(&remote, ids, "cancel", None)
            }
            Self::Confirm { id, failed, is_final } => {
                let body = match failed {
                    Some(reason) => {
                        json!({ "result": "failed", "reason": reason, "final": is_final })
                    }
                    None => json!({ "result": "ok" }),
                };
                let path = format!("{}/confirm", DELIVERIES.at(id));
                print_state(&remote, &remote.post(&path, Some(&body))?)
            }
        }
    }
}

impl Verbs for DeadLetterVerb {
    fn run(&self, connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
        let remote = connect.open(shared)?;
        match self {
            Self::List { of, listing } => DEAD_LETTERS.list(&remote, listing, of),
            Self::Show { id } => show(&remote, id),
            Self::Summary { of, since, until } => {
                let filters =
                    json!({ "subscription": of.subscription, "since": since, "until": until });
                summary(&remote, &noun::query(&filters))
            }
            Self::Replay(which) => which.act(&remote, REPLAY, None),
            Self::Discard { reason, which } => which.act(&remote, DISCARD, Some(reason)),
        }
    }
}

const REPLAY: job::Request<'_> = job::Request {
    path: "/v1/dead-letters/replay",
    many: "dead letters",
    question: ["This sends", "again"],
    done: "sent again",
    is_more: false,
};

const DISCARD: job::Request<'_> = job::Request {
    path: "/v1/dead-letters/discard",
    question: ["This discards", "for good"],
    done: "discarded",
    ..REPLAY
};

impl DeadLetters {
    fn act(
        &self,
        remote: &Remote,
        request: job::Request<'_>,
        reason: Option<&str>,
    ) -> Result<(), Failure> {
        let Self { ids, all, filter, aggregate, pace } = self;
        let ids = noun::body(&json!({ "ids": ids }));
        let filter = job::filter(*all, &[ids, job::given(filter), job::given(aggregate)])?;
        let mut body = json!({ "filter": filter });
        if let (Some(reason), Value::Object(fields)) = (reason, &mut body) {
            fields.insert("reason".to_owned(), reason.into());
        }
        pace.run(remote, request, body)
    }
}

const GROUPS: &[Column] = &[
    ("COUNT", 0, Text("count")),
    ("TO", 0, Text("subscription")),
    ("CLASS", 1, Text("class")),
    ("STATUS", 1, Text("code")),
    ("REASON", 1, Text("reason")),
    ("FIRST (UTC)", 3, Minute("oldest_at")),
    ("LAST (UTC)", 2, Minute("newest_at")),
    ("EXAMPLE", 2, Text("sample")),
];

fn summary(remote: &Remote, query: &noun::Query) -> Result<(), Failure> {
    let found = remote.get(&with_query("/v1/dead-letters/summary", query))?;
    if remote.json() {
        return out::json(&found);
    }
    let groups = found.get("groups").and_then(Value::as_array).cloned().unwrap_or_default();
    if groups.is_empty() {
        out::note("There are no dead letters.");
        return Ok(());
    }
    show::table(GROUPS, &groups)
}

impl Verbs for InDoubtVerb {
    fn run(&self, connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
        let remote = connect.open(shared)?;
        match self {
            Self::Show => restored(&remote, &remote.get("/v1/in-doubt")?),
            Self::List { of: Of { subscription }, listing } => {
                let filters = json!({ "state": "in_doubt", "subscription": subscription });
                IN_DOUBT.list(&remote, listing, &filters)
            }
            Self::Release(which) => which.act(&remote, "release", ("Release", "released")),
            Self::Settle(which) => which.act(&remote, "skip", ("Settle", "settled")),
            Self::End => restored(&remote, &remote.post("/v1/in-doubt/end", None)?),
        }
    }
}

fn show(remote: &Remote, id: &str) -> Result<(), Failure> {
    let delivery = remote.get(&DELIVERIES.at(id))?;
    if remote.json() {
        return out::json(&delivery);
    }
    timeline::delivery(remote, &delivery)?;
    out::line("")?;
    let event = timeline::event_of(remote, &delivery)?;
    timeline::again(&event, &[delivery])
}

fn restored(remote: &Remote, in_doubt: &Value) -> Result<(), Failure> {
    if remote.json() { out::json(in_doubt) } else { show::fields(in_doubt, RESTORED) }
}

/// Does the same with each delivery. A refusal does not stop the others; the first one is the exit code.
fn each(
    remote: &Remote,
    ids: &[String],
    action: &str,
    reason: Option<&str>,
) -> Result<(), Failure> {
    let (mut first, body) = (None, reason.map(|reason| json!({ "reason": reason })));
    for id in ids {
        match remote.post(&format!("{}/{action}", DELIVERIES.at(id)), body.as_ref()) {
            Ok(delivery) => print_state(remote, &delivery)?,
            Err(Failure { code, message }) => {
                let named = Failure::new(code, format!("{id}: {message}"));
                if ids.len() == 1 || code == exit::UNREACHABLE {
                    return Err(named);
                }
                out::note(&named.message);
                first.get_or_insert(code);
            }
        }
    }
    first.map_or(Ok(()), |code| Err(Failure::new(code, "not all of it could be done; see above")))
}

fn print_state(remote: &Remote, delivery: &Value) -> Result<(), Failure> {
    let due = instant(delivery, "due_at");
    let when = if due.is_empty() { due } else { format!(", due {due} UTC") };
    let (id, state) = (text(delivery, "id"), text(delivery, "state"));
    remote.answer(delivery, format_args!("{id} is {state}{when}"))
}

/// Says how many deliveries it was, or would be.
fn report(
    remote: &Remote,
    count: impl Display + Serialize,
    DryRun { dry_run }: DryRun,
    done: &str,
) -> Result<(), Failure> {
    let would = if dry_run { "would be " } else { "" };
    let answer = json!({ "count": count, "dry_run": dry_run });
    remote.answer(&answer, format_args!("{count} deliveries {would}{done}"))
}

impl Which {
    fn act(
        &self,
        remote: &Remote,
        action: &str,
        (verb, done): (&str, &str),
    ) -> Result<(), Failure> {
        let Self { ids, all, filter, dry_run, confirm } = self;
        let filter = noun::body(filter);
        if ids.is_empty() && !all && filter.is_empty() {
            let why = "say which: ids, --all, --subscription, --event-type, --since or --until";
            return Err(Failure::usage(why));
        }
        if !ids.is_empty() && dry_run.dry_run {
            return report(remote, ids.len(), *dry_run, done);
        }
        if !dry_run.dry_run && (ids.is_empty() || action == "skip") {
            let all = || "all deliveries in doubt that match".to_owned();
            let which = if ids.is_empty() { all() } else { ids.join(", ") };
            confirm.ask(format_args!("{verb} {which}"))?;
        }
        if !ids.is_empty() {
            // The route also ends or releases deliveries in other states, which nobody asked for here.
            for id in ids {
                let state = text(&remote.get(&DELIVERIES.at(id))?, "state");
                if state != "in_doubt" {
                    let why = format!("{id} is {state}, not in doubt; nothing was {done}");
                    return Err(Failure::new(exit::CONFLICT, why));
                }
            }
            return each(remote, ids, action, None);
        }
        let body = json!({ "filter": filter, "dry_run": dry_run.dry_run });
        let mut count = 0;
        loop {
            let moved = remote.post(&format!("{}/{action}", DELIVERIES.path), Some(&body))?;
            count += moved.get("count").and_then(Value::as_u64).unwrap_or(0);
            if moved.get("more").and_then(Value::as_bool) != Some(true) {
                return report(remote, count, *dry_run, done);
            }
        }
    }
}
