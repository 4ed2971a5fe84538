//! `oncebox job`: what the service does to many at once; and the flags and the progress of the commands that ask for it.
//!
//! The service finds and does all of it. A command asks how many there are, starts one job, and watches it.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use data_encoding::BASE64;
use indicatif::{ProgressBar, ProgressStyle};

use crate::base::clock::Clock;
use crate::base::stop::Stop;
use crate::cli::noun::{Confirm, DryRun};
use crate::cli::prelude::*;
use crate::cli::show;
use crate::sys::host::stop_flag;

/// How often it is asked how far a job is.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often that is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

const VERBS: &[CommandRow] = &[
    command("list", "Jobs, newest first").calls("listJobs"),
    command("show", "One job, and how far it is")
        .calls("getJob")
        .flags(&[&[own("follow").help("Watch it to its end")]])
        .online(show),
    command("pause", "Keep a job from going on for now").calls("pauseJob"),
    command("resume", "Let a paused job go on").calls("resumeJob"),
    command("cancel", "Stop a job; what it has done stays done")
        .calls("cancelJob")
        .asks("Cancel the job {id}"),
];

pub(super) const COMMANDS: Commands = Commands::new(
    &JOBS,
    command("job", "What the service does to many at once: how far it is, and stopping it"),
    VERBS,
);

const JOBS: Noun = Noun::new("/v1/jobs", "Job", "jobs")
    .columns(&[
        column("ID", 0, "id"),
        column("KIND", 1, "kind"),
        column("STATE", 1, "state"),
        column("DONE", 1, "done_of"),
        column("FILTER", 3, "filter"),
        column("BY", 2, "requested_by"),
        column("STARTED (UTC)", 2, "created_at"),
    ])
    .fields(&[
        cell("kind", "kind"),
        cell("filter", "filter"),
        cell("reason", "reason"),
        cell("done", "done_of"),
        cell("had changed meanwhile", "skipped"),
        cell("others acted on", "acted_on_meanwhile"),
        cell("deliveries", "deliveries"),
        cell("what became of them", "became"),
        cell("held back", "held"),
        cell("deliveries a second", "rate"),
        cell("by", "requested_by"),
        time("started", "created_at"),
        time("ended", "finished_at"),
        cell("error", "error"),
    ])
    .time("created_at")
    .by(&[("done_of", done_of), ("became", became), ("held", |job| held(job).join("; "))]);

/// How many of how many: `100 of 230`.
fn done_of(job: &Value) -> String {
    let more = if job.get("matched_more") == Some(&Value::Bool(true)) { " or more" } else { "" };
    format!("{} of {}{more}", number(job, "done"), number(job, "matched"))
}

/// What became of its deliveries: `3 sent, 1 waiting`.
fn became(job: &Value) -> String {
    let counts = job.get("became").and_then(Value::as_object).into_iter().flatten();
    let some = counts.filter(|(_, count)| count.as_u64() != Some(0));
    let each = some.map(|(name, count)| format!("{count} {}", name.replace('_', " ")));
    each.collect::<Vec<_>>().join(", ")
}

/// The deliveries that wait for the end of a hold: `3 of them wait: erp is held (breaker) since 2026-01-31 12:00:00`.
fn held(job: &Value) -> Vec<String> {
    let each = list(job, "held").iter().map(|held| {
        let hold = held.get("hold").unwrap_or(&Value::Null);
        let [reason, subscription] = [text(hold, "reason"), text(held, "subscription")];
        let since = show::instant(hold, "since");
        let count = number(held, "count");
        format!("{count} of them wait: {subscription} is held ({reason}) since {since} UTC")
    });
    each.collect()
}

fn number(job: &Value, field: &str) -> u64 {
    job.get(field).and_then(Value::as_u64).unwrap_or(0)
}

fn show(call: &Call<'_>, remote: &Remote) -> Done {
    let job = remote.get(&call.path())?;
    if call.is("follow") { follow(remote, &job) } else { JOBS.print(remote, &job) }
}

/// How it is done.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Pace {
    /// Do not wait for its end
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    dry_run: DryRun,
    #[command(flatten)]
    confirm: Confirm,
}

