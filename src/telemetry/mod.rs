//! The log: one line per event on stderr, logfmt on a terminal and JSON elsewhere.
//!
//! Never logged: bodies, secrets, tokens, signatures, a URL's query or userinfo. Callers leave them out;
//! [`redact`] masks any that were missed. Of libraries only warnings and errors are written, because their debug
//! lines contain header fields.

mod line;
pub mod redact;
pub mod tally;

use std::io::{IsTerminal, Write};
use std::os::unix::fs::MetadataExt;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use crate::base::clock::Clock;
use crate::config::{Log, LogFormat, LogLevel, environment};
use crate::telemetry::line::{Fields, Form, Head, Value};

/// Starts the log of this process. A second call changes nothing.
pub fn start(settings: &Log) {
    let form = match settings.format {
        LogFormat::Logfmt => Form::Logfmt,
        LogFormat::Auto if std::io::stderr().is_terminal() => Form::Logfmt,
        LogFormat::Json | LogFormat::Auto => Form::Json,
    };
    let level = match settings.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let others = level.min(LevelFilter::WARN);
    let filter = Targets::new().with_default(others).with_target("oncebox", level);
    let journal = environment("JOURNAL_STREAM").is_some_and(|stream| is_stderr(&stream));
    let lines = Lines { form, journal, clock: Clock::machine() };
    let started = Registry::default().with(lines.with_filter(filter)).try_init();
    if started.is_ok() {
        log_panics();
    }
}

/// Whether stderr is the journal's stream, given as `device:inode`. If it is redirected elsewhere, lines must not
/// begin with a priority.
fn is_stderr(stream: &str) -> bool {
    std::fs::metadata("/proc/self/fd/2")
        .is_ok_and(|stderr| stream == format!("{}:{}", stderr.dev(), stderr.ino()))
}

/// Logs a panic as one event, instead of the several lines that Rust prints.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let literal = payload.downcast_ref::<&str>().copied();
        let text = literal.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let thread = std::thread::current();
        let thread = thread.name();
        let at = panic.location().map(ToString::to_string);
        tracing::error!(panic = text.unwrap_or("?"), thread, at, "a thread panicked");
    }));
}

/// Writes events as lines.
struct Lines {
    form: Form,
    /// Whether each line begins with its priority, such as `<6>`, which the journal removes.
    journal: bool,
    clock: Clock,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut Collect(&mut fields));
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut Collect(&mut fields));
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(outer) = span.extensions().get::<Fields>() {
                fields.inherit(outer);
            }
        }
        let metadata = event.metadata();
        let (level, priority) = level_name(*metadata.level());
        let head = Head { at: self.clock.wall(), level, target: metadata.target() };
        let mut text = if self.journal { format!("<{priority}>") } else { String::new() };
        line::write(&mut text, self.form, &head, &fields);
        // A line that cannot be written (full disk, closed pipe) is lost; there is nowhere to report it.
        drop(std::io::stderr().lock().write_all(text.as_bytes()));
    }
}

/// A level's name, and its priority in the journal.
fn level_name(level: Level) -> (&'static str, u8) {
    match level {
        Level::ERROR => ("error", 3),
        Level::WARN => ("warn", 4),
        Level::INFO => ("info", 6),
        Level::DEBUG => ("debug", 7),
        Level::TRACE => ("trace", 7),
    }
}

/// Collects the fields that tracing records.
struct Collect<'a>(&'a mut Fields);

impl Visit for Collect<'_> {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.push(field.name(), Value::Plain(value.to_string()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.push(field.name(), Value::Plain(value.to_string()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.push(field.name(), Value::Plain(value.to_string()));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push(field.name(), Value::Text(redact::redact(value)));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push(field.name(), Value::Text(redact::redact(&format!("{value:?}"))));
    }
}
