//! `oncebox delivery`, `dead-letter` and `in-doubt`: one event for one subscription; those that were given up; and
//! those that may have been made before a restore.

use std::fmt::Display;

use clap::Command;
use serde::Serialize;

use crate::cli::job::{self, Pace, Words};
use crate::cli::noun::{Confirm, DryRun};
use crate::cli::prelude::*;
use crate::cli::show::{self, instant, list, minute};
use crate::cli::timeline;

const DELIVERY_CHOSEN: &[Flag] = &[
    field("id").value("IDS...").help("Ids of deliveries"),
    field("reason").value("TEXT").help("Why; kept in the audit log"),
];

const DELIVERY_VERBS: &[CommandRow] = &[
    command("list", "Deliveries, newest first").calls("listDeliveries").flags(&[&[
        field("state").long("state").also(&["status"]),
        field("trace_id").long("trace"),
        field("code").value("STATUS"),
    ]]),
    command("show", "One delivery with its event, its attempts, and how to send it again")
        .calls("getDelivery")
        .flags(&[&[field("id").help("The delivery's id, like dlv_17")]])
        .answered(show),
    command("attempts", "The attempts of a delivery, oldest first")
        .calls("listAttempts")
        .online(|call, remote| call.list(remote, &ATTEMPTS, call.query())),
    command("request", "What the latest attempt sent, and a curl command that repeats a request")
        .calls("getDeliveryRequest")
        .flags(&[&[
            field("id").help("The delivery's id, like dlv_17"),
            field("attempt").value("N").help("What this attempt sent"),
        ]])
        .answered(request),
    command(
        "retry",
        "Send again: at once if it waits, anew if it was given up, skipped or cancelled",
    )
    .calls("retryDelivery")
    .flags(&[
        DELIVERY_CHOSEN,
        &[field("rendered_anew")
            .help("Make body and header fields anew, by the subscription of now")],
    ])
    .online(each),
    command("park", "Set deliveries aside, so that their lanes go on")
        .calls("parkDelivery")
        .flags(&[DELIVERY_CHOSEN])
        .online(each),
    command(
        "release",
        "Let deliveries be sent that are parked or in doubt, each at its place in its lane",
    )
    .calls("releaseDelivery")
    .flags(&[DELIVERY_CHOSEN])
    .asks("Release {id}")
    .online(each),
    command("skip", "End deliveries without sending them, so that their lanes go on")
        .calls("skipDelivery")
        .flags(&[DELIVERY_CHOSEN])
        .asks("Skip {id}")
        .online(each),
    command("move-to-end", "Move deliveries behind all others of their lanes")
        .calls("moveDeliveryToEnd")
        .flags(&[DELIVERY_CHOSEN])
        .online(each),
    command(
        "edit-and-resend",
        "Send another payload in place of a delivery, as a new event at its place in its lane",
    )
    .calls("editAndResendDelivery")
    .flags(&[&[
        field("payload_base64")
            .long("payload")
            .value("PAYLOAD")
            .required()
            .help("The new body: JSON, @file, or - for stdin"),
        field("content_type")
            .value("TYPE")
            .help("The content type of that body [default: the event's]"),
        field("headers").long("header").value("FIELD").help(
            "A header field of the event, 'Name: value', instead of those it has; may be repeated",
        ),
    ]])
    .answered(edit_and_resend),
    command("cancel", "Stop deliveries that wait")
        .calls("cancelDelivery")
        .flags(&[DELIVERY_CHOSEN])
        .asks("Cancel {id}")
        .online(each),
    command("confirm", "Report that the target has done what it accepted, or has failed")
        .calls("confirmDelivery")
        .flags(&[&[
            field("reason")
                .long("failed")
                .value("REASON")
                .help("It failed, and why; it counts as a failed attempt"),
            field("final").needs(&["reason"]).help("Give it up: it can never succeed"),
            without("result"),
        ]])
        .online(confirm),
];

pub(super) const DELIVERY: Commands = Commands::new(
    &DELIVERIES,
    command("delivery", "One event for one subscription: show, send again, cancel"),
    DELIVERY_VERBS,
);

