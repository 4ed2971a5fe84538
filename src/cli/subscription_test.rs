//! `oncebox subscription test`: one request to a subscription, step by step.

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::cli::exit::{FAILED, Failure};
use crate::cli::out;
use crate::cli::remote::Remote;
use crate::cli::show::{clean, text};

/// How long a test is waited for: more than the longest `policy.timeout`.
const TIMEOUT: Duration = Duration::from_mins(12);
/// Characters of the answer that are shown.
const EXCERPT_CHARS: usize = 200;

#[derive(Debug, Args)]
pub(super) struct TestArgs {
    /// Its name or id
    pub(super) name: String,
    /// Send this past event or webhook event instead of a ping; the receiver may carry it out
    #[arg(long, value_name = "ID")]
    event: Option<String>,
}

impl TestArgs {
    pub(super) fn run(&self, remote: &Remote, path: &str) -> Result<(), Failure> {
        let body = self.event.as_ref().map(|id| json!({ "event_id": id }));
        let tested = remote.post_within(&format!("{path}/test"), body.as_ref(), TIMEOUT)?;
        let ok = tested.get("ok") == Some(&Value::Bool(true));
        if remote.json() {
            out::json(&tested)?;
        } else {
            print(&tested, ok)?;
        }
        if ok { Ok(()) } else { Err(Failure::new(FAILED, "")) }
    }
}

/// Offers a test of a subscription that was just made. Whether the test works changes nothing about that.
pub(super) fn offer(remote: &Remote, name: &str, path: &str) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return out::line(format_args!("Test it: oncebox subscription test {name}"));
    }
    out::note("Test it now? [Y/n]");
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    if read.is_ok_and(|bytes| bytes > 0) && matches!(answer.trim(), "" | "y" | "Y" | "yes") {
        let test = TestArgs { name: name.to_owned(), event: None };
        if let Err(failure) = test.run(remote, path) {
            out::note(failure.message);
        }
    }
    Ok(())
}

/// One line for each step, and what it means.
fn print(tested: &Value, ok: bool) -> Result<(), Failure> {
    let (name, event_type) = (text(tested, "subscription"), text(tested, "event_type"));
    out::line(format_args!("{name}: {event_type} to {}", text(tested, "url")))?;
    for step in tested.get("steps").and_then(Value::as_array).into_iter().flatten() {
        let took = step.get("took_ms").and_then(Value::as_f64).unwrap_or(0.0);
        let mark = if step.get("ok") == Some(&Value::Bool(true)) { "" } else { "FAILED " };
        let line =
            format!("  {:<12}{took:>10.1} ms  {mark}{}", text(step, "step"), text(step, "detail"));
        out::line(line.trim_end())?;
    }
    let excerpt: String = clean(&text(tested, "excerpt")).chars().take(EXCERPT_CHARS).collect();
    if !excerpt.is_empty() {
        out::line(format_args!("  it said: {excerpt}"))?;
    }
    if ok {
        let ended =
            tested.get("ended_holds").and_then(Value::as_array).is_some_and(|h| !h.is_empty());
        let more = if ended { " The hold auth has ended; deliveries go on." } else { "" };
        return out::line(format_args!("It works.{more}"));
    }
    out::line(format_args!(
        "It does not work ({}). {}",
        text(tested, "class"),
        text(tested, "advice")
    ))
}
