//! Dead letters, by subscription and error; and the jobs that send or discard many.

use crate::console::charts::bar;
use crate::console::prelude::*;

pub(super) const LIST: Page = Page {
    path: "/console/dead-letters",
    menu: Some(|t| t.dead_letters),
    right: Read,
    // A list with boxes is not replaced under the hands.
    is_live: false,
    show: list,
};
pub(super) const JOBS: Page = Page::new("/console/jobs", Read, jobs);
pub(super) const JOB: Page = Page::new("/console/jobs/{id}", Read, job);

fn list(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let subscription = view.query.get("subscription").unwrap_or_default();
    let summary = view.read("/v1/dead-letters/summary", &[("subscription", subscription)])?;
    let mut query = vec![("limit", "50")];
    let narrowed = |name| Some((name, view.query.get(name)?));
    query.extend(["subscription", "class", "code"].into_iter().filter_map(narrowed));
    let is_filtered = query.len() > 1;
    let title = query.iter().skip(1).fold(t.dead_letters.to_owned(), |title, (_, part)| {
        format!("{title}{} {}", if title == t.dead_letters { ":" } else { "," }, word(part))
    });
    query.push(("after", view.query.get("after").unwrap_or_default()));
    let found = view.read("/v1/dead-letters", &query)?;
    let body = html! {
        p { (t.dead_letters_about) " " a href="/console/jobs" { (t.jobs) } }
        @if !summary.items("groups").is_empty() { (groups(view, &summary)) }
        @if is_filtered { p { a href=(view.head.path) { (t.show_all) } } }
        @if !found.items("items").is_empty() { (letters(view, found.items("items"))) }
        @else if is_filtered { (empty(t.none_match, "")) }
        @else { (empty(t.no_dead_letters, t.no_dead_letters_help)) }
        (pager(view, &found))
    };
    Ok(Content::new(title, body))
}

fn groups(view: &View<'_>, summary: &Value) -> Markup {
    let t = view.t;
    let rows = summary.each("groups", |row| {
        let name = row.text("subscription");
        let code = row.field("code").as_i64().map(|code| code.to_string()).unwrap_or_default();
        let given = [
            ("filter.subscription", name),
            ("filter.class", row.text("class")),
            ("filter.code", code.as_str()),
        ];
        let of_name = with_query(&view.head.path, [("subscription", name)]);
        let class = ("class", row.text("class"));
        let of_error = [("subscription", name), class, ("code", code.as_str())];
        let of_error = with_query(&view.head.path, of_error);
        let is_shown = view.query.get("class") == row.maybe("class")
            && view.query.get("code").unwrap_or_default() == code;
        vec![
            html! { a href=(of_name) { (name) } },
            html! { a href=(of_error) aria-current=[is_shown.then_some("true")] { (word(row.text("class"))) " " (code) } },
            html! { (row.maybe("reason").unwrap_or_default()) },
            html! { (row.int("count")) },
            time(row.text("oldest_at")),
            time(row.text("newest_at")),
            html! { (button(view, &actions::REPLAY_DEAD, &given)) " " (button(view, &actions::DISCARD_DEAD, &given)) },
        ]
    });
    let heads = [t.subscription, t.error, t.reason, t.count, t.oldest, t.newest_one, t.act];
    table(t.by_error, &heads, &rows)
}

/// The newest ones, to be picked: a plain form that leads to the page that asks first. Who may not act gets a table.
fn letters(view: &View<'_>, found: &[Value]) -> Markup {
    let t = view.t;
    let may = view.may(Operate);
    let rows: Vec<_> = found
        .iter()
        .map(|row| {
            let id = row.text("id");
            let box_of = html! { input type="checkbox" name="filter.ids" value=(id) aria-label={ (t.pick) " " (id) }; };
            let cells = [
                box_of,
                link("deliveries", id),
                link_of(row),
                html! { (row.text("subscription")) },
                text_or(row.maybe("reason")),
                time_or(row.maybe("finished_at")),
            ];
            cells.into_iter().skip(usize::from(!may)).collect()
        })
        .collect();
    let heads = [t.pick, t.delivery, t.event, t.subscription, t.reason, t.at];
    let (_, readers) = heads.split_at(1);
    let back = with_query(&view.head.path, view.query.pairs().filter(|(name, _)| *name != "did"));
    html! {
        h2 { (t.newest) }
        @if may {
            form method="get" action={ "/console/act/" (actions::REPLAY_PICKED.name) } {
                input type="hidden" name="back" value=(back);
                label { input type="checkbox" data-pick-all hidden; " " (t.pick_all) }
                (table(t.dead_letters, &heads, &rows))
                div.actions {
                    button type="submit" { (t.replay_picked) }
                    button type="submit" formaction={ "/console/act/" (actions::DISCARD_PICKED.name) } { (t.discard_picked) }
                }
            }
        } @else { (table(t.dead_letters, readers, &rows)) }
    }
}

fn jobs(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let found = view.read(
        "/v1/jobs",
        &[("limit", "50"), ("after", view.query.get("after").unwrap_or_default())],
    )?;
    let rows = found.each("items", |row| {
        vec![
            link("jobs", row.text("id")),
            html! { (word(row.text("kind"))) },
            state(row.text("state")),
            html! { (row.int("done")) " / " (row.int("matched")) },
            html! { (row.text("requested_by")) },
            time(row.text("created_at")),
        ]
    });
    let body = html! {
        @if rows.is_empty() { (empty(t.no_jobs, t.no_jobs_help)) }
        @else { (table(t.jobs, &[t.id, t.kind, t.state, t.progress, t.who, t.at], &rows)) }
        (pager(view, &found))
    };
    Ok(Content::new(t.jobs, body))
}

fn job(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let found = view.read(&format!("/v1/jobs/{}", segment(view.param(0))), &[])?;
    let (done, matched) = (found.int("done"), found.int("matched"));
    let more = if found.is("matched_more") { "+" } else { "" };
    let body = html! {
        div.actions {
            (state(found.text("state")))
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
        (facts(&[
            (t.skipped, html! { (found.int("skipped") + found.int("acted_on_meanwhile")) }),
            (t.deliveries, html! { (found.int("deliveries")) }),
            (t.who, html! { (found.text("requested_by")) }),
            (t.reason, text_or(found.maybe("reason"))),
            (t.at, time(found.text("created_at"))),
            (t.completed, time_or(found.maybe("finished_at"))),
        ]))
        h2 { (t.filter) }
        (json(view, found.field("filter")))
    };
    Ok(Content::new(format!("{}: {}", t.job, word(found.text("kind"))), body))
}