const DEAD_LETTER_WHICH: &[Flag] = &[
    optional("filter.ids").value("IDS").not(&["all"]).help("Ids of deliveries"),
    own("all").help("All that fit the other flags"),
    field("filter.code").value("STATUS"),
    field("filter.answer").help("Only those whose target said this, as the summary shows it"),
    field("filter.event_type").value("TYPE").help("Only those of this event type"),
    field("filter.aggregate_type").value("TYPE"),
    field("filter.aggregate_id").value("ID"),
    without("filter.provider"),
    members("filter"),
    field("reason").value("TEXT"),
];

const DEAD_LETTER_VERBS: &[CommandRow] = &[
    command("list", "Deliveries that were given up, newest first")
        .calls("listDeadLetters")
        .flags(&[&[field("code").value("STATUS")]]),
    command("show", "One dead letter with its event, its attempts, and how to send it again")
        .calls("getDelivery")
        .answered(show),
    command(
        "summary",
        "Count dead letters by subscription, error and what the target said; at most the newest 1,000",
    )
        .calls("summarizeDeadLetters")
        .answered(summary),
    command(
        "replay",
        "Send dead letters again, the oldest first, each in its order and under its webhook-id",
    )
    .calls("replayDeadLetters")
    .hidden(&["retry"])
    .flags(&[DEAD_LETTER_WHICH])
    .online(|call, remote| job::start(call, remote, job::again("dead letters")))
    .more(Pace::augment_args),
    command("discard", "Give up dead letters for good")
        .calls("discardDeadLetters")
        .flags(&[DEAD_LETTER_WHICH])
        .online(|call, remote| {
            let question = ["This discards", "for good"];
            job::start(
                call,
                remote,
                Words { question, done: "discarded", ..job::again("dead letters") },
            )
        })
        .more(Pace::augment_args),
];

pub(super) const DEAD_LETTER: Commands = Commands::new(
    &DEAD_LETTERS,
    command(
        "dead-letter",
        "Deliveries that were given up: list, count by error, send again, discard",
    )
    .hidden(&["dlq"]),
    DEAD_LETTER_VERBS,
);

const IN_DOUBT_DOUBTFUL: &[Flag] = &[
    optional("ids")
        .value("IDS...")
        .not(&["all", "filter.subscription", "filter.event_type", "filter.since", "filter.until"])
        .help("Ids of deliveries"),
    own("all").help("All of them"),
    field("filter.subscription").help("Only those to this subscription: a name or an id"),
    field("filter.event_type").value("TYPE").help("Only those of this event type"),
    members("filter"),
];

const IN_DOUBT_VERBS: &[CommandRow] = &[
    command(
        "show",
        "When the database was restored, from which backup, and how many deliveries are in doubt",
    )
    .calls("getInDoubt")
    .answered(|_, _, in_doubt| RESTORED.fields(in_doubt)),
    command("list", "The deliveries in doubt, newest first")
        .calls("listDeliveries")
        .flags(&[&[
            without("state"),
            without("event_id"),
            without("postponed"),
            without("queue"),
            without("in_flight"),
            without("class"),
        ]])
        .online(list_doubts),
    command(
        "release",
        "Send them; each keeps its webhook-id, so a consumer with a guard takes it once",
    )
    .calls("releaseDeliveries")
    .flags(&[IN_DOUBT_DOUBTFUL])
    .online(|call, remote| settle(call, remote, InDoubtAction::Release))
    .more(of_doubt),
    command("settle", "Mark them as done: they were made before the restore and are not sent")
        .calls("skipDeliveries")
        .flags(&[IN_DOUBT_DOUBTFUL])
        .online(|call, remote| settle(call, remote, InDoubtAction::Settle))
        .more(of_doubt),
    command("end", "Stop holding new events for review; what is in doubt stays in doubt")
        .calls("endInDoubt")
        .answered(|_, _, in_doubt| RESTORED.fields(in_doubt)),
];

pub(super) const IN_DOUBT: Commands = Commands::new(
    &DOUBTS,
    command("in-doubt", "After a restore: deliveries that may already have been made"),
    IN_DOUBT_VERBS,
);

fn of_doubt(command: Command) -> Command {
    Confirm::augment_args(DryRun::augment_args(command))
}

