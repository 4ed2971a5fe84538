//! `oncebox subscription test`: one request to a subscription, step by step; and what `--try` would send.

use std::io::IsTerminal;
use std::time::Duration;

use crate::cli::exit::FAILED;
use crate::cli::prelude::*;
use crate::cli::show::clean;

/// How long a test is waited for: more than the longest `policy.timeout`.
const TIMEOUT: Duration = Duration::from_mins(12);
/// Characters of the answer that are shown.
const EXCERPT_CHARS: usize = 200;

/// Sends one request and prints each step; `body` names what is sent.
pub(super) fn run(remote: &Remote, path: &str, body: Option<&Value>) -> Result<(), Failure> {
    let tested = remote.send_within("POST", path, body, TIMEOUT)?;
    let ok = tested.get("ok") == Some(&Value::Bool(true));
    if remote.json() {
        out::json(&tested)?;
    } else {
        print(&tested, ok)?;
    }
    if ok { Ok(()) } else { Err(Failure::new(FAILED, "")) }
}

/// Offers a test of a subscription that was just made. Whether the test works changes nothing about that.
pub(super) fn offer(remote: &Remote, name: &str, path: &str) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return out::line(format_args!("Test it: oncebox subscription test {name}"));
    }
    out::note("Test it now? [Y/n]");
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    if read.is_ok_and(|bytes| bytes > 0)
        && matches!(answer.trim(), "" | "y" | "Y" | "yes")
        && let Err(failure) = run(remote, &format!("{path}/test"), None)
    {
        out::note(failure.message);
    }
    Ok(())
}

/// A line for each step, with its meaning.
fn print(tested: &Value, ok: bool) -> Result<(), Failure> {
    let name = text(tested, "subscription");
    let event_type = text(tested, "event_type");
    out::line(format_args!("{name}: {event_type} to {}", text(tested, "url")))?;
    for step in list(tested, "steps") {
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
        let ended = !list(tested, "ended_holds").is_empty();
        let more = if ended { " The hold auth has ended; deliveries go on." } else { "" };
        return out::line(format_args!("It works.{more}"));
    }
    out::line(format_args!(
        "It does not work ({}). {}",
        text(tested, "class"),
        text(tested, "advice")
    ))
}

/// Prints what would be sent.
pub(super) fn print_trial(remote: &Remote, trial: &Value) -> Result<(), Failure> {
    if remote.json() {
        return out::json(trial);
    }
    let event = text(trial, "event");
    match text(trial, "why_not").as_str() {
        "" => out::line(format_args!("The event {event} matches. This would be sent:"))?,
        why => out::line(format_args!(
            "The event {event} does not match: {why}. Otherwise this would be sent:"
        ))?,
    }
    for (field, what) in [("file_name", "file"), ("subject", "subject")] {
        let value = clean(&text(trial, field));
        if !value.is_empty() {
            out::line(format_args!("{what}: {value}"))?;
        }
    }
    let headers = trial.get("headers").and_then(Value::as_object).into_iter().flatten();
    out::line("")?;
    for (name, value) in headers {
        out::line(format_args!("{name}: {}", value.as_str().unwrap_or_default()))?;
    }
    out::line("")?;
    match trial.get("body").and_then(Value::as_str) {
        Some(body) => body.lines().try_for_each(|line| out::line(clean(line)))?,
        None => out::line(format_args!("(base64) {}", text(trial, "body_base64")))?,
    }
    out::note("Nothing was saved, and nothing was sent.");
    Ok(())
}
