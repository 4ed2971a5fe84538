//! Who changed what, with the values before and after.

use maud::{Markup, html};
use serde_json::Value;

use crate::console::elements::{Filter, empty, filters, pager, state, table, time};
use crate::console::error::PageError;
use crate::console::json::Fields as _;
use crate::console::page::{Content, Page};
use crate::console::view::View;
use crate::model::token::Right::Admin;

pub(super) const PAGE: Page =
    Page { path: "/console/audit", menu: Some(|t| t.audit), right: Admin, is_live: true, show };

fn show(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let names = ["actor", "action", "resource", "result", "since", "until", "after"];
    let query: Vec<_> =
        names.iter().filter_map(|name| Some((*name, view.query.get(name)?))).collect();
    let found = view.read("/v1/audit-events", &query)?;
    let rows: Vec<_> = found
        .items("items")
        .iter()
        .map(|row| {
            let (actor, resource) = (row.field("actor"), row.field("resource"));
            vec![
                time(row.text("at")),
                html! { (actor.text("display")) br; span.small { (actor.text("type")) " " (row.text("address")) } },
                html! { (row.text("action")) },
                html! { (resource.text("type")) " " span.small { (resource.text("id")) } },
                state(row.text("result")),
                changes(row.field("changes")),
            ]
        })
        .collect();
    let body = html! {
        (filters(view, &[
            ("action", t.action, Filter::Text),
            ("resource", t.resource, Filter::Text),
            ("actor", t.who, Filter::Text),
            ("result", t.result, Filter::Choice(&["SUCCESS", "FAILURE", "DENIED"])),
            ("since", t.since, Filter::Time),
            ("until", t.until, Filter::Time),
        ]))
        @if rows.is_empty() { (empty(t.no_audit, t.no_audit_help)) }
        @else { (table(t.audit, &[t.at, t.who, t.action, t.resource, t.result, t.changes], &rows)) }
        (pager(view, &found))
        (verified(view))
        p.small { (t.audit_verify) " " code { "oncebox audit verify" } }
    };
    Ok(Content::new(t.audit, body))
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

/// Each changed field: old → new.
fn changes(changes: &Value) -> Markup {
    let shown = |value: Option<&Value>| match value {
        None | Some(Value::Null) => "–".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let cut = |text: String| text.chars().take(300).collect::<String>();
    html! {
        @if let Some(fields) = changes.as_object() {
            ul.plain { @for (name, change) in fields {
                li { strong { (name) } ": "
                    @if change.get("before").is_some() || change.get("after").is_some() {
                        (cut(shown(change.get("before")))) " → " (cut(shown(change.get("after"))))
                    } @else { (cut(shown(Some(change)))) }
                }
            } }
        }
    }
}
