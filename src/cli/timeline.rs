//! One screen about an event: what it is, where it went, what was answered, and how to send it again.
//!
//! Not here: fetching the event itself, which [`super::event`], [`super::webhook`] and
//! [`super::delivery`] do each in their own way.

use serde_json::Value;

use crate::cli::listing::{each, filter};
use crate::cli::remote::{Remote, plain};
use crate::cli::show::{self, clean, cut, instant, quoted, text};
use crate::cli::{Failure, out};

/// Of an answer's beginning, so many characters are shown.
const EXCERPT_CHARS: usize = 300;
/// Of a payload, so many lines are shown; `--payload` prints all of it.
const PAYLOAD_LINES: usize = 24;

/// Prints an event of the outbox: its fields and its payload.
pub(super) fn event(event: &Value) -> Result<(), Failure> {
    headline("Event", event, "status")?;
    let aggregate = [text(event, "aggregate_type"), text(event, "aggregate_id")];
    let aggregate: Vec<&str> =
        aggregate.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    show::fields(&[
        ("aggregate", aggregate.join("/")),
        ("key", text(event, "idempotency_key")),
        ("source", text(event, "source_system")),
        ("for", text(event, "target")),
        ("webhook-id", text(event, "webhook_id")),
        ("occurred", instant(event, "occurred_at")),
        ("received", instant(event, "received_at")),
        ("not before", instant(event, "not_before")),
        ("completed", instant(event, "completed_at")),
        ("published again", times(event, "duplicate_count")),
        ("with other content", times(event, "differing_count")),
        ("what is wrong", text(event, "error_code")),
        ("last error", last_error(event, "last_error")),
    ])?;
    payload(event)
}

/// Prints a webhook event: its fields and its payload.
pub(super) fn webhook(event: &Value) -> Result<(), Failure> {
    headline("Webhook event", event, "status")?;
    show::fields(&[
        ("provider", text(event, "provider")),
        ("provider's id", text(event, "provider_event_id")),
        ("webhook-id", text(event, "webhook_id")),
        ("received", instant(event, "received_at")),
        ("came again", times(event, "duplicate_count")),
        ("completed", instant(event, "completed_at")),
        ("last error", last_error(event, "error_message")),
    ])?;
    payload(event)
}

/// Prints every delivery of an event with its attempts, and what can be done.
pub(super) fn deliveries(remote: &Remote, event: &Value) -> Result<(), Failure> {
    let query = filter("event_id", Some(&text(event, "id"))).into_iter().collect();
    let mut found = Vec::new();
    each(remote, "/v1/deliveries", query, |delivery| {
        found.push(delivery);
        Ok(())
    })?;
    if found.is_empty() {
        out::line("\nNo subscription wanted it: there is nothing to deliver.")?;
        return out::line("  oncebox subscription list");
    }
    // The API lists the newest first; a story is told from its beginning.
    found.reverse();
    for one in &found {
        out::line("")?;
        delivery(remote, one)?;
    }
    again(event, &found)
}

/// Prints a delivery with its attempts.
pub(super) fn delivery(remote: &Remote, delivery: &Value) -> Result<(), Failure> {
    let title = format!("Delivery {} to {}", text(delivery, "id"), text(delivery, "subscription"));
    out::line(format_args!("{title:<60}  {}", text(delivery, "state")))?;
    show::fields(&[
        ("due", instant(delivery, "due_at")),
        ("finished", instant(delivery, "finished_at")),
        ("reason", text(delivery, "reason")),
    ])?;
    attempts(remote, &text(delivery, "id"))
}

/// Prints the attempts of a delivery, oldest first.
fn attempts(remote: &Remote, delivery: &str) -> Result<(), Failure> {
    let path = format!("/v1/deliveries/{}/attempts", plain(delivery));
    let mut any = false;
    each(remote, &path, Vec::new(), |attempt| {
        any = true;
        let answer = match text(&attempt, "http_status") {
            status if status.is_empty() => "no answer".to_owned(),
            status => format!("answered {status}"),
        };
        out::line(format_args!(
            "  #{:<3} {}  {answer:<13} {:<12} {:>6} ms  {}",
            text(&attempt, "n"),
            instant(&attempt, "started_at"),
            text(&attempt, "class"),
            text(&attempt, "latency_ms"),
            text(&attempt, "url"),
        ))?;
        for field in ["failed_reason", "excerpt"] {
            let words = text(&attempt, field);
            // The status stands in the line above already.
            if !words.is_empty() && !words.starts_with("the target answered ") {
                out::line(format_args!("       {}", cut(&words, EXCERPT_CHARS)))?;
            }
        }
        Ok(())
    })?;
    if any { Ok(()) } else { out::line("  no attempt yet") }
}

