//! What comes in: sources (an ERP's file, a drop folder) and providers of webhooks.

use crate::console::prelude::*;

pub(super) const LIST: Page = Page {
    path: "/console/sources",
    menu: Some(|t| t.sources),
    right: Read,
    is_live: true,
    show: list,
};
pub(super) const ONE: Page =
    Page { path: "/console/sources/{name}", menu: None, right: Read, is_live: false, show: one };
pub(super) const PROVIDER: Page = Page {
    path: "/console/providers/{name}",
    menu: None,
    right: Read,
    is_live: false,
    show: provider,
};

fn list(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let found = view.read("/v1/sources", &[("limit", "200")])?;
    let rows: Vec<_> = found
        .items("items")
        .iter()
        .map(|row| {
            vec![
                link("sources", row.text("name")),
                html! { (row.text("kind")) },
                state(row.text("state")),
                html! { (row.int("event_count")) },
                time_or(row.maybe("last_event_at")),
                html! { @if row.field("lag").is_null() { (text_or(None)) } @else { (row.int("lag")) } },
                html! { (row.first_of(&["last_error", "waits_for"])) },
            ]
        })
        .collect();
    let providers = view.read("/v1/providers", &[("limit", "200")])?;
    let body = html! {
        @if rows.is_empty() { (empty(t.no_sources, t.no_sources_help)) }
        @else { (table(t.sources, &[t.name, t.kind, t.state, t.events, t.last_event, t.lag, t.error], &rows)) }
        h2 { (t.providers) }
        @if providers.items("items").is_empty() { (empty(t.no_providers, t.no_webhooks_help)) }
        @else {
            (table(t.providers, &[t.name, t.scheme, t.url], &providers.items("items").iter().map(|row| vec![
                link("providers", row.text("name")),
                html! { (row.field("scheme").text("kind")) },
                html! { code { (row.first_of(&["url", "path"])) } },
            ]).collect::<Vec<_>>()))
        }
    };
    Ok(Content::new(t.sources, body))
}

fn one(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let name = view.param(0);
    let path = format!("/v1/sources/{}", segment(name));
    let found = view.read(&path, &[])?;
    let given = [("name", name)];
    let body = html! {
        div.actions {
            (state(found.text("state")))
            @if found.text("state") == "PAUSED" { (button(view, &actions::RESUME_SOURCE, &given)) }
            @else { (button(view, &actions::PAUSE_SOURCE, &given)) }
            @if found.text("kind") == "sqlite" { (button(view, &actions::RESET_SOURCE, &given)) }
            @if view.may(Operate) { a.button href={ "/console/sources/" (segment(name)) "?test=now" } { (t.test) } }
        }
        @if let Some(error) = found.maybe("last_error") { p.error { (error) } }
        @if view.query.get("test").is_some() { (test(view, &path)) }
        (facts(&[
            (t.cursor, html! { (found.int("cursor")) }),
            (t.events, html! { (found.int("event_count")) }),
            (t.last_event, time_or(found.maybe("last_event_at"))),
            (t.last_read, time_or(found.maybe("last_read_at"))),
            (t.failing_since, time_or(found.maybe("failing_since"))),
        ]))
        (json(view, found.field("settings")))
    };
    Ok(Content::new(format!("{}: {name}", t.source), body))
}

fn test(view: &View<'_>, path: &str) -> Markup {
    let t = view.t;
    match view.read(&format!("{path}/test"), &[]) {
        Err(error) => html! { p.error { (error.detail) } },
        Ok(found) => {
            let rows: Vec<_> = found
                .items("checks")
                .iter()
                .map(|row| {
                    vec![
                        html! { (row.text("name")) },
                        state(row.text("state")),
                        html! { (row.text("detail")) },
                    ]
                })
                .collect();
            table(t.test, &[t.check, t.state, t.detail], &rows)
        }
    }
}

fn provider(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let name = view.param(0);
    let path = format!("/v1/providers/{}", segment(name));
    let found = view.read(&path, &[])?;
    let secrets = view.read_or_null(&format!("{path}/secrets"), &[]);
    let in_force = secrets.items("items");
    let rows: Vec<_> = in_force
        .iter()
        .map(|row| {
            let given = [("name", name), ("secret_id", row.text("id"))];
            vec![
                html! { (row.int("version")) },
                html! { code { (row.text("id")) } },
                time(row.text("created_at")),
                // The last one stays.
                html! { @if in_force.len() > 1 { (button(view, &actions::WITHDRAW_SECRET, &given)) } },
            ]
        })
        .collect();
    let body = html! {
        p { (t.provider_url) }
        (code(view, found.first_of(&["url", "path"])))
        p { a href=(with_query("/console/webhooks", [("provider", name)])) { (t.received) } }
        (facts(&[(t.scheme, html! { (found.field("scheme").text("kind")) }), (t.made, time(found.text("created_at")))]))
        h2 { (t.secrets) }
        p { (t.secrets_about) }
        div.actions { (button(view, &actions::ADD_SECRET, &[("name", name)])) }
        @if !rows.is_empty() { (table(t.secrets, &[t.version, t.id, t.made, t.act], &rows)) }
        h2 { (t.personal_data) }
        (json(view, found.field("pii")))
    };
    Ok(Content::new(format!("{}: {name}", t.provider), body))
}
