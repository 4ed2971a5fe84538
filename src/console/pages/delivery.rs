//! One delivery: its life, the request and the answer; and its card on the page of its event.

use serde_json::value::RawValue;

use crate::console::elements::button_to;
use crate::console::json::indented;
use crate::console::pages::dead_letters::page_of_kind;
use crate::console::prelude::*;
use crate::console::story;
use crate::console::timeline::Timeline;

/// How much is shown of a request, and of an answer: bytes of the page.
const MAX_BODY_BYTES: usize = 12_000;
/// Attempts that are shown at once on the page of a delivery: the newest, and a link to the others.
const MAX_ATTEMPTS: i64 = 30;

pub(super) fn show(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let after = view.query.get("after").and_then(|after| after.parse().ok());
    let found = Timeline::read(view, view.param(0), MAX_ATTEMPTS, after);
    let timeline = found.ok_or_else(|| PageError::not_found(t))?;
    let delivery = &timeline.delivery;
    let known = Cells(
        &[
            cell("event"),
            cell("event_type"),
            cell("lane"),
            cell("runs").of("run_no"),
            cell("attempts"),
        ],
        &[
            ("event", &link_of),
            ("lane", &|of| of.maybe("lane").map_or_else(nothing, |lane| link("lanes", lane))),
            (
                "attempts",
                &|of| html! { (number(of.int("attempt_count"))) " (" (number(of.int("counted_failures"))) " " (t.counted) ")" },
            ),
        ],
    );
    let body = html! {
        div.story { p { (story::of_delivery(t, delivery, timeline.last())) } }
        (actions_of(view, delivery))
        (kind_of(view, delivery))
        (known.facts(view, delivery))
        h2 { (t.what_happened) }
        (timeline.show(view))
        (timeline.pager(view, MAX_ATTEMPTS))
        h2 { (t.exchange) }
        div.sides { (request(view, &timeline, None)) (answer(view, &timeline)) }
    };
    let title = format!("{} {}: {}", t.delivery, delivery.text("id"), name_of(delivery));
    Ok(Content::new(title, body).badge(html! { (Standing::of_delivery(delivery)) }))
}

/// The card of a delivery on the page of its event.
pub(super) fn card(view: &View<'_>, timeline: &Timeline, most: i64) -> Markup {
    let delivery = &timeline.delivery;
    html! {
        section.card {
            h3 {
                (link("subscriptions", delivery.text("subscription"))) " " (Standing::of_delivery(delivery)) " "
                small { a href={ "/console/deliveries/" (segment(delivery.text("id"))) } { (view.t.delivery) " " (delivery.text("id")) } }
            }
            (timeline.show(view))
            (timeline.pager(view, most))
            (kind_of(view, delivery))
            (actions_of(view, delivery))
        }
    }
}

/// The buttons of a delivery: what the API would not refuse in its state.
fn actions_of(view: &View<'_>, delivery: &Value) -> Markup {
    let given = [("id", delivery.text("id"))];
    let is = |states: &[&str]| states.contains(&delivery.text("state"));
    let is_idle = delivery.maybe("in_flight_since").is_none();
    let may_correct = is_idle && delivery.text("of") == "event";
    html! {
        div.actions {
            @if may_correct && is(&["pending", "parked", "dead_letter"]) { (correct(view, delivery)) }
            @if is(&["pending", "leased", "dead_letter", "skipped", "cancelled"]) { (button(view, &actions::RETRY_DELIVERY, &given)) }
            @if is(&["pending"]) && delivery.maybe("lane").is_some() { (button(view, &actions::PARK, &given)) }
            @if is(&["parked", "in_doubt"]) { (button(view, &actions::RELEASE, &given)) }
            @if is(&["pending", "dead_letter", "parked", "in_doubt"]) { (button(view, &actions::SKIP, &given)) }
            @if is(&["pending", "leased", "waiting", "dead_letter", "parked", "in_doubt"]) { (button(view, &actions::CANCEL_DELIVERY, &given)) }
        }
    }
}

