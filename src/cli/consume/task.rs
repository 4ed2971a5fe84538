//! One event and the command that is run for it.

use std::ffi::OsString;
use std::time::Duration;

use data_encoding::BASE64;
use serde_json::{Map, Value};

use crate::base::clock::Clock;
use crate::cli::consume::lease::Leased;
use crate::cli::exit::{self, Failure};
use crate::cli::{out, show};
use crate::config::own_variables;
use crate::sys::command::{Ended, How, Program, Running};

/// Of what a command prints, on each output, as much is kept and passed on.
const MAX_OUTPUT_BYTES: usize = 256 * 1024;
/// Characters of a command's last words that become the reason.
const REASON_CHARS: usize = 500;

/// A command under way.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) event: Leased,
    pub(super) running: Running,
    clock: Clock,
    every: Duration,
    extend_at: Duration,
}

/// What came of a command.
#[derive(Debug)]
pub(super) struct Outcome {
    how: How,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    took: Duration,
}

impl Task {
    /// Starts the command; hands the event back where it cannot be.
    pub(super) fn begin(
        event: Leased,
        (command, timeout, envelope): (&[OsString], Duration, bool),
        every: Duration,
        clock: &Clock,
    ) -> Result<Self, (Leased, std::io::Error)> {
        let program = Program {
            argv: command.to_vec(),
            without: own_variables(),
            environment: environment(&event),
            input: if envelope { whole(&event) } else { event.payload.clone() },
            timeout,
            output_most: MAX_OUTPUT_BYTES,
        };
        match program.start(clock) {
            Ok(running) => {
                let extend_at = clock.monotonic().saturating_add(every);
                Ok(Self { event, running, clock: clock.clone(), every, extend_at })
            }
            Err(error) => Err((event, error)),
        }
    }

    /// Lets what comes of the command stand for the event under another lease.
    pub(super) fn continue_as(&mut self, event: Leased) {
        self.extend_at = self.clock.monotonic().saturating_add(self.every);
        self.event = event;
    }

    /// What came of it, once it has ended.
    pub(super) fn look(&mut self) -> Option<Outcome> {
        match self.running.look() {
            Ok(None) => None,
            Ok(Some(Ended { how, stdout, stderr, took })) => {
                Some(Outcome { how, stdout, stderr, took })
            }
            Err(error) => {
                let stderr =
                    format!("it cannot be told whether it has ended: {error}").into_bytes();
                let (how, took) = (How::Killed(0), Duration::ZERO);
                Some(Outcome { how, stdout: Vec::new(), stderr, took })
            }
        }
    }

    /// What is said to have its lease extended, when it is time for that.
    pub(super) fn extension(&mut self) -> Option<Value> {
        let now = self.clock.monotonic();
        if now < self.extend_at {
            return None;
        }
        self.extend_at = now.saturating_add(self.every);
        Some(Value::Object(self.event.reference()))
    }
}

fn environment(event: &Leased) -> Vec<(String, String)> {
    // No value of the environment can hold a zero byte.
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

fn whole(event: &Leased) -> Vec<u8> {
    let mut whole = event.shown.clone();
    if let Some(fields) = whole.as_object_mut() {
        fields.insert("payload_base64".to_owned(), BASE64.encode(&event.payload).into());
    }
    whole.to_string().into_bytes()
}

impl Outcome {
    pub(super) fn is_done(&self) -> bool {
        self.how == How::Exited(exit::OK.into())
    }

    fn is_later(&self) -> bool {
        self.how == How::Exited(exit::TEMPORARY.into())
    }

    fn is_never(&self) -> bool {
        self.how == How::Exited(exit::BAD_INPUT.into())
    }

    pub(super) fn took(&self) -> Duration {
        self.took
    }

    /// One word for it.
    pub(super) fn result(&self) -> &'static str {
        match self {
            done if done.is_done() => "done",
            later if later.is_later() => "later",
            never if never.is_never() => "dead",
            _ => "failed",
        }
    }

    /// How it ended, and its last words; empty when it is done.
    pub(super) fn detail(&self) -> String {
        let how = match self.how {
            How::Exited(0) => return String::new(),
            How::Exited(code) => format!("exit {code}"),
            How::Killed(signal) => format!("killed by signal {signal}"),
            How::TimedOut => "its time was over".to_owned(),
        };
        let said = String::from_utf8_lossy(&self.stderr);
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        match last {
            None => how,
            Some(last) => format!("{how}: {}", show::cut(&show::clean(last.trim()), REASON_CHARS)),
        }
    }

    /// What the service is told, and by which verb.
    pub(super) fn report(&self, event: &Leased, delay: Option<&str>) -> (&'static str, Value) {
        let mut word: Map<String, Value> = event.reference();
        if self.is_done() {
            return ("ack", Value::Object(word));
        }
        word.insert("reason".to_owned(), self.detail().into());
        if self.is_never() {
            word.insert("dead".to_owned(), true.into());
        }
        if self.is_later() {
            word.insert("counted".to_owned(), false.into());
            if let Some(delay) = delay {
                word.insert("delay".to_owned(), delay.into());
            }
        }
        ("nack", Value::Object(word))
    }

    /// Prints what the command has printed.
    pub(super) fn print_output(&self) -> Result<(), Failure> {
        if !self.stderr.is_empty() {
            out::note(String::from_utf8_lossy(&self.stderr).trim_end());
        }
        if self.stdout.is_empty() { Ok(()) } else { out::bytes(&self.stdout) }
    }
}
