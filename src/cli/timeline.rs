//! One screen about an event: its fields, its deliveries and attempts, and the commands that send it again.
//!
//! Not here: listing events ([`super::event`], [`super::event`]) and deliveries ([`super::delivery`]).

use crate::cli::noun::{collect, each};
use crate::cli::prelude::*;
use crate::cli::show::{self, clean, cut, instant, quoted};
use crate::model::json::carried;

/// Characters that are shown of an answer's body.
const EXCERPT_CHARS: usize = 300;
/// Lines that are shown of a payload; `--payload` prints all of it.
const PAYLOAD_LINES: usize = 24;

pub(super) const EVENTS: Noun = Noun::new("/v1/events", "Event", "such events")
    .columns(&[
        column("ID", 0, "id"),
        column("TYPE", 1, "event_type"),
        column("STATUS", 1, "status"),
        column("RECEIVED (UTC)", 2, "received_at"),
        column("OF", 3, "about"),
        column("ERROR", 2, "error_code"),
        column("KEY", 4, "idempotency_key"),
    ])
    .fields(&[
        cell("aggregate", "about"),
        cell("key", "idempotency_key"),
        cell("source", "source_system"),
        cell("for", "target"),
        cell("process", "process_id"),
        cell("trace", "trace_id"),
        cell("parent", "parent"),
        cell("hard children", "children"),
        cell("webhook-id", "webhook_id"),
        cell("occurred", "occurred"),
        cell("received", "received"),
        cell("not before", "not_before"),
        cell("completed", "completed"),
        cell("ended", "ended"),
        cell("published again", "published_again"),
        cell("with other content", "with_other_content"),
        cell("error", "error_code"),
        cell("last error", "last_error"),
        time("removed", "expunged_at"),
        cell("archived in", "archived_in"),
    ])
    .by(&[
        ("about", show::about),
        ("parent", parent),
        ("children", children),
        ("occurred", |e| moment(e, "occurred_at")),
        ("received", |e| moment(e, "received_at")),
        ("not_before", |e| moment(e, "not_before")),
        ("completed", |e| moment(e, "completed_at")),
        ("ended", ended),
        ("published_again", |e| times(e, "duplicate_count")),
        ("with_other_content", |e| times(e, "differing_count")),
        ("last_error", |e| last_error(e, "last_error")),
    ]);

pub(super) const WEBHOOKS: Noun =
    Noun::new("/v1/webhook-events", "Webhook event", "such webhook events")
        .columns(&[
            column("ID", 0, "id"),
            column("TYPE", 1, "event_type"),
            column("STATUS", 1, "status"),
            column("RECEIVED (UTC)", 2, "received_at"),
            column("PROVIDER", 3, "provider"),
            column("PROVIDER'S ID", 4, "provider_event_id"),
        ])
        .fields(&[
            cell("provider", "provider"),
            cell("provider's id", "provider_event_id"),
            cell("webhook-id", "webhook_id"),
            cell("ordering key", "ordering_key"),
            cell("trace", "trace_id"),
            cell("received", "received"),
            cell("origin", "origin"),
            cell("came again", "came_again"),
            cell("began", "began"),
            cell("completed", "completed"),
            cell("ended", "ended"),
            cell("last error", "last_error"),
            time("removed", "expunged_at"),
            cell("archived in", "archived_in"),
        ])
        .by(&[
            ("received", |e| moment(e, "received_at")),
            ("came_again", |e| times(e, "duplicate_count")),
            ("began", |e| moment(e, "processing_started_at")),
            ("completed", |e| moment(e, "completed_at")),
            ("ended", ended),
            ("last_error", |e| last_error(e, "error_message")),
        ]);

/// When another event ended.
fn ended(event: &Value) -> String {
    if is_completed(event) { String::new() } else { moment(event, "finished_at") }
}