/// The button to send another payload. Who has corrected a dead letter comes to the others of its kind.
fn correct(view: &View<'_>, delivery: &Value) -> Markup {
    let action = &actions::EDIT_AND_RESEND;
    let given = [("id", delivery.text("id"))];
    match page_of_kind(delivery) {
        Some(kind) => button_to(view, action, &given, (action.label)(view.t), &kind),
        None => button(view, action, &given),
    }
}

/// A link to the dead letters of the same kind.
fn kind_of(view: &View<'_>, delivery: &Value) -> Markup {
    let kind = page_of_kind(delivery);
    html! { @if let Some(kind) = kind { p { a href=(kind) { (view.t.of_this_kind) } } } }
}

/// The request as an attempt sends it, and as a curl command. `payload_hash`: that of a payload that stands beside it, which is
/// not shown twice.
pub(super) fn request(view: &View<'_>, timeline: &Timeline, payload_hash: Option<&str>) -> Markup {
    let t = view.t;
    let path = format!("/v1/deliveries/{}/request", segment(timeline.delivery.text("id")));
    let found = match view.read(&path, &[]) {
        Ok(found) => found,
        Err(error) => return panel(t.request_as_sent, html! { p.small { (error.detail) } }),
    };
    let mut raw = format!("{} {}\n", found.text("method"), found.text("url"));
    for field in found.items("headers") {
        for part in [field.text("name"), ": ", field.text("value"), "\n"] {
            raw.push_str(part);
        }
    }
    let is_sent = !found.field("attempt").is_null();
    let hash = timeline.last().filter(|_| is_sent).and_then(|last| last.maybe("body_sha256"));
    let is_beside = hash.is_some() && hash == payload_hash;
    let text = found.maybe("body").or_else(|| found.maybe("body_base64")).unwrap_or_default();
    let (body, is_all) = beginning(text, MAX_BODY_BYTES);
    raw.push('\n');
    raw.push_str(if is_beside { t.payload_beside } else { body });
    let about = match (is_sent, found.is("erased")) {
        (false, _) => t.request_about,
        (true, false) => t.request_sent_about,
        (true, true) => t.request_erased_about,
    };
    let shown = html! {
        p.small { (about) }
        (code(view, &raw))
        @if !is_all && !is_beside { p.small { (t.payload_cut) } }
        @if let Some(hash) = hash.filter(|_| !is_beside) { p.small { "SHA-256 " code { (hash) } } }
        @if !found.text("curl").is_empty() {
            details #curl { summary { (t.as_curl) } (code(view, found.text("curl"))) }
        }
    };
    panel(t.request_as_sent, shown)
}

/// The answer to the newest attempt that is shown.
pub(super) fn answer(view: &View<'_>, timeline: &Timeline) -> Markup {
    let t = view.t;
    let Some(last) = timeline.last() else {
        return panel(t.they_said, html! { p.small { (t.no_attempts) } });
    };
    let said = last.first_of(&["excerpt", "failed_reason"]);
    let shown = html! {
        p {
            @if let Some(status) = last.field("http_status").as_i64() { strong { (status) } " " }
            (state(last.text("class"))) " "
            small { (time(last.text("finished_at"))) ", " (t.took_small) " " (took(last.int("latency_ms"))) }
        }
        @if said.is_empty() { p.small { (t.said_nothing) } } @else { (code(view, beginning(&readable_answer(said), MAX_BODY_BYTES).0)) }
        @if let Some(url) = last.maybe("url") { p.small { (t.sent_to) " " code { (url) } } }
    };
    panel(t.they_said, shown)
}

/// The excerpt of an answer: JSON with indents, anything else as it is.
fn readable_answer(said: &str) -> String {
    let is_json = serde_json::from_str::<&RawValue>(said).is_ok();
    if is_json { indented(said, MAX_BODY_BYTES) } else { said.to_owned() }
}

/// One of several texts that stand side by side.
pub(super) fn panel(title: &str, content: Markup) -> Markup {
    html! { section { h3 { (title) } (content) } }
}
