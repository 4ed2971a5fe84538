//! Who changed what, with the values before and after.

use crate::console::prelude::*;

/// The most changed fields of an entry in the list. The longest 25 entries stay below 100 kB.
const MAX_FIELDS: usize = 8;
/// How much the list shows of a value or a name: bytes of the page.
const MAX_LISTED_BYTES: usize = 140;
/// How much an entry's own page shows of a name.
const MAX_NAME_BYTES: usize = 2_000;
/// How much the values take on an entry's own page.
const MAX_VALUES_BYTES: usize = 80_000;

pub(super) fn entries(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let fields = [
        ("action", t.action, FilterInput::Text),
        ("resource", t.resource, FilterInput::Text),
        ("actor", t.who, FilterInput::Text),
        ("result", t.result, FilterInput::Choice(&["SUCCESS", "FAILURE", "DENIED"])),
        ("correlation_id", t.correlation_id, FilterInput::Text),
        ("aggregate_id", t.aggregate_id, FilterInput::Text),
        ("since", t.since, FilterInput::Time),
        ("until", t.until, FilterInput::Time),
    ];
    let cells = Cells(
        &[
            cell("at"),
            cell("who"),
            cell("action"),
            cell("resource"),
            cell("result").state("result"),
            cell("changes"),
        ],
        &[
            ("at", &|row| html! { a href=(path(row)) { (time(row.text("at"))) } }),
            ("who", &|row| {
                let actor = row.field("actor");
                html! { (cut(actor.text("display"), MAX_LISTED_BYTES)) br; span.small { (actor.text("type")) " " (row.text("address")) } }
            }),
            ("resource", &|row| {
                let resource = row.field("resource");
                html! { (resource.text("type")) " " span.small { (cut(resource.text("id"), MAX_LISTED_BYTES)) } }
            }),
            ("changes", &|row| summary(view, row)),
        ],
    );
    let list = List {
        filters: &fields,
        always: &[("limit", "25")],
        ..List::new(
            t.audit,
            "/v1/audit-events",
            cells,
            EmptyNote { text: t.no_audit, hint: t.no_audit_help },
        )
    };
    let listed = list.read(view)?;
    let body = html! {
        (listed)
        (verified(view))
        p.small { (t.audit_verify) " " code { "oncebox audit verify" } }
    };
    Ok(listed.page(t.audit, body))
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
pub(super) fn entry(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let row = view.one("/v1/audit-events")?;
    let actor = row.field("actor");
    let resource = row.field("resource");
    let changed = changes(&row);
    let most = MAX_VALUES_BYTES / changed.len().saturating_mul(2).max(1);
    let rows: Vec<_> = changed
        .iter()
        .map(|(name, before, after)| vec![html! { (name) }, cut(before, most), cut(after, most)])
        .collect();
    let known = Cells(
        &[
            cell("at").time("at"),
            cell("who"),
            cell("action"),
            cell("resource"),
            cell("result").state("result"),
            cell("address"),
            cell("browser").of("user_agent"),
            cell("request_id"),
            cell("hash").id("hash"),
        ],
        &[
            (
                "who",
                &|_| html! { (cut(actor.text("display"), MAX_NAME_BYTES)) " (" (actor.text("type")) ")" },
            ),
            (
                "resource",
                &|_| html! { (resource.text("type")) " " (cut(resource.text("id"), MAX_NAME_BYTES)) },
            ),
        ],
    );
    let body = html! {
        p { a href="/console/audit" { (t.audit) } }
        (known.facts(view, &row))
        h2 { (t.changes) }
        (table(t.changes, &[t.field, t.before, t.after], &rows))
    };
    Ok(Content::new(format!("{} {}", t.audit_entry, view.param(0)), body))
}

/// Whether the newest entries are as they were written.
fn verified(view: &View<'_>) -> Markup {
    let t = view.t;
    let found = view.read_or_null("/v1/audit-events/verification", &[]);
    html! {
        @if found.is("ok") { p { (state("ok")) " " (number(found.int("rows"))) " " (t.audit_intact) } }
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
