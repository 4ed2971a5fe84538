//! Who changed what, with the values before and after.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::console::pages::alerts::subject_of;
use crate::console::prelude::*;
use crate::model::escalation::Class;

/// Most things of a kind that are looked through for a name.
const MAX_NAMES: &str = "200";
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
    let names = NamesById::default();
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
                let name = names.of(view, row);
                html! { (word(row.field("resource").text("type"))) " " (cut(&name, MAX_LISTED_BYTES)) }
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

/// Names of things, found by their ids.
#[derive(Default)]
struct NamesById {
    /// Each kind of thing that was asked for: its ids and names.
    known: RefCell<BTreeMap<String, String>>,
}

impl NamesById {
    /// What people call the thing that an entry is about: its name now, else its name then, else its id.
    fn of(&self, view: &View<'_>, entry: &Value) -> String {
        let resource = entry.field("resource");
        let id = resource.text("id");
        let kind = resource.text("type");
        let key = format!("{kind} {id}");
        let known = self.known.borrow().get(&key).cloned();
        known.unwrap_or_else(|| {
            let now = present_name(view, kind, id);
            let name = now.or_else(|| name_then(entry)).unwrap_or_else(|| id.to_owned());
            self.known.borrow_mut().insert(key, name.clone());
            name
        })
    }
}

/// The name of a thing that still exists. `None`: it does not, or its id is its name.
fn present_name(view: &View<'_>, kind: &str, id: &str) -> Option<String> {
    let one = |list: &str| view.read_or_null(&format!("/v1/{list}/{}", segment(id)), &[]);
    let named = |found: Value| found.maybe("name").map(str::to_owned);
    let listed = |list: &str| {
        let found = view.read_or_null(&format!("/v1/{list}"), &[("limit", MAX_NAMES)]);
        let row = found.items("items").iter().find(|row| row.text("id") == id).cloned();
        named(row?)
    };
    match kind {
        "subscription" => named(one("subscriptions")),
        "token" => named(one("tokens")),
        "provider" => listed("providers"),
        "source" => listed("sources"),
        "user" => listed("users"),
        "alert_channel" => listed("alert-channels"),
        "credential" => {
            let found = one("credentials");
            let of = found.maybe("subscription").map(|of| format!(" ({of})")).unwrap_or_default();
            found.maybe("kind").map(|kind| format!("{}{of}", word(kind)))
        }
        "escalation" => {
            let found = one("escalations");
            let class = Class::parse(found.text("class"))?;
            Some(format!("{}: {}", class.title(), subject_of(&found).0))
        }
        "job" => one("jobs").maybe("kind").map(word),
        _ => None,
    }
}

/// The name that an entry itself has of its thing.
fn name_then(entry: &Value) -> Option<String> {
    let name = entry.field("changes").field("name");
    let named = [name.field("after"), name.field("before"), name];
    let of_thing = named.into_iter().find_map(Value::as_str).map(str::to_owned);
    of_thing.or_else(|| entry.maybe("aggregate_id").map(|_| name_of(entry)))
}

/// The page of an entry.
fn path(row: &Value) -> String {
    format!("/console/audit/{}", row.int("seq"))
}

/// The first changed fields of an entry: old → new.
fn summary(view: &View<'_>, row: &Value) -> Markup {
    let mut changed = changes(row);
    // The thing has its name in the list; its id is on the entry's own page.
    changed.retain(|(name, ..)| *name != "id");
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
            ("resource", &|row| {
                let id = resource.text("id");
                let name = NamesById::default().of(view, row);
                html! { (word(resource.text("type"))) " " (cut(&name, MAX_NAME_BYTES)) @if name != id { " " code { (cut(id, MAX_NAME_BYTES)) } } }
            }),
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
