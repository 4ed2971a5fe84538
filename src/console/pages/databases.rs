//! Databases of others, such as an ERP's own: whether they answer, and what uses them.

use crate::console::prelude::*;

pub(super) fn list(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let found = view.read("/v1/databases", &[])?;
    let cells = Cells(
        &[
            cell("name").code("name"),
            cell("product"),
            cell("state").state("state"),
            cell("since").time("since"),
            cell("used_by"),
            cell("connections"),
            cell("restarts"),
            cell("error").of("last_error"),
            cell("act"),
        ],
        &[
            ("used_by", &|row| users(view, row)),
            ("connections", &|row| html! { (row.int("in_use")) " / " (row.int("connections")) }),
            ("act", &|row| button(view, &actions::TEST_DATABASE, &[("name", row.text("name"))])),
        ],
    );
    let body = html! {
        p { (t.databases_about) }
        (cells.table(view, t.databases, found.items("items"), EmptyNote { text: t.no_databases, hint: t.no_databases_help }))
    };
    Ok(Content::new(t.databases, body))
}

/// What uses a database, one a line.
fn users(view: &View<'_>, database: &Value) -> Markup {
    let users = database.each("used_by", |user| user.as_str().unwrap_or_default().to_owned());
    if users.is_empty() {
        return html! { (view.t.nobody) };
    }
    html! { @for user in &users { (user) br; } }
}
