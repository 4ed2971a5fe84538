//! Who may enter: users, their sessions, and the tokens of programs.

use crate::console::prelude::*;
use crate::console::texts::Texts;
use crate::model::token::Right;

pub(super) const OWN_SESSIONS: Page = page(
    "/console/settings/my-sessions",
    |t| t.own_sessions,
    Read,
    |view| sessions(view, "/v1/me/sessions", view.t.own_sessions),
);
pub(super) const SESSIONS: Page = page(
    "/console/settings/sessions",
    |t| t.all_sessions,
    Admin,
    |view| sessions(view, "/v1/sessions", view.t.all_sessions),
);
pub(super) const USERS: Page = page("/console/settings/users", |t| t.users, Admin, users);
pub(super) const TOKENS: Page = page("/console/settings/tokens", |t| t.tokens, Admin, tokens);

const fn page(
    path: &'static str,
    menu: fn(&Texts) -> &'static str,
    right: Right,
    show: fn(&View<'_>) -> Result<Content, PageError>,
) -> Page {
    Page { path, menu: Some(menu), right, is_live: false, show }
}

/// The page of a list that the URL asks for.
fn read(view: &View<'_>, path: &str) -> Result<Value, PageError> {
    view.read(path, &[("limit", "50"), ("after", view.query.get("after").unwrap_or_default())])
}

fn users(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let found = read(view, "/v1/users")?;
    let heads = [t.name, t.role, t.logs_in_by, t.last_log_in, t.state, t.act];
    let body = html! {
        div.actions { (button(view, &actions::CREATE_USER, &[])) }
        (list(view, t.users, &heads, &found, (t.no_users, t.no_users_help), |row| {
            let given = [("name", row.text("name"))];
            let is_disabled = row.maybe("disabled_at").is_some();
            vec![
                html! { (row.text("name")) },
                html! { (row.text("role")) },
                html! { (if row.is("has_password") { t.password } else { t.make_link }) },
                time_or(row.maybe("last_login_at")),
                state(if is_disabled { "disabled" } else { "active" }),
                html! {
                    @if is_disabled { (button(view, &actions::ENABLE_USER, &given)) }
                    @else { (button(view, &actions::USER_LINK, &given)) " " (button(view, &actions::DISABLE_USER, &given)) }
                    " " (button(view, &actions::CHANGE_USER, &[("name", row.text("name")), ("role", row.text("role"))]))
                    " " (button(view, &actions::DELETE_USER, &given))
                },
            ]
        }))
    };
    Ok(Content::new(t.users, body))
}

fn sessions(view: &View<'_>, path: &str, title: &str) -> Result<Content, PageError> {
    let t = view.t;
    let found = read(view, path)?;
    let is_own = path.contains("/me/");
    let action = if is_own { &actions::END_OWN_SESSION } else { &actions::END_SESSION };
    let heads = [t.user_name, t.address, t.browser, t.began, t.last_used, t.until, t.act];
    let body = html! {
        p { (t.sessions_about) }
        (list(view, title, &heads, &found, (t.no_sessions, ""), |row| vec![
            html! { (row.text("user")) @if row.text("id") == view.session.id { " " strong { (t.this_session) } } },
            html! { (row.text("address")) },
            text_or(row.maybe("user_agent")),
            time(row.text("created_at")),
            time(row.text("last_used_at")),
            time(row.text("ends_at")),
            button(view, action, &[("id", row.text("id"))]),
        ]))
    };
    Ok(Content::new(title, body))
}

fn tokens(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let found = read(view, "/v1/tokens")?;
    let heads = [t.name, t.role, t.state, t.made, t.valid_until, t.last_used, t.act];
    let now = view.inner().api.clock.wall().to_string();
    let body = html! {
        div.actions { (button(view, &actions::CREATE_TOKEN, &[])) }
        (list(view, t.tokens, &heads, &found, (t.no_tokens, t.no_tokens_help), |row| {
            let is_revoked = row.maybe("revoked_at").is_some();
            // Times of the API have one form, so they compare as text.
            let is_over = row.maybe("expires_at").is_some_and(|end| end <= now.as_str());
            vec![
                html! { (row.text("name")) },
                html! { (row.text("role")) },
                state(if is_revoked { "revoked" } else if is_over { "expired" } else { "active" }),
                time(row.text("created_at")),
                time_or(row.maybe("expires_at")),
                time_or(row.maybe("last_used_at")),
                html! { @if !is_revoked { (button(view, &actions::REVOKE_TOKEN, &[("id", row.text("id"))])) } },
            ]
        }))
    };
    Ok(Content::new(t.tokens, body))
}
