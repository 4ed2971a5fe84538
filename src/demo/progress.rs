//! The output of the demo: a progress bar on a terminal, a line every few seconds elsewhere.

#![expect(clippy::print_stdout, reason = "the demo prints its progress")]

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::base::clock::Clock;
use crate::demo::chaos;
use crate::demo::site::{CAP, MAX_ATTEMPTS, Run, STEPS, TIMEOUT, Topology};

/// How often a line is printed without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(3);
const TEMPLATE: &str = "{prefix:>24} [{bar:30}] {pos}/{len} shipped  {msg}";

/// The progress of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProgressCounts {
    pub(super) paid: u32,
    pub(super) shipped: u32,
    pub(super) absorbed: u32,
    pub(super) kills: usize,
}

/// The display of one run.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    what: String,
    invoices: u32,
    clock: Clock,
    line_at: Duration,
}

impl Progress {
    pub(super) fn new(what: &str, invoices: u32, clock: Clock) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template(TEMPLATE);
            let bar = ProgressBar::new(u64::from(invoices)).with_prefix(what.to_owned());
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        let line_at = clock.monotonic().saturating_add(LINE_EVERY);
        Self { bar, what: what.to_owned(), invoices, clock, line_at }
    }

    pub(super) fn show(&mut self, state: ProgressCounts) {
        let ProgressCounts { paid, shipped, absorbed, kills } = state;
        let counts = format!("{paid} paid, {absorbed} redeliveries absorbed, {kills} kills");
        if let Some(bar) = &self.bar {
            bar.set_position(u64::from(shipped));
            bar.set_message(counts);
        } else if self.clock.monotonic() >= self.line_at {
            self.line_at = self.clock.monotonic().saturating_add(LINE_EVERY);
            println!("  {}: {shipped}/{} shipped, {counts}", self.what, self.invoices);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Prints a line.
pub(super) fn say(line: &str) {
    println!("{line}");
}

/// Prints what the run will do, and its settings.
pub(super) fn introduce(run: &Run, dir: &Path) {
    println!("Finance marks {} invoices paid; {}", run.invoices, run.topology.summary());
    for (name, value) in settings(run) {
        println!("  {name:<10} {value}");
    }
    println!("  {:<10} {}", "directory", dir.display());
}

/// The settings of a run as text.
pub(super) fn settings(run: &Run) -> Vec<(&'static str, String)> {
    let percent = |permille: u64| format!("{} %", permille / 10);
    let (shortest, longest) = chaos::kill_gaps(Duration::from_millis(
        u64::from(run.invoices).saturating_mul(1000) / u64::from(run.per_second.max(1)),
    ));
    let refused = percent(chaos::REFUSED_PERMILLE);
    let lost = percent(chaos::LOST_PERMILLE);
    let hanging = percent(chaos::HANGING_PERMILLE);
    let finance = match run.topology {
        Topology::Direct | Topology::Kafka => format!(
            "pays {} invoices a second and loses {} of the acknowledgements",
            run.per_second,
            percent(chaos::FORGOTTEN_PERMILLE),
        ),
        Topology::Chain => format!(
            "pays {} invoices a second; a trigger writes the event in the same transaction",
            run.per_second
        ),
    };
    let logistics = if run.topology == Topology::Kafka {
        "reads the topic, keeps the ce_id in the transaction of the effect, and commits its offsets afterwards".to_owned()
    } else {
        format!(
            "answers {refused} with 500 before any effect, loses {lost} of its answers after the \
             commit, hangs on {hanging}"
        )
    };
    let mut settings = vec![
        ("Finance", finance),
        (
            "Oncebox",
            format!(
                "retries after {} (short for the demo), at most {MAX_ATTEMPTS} attempts, timeout {}, \
                 {CAP} requests in flight",
                STEPS.join(", "),
                shown(TIMEOUT),
            ),
        ),
        ("Logistics", logistics),
    ];
    if run.topology == Topology::Chain {
        let cut = percent(chaos::LINE_LOSS_PERMILLE);
        let line = format!(
            "between the two Onceboxes loses {cut} of the requests and {cut} of the answers, and is dead \
             for {} every few seconds",
            shown(chaos::DEAD_FOR)
        );
        settings.push(("the line", line));
    }
    if run.topology == Topology::Kafka {
        let broker = format!(
            "is a mock of a cluster in this process, and down for {} every few seconds",
            shown(chaos::DEAD_FOR)
        );
        settings.push(("the broker", broker));
    }
    let among = run.topology.roles().len();
    let shortest = shown(shortest);
    let longest = shown(longest);
    settings.push(("kill -9", format!("of one of the {among} every {shortest} to {longest}")));
    settings.push(("seed", run.seed.to_string()));
    settings
}

/// Formats a span: `7 ms`, `12.3 s`.
pub(super) fn shown(span: Duration) -> String {
    let ms = span.as_millis();
    if ms < 1000 { format!("{ms} ms") } else { format!("{}.{} s", ms / 1000, ms % 1000 / 100) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_shown_as_people_say_them() {
        assert_eq!(shown(Duration::from_millis(7)), "7 ms");
        assert_eq!(shown(Duration::from_millis(12_345)), "12.3 s");
    }
}
