//! `oncebox emit`: publishes one event from flags, or many from lines of JSON.
//!
//! Not here: grouping lines into batches ([`batches`]), and sending a batch with retries ([`send`]).

mod batches;
mod send;

use std::io::{BufRead, BufReader, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use data_encoding::BASE64;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::base::id::{Draw, SystemDraw};
use crate::cli::exit::Failure;
use crate::cli::out::Progress;
use crate::cli::remote::{ConnectArgs, Remote};
use crate::cli::shared::Shared;
use crate::cli::show::text;
use crate::cli::subscription_content::header;
use crate::cli::{input, noun, out};

use batches::{Batch, Batches};
use send::{SendCounts, Sender};

#[derive(Debug, Args)]
#[command(after_help = "Lines: one event a line, as POST /v1/events takes it:\n  \
    {\"event_type\":\"invoice.paid\",\"idempotency_key\":\"invoice.paid:4711\",\"payload\":{\"id\":4711}}\n\n\
    The same input may be sent again and is stored once: an event with an idempotency_key for good, an event\n\
    without one for 24 hours, if the input and --batch are unchanged.")]
pub(super) struct Emit {
    /// Read the lines from this file [default: stdin]
    #[arg(long, value_name = "FILE", conflicts_with = "event_type")]
    file: Option<PathBuf>,
    /// Events in one request, 1 to 1000; all of them are stored or none
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    batch: u16,
    /// How long to retry while the service restarts or its disk is full
    #[arg(long, value_name = "SPAN", default_value = "60s", value_parser = humantime::parse_duration)]
    retry_for: Duration,
    #[command(flatten)]
    event: SingleEvent,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// A single event.
#[derive(Debug, Args, Serialize)]
#[command(next_help_heading = "One event")]
struct SingleEvent {
    /// Type of the event, such as invoice.paid; without it, lines are read
    #[arg(help_heading = "Arguments")]
    event_type: Option<String>,
    /// The payload: JSON, @file, or - for stdin
    #[arg(long, value_name = "JSON", requires = "event_type")]
    #[serde(skip)]
    payload: Option<String>,
    /// The payload's media type, if it is not JSON
    #[arg(long, value_name = "TYPE", requires = "event_type")]
    content_type: Option<String>,
    /// A header field for subscriptions that name it, 'Name: value'; may be repeated
    #[arg(long = "header", value_name = "FIELD", requires = "event_type", value_parser = header)]
    #[serde(skip)]
    headers: Vec<(String, String)>,
    /// Idempotency key: an event with a known key is not stored again
    #[arg(long, requires = "event_type")]
    #[serde(rename = "idempotency_key")]
    key: Option<String>,
    /// What it is about, as TYPE/ID
    #[arg(long, value_name = "TYPE/ID", requires = "event_type", conflicts_with_all = ["aggregate_type", "aggregate_id"])]
    #[serde(skip)]
    aggregate: Option<String>,
    /// Type of what it is about
    #[arg(long, value_name = "TYPE", requires = "event_type")]
    aggregate_type: Option<String>,
    /// Id of what it is about
    #[arg(long, value_name = "ID", requires = "event_type")]
    aggregate_id: Option<String>,
    /// The system it comes from [default: api]
    #[arg(long, value_name = "SYSTEM", requires = "event_type")]
    #[serde(rename = "source_system")]
    source: Option<String>,
    /// Deliver to this subscription only
    #[arg(long, value_name = "SUBSCRIPTION", requires = "event_type")]
    target: Option<String>,
    /// Events with the same key are delivered in order
    #[arg(long, value_name = "KEY", requires = "event_type")]
    ordering_key: Option<String>,
    /// Keep it in order even where the subscription keeps none
    #[arg(long, requires = "event_type")]
    guaranteed_order: bool,
    /// Send it although an earlier event of its lane is a dead letter
    #[arg(long, requires = "event_type")]
    exclude_failed: bool,
    /// Of events with the same value, one at a time is in flight, at subscriptions with a funnel point
    #[arg(long, value_name = "VALUE", requires = "event_type")]
    funnel_value: Option<String>,
    /// Its parent, by the parent's id
    #[arg(long, value_name = "ID", requires = "event_type", conflicts_with = "parent_key")]
    parent_id: Option<String>,
    /// Its parent, by the parent's key in the same source system
    #[arg(long, value_name = "KEY", requires = "event_type")]
    parent_key: Option<String>,
    /// hard: the parent completes after this event, and is a dead letter if this is one [default: soft]
    #[arg(long, value_name = "hard|soft", requires = "event_type", value_parser = ["hard", "soft"])]
    parent_binding: Option<String>,
    /// The process it belongs to
    #[arg(long, value_name = "ID", requires = "event_type")]
    process_id: Option<String>,
    /// When it happened (RFC 3339)
    #[arg(long, value_name = "TIME", requires = "event_type")]
    occurred_at: Option<String>,
    /// Deliver not before this time (RFC 3339)
    #[arg(long, value_name = "TIME", requires = "event_type")]
    not_before: Option<String>,
    /// Counted attempts before it becomes a dead letter
    #[arg(long, value_name = "N", requires = "event_type")]
    max_attempts: Option<u32>,
    /// Free text for your own use
    #[arg(long, value_name = "TEXT", requires = "event_type")]
    custom_data: Option<String>,
}

impl Emit {
    pub(super) fn run(&self, shared: &Shared) -> Result<(), Failure> {
        let remote = self.connect.open_running(shared)?;
        match &self.event.event_type {
            Some(_) => self.single(&remote),
            None => self.lines(&remote),
        }
    }

