//! The lists of events, webhook events and deliveries. Filters stand in the URL.

use crate::console::elements::{Filter, filters};
use crate::console::prelude::*;

pub(super) const EVENTS: Page = Page::new("/console/events", Read, events).menu(|t| t.events);
pub(super) const RECEIVED: Page =
    Page::new("/console/webhooks", Read, received).menu(|t| t.received);
pub(super) const DELIVERIES: Page =
    Page::new("/console/deliveries", Read, deliveries).menu(|t| t.deliveries);

const EVENT_STATES: &[&str] = &[
    "pending",
    "processing",
    "completed",
    "failed",
    "dead_letter",
    "cancelled",
    "skipped",
    "quarantined",
];
const WEBHOOK_STATES: &[&str] = &["received", "processing", "completed", "failed", "skipped"];
pub(super) const DELIVERY_STATES: &[&str] = &[
    "pending",
    "leased",
    "waiting",
    "parked",
    "in_doubt",
    "completed",
    "dead_letter",
    "skipped",
    "cancelled",
];

/// The parameters of the API's list that the URL of a page gives.
fn given<'a>(view: &'a View<'_>, names: &[&'static str]) -> Vec<(&'static str, &'a str)> {
    names.iter().filter_map(|name| Some((*name, view.query.get(name)?))).collect()
}

fn events(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let query = given(view, &["status", "event_type", "aggregate_id", "since", "until", "after"]);
    let found = view.read("/v1/events", &query)?;
    let rows = found.each("items", |row| {
        vec![
            html! { a href={ "/console/events/" (segment(row.text("id"))) } { (name_of(row)) } },
            html! { (row.text("event_type")) },
            state(row.text("status")),
            time(row.text("received_at")),
            html! { (row.text("source_system")) },
            text_or(row.maybe("last_error")),
        ]
    });
    let body = html! {
        (filters(view, &[
            ("status", t.state, Filter::Choice(EVENT_STATES)),
            ("event_type", t.event_type, Filter::Text),
            ("aggregate_id", t.aggregate_id, Filter::Text),
            ("since", t.since, Filter::Time),
            ("until", t.until, Filter::Time),
        ]))
        @if rows.is_empty() { (empty(t.no_events, t.no_events_help)) }
        @else { (table(t.events, &[t.name, t.event_type, t.state, t.at, t.source, t.error], &rows)) }
        (pager(view, &found))
    };
    Ok(Content::new(t.events, body))
}

fn received(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let query = given(view, &["status", "provider", "event_type", "since", "until", "after"]);
    let found = view.read("/v1/webhook-events", &query)?;
    let rows = found.each("items", |row| {
        let provider = row.text("provider");
        vec![
            html! { a href={ "/console/webhooks/" (segment(row.text("id"))) } { (row.text("provider_event_id")) } },
            html! { (provider) },
            html! { (row.text("event_type")) },
            state(row.text("status")),
            time(row.text("received_at")),
            html! { (row.int("duplicate_count")) },
        ]
    });
    let now = view.inner().api.clock.wall().to_string();
    let midnight = format!("{}T00:00:00Z", now.get(..10).unwrap_or_default());
    let provider = view.query.get("provider").unwrap_or_default();
    let today = with_query(&view.head.path, [("provider", provider), ("since", midnight.as_str())]);
    let providers = view.read_or_null("/v1/providers", &[]);
    let names: Vec<&str> = providers.items("items").iter().map(|row| row.text("name")).collect();
    let body = html! {
        (filters(view, &[
            ("provider", t.provider, Filter::Choice(&names)),
            ("status", t.state, Filter::Choice(WEBHOOK_STATES)),
            ("event_type", t.event_type, Filter::Text),
            ("since", t.since, Filter::Time),
            ("until", t.until, Filter::Time),
        ]))
        p { a href=(today) { (t.today) " (UTC)" } }
        @if rows.is_empty() { (empty(t.no_webhooks, t.no_webhooks_help)) }
        @else { (table(t.accepted, &[t.provider_id, t.provider, t.event_type, t.state, t.at, t.repeated], &rows)) }
        (pager(view, &found))
        (refused(view))
    };
    Ok(Content::new(t.received, body))
}

/// What came in and was not taken, with why.
fn refused(view: &View<'_>) -> Markup {
    let t = view.t;
    let found = view.read_or_null("/v1/refused-webhooks", &[]);
    let wanted = view.query.get("provider");
    let from = view.query.get("since").unwrap_or_default();
    let all = found.items("items").iter();
    let rows: Vec<_> = all
        .filter(|row| wanted.is_none_or(|wanted| row.text("provider") == wanted))
        // Times of the API have one form, so they compare as text.
        .filter(|row| row.text("last_at") >= from)
        .take(100)
        .map(|row| {
            vec![
                html! { (row.text("provider")) },
                html! { (row.text("reason")) },
                html! { (row.int("status")) },
                html! { (row.text("address")) },
                time(row.text("last_at")),
                html! { (row.int("count")) },
            ]
        })
        .collect();
    html! {
        h2 { (t.refused) }
        @if rows.is_empty() { (empty(t.nothing_refused, "")) }
        @else { (table(t.refused, &[t.provider, t.reason, t.answer, t.address, t.at, t.count], &rows)) }
        @if let Some(since) = found.maybe("since") { p.small { (t.counted_since) " " (time(since)) } }
    }
}

fn deliveries(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let query = given(view, &["state", "subscription", "since", "until", "after"]);
    let found = view.read("/v1/deliveries", &query)?;
    let rows = found.each("items", |row| {
        vec![
            link("deliveries", row.text("id")),
            link_of(row),
            html! { (row.text("event_type")) },
            link("subscriptions", row.text("subscription")),
            state(row.text("state")),
            html! { (row.int("attempt_count")) },
            time(row.first_of(&["due_at", "finished_at"])),
        ]
    });
    let subscriptions = view.read_or_null("/v1/subscriptions", &[("limit", "200")]);
    let names: Vec<&str> =
        subscriptions.items("items").iter().map(|row| row.text("name")).collect();
    let heads =
        [t.delivery, t.event, t.event_type, t.subscription, t.state, t.attempts, t.due_or_done];
    let body = html! {
        (filters(view, &[
            ("state", t.state, Filter::Choice(DELIVERY_STATES)),
            ("subscription", t.subscription, Filter::Choice(&names)),
            ("since", t.since, Filter::Time),
            ("until", t.until, Filter::Time),
        ]))
        @if rows.is_empty() { (empty(t.no_deliveries, t.no_deliveries_help)) }
        @else { (table(t.deliveries, &heads, &rows)) }
        (pager(view, &found))
    };
    Ok(Content::new(t.deliveries, body))
}
