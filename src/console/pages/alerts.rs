//! Alerts: what a person must see, and who is told.

use crate::console::prelude::*;
use crate::model::escalation::Class;

pub(super) fn show(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let all = view.query.get("all").unwrap_or_default();
    let channels = view.read("/v1/alert-channels", &[("limit", "100")])?;
    let escalations = Cells(
        &[
            cell("kind"),
            cell("what").of("subject"),
            cell("detail"),
            cell("since").time("first_at"),
            cell("count"),
            cell("act"),
        ],
        &[
            ("kind", &|row| {
                let class = Class::parse(row.text("class"));
                html! { (class.map_or_else(|| word(row.text("class")), |class| class.title().to_owned())) }
            }),
            ("act", &|row| {
                html! {
                    @if row.maybe("resolved_at").is_some() { (t.resolved) }
                    @else if let Some(by) = row.maybe("acknowledged_by") { (t.acknowledged_by) " " (by) }
                    @else { (button(view, &actions::ACKNOWLEDGE, &[("id", row.text("id"))])) }
                }
            }),
        ],
    );
    let told = Cells(
        &[
            cell("name"),
            cell("goes_to"),
            cell("severity"),
            cell("state"),
            cell("last_success").time("last_success_at"),
            cell("act"),
        ],
        &[
            ("goes_to", &|row| html! { (row.text("kind")) " " (row.text("target")) }),
            ("state", &|row| match (row.maybe("failing_since"), row.maybe("last_success_at")) {
                (Some(_), _) => state("failed"),
                (None, Some(_)) => state("ok"),
                (None, None) => nothing(),
            }),
            ("act", &|row| {
                let given = [("name", row.text("name"))];
                html! { (button(view, &actions::TEST_CHANNEL, &given)) " " (button(view, &actions::CHANGE_CHANNEL, &given)) " " (button(view, &actions::DELETE_CHANNEL, &given)) }
            }),
        ],
    );
    let always = [("all", all), ("limit", FORMS)];
    let empty = EmptyNote { text: t.nobody_needed, hint: "" };
    let list =
        List { always: &always, ..List::new(t.alerts, "/v1/escalations", escalations, empty) };
    let listed = list.read(view)?;
    let body = html! {
        (listed.table)
        p { @if all.is_empty() { a href="/console/alerts?all=true" { (t.show_resolved) } } @else { a href="/console/alerts" { (t.open_only) } } }
        (listed.pager)
        h2 { (t.channels) }
        div.actions { (button(view, &actions::CREATE_CHANNEL, &[])) }
        (told.table(view, t.channels, channels.items("items"), EmptyNote { text: t.no_channels, hint: t.no_channels_help }))
    };
    Ok(listed.page(t.alerts, body))
}