    fn single(&self, remote: &Remote) -> Result<(), Failure> {
        let event = self.event.event()?;
        // A random key: our own retries are one event, but a command that is typed twice publishes two.
        let mut random = [0_u8; 32];
        SystemDraw::new().fill(&mut random);
        let batch = Batch::single(event, data_encoding::HEXLOWER.encode(&random));
        let answer = Sender::new(remote, self.retry_for).send(&batch)?;
        if remote.json() {
            return out::json(&answer.body);
        }
        let events = answer.body.get("events").and_then(Value::as_array);
        for event in events.into_iter().flatten() {
            let flag = |name: &str| event.get(name).and_then(Value::as_bool) == Some(true);
            let id = text(event, "id");
            match (flag("already_processed"), flag("differs")) {
                (false, _) if text(event, "status") == "quarantined" => out::line(format_args!(
                    "quarantined as {id}: it is sent to nobody until it is repaired or emitted again"
                ))?,
                (false, _) if text(event, "status") == "skipped" => out::line(format_args!(
                    "stored as {id}, but no subscription wants it: it is sent to nobody (oncebox subscription list)"
                ))?,
                (false, _) if flag("in_doubt") => out::line(format_args!(
                    "stored as {id}, and held: the database was restored, so this event may have been sent \
                     before. Release it: oncebox in-doubt list"
                ))?,
                (false, _) => out::line(format_args!("stored as {id}"))?,
                (true, false) => {
                    out::line(format_args!("known before as {id}; nothing was stored again"))?;
                }
                (true, true) => out::line(format_args!(
                    "known before as {id}, with other content; the first content stays"
                ))?,
            }
            out::line(format_args!("Its deliveries: oncebox event show {id}"))?;
        }
        Ok(())
    }

    fn lines(&self, remote: &Remote) -> Result<(), Failure> {
        if let Some(path) = &self.file {
            let file =
                std::fs::File::open(path).map_err(|error| input::unreadable(path, &error))?;
            return self.stream(remote, BufReader::new(file));
        }
        let stdin = std::io::stdin();
        if stdin.is_terminal() {
            out::note("Type events, one JSON object a line; end with Ctrl-D.");
        }
        self.stream(remote, stdin.lock())
    }

    fn stream(&self, remote: &Remote, input: impl BufRead) -> Result<(), Failure> {
        let mut batches = Batches::new(input, usize::from(self.batch));
        let mut sender = Sender::new(remote, self.retry_for);
        let mut sum = SendCounts::default();
        let mut progress = Progress::new();
        let outcome = loop {
            let batch = match batches.next() {
                Ok(Some(batch)) => batch,
                Ok(None) => break Ok(()),
                Err(bad) => break Err(Failure::input(bad)),
            };
            match sender.send(&batch) {
                Ok(answer) => {
                    sum.add(&answer);
                    progress.show(|| format!("{} events sent", sum.events));
                    if remote.json() {
                        out::json(&answer.body)?;
                    }
                }
                Err(failure) => break Err(failure),
            }
        };
        progress.end();
        let summary = sum.to_string();
        if outcome.is_ok() && sum.events == 0 {
            out::note("The input has no events: nothing was sent.");
            return Ok(());
        }
        match outcome {
            Ok(()) if remote.json() => {
                out::note(summary);
                Ok(())
            }
            Ok(()) => out::line(summary),
            Err(failure) if sum.events == 0 => Err(failure.and("Nothing was stored before that.")),
            Err(failure) => Err(failure.and(format_args!("Before that: {summary}"))),
        }
    }
}

impl SingleEvent {
    /// The event as POST /v1/events takes it.
    fn event(&self) -> Result<String, Failure> {
        let mut event = noun::body(self);
        if let Some(both) = &self.aggregate {
            let (kind, id) = both
                .split_once('/')
                .ok_or_else(|| Failure::input("--aggregate is TYPE/ID, such as invoice/4711"))?;
            event.insert("aggregate_type".to_owned(), kind.into());
            event.insert("aggregate_id".to_owned(), id.into());
        }
        if !self.headers.is_empty() {
            let fields =
                self.headers.iter().map(|(name, value)| (name.clone(), value.as_str().into()));
            event.insert("headers".to_owned(), Value::Object(fields.collect()));
        }
        let payload = self.payload.as_deref().ok_or_else(|| {
            Failure::input("give the payload with --payload: JSON, @file, or - for stdin")
        })?;
        let bytes = input::bytes(payload)?;
        let json = self.content_type.as_deref().is_none_or(|kind| kind.contains("json"));
        if !json {
            event.insert("payload_base64".to_owned(), BASE64.encode(&bytes).into());
            return Ok(Value::Object(event).to_string());
        }
        // The JSON is sent byte for byte as it was given, so it is not parsed into a value.
        let raw: &RawValue = serde_json::from_slice(&bytes).map_err(|error| {
            Failure::input(format!(
                "the payload is not JSON: {error}; for other content give --content-type"
            ))
        })?;
        let head = Value::Object(event).to_string();
        let head = head.strip_suffix('}').unwrap_or(&head);
        Ok(format!("{head},\"payload\":{}}}", raw.get()))
    }
}
