//! Who changed what, with the values before and after.

use crate::console::elements::{Filter, filters};
use crate::console::prelude::*;

pub(super) const LIST: Page = Page {
    path: "/console/audit",
    menu: Some(|t| t.audit),
    right: Admin,
    is_live: true,
    show: entries,
};
pub(super) const ONE: Page =
    Page { path: "/console/audit/{seq}", menu: None, right: Admin, is_live: false, show: entry };

/// The most changed fields of an entry in the list. The longest 25 entries stay below 100 kB.
const MAX_FIELDS: usize = 8;
/// How much the list shows of a value or a name: bytes of the page.
const MAX_LISTED_BYTES: usize = 140;
/// How much an entry's own page shows of a name.
const MAX_NAME_BYTES: usize = 2_000;
/// How much the values take on an entry's own page.
const MAX_VALUES_BYTES: usize = 80_000;

fn entries(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let names = ["actor", "action", "resource", "result", "since", "until", "after"];
    let given = names.iter().filter_map(|name| Some((*name, view.query.get(name)?)));
    let query: Vec<_> = given.chain([("limit", "25")]).collect();
    let found = view.read("/v1/audit-events", &query)?;
    let heads = [t.at, t.who, t.action, t.resource, t.result, t.changes];
    let body = html! {
        (filters(view, &[
            ("action", t.action, Filter::Text),
            ("resource", t.resource, Filter::Text),
            ("actor", t.who, Filter::Text),
            ("result", t.result, Filter::Choice(&["SUCCESS", "FAILURE", "DENIED"])),
            ("since", t.since, Filter::Time),
            ("until", t.until, Filter::Time),
        ]))
        (list(view, t.audit, &heads, &found, (t.no_audit, t.no_audit_help), |row| {
            let (actor, resource) = (row.field("actor"), row.field("resource"));
            vec![
                html! { a href=(path(row)) { (time(row.text("at"))) } },
                html! { (cut(actor.text("display"), MAX_LISTED_BYTES)) br; span.small { (actor.text("type")) " " (row.text("address")) } },
                html! { (row.text("action")) },
                html! { (resource.text("type")) " " span.small { (cut(resource.text("id"), MAX_LISTED_BYTES)) } },
                state(row.text("result")),
                summary(view, row),
            ]
        }))
        (verified(view))
        p.small { (t.audit_verify) " " code { "oncebox audit verify" } }
    };
    Ok(Content::new(t.audit, body))
}

/// The page of an entry.
fn path(row: &Value) -> String {
    format!("/console/audit/{}", row.int("seq"))
}

/// The first changed fields of an entry: old → new.
fn summary(view: &View<'_>, row: &Value) -> Markup {
    let changed = changes(row);
    let more = changed.len().saturating_sub(MAX_FIELDS);
    html! {
        ul.plain { @for (name, before, after) in changed.iter().take(MAX_FIELDS) {
            li { strong { (name) } ": " (cut(before, MAX_LISTED_BYTES)) " → " (cut(after, MAX_LISTED_BYTES)) }
        } }
        @if more > 0 { a href=(path(row)) { (view.t.and) " " (more) " " (view.t.more) } }
    }
}

/// One entry: all that is stored of it.
fn entry(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let seq = view.param(0);
    let row = view.read(&format!("/v1/audit-events/{}", segment(seq)), &[])?;
    let (actor, resource) = (row.field("actor"), row.field("resource"));
    let changed = changes(&row);
    let most = MAX_VALUES_BYTES / changed.len().saturating_mul(2).max(1);
    let rows: Vec<_> = changed
        .iter()
        .map(|(name, before, after)| vec![html! { (name) }, cut(before, most), cut(after, most)])
        .collect();
    let body = html! {
        p { a href="/console/audit" { (t.audit) } }
        (facts(&[
            (t.at, time(row.text("at"))),
            (t.who, html! { (cut(actor.text("display"), MAX_NAME_BYTES)) " (" (actor.text("type")) ")" }),
            (t.action, html! { (row.text("action")) }),
            (t.resource, html! { (resource.text("type")) " " (cut(resource.text("id"), MAX_NAME_BYTES)) }),
            (t.result, state(row.text("result"))),
            (t.address, html! { (row.text("address")) }),
            (t.browser, html! { (row.text("user_agent")) }),
            (t.request_id, html! { (row.text("request_id")) }),
            (t.hash, html! { code { (row.text("hash")) } }),
        ]))
        h2 { (t.changes) }
        (table(t.changes, &[t.field, t.before, t.after], &rows))
    };
    Ok(Content::new(format!("{} {seq}", t.audit_entry), body))
}

/// Whether the newest entries are as they were written.
fn verified(view: &View<'_>) -> Markup {
    let t = view.t;
    let found = view.read_or_null("/v1/audit-events/verification", &[]);
    html! {
        @if found.is("ok") { p { (state("ok")) " " (found.int("rows")) " " (t.audit_intact) } }
        @else if !found.is_null() {
            div.error role="alert" { p { (t.audit_broken) } @for line in found.items("breaks") { p { (line.as_str().unwrap_or_default()) } } }
        }
    }
}

/// Each changed field, with its value before and after.
fn changes(row: &Value) -> Vec<(&str, String, String)> {
    let text = |value: &Value| match value {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let fields = row.field("changes").as_object();
    let each = fields.into_iter().flatten();
    each.map(|(name, change)| {
        let after = change.get("after").unwrap_or(change);
        (name.as_str(), text(change.field("before")), text(after))
    })
    // What is null before and after says nothing.
    .filter(|(_, before, after)| (before.as_str(), after.as_str()) != ("–", "–"))
    .collect()
}
