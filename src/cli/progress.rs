//! How far a long command has come: a line that is drawn again on a terminal, a line now and then elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::ProgressBar;

use crate::base::clock::Clock;
use crate::cli::out;

/// How often a line is written where there is no terminal, such as a log.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// What is told of a long run, on stderr.
pub(super) struct Progress {
    /// Draws nothing unless stderr is a terminal.
    spinner: ProgressBar,
    terminal: bool,
    clock: Clock,
    told_at: Duration,
}

impl Progress {
    pub(super) fn new() -> Self {
        let clock = Clock::machine();
        let terminal = std::io::stderr().is_terminal();
        Self { spinner: ProgressBar::new_spinner(), terminal, told_at: clock.monotonic(), clock }
    }

    /// Tells how far it is; `text` is asked for only where it is shown.
    pub(super) fn tell(&mut self, text: impl FnOnce() -> String) {
        if self.terminal {
            self.spinner.set_message(text());
            self.spinner.tick();
            return;
        }
        let now = self.clock.monotonic();
        if now.saturating_sub(self.told_at) >= LINE_EVERY {
            self.told_at = now;
            out::note(text());
        }
    }

    /// Takes the drawn line away.
    pub(super) fn end(&self) {
        self.spinner.finish_and_clear();
    }
}
