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

const DELIVERY_TABLE: &str = "
delivery  One event for one subscription: show, send again, cancel
  columns: ID 0 id; TO 1 subscription; TYPE 1 event_type; STATE 1 state; TRIES 2 attempt_count; DUE OR DONE (UTC) 2 due_or_done; OF 2 of; EVENT 3 event_id
  @chosen
    id <IDS...>  Ids of deliveries
    reason <TEXT>  Why; kept in the audit log
  list = listDeliveries  Deliveries, newest first
    state --state --status
    trace_id --trace
    code <STATUS>
  show = getDelivery  One delivery with its event, its attempts, and how to send it again
    id  The delivery's id, like dlv_17
  attempts = listAttempts  The attempts of a delivery, oldest first
  request = getDeliveryRequest  What the latest attempt sent, and a curl command that repeats a request
    id  The delivery's id, like dlv_17
    attempt <N>  What this attempt sent
  retry = retryDelivery  Send again: at once if it waits, anew if it was given up, skipped or cancelled
    @chosen
    rendered_anew  Make body and header fields anew, by the subscription of now
  park = parkDelivery  Set deliveries aside, so that their lanes go on
    @chosen
  release = releaseDelivery  Let deliveries be sent that are parked or in doubt, each at its place in its lane
    @chosen
    ? Release {id}
  skip = skipDelivery  End deliveries without sending them, so that their lanes go on
    @chosen
    ? Skip {id}
  move-to-end = moveDeliveryToEnd  Move deliveries behind all others of their lanes
    @chosen
  edit-and-resend = editAndResendDelivery  Send another payload in place of a delivery, as a new event at its place in its lane
    payload_base64 --payload <PAYLOAD> required  The new body: JSON, @file, or - for stdin
    content_type <TYPE>  The content type of that body [default: the event's]
    headers --header <FIELD>  A header field of the event, 'Name: value', instead of those it has; may be repeated
  cancel = cancelDelivery  Stop deliveries that wait
    @chosen
    ? Cancel {id}
  confirm = confirmDelivery  Report that the target has done what it accepted, or has failed
    reason --failed <REASON>  It failed, and why; it counts as a failed attempt
    final needs:reason  Give it up: it can never succeed
    !result
";

pub(super) const DELIVERY: Commands = Commands::new(
    &DELIVERIES,
    DELIVERY_TABLE,
    &[
        answered("show", show),
        answered("request", request),
        online("attempts", |call, remote| call.list(remote, &ATTEMPTS, call.query())),
        online("retry|park|release|skip|move-to-end|cancel", each),
        answered("edit-and-resend", edit_and_resend),
        online("confirm", confirm),
    ],
);

const DEAD_LETTER_TABLE: &str = "
dead-letter|~dlq  Deliveries that were given up: list, count by error, send again, discard
  columns: ID 0 id; TO 1 subscription; TYPE 1 event_type; GIVEN UP (UTC) 2 finished_at; TRIES 3 attempt_count; OF 2 of; REASON 2 reason; EVENT 4 event_id
  @which
    [filter.ids] <IDS> not:all  Ids of deliveries
    --all  All that fit the other flags
    filter.code <STATUS>
    filter.event_type <TYPE>  Only those of this event type
    filter.aggregate_type <TYPE>
    filter.aggregate_id <ID>
    !filter.provider
    filter.*
    reason <TEXT>
  list = listDeadLetters  Deliveries that were given up, newest first
    code <STATUS>
  show = getDelivery  One dead letter with its event, its attempts, and how to send it again
  summary = summarizeDeadLetters  Count dead letters by subscription and error; at most the newest 1,000
  replay|~retry = replayDeadLetters  Send dead letters again, the oldest first, each in its order and under its webhook-id
    @which
  discard = discardDeadLetters  Give up dead letters for good
    @which
";

pub(super) const DEAD_LETTER: Commands = Commands::new(
    &DEAD_LETTERS,
    DEAD_LETTER_TABLE,
    &[
        answered("show", show),
        answered("summary", summary),
        online("replay", |call, remote| job::start(call, remote, job::again("dead letters")))
            .more(Pace::augment_args),
        online("discard", |call, remote| {
            let question = ["This discards", "for good"];
            job::start(
                call,
                remote,
                Words { question, done: "discarded", ..job::again("dead letters") },
            )
        })
        .more(Pace::augment_args),
    ],
);

const IN_DOUBT_TABLE: &str = "
in-doubt  After a restore: deliveries that may already have been made
  @doubtful
    [ids] <IDS...> not:all,filter.subscription,filter.event_type,filter.since,filter.until  Ids of deliveries
    --all  All of them
    filter.subscription  Only those to this subscription: a name or an id
    filter.event_type <TYPE>  Only those of this event type
    filter.*
  show = getInDoubt  When the database was restored, from which backup, and how many deliveries are in doubt
  list = listDeliveries  The deliveries in doubt, newest first
    !state
    !event_id
    !postponed
    !queue
    !in_flight
    !class
  release = releaseDeliveries  Send them; each keeps its webhook-id, so a consumer with a guard takes it once
    @doubtful
  settle = skipDeliveries  Mark them as done: they were made before the restore and are not sent
    @doubtful
  end = endInDoubt  Stop holding new events for review; what is in doubt stays in doubt
";

pub(super) const IN_DOUBT: Commands = Commands::new(
    &DOUBTS,
    IN_DOUBT_TABLE,
    &[
        answered("show|end", |_, _, in_doubt| RESTORED.fields(in_doubt)),
        online("list", list_doubts),
        online("release", |call, remote| settle(call, remote, InDoubtAction::Release))
            .more(of_doubt),
        online("settle", |call, remote| settle(call, remote, InDoubtAction::Settle)).more(of_doubt),
    ],
);

fn of_doubt(command: Command) -> Command {
    Confirm::augment_args(DryRun::augment_args(command))
}

const DELIVERIES: Noun = Noun::new("/v1/deliveries", "Delivery", "such deliveries", DELIVERY_TABLE)
    .by(&[("state", timeline::state), ("due_or_done", due_or_done), ("of", of)]);

const DOUBTS: Noun = Noun { many: "deliveries in doubt", ..DELIVERIES };

const DEAD_LETTERS: Noun =
    Noun { path: "/v1/dead-letters", many: "dead letters", table: DEAD_LETTER_TABLE, ..DELIVERIES };

const ATTEMPTS: Noun = Noun {
    many: "attempts yet",
    time: "started_at",
    table: "
  columns: ATTEMPT 0 id; STARTED (UTC) 1 started_at; CLASS 1 class; STATUS 1 http_status; MS 3 latency_ms; REASON 2 failed_reason
",
    by: &[("started_at", |row| instant(row, "started_at"))],
    ..DELIVERIES
};

const RESTORED: Cells = Cells {
    text: "restored = @restored_at; from = restored_from; times restored = epoch; deliveries in doubt = in_doubt; \
     new events held until = @until; if they happened before = @lost_at",
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

const GROUPS: Cells = Cells {
    text: "COUNT 0 count; TO 0 subscription; CLASS 1 class; STATUS 1 code; REASON 1 reason; \
     FIRST (UTC) 3 oldest_at; LAST (UTC) 2 newest_at; EXAMPLE 2 sample",
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
