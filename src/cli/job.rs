//! `oncebox job`: what the service does to many at once; and the flags and the progress of the commands that ask for it.
//!
//! The service finds and does all of it. A command asks how many there are, starts one job, and watches it.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::base::clock::Clock;
use crate::base::stop::Stop;
use crate::cli::exit::Failure;
use crate::cli::input::time;
use crate::cli::noun::{self, Confirm, DryRun, Listing, Noun, Verbs};
use crate::cli::out;
use crate::cli::remote::{ConnectArgs, Remote};
use crate::cli::shared::Shared;
use crate::cli::show::Cell::{By, Instant, Minute, Text};
use crate::cli::show::{self, Column, text};
use crate::sys::signals::stop_flag;

/// How often it is asked how far a job is.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often that is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Jobs, newest first
    List {
        /// Its state: running, paused, completed, cancelled, failed
        #[arg(long)]
        state: Option<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// One job, and how far it is
    Show {
        /// The job's id
        id: String,
        /// Watch it to its end
        #[arg(long)]
        follow: bool,
    },
    /// Keep a job from going on for now
    Pause {
        /// The job's id
        id: String,
    },
    /// Let a paused job go on
    Resume {
        /// The job's id
        id: String,
    },
    /// Stop a job; what it has done stays done
    Cancel {
        /// The job's id
        id: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

const JOBS: Noun = Noun {
    path: "/v1/jobs",
    one: "Job",
    many: "jobs",
    time: Some("created_at"),
    columns: &[
        ("ID", 0, Text("id")),
        ("KIND", 1, Text("kind")),
        ("STATE", 1, Text("state")),
        ("DONE", 1, By(done_of)),
        ("FILTER", 3, Text("filter")),
        ("BY", 2, Text("requested_by")),
        ("STARTED (UTC)", 2, Minute("created_at")),
    ],
    fields: &[
        ("kind", Text("kind")),
        ("filter", Text("filter")),
        ("reason", Text("reason")),
        ("done", By(done_of)),
        ("had changed meanwhile", Text("skipped")),
        ("others acted on", Text("acted_on_meanwhile")),
        ("deliveries", Text("deliveries")),
        ("deliveries a second", Text("rate")),
        ("by", Text("requested_by")),
        ("started", Instant("created_at")),
        ("ended", Instant("finished_at")),
        ("error", Text("error")),
    ],
};

/// How many of how many: `100 of 230`.
fn done_of(job: &Value) -> String {
    let more = if job.get("matched_more") == Some(&Value::Bool(true)) { " or more" } else { "" };
    format!("{} of {}{more}", number(job, "done"), number(job, "matched"))
}

fn number(job: &Value, field: &str) -> u64 {
    job.get(field).and_then(Value::as_u64).unwrap_or(0)
}

impl Verbs for Verb {
    fn run(&self, connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
        let remote = connect.open(shared)?;
        match self {
            Self::List { state, listing } => {
                JOBS.list(&remote, listing, &json!({ "state": state }))
            }
            Self::Show { id, follow: true } => follow(&remote, &remote.get(&JOBS.at(id))?),
            Self::Show { id, follow: false } => JOBS.show(&remote, id),
            Self::Pause { id } => JOBS.act(&remote, id, "pause", None),
            Self::Resume { id } => JOBS.act(&remote, id, "resume", None),
            Self::Cancel { id, confirm } => {
                confirm.ask(format_args!("Cancel the job {id}"))?;
                JOBS.act(&remote, id, "cancel", None)
            }
        }
    }
}

/// Which ones, by what deliveries and events have in common.
#[derive(Debug, Args, Serialize)]
pub(super) struct Filter {
    /// Only those to this subscription: a name or an id
    #[arg(long)]
    subscription: Option<String>,
    /// Only those whose last attempt was of this class: transient, auth, validation, …
    #[arg(long)]
    class: Option<String>,
    /// Only those whose last attempt was answered with this HTTP status
    #[arg(long, value_name = "STATUS")]
    code: Option<u16>,
    /// Only those of this event type
    #[arg(long, value_name = "TYPE")]
    event_type: Option<String>,
    /// Only rows from this time on: 2026-01-31T12:00:00Z, the day 2026-01-31 (UTC), or 2h for two hours ago
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<String>,
    /// Only rows before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<String>,
}

/// Which ones, by what they are about.
#[derive(Debug, Args, Serialize)]
pub(super) struct Aggregate {
    /// Only those about this kind of thing, such as invoice
    #[arg(long, value_name = "TYPE")]
    aggregate_type: Option<String>,
    /// Only those about this thing, such as the number of an invoice
    #[arg(long, value_name = "ID")]
    aggregate_id: Option<String>,
}

/// How it is done.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Pace {
    /// Deliveries a second at most [default: as fast as it goes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: Option<u32>,
    /// Do not wait for its end
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    dry_run: DryRun,
    #[command(flatten)]
    confirm: Confirm,
}

/// What is asked for: where, of what, and the words for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) path: &'a str,
    /// What there are many of, such as `dead letters`.
    pub(super) many: &'static str,
    /// What is done, as the start of a question: `This sends {} again`.
    pub(super) question: [&'static str; 2],
    /// What was done to them, such as `sent again`.
    pub(super) done: &'static str,
    /// Whether it is asked for even where nothing matches.
    pub(super) is_more: bool,
}

/// Flags that were given, as a filter; at least one of them, or `--all`.
pub(super) fn filter(all: bool, parts: &[Map<String, Value>]) -> Result<Value, Failure> {
    let given = parts.iter().flatten().map(|(name, value)| (name.clone(), value.clone()));
    let given: Map<String, Value> = given.collect();
    if given.is_empty() && !all {
        return Err(Failure::usage("say which: ids, a filter such as --subscription, or --all"));
    }
    Ok(Value::Object(given))
}

/// Of a single event only the subscription can be chosen.
pub(super) fn check_single(
    filter: &Map<String, Value>,
    more: &Map<String, Value>,
) -> Result<(), Failure> {
    let others = filter.keys().chain(more.keys()).find(|field| *field != "subscription");
    others.map_or(Ok(()), |_field| {
        Err(Failure::usage(
            "an id stands alone, or with --subscription; the other filters are for many",
        ))
    })
}

/// The fields of a filter.
pub(super) fn given(flags: &impl Serialize) -> Map<String, Value> {
    noun::body(flags)
}

impl Pace {
    /// Counts, asks, starts a job and watches it.
    pub(super) fn run(
        self,
        remote: &Remote,
        request: Request<'_>,
        mut body: Value,
    ) -> Result<(), Failure> {
        let Request { path, many, question: [before, after], done, is_more } = request;
        let Self { rate, detach, dry_run, confirm } = self;
        if let Some(rate) = rate {
            put(&mut body, "rate", rate.into());
        }
        let mut counting = body.clone();
        put(&mut counting, "dry_run", true.into());
        let found = remote.post(path, Some(&counting))?;
        let count = counted(&found, many);
        if dry_run.dry_run {
            remote.answer(&found, format_args!("{count} would be {done}"))?;
            let sample = found.get("sample").and_then(Value::as_array).cloned();
            let sample = sample.filter(|rows| !rows.is_empty() && !remote.json());
            return sample.map_or(Ok(()), |rows| show::table(SAMPLE, &rows));
        }
        if number(&found, "count") == 0 && !is_more {
            out::note(format_args!("There are no {many} that match."));
            return if remote.json() { out::json(&Value::Null) } else { Ok(()) };
        }
        confirm.ask(format_args!("{before} {count} {after}"))?;
        let job = remote.post(path, Some(&body))?;
        if detach {
            let id = text(&job, "id");
            return remote.answer(&job, format_args!("job {id} runs\n{}", advice(&id)));
        }
        follow(remote, &job)
    }
}

const SAMPLE: &[Column] = &[
    ("ID", 0, Text("id")),
    ("TO", 1, Text("subscription")),
    ("TYPE", 1, Text("event_type")),
    ("OF", 2, By(show::about)),
];

fn put(body: &mut Value, field: &str, value: Value) {
    if let Value::Object(fields) = body {
        fields.insert(field.to_owned(), value);
    }
}

/// How many a dry run has found: `1 event`, or `more than 100000 events`.
fn counted(found: &Value, many: &str) -> String {
    match number(found, "count") {
        count if found.get("more") == Some(&Value::Bool(true)) => {
            format!("more than {count} {many}")
        }
        1 => format!("1 {}", many.trim_end_matches('s')),
        count => format!("{count} {many}"),
    }
}

fn advice(id: &str) -> String {
    format!("Follow it: oncebox job show {id} --follow\nStop it:   oncebox job cancel {id}")
}

/// Watches a job to its end. A signal ends the watching, not the job.
fn follow(remote: &Remote, job: &Value) -> Result<(), Failure> {
    let (id, stopped) = (text(job, "id"), stop_flag().map_err(Failure::failed)?);
    let mut watch = Watch::new()?;
    let mut job = job.clone();
    while text(&job, "state") == "running" {
        watch.show(&job);
        if is_stopped(&stopped) {
            watch.bar.finish_and_clear();
            out::note(format_args!("The job {id} goes on without this command.\n{}", advice(&id)));
            return remote.answer(&job, format_args!("{} so far", done_of(&job)));
        }
        job = remote.get(&JOBS.at(&id)).map_err(|failure| {
            failure
                .and(format_args!("The job {id} goes on once the service runs.\n{}", advice(&id)))
        })?;
    }
    watch.bar.finish_and_clear();
    let skipped = number(&job, "skipped").saturating_add(number(&job, "acted_on_meanwhile"));
    let skipped = match skipped {
        0 => String::new(),
        count => format!(", {count} had changed meanwhile"),
    };
    let said = format!("{}{skipped}: {} deliveries", done_of(&job), number(&job, "deliveries"));
    remote.answer(&job, format_args!("job {id} is {}: {said}", text(&job, "state")))?;
    match text(&job, "state").as_str() {
        "completed" => Ok(()),
        "failed" => Err(Failure::failed(format_args!("the job failed: {}", text(&job, "error")))),
        state => Err(Failure::failed(format_args!("the job is {state}"))),
    }
}

fn is_stopped(stopped: &AtomicBool) -> bool {
    stopped.load(Ordering::Relaxed)
}

/// The progress of a job: a bar on a terminal, else a line now and then.
struct Watch {
    bar: ProgressBar,
    clock: Clock,
    began: Option<(Duration, u64)>,
    written_at: Duration,
    pause: Stop,
}

impl Watch {
    fn new() -> Result<Self, Failure> {
        let clock = Clock::machine();
        let bar = if std::io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{bar:30} {msg}");
            ProgressBar::new(0).with_style(style.map_err(Failure::failed)?)
        } else {
            ProgressBar::hidden()
        };
        let written_at = clock.monotonic();
        Ok(Self { bar, clock, began: None, written_at, pause: Stop::new() })
    }

    /// Shows how far it is, and waits a moment.
    fn show(&mut self, job: &Value) {
        let now = self.clock.monotonic();
        let (all, passed) =
            (number(job, "matched"), number(job, "done").saturating_add(number(job, "skipped")));
        let (began, before) = *self.began.get_or_insert((now, passed));
        let millis = now.saturating_sub(began).as_millis().max(1);
        let each_second = u128::from(passed.saturating_sub(before)).saturating_mul(1000) / millis;
        let left = all.saturating_sub(passed);
        let about = u128::from(left).checked_div(each_second);
        let about = about.map(|secs| format!(", about {secs} s")).unwrap_or_default();
        let message = format!("{}, {each_second} a second, {left} left{about}", done_of(job));
        self.bar.set_length(all.max(passed));
        self.bar.set_position(passed);
        if self.bar.is_hidden() && now.saturating_sub(self.written_at) >= LINE_EVERY {
            self.written_at = now;
            out::note(&message);
        }
        self.bar.set_message(message);
        let _asked = self.pause.wait(LOOK_EVERY);
    }
}