/// Prints the command that sends each delivery again.
pub(super) fn again(event: &Value, deliveries: &[Value]) -> Result<(), Failure> {
    let mut lines = Vec::new();
    for delivery in deliveries {
        let id = text(delivery, "id");
        match text(delivery, "state").as_str() {
            "pending" => lines.push(format!("  oncebox delivery retry {id}   (at once)")),
            "dead_letter" | "skipped" | "cancelled" => {
                lines.push(format!("  oncebox delivery retry {id}"));
            }
            "completed" => lines.extend(anew(event, &text(delivery, "subscription"))),
            _ => {}
        }
    }
    if lines.is_empty() {
        return Ok(());
    }
    out::line("\nSend it again:")?;
    lines.iter().try_for_each(out::line)
}

/// What was taken is final; the same content can go to the same subscription as a new event.
fn anew(event: &Value, subscription: &str) -> Option<String> {
    let key = event.get("idempotency_key")?.as_str()?;
    let mut command = format!(
        "  oncebox event show {} --payload | oncebox emit {} --key {} --target {}",
        text(event, "id"),
        quoted(&text(event, "event_type")),
        quoted(&clean(&format!("{key}:again"))),
        quoted(subscription),
    );
    for (flag, field) in [
        ("--aggregate-type", "aggregate_type"),
        ("--aggregate-id", "aggregate_id"),
        ("--source", "source_system"),
    ] {
        let value = text(event, field);
        if !value.is_empty() {
            command.extend([" ", flag, " ", &quoted(&value)]);
        }
    }
    command.push_str(" --payload -   (it was taken; this is a new event)");
    Some(command)
}

fn headline(what: &str, event: &Value, state: &str) -> Result<(), Failure> {
    let title = format!("{what} {}  {}", text(event, "id"), text(event, "event_type"));
    out::line(format_args!("{title:<60}  {}", text(event, state)))
}

/// Once everything has arrived, an error on the way is only part of the attempts.
fn last_error(event: &Value, field: &str) -> String {
    if text(event, "status") == "completed" { String::new() } else { text(event, field) }
}

fn times(event: &Value, field: &str) -> String {
    match event.get(field).and_then(Value::as_u64) {
        None | Some(0) => String::new(),
        Some(1) => "once".to_owned(),
        Some(count) => format!("{count} times"),
    }
}

/// The payload's bytes as the API gives them.
pub(super) fn payload_bytes(event: &Value) -> Result<Vec<u8>, Failure> {
    if let Some(json) = event.get("payload") {
        return Ok(json.to_string().into_bytes());
    }
    if let Some(text) = event.get("payload_text").and_then(Value::as_str) {
        return Ok(text.as_bytes().to_vec());
    }
    let encoded = event.get("payload_base64").and_then(Value::as_str).unwrap_or_default();
    data_encoding::BASE64
        .decode(encoded.as_bytes())
        .map_err(|error| Failure::failed(format!("the payload is not base64: {error}")))
}

fn payload(event: &Value) -> Result<(), Failure> {
    let whole = match (event.get("payload"), event.get("payload_text").and_then(Value::as_str)) {
        // Pretty printing of a value that was parsed cannot fail.
        (Some(json), _) => serde_json::to_string_pretty(json).unwrap_or_default(),
        (None, Some(text)) => text.to_owned(),
        (None, None) => "not text; --payload prints its bytes".to_owned(),
    };
    out::line("  payload")?;
    for line in whole.lines().take(PAYLOAD_LINES) {
        out::line(format_args!("    {}", clean(line)))?;
    }
    if whole.lines().count() > PAYLOAD_LINES {
        out::line("    … (all of it: --payload)")?;
    }
    Ok(())
}