const DELIVERIES: Noun = Noun::new("/v1/deliveries", "Delivery", "such deliveries")
    .columns(&[
        column("ID", 0, "id"),
        column("TO", 1, "subscription"),
        column("TYPE", 1, "event_type"),
        column("STATE", 1, "state"),
        column("TRIES", 2, "attempt_count"),
        column("DUE OR DONE (UTC)", 2, "due_or_done"),
        column("OF", 2, "of"),
        column("EVENT", 3, "event_id"),
    ])
    .by(&[("state", timeline::state), ("due_or_done", due_or_done), ("of", of)]);

const DOUBTS: Noun = Noun { many: "deliveries in doubt", ..DELIVERIES };

const DEAD_LETTERS: Noun = Noun { path: "/v1/dead-letters", many: "dead letters", ..DELIVERIES }
    .columns(&[
        column("ID", 0, "id"),
        column("TO", 1, "subscription"),
        column("TYPE", 1, "event_type"),
        column("GIVEN UP (UTC)", 2, "finished_at"),
        column("TRIES", 3, "attempt_count"),
        column("OF", 2, "of"),
        column("REASON", 2, "reason"),
        column("EVENT", 4, "event_id"),
    ])
    .fields(&[]);

const ATTEMPTS: Noun = Noun {
    many: "attempts yet",
    time: "started_at",
    columns: &[
        column("ATTEMPT", 0, "id"),
        column("STARTED (UTC)", 1, "started_at"),
        column("CLASS", 1, "class"),
        column("STATUS", 1, "http_status"),
        column("MS", 3, "latency_ms"),
        column("REASON", 2, "failed_reason"),
    ],
    fields: &[],
    by: &[("started_at", |row| instant(row, "started_at"))],
    ..DELIVERIES
};

const RESTORED: Cells = Cells {
    cells: &[
        time("restored", "restored_at"),
        cell("from", "restored_from"),
        cell("times restored", "epoch"),
        cell("deliveries in doubt", "in_doubt"),
        time("new events held until", "until"),
        time("if they happened before", "lost_at"),
    ],
    by: &[],
};

/// What the delivery is about: what its event happened to, else the event's key.
fn of(delivery: &Value) -> String {
    let about = show::about(delivery);
    if about.is_empty() { text(delivery, "key") } else { about }
}

fn due_or_done(delivery: &Value) -> String {
    let due = minute(delivery, "due_at");
    if due.is_empty() { minute(delivery, "finished_at") } else { due }
}

const GROUPS: Columns = Columns {
    columns: &[
        column("COUNT", 0, "count"),
        column("TO", 0, "subscription"),
        column("CLASS", 1, "class"),
        column("STATUS", 1, "code"),
        column("ANSWER", 0, "answer"),
        column("FIRST (UTC)", 3, "oldest_at"),
        column("LAST (UTC)", 2, "newest_at"),
        column("EXAMPLE", 2, "sample"),
    ],
    by: &[],
};

fn summary(_call: &Call<'_>, _remote: &Remote, found: &Value) -> Done {
    let groups = list(found, "groups");
    if groups.is_empty() {
        out::note("There are no dead letters.");
        return Ok(());
    }
    GROUPS.table(groups)
}

fn show(_call: &Call<'_>, remote: &Remote, delivery: &Value) -> Done {
    timeline::delivery(remote, delivery)?;
    out::line("")?;
    let event = timeline::event_of(remote, delivery)?;
    timeline::again(&event, std::slice::from_ref(delivery))
}

/// Prints a request as it goes over the wire, and as a curl command.
fn request(_call: &Call<'_>, _remote: &Remote, found: &Value) -> Done {
    let attempt = text(found, "attempt");
    let what = if attempt.is_empty() {
        "as the next attempt would send it now".to_owned()
    } else {
        format!("as attempt {attempt} sent it")
    };
    let erased =
        if text(found, "erased") == "true" { ", without what was erased since" } else { "" };
    out::line(format_args!("{} {what}{erased}; what is secret is ***\n", text(found, "delivery")))?;
    out::line(format_args!("{} {}", text(found, "method"), text(found, "url")))?;
    for field in list(found, "headers") {
        out::line(format_args!("{}: {}", text(field, "name"), text(field, "value")))?;
    }
    // They keep their line ends.
    let lines = |name: &str| found.get(name).and_then(Value::as_str).unwrap_or_default();
    out::line(format_args!("\n{}{}\n\n{}", lines("body"), lines("body_base64"), lines("curl")))
}

