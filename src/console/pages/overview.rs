//! The overview: is all well, and what needs a person?

use maud::{Markup, html};
use serde_json::Value;

use crate::console::charts::{heat, lines, strip};
use crate::console::elements::{empty, link, state, table, time, time_or, word};
use crate::console::error::PageError;
use crate::console::json::Fields as _;
use crate::console::page::{Content, Page};
use crate::console::view::View;
use crate::model::token::Right::Read;

pub(super) const PAGE: Page =
    Page { path: "/console/", menu: Some(|t| t.overview), right: Read, is_live: true, show };

fn show(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let stats = view.read("/v1/stats", &[])?;
    let escalations = view.read("/v1/escalations", &[("limit", "10")])?;
    let recent = view.read_or_null("/v1/stats/recent", &[]);
    let blocked = view.read_or_null("/v1/lanes", &[("blocked", "true"), ("limit", "20")]);
    let needs = escalations.items("items").len();
    let body = html! {
        @if needs == 0 { p.notice { (t.all_is_well) } }
        @else { p.error { (needs) " " (t.need_a_person) } }
        (figures(view, &stats, blocked.items("items").len()))
        (first_steps(view, &stats))
        h2 { (t.needs_a_person) }
        (open_escalations(view, &escalations))
        h2 { (t.last_hour) }
        (lines(view, recent.items("minutes")))
        (heat(view, recent.items("minutes"), recent.items("latency_bounds_ms")))
        (strips(view, &recent))
        h2 { (t.checks) }
        (checks(view))
    };
    Ok(Content::new(t.overview, body))
}

fn figures(view: &View<'_>, stats: &Value, blocked: usize) -> Markup {
    let t = view.t;
    let card = |name: &str, path: &str, count: i64| {
        html! {
            section.card { h2 { (name) } p.figure { a href=(path) { (count) } } }
        }
    };
    let blocked = i64::try_from(blocked).unwrap_or(i64::MAX);
    html! {
        div.cards {
            (card(t.waiting_deliveries, "/console/deliveries?state=pending", stats.int("pending")))
            (card(t.dead_letters, "/console/dead-letters", stats.int("dead_letters")))
            (card(t.quarantined, "/console/events?status=quarantined", stats.int("quarantined")))
            (card(t.blocked_lanes, "/console/lanes?blocked=true", blocked))
            (card(t.in_doubt, "/console/deliveries?state=in_doubt", stats.int("in_doubt")))
            section.card { h2 { (t.queue_age) }
                p { @match stats.maybe("oldest_due_at") { Some(at) => (time(at)), None => (t.nothing_is_late) } } }
        }
    }
}

/// What to do on the first visit; gone when all is done.
fn first_steps(view: &View<'_>, stats: &Value) -> Markup {
    let t = view.t;
    let has = |path: &str| !view.read_or_null(path, &[("limit", "1")]).items("items").is_empty();
    let has_subscription = stats.int("subscriptions") > 0;
    // With a subscription that has delivered and a channel, the box is set up: the other questions are not asked.
    let has_channel = has("/v1/alert-channels");
    let has_delivered = has_subscription && has("/v1/deliveries");
    if has_channel && has_delivered {
        return html! {};
    }
    let steps = [
        (t.step_provider, has("/v1/providers") || has("/v1/events")),
        (t.step_subscription, has_subscription),
        (t.step_test, has_delivered),
        (t.step_alert, has_channel),
    ];
    html! {
        h2 { (t.first_steps) }
        ol { @for (step, is_done) in steps { li { (step) " " (state(if is_done { "ok" } else { "open" })) } } }
    }
}

fn open_escalations(view: &View<'_>, found: &Value) -> Markup {
    let t = view.t;
    let rows: Vec<_> = found
        .items("items")
        .iter()
        .map(|row| {
            vec![
                html! { a href="/console/alerts" { (word(row.text("class"))) } },
                html! { (row.text("subject")) },
                html! { (row.text("detail")) },
                time_or(row.maybe("first_at")),
                html! { (row.int("count")) },
            ]
        })
        .collect();
    if rows.is_empty() {
        return empty(t.nobody_needed, "");
    }
    table(t.needs_a_person, &[t.kind, t.what, t.detail, t.since, t.count], &rows)
}

/// The latest attempts of each subscription.
fn strips(view: &View<'_>, recent: &Value) -> Markup {
    let t = view.t;
    let rows: Vec<_> = recent
        .items("subscriptions")
        .iter()
        .take(30)
        .map(|row| {
            let name = row.text("subscription");
            vec![link("subscriptions", name), strip(view, row.items("attempts"))]
        })
        .collect();
    html! {
        @if !rows.is_empty() { (table(t.last_attempts, &[t.subscription, t.last_attempts], &rows)) }
        @if let Some(since) = recent.maybe("since") { p.small { (t.counted_since) " " (time(since)) } }
    }
}

/// The checks of `/readyz`.
pub(super) fn checks(view: &View<'_>) -> Markup {
    let t = view.t;
    let found = view.checks();
    let rows: Vec<_> = found
        .items("checks")
        .iter()
        .map(|check| {
            vec![
                html! { (word(check.text("name"))) },
                state(check.text("state")),
                html! { (check.text("detail")) },
            ]
        })
        .collect();
    table(t.checks, &[t.check, t.state, t.detail], &rows)
}
