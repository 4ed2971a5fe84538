//! What comes in: sources (an ERP's file, a drop folder) and providers of webhooks.

use crate::console::history;
use crate::console::pages::reconciliations;
use crate::console::prelude::*;

pub(super) fn list(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let found = view.read("/v1/sources", &[("limit", "200")])?;
    let providers = view.read("/v1/providers", &[("limit", "200")])?;
    let of_source = Cells(
        &[
            cell("name").link("sources", "name"),
            cell("kind"),
            cell("state"),
            cell("events").of("event_count"),
            cell("last_event").time("last_event_at"),
            cell("lag"),
            cell("error").of("last_error").or("waits_for"),
        ],
        &[
            ("state", &|row| Standing::of_source(row).badge()),
            ("lag", &|row| {
                if row.field("lag").is_null() { nothing() } else { number(row.int("lag")) }
            }),
        ],
    );
    let of_provider = Cells(
        &[cell("name").link("providers", "name"), cell("scheme").of("scheme.kind"), cell("url")],
        &[("url", &|row| html! { code { (address_of(view, row)) } })],
    );
    let body = html! {
        div.actions { (button(view, &actions::CREATE_SOURCE, &[])) }
        (of_source.table(view, t.sources, found.items("items"), EmptyNote { text: t.no_sources, hint: t.no_sources_help }))
        h2 { (t.providers) }
        div.actions { (button(view, &actions::CREATE_PROVIDER, &[])) }
        (of_provider.table(view, t.providers, providers.items("items"), EmptyNote { text: t.no_providers, hint: t.no_webhooks_help }))
    };
    Ok(Content::new(t.sources, body))
}

pub(super) fn one(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let name = view.param(0);
    let found = view.one("/v1/sources")?;
    let given = [("name", name)];
    let known = &[
        cell("cursor"),
        cell("events").of("event_count"),
        cell("last_event").time("last_event_at"),
        cell("last_read").time("last_read_at"),
        cell("failing_since").time("failing_since"),
    ];
    let body = html! {
        div.actions {
            @if found.text("state") == "PAUSED" { (button(view, &actions::RESUME_SOURCE, &given)) }
            @else { (button(view, &actions::PAUSE_SOURCE, &given)) }
            @if found.text("kind") == "http" { (button(view, &actions::SET_SOURCE_CREDENTIAL, &given)) }
            @if matches!(found.text("kind"), "sqlite" | "http") { (button(view, &actions::RESET_SOURCE, &given)) }
            @if found.text("kind") == "database" { (button(view, &actions::REOPEN_SOURCE, &given)) }
            @if found.field("settings").text("mode") == "claim" { (button(view, &actions::RELEASE_SOURCE, &given)) }
            @if view.may(Operate) { a.button href={ "/console/sources/" (segment(name)) "?test=now" } { (t.test) } }
            (button(view, &actions::CHANGE_SOURCE, &given))
            (button(view, &actions::DELETE_SOURCE, &given))
        }
        @if let Some(error) = found.maybe("last_error") { p.error { (error) } }
        @if view.query.get("test").is_some() { (test(view)) }
        (Cells(known, &[]).facts(view, &found))
        (json(view, found.field("settings")))
    };
    let title = format!("{}: {name}", t.source);
    Ok(Content::new(title, body).badge(Standing::of_source(&found).badge()))
}

fn test(view: &View<'_>) -> Markup {
    match view.read(&format!("/v1/sources/{}/test", segment(view.param(0))), &[]) {
        Err(error) => html! { p.error { (error.detail) } },
        Ok(found) => {
            let cells = Cells(
                &[cell("check").of("name"), cell("state").state("state"), cell("detail")],
                &[],
            );
            cells.table(view, view.t.test, found.items("checks"), EmptyNote::default())
        }
    }
}

/// A webhook like the provider's own, and whether it would be taken.
fn sample(view: &View<'_>) -> Markup {
    let t = view.t;
    match view.read(&format!("/v1/providers/{}/sample", segment(view.param(0))), &[]) {
        Err(error) => html! { p.error { (error.detail) } },
        Ok(found) => html! {
            @if found.is("ok") { p.notice { (t.sample_ok) } } @else { p.error { (t.sample_bad) " " (found.text("why")) } }
            (Cells(&[cell("event_type"), cell("id").code("event_id"), cell("url").code("url")], &[]).facts(view, &found))
            @let fields = found.each("headers", |field| format!("{}: {}\n", field.text("name"), field.text("value")));
            p.small { (t.sample_about) }
            (code(view, &format!("{}\n{}", fields.concat(), found.text("body"))))
        },
    }
}

/// The address that a provider posts to. While nobody has said by which name this service is reached, the host is a
/// placeholder, and a sentence says what to do.
pub(in crate::console) fn address(view: &View<'_>, provider: &Value) -> Markup {
    let t = view.t;
    html! {
        p { (t.provider_url) }
        (code(view, &address_of(view, provider)))
        @if provider.maybe("url").is_none() { p.notice.warn { (t.no_public_url) } }
    }
}

fn address_of(view: &View<'_>, provider: &Value) -> String {
    let without_host = || format!("https://<{}>{}", view.t.public_host, provider.text("path"));
    provider.maybe("url").map_or_else(without_host, str::to_owned)
}

pub(super) fn provider(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let name = view.param(0);
    let found = view.one("/v1/providers")?;
    let secrets = view.read_or_null(&format!("/v1/providers/{}/secrets", segment(name)), &[]);
    let in_force = secrets.items("items");
    let cells = Cells(
        &[cell("version"), cell("id").id("id"), cell("made").time("created_at"), cell("act")],
        &[("act", &|row| {
            let given = [("name", name), ("secret_id", row.text("id"))];
            // The last one stays.
            html! { @if in_force.len() > 1 { (button(view, &actions::WITHDRAW_SECRET, &given)) } }
        })],
    );
    let body = html! {
        div.actions {
            (button(view, &actions::CHANGE_PROVIDER, &[("name", name)]))
            (button(view, &actions::DELETE_PROVIDER, &[("name", name)]))
            @if view.may(Operate) { a.button href={ "/console/providers/" (segment(name)) "?sample=now" } { (t.sample) } }
        }
        @if view.query.get("sample").is_some() { (sample(view)) }
        (address(view, &found))
        p { a href=(with_query("/console/webhooks", [("provider", name)])) { (t.received) } }
        (Cells(&[cell("scheme").of("scheme.kind"), cell("made").time("created_at")], &[]).facts(view, &found))
        (reconciliations::section(view, name))
        (history::section(view, &format!("/v1/providers/{}", segment(name)), t.requests))
        h2 { (t.secrets) }
        p { (t.secrets_about) }
        div.actions { (button(view, &actions::ADD_SECRET, &[("name", name)])) }
        @if !in_force.is_empty() { (cells.table(view, t.secrets, in_force, EmptyNote::default())) }
        h2 { (t.personal_data) }
        (json(view, found.field("pii")))
    };
    Ok(Content::new(format!("{}: {name}", t.provider), body))
}
