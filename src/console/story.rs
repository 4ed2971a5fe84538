//! What happened to an event, in sentences: who got it and when, who refused it and why, who waits for what.

use maud::{Markup, html};
use serde_json::Value;

use crate::console::elements::{cut, link, time, told};
use crate::console::json::Fields as _;
use crate::console::standing::Standing;
use crate::console::texts::Texts;
use crate::console::timeline::Timeline;
use crate::model::answer_sentence;

/// Most bytes of the page for what a target said.
const MAX_SAID_BYTES: usize = 160;

/// The sentences about the deliveries of an event, what needs a person first. `further`: those that are only counted.
pub(super) fn of_event(t: &Texts, event: &Value, told: &[Timeline], further: &[Value]) -> Markup {
    let is_sent = |delivery: &&Value| delivery.text("state") == "completed";
    let sent = further.iter().filter(is_sent).count();
    let of_quarantine =
        || event.maybe("last_error").filter(|_| event.text("status") == "quarantined");
    let unusable = event.maybe("error_message").or_else(of_quarantine);
    html! {
        div.story {
            @if let Some(error) = unusable { p { (t.story_unusable) " " (ended(error)) } }
            @else if told.is_empty() { p { (t.nobody_wants_it) } }
            @for timeline in told { p { (of_delivery(t, &timeline.delivery, timeline.last())) } }
            @if !further.is_empty() {
                p { (t.story_further) " " (further.len()) ", " (t.story_of_them) " " (sent) " " (t.story_are_sent) }
            }
        }
    }
}

/// The sentence about a delivery and its last attempt.
pub(super) fn of_delivery(t: &Texts, delivery: &Value, last: Option<&Value>) -> Markup {
    let name = html! { strong { (link("subscriptions", delivery.text("subscription"))) } };
    let at = time(delivery.text("finished_at"));
    match delivery.text("state") {
        "completed" => html! {
            (t.story_sent) " " (name) ", " (at)
            @match last.and_then(status) { Some(status) => { "; " (t.story_answered) " " (status) "." }, None => "." }
        },
        "dead_letter" => html! {
            (name) " " (if is_refusal(last) { t.story_refused } else { t.story_given_up }) ", " (at) ": "
            (answered(last.unwrap_or(delivery), delivery.text("reason")))
        },
        "skipped" | "cancelled" => html! {
            (t.story_not_sent) " " (name) ": " (Standing::of_delivery(delivery).badge()) ", " (at) ". "
            (told(delivery.text("reason")))
        },
        _ => html! {
            (name) " " (t.story_has_not) ": " (told(&ended(delivery.field("waiting").text("detail"))))
            @if let Some(last) = last.filter(|last| last.text("class") != "success") { " " (t.story_last) " " (answered(last, "")) }
        },
    }
}

/// Whether the target understood the request and refused it.
fn is_refusal(last: Option<&Value>) -> bool {
    last.is_some_and(|last| matches!(last.text("class"), "validation" | "auth" | "gone" | "poison"))
}

fn status(attempt: &Value) -> Option<i64> {
    attempt.field("http_status").as_i64()
}

/// The status and the words of an attempt's answer; `reason` if it has none.
fn answered(attempt: &Value, reason: &str) -> Markup {
    let said = answer_sentence::of_dead_letter(
        attempt.maybe("excerpt"),
        attempt.maybe("failed_reason"),
        Some(reason),
    );
    let said = said.unwrap_or_default();
    html! {
        @if let Some(status) = status(attempt) { (status) @if !said.is_empty() { ", " } }
        @if said.is_empty() { "." } @else { (cut(&ended(&said), MAX_SAID_BYTES)) }
    }
}

/// A sentence with its end.
fn ended(text: &str) -> String {
    let text = text.trim_end();
    if text.ends_with(['.', '!', '?', '}', '>']) { text.to_owned() } else { format!("{text}.") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::console::texts::EN;

    #[test]
    fn a_delivery_is_told_in_a_sentence() {
        let at = "2026-11-28T08:30:47.000Z";
        let delivery = |state: &str, waiting: &str, reason: Value| {
            json!({
                "subscription": "tax", "state": state, "finished_at": at, "reason": reason, "waiting": { "detail": waiting },
            })
        };
        let attempt = |class: &str, status: Value, excerpt: &str| json!({ "class": class, "http_status": status, "excerpt": excerpt });
        for (delivery, last, expected) in [
            (
                delivery("completed", "", Value::Null),
                Some(attempt("success", json!(200), "ok")),
                "Sent to tax, 2026-11-28 08:30:47 UTC; they answered 200.",
            ),
            (delivery("completed", "", Value::Null), None, "Sent to tax, 2026-11-28 08:30:47 UTC."),
            (
                delivery("dead_letter", "", json!("the target refused it")),
                Some(attempt("validation", json!(422), "unknown article A-99")),
                "tax refused it, 2026-11-28 08:30:47 UTC: 422, unknown article A-99.",
            ),
            (
                delivery("dead_letter", "", json!("it failed 12 times")),
                Some(attempt("transient", Value::Null, "")),
                "tax did not take it, and it was given up, 2026-11-28 08:30:47 UTC: it failed 12 times.",
            ),
            (
                delivery("pending", "the next attempt is at 2026-11-28T08:31:47.000Z", Value::Null),
                Some(attempt("transient", json!(503), "closed for stocktaking!\nsecond line")),
                "tax has not got it yet: the next attempt is at 2026-11-28 08:31:47 UTC. \
                 At the last attempt they answered 503, closed for stocktaking!",
            ),
            (
                delivery("skipped", "", json!("a newer one took its place.")),
                None,
                "Not sent to tax: ■ skipped, 2026-11-28 08:30:47 UTC. a newer one took its place.",
            ),
        ] {
            let shown = of_delivery(&EN, &delivery, last.as_ref()).0;
            assert_eq!(without_tags(&shown), expected);
        }
    }

    fn without_tags(html: &str) -> String {
        let parts = html.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text));
        parts.collect()
    }
}