fn edit_and_resend(call: &Call<'_>, _remote: &Remote, made: &Value) -> Done {
    let id = call.text("id");
    let [new, event] = ["id", "event_id"].map(|field| text(made, field));
    out::line(format_args!("{id} is skipped; {new} of event {event} is sent in its place"))
}

fn confirm(call: &Call<'_>, remote: &Remote) -> Done {
    let mut body = call.body()?;
    body.insert("result".to_owned(), if call.has("reason") { "failed" } else { "ok" }.into());
    print_state(remote, &call.send(remote, body)?)
}

/// Does the same with each delivery.
fn each(call: &Call<'_>, remote: &Remote) -> Done {
    call.confirm()?;
    for_each(&call.texts("id"), remote, |id| call.send_for(remote, id))
}

/// A refusal does not stop the others; the first one is the exit code.
fn for_each(ids: &[String], remote: &Remote, act: impl Fn(&str) -> Result<Value, Failure>) -> Done {
    let mut first = None;
    for id in ids {
        match act(id) {
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
    let id = text(delivery, "id");
    let state = text(delivery, "state");
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

fn list_doubts(call: &Call<'_>, remote: &Remote) -> Done {
    let mut query = call.query();
    query.push(("state".to_owned(), "in_doubt".to_owned()));
    call.list(remote, call.noun, query)
}

/// Decision of a person about deliveries in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InDoubtAction {
    Release,
    Settle,
}

impl InDoubtAction {
    /// The last part of the path of a delivery's route.
    const fn route(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Settle => "skip",
        }
    }

    /// The verb of the question to the person.
    const fn as_verb(self) -> &'static str {
        match self {
            Self::Release => "Release",
            Self::Settle => "Settle",
        }
    }

    /// The participle for deliveries that are done.
    const fn as_participle(self) -> &'static str {
        match self {
            Self::Release => "released",
            Self::Settle => "settled",
        }
    }
}

/// Releases or settles deliveries in doubt: those with the given ids, or all that match.
fn settle(call: &Call<'_>, remote: &Remote, action: InDoubtAction) -> Done {
    let ids = call.texts("ids");
    let mut body = call.body()?;
    let dry_run: DryRun = call.flags()?;
    let confirm: Confirm = call.flags()?;
    if ids.is_empty() && !call.is("all") && body.is_empty() {
        let why = "say which: ids, --all, --subscription, --event-type, --since or --until";
        return Err(Failure::usage(why));
    }
    if !ids.is_empty() && dry_run.dry_run {
        return report(remote, ids.len(), dry_run, action.as_participle());
    }
    if !dry_run.dry_run && (ids.is_empty() || action == InDoubtAction::Settle) {
        let all = || "all deliveries in doubt that match".to_owned();
        let which = if ids.is_empty() { all() } else { ids.join(", ") };
        confirm.ask(format_args!("{} {which}", action.as_verb()))?;
    }
    if !ids.is_empty() {
        // The route also ends or releases deliveries in other states, which nobody asked for here.
        for id in &ids {
            let state = text(&remote.get(&DELIVERIES.at(id))?, "state");
            if state != "in_doubt" {
                let done = action.as_participle();
                let why = format!("{id} is {state}, not in doubt; nothing was {done}");
                return Err(Failure::new(exit::CONFLICT, why));
            }
        }
        let path = |id: &str| format!("{}/{}", DELIVERIES.at(id), action.route());
        return for_each(&ids, remote, |id| remote.post(&path(id), None));
    }
    body.entry("filter").or_insert_with(|| json!({}));
    body.insert("dry_run".to_owned(), dry_run.dry_run.into());
    let mut count = 0;
    loop {
        let moved = call.send(remote, body.clone())?;
        count += moved.get("count").and_then(Value::as_u64).unwrap_or(0);
        if moved.get("more").and_then(Value::as_bool) != Some(true) {
            return report(remote, count, dry_run, action.as_participle());
        }
    }
}
