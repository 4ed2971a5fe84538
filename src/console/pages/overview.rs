//! The overview: is all well, and what needs a person?

use crate::console::actions::{self, Action};
use crate::console::charts::{heat, lines, strip};
use crate::console::prelude::*;
use crate::model::health::bytes;

/// Checks whose finding stands on the page already.
const TOLD: [&str; 4] = ["dead_letters", "quarantined", "escalations", "subscriptions"];

pub(super) fn show(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let stats = view.read("/v1/stats", &[])?;
    let escalations = view.read("/v1/escalations", &[("limit", "10")])?;
    let recent = view.read_or_null("/v1/stats/recent", &[]);
    let found = view.checks();
    let body = html! {
        (verdicts(view, &stats, &escalations, &found))
        (figures(view, &stats, &recent, &found))
        (first_steps(view, &stats))
        h2 { (t.last_hour) }
        @if sum(&recent, &["events", "webhooks", "delivered", "failed"]) == 0 { p { (t.quiet_hour) } }
        @else {
            (lines(view, recent.items("minutes")))
            (heat(view, recent.items("minutes"), recent.items("latency_bounds_ms")))
        }
        (strips(view, &recent))
        h2 #checks { (t.checks) }
        (checks(view, &found))
    };
    Ok(Content::new(t.overview, body))
}

/// One line for each thing that needs a person, with a link to it.
fn verdicts(view: &View<'_>, stats: &Value, escalations: &Value, found: &Value) -> Markup {
    let t = view.t;
    let blocked = view.read_or_null("/v1/lanes", &[("blocked", "true"), ("limit", "20")]);
    let listed = |list: &Value| (list.items("items").len(), list.maybe("next").is_some());
    let counted = |name: &str| (usize::try_from(stats.int(name)).unwrap_or(0), false);
    let things = [
        (counted("dead_letters"), t.dead_need, "/console/dead-letters"),
        (listed(&blocked), t.lanes_blocked, "/console/lanes?blocked=true"),
        (counted("in_doubt"), t.are_in_doubt, "/console/deliveries?state=in_doubt"),
        (counted("quarantined"), t.are_unusable, "/console/events?status=quarantined"),
    ];
    let mut rows: Vec<(&str, Markup)> = Vec::new();
    for ((count, more), texts, path) in things.into_iter().filter(|((count, _), ..)| *count > 0) {
        let (one, many) = texts.split_once('|').unwrap_or_default();
        let text = if count == 1 { one } else { many };
        let plus = if more { "+" } else { "" };
        rows.push(("bad", html! { a href=(path) { (count) (plus) " " (text) } }));
    }
    let is_new = |row: &&Value| row.text("class") != "delivery.dead_lettered";
    for row in escalations.items("items").iter().filter(is_new) {
        let name = row.text("subject").strip_prefix("subscription:");
        let path = name.map(|name| format!("/console/subscriptions/{}", segment(name)));
        let what =
            html! { (word(row.text("class"))) ": " (name.unwrap_or_else(|| row.text("subject"))) };
        rows.push((
            "bad",
            html! {
                a href=(path.as_deref().unwrap_or("/console/alerts")) { (what) } " "
                (told(row.text("detail"))) " · " (t.since) " " (time(row.text("first_at")))
            },
        ));
    }
    let is_new =
        |check: &&Value| check.text("state") != "ok" && !TOLD.contains(&check.text("name"));
    for check in found.items("checks").iter().filter(is_new) {
        let mark = if check.text("state") == "fail" { "bad" } else { "warn" };
        let name = word(check.text("name"));
        rows.push((mark, html! { a href="#checks" { (name) } ": " (told(check.text("detail"))) }));
    }
    if stats.get("pii_stated") == Some(&Value::Bool(false)) {
        rows.push(("warn", html! { (t.pii_unstated) }));
    }
    html! {
        @if rows.is_empty() { p.notice { (t.all_is_well) " " (t.nobody_needed) } }
        @else {
            ul.verdicts aria-label=(t.needs_a_person) {
                @for (mark, row) in &rows {
                    li class=(mark) { span aria-hidden="true" { (if *mark == "bad" { "▲" } else { "◆" }) } span { (row) } }
                }
            }
        }
    }
}

