//! The form that makes the first admin of a box, with the code that the service printed when it started.

use maud::{Markup, html};

use crate::api::people::NewSession;
use crate::console::error::PageError;
use crate::console::form::Form;
use crate::console::page::ConsoleContext;
use crate::console::texts::Texts;
use crate::http::message::Head;
use crate::model::name::Name;

/// Makes the admin, and begins its session.
/// Fails with what is wrong, and at which field.
pub(super) fn make(
    inner: &ConsoleContext,
    head: &Head,
    given: &Form,
) -> Result<NewSession, PageError> {
    let t = inner.texts;
    let name = Name::parse(given.get("name").unwrap_or_default());
    let name = name.map_err(|error| PageError::field(t, "name", &error.to_string()))?;
    let password = given.raw("password").unwrap_or_default();
    if given.raw("again") != Some(password) {
        return Err(PageError::field(t, "again", t.passwords_differ));
    }
    let code = given.get("code").unwrap_or_default();
    inner.api.make_first_admin(head, code, &name, password).map_err(|problem| {
        let error = PageError::of(problem.into());
        let field = match error.status {
            401 | 429 => "code",
            422 => "password",
            _ => return error,
        };
        PageError { field: Some(field.to_owned()), ..error }
    })
}

/// The form, with what was typed and what went wrong. Passwords are typed again.
pub(super) fn form(t: &Texts, given: &Form, error: Option<&PageError>) -> Markup {
    let typed = |name: &str| given.get(name).unwrap_or_default().to_owned();
    let fields = [
        ("code", t.first_code, "text", "off", typed("code"), t.first_code_help),
        ("name", t.user_name, "text", "username", typed("name"), t.first_name_help),
        ("password", t.password, "password", "new-password", String::new(), t.password_help),
        ("again", t.password_again, "password", "new-password", String::new(), ""),
    ];
    html! {
        p { (t.first_admin_help) }
        form method="post" action="/console/first-admin" {
            @for (name, label, kind, autocomplete, value, about) in fields {
                @let wrong = error.filter(|error| error.field.as_deref() == Some(name));
                div.field {
                    label for=(name) { (label) }
                    input id=(name) type=(kind) name=(name) value=(value) autocomplete=(autocomplete) required
                        maxlength="128" aria-describedby={ "about." (name) } aria-invalid=[wrong.map(|_| "true")];
                    p.small id={ "about." (name) } {
                        @if let Some(wrong) = wrong { strong.wrong role="alert" { (wrong.detail) } " " }
                        (about)
                    }
                }
            }
            button.primary type="submit" { (t.first_admin) }
        }
        p.small { (t.first_user_help) " " code { "oncebox console link" } }
    }
}