/// Adds a hint to a "not found" failure if `given` is not an id: how to find an event by its aggregate or key.
pub(super) fn not_an_id(failure: Failure, given: &str) -> Failure {
    let is_id = given.len() == 36 && given.bytes().filter(|byte| *byte == b'-').count() == 4;
    if is_id || failure.code != exit::NOT_FOUND {
        return failure;
    }
    let given = quoted(given);
    failure.and(format_args!(
        "An event is named by its id. To find it: oncebox event list --aggregate-id {given}, or --key {given}"
    ))
}

/// Prints an event or a webhook event with its deliveries, or its payload alone.
pub(super) fn show(call: &Call<'_>, remote: &Remote) -> Done {
    let event = remote.get(&call.path());
    let event = event.map_err(|failure| match call.noun.one {
        "Event" => not_an_id(failure, &call.text("id")),
        _ => failure,
    })?;
    if call.is("payload") {
        return out::exact(&payload_bytes(&event)?);
    }
    if remote.json() {
        return out::json(&event);
    }
    print(&event)?;
    deliveries(remote, &event)
}

/// Prints and returns the event that a delivery carries.
pub(super) fn event_of(remote: &Remote, delivery: &Value) -> Result<Value, Failure> {
    let is_webhook = text(delivery, "of") == "webhook_event";
    let noun = if is_webhook { WEBHOOKS } else { EVENTS };
    let event = remote.get(&noun.at(&text(delivery, "event_id")))?;
    print(&event).map(|()| event)
}

/// Prints the fields and the payload of an event or a webhook event.
fn print(event: &Value) -> Result<(), Failure> {
    let noun = if is_webhook(event) { WEBHOOKS } else { EVENTS };
    let title = format!("{} {}  {}", noun.one, text(event, "id"), text(event, "event_type"));
    out::line(format_args!("{title:<60}  {}", text(event, "status")))?;
    noun.lines().fields(event)?;
    print_payload(event)
}

/// Prints the deliveries of an event with their attempts, and the commands that send them again.
fn deliveries(remote: &Remote, event: &Value) -> Result<(), Failure> {
    let query = vec![("event_id".to_owned(), text(event, "id"))];
    let mut found = collect(remote, "/v1/deliveries", &query)?;
    if found.is_empty() {
        return undelivered(event).iter().try_for_each(out::line);
    }
    // The API lists the newest first; the timeline begins with the oldest.
    found.reverse();
    for one in &found {
        out::line("")?;
        delivery(remote, one)?;
    }
    again(event, &found)
}

/// Says why an event has no deliveries, and which command helps.
fn undelivered(event: &Value) -> Vec<String> {
    let id = text(event, "id");
    let status = text(event, "status");
    match status.as_str() {
        "quarantined" => vec![
            "\nIt is invalid, so it is not delivered. Repair or discard it:".to_owned(),
            repair(event, &id),
            format!("  oncebox event discard {id} --reason TEXT"),
        ],
        "cancelled" => vec!["\nIt was cancelled before it was delivered.".to_owned()],
        "pending" => {
            vec!["\nIt is not yet matched with subscriptions. That happens next.".to_owned()]
        }
        _ => {
            let mut lines = vec![
                "\nNo subscription wanted it: it was sent to nobody.".to_owned(),
                "  oncebox subscription list   (TYPES and SOURCE: the events of each)".to_owned(),
            ];
            let provider = text(event, "provider");
            if !provider.is_empty() {
                lines.push(format!(
                    "  oncebox subscription create NAME --source provider:{provider} --url URL   (for future events)"
                ));
            }
            let noun = if provider.is_empty() { "event" } else { "webhook" };
            lines.push("Once one is there, send it to all that match:".to_owned());
            lines.push(format!("  oncebox {noun} replay {id}"));
            if provider.is_empty() && !is_sealed(event) {
                let command = format!("  oncebox event replay {id} --as-new --subscription NAME");
                lines.push(format!("{command}   (whatever its types, as a new event)"));
            }
            lines
        }
    }
}

