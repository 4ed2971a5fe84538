//! The lists of events, event types, webhook events and deliveries, and the search. Filters stand in the URL.

use crate::console::elements::link_to_event;
use crate::console::prelude::*;
use crate::model::{delivery, event, webhook_event};

/// The longest example that a form is filled with.
const MAX_EXAMPLE_BYTES: usize = 2_000;
/// How much a list shows of a description.
const MAX_DESCRIPTION_BYTES: usize = 400;

pub(super) fn events(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let fields = [
        ("status", t.state, FilterInput::States(&event::Status::ALL.map(event::Status::as_str))),
        ("event_type", t.event_type, FilterInput::Text),
        ("aggregate_type", t.aggregate_type, FilterInput::Text),
        ("aggregate_id", t.aggregate_id, FilterInput::Text),
        ("since", t.since, FilterInput::Time),
        ("until", t.until, FilterInput::Time),
    ];
    let own = view.query.get("operational").map(|own| ("operational", own));
    let cells = Cells(
        &[
            cell("name"),
            cell("event_type"),
            cell("state"),
            cell("at").time("received_at"),
            cell("source").of("source_system"),
            cell("error").filled("last_error"),
            cell("key").code("idempotency_key").further(),
            cell("completed").time("completed_at").further(),
            cell("occurred").time("occurred_at").further(),
            cell("id").id("id").further(),
        ],
        &[("name", &link_to_event), ("state", &badge_of_event)],
    );
    let empty = EmptyNote { text: t.no_events, hint: t.no_events_help };
    let always = own.as_slice();
    let list = List { filters: &fields, always, ..List::new(t.events, "/v1/events", cells, empty) };
    let listed = list.read(view)?;
    let body = html! { (listed) (with_own(view, &fields.map(|(name, ..)| name))) };
    Ok(listed.page(t.events, body))
}

/// How an event of a list stands.
pub(super) fn badge_of_event(event: &Value) -> Markup {
    Standing::of_event(event, &[]).badge()
}

/// A link to the same page with operational events. It keeps these parameters of the query.
fn with_own(view: &View<'_>, names: &[&str]) -> Markup {
    let given = names.iter().filter_map(|name| Some((*name, view.query.get(name)?)));
    let query = given.chain([("operational", "true")]);
    html! { p { a href=(with_query(&view.head.path, query)) { (view.t.with_own) } } }
}

pub(super) fn received(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let providers = view.read_or_null("/v1/providers", &[]);
    let fields = [
        ("provider", t.provider, FilterInput::Choice(&names(&providers))),
        (
            "status",
            t.state,
            FilterInput::States(&webhook_event::Status::ALL.map(webhook_event::Status::as_str)),
        ),
        ("event_type", t.event_type, FilterInput::Text),
        ("since", t.since, FilterInput::Time),
        ("until", t.until, FilterInput::Time),
    ];
    let cells = Cells(
        &[
            cell("provider_id"),
            cell("provider"),
            cell("event_type"),
            cell("state"),
            cell("at").time("received_at"),
            cell("repeated").of("duplicate_count"),
            cell("completed").time("completed_at").further(),
            cell("id").id("id").further(),
        ],
        &[
            ("provider_id", &|row| {
                html! { a href={ "/console/webhooks/" (segment(row.text("id"))) } { (row.text("provider_event_id")) } }
            }),
            ("state", &badge_of_event),
        ],
    );
    let empty = EmptyNote { text: t.no_webhooks, hint: t.no_webhooks_help };
    let list =
        List { filters: &fields, ..List::new(t.accepted, "/v1/webhook-events", cells, empty) };
    let listed = list.read(view)?;
    let body = html! { (listed) (refused(view)) };
    Ok(listed.page(t.received, body))
}

/// The names of things, to choose from.
fn names(found: &Value) -> Vec<&str> {
    found.items("items").iter().map(|row| row.text("name")).collect()
}

/// What came in and was not taken, with why.
fn refused(view: &View<'_>) -> Markup {
    let t = view.t;
    let since = view.when("since");
    let until = view.when("until");
    let provider = view.query.get("provider").unwrap_or_default();
    let query = [("limit", "100"), ("provider", provider), ("since", &since), ("until", &until)];
    let rows = view.read_or_null("/v1/refused-webhooks", &query).items("items").to_vec();
    let cells = Cells(
        &[
            cell("provider"),
            cell("reason"),
            cell("answer").of("status"),
            cell("address"),
            cell("at").time("last_at"),
            cell("count"),
        ],
        &[],
    );
    html! {
        h2 { (t.refused) }
        (cells.table(view, t.refused, &rows, EmptyNote { text: t.nothing_refused, hint: "" }))
    }
}

pub(super) fn deliveries(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let subscriptions = view.read_or_null("/v1/subscriptions", &[("limit", "200")]);
    let fields = [
        (
            "state",
            t.state,
            FilterInput::Counted(
                &delivery::DeliveryState::ALL.map(delivery::DeliveryState::as_str),
            ),
        ),
        ("subscription", t.subscription, FilterInput::Choice(&names(&subscriptions))),
        ("code", t.code, FilterInput::Text),
        ("since", t.since, FilterInput::Time),
        ("until", t.until, FilterInput::Time),
    ];
    let cells = Cells(
        &[
            cell("delivery").link("deliveries", "id"),
            cell("event"),
            cell("event_type"),
            cell("subscription").link("subscriptions", "subscription"),
            cell("state").state("state"),
            cell("attempts").of("attempt_count"),
            cell("due_or_done").time("due_at").or("finished_at"),
            cell("made").time("created_at").further(),
            cell("reason").filled("reason").further(),
            cell("lane").further(),
            cell("runs").of("run_no").further(),
        ],
        &[("event", &link_of)],
    );
    let empty = EmptyNote { text: t.no_deliveries, hint: t.no_deliveries_help };
    List { filters: &fields, ..List::new(t.deliveries, "/v1/deliveries", cells, empty) }.page(view)
}

