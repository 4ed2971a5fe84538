//! `oncebox emit`: publishes one event from flags, or many from lines of JSON.
//!
//! Not here: grouping lines into batches ([`batches`]), sending a batch with retries ([`send`]), and what becomes of a
//! line that cannot be used ([`unusable`]).

mod batches;
mod send;
mod unusable;

use std::io::{BufRead, BufReader, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use clap::Arg;
use data_encoding::BASE64;
use serde_json::value::RawValue;

use crate::base::clock::span;
use crate::base::id::{Draw, SystemDraw};
use crate::cli::out::Progress;
use crate::cli::prelude::*;
use crate::cli::remote::Answer;
use crate::cli::timeline::EVENTS;

use batches::{BadLine, Batch, Batches, InputLine, Part};
use send::{NotStored, SendCounts, Sender};
use unusable::RejectedFile;

pub(super) const COMMANDS: Commands = Commands::new(
    &EVENTS,
    command("emit", "Publish events: one from flags, or many as lines of JSON")
        .calls("publishEvents")
        .flags(&[&[
            optional("event_type")
                .help("Type of the event, such as invoice.paid; without it, lines are read"),
            field("One").value("event:"),
            own("payload").value("JSON").help("The payload: JSON, @file, or - for stdin"),
            field("content_type")
                .value("TYPE")
                .help("The payload's media type, if it is not JSON"),
            field("headers")
                .long("header")
                .value("FIELD")
                .help("A header field for subscriptions that name it, 'Name: value'; may be repeated"),
            field("idempotency_key")
                .long("key")
                .help("Idempotency key: an event with a known key is not stored again"),
            own("aggregate")
                .value("TYPE/ID")
                .not(&["aggregate_type", "aggregate_id"])
                .help("What it is about, as TYPE/ID"),
            field("aggregate_type").value("TYPE").help("Type of what it is about"),
            field("aggregate_id").value("ID").help("Id of what it is about"),
            field("source_system")
                .long("source")
                .value("SYSTEM")
                .help("The system it comes from [default: api]"),
            field("target").value("SUBSCRIPTION").help("Deliver to this subscription only"),
            field("ordering_key")
                .value("KEY")
                .help("Events with the same key are delivered in order"),
            field("guaranteed_order")
                .help("Keep it in order even where the subscription keeps none"),
            field("exclude_failed")
                .help("Send it although an earlier event of its lane is a dead letter"),
            field("funnel_point")
                .value("POINT")
                .help("The funnel point at which --funnel-value counts; every point if absent"),
            field("funnel_value")
                .value("VALUE")
                .help("Of events with the same value, one at a time is in flight, at subscriptions with a funnel point"),
            field("entity_type")
                .value("TYPE")
                .help("What the aggregate's id is an id of, if several event types change the same thing"),
            field("parent_id")
                .value("ID")
                .not(&["parent_key"])
                .help("Its parent, by the parent's id"),
            field("parent_key")
                .value("KEY")
                .help("Its parent, by the parent's key in the same source system"),
            field("parent_binding")
                .value("hard|soft")
                .help("hard: the parent completes after this event, and is a dead letter if this is one [default: soft]"),
            field("process_id").value("ID").help("The process it belongs to"),
            field("occurred_at").help("When it happened (RFC 3339)"),
            field("not_before").help("Deliver not before this time (RFC 3339)"),
            field("max_attempts").help("Counted attempts before it becomes a dead letter"),
            field("custom_data").value("TEXT").help("Free text for your own use"),
            ONLY_THESE,
        ]])
        .offline(emit)
        .more(|command| { let of_event = |flag: &Arg| flag.get_help_heading() == Some("One event"); let command = command .mut_args(|flag| if of_event(&flag) { flag.requires("event_type") } else { flag }); EmitArgs::augment_args(command) })
        .ends(&[
            "Lines: one event a line, as POST /v1/events takes it:",
            "  {\"event_type\":\"invoice.paid\",\"idempotency_key\":\"invoice.paid:4711\",\"payload\":{\"id\":4711}}",
            "",
            "A line that is no usable event stops nothing: it is stored quarantined with the reason (oncebox event list",
            "--status quarantined), or, with --rejected FILE, appended to that file. Each such line is named on stderr.",
            "",
            "The same input may be sent again and is stored once: an event with an idempotency_key for good, an event",
            "without one for 24 hours, if the input and --batch are unchanged.",
        ]),
    &[],
);

#[derive(Debug, Args)]
struct EmitArgs {
    /// Read the lines from this file [default: stdin]
    #[arg(long, value_name = "FILE", conflicts_with = "event_type")]
    file: Option<PathBuf>,
    /// Events in one request, 1 to 1000; all of them are stored or none
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    batch: u16,
    /// Append lines that are no usable events to this file, instead of storing them quarantined
    #[arg(long, value_name = "FILE", conflicts_with = "event_type")]
    rejected: Option<PathBuf>,
    /// How long to retry while the service restarts or its disk is full
    #[arg(long, value_name = "SPAN", default_value = "60s", value_parser = span)]
    retry_for: Duration,
}

fn emit(call: &Call<'_>) -> Done {
    let remote = call.connect.open_running(call.global)?;
    let args = call.flags::<EmitArgs>()?;
    if call.has("event_type") { single(call, &remote, args.retry_for) } else { args.lines(&remote) }
}

fn single(call: &Call<'_>, remote: &Remote, retry_for: Duration) -> Done {
    let event = event(call)?;
    // A random key: our own retries are one event, but a command that is typed twice publishes two.
    let mut random = [0_u8; 32];
    SystemDraw::new().fill(&mut random);
    let batch = Batch::single(event, data_encoding::HEXLOWER.encode(&random));
    let answer = match Sender::new(remote, retry_for).send(&batch) {
        Ok(answer) => answer,
        Err(NotStored::Failed(failure)) => return Err(failure),
        Err(NotStored::Line { why, .. }) => return Err(Failure::input(why)),
        Err(NotStored::SomeLine) => return Err(Failure::input("the event was refused")),
    };
    if remote.json() {
        return out::json(&answer.body);
    }
    for event in list(&answer.body, "events") {
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

impl EmitArgs {
    fn lines(&self, remote: &Remote) -> Done {
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
        let rejected = self.rejected.as_deref().map(RejectedFile::open).transpose()?;
        let sender = Sender::new(remote, self.retry_for);
        let mut stream = Stream {
            remote,
            sender,
            rejected,
            sum: SendCounts::default(),
            progress: Progress::new(),
        };
        let mut batches = Batches::new(input, usize::from(self.batch));
        let outcome = loop {
            let handled = match batches.next() {
                Ok(Some(Part::Batch(batch))) => stream.send(batch),
                Ok(Some(Part::Bad(bad))) => stream.set_aside(&bad),
                Ok(None) => break Ok(()),
                Err(unreadable) => Err(Failure::input(unreadable)),
            };
            if handled.is_err() {
                break handled;
            }
        };
        stream.progress.end();
        let sum = stream.sum;
        let is_empty = sum.events == 0 && sum.rejected == 0;
        match outcome {
            // A relay runs whether there is something to send or not.
            Ok(()) if is_empty => Ok(()),
            Ok(()) if remote.json() => {
                out::note(sum);
                Ok(())
            }
            Ok(()) => out::line(sum),
            Err(failure) if is_empty => Err(failure.and("Nothing was stored before that.")),
            Err(failure) => Err(failure.and(format_args!("Before that: {sum}"))),
        }
    }
}

/// The lines of an input on their way to the service.
struct Stream<'a> {
    remote: &'a Remote,
    sender: Sender<'a>,
    rejected: Option<RejectedFile>,
    sum: SendCounts,
    progress: Progress,
}

impl Stream<'_> {
    /// Sends a batch. Lines that the service refuses are set aside, and the others are sent without them.
    fn send(&mut self, batch: Batch) -> Result<(), Failure> {
        let mut left = vec![batch];
        while let Some(batch) = left.pop() {
            match self.sender.send(&batch) {
                Ok(answer) => self.stored(&answer)?,
                Err(NotStored::Failed(failure)) => return Err(failure),
                Err(NotStored::SomeLine) => {
                    let (first, second) = batch.halves();
                    left.extend(second);
                    left.extend(first);
                }
                Err(NotStored::Line { index, why }) => {
                    let (line, others) = batch.without(index);
                    left.extend(others);
                    if let Some(InputLine { number, text }) = line {
                        self.set_aside(&BadLine { number, bytes: text.into_bytes(), why })?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Puts a line that cannot be used into the file of rejected ones, or has it stored quarantined.
    fn set_aside(&mut self, bad: &BadLine) -> Result<(), Failure> {
        let number = bad.number;
        let why = bad.why.trim_end_matches('.');
        if let Some(file) = &mut self.rejected {
            file.append(&bad.bytes)?;
            self.sum.rejected += 1;
            out::note(format_args!("line {number}: {why}. It was appended to {}.", file.shown()));
            return Ok(());
        }
        let mut refused = None;
        for batch in unusable::forms(bad) {
            match self.sender.send(&batch) {
                Ok(answer) => {
                    let id = list(&answer.body, "events").first().map(|event| text(event, "id"));
                    let id = id.unwrap_or_default();
                    out::note(format_args!("line {number}: {why}. It is quarantined as {id}."));
                    return self.stored(&answer);
                }
                Err(NotStored::Failed(failure)) => refused = Some(failure),
                Err(NotStored::Line { why, .. }) => refused = Some(Failure::input(why)),
                Err(NotStored::SomeLine) => {}
            }
        }
        let failure = refused.unwrap_or_else(|| Failure::input("it was refused"));
        let message =
            format!("line {number}: {why}. It cannot be quarantined: {}", failure.message);
        let advice = "With --rejected FILE such lines are set aside in a file.";
        Err(Failure::new(failure.code, message).and(advice))
    }

    fn stored(&mut self, answer: &Answer) -> Result<(), Failure> {
        self.sum.add(answer);
        let events = self.sum.events;
        self.progress.show(|| format!("{events} events sent"));
        if self.remote.json() {
            out::json(&answer.body)?;
        }
        Ok(())
    }
}

/// The event as POST /v1/events takes it.
fn event(call: &Call<'_>) -> Result<String, Failure> {
    let mut event = call.body()?;
    event.remove("payload");
    if call.has("aggregate") {
        let both = call.text("aggregate");
        let (kind, id) = both
            .split_once('/')
            .ok_or_else(|| Failure::input("--aggregate is TYPE/ID, such as invoice/4711"))?;
        event.insert("aggregate_type".to_owned(), kind.into());
        event.insert("aggregate_id".to_owned(), id.into());
    }
    if !call.has("payload") {
        return Err(Failure::input("give the payload with --payload: JSON, @file, or - for stdin"));
    }
    let bytes = input::bytes(&call.text("payload"))?;
    if call.has("content_type") && !call.text("content_type").contains("json") {
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
