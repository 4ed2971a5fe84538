//! What pages are made of: times, states, tables, facts, buttons. All text is escaped by the template.

use maud::{Markup, PreEscaped, Render, html};
use serde_json::Value;

use crate::base::clock::Timestamp;
use crate::console::actions::Action;
use crate::console::form::{segment, with_query};
use crate::console::json::{Fields as _, indented};
use crate::console::page::View;
use crate::console::texts::Texts;
use crate::console::words::word;
use crate::model::json::carried;

/// How much is shown of a value in JSON: bytes of the page, which may show five.
const MAX_JSON_BYTES: usize = 16_000;

/// The most characters of an answer in a table that is not folded.
const MAX_UNFOLDED: usize = 160;

/// A time of the API (RFC 3339, UTC). The script shows it in the reader's zone.
pub(super) fn time(text: &str) -> Markup {
    let shown = text.get(..19).map(|start| start.replace('T', " "));
    html! {
        @match shown {
            Some(shown) => time datetime=(text) { (shown) " UTC" },
            None => (nothing()),
        }
    }
}

/// The zone of the times that are typed beside it. The script puts the reader's in its place.
pub(super) fn zone() -> Markup {
    html! { small.zone { "UTC" } }
}

/// A text in which times stand: they are shown as others are.
pub(super) fn told(text: &str) -> Markup {
    html! {
        @for (n, word) in text.split(' ').enumerate() {
            @if n > 0 { " " }
            @let (core, rest) = word.split_at_checked(24).unwrap_or((word, ""));
            @if core.len() == 24 && Timestamp::parse(core).is_some() { (time(core)) (rest) } @else { (word) }
        }
    }
}

/// A time of the API in milliseconds; 0 if it is none.
pub(super) fn millis(text: &str) -> i64 {
    Timestamp::parse(text).map_or(0, Timestamp::ms)
}

/// A whole number, in groups of three digits. The space between them is narrow and does not break (ISO 80000-1).
pub(super) fn number(number: i64) -> Markup {
    html! { span.number { (grouped(number)) } }
}

/// The same for a sentence.
pub(super) fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    let sign = if number < 0 { "−" } else { "" };
    format!("{sign}{}", groups.join("\u{202f}"))
}

/// How many there are, as [`grouped`].
pub(super) fn counted(count: usize) -> String {
    grouped(i64::try_from(count).unwrap_or(i64::MAX))
}

/// Milliseconds that something took. Number and unit stay together.
pub(super) fn took(ms: i64) -> Markup {
    html! { span.number { (grouped(ms)) "\u{202f}ms" } }
}

/// A text from elsewhere, which is folded if it is long.
pub(super) fn folded(text: &str) -> Markup {
    let start = text.char_indices().nth(MAX_UNFOLDED).and_then(|(end, _)| text.get(..end));
    html! {
        @match start {
            Some(start) => details.answer { summary { (told(start)) "…" } p { (told(text)) } },
            None => (told(text)),
        }
    }
}

/// An id with a button that copies it. The script shows its ends only.
pub(super) fn id(t: &Texts, text: &str) -> Markup {
    if text.is_empty() {
        return nothing();
    }
    html! { span.id { code { (text) } " " button.quiet.copy type="button" hidden { (t.copy) } } }
}

