//! Subscriptions: who gets what, who is failing, what holds them, and how to stop or mend it.

use std::time::Duration;

use crate::console::charts::strip;
use crate::console::prelude::*;

pub(super) const LIST: Page =
    Page::new("/console/subscriptions", Read, list).menu(|t| t.subscriptions);
pub(super) const ONE: Page = Page::new("/console/subscriptions/{id}", Read, one);

/// A test while it runs, and what came of it.
pub(super) const TEST: Page = Page::new("/console/subscriptions/tests/{id}", Read, test);

fn list(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let found = view.read(
        "/v1/subscriptions",
        &[("limit", "20"), ("after", view.query.get("after").unwrap_or_default())],
    )?;
    let recent = view.read_or_null("/v1/stats/recent", &[]);
    let mut all: Vec<&Value> = found.items("items").iter().collect();
    all.sort_by_key(|row| urgency(row));
    let row = |row: &Value| {
        let failing = row.maybe("failing_since");
        vec![
            link("subscriptions", row.text("name")),
            html! { (health(row)) @if let Some(since) = failing { br; small { (t.since) " " (time(since)) } } },
            html! { (row.first_of(&["url", "target"])) },
            html! { (types(row)) },
            time_or(row.maybe("last_success_at")),
            strip(view, latest(&recent, row.text("name"))),
        ]
    };
    let rows: Vec<_> = all.into_iter().map(row).collect();
    let heads = [t.name, t.state, t.goes_to, t.event_types, t.last_success, t.last_attempts];
    let body = html! {
        div.actions { (button(view, &actions::CREATE_SUBSCRIPTION, &[])) }
        @if rows.is_empty() { (empty(t.no_subscriptions, t.no_subscriptions_help)) }
        @else { (table(t.subscriptions, &heads, &rows)) }
        (pager(view, &found))
    };
    Ok(Content::new(t.subscriptions, body))
}

/// The order of the list: what was given up, what fails or is held, what is paused, the others.
fn urgency(row: &Value) -> u8 {
    match row.text("state") {
        "DISABLED_DEAD" => 0,
        "PAUSED" => 2,
        _ if row.maybe("failing_since").is_some() || !row.items("holds").is_empty() => 1,
        _ => 3,
    }
}

/// Whether it is held, fails or works.
fn health(subscription: &Value) -> Markup {
    let holds = subscription.each("holds", |hold| word(hold.text("reason")));
    html! {
        @if !holds.is_empty() { (state("held")) " " (holds.join(", ")) }
        @else if subscription.maybe("failing_since").is_some() { (state("failing")) }
        @else { (state(subscription.text("state"))) }
    }
}

fn types(subscription: &Value) -> String {
    let types: Vec<&str> =
        subscription.items("event_types").iter().filter_map(Value::as_str).collect();
    types.join(", ")
}

/// The latest attempts of a subscription in `/v1/stats/recent`.
fn latest<'a>(recent: &'a Value, name: &str) -> &'a [Value] {
    let found = recent.items("subscriptions").iter().find(|row| row.text("subscription") == name);
    found.map_or(&[], |row| row.items("attempts"))
}

fn one(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let found = view.read(&format!("/v1/subscriptions/{}", segment(view.param(0))), &[])?;
    let (name, id) = (found.text("name"), found.text("id"));
    let recent = view.read_or_null("/v1/stats/recent", &[]);
    let is_stopped = found.items("holds").iter().any(|hold| hold.text("reason") == "paused");
    let given = [("id", name)];
    let a_day_ago = view.inner().api.clock.wall().minus(Duration::from_hours(24)).to_string();
    let listed = |path: &str| with_query(path, [("subscription", name)]);
    let body = html! {
        div.actions {
            (health(&found))
            @if is_stopped { (button(view, &actions::RESUME, &given)) } @else { (button(view, &actions::PAUSE, &given)) }
            @if found.text("target") == "http" { (button(view, &actions::TEST, &given)) }
            @if found.text("source") == "outbox" { (button(view, &actions::REPLAY_SINCE, &[("filter.subscription", name), ("filter.since", a_day_ago.as_str())])) }
            (button(view, &actions::RECOVER, &given))
            (button(view, &actions::CHANGE_SUBSCRIPTION, &[("id", name), ("url", found.text("url")), ("event_types", types(&found).replace(", ", "\n").as_str())]))
            (button(view, &actions::DELETE_SUBSCRIPTION, &given))
        }
        (holds(view, found.items("holds")))
        @if !latest(&recent, name).is_empty() {
            figure { (strip(view, latest(&recent, name))) figcaption.small { (t.last_attempts) ": " (latest(&recent, name).len()) } }
        }
        (facts(&[
            (t.goes_to, text_or(found.maybe("url"))),
            (t.method, html! { (found.text("method")) }),
            (t.source, html! { (found.text("source")) }),
            (t.event_types, html! { (types(&found)) }),
            (t.ordering, html! { (found.text("ordering")) }),
            (t.format, html! { (word(found.text("format"))) }),
            (t.last_success, time_or(found.maybe("last_success_at"))),
            (t.last_failure, time_or(found.maybe("last_failure_at"))),
            (t.failing_since, time_or(found.maybe("failing_since"))),
            (t.id, html! { code { (id) } }),
        ]))
        p {
            a href=(listed("/console/deliveries")) { (t.deliveries) } " · "
            a href=(listed("/console/dead-letters")) { (t.dead_letters) } " · "
            a href=(listed("/console/lanes")) { (t.lanes) }
            @if view.may(Admin) { " · " a href=(with_query("/console/audit", [("resource", id)])) { (t.who_changed_it) } }
        }
        (credentials(view, name))
        details #terms { summary { (t.all_terms) }
            @for part in ["policy", "order", "filter", "headers", "template"] { h2 { (word(part)) } (json(view, found.field(part))) } }
    };
    Ok(Content::new(format!("{}: {name}", t.subscription), body))
}

