//! How a thing stands: one badge with its reason, the same on its page, in lists, in the search and beside its jobs.
//!
//! The API tells the state of the row. A hold, or an error of reading, keeps a thing from doing its work whatever its state
//! is, and comes first.

use maud::{Markup, Render, html};
use serde_json::Value;

use crate::console::elements::{Mood, badge, grouped};
use crate::console::json::Fields as _;
use crate::console::words::word;
use crate::model::escalation::{Class, Severity};
use crate::model::hold::HoldReason;

/// The word for a thing that holds keep from its work.
const HELD: &str = "held";

/// A badge, with the reason beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// The state, in a word of the API.
    word: String,
    mood: Mood,
    /// In people's words; empty: the state says all.
    reason: String,
}

impl Standing {
    fn of(state: &str) -> Self {
        Self { word: state.to_owned(), mood: Mood::of(state), reason: String::new() }
    }

    fn because(self, reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), ..self }
    }

    /// A subscription: held, failing, or in its state. A hold that only a person ends is as bad as its escalation.
    pub(super) fn of_subscription(subscription: &Value) -> Self {
        let holds: Vec<&str> =
            subscription.items("holds").iter().map(|hold| hold.text("reason")).collect();
        if holds.is_empty() {
            let is_failing = subscription.maybe("failing_since").is_some();
            return Self::of(if is_failing { "failing" } else { subscription.text("state") });
        }
        Self::held(&holds)
    }

    /// A delivery, as its own page reads it: held, or in its state.
    pub(super) fn of_delivery(delivery: &Value) -> Self {
        match delivery.field("waiting").maybe("hold") {
            Some(reason) => Self::held(&[reason]),
            None => Self::of(delivery.text("state")),
        }
    }

    /// An event with its deliveries: held while one of them is, the worst hold first, or in its state.
    pub(super) fn of_event(event: &Value, deliveries: &[Value]) -> Self {
        let all = deliveries.iter().map(Self::of_delivery);
        let held = all.filter(|standing| standing.word == HELD);
        let worst = held.max_by_key(|standing| standing.mood == Mood::BAD);
        let is_webhook = event.text("kind") == "webhook_event" || event.maybe("provider").is_some();
        worst.unwrap_or_else(|| Self::of(word_of_status(event.text("status"), is_webhook)))
    }

    /// Held, for these reasons.
    fn held(reasons: &[&str]) -> Self {
        let class = |reason: &&str| HoldReason::parse(reason)?.escalation();
        let is_critical = |class: Class| class.severity() == Severity::Critical;
        let is_bad = reasons.iter().filter_map(class).any(is_critical);
        let mood = if is_bad { Mood::BAD } else { Mood::WARN };
        let held = Self { mood, ..Self::of(HELD) };
        held.because(reasons.iter().map(|reason| word(reason)).collect::<Vec<_>>().join(", "))
    }

    /// A source: paused, not readable, or in its state.
    pub(super) fn of_source(source: &Value) -> Self {
        match source.maybe("last_error") {
            Some(error) if source.text("state") != "PAUSED" => Self::of("failing").because(error),
            _ => Self::of(source.text("state")),
        }
    }

    /// A job: what it sent may wait still, though the job has done its work.
    pub(super) fn of_job(job: &Value) -> Self {
        let waiting = job.int("waiting");
        if job.text("state") == "completed" && waiting > 0 {
            let waits = Self { mood: Mood::WARN, ..Self::of("pending") };
            return waits.because(format!(
                "{} of {}",
                grouped(waiting),
                grouped(job.int("matched"))
            ));
        }
        Self::of(job.text("state"))
    }
}

/// The state that badges, tabs and filters show for the status of an event. An event that failed is tried again by itself;
/// a webhook that failed has a dead letter.
pub(super) fn word_of_status(status: &str, is_webhook: bool) -> &str {
    match (status, is_webhook) {
        ("failed", false) => "retrying",
        ("failed", true) => "dead_letter",
        _ => status,
    }
}

impl Render for Standing {
    fn render(&self) -> Markup {
        html! { (badge(&self.word, self.mood)) @if !self.reason.is_empty() { " " (self.reason) } }
    }
}

impl Standing {
    /// Its color and shape.
    pub(super) fn mood(&self) -> Mood {
        self.mood
    }

    /// The order of things by how much they need a person; the largest needs one most.
    pub(super) fn urgency(&self) -> Option<usize> {
        [Mood::OPEN, Mood::WARN, Mood::BAD].iter().position(|mood| *mood == self.mood)
    }

    /// The badge alone, where the reason stands elsewhere.
    pub(super) fn badge(&self) -> Markup {
        badge(&self.word, self.mood)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_holds_a_thing_comes_before_its_state() {
        let held = |reasons: &[&str]| {
            let holds: Vec<_> = reasons.iter().map(|reason| json!({ "reason": reason })).collect();
            Standing::of_subscription(&json!({ "state": "ACTIVE", "holds": holds }))
        };
        let source =
            |state, error| Standing::of_source(&json!({ "state": state, "last_error": error }));
        let job = |state, waiting: Value| {
            Standing::of_job(&json!({ "state": state, "matched": 84, "waiting": waiting }))
        };
        let failing =
            json!({ "state": "ACTIVE", "holds": [], "failing_since": "2026-01-31T12:00:00Z" });
        let delivery = |hold: Value| json!({ "state": "pending", "waiting": { "hold": hold } });
        let event = |deliveries: &[Value]| {
            Standing::of_event(&json!({ "status": "processing" }), deliveries)
        };
        let ended = json!({ "state": "completed", "waiting": null });
        for (standing, word, class, reason) in [
            (Standing::of_delivery(&delivery(Value::Null)), "pending", "open", ""),
            (Standing::of_delivery(&delivery(json!("paused"))), "held", "warn", "paused"),
            (event(&[ended.clone(), delivery(Value::Null)]), "processing", "open", ""),
            (Standing::of_event(&json!({ "status": "failed" }), &[]), "retrying", "warn", ""),
            (
                Standing::of_event(&json!({ "status": "failed", "provider": "shop" }), &[]),
                "dead_letter",
                "bad",
                "",
            ),
            (
                event(&[delivery(json!("breaker")), delivery(json!("auth")), ended]),
                "held",
                "bad",
                "credential refused",
            ),
            (held(&[]), "ACTIVE", "good", ""),
            (held(&["breaker"]), "held", "warn", "target failing"),
            (held(&["paused", "rejecting"]), "held", "bad", "paused, target refuses"),
            (held(&["auth"]), "held", "bad", "credential refused"),
            (Standing::of_subscription(&failing), "failing", "bad", ""),
            (source("ACTIVE", Value::Null), "ACTIVE", "good", ""),
            (source("ACTIVE", json!("it is gone")), "failing", "bad", "it is gone"),
            (source("PAUSED", json!("it is gone")), "PAUSED", "warn", ""),
            (job("running", Value::Null), "running", "open", ""),
            (job("completed", json!(84)), "pending", "warn", "84 of 84"),
            (job("completed", json!(0)), "completed", "good", ""),
            (job("completed", Value::Null), "completed", "good", ""),
        ] {
            assert_eq!(
                (standing.word.as_str(), standing.mood.class, standing.reason.as_str()),
                (word, class, reason)
            );
        }
    }
}