/// How long something takes or took, in its two largest units.
pub(super) fn span(ms: i64) -> String {
    let seconds = ms / 1000;
    let two = |first: i64, unit: &str, rest: i64, lower: &str| match rest {
        0 => format!("{first} {unit}"),
        rest => format!("{first} {unit} {rest} {lower}"),
    };
    match seconds {
        ..1 => format!("{} ms", ms.max(0)),
        1..60 => format!("{seconds} s"),
        60..3600 => two(seconds / 60, "min", seconds % 60, "s"),
        3600..86_400 => two(seconds / 3600, "h", seconds % 3600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

/// What stands where there is no value.
pub(super) fn nothing() -> Markup {
    html! { span.none { "–" } }
}

/// A text that may be missing.
pub(super) fn text_or(text: Option<&str>) -> Markup {
    html! { @match text { Some(text) => (text), None => (nothing()) } }
}

/// How good a state is: the color and the shape of its badge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mood {
    /// The class, which gives the color.
    pub(super) class: &'static str,
    /// For those who see no colors.
    pub(super) shape: &'static str,
}

impl Mood {
    const GOOD: Self = Self { class: "good", shape: "●" };
    pub(super) const OPEN: Self = Self { class: "open", shape: "◔" };
    /// It may pass by itself, or a person wanted it so.
    pub(super) const WARN: Self = Self { class: "warn", shape: "◆" };
    /// A person is needed.
    pub(super) const BAD: Self = Self { class: "bad", shape: "▲" };
    pub(super) const OFF: Self = Self { class: "off", shape: "■" };

    /// That of a state of the API.
    pub(super) fn of(state: &str) -> Self {
        match state {
            "completed" | "success" | "ACTIVE" | "active" | "ok" | "SUCCESS" | "accepted"
            | "done" | "up" => Self::GOOD,
            "pending" | "processing" | "received" | "leased" | "waiting" | "running" | "next"
            | "open" | "retiring" => Self::OPEN,
            "dead_letter" | "failed" | "FAILED_END" | "DISABLED_DEAD" | "fail" | "critical"
            | "failing" | "FAILURE" | "quarantined" | "poison" | "gone" | "validation" | "auth"
            | "refused" | "away" => Self::BAD,
            "PAUSED" | "paused" | "retrying" | "transient" | "rate_limited" | "warn"
            | "warning" | "in_doubt" | "parked" | "DENIED" | "blocked" | "held" => Self::WARN,
            _ => Self::OFF,
        }
    }
}

/// A state, by text and shape.
pub(super) fn state(text: &str) -> Markup {
    badge(text, Mood::of(text))
}

/// The same with a mood of its own.
pub(super) fn badge(text: &str, mood: Mood) -> Markup {
    let Mood { class, shape } = mood;
    html! { span class={ "state " (class) } { span aria-hidden="true" { (shape) } " " (word(text)) } }
}

/// Names with their values. Those without a value are left out.
pub(super) fn facts(rows: &[(&str, Markup)]) -> Markup {
    let none = nothing().0;
    html! {
        dl.facts { @for (name, value) in rows.iter().filter(|(_, value)| value.0 != none) { div { dt { (name) } dd { (value) } } } }
    }
}

/// A table. Its caption says what it lists; on a narrow screen each row becomes a card.
pub(super) fn table(caption: &str, heads: &[&str], rows: &[Vec<Markup>]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(caption) {
            table {
                caption { (caption) }
                thead { tr { @for head in heads { th scope="col" { (head) } } } }
                tbody {
                    @for row in rows {
                        tr { @for (cell, head) in row.iter().zip(heads) { td data-head=(head) { (cell) } } }
                    }
                }
            }
        }
    }
}

/// Note in the place of an empty list: a sentence, and a hint at the next step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EmptyNote<'a> {
    pub(super) text: &'a str,
    pub(super) hint: &'a str,
}

impl Render for EmptyNote<'_> {
    fn render(&self) -> Markup {
        html! { div.empty { p { (self.text) } @if !self.hint.is_empty() { p.small { (self.hint) } } } }
    }
}

/// A link to a page of one thing: `/console/events/{id}`.
pub(super) fn link(kind: &str, id: &str) -> Markup {
    html! { a href={ "/console/" (kind) "/" (segment(id)) } { (id) } }
}

/// The event or webhook event that a delivery is for.
pub(super) fn link_of(delivery: &Value) -> Markup {
    let kind = if delivery.text("of") == "webhook_event" { "webhooks" } else { "events" };
    html! { a href={ "/console/" (kind) "/" (segment(delivery.text("event_id"))) } { (name_of(delivery)) } }
}

/// The page of an event, by what people call it.
pub(super) fn link_to_event(event: &Value) -> Markup {
    html! { a href={ "/console/events/" (segment(event.text("id"))) } { (name_of(event)) } }
}

/// What people call an event: its aggregate, else its key.
pub(super) fn name_of(event: &Value) -> String {
    match (event.maybe("aggregate_type"), event.maybe("aggregate_id")) {
        (Some(kind), Some(id)) => format!("{kind} {id}"),
        (None, Some(id)) => id.to_owned(),
        _ => ["key", "provider_event_id", "idempotency_key", "event_id", "id"]
            .iter()
            .find_map(|name| event.maybe(name))
            .unwrap_or_default()
            .to_owned(),
    }
}

/// A text with a button that copies it.
pub(super) fn code(view: &View<'_>, text: &str) -> Markup {
    html! { div.code { pre tabindex="0" { code { (text) } } button.quiet.copy type="button" hidden { (view.t.copy) } } }
}

/// The beginning of a text that takes at most `most` bytes of a page, and whether that is all.
pub(super) fn beginning(text: &str, most: usize) -> (&str, bool) {
    let mut left = most;
    for (end, c) in text.char_indices() {
        let escaped = match c {
            '"' => 6,
            '&' => 5,
            '<' | '>' => 4,
            c => c.len_utf8(),
        };
        let Some(rest) = left.checked_sub(escaped) else {
            return (text.get(..end).unwrap_or(text), false);
        };
        left = rest;
    }
    (text, true)
}

