//! Settings: is the box well, what is set and where, backups. Who may enter is in `access.rs`.

use std::time::Duration;

use crate::console::prelude::*;

/// How much is shown of a value: bytes of the page.
const MAX_VALUE_BYTES: usize = 300;
/// The most backups that are shown.
const MAX_BACKUPS: usize = 100;

pub(super) fn show(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let stats = view.read("/v1/stats", &[])?;
    let name = view.person().name.as_str();
    let body = html! {
        (facts(&[
            (t.version, html! { (stats.text("version")) }),
            (t.you, html! { (name) " (" (view.person().role.as_str()) ")" }),
        ]))
        // In another tenant, this name is somebody else's.
        @if view.person().shown == view.person().tenant {
            div.actions { (button(view, &actions::OWN_PASSWORD, &[("name", name)])) }
        }
        h2 { (t.checks) }
        (super::overview::checks(view, &view.checks()))
        (in_doubt(view))
    };
    Ok(Content::new(t.settings, body))
}

/// What may have been sent before a restore.
fn in_doubt(view: &View<'_>) -> Markup {
    let t = view.t;
    let found = view.read_or_null("/v1/in-doubt", &[]);
    let known = Cells(
        &[
            cell("count"),
            cell("restored").time("restored_at"),
            cell("events_held_until").time("until"),
        ],
        &[(
            "count",
            &|of| html! { a href="/console/deliveries?state=in_doubt" { (number(of.int("in_doubt"))) } },
        )],
    );
    html! {
        @if found.maybe("until").is_some() || found.int("in_doubt") > 0 {
            h2 { (t.in_doubt) }
            (known.facts(view, &found))
            div.actions {
                @if found.int("in_doubt") > 0 { (button(view, &actions::RELEASE_IN_DOUBT, &[])) (button(view, &actions::SKIP_IN_DOUBT, &[])) }
                @if found.maybe("until").is_some() { (button(view, &actions::END_IN_DOUBT, &[])) }
            }
        }
    }
}

/// Every setting: its value, where that comes from, and what it means.
pub(super) fn in_force(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let found = view.read("/v1/settings", &[])?;
    let cells = Cells(
        &[cell("name").code("key"), cell("value"), cell("set_by"), cell("meaning").of("about")],
        &[
            ("value", &|row| {
                let value = match row.field("value") {
                    Value::Null if row.is("is_hidden") => t.not_shown.to_owned(),
                    Value::Null => row.maybe("unset").unwrap_or("–").to_owned(),
                    Value::String(text) => text.clone(),
                    Value::Array(none) if none.is_empty() => "–".to_owned(),
                    other => other.to_string(),
                };
                cut(&value, MAX_VALUE_BYTES)
            }),
            ("set_by", &|row| {
                html! {
                    (word(row.text("from")))
                    @if let Some(place) = row.maybe("place") { br; span.small { (cut(place, MAX_VALUE_BYTES)) } }
                }
            }),
        ],
    );
    let body = html! {
        p { (t.in_force_about) }
        @for section in found.items("sections") {
            h2 { (section.text("name")) " " small { (section.text("about")) } }
            (cells.table(view, section.text("name"), section.items("settings"), EmptyNote::default()))
        }
    };
    Ok(Content::new(t.in_force, body))
}

pub(super) fn backups(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let found = view.read("/v1/backups", &[])?;
    let all = found.items("items");
    let (shown, _) = all.split_at(all.len().min(MAX_BACKUPS));
    let cells = Cells(
        &[
            cell("made").time("created_at"),
            cell("file"),
            cell("size"),
            cell("made_by").word("reason"),
            cell("version"),
            cell("act"),
        ],
        &[
            ("size", &|row| html! { (megabytes(row.int("bytes"))) }),
            ("file", &|row| {
                let file = format!("/console/settings/backups/{}", segment(name_of_file(row)));
                html! { a href=(file) download { (name_of_file(row)) } " · " a href={ (file) ".manifest.json" } download { (t.manifest) } }
            }),
            ("act", &|row| button(view, &actions::VERIFY_BACKUP, &[("name", name_of_file(row))])),
        ],
    );
    let every = found.get("every_secs").and_then(Value::as_u64).map(Duration::from_secs);
    let every = every
        .map_or_else(|| t.never.to_owned(), |every| humantime::format_duration(every).to_string());
    let body = html! {
        div.actions { (button(view, &actions::BACK_UP, &[])) }
        (facts(&[(t.directory, html! { code { (found.text("directory")) } }), (t.made_every, html! { (every) })]))
        (cells.table(view, t.backups, shown, EmptyNote { text: t.no_backups, hint: t.no_backups_help }))
        @if all.len() > MAX_BACKUPS { p { (t.and) " " (all.len().saturating_sub(MAX_BACKUPS)) " " (t.more) } }
        p.small { (t.backups_help) " " code { "oncebox backup verify" } }
    };
    Ok(Content::new(t.backups, body))
}

fn name_of_file(backup: &Value) -> &str {
    backup.text("path").rsplit('/').next().unwrap_or_default()
}

/// A backup, or its manifest, as a file.
pub(super) fn backup(view: &View<'_>) -> Result<Content, PageError> {
    let name = view.param(0);
    let answer = view.download(&format!("/v1/backups/{}", segment(name)))?;
    Ok(Content::file(name, answer))
}

/// Bytes as people write them.
fn megabytes(bytes: i64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10)
}
