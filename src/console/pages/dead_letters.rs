//! Dead letters, by what the targets said; and the jobs that send or discard many.

use crate::console::charts::bar;
use crate::console::elements::button_to;
use crate::console::prelude::*;

/// The fields by which dead letters are of one kind.
const KIND: [&str; 4] = ["subscription", "class", "code", "answer"];

pub(super) fn list(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let subscription = view.query.get("subscription").unwrap_or_default();
    let summary = view.read("/v1/dead-letters/summary", &[("subscription", subscription)])?;
    // A group of the summary is what they are filtered by.
    let given: Vec<_> =
        KIND.into_iter().filter_map(|name| Some((name, view.query.get(name)?))).collect();
    let title = given.iter().fold(t.dead_letters.to_owned(), |title, (name, part)| {
        let part = if *name == "class" { word(part) } else { (*part).to_owned() };
        format!("{title}{} {part}", if title == t.dead_letters { ":" } else { "," })
    });
    let kinds: Vec<Value> =
        summary.items("groups").iter().filter(|group| is_of(group, &given)).cloned().collect();
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
        @if !kinds.is_empty() { (groups(view, &kinds)) }
        @if !given.is_empty() { p { a href=(view.head.path) { (t.show_all) } } }
        @if may && !listed.found.items("items").is_empty() { h2 { (t.newest_one) } (to_pick(view, &listed.table)) }
        @else { (listed.table) }
        (listed.pager)
    };
    Ok(listed.page(title, body))
}

/// Whether a group is of the kind that the URL asks for.
fn is_of(group: &Value, given: &[(&str, &str)]) -> bool {
    given.iter().all(|(name, wanted)| field_of(group, name) == *wanted)
}

/// A field of a group, as a URL has it.
fn field_of(group: &Value, name: &str) -> String {
    match group.field(name) {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The page of the kind of a dead letter, as its own page reads it. `None`: it is no dead letter.
pub(super) fn page_of_kind(delivery: &Value) -> Option<String> {
    let answer = delivery.maybe("answer")?;
    let code = field_of(delivery, "http_status");
    let kind = [
        ("subscription", delivery.text("subscription")),
        ("class", delivery.text("last_class")),
        ("code", code.as_str()),
        ("answer", answer),
    ];
    Some(with_query("/console/dead-letters", kind))
}

/// The kinds of dead letters, the largest first, each with what can be done.
fn groups(view: &View<'_>, groups: &[Value]) -> Markup {
    let t = view.t;
    let kind = |row: &Value| KIND.map(|name| (name, field_of(row, name)));
    let page = |row: &Value| {
        let kind = kind(row);
        with_query(&view.head.path, kind.iter().map(|(name, value)| (*name, value.as_str())))
    };
    let cells = Cells(
        &[
            cell("they_said"),
            cell("count"),
            cell("subscription"),
            cell("since").time("oldest_at"),
            cell("act"),
        ],
        &[
            ("they_said", &|row| {
                let is_shown = view.query.get("answer") == row.maybe("answer");
                html! {
                    a href=(page(row)) aria-current=[is_shown.then_some("true")] { (row.first_of(&["answer", "reason"])) }
                    " " small.number { (word(row.text("class"))) " " (field_of(row, "code")) }
                }
            }),
            ("subscription", &|row| {
                let name = row.text("subscription");
                html! { a href=(with_query(&view.head.path, [("subscription", name)])) { (name) } }
            }),
            ("act", &|row| {
                let kind = kind(row);
                let given = KIND.map(|name| format!("filter.{name}"));
                let given: Vec<_> = given
                    .iter()
                    .zip(&kind)
                    .map(|(name, (_, value))| (name.as_str(), value.as_str()))
                    .collect();
                // Who has corrected one comes back to the others of its kind.
                let correct = |id| {
                    button_to(
                        view,
                        &actions::EDIT_AND_RESEND,
                        &[("id", id)],
                        t.correct_one,
                        &page(row),
                    )
                };
                html! {
                    div.row-actions {
                        @if let Some(id) = row.maybe("editable") { (correct(id)) }
                        (button(view, &actions::REPLAY_DEAD, &given))
                        (button(view, &actions::DISCARD_DEAD, &given))
                    }
                }
            }),
        ],
    );
    cells.table(view, t.by_answer, groups, EmptyNote::default())
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
            cell("kind"),
            cell("state"),
            cell("progress"),
            cell("who").of("requested_by"),
            cell("at").time("created_at"),
        ],
        &[
            ("kind", &|row| {
                html! { a href={ "/console/jobs/" (segment(row.text("id"))) } { (word(row.text("kind"))) } }
            }),
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
        &[("skipped", &|job| number(job.int("skipped") + job.int("acted_on_meanwhile")))],
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
        (held_back(view, &found))
        (bar(done, matched))
        p { (number(done)) " / " (number(matched)) (more) }
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
