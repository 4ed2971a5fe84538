//! Printing: results to stdout, notes and progress to stderr. If the reader closes the pipe (`| head`), the command
//! ends quietly, where `println!` would panic.

use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use serde_json::Value;

use crate::base::clock::Clock;
use crate::cli::exit::Failure;

/// How often progress is printed without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The flag of every command that can print JSON.
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

/// Prints a note to stderr.
pub(super) fn note(text: impl Display) {
    drop(writeln!(std::io::stderr().lock(), "{text}"));
}

fn written(outcome: std::io::Result<()>) -> Result<(), Failure> {
    outcome.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::quiet(),
        _ => Failure::failed(format!("stdout: {error}")),
    })
}

/// The progress of a long command, on stderr: one line redrawn on a terminal, otherwise a new line every 10 s.
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

    /// Shows the progress. `text` is only called if it is shown now.
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
