//! Event types: what the events of a type are, and what their payloads look like.

use crate::console::prelude::*;

pub(super) const LIST: Page = Page {
    path: "/console/events/types",
    menu: Some(|t| t.event_types),
    right: Read,
    is_live: false,
    show: types,
};
pub(super) const ONE: Page = Page {
    path: "/console/events/types/{name}",
    menu: None,
    right: Read,
    is_live: false,
    show: one,
};

/// How much the list shows of a description.
const MAX_LISTED_BYTES: usize = 400;

fn types(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let after = view.query.get("after").unwrap_or_default();
    let found = view.read("/v1/event-types", &[("limit", "50"), ("after", after)])?;
    let heads = [t.name, t.what_it_means, t.on_invalid, t.changed];
    let none = (t.no_event_types, t.no_event_types_help);
    let body = list(view, t.event_types, &heads, &found, none, |row| {
        vec![
            link("events/types", row.text("name")),
            cut(row.text("description"), MAX_LISTED_BYTES),
            html! { (word(row.text("on_invalid"))) },
            time(row.text("updated_at")),
        ]
    });
    Ok(Content::new(t.event_types, body))
}

fn one(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let name = view.param(0);
    let found = view.read(&format!("/v1/event-types/{}", segment(name)), &[])?;
    let body = html! {
        p { a href="/console/events/types" { (t.event_types) } " · "
            a href=(with_query("/console/events", [("event_type", name)])) { (t.events) } }
        p { (found.text("description")) }
        (facts(&[
            (t.on_invalid, html! { (word(found.text("on_invalid"))) }),
            (t.made, time(found.text("created_at"))),
            (t.changed, time(found.text("updated_at"))),
        ]))
        @if !found.field("example").is_null() { h2 { (t.example) } (json(view, found.field("example"))) }
        h2 { (t.schema) }
        (json(view, found.field("schema")))
    };
    Ok(Content::new(format!("{}: {name}", t.event_type), body))
}
