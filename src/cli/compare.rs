//! `oncebox subscription compare`: what was delivered to a target, compared with what the target says that it has.

use std::time::Duration;

use crate::cli::parted_answer::PartedAnswer;
use crate::cli::prelude::*;
use crate::cli::source;

/// Time for a part of a comparison: the target's list is read twice, for 20 s each.
const TIMEOUT: Duration = Duration::from_mins(2);

const MISSING: Columns = Columns {
    columns: &[
        column("DELIVERY", 0, "delivery"),
        column("EVENT", 0, "event"),
        column("TYPE", 1, "event_type"),
        column("WEBHOOK ID", 3, "webhook_id"),
        column("KEY", 2, "key"),
        column("DELIVERED (UTC)", 1, "delivered_at"),
    ],
    by: &[],
};

/// Compares, and prints the missing deliveries; the flag `--send-again` sends their events again.
pub(super) fn run(call: &Call<'_>, remote: &Remote) -> Done {
    let mut body = call.body()?;
    if call.has("ids") {
        let bytes = input::bytes(&call.text("ids"))?;
        let text = String::from_utf8(bytes)
            .map_err(|_bytes| Failure::input("--ids must be UTF-8, one id a line"))?;
        let ids: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        body.insert("ids".to_owned(), json!(ids));
    }
    if let Some(Value::Object(list)) = body.get_mut("list") {
        source::read_terms(list)?;
    }
    let compared = |found: &Value| {
        let count = count(found, "delivered");
        format!("{count} deliveries were compared, and older ones follow …")
    };
    let parts = PartedAnswer {
        member: "next",
        of_whole: &["listed"],
        max_items: usize::MAX,
        told: &compared,
    };
    let found = parts.ask(body, |body| {
        remote.send_within("POST", &call.path(), Some(&Value::Object(body)), TIMEOUT)
    })?;
    print(remote, &found)?;
    let missing = count(&found, "missing");
    if missing == 0 {
        return Ok(());
    }
    let subscription = text(&found, "subscription");
    if !call.is("send-again") {
        let why = format!(
            "{missing} of {} deliveries are missing at {subscription}; --send-again sends them again, with the same webhook-id",
            count(&found, "delivered")
        );
        return Err(Failure::new(exit::MISSING, why));
    }
    for item in list(&found, "items") {
        send_again(remote, &subscription, item)?;
    }
    out::note(format_args!("{missing} are sent again. Compare again when they are delivered."));
    Ok(())
}

fn send_again(remote: &Remote, subscription: &str, item: &Value) -> Done {
    let is_webhook = item.get("of_webhook_event") == Some(&Value::Bool(true));
    let noun = if is_webhook { "webhook-events" } else { "events" };
    let path = format!("/v1/{noun}/{}/replay", percent_encoded(&text(item, "event")));
    remote.post(&path, Some(&json!({ "subscription": subscription }))).map(drop)
}

fn count(found: &Value, name: &str) -> u64 {
    found.get(name).and_then(Value::as_u64).unwrap_or_default()
}

fn print(remote: &Remote, found: &Value) -> Done {
    if remote.json() {
        return out::json(found);
    }
    let [since, until] = [text(found, "since"), text(found, "until")];
    out::line(format_args!(
        "{} deliveries from {since} to {until}, {} ids at the target, {} missing",
        count(found, "delivered"),
        count(found, "listed"),
        count(found, "missing")
    ))?;
    let items = list(found, "items");
    if items.is_empty() { Ok(()) } else { MISSING.table(items) }
}