/// The words for what a job does.
#[derive(Clone, Copy)]
pub(super) struct Words {
    /// What there are many of, such as `dead letters`.
    pub(super) many: &'static str,
    /// What is done, as the start of a question: `This sends {} again`.
    pub(super) question: [&'static str; 2],
    /// What was done to them, such as `sent again`.
    pub(super) done: &'static str,
    /// Whether it is asked for even where nothing matches.
    pub(super) is_more: bool,
}

/// The words for sending again.
pub(super) const fn again(many: &'static str) -> Words {
    Words { many, question: ["This sends", "again"], done: "sent again", is_more: false }
}

/// The words for removing what events have.
pub(super) const fn expunged(many: &'static str) -> Words {
    let question = ["This removes for good what", "have"];
    Words { many, question, done: "expunged", is_more: false }
}

/// Counts, asks, starts a job and watches it. At least one filter is given, or `--all`.
pub(super) fn start(call: &Call<'_>, remote: &Remote, words: Words) -> Done {
    let Words { many, question: [before, after], done, is_more } = words;
    let Pace { detach, dry_run, confirm } = call.flags()?;
    let mut body = call.body()?;
    if !is_more {
        let filter = body.entry("filter").or_insert_with(|| Map::new().into());
        if filter.as_object().is_none_or(Map::is_empty) && !call.is("all") {
            let why = "say which: ids, a filter such as --subscription, or --all";
            return Err(Failure::usage(why));
        }
    }
    let mut counting = body.clone();
    counting.insert("dry_run".to_owned(), true.into());
    let found = call.send(remote, counting)?;
    let count = counted(&found, many);
    held(&found).iter().for_each(out::note);
    if dry_run.dry_run {
        remote.answer(&found, format_args!("{count} would be {done}"))?;
        let sample = found.get("sample").and_then(Value::as_array).cloned();
        let sample = sample.filter(|rows| !rows.is_empty() && !remote.json());
        return sample.map_or(Ok(()), |rows| SAMPLE.table(&rows));
    }
    if number(&found, "count") == 0 && !is_more {
        out::note(format_args!("There are no {many} that match."));
        return if remote.json() { out::json(&Value::Null) } else { Ok(()) };
    }
    confirm.ask(format_args!("{before} {count} {after}"))?;
    let job = call.send(remote, body)?;
    if detach {
        let id = text(&job, "id");
        return remote.answer(&job, format_args!("job {id} runs\n{}", advice(&id)));
    }
    follow(remote, &job)
}

/// Sends one event again; the filters are for many.
pub(super) fn replay_one(call: &Call<'_>, remote: &Remote, noun: &Noun) -> Result<Value, Failure> {
    let mut body = call.body()?;
    let filter = body.remove("filter").unwrap_or_default();
    let only = filter.as_object().cloned().unwrap_or_default();
    if only.keys().any(|field| field != "subscription") {
        return Err(Failure::usage(
            "an id stands alone, or with --subscription; the other filters are for many",
        ));
    }
    let mut body = only;
    if call.is("as-new") {
        body.insert("as_new".to_owned(), true.into());
    }
    if call.has("content-type") {
        body.insert("content_type".to_owned(), call.text("content-type").into());
    }
    if call.has("payload") {
        let bytes = input::bytes(&call.text("payload"))?;
        body.insert("payload_base64".to_owned(), BASE64.encode(&bytes).into());
    }
    remote.post(&format!("{}/replay", noun.at(&call.text("id"))), Some(&Value::Object(body)))
}

const SAMPLE: Columns = Columns {
    columns: &[
        column("ID", 0, "id"),
        column("TO", 9, "subscription"),
        column("TYPE", 1, "event_type"),
        column("OF", 9, "about"),
    ],
    by: &[("about", show::about)],
};

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
    let id = text(job, "id");
    let stopped = stop_flag().map_err(Failure::failed)?;
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
    held(&job).iter().for_each(out::note);
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
        let all = number(job, "matched");
        let passed = number(job, "done").saturating_add(number(job, "skipped"));
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
