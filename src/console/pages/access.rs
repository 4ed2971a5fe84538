//! Who may enter: users, their sessions, and the tokens of programs.

use crate::console::prelude::*;

pub(super) fn users(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let is_disabled = |row: &Value| row.maybe("disabled_at").is_some();
    let cells = &[
        cell("name"),
        cell("role"),
        cell("logs_in_by"),
        cell("last_log_in").time("last_login_at"),
        cell("state"),
        cell("act"),
    ];
    let computed: Computed<'_> = &[
        (
            "logs_in_by",
            &|row| html! { (if row.is("has_password") { t.password } else { t.make_link }) },
        ),
        ("state", &|row| state(if is_disabled(row) { "disabled" } else { "active" })),
        ("act", &|row| {
            let given = [("name", row.text("name"))];
            html! {
                @if is_disabled(row) { (button(view, &actions::ENABLE_USER, &given)) }
                @else { (button(view, &actions::USER_LINK, &given)) " " (button(view, &actions::DISABLE_USER, &given)) }
                " " (button(view, &actions::CHANGE_USER, &given))
                " " (button(view, &actions::DELETE_USER, &given))
            }
        }),
    ];
    let empty = EmptyNote { text: t.no_users, hint: t.no_users_help };
    let always = [("limit", FORMS)];
    let list =
        List { always: &always, ..List::new(t.users, "/v1/users", Cells(cells, computed), empty) };
    let listed = list.read(view)?;
    let body = html! { div.actions { (button(view, &actions::CREATE_USER, &[])) } (listed) };
    Ok(listed.page(t.users, body))
}

/// The tenants of this box.
pub(super) fn tenants(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let is_suspended = |row: &Value| row.maybe("suspended_at").is_some();
    let cells = Cells(
        &[cell("name"), cell("title"), cell("state"), cell("made").time("created_at"), cell("act")],
        &[
            ("state", &|row| state(if is_suspended(row) { "suspended" } else { "active" })),
            ("act", &|row| {
                let given = [("name", row.text("name"))];
                html! {
                    (button(view, &actions::CHANGE_TENANT, &given)) " "
                    @if is_suspended(row) { (button(view, &actions::RESUME_TENANT, &given)) }
                    @else { (button(view, &actions::SUSPEND_TENANT, &given)) " " (show_tenant(view, row.text("name"))) }
                }
            }),
        ],
    );
    let listed = List::new(t.tenants, "/v1/tenants", cells, EmptyNote::default()).read(view)?;
    let body = html! { div.actions { (button(view, &actions::CREATE_TENANT, &[])) } (listed) };
    Ok(listed.page(t.tenants, body))
}

/// A button that shows a tenant.
fn show_tenant(view: &View<'_>, name: &str) -> Markup {
    html! {
        form.inline method="post" action="/console/tenant" {
            input type="hidden" name="csrf" value=(view.csrf());
            input type="hidden" name="tenant" value=(name);
            button type="submit" { (view.t.show_tenant) }
        }
    }
}

pub(super) fn own_sessions(view: &View<'_>) -> Result<Content, PageError> {
    sessions(view, "/v1/me/sessions", view.t.own_sessions)
}

pub(super) fn all_sessions(view: &View<'_>) -> Result<Content, PageError> {
    sessions(view, "/v1/sessions", view.t.all_sessions)
}

fn sessions(view: &View<'_>, path: &str, title: &str) -> Result<Content, PageError> {
    let t = view.t;
    let is_own = path.contains("/me/");
    let action = if is_own { &actions::END_OWN_SESSION } else { &actions::END_SESSION };
    let cells = &[
        cell("user_name"),
        cell("address"),
        cell("browser").filled("user_agent"),
        cell("began").time("created_at"),
        cell("last_used").time("last_used_at"),
        cell("until").time("ends_at"),
        cell("act"),
    ];
    let computed: Computed<'_> = &[
        ("user_name", &|row| {
            html! {
                (row.text("user")) @if row.text("id") == view.session.id { " " strong { (t.this_session) } }
            }
        }),
        ("act", &|row| button(view, action, &[("id", row.text("id"))])),
    ];
    let listed =
        List::new(title, path, Cells(cells, computed), EmptyNote { text: t.no_sessions, hint: "" })
            .read(view)?;
    let body = html! { p { (t.sessions_about) } (listed) };
    Ok(listed.page(title, body))
}

pub(super) fn tokens(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let now = view.inner().api.env.clock.wall().to_string();
    let is_revoked = |row: &Value| row.maybe("revoked_at").is_some();
    let cells = &[
        cell("name"),
        cell("role"),
        cell("state"),
        cell("made").time("created_at"),
        cell("valid_until").time("expires_at"),
        cell("last_used").time("last_used_at"),
        cell("act"),
    ];
    let computed: Computed<'_> = &[
        ("state", &|row| {
            // Times of the API have one form, so they compare as text.
            let is_over = row.maybe("expires_at").is_some_and(|end| end <= now.as_str());
            let valid = if is_over { "expired" } else { "active" };
            state(if is_revoked(row) { "revoked" } else { valid })
        }),
        ("act", &|row| {
            html! {
                @if !is_revoked(row) { (button(view, &actions::REVOKE_TOKEN, &[("id", row.text("id"))])) }
            }
        }),
    ];
    let empty = EmptyNote { text: t.no_tokens, hint: t.no_tokens_help };
    let listed = List::new(t.tokens, "/v1/tokens", Cells(cells, computed), empty).read(view)?;
    let body = html! { div.actions { (button(view, &actions::CREATE_TOKEN, &[])) } (listed) };
    Ok(listed.page(t.tokens, body))
}
