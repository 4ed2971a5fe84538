//! Printing: results to stdout, notes and progress to stderr. If the reader closes the pipe (`| head`), the command
//! ends quietly, where `println!` would panic.
//!
//! Texts come from outside and may hold what a terminal acts on, so all of it is printed as escapes: here, in one place.

use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;

use crate::base::clock::Clock;
use crate::cli::exit::Failure;
use crate::model::json::carried;

/// How often progress is printed without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The flag of every command that can print JSON.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Format {
    /// Print JSON, for programs
    #[arg(long, global = true, display_order = 800)]
    pub(super) json: bool,
}

/// Whether a terminal acts on a character: on control characters, except line ends and tabs, and on those that change
/// the direction of text.
fn is_active(c: char) -> bool {
    let is_bidi = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    is_bidi || (c.is_control() && !matches!(c, '\n' | '\t'))
}

fn escaped(text: &str, escape: fn(char) -> String) -> String {
    text.chars().map(|c| if is_active(c) { escape(c) } else { c.to_string() }).collect()
}

/// A text without anything that a terminal acts on: such characters are escapes, like `\u{1b}`.
pub(super) fn visible(text: &str) -> String {
    escaped(text, |c| c.escape_unicode().to_string())
}

/// Prints a line of the result.
pub(super) fn line(text: impl Display) -> Result<(), Failure> {
    let text = text.to_string();
    written(writeln!(std::io::stdout().lock(), "{}", visible(&carried::restored(&text))))
}

/// Prints JSON on one line. The escapes are those of JSON, so it stays exact.
pub(super) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(Failure::failed)?;
    let text = escaped(&carried::restored(&text), |c| format!("\\u{:04x}", u32::from(c)));
    written(writeln!(std::io::stdout().lock(), "{text}"))
}

/// Prints a text that a program reads: as it is, but on a terminal with escapes.
pub(super) fn exact(text: &[u8]) -> Result<(), Failure> {
    if std::io::stdout().is_terminal() {
        return bytes(visible(&String::from_utf8_lossy(text)).as_bytes());
    }
    bytes(text)
}

/// Prints bytes as they are.
pub(super) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    written(stdout.write_all(bytes).and_then(|()| stdout.flush()))
}

/// Prints a note to stderr.
pub(super) fn note(text: impl Display) {
    drop(writeln!(std::io::stderr().lock(), "{}", visible(&text.to_string())));
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
            self.spinner.set_message(visible(&text()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_acts_on_is_shown_as_an_escape() {
        let text = "a\u{1b}]0;x\u{7}\u{9b}\u{7f}\r\n\tb";
        assert_eq!(visible(text), "a\\u{1b}]0;x\\u{7}\\u{9b}\\u{7f}\\u{d}\n\tb");
        for c in ['\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202e}', '\u{2066}', '\u{2069}']
        {
            assert_eq!(visible(&c.to_string()), format!("\\u{{{:x}}}", u32::from(c)));
        }
        assert_eq!(visible("Zürich – ∑ 🎉"), "Zürich – ∑ 🎉");
    }
}
