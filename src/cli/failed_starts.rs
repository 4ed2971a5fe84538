//! Failed starts in a row: each one waits longer before it ends, so that a service manager that tries again
//! for ever does not fill the log.
//!
//! They are counted in the runtime directory, which systemd makes (`RuntimeDirectory=`). Without one, nobody
//! starts the service again, and nothing waits.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::base::stop::Stop;
use crate::cli::Failure;
use crate::config::environment;
use crate::sys::systemd::Notifier;

/// The file that holds the count.
const FILE: &str = "failed-starts";
/// The longest wait. Callers wait in the socket meanwhile, so it is not longer.
const MAX_WAIT: Duration = Duration::from_mins(1);
/// How often a wait looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The count of failed starts since the last one that worked.
#[derive(Debug)]
pub(super) struct FailedStarts(Option<PathBuf>);

impl FailedStarts {
    /// The count that the service manager keeps for us, where there is one.
    pub(super) fn of_manager() -> Self {
        let directory = environment("RUNTIME_DIRECTORY");
        Self(directory.map(|directory| PathBuf::from(directory).join(FILE)))
    }

    /// Reports a failed start, and waits: 1 s, then twice as long each time, up to a minute. A stop that is
    /// asked for ends the wait and forgets the count: then a person is mending it.
    pub(super) fn wait(&self, failure: Failure, notifier: &Notifier, stop: &AtomicBool) -> Failure {
        let Some(path) = &self.0 else { return failure };
        let before = std::fs::read_to_string(path).ok();
        let before: u32 = before.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let span = Duration::from_secs(1_u64 << before.min(6)).min(MAX_WAIT);
        let count = before.saturating_add(1);
        // Where it cannot be written, every wait is a short one.
        drop(std::fs::write(path, count.to_string()));
        let Failure { code, message } = failure;
        let secs = span.as_secs();
        tracing::error!(code, error = message, failed_starts = count, wait_s = secs, "not started");
        notifier.status(&format!("Not started, tried again in {secs} s: {message}"));
        let never = Stop::new();
        let mut waited = Duration::ZERO;
        while waited < span && !stop.load(Ordering::Relaxed) {
            never.wait(LOOK_EVERY);
            waited = waited.saturating_add(LOOK_EVERY);
        }
        if stop.load(Ordering::Relaxed) {
            self.forget();
        }
        // The log has it.
        Failure { code, message: String::new() }
    }

    /// A start has worked.
    pub(super) fn forget(&self) {
        // A count that stays only makes a later wait longer.
        self.0.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}
