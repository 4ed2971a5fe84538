//! Dead letters, by subscription and error; and the jobs that send or discard many.

use crate::console::charts::bar;
use crate::console::prelude::*;

pub(super) fn list(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let subscription = view.query.get("subscription").unwrap_or_default();
    let summary = view.read("/v1/dead-letters/summary", &[("subscription", subscription)])?;
    // A group of the summary is what they are filtered by.
    let given: Vec<_> = ["subscription", "class", "code"]
        .into_iter()
        .filter_map(|name| Some((name, view.query.get(name)?)))
        .collect();
    let title = given.iter().fold(t.dead_letters.to_owned(), |title, (_, part)| {
        format!("{title}{} {}", if title == t.dead_letters { ":" } else { "," }, word(part))
    });
    let may = view.may(Operate);
    let shown = &[
        cell("pick"),
        cell("delivery").link("deliveries", "id"),
        cell("event"),
        cell("subscription"),
        cell("reason").filled("reason"),
        cell("at").time("finished_at"),
        cell("event_type").further(),
        cell("attempts").of("attempt_count").further(),
        cell("made").time("created_at").further(),
    ];
    let without_pick = shown.get(1..).unwrap_or_default();
    let cells = Cells(
        if may { shown } else { without_pick },
        &[
            ("pick", &|row| {
                let id = row.text("id");
                html! { input type="checkbox" name="filter.ids" value=(id) aria-label={ (t.pick) " " (id) }; }
            }),
            ("event", &link_of),
        ],
    );
    let empty = match given.as_slice() {
        [] => EmptyNote { text: t.no_dead_letters, hint: t.no_dead_letters_help },
        _ => EmptyNote { text: t.none_match, hint: "" },
    };
    let list =
        List { always: &given, ..List::new(t.dead_letters, "/v1/dead-letters", cells, empty) };
    let listed = list.read(view)?;
    let body = html! {
        p { (t.dead_letters_about) " " a href="/console/jobs" { (t.jobs) } }
        @if !summary.items("groups").is_empty() { (groups(view, &summary)) }
        @if !given.is_empty() { p { a href=(view.head.path) { (t.show_all) } } }
        @if may && !listed.found.items("items").is_empty() { h2 { (t.newest) } (to_pick(view, &listed.table)) }
        @else { (listed.table) }
        (listed.pager)
    };
    Ok(listed.page(title, body))
}

fn groups(view: &View<'_>, summary: &Value) -> Markup {
    let t = view.t;
    let code =
        |row: &Value| row.field("code").as_i64().map(|code| code.to_string()).unwrap_or_default();
    let cells = Cells(
        &[
            cell("subscription"),
            cell("error"),
            cell("reason"),
            cell("count"),
            cell("oldest").time("oldest_at"),
            cell("newest_one").time("newest_at"),
            cell("act"),
        ],
        &[
            ("subscription", &|row| {
                let name = row.text("subscription");
                html! { a href=(with_query(&view.head.path, [("subscription", name)])) { (name) } }
            }),
            ("error", &|row| {
                let name = row.text("subscription");
                let class = row.text("class");
                let code = code(row);
                let of_error = [("subscription", name), ("class", class), ("code", code.as_str())];
                let of_error = with_query(&view.head.path, of_error);
                let is_shown = view.query.get("class") == row.maybe("class")
                    && view.query.get("code").unwrap_or_default() == code;
                html! { a href=(of_error) aria-current=[is_shown.then_some("true")] { (word(class)) " " (code) } }
            }),
            ("act", &|row| {
                let code = code(row);
                let given = [
                    ("filter.subscription", row.text("subscription")),
                    ("filter.class", row.text("class")),
                    ("filter.code", code.as_str()),
                ];
                html! { (button(view, &actions::REPLAY_DEAD, &given)) " " (button(view, &actions::DISCARD_DEAD, &given)) }
            }),
        ],
    );
    cells.table(view, t.by_error, summary.items("groups"), EmptyNote::default())
}

/// A table with boxes: a plain form that leads to the page that asks first.
fn to_pick(view: &View<'_>, table: &Markup) -> Markup {
    let t = view.t;
    let back = with_query(&view.head.path, view.query.pairs().filter(|(name, _)| *name != "did"));
    html! {
        form method="get" action={ "/console/act/" (actions::REPLAY_PICKED.name) } {
            input type="hidden" name="back" value=(back);
            label { input type="checkbox" data-pick-all hidden; " " (t.pick_all) }
            (table)
            div.actions {
                button type="submit" { (t.replay_picked) }
                button type="submit" formaction={ "/console/act/" (actions::DISCARD_PICKED.name) } { (t.discard_picked) }
            }
        }
    }
}

pub(super) fn jobs(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let cells = Cells(
        &[
            cell("id").link("jobs", "id"),
            cell("kind").word("kind"),
            cell("state"),
            cell("progress"),
            cell("who").of("requested_by"),
            cell("at").time("created_at"),
        ],
        &[
            ("state", &|row| html! { (Standing::of_job(row)) }),
            ("progress", &|row| {
                html! { (number(row.int("done"))) " / " (number(row.int("matched"))) }
            }),
        ],
    );
    List::new(t.jobs, "/v1/jobs", cells, EmptyNote { text: t.no_jobs, hint: t.no_jobs_help })
        .page(view)
}

pub(super) fn job(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let found = view.one("/v1/jobs")?;
    let done = found.int("done");
    let matched = found.int("matched");
    let more = if found.is("matched_more") { "+" } else { "" };
    let known = Cells(
        &[
            cell("skipped"),
            cell("deliveries"),
            cell("who").of("requested_by"),
            cell("reason").filled("reason"),
            cell("at").time("created_at"),
            cell("completed").time("finished_at"),
        ],
        &[("skipped", &|job| html! { (job.int("skipped") + job.int("acted_on_meanwhile")) })],
    );
    let body = html! {
        div.actions {
            @let can = match found.text("state") {
                "running" => &[&actions::PAUSE_JOB, &actions::CANCEL_JOB][..],
                "paused" => &[&actions::RESUME_JOB, &actions::CANCEL_JOB],
                _ => &[],
            };
            @for action in can { (button(view, action, &[("id", found.text("id"))])) }
        }
        @if let Some(error) = found.maybe("error") { p.error { (error) } }
        (bar(done, matched))
        p { (done) " / " (matched) (more) }
        (known.facts(view, &found))
        @if !found.field("became").is_null() {
            h2 { (t.what_became) }
            (Cells(&[cell("sent"), cell("failed_again"), cell("retrying"), cell("waiting"), cell("ended"), cell("gone")], &[]).facts(view, found.field("became")))
        }
        h2 { (t.filter) }
        (json(view, found.field("filter")))
    };
    let title = format!("{}: {}", t.job, word(found.text("kind")));
    Ok(Content::new(title, body).badge(html! { (Standing::of_job(&found)) }))
}
