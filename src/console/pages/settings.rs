//! Settings: is the box well, who may enter, which programs have tokens.

use maud::{Markup, html};

use crate::console::actions;
use crate::console::elements::{button, facts, state, table, time, time_or, word};
use crate::console::error::PageError;
use crate::console::json::Fields as _;
use crate::console::page::{Content, Page};
use crate::console::view::View;
use crate::model::token::Right::{Admin, Box, Read};

pub(super) const PAGE: Page = Page {
    path: "/console/settings",
    menu: Some(|t| t.settings),
    right: Read,
    is_live: false,
    show,
};

fn show(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let stats = view.read("/v1/stats", &[])?;
    let body = html! {
        (facts(&[
            (t.version, html! { (stats.text("version")) }),
            (t.you, html! { (view.person().name) " (" (view.person().role.as_str()) ")" }),
        ]))
        div.actions { (button(view, &actions::OWN_PASSWORD, &[("name", view.person().name.as_str())])) }
        h2 { (t.checks) }
        (super::overview::checks(view, &view.checks()))
        @if view.may(Admin) { (users(view)) (sessions(view)) (tokens(view)) }
        @if view.may(Box) { (in_doubt(view)) }
    };
    Ok(Content::new(t.settings, body))
}

fn users(view: &View<'_>) -> Markup {
    let t = view.t;
    let found = view.read_or_null("/v1/users", &[("limit", "200")]);
    let rows: Vec<_> = found
        .items("items")
        .iter()
        .map(|row| {
            let given = [("name", row.text("name"))];
            let is_disabled = row.maybe("disabled_at").is_some();
            vec![
                html! { (row.text("name")) },
                html! { (row.text("role")) },
                html! { (row.text("tenant")) },
                state(if is_disabled { "disabled" } else { "active" }),
                time_or(row.maybe("last_login_at")),
                html! {
                    (button(view, &actions::USER_LINK, &given)) " "
                    (button(view, &actions::CHANGE_USER, &given)) " "
                    (button(view, &actions::DELETE_USER, &given))
                },
            ]
        })
        .collect();
    html! {
        h2 { (t.users) }
        div.actions { (button(view, &actions::CREATE_USER, &[])) }
        (table(t.users, &[t.name, t.role, t.tenant, t.state, t.last_used, t.act], &rows))
    }
}

fn sessions(view: &View<'_>) -> Markup {
    let t = view.t;
    let found = view.read_or_null("/v1/sessions", &[("limit", "100")]);
    let rows: Vec<_> = found
        .items("items")
        .iter()
        .map(|row| {
            vec![
                html! { (row.text("user")) },
                html! { (row.text("address")) },
                html! { (row.text("user_agent")) },
                time_or(row.maybe("last_used_at")),
                time_or(row.maybe("ends_at")),
                button(view, &actions::END_SESSION, &[("id", row.text("id"))]),
            ]
        })
        .collect();
    html! {
        h2 { (t.sessions) }
        (table(t.sessions, &[t.name, t.address, t.browser, t.last_used, t.until, t.act], &rows))
    }
}

fn tokens(view: &View<'_>) -> Markup {
    let t = view.t;
    let found = view.read_or_null("/v1/tokens", &[("limit", "200")]);
    let rows: Vec<_> = found
        .items("items")
        .iter()
        .map(|row| {
            let is_live = row.maybe("revoked_at").is_none();
            vec![
                html! { (row.text("name")) },
                html! { (row.text("role")) },
                state(if is_live { "active" } else { "revoked" }),
                time(row.text("created_at")),
                time_or(row.maybe("expires_at")),
                time_or(row.maybe("last_used_at")),
                html! { @if is_live { (button(view, &actions::REVOKE_TOKEN, &[("id", row.text("id"))])) } },
            ]
        })
        .collect();
    html! {
        h2 { (t.tokens) }
        div.actions { (button(view, &actions::CREATE_TOKEN, &[])) }
        (table(t.tokens, &[t.name, t.role, t.state, t.made, t.valid_until, t.last_used, t.act], &rows))
    }
}

/// What may have been sent before a restore.
fn in_doubt(view: &View<'_>) -> Markup {
    let t = view.t;
    let found = view.read_or_null("/v1/in-doubt", &[]);
    html! {
        @if found.maybe("restored_at").is_some() {
            h2 { (t.in_doubt) }
            (facts(&[
                (t.count, html! { (found.int("in_doubt")) }),
                (t.since, time_or(found.maybe("restored_at"))),
                (t.until, time_or(found.maybe("until"))),
            ]))
            p { a href="/console/deliveries?state=in_doubt" { (word("in_doubt")) } }
        }
    }
}
