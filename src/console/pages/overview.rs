//! The overview: is all well, and what needs a person?

use maud::{Markup, html};
use serde_json::Value;

use crate::console::elements::{empty, state, table, time, time_or, word};
use crate::console::error::PageError;
use crate::console::json::Fields as _;
use crate::console::layout::Content;
use crate::console::pages::Page;
use crate::console::view::View;
use crate::model::token::Right::Read;

pub(super) const PAGE: Page =
    Page { path: "/console/", menu: Some(|t| t.overview), right: Read, is_live: true, show };

fn show(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let stats = view.read("/v1/stats", &[])?;
    let escalations = view.read("/v1/escalations", &[("limit", "10")])?;
    let body = html! {
        (figures(view, &stats))
        h2 { (t.needs_a_person) }
        (open_escalations(view, &escalations))
        h2 { (t.checks) }
        (checks(view))
    };
    Ok(Content::new(t.overview, body))
}

fn figures(view: &View<'_>, stats: &Value) -> Markup {
    let t = view.t;
    let card = |name: &str, path: &str, count: i64| {
        html! {
            section.card { h2 { (name) } p.figure { a href=(path) { (count) } } }
        }
    };
    html! {
        div.cards {
            (card(t.subscriptions, "/console/subscriptions", stats.int("subscriptions")))
            (card(t.waiting_deliveries, "/console/deliveries?state=pending", stats.int("pending")))
            (card(t.dead_letters, "/console/dead-letters", stats.int("dead_letters")))
            (card(t.quarantined, "/console/events?status=quarantined", stats.int("quarantined")))
            section.card { h2 { (t.queue_age) }
                p { @match stats.maybe("oldest_due_at") { Some(at) => (time(at)), None => (t.nothing_is_late) } } }
        }
    }
}

fn open_escalations(view: &View<'_>, found: &Value) -> Markup {
    let t = view.t;
    let rows: Vec<_> = found
        .items("items")
        .iter()
        .map(|row| {
            vec![
                html! { (word(row.text("class"))) },
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

fn checks(view: &View<'_>) -> Markup {
    let t = view.t;
    let found = view.read_or_null("/readyz", &[("verbose", "true")]);
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