/// The beginning of a text, which ends with … if that is not all.
pub(super) fn cut(text: &str, most: usize) -> Markup {
    let (shown, is_all) = beginning(text, most);
    html! { (shown) @if !is_all { "…" } }
}

/// JSON with indents: as much of it as a page shows.
pub(super) fn json(view: &View<'_>, value: &Value) -> Markup {
    let text = indented(&carried::written(value), MAX_JSON_BYTES);
    let (shown, is_all) = beginning(&text, MAX_JSON_BYTES);
    html! { (code(view, shown)) @if !is_all { p.small { (view.t.payload_cut) } } }
}

/// The button of an action. If the action asks first, it is a link to that page; otherwise it acts at once.
/// Nothing is shown to a person whose role does not allow it.
pub(super) fn button(view: &View<'_>, action: &'static Action, given: &[(&str, &str)]) -> Markup {
    let back = with_query(&view.head.path, view.query.pairs().filter(|(name, _)| *name != "did"));
    button_to(view, action, given, (action.label)(view.t), &back)
}

/// The same with a label of its own, and the page that follows.
pub(super) fn button_to(
    view: &View<'_>,
    action: &'static Action,
    given: &[(&str, &str)],
    label: &str,
    back: &str,
) -> Markup {
    if !view.may(action.right) {
        return html! {};
    }
    let path = format!("/console/act/{}", action.name);
    if action.asks_first() {
        let given = given.iter().copied().chain([("back", back)]);
        return html! { a class={ "button " (action.class()) } href=(with_query(&path, given)) { (label) } };
    }
    html! {
        form.inline method="post" action=(path) {
            (hidden(view, back))
            @for (name, value) in given { input type="hidden" name=(name) value=(value); }
            button class=(action.class()) type="submit" { (label) }
        }
    }
}

/// The form of a table whose rows have a button for the same action: a form in each row would say the same again and again.
pub(super) fn row_form(view: &View<'_>, action: &'static Action) -> Markup {
    let back = with_query(&view.head.path, view.query.pairs().filter(|(name, _)| *name != "did"));
    html! {
        @if view.may(action.right) {
            form id=(action.name) method="post" action={ "/console/act/" (action.name) } { (hidden(view, &back)) }
        }
    }
}

/// The button of a row that sends [`row_form`] with this value.
pub(super) fn row_button(view: &View<'_>, action: &'static Action, given: (&str, &str)) -> Markup {
    let (name, value) = given;
    html! {
        @if view.may(action.right) {
            button class=[Some(action.class()).filter(|class| !class.is_empty())] type="submit" form=(action.name) name=(name) value=(value) {
                ((action.label)(view.t))
            }
        }
    }
}

/// Deliveries of a job that wait because their subscriptions are held: how many, which hold, and since when.
pub(super) fn held_back(view: &View<'_>, job: &Value) -> Markup {
    let t = view.t;
    html! {
        @for held in job.items("held") {
            @let hold = held.field("hold");
            p.notice.warn {
                strong { (number(held.int("count"))) " " (t.of_them_wait) } ": "
                (link("subscriptions", held.text("subscription"))) " " (t.is_held) " (" (word(hold.text("reason"))) "), "
                (t.since.to_lowercase()) " " (time(hold.text("since"))) ": " (told(hold.text("detail")))
            }
        }
    }
}

/// The fields that every form carries.
pub(super) fn hidden(view: &View<'_>, back: &str) -> Markup {
    html! {
        input type="hidden" name="csrf" value=(view.csrf());
        input type="hidden" name="form" value=(view.form_number());
        input type="hidden" name="back" value=(back);
    }
}

/// SVG that a page draws itself.
pub(super) struct Svg(pub(super) String);

impl Render for Svg {
    fn render(&self) -> Markup {
        PreEscaped(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::{folded, grouped, span};

    #[test]
    fn numbers_stand_in_groups_and_long_answers_are_folded() {
        let shown = [0, 999, 1_234, -1_234_567].map(grouped);
        assert_eq!(shown, ["0", "999", "1\u{202f}234", "−1\u{202f}234\u{202f}567"]);
        assert!(!folded(&"ä".repeat(160)).0.contains("<details"));
        assert!(folded(&"ä".repeat(161)).0.contains("<details"));
    }

    #[test]
    fn a_span_has_its_two_largest_units() {
        for (ms, text) in [
            (-5, "0 ms"),
            (850, "850 ms"),
            (12_900, "12 s"),
            (60_000, "1 min"),
            (3_599_000, "59 min 59 s"),
            (12_000_000, "3 h 20 min"),
            (187_200_000, "2 d 4 h"),
        ] {
            assert_eq!(span(ms), text);
        }
    }
}
