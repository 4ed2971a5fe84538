//! Search: one box finds events, webhooks, deliveries, and what has a name.

use crate::console::prelude::*;

pub(super) const PAGE: Page = Page::new("/console/search", Read, show);

fn show(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let Some(q) = view.query.get("q") else {
        return Ok(Content::new(t.search_results, empty(t.search_hint, t.search_help)));
    };
    let found = view.read("/v1/search", &[("q", q)])?;
    let rows = found.each("items", |row| {
        let kind = row.text("kind");
        let page = match kind {
            "webhook_event" => "webhooks",
            "delivery" => "deliveries",
            "subscription" => "subscriptions",
            "provider" => "providers",
            "source" => "sources",
            _ => "events",
        };
        vec![
            html! { a href={ "/console/" (page) "/" (segment(row.text("id"))) } { (row.text("value")) } },
            html! { (word(kind)) },
            html! { (row.text("event_type")) },
            row.maybe("status").map_or_else(Default::default, state),
            time_or(row.maybe("at")),
            html! { (word(row.text("matched"))) },
        ]
    });
    let heads = [t.search_found, t.kind, t.event_type, t.state, t.at, t.matched];
    let body = html! {
        @if rows.is_empty() {
            (empty(&format!("{} {q}.", t.search_nothing), t.search_help))
            p { (t.search_lists)
                @for (path, name) in [("events", t.events), ("webhooks", t.received), ("deliveries", t.deliveries)] {
                    " " a href={ "/console/" (path) } { (name) }
                } }
        }
        @else { (table(&format!("{}: {q}", t.search_results), &heads, &rows)) }
        @if found.is("more") { p.small { (t.search_more) } }
    };
    Ok(Content::new(format!("{}: {q}", t.search_results), body))
}