/// The command that most likely repairs a quarantined event.
fn repair(event: &Value, id: &str) -> String {
    let fix = format!("  oncebox event fix {id}");
    match text(event, "error_code").as_str() {
        "unknown_parent" | "parent_too_deep" | "parent_circle" => {
            format!("{fix} --parent-key KEY   (or without a parent: --set parent_id=null)")
        }
        "unknown_target" => format!("{fix} --no-target   (or --target NAME)"),
        "unknown_tenant" => {
            let tenant = quoted(&text(event, "tenant"));
            format!(
                "  oncebox tenant create {tenant} --pii allow   (then repair it with that tenant's token)"
            )
        }
        "bad_headers" => format!("{fix} --set headers='{{}}'"),
        "bad_time" => {
            format!("{fix}   (removes the time; or --set occurred_at='\"2026-01-31T12:00:00Z\"')")
        }
        "bad_payload" | "payload_too_deep" | "payload_too_large" | "personal_data" => {
            format!("{fix} --payload @FILE")
        }
        _ => format!("{fix} --payload @FILE   (or --event-type, --key and others: see --help)"),
    }
}

/// Prints a delivery with its attempts.
pub(super) fn delivery(remote: &Remote, delivery: &Value) -> Result<(), Failure> {
    let title = format!("Delivery {} to {}", text(delivery, "id"), text(delivery, "subscription"));
    out::line(format_args!("{title:<60}  {}", state(delivery)))?;
    show::labelled(&[
        ("lane", lane(delivery)),
        ("due", moment(delivery, "due_at")),
        ("waits", waits(remote, delivery)?),
        ("finished", moment(delivery, "finished_at")),
        ("reason", text(delivery, "reason")),
    ])?;
    attempts(remote, &text(delivery, "id"))
}

/// The lane of a delivery, and whether it came late.
fn lane(delivery: &Value) -> String {
    let late = if text(delivery, "late") == "true" { "   (it arrived late)" } else { "" };
    format!("{}{late}", text(delivery, "lane"))
}

/// The state of a delivery; `processing` while an attempt is under way.
pub(super) fn state(delivery: &Value) -> String {
    let is_in_flight = !text(delivery, "in_flight_since").is_empty();
    if is_in_flight { "processing".to_owned() } else { text(delivery, "state") }
}

/// Why a delivery waits. A list does not say it, so the delivery is asked for where it was listed.
fn waits(remote: &Remote, delivery: &Value) -> Result<String, Failure> {
    if !text(delivery, "finished_at").is_empty() {
        return Ok(String::new());
    }
    let found = match delivery.get("waiting") {
        Some(_) => delivery.clone(),
        None => {
            remote.get(&format!("/v1/deliveries/{}", percent_encoded(&text(delivery, "id"))))?
        }
    };
    Ok(found.pointer("/waiting/detail").and_then(Value::as_str).map(clean).unwrap_or_default())
}

/// Prints the attempts of a delivery, oldest first.
fn attempts(remote: &Remote, delivery: &str) -> Result<(), Failure> {
    let path = format!("/v1/deliveries/{}/attempts", percent_encoded(delivery));
    let mut any = false;
    each(remote, &path, &Vec::new(), |attempt| {
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
            // The line above already has the status.
            if !words.is_empty() && !words.starts_with("the target answered ") {
                out::line(format_args!("       {}", cut(&words, EXCERPT_CHARS)))?;
            }
        }
        Ok(())
    })?;
    if any { Ok(()) } else { out::line("  no attempt has ended") }
}

