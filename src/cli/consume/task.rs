//! Runs the command for one event, and turns its result into the report for the service.

use std::ffi::OsString;
use std::time::Duration;

use data_encoding::BASE64;

use crate::base::clock::Clock;
use crate::cli::consume::lease::LeasedEvent;
use crate::cli::prelude::*;
use crate::cli::show;
use crate::config::own_variables;
use crate::sys::command::{Ended, How, Program, Running};

/// How much of a command's output is kept and passed on, for stdout and stderr each.
const MAX_OUTPUT_BYTES: usize = 256 * 1024;
/// Characters of the last line on stderr that become the reason.
const REASON_CHARS: usize = 500;

/// A running command.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) event: LeasedEvent,
    pub(super) running: Running,
    clock: Clock,
    extend_every: Duration,
    extend_at: Duration,
}

/// The result of a command.
#[derive(Debug)]
pub(super) struct Outcome(Ended);

impl Task {
    /// Starts the command. Returns the event if that fails. With `envelope` the command reads the full event, without it
    /// the payload.
    pub(super) fn begin(
        event: LeasedEvent,
        command: &[OsString],
        timeout: Duration,
        envelope: bool,
        extend_every: Duration,
        clock: &Clock,
    ) -> Result<Self, (LeasedEvent, std::io::Error)> {
        let program = Program {
            argv: command.to_vec(),
            without: own_variables(),
            environment: environment(&event),
            input: if envelope { full_event(&event) } else { event.payload.clone() },
            timeout,
            output_most: MAX_OUTPUT_BYTES,
        };
        match program.start(clock) {
            Ok(running) => {
                let extend_at = clock.monotonic().saturating_add(extend_every);
                Ok(Self { event, running, clock: clock.clone(), extend_every, extend_at })
            }
            Err(error) => Err((event, error)),
        }
    }

    /// Gives the running command a new lease of the same event.
    pub(super) fn continue_as(&mut self, event: LeasedEvent) {
        self.extend_at = self.clock.monotonic().saturating_add(self.extend_every);
        self.event = event;
    }

    /// The result; `None` while the command runs.
    pub(super) fn poll(&mut self) -> Option<Outcome> {
        match self.running.look() {
            Ok(None) => None,
            Ok(Some(ended)) => Some(Outcome(ended)),
            Err(error) => {
                let stderr = format!("cannot watch the command: {error}").into_bytes();
                Some(Outcome(Ended {
                    how: How::Killed(0),
                    stdout: Vec::new(),
                    stderr,
                    took: Duration::ZERO,
                }))
            }
        }
    }

    /// The request item that extends the lease; `None` until it is due.
    pub(super) fn due_extension(&mut self) -> Option<Value> {
        let now = self.clock.monotonic();
        if now < self.extend_at {
            return None;
        }
        self.extend_at = now.saturating_add(self.extend_every);
        Some(Value::Object(self.event.reference()))
    }
}

fn environment(event: &LeasedEvent) -> Vec<(String, String)> {
    // An environment variable cannot hold a zero byte.
    let field = |name: &str| {
        let value = event.shown.get(name).cloned().unwrap_or_default();
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if value.is_null() { String::new() } else { text.replace('\0', "") }
    };
    let headers = event.headers();
    let header = |wanted: &str| {
        let found = headers.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let all = [
        ("ONCEBOX_WEBHOOK_ID", field("webhook_id")),
        ("ONCEBOX_EVENT_TYPE", field("event_type")),
        ("ONCEBOX_EVENT_ID", field("event_id")),
        ("ONCEBOX_DELIVERY", field("delivery")),
        ("ONCEBOX_ATTEMPT", field("attempt")),
        ("ONCEBOX_AGGREGATE_TYPE", field("aggregate_type")),
        ("ONCEBOX_AGGREGATE_ID", field("aggregate_id")),
        ("ONCEBOX_IDEMPOTENCY_KEY", header("x-idempotency-key")),
        ("ONCEBOX_CONTENT_TYPE", field("content_type")),
        ("TRACEPARENT", header("traceparent")),
    ];
    all.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

/// The event as JSON, with the payload in base64.
fn full_event(event: &LeasedEvent) -> Vec<u8> {
    let mut full = event.shown.clone();
    if let Some(fields) = full.as_object_mut() {
        fields.insert("payload_base64".to_owned(), BASE64.encode(&event.payload).into());
    }
    full.to_string().into_bytes()
}

impl Outcome {
    pub(super) fn is_done(&self) -> bool {
        self.0.how == How::Exited(exit::OK.into())
    }

    fn is_later(&self) -> bool {
        self.0.how == How::Exited(exit::TEMPORARY.into())
    }

    fn is_never(&self) -> bool {
        self.0.how == How::Exited(exit::BAD_INPUT.into())
    }

    pub(super) fn took(&self) -> Duration {
        self.0.took
    }

    /// The result in one word.
    pub(super) fn result(&self) -> &'static str {
        match self {
            done if done.is_done() => "done",
            later if later.is_later() => "later",
            never if never.is_never() => "dead",
            _ => "failed",
        }
    }

    /// How it ended, and its last line on stderr; empty if it is done.
    pub(super) fn detail(&self) -> String {
        if self.is_done() {
            return String::new();
        }
        let stderr = String::from_utf8_lossy(&self.0.stderr);
        let last = stderr.lines().rev().find(|line| !line.trim().is_empty());
        match last {
            None => self.0.how.to_string(),
            Some(last) => {
                format!("{}: {}", self.0.how, show::cut(&show::clean(last.trim()), REASON_CHARS))
            }
        }
    }

    /// The verb and the request item that report the result to the service.
    pub(super) fn report(&self, event: &LeasedEvent, delay: Option<&str>) -> (&'static str, Value) {
        let mut item: Map<String, Value> = event.reference();
        if self.is_done() {
            return ("ack", Value::Object(item));
        }
        item.insert("reason".to_owned(), self.detail().into());
        if self.is_never() {
            item.insert("dead".to_owned(), true.into());
        }
        if self.is_later() {
            item.insert("away".to_owned(), true.into());
            if let Some(delay) = delay {
                item.insert("delay".to_owned(), delay.into());
            }
        }
        ("nack", Value::Object(item))
    }

    /// Prints the command's output.
    pub(super) fn print_output(&self) -> Result<(), Failure> {
        if !self.0.stderr.is_empty() {
            out::note(String::from_utf8_lossy(&self.0.stderr).trim_end());
        }
        if self.0.stdout.is_empty() { Ok(()) } else { out::bytes(&self.0.stdout) }
    }
}