/// A sum over the last hour.
fn sum(recent: &Value, names: &[&str]) -> i64 {
    let each = |row: &Value| names.iter().map(|name| row.int(name)).sum::<i64>();
    recent.items("minutes").iter().map(each).sum()
}

fn figures(view: &View<'_>, stats: &Value, recent: &Value, found: &Value) -> Markup {
    let t = view.t;
    let late = stats.maybe("oldest_due_at").map(|at| millis(stats.text("now")) - millis(at));
    let late = late.filter(|late| *late >= 1000);
    let disk = found.items("checks").iter().find(|check| check.text("name") == "disk");
    let disk = disk.map(|check| check.field("value"));
    let card = |name: &str, path: &str, figure: Markup, about: Markup| {
        html! { section.card { h2 { (name) } p.figure { a href=(path) { (figure) } } p.small { (about) } } }
    };
    html! {
        div.cards {
            (card(t.waiting_deliveries, "/console/deliveries?state=pending", html! { (stats.int("pending")) }, html! {
                @match late { Some(late) => { (t.queue_age) " " (span(late)) }, None => (t.nothing_is_late) }
            }))
            (card(t.accepted_in_hour, "/console/events", html! { (sum(recent, &["events", "webhooks"])) }, html! {
                (sum(recent, &["events"])) " " (t.events_small) ", " (sum(recent, &["webhooks"])) " " (t.webhooks_small)
            }))
            (card(t.delivered_in_hour, "/console/deliveries?state=completed", html! { (sum(recent, &["delivered"])) }, html! {
                (sum(recent, &["failed"])) " " (t.failed_attempts)
            }))
            @if let Some(free) = disk.and_then(|disk| disk.field("free_bytes").as_u64()) {
                (card(t.disk_free, "#checks", html! { (bytes(free)) }, html! {
                    @match disk.and_then(|disk| disk.field("lasts_seconds").as_i64()) {
                        Some(seconds) => { (t.disk_lasts) " " (span(seconds.saturating_mul(1000))) },
                        None => (t.disk_steady),
                    }
                }))
            }
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
    let form = |action: &Action| {
        let path = format!("/console/act/{}", action.name);
        view.may(action.right).then(|| with_query(&path, [("back", "/console/")]))
    };
    let steps = [
        (
            t.step_provider,
            Some("/console/sources".to_owned()),
            has("/v1/providers") || has("/v1/events"),
        ),
        (t.step_subscription, form(&actions::CREATE_SUBSCRIPTION), has_subscription),
        (t.step_test, has_subscription.then(|| "/console/subscriptions".to_owned()), has_delivered),
        (t.step_alert, form(&actions::CREATE_CHANNEL), has_channel),
    ];
    html! {
        h2 { (t.first_steps) }
        ol.steps {
            @for (step, path, is_done) in steps {
                li {
                    @match path.filter(|_| !is_done) { Some(path) => a href=(path) { (step) }, None => (step) }
                    " " (state(if is_done { "done" } else { "open" }))
                }
            }
        }
    }
}

/// The latest attempts of each subscription.
fn strips(view: &View<'_>, recent: &Value) -> Markup {
    let t = view.t;
    let rows: Vec<_> = recent.items("subscriptions").iter().take(30).cloned().collect();
    let good = |row: &Value| {
        row.items("attempts").iter().filter(|row| row.text("class") == "success").count()
    };
    let cells = Cells(
        "subscription = link subscriptions subscription; last_attempts; succeeded",
        &[
            ("last_attempts", &|row| strip(view, row.items("attempts"))),
            ("succeeded", &|row| html! { (good(row)) " / " (row.items("attempts").len()) }),
        ],
    );
    html! {
        @if !rows.is_empty() {
            h2 { (t.last_attempts_of) }
            (cells.table(view, t.last_attempts_of, &rows, ("", "")))
        }
        @if let Some(since) = recent.maybe("since") { p.small { (t.counted_since) " " (time(since)) } }
    }
}

/// The checks of `/readyz`.
pub(super) fn checks(view: &View<'_>, found: &Value) -> Markup {
    let cells = Cells("check = word name; state = state state; detail", &[]);
    cells.table(view, view.t.checks, found.items("checks"), ("", ""))
}
