//! Comparisons of a provider's list with the webhooks that came: a section of the provider's page, and a page of each.

use crate::console::elements::{Mood, badge, button_to};
use crate::console::prelude::*;
use crate::console::texts::Texts;

/// Runs that the provider's page shows.
const SHOWN: &str = "10";

/// The section of a provider's page: its latest runs.
pub(super) fn section(view: &View<'_>, provider: &str) -> Markup {
    let t = view.t;
    let path = format!("/v1/providers/{}/reconciliations", segment(provider));
    let found = view.read_or_null(&path, &[("limit", SHOWN)]);
    let cells = Cells(
        &[
            cell("began"),
            cell("state"),
            cell("run_sent").of("sent"),
            cell("run_received").of("received"),
            cell("run_missing").of("missing"),
            cell("run_taken_in").of("taken_in"),
            cell("run_refused").of("refused"),
            cell("who").filled("requested_by"),
        ],
        &[
            ("began", &|run| {
                let page = format!(
                    "/console/providers/{}/reconciliations/{}",
                    segment(provider),
                    run.text("id")
                );
                html! { a href=(page) { (time(run.text("began_at"))) } }
            }),
            ("state", &|run| state_of(t, run)),
        ],
    );
    let empty = EmptyNote { text: t.no_reconciliations, hint: t.no_reconciliations_help };
    let dry = [("name", provider), ("dry_run", "true")];
    html! {
        h2 { (t.reconciliations) }
        p { (t.reconciliations_about) }
        div.actions {
            (button(view, &actions::RECONCILE_PROVIDER, &[("name", provider)]))
            (button_to(view, &actions::RECONCILE_PROVIDER, &dry, t.reconcile_dry, &view.head.path))
        }
        (cells.table(view, t.reconciliations, found.items("items"), empty))
    }
}

/// The page of a run.
pub(super) fn one(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let provider = view.param(0);
    let path =
        format!("/v1/providers/{}/reconciliations/{}", segment(provider), segment(view.param(1)));
    let run = view.read(&path, &[])?;
    let known = Cells(
        &[
            cell("source"),
            cell("since").time("since"),
            cell("until").time("until"),
            cell("began").time("began_at"),
            cell("ended").time("ended_at"),
            cell("who").filled("requested_by"),
            cell("run_sent").of("sent"),
            cell("run_received").of("received"),
            cell("run_missing").of("missing"),
            cell("run_taken_in").of("taken_in"),
            cell("run_refused").of("refused"),
        ],
        &[],
    );
    let days = Cells(
        &[
            cell("day"),
            cell("run_sent").of("sent"),
            cell("run_received").of("received"),
            cell("run_missing").of("missing"),
            cell("run_taken_in").of("taken_in"),
            cell("run_refused").of("refused"),
            cell("run_reasons"),
        ],
        &[("run_reasons", &|day| reasons(day))],
    );
    let empty = EmptyNote { text: t.run_without_days, hint: "" };
    let body = html! {
        @if let Some(error) = run.maybe("error") { p.error { (error) } }
        @if run.is("dry_run") { p.notice { (t.run_is_dry) } }
        (known.facts(view, &run))
        (days.table(view, t.run_days, run.items("days"), empty))
        p { (link("providers", provider)) }
    };
    let title = format!("{}: {provider}", t.reconciliations);
    Ok(Content::new(title, body).badge(state_of(t, &run)))
}

fn state_of(t: &Texts, run: &Value) -> Markup {
    match run.text("state") {
        "RUNNING" => badge(t.run_under_way, Mood::OPEN),
        "FAILED" => badge(t.run_failed, Mood::BAD),
        _ if run.is("dry_run") => badge(t.run_done_dry, Mood::of("done")),
        _ => badge(t.run_done, Mood::of("done")),
    }
}

/// Why items of a day were refused, one a line.
fn reasons(day: &Value) -> Markup {
    let each = day.each("reasons", |reason| reason.as_str().unwrap_or_default().to_owned());
    if each.is_empty() {
        return nothing();
    }
    html! { @for reason in &each { (reason) br; } }
}
