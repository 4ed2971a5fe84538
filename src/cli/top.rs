//! `oncebox top`: what happens now, drawn anew each second until Ctrl-C.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::base::stop::Stop;
use crate::cli::noun;
use crate::cli::prelude::*;
use crate::cli::show::{clean, cut, instant};
use crate::sys::host::stop_flag;

const EVERY: Duration = Duration::from_secs(1);
/// The minutes that the latencies are taken from.
const LATENCY_MINUTES: usize = 5;
/// The attempts shown per subscription: they fit beside its name in 80 columns.
const SHOWN_ATTEMPTS: usize = 30;
/// A longer name of a subscription is cut.
const NAME_CHARS: usize = 24;
/// The size of a terminal that does not tell it.
const DEFAULT_SIZE: (u16, u16) = (80, 24);
const FIRST_COLUMN: usize = 20;

#[derive(Debug, Args)]
#[command(after_help = "\
An attempt is one character, the newest on the right: . succeeded, r may work later, x refused.
Latencies and attempts are counted since the start of the service.")]
pub(super) struct Top {
    /// Print it once and end, as without a terminal
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

const COLUMNS: Columns = Columns {
    columns: &[
        column("SUBSCRIPTION", 0, "subscription"),
        column("STATE", 0, "state"),
        column("FAILURES", 2, "failures"),
        column("LAST SUCCESS (UTC)", 3, "last_success_at"),
        column("ATTEMPTS", 1, "attempts"),
    ],
    by: &[
        ("subscription", |s| cut(&text(s, "name"), NAME_CHARS)),
        ("state", state),
        ("failures", |s| Some(text(s, "failure_count")).filter(|n| n != "0").unwrap_or_default()),
    ],
};

/// The terminal while it is drawn on: another screen, no cursor. Dropping it brings the old one back.
struct Screen;

impl Screen {
    fn open() -> Result<Self, Failure> {
        out::bytes(b"\x1b[?1049h\x1b[?25l")?;
        Ok(Self)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut stdout = io::stdout().lock();
        drop(stdout.write_all(b"\x1b[?25h\x1b[?1049l").and_then(|()| stdout.flush()));
    }
}

/// Draws the lines that fit.
fn draw(lines: &[String]) -> Result<(), Failure> {
    let (width, height) = size();
    let mut drawn = String::from("\x1b[H");
    for line in lines.iter().take(usize::from(height).saturating_sub(1)) {
        let line: String = out::visible(line).chars().take(usize::from(width)).collect();
        drawn.extend([&line, "\x1b[K\r\n"]);
    }
    drawn.push_str("\x1b[J");
    out::bytes(drawn.as_bytes())
}

/// Columns and rows of the terminal.
fn size() -> (u16, u16) {
    let told = rustix::termios::tcgetwinsize(io::stdout()).ok();
    told.map(|size| (size.ws_col, size.ws_row))
        .filter(|(columns, rows)| *columns > 0 && *rows > 0)
        .unwrap_or(DEFAULT_SIZE)
}

impl Top {
    pub(super) fn run(&self, global: &GlobalArgs) -> Result<(), Failure> {
        let remote = self.connect.open(global)?;
        if remote.json() {
            return out::json(&read(&remote)?);
        }
        if self.once || !io::stdout().is_terminal() {
            let lines = picture(&read(&remote)?, &remote.base(), DEFAULT_SIZE.0);
            return lines.iter().try_for_each(out::line);
        }
        let stopped = stop_flag().map_err(Failure::failed)?;
        // The first answer comes before the screen changes, so that a wrong token is said where it can be read.
        let mut shown = read(&remote)?;
        let _screen = Screen::open()?;
        while !stopped.load(Ordering::Relaxed) {
            draw(&picture(&shown, &remote.base(), size().0))?;
            shown = next(&remote, shown, &stopped);
        }
        Ok(())
    }
}

/// The next answer, or the last one with the error beside it.
fn next(remote: &Remote, mut last: Value, stopped: &AtomicBool) -> Value {
    // A signal does not end this wait; a second is short enough.
    Stop::new().wait(EVERY);
    if stopped.load(Ordering::Relaxed) {
        return last;
    }
    match read(remote) {
        Ok(answer) => answer,
        Err(failure) => {
            if let Some(fields) = last.as_object_mut() {
                fields.insert("error".to_owned(), failure.message.into());
            }
            last
        }
    }
}

fn read(remote: &Remote) -> Result<Value, Failure> {
    let stats = remote.get("/v1/stats")?;
    let recent = remote.get("/v1/stats/recent")?;
    let mut subscriptions = Vec::new();
    noun::each(remote, "/v1/subscriptions", &Vec::new(), |mut subscription| {
        let attempts = attempts(&recent, &text(&subscription, "name"));
        if let Some(fields) = subscription.as_object_mut() {
            fields.insert("attempts".to_owned(), attempts.into());
        }
        subscriptions.push(subscription);
        Ok(())
    })?;
    // What fails comes first, and stays on a small screen.
    let failures = |item: &Value| item.get("failure_count").and_then(Value::as_u64).unwrap_or(0);
    subscriptions.sort_by_key(|item| std::cmp::Reverse((state(item) != "active", failures(item))));
    Ok(json!({ "stats": stats, "recent": recent, "subscriptions": subscriptions }))
}

/// A subscription's state, with the reasons of its holds.
fn state(subscription: &Value) -> String {
    let holds = list(subscription, "holds").iter();
    let reasons: Vec<String> = holds.map(|hold| text(hold, "reason")).collect();
    if reasons.is_empty() {
        text(subscription, "state").to_ascii_lowercase()
    } else {
        format!("held: {}", reasons.join(", "))
    }
}

/// The latest attempts of a subscription, one character each, the newest last.
fn attempts(recent: &Value, name: &str) -> String {
    let known = list(recent, "subscriptions").iter();
    let own = known.filter(|known| text(known, "subscription") == name);
    let attempts = own.filter_map(|own| own.get("attempts")?.as_array()).flatten();
    let mut signs: Vec<char> = attempts
        .take(SHOWN_ATTEMPTS)
        .map(|attempt| match text(attempt, "class").as_str() {
            "success" => '.',
            "transient" | "rate_limited" => 'r',
            _ => 'x',
        })
        .collect();
    signs.reverse();
    signs.into_iter().collect()
}

/// What is shown, line by line.
fn picture(read: &Value, base: &str, width: u16) -> Vec<String> {
    let stats = &read["stats"];
    let recent = &read["recent"];
    let now: String = instant(stats, "now").chars().take(19).collect();
    let mut lines = vec![format!("oncebox {} at {base}, {now} UTC", text(stats, "version"))];
    if let Some(error) = read.get("error").and_then(Value::as_str) {
        lines.push(format!("NO ANSWER: {}", cut(&clean(error), 60)));
    }
    lines.push(String::new());
    let counted = [
        ("pending", "waiting"),
        ("leased", "with consumers"),
        ("dead_letters", "dead letters"),
        ("in_doubt", "in doubt"),
        ("quarantined", "quarantined"),
    ];
    let counts: Vec<String> =
        counted.iter().map(|(field, label)| format!("{} {label}", text(stats, field))).collect();
    lines.push(counts.join(", "));
    let due = instant(stats, "oldest_due_at");
    if !due.is_empty() {
        lines.push(format!("oldest due at {due} UTC"));
    }
    lines.push(String::new());
    let minutes = list(recent, "minutes");
    lines.push(format!(
        "{:FIRST_COLUMN$}{:>12}{:>12}{:>12}",
        "", "THIS MINUTE", "LAST 5", "LAST 60"
    ));
    for (field, label) in [
        ("events", "events"),
        ("webhooks", "webhooks"),
        ("delivered", "delivered"),
        ("failed", "failed attempts"),
    ] {
        let sum = |last: usize| -> u64 {
            minutes.iter().rev().take(last).filter_map(|minute| minute.get(field)?.as_u64()).sum()
        };
        lines.push(format!("{label:FIRST_COLUMN$}{:>12}{:>12}{:>12}", sum(1), sum(5), sum(60)));
    }
    let within = |share| latency_within(recent, minutes, share).unwrap_or_else(|| "-".to_owned());
    lines.push(format!(
        "requests took        half: {}, 95 %: {} (last 5 minutes)",
        within(50),
        within(95)
    ));
    lines.push(String::new());
    match list(read, "subscriptions") {
        [] => lines.push(
            "There is no subscription. Make one: oncebox subscription create NAME --url URL"
                .to_owned(),
        ),
        rows => lines.extend(COLUMNS.rendered(rows, Some(width)).lines().map(str::to_owned)),
    }
    lines
}

/// The bound of the bucket that this share of the requests, in percent, did not exceed.
fn latency_within(recent: &Value, minutes: &[Value], share: u64) -> Option<String> {
    let bounds: Vec<u64> =
        recent.get("latency_bounds_ms")?.as_array()?.iter().filter_map(Value::as_u64).collect();
    let mut counts = vec![0_u64; bounds.len() + 1];
    for minute in minutes.iter().rev().take(LATENCY_MINUTES) {
        let found = minute.get("latencies")?.as_array()?.iter().filter_map(Value::as_u64);
        counts.iter_mut().zip(found).for_each(|(sum, count)| *sum += count);
    }
    let all: u64 = counts.iter().sum();
    let mut seen = 0;
    let bucket = counts.iter().position(|count| {
        seen += count;
        all > 0 && seen * 100 >= all * share
    })?;
    Some(bounds.get(bucket).map_or_else(
        || format!("over {} s", bounds.last().copied().unwrap_or(0) / 1000),
        |ms| if *ms < 1000 { format!("≤ {ms} ms") } else { format!("≤ {} s", ms / 1000) },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recent(latencies: [u64; 3]) -> Value {
        json!({
            "latency_bounds_ms": [10, 5000],
            "minutes": [{ "events": 4, "latencies": latencies }],
            "subscriptions": [{ "subscription": "erp", "attempts": [
                { "class": "validation" }, { "class": "rate_limited" }, { "class": "success" },
            ]}],
        })
    }

    #[test]
    fn latencies_are_told_by_the_bucket_that_most_are_in() {
        for (latencies, half, most) in [
            ([0, 0, 0], None, None),
            ([95, 5, 0], Some("≤ 10 ms"), Some("≤ 10 ms")),
            ([94, 6, 0], Some("≤ 10 ms"), Some("≤ 5 s")),
            ([0, 0, 1], Some("over 5 s"), Some("over 5 s")),
        ] {
            let recent = recent(latencies);
            let minutes = recent["minutes"].as_array().unwrap();
            let within = |share| latency_within(&recent, minutes, share);
            assert_eq!(
                (within(50).as_deref(), within(95).as_deref()),
                (half, most),
                "{latencies:?}"
            );
        }
    }

    #[test]
    fn the_newest_attempt_stands_on_the_right() {
        assert_eq!(attempts(&recent([0; 3]), "erp"), ".rx");
        assert_eq!(attempts(&recent([0; 3]), "other"), "");
    }

    #[test]
    fn nothing_stored_reaches_the_terminal_and_no_line_is_wider() {
        let name = format!("e\u{1b}[2J{}", "x".repeat(64));
        let subscription = json!({ "name": name, "state": "ACTIVE", "failure_count": 0,
            "attempts": ".".repeat(SHOWN_ATTEMPTS), "last_success_at": "2026-01-01T00:00:00.000Z" });
        let read = json!({ "stats": { "version": "1", "pending": 3 }, "recent": recent([1, 0, 0]),
            "subscriptions": [subscription], "error": "no \u{1b}]0;x" });
        let lines = picture(&read, "http://127.0.0.1:8710", 80);
        let text = lines.join("\n");
        assert!(text.contains("3 waiting") && text.contains("NO ANSWER"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
    }
}
