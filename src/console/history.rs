//! The history of a subscription or a provider: its last 90 days, and the hours of one of them.

use crate::console::charts;
use crate::console::prelude::*;

/// The section of a page. `of` is the thing's path in the API, `what` says what is counted.
pub(super) fn section(view: &View<'_>, of: &str, what: &'static str) -> Markup {
    let t = view.t;
    let path = format!("{of}/history");
    let days = view.read_or_null(&path, &[]);
    let today = view.inner().api.env.clock.wall().to_string();
    let chosen = view.query.get("day").filter(|day| !day.is_empty());
    let day = chosen.or_else(|| today.get(..10)).unwrap_or_default();
    html! {
        h2 #history { (t.history) }
        (figure(view, t.history_days, what, days.items("items"), 10))
        form.filters method="get" action={ (view.head.path) "#history" } {
            label { span { (t.day) } input name="day" value=(day) placeholder="2026-01-31" maxlength="10" required; }
            button type="submit" { (t.show_hours) }
        }
        @match view.read(&path, &[("day", day)]) {
            Ok(hours) => (figure(view, &format!("{} {day}", t.history_hours), what, hours.items("items"), 16)),
            Err(error) => p.error { (error.detail) },
        }
    }
}

/// A picture, and a table that says the same. Of each time, so many characters are shown.
fn figure(view: &View<'_>, name: &str, what: &str, rows: &[Value], chars: usize) -> Markup {
    let t = view.t;
    let took = |row: &Value, field: &str| {
        row.field(field).as_i64().map_or_else(nothing, |ms| html! { (span(ms)) })
    };
    let cells = Cells(
        &[
            cell("at"),
            cell("volume"),
            cell("failed"),
            cell("failure_rate"),
            cell("half_took"),
            cell("most_took"),
            cell("known_minutes").of("minutes"),
        ],
        &[
            (
                "at",
                &|row| html! { (row.text("at").get(..chars).unwrap_or_default().replace('T', " ")) },
            ),
            ("volume", &|row| known(row, number(row.int("total")))),
            ("failed", &|row| known(row, number(row.int("failed")))),
            ("failure_rate", &|row| {
                known(row, html! { (charts::rate(row.int("failed"), row.int("total"))) })
            }),
            ("half_took", &|row| took(row, "p50_ms")),
            ("most_took", &|row| took(row, "p95_ms")),
        ],
    );
    // What never happened needs no line in the table.
    let told: Vec<_> = rows.iter().filter(|row| charts::is_known(row)).cloned().collect();
    html! {
        figure {
            (charts::history(view, name, what, rows))
            details { summary { (t.as_table) } (cells.table(view, name, &told, EmptyNote { text: t.nothing_known, hint: "" })) }
        }
    }
}

fn known(row: &Value, shown: Markup) -> Markup {
    if charts::is_known(row) { shown } else { nothing() }
}