fn holds(view: &View<'_>, holds: &[Value]) -> Markup {
    let t = view.t;
    html! {
        @for hold in holds {
            div.error {
                p { strong { (t.held) ": " (word(hold.text("reason"))) } " " (told(hold.text("detail"))) }
                p.small { (t.since) " " (time(hold.text("since")))
                    @if let Some(until) = hold.maybe("until") { " · " (t.until) " " (time(until)) }
                    @if let Some(probe) = hold.maybe("probe_at") { " · " (t.next_probe) " " (time(probe)) } }
            }
        }
    }
}

fn credentials(view: &View<'_>, name: &str) -> Markup {
    let t = view.t;
    let found = view.read_or_null("/v1/credentials", &[("subscription", name), ("limit", "50")]);
    let rows = found.each("items", |row| {
            let (is_active, kind) = (row.text("state") == "active", row.text("kind"));
            // The one that signs is replaced, not revoked.
            let may_go = row.text("state") != "revoked" && !(is_active && kind.starts_with("signing"));
            let id = ("id", row.text("id"));
            let (every, command) = (row.text("rotate_every"), row.text("rotate_command"));
            vec![
                html! { (word(kind)) " " (row.int("version")) },
                html! { (state(row.text("state"))) @if let Some(error) = row.maybe("verify_error") { br; (error) } },
                time(row.text("created_at")),
                time_or(row.maybe("valid_until")),
                time_or(row.maybe("last_used_at")),
                html! { (text_or(row.maybe("rotate_every"))) " " (command) },
                html! {
                    @if is_active {
                        (button(view, &actions::ROTATE, &[id])) " "
                        (button(view, &actions::SCHEDULE, &[id, ("every", every), ("command", command)])) " "
                    }
                    @if may_go { (button(view, &actions::REVOKE, &[id])) }
                },
            ]
    });
    html! {
        h2 { (t.credentials) }
        @if rows.is_empty() { p.small { (t.no_credentials) } }
        @else { (table(t.credentials, &[t.kind, t.state, t.made, t.valid_until, t.last_used, t.rotation, t.act], &rows)) }
    }
}

fn test(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let found = view.read(&format!("/v1/subscription-tests/{}", segment(view.param(0))), &[])?;
    let (name, result, is_running) =
        (found.text("subscription"), found.field("result"), found.is("is_running"));
    let row = |step: &Value| {
        let took = step.field("took_ms").as_f64().unwrap_or_default();
        vec![
            html! { (word(step.text("step"))) },
            state(if step.is("ok") { "ok" } else { "failed" }),
            html! { (format!("{took:.1} ms")) },
            html! { (step.text("detail")) },
        ]
    };
    let done = found.items("steps").iter().chain(result.items("steps"));
    let mut rows: Vec<_> = done.map(row).collect();
    if let Some(step) = found.maybe("step") {
        rows.push(vec![html! { (word(step)) }, state("running"), nothing(), nothing()]);
    }
    let body = html! {
        @if is_running { p.notice.open role="status" { @if rows.is_empty() { (t.test_waits) } @else { (t.test_runs) } } }
        @else if result.is("ok") { p.notice role="status" { (t.test_works) } }
        @else {
            div.error role="status" {
                p { strong { (t.test_fails) } " " (found.first_of(&["problem"])) (result.first_of(&["advice"])) }
            }
        }
        @if !rows.is_empty() { (table(t.steps, &[t.step, t.state, t.took, t.detail], &rows)) }
        @if !result.is_null() {
            (facts(&[
                (t.sent_to, text_or(result.maybe("url").filter(|url| !url.is_empty()))),
                (t.event_type, html! { (result.text("event_type")) }),
                (t.result, state(result.text("class"))),
                (t.they_said, text_or(result.maybe("excerpt"))),
            ]))
        }
        div.actions {
            @if !is_running { (button(view, &actions::TEST, &[("id", name)])) }
            a.button href={ "/console/subscriptions/" (segment(name)) } { (t.subscription) ": " (name) }
        }
    };
    Ok(Content { is_running, ..Content::new(format!("{}: {name}", t.test), body) })
}
