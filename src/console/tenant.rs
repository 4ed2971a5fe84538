//! Which tenant an admin of the box looks at: the form in the head of each page, and the button on the page of tenants.

use maud::{Markup, html};
use serde_json::Value;

use crate::console::json::Fields as _;
use crate::console::page::View;
use crate::model::token::Right;

/// Tenants that the form offers, the oldest. The page of tenants has a button for each.
const OFFERED: &str = "50";

/// The tenant that a page shows, with a form to choose another one for whom may.
pub(super) fn shown(view: &View<'_>) -> Markup {
    let (t, person) = (view.t, view.person());
    let listed = if view.may(Right::Box) {
        view.read_or_null("/v1/tenants", &[("limit", OFFERED)])
    } else {
        Value::Null
    };
    let mut names = vec![person.tenant.as_str(), person.shown.as_str()];
    let is_open = |row: &&Value| row.maybe("suspended_at").is_none();
    names.extend(listed.items("items").iter().filter(is_open).map(|row| row.text("name")));
    names.sort_unstable();
    names.dedup();
    html! {
        @if names.len() > 1 {
            form method="post" action="/console/tenant" {
                input type="hidden" name="csrf" value=(view.csrf());
                label.hidden for="tenant" { (t.tenant) }
                select #tenant name="tenant" {
                    @for name in names { option value=(name) selected[name == person.shown] { (name) } }
                }
                button.quiet type="submit" { (t.show_tenant) }
            }
        } @else if person.shown != "default" { span { (person.shown) } }
    }
}

/// A button that shows a tenant.
pub(super) fn button(view: &View<'_>, name: &str) -> Markup {
    html! {
        form.inline method="post" action="/console/tenant" {
            input type="hidden" name="csrf" value=(view.csrf());
            input type="hidden" name="tenant" value=(name);
            button type="submit" { (view.t.show_tenant) }
        }
    }
}
