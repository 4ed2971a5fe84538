//! Printing: results to stdout, remarks and progress to stderr. A reader that has gone away (`| head`) ends the
//! command without a panic, unlike `println!`.

use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use serde_json::Value;

use crate::base::clock::Clock;
use crate::cli::exit::Failure;

/// How often progress is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The flag of every command whose result programs can read.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Format {
    /// Print JSON, for programs
    #[arg(long, global = true, display_order = 800)]
    pub(super) json: bool,
}

/// Prints a line of the result.
pub(super) fn line(text: impl Display) -> Result<(), Failure> {
    written(writeln!(std::io::stdout().lock(), "{text}"))
}

/// Prints JSON on one line.
pub(super) fn json(value: &Value) -> Result<(), Failure> {
    line(value)
}

/// Prints bytes as they are.
pub(super) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    written(stdout.write_all(bytes).and_then(|()| stdout.flush()))
}

/// Prints what is not part of the result, to stderr.
pub(super) fn note(text: impl Display) {
    drop(writeln!(std::io::stderr().lock(), "{text}"));
}

fn written(outcome: std::io::Result<()>) -> Result<(), Failure> {
    outcome.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::quiet(),
        _ => Failure::failed(format!("stdout: {error}")),
    })
}

/// The progress of a long command, on stderr: a line that is drawn again on a terminal, else a line now and then.
pub(super) struct Progress {
    /// Draws nothing unless stderr is a terminal.
    spinner: ProgressBar,
    clock: Clock,
    written_at: Duration,
}

impl Progress {
    pub(super) fn new() -> Self {
        let clock = Clock::machine();
        Self { spinner: ProgressBar::new_spinner(), written_at: clock.monotonic(), clock }
    }

    /// Shows how far the command is; `text` is called only where it is shown.
    pub(super) fn show(&mut self, text: impl FnOnce() -> String) {
        let now = self.clock.monotonic();
        if std::io::stderr().is_terminal() {
            self.spinner.set_message(text());
            self.spinner.tick();
        } else if now.saturating_sub(self.written_at) >= LINE_EVERY {
            self.written_at = now;
            note(text());
        }
    }

    pub(super) fn end(&self) {
        self.spinner.finish_and_clear();
    }
}