/// The event types: what the events of each are.
pub(super) fn types(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let cells = Cells(
        &[
            cell("name").link("events/types", "name"),
            cell("what_it_means"),
            cell("on_invalid").word("on_invalid"),
            cell("changed").time("updated_at"),
        ],
        &[("what_it_means", &|row| cut(row.text("description"), MAX_DESCRIPTION_BYTES))],
    );
    let empty = EmptyNote { text: t.no_event_types, hint: t.no_event_types_help };
    let listed = List::new(t.event_types, "/v1/event-types", cells, empty).read(view)?;
    let body = html! { div.actions { (button(view, &actions::CREATE_EVENT_TYPE, &[])) } (listed) };
    Ok(listed.page(t.event_types, body))
}

/// An event type: what its payloads look like.
pub(super) fn event_type(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let name = view.param(0);
    let found = view.one("/v1/event-types")?;
    let known = &[
        cell("on_invalid").word("on_invalid"),
        cell("made").time("created_at"),
        cell("changed").time("updated_at"),
    ];
    let payload = Some(found.field("example")).filter(|example| !example.is_null());
    // It stands in the address of the form.
    let payload = payload.map(Value::to_string).filter(|text| text.len() <= MAX_EXAMPLE_BYTES);
    let key = format!("example-{}", view.form_number());
    let example = [
        ("event_type", name),
        ("idempotency_key", &key),
        ("payload", payload.as_deref().unwrap_or("{}")),
    ];
    let body = html! {
        p { a href="/console/events/types" { (t.event_types) } " · "
            a href=(with_query("/console/events", [("event_type", name)])) { (t.events) } }
        div.actions {
            (button(view, &actions::SEND_EVENT, &example))
            (button(view, &actions::CHANGE_EVENT_TYPE, &[("name", name)]))
            (button(view, &actions::DELETE_EVENT_TYPE, &[("name", name)]))
        }
        p { (found.text("description")) }
        (Cells(known, &[]).facts(view, &found))
        @if !found.field("example").is_null() { h2 { (t.example) } (json(view, found.field("example"))) }
        h2 { (t.schema) }
        (json(view, found.field("schema")))
    };
    Ok(Content::new(format!("{}: {name}", t.event_type), body))
}

/// How a thing stands that the search found. A subscription and a source are asked for: their state alone says too little.
fn standing_of(view: &View<'_>, found: &Value) -> Markup {
    let whole =
        |list: &str| view.read_or_null(&format!("/v1/{list}/{}", segment(found.text("id"))), &[]);
    match found.text("kind") {
        "subscription" => html! { (Standing::of_subscription(&whole("subscriptions"))) },
        "source" => Standing::of_source(&whole("sources")).badge(),
        "event" | "webhook_event" => badge_of_event(found),
        _ => found.maybe("status").map_or_else(Markup::default, state),
    }
}

/// What one box finds: events, webhooks, deliveries, and what has a name.
pub(super) fn search(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let Some(q) = view.query.get("q") else {
        let empty = EmptyNote { text: t.search_hint, hint: t.search_help };
        return Ok(Content::new(t.search_results, html! { (empty) }));
    };
    let own = view.query.get("operational").unwrap_or("false");
    let found = view.read("/v1/search", &[("q", q), ("operational", own)])?;
    let rows = found.items("items");
    let cells = Cells(
        &[
            cell("search_found"),
            cell("kind").word("kind"),
            cell("event_type"),
            cell("state"),
            cell("at").time("at"),
            cell("matched").word("matched"),
        ],
        &[
            ("search_found", &|row| {
                let page = match row.text("kind") {
                    "webhook_event" => "webhooks",
                    "delivery" => "deliveries",
                    "subscription" => "subscriptions",
                    "provider" => "providers",
                    "source" => "sources",
                    _ => "events",
                };
                html! { a href={ "/console/" (page) "/" (segment(row.text("id"))) } { (row.text("value")) } }
            }),
            ("state", &|row| standing_of(view, row)),
        ],
    );
    let body = html! {
        @if rows.is_empty() {
            (EmptyNote { text: &format!("{} {q}.", t.search_nothing), hint: t.search_help })
            p { (t.search_lists)
                @for (path, name) in [("events", t.events), ("webhooks", t.received), ("deliveries", t.deliveries)] {
                    " " a href={ "/console/" (path) } { (name) }
                } }
        }
        @else { (cells.table(view, &format!("{}: {q}", t.search_results), rows, EmptyNote::default())) }
        @if found.is("more") { p.small { (t.search_more) } }
        @if let Some(left_out) = found.maybe("incomplete") { p.small { (left_out) } }
        (with_own(view, &["q"]))
    };
    Ok(Content::new(format!("{}: {q}", t.search_results), body))
}
