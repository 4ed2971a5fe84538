//! The log: one line an event to stderr, as text on a terminal and as JSON elsewhere.
//!
//! What is never logged: bodies, secrets, tokens, signatures.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::settings::environment;

/// Starts the log of this process. `ONCEBOX_LOG` takes a filter like `info` or `oncebox=debug`.
pub fn start() {
    let filter =
        environment("ONCEBOX_LOG").unwrap_or_else(|| "info,rusqlite_migration=warn".to_owned());
    let filter = EnvFilter::new(filter);
    // A line that cannot be written (a full disk, a closed pipe) is lost. Told of it on stderr, the
    // thread that logs would panic over that one.
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    let started = if std::io::stderr().is_terminal() {
        log.compact().try_init()
    } else {
        log.json().flatten_event(true).try_init()
    };
    // A second start in one process (tests) keeps the first log.
    drop(started);
}