/// Prints, for each delivery, the command that sends it again.
pub(super) fn again(event: &Value, deliveries: &[Value]) -> Result<(), Failure> {
    let mut lines = Vec::new();
    for delivery in deliveries {
        let id = text(delivery, "id");
        let to = quoted(&text(delivery, "subscription"));
        let replay = replay(event, &to);
        match text(delivery, "state").as_str() {
            "pending" => lines.push(format!("  oncebox delivery retry {id}   (at once)")),
            "waiting" => {
                let note = "(its target has done it; --failed REASON: it has not)";
                lines.push(format!("  oncebox delivery confirm {id}   {note}"));
            }
            "parked" => {
                lines.push(format!("  oncebox delivery release {id}   (at its place in its lane)"));
            }
            "dead_letter" => {
                lines.push(format!("  oncebox delivery retry {id}   (as it is)"));
                if !is_webhook(event) {
                    let note = "(repaired, as a new event)";
                    lines.push(format!("{replay} --payload @FILE   {note}"));
                }
            }
            "skipped" | "cancelled" => lines.push(format!("  oncebox delivery retry {id}")),
            "completed" => {
                let note = "(it was taken: a consumer with a guard does nothing)";
                lines.push(format!("{replay}   {note}"));
                // What is sealed is sealed for this event alone.
                if !is_webhook(event) && !is_sealed(event) {
                    lines.push(format!("{replay} --as-new   (as a new event)"));
                }
            }
            _ => {}
        }
    }
    if !lines.is_empty() {
        out::line("\nSend it again:")?;
        lines.iter().try_for_each(out::line)?;
    }
    Ok(())
}

/// The command that sends an event again to one subscription.
fn replay(event: &Value, subscription: &str) -> String {
    let noun = if is_webhook(event) { "webhook" } else { "event" };
    format!("  oncebox {noun} replay {} --subscription {subscription}", text(event, "id"))
}

fn is_webhook(event: &Value) -> bool {
    event.get("provider_event_id").is_some()
}

fn is_sealed(event: &Value) -> bool {
    event.get("sealed_fields").and_then(Value::as_u64).is_some_and(|count| count > 0)
}

/// A time, with the zone it is in.
fn moment(item: &Value, field: &str) -> String {
    let instant = instant(item, field);
    if instant.is_empty() { instant } else { format!("{instant} UTC") }
}

fn is_completed(event: &Value) -> bool {
    text(event, "status") == "completed"
}

/// The last error; empty if the event is completed, because its attempts show it.
fn last_error(event: &Value, field: &str) -> String {
    if is_completed(event) { String::new() } else { text(event, field) }
}

fn parent(event: &Value) -> String {
    let parent = text(event, "parent_id");
    if parent.is_empty() { parent } else { format!("{parent} ({})", text(event, "parent_binding")) }
}

/// How many hard children an event has, and the command to list them while it waits.
fn children(event: &Value) -> String {
    match event.get("hard_children").and_then(Value::as_u64) {
        None | Some(0) => String::new(),
        Some(count) if event.get("waits_for_children").and_then(Value::as_bool) == Some(true) => {
            let list = format!("oncebox event list --parent-id {}", text(event, "id"));
            format!("{count}; it waits until all are done: {list}")
        }
        Some(count) => count.to_string(),
    }
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
        return Ok(carried::written(json).into_bytes());
    }
    if let Some(text) = event.get("payload_text").and_then(Value::as_str) {
        return Ok(text.as_bytes().to_vec());
    }
    let encoded = event.get("payload_base64").and_then(Value::as_str).unwrap_or_default();
    data_encoding::BASE64
        .decode(encoded.as_bytes())
        .map_err(|error| Failure::failed(format!("the payload is not base64: {error}")))
}

fn print_payload(event: &Value) -> Result<(), Failure> {
    let payload = match (event.get("payload"), event.get("payload_text").and_then(Value::as_str)) {
        // Pretty printing of a parsed value cannot fail.
        (Some(json), _) => serde_json::to_string_pretty(json).unwrap_or_default(),
        (None, Some(text)) => text.to_owned(),
        (None, None) => "not text; --payload prints its bytes".to_owned(),
    };
    out::line("  payload")?;
    for line in payload.lines().take(PAYLOAD_LINES) {
        out::line(format_args!("    {}", clean(line)))?;
    }
    if payload.lines().count() > PAYLOAD_LINES {
        out::line("    … (all of it: --payload)")?;
    }
    Ok(())
}
