//! Alerts: what a person must see, and who is told.

use crate::console::prelude::*;

pub(super) const PAGE: Page =
    Page { path: "/console/alerts", menu: Some(|t| t.alerts), right: Read, is_live: true, show };

fn show(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let all = view.query.get("all").unwrap_or_default();
    let after = view.query.get("after").unwrap_or_default();
    let found = view.read("/v1/escalations", &[("all", all), ("after", after), ("limit", "50")])?;
    let rows: Vec<_> = found
        .items("items")
        .iter()
        .map(|row| {
            let by = row.maybe("acknowledged_by");
            vec![
                html! { (word(row.text("class"))) },
                html! { (row.text("subject")) },
                html! { (row.text("detail")) },
                time(row.text("first_at")),
                html! { (row.int("count")) },
                html! {
                    @if row.maybe("resolved_at").is_some() { (t.resolved) }
                    @else if let Some(by) = by { (t.acknowledged_by) " " (by) }
                    @else { (button(view, &actions::ACKNOWLEDGE, &[("id", row.text("id"))])) }
                },
            ]
        })
        .collect();
    let channels = view.read("/v1/alert-channels", &[("limit", "100")])?;
    let channel_rows: Vec<_> = channels
        .items("items")
        .iter()
        .map(|row| {
            let given = [("name", row.text("name"))];
            vec![
                html! { (row.text("name")) },
                html! { (row.text("kind")) " " (row.text("target")) },
                html! { (row.text("severity")) },
                match (row.maybe("failing_since"), row.maybe("last_success_at")) {
                    (Some(_), _) => state("failed"),
                    (None, Some(_)) => state("ok"),
                    (None, None) => nothing(),
                },
                time_or(row.maybe("last_success_at")),
                html! { (button(view, &actions::TEST_CHANNEL, &given)) " " (button(view, &actions::DELETE_CHANNEL, &given)) },
            ]
        })
        .collect();
    let body = html! {
        @if rows.is_empty() { (empty(t.nobody_needed, "")) }
        @else { (table(t.alerts, &[t.kind, t.what, t.detail, t.since, t.count, t.act], &rows)) }
        p { @if all.is_empty() { a href="/console/alerts?all=true" { (t.show_resolved) } } @else { a href="/console/alerts" { (t.open_only) } } }
        (pager(view, &found))
        h2 { (t.channels) }
        div.actions { (button(view, &actions::CREATE_CHANNEL, &[])) }
        @if channel_rows.is_empty() { (empty(t.no_channels, t.no_channels_help)) }
        @else { (table(t.channels, &[t.name, t.goes_to, t.severity, t.state, t.last_success, t.act], &channel_rows)) }
    };
    Ok(Content::new(t.alerts, body))
}
