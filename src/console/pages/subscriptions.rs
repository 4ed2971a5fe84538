//! Subscriptions: who gets what, who is failing, what holds them, and how to stop or mend it.

use std::time::Duration;

use crate::console::charts::strip;
use crate::console::history;
use crate::console::prelude::*;
use crate::model::answer_sentence;
use crate::model::event::OWN_SOURCE;
use crate::model::hold::HoldReason;
use crate::model::subscription::SubscriptionState;

pub(super) fn list(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let fields = [
        ("event_type", t.event_type, FilterInput::Text),
        (
            "state",
            t.state,
            FilterInput::Choice(&SubscriptionState::ALL.map(SubscriptionState::as_str)),
        ),
        ("owner_id", t.owner, FilterInput::Text),
    ];
    let recent = view.read_or_null("/v1/stats/recent", &[]);
    let cells = Cells(
        &[
            cell("name").link("subscriptions", "name"),
            cell("state"),
            cell("goes_to").of("url").or("target"),
            cell("event_types"),
            cell("last_success").time("last_success_at"),
            cell("last_attempts"),
        ],
        &[
            ("state", &|row| {
                html! {
                    (Standing::of_subscription(row))
                    @if let Some(since) = row.maybe("failing_since") { br; small { (t.since) " " (time(since)) } }
                }
            }),
            ("event_types", &|row| html! { (types(row)) }),
            ("last_attempts", &|row| strip(view, latest(&recent, row.text("name")))),
        ],
    );
    let empty = EmptyNote { text: t.no_subscriptions, hint: t.no_subscriptions_help };
    let list = |always| List {
        filters: &fields,
        always,
        ..List::new(t.subscriptions, "/v1/subscriptions", cells, empty)
    };
    if view.query.get("csv").is_some() {
        return list(&[]).page(view);
    }
    if view.query.get("troubled") == Some("true") {
        let troubled = list(&[("troubled", "true")]).read(view)?;
        let all = html! { p { a href="/console/subscriptions" { (t.all_subscriptions) } } };
        return Ok(Content::new(t.subscriptions, html! { (all) (troubled) }));
    }
    // Those that need a look come first, wherever they stand in the list.
    let (mut troubled, has_more) = match view.query.get("after") {
        None => list(&[("troubled", "true")]).first_rows(view, MAX_RANKED)?,
        Some(_) => (Vec::new(), false),
    };
    troubled.sort_by_key(urgency);
    let count = troubled.len();
    troubled.truncate(MAX_TROUBLED);
    let others = list(&[("troubled", "false")]).read(view)?;
    let body = html! {
        div.actions { (button(view, &actions::CREATE_SUBSCRIPTION, &[])) }
        (others.head)
        @if !troubled.is_empty() {
            h2 { (number(i64::try_from(count).unwrap_or_default())) @if has_more { "+" } " " (t.troubled) }
            (cells.table(view, t.troubled, &troubled, EmptyNote::default()))
            @if count > troubled.len() {
                p { a href=(with_query(&view.head.path, view.query.pairs().chain([("troubled", "true")]))) { (t.all_of_them) } }
            }
            h2 { (t.the_others) }
        }
        (others.table)
        (others.pager)
    };
    Ok(others.page(t.subscriptions, body))
}

/// Subscriptions in trouble: at most so many are ranked, and at most so many are shown before a link to all.
const MAX_RANKED: usize = 500;
const MAX_TROUBLED: usize = 50;

/// How many of the worst the overview shows.
const MAX_WORST: usize = 5;

/// The worst subscriptions: what their targets said last, since when, and the button that ends it. Nothing if all is well.
pub(super) fn worst(view: &View<'_>, recent: &Value) -> Markup {
    let t = view.t;
    let cells = Cells(
        &[
            cell("subscription").link("subscriptions", "name"),
            cell("state"),
            cell("they_said"),
            cell("since"),
            cell("act"),
        ],
        &[
            ("state", &|row| html! { (Standing::of_subscription(row)) }),
            ("they_said", &|row| html! { (cut(&last_words(view, row, recent), MAX_WORDS_BYTES)) }),
            ("since", &|row| time(since(row))),
            ("act", &|row| way_on(view, row)),
        ],
    );
    let list = List {
        always: &[("troubled", "true")],
        ..List::new(t.worst_ones, "/v1/subscriptions", cells, EmptyNote::default())
    };
    let Ok((mut rows, has_more)) = list.first_rows(view, MAX_RANKED) else { return html! {} };
    rows.sort_by_key(|row| (urgency(row), since(row).to_owned()));
    let count = counted(rows.len());
    let more = rows.len() > MAX_WORST || has_more;
    rows.truncate(MAX_WORST);
    html! {
        @if !rows.is_empty() {
            h2 { (t.worst_ones) }
            (cells.table(view, t.worst_ones, &rows, EmptyNote::default()))
            @if more { p { a href="/console/subscriptions?troubled=true" { (t.all_of_them) ": " (count) @if has_more { "+" } } } }
        }
    }
}

/// Most bytes of the page for what a target said.
const MAX_WORDS_BYTES: usize = 200;

/// Since when a subscription fails or is held.
fn since(subscription: &Value) -> &str {
    let held = subscription.items("holds").iter().map(|hold| hold.text("since")).min();
    subscription.maybe("failing_since").or(held).unwrap_or_default()
}

/// The target's words about the latest delivery that failed; without one, the reason of the hold. `recent` is the answer of
/// `/v1/stats/recent`, which names the delivery.
fn last_words(view: &View<'_>, subscription: &Value, recent: &Value) -> String {
    let held = || subscription.items("holds").first().map_or("", |hold| hold.text("detail"));
    let failed = last_failed(recent, subscription.text("name"));
    let said = failed.and_then(|delivery| said_at_last(view, delivery));
    said.unwrap_or_else(|| held().to_owned())
}

/// The delivery of a subscription that failed last. `recent`: the answer of `/v1/stats/recent`.
pub(super) fn last_failed<'a>(recent: &'a Value, subscription: &str) -> Option<&'a str> {
    let attempts = latest(recent, subscription);
    let failed = attempts.iter().find(|attempt| attempt.text("class") != "success");
    failed.map(|attempt| attempt.text("delivery"))
}

/// The words of the target at the last attempt of a delivery, if that failed.
pub(super) fn said_at_last(view: &View<'_>, delivery: &str) -> Option<String> {
    let path = format!("/v1/deliveries/{}", segment(delivery));
    let delivery = view.read_or_null(&path, &[]);
    let before = (delivery.int("attempt_count") - 1).max(0).to_string();
    let query = [("after", before.as_str())];
    let attempts = view.read_or_null(&format!("{path}/attempts"), &query);
    let last = attempts.items("items").last().filter(|last| last.text("class") != "success")?;
    answer_sentence::of_dead_letter(last.maybe("excerpt"), last.maybe("failed_reason"), None)
}

/// The button that ends the trouble: Resume where that ends the hold, else a test.
fn way_on(view: &View<'_>, subscription: &Value) -> Markup {
    let given = [("id", subscription.text("name"))];
    let reasons = subscription.each("holds", |hold| HoldReason::parse(hold.text("reason")));
    if reasons.into_iter().flatten().any(HoldReason::ends_by_resume) {
        return button(view, &actions::RESUME, &given);
    }
    let can_test = subscription.text("target") != "pull";
    html! { @if can_test { (button(view, &actions::TEST, &given)) } }
}

/// How many of what waits are counted.
const MAX_WAITING: &str = "200";

/// The order of the list: what was given up, what fails or is held, what is paused, the others.
fn urgency(row: &Value) -> u8 {
    match row.text("state") {
        "DISABLED_DEAD" => 0,
        "PAUSED" => 2,
        _ if row.maybe("failing_since").is_some() || !row.items("holds").is_empty() => 1,
        _ => 3,
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

pub(super) fn one(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let found = view.one("/v1/subscriptions")?;
    let name = found.text("name");
    let id = found.text("id");
    let recent = view.read_or_null("/v1/stats/recent", &[("subscription", name)]);
    let reasons = found.each("holds", |hold| HoldReason::parse(hold.text("reason")));
    let can_resume = reasons.iter().flatten().any(|reason| reason.ends_by_resume());
    let is_paused = reasons.contains(&Some(HoldReason::Paused));
    let can_test = found.text("target") != "pull" && found.text("owner_id") != OWN_SOURCE;
    let given = [("id", name)];
    let a_day_ago = view.inner().api.env.clock.wall().minus(Duration::from_hours(24)).to_string();
    let listed = |path: &str| with_query(path, [("subscription", name)]);
    let known = Cells(
        &[
            cell("goes_to").filled("url"),
            cell("owner").filled("owner_id"),
            cell("method"),
            cell("source"),
            cell("event_types"),
            cell("ordering"),
            cell("format").word("format"),
            cell("last_success").time("last_success_at"),
            cell("last_failure").time("last_failure_at"),
            cell("failing_since").time("failing_since"),
            cell("target_health").filled("health.state"),
            cell("unhealthy_since").time("health.unhealthy_since"),
            cell("probe_failed").filled("health.detail"),
            cell("last_probe").time("health.probed_at"),
            cell("id").id("id"),
        ],
        &[("event_types", &|of| html! { (types(of)) })],
    );
    let body = html! {
        div.actions {
            @if can_resume { (button(view, &actions::RESUME, &given)) }
            @if !is_paused { (button(view, &actions::PAUSE, &given)) }
            @if can_test { (button(view, &actions::TEST, &given)) }
            @if found.text("source") == "outbox" { (button(view, &actions::REPLAY_SINCE, &[("filter.subscription", name), ("filter.since", a_day_ago.as_str())])) }
            (button(view, &actions::RECOVER, &given))
            (button(view, &actions::COMPARE, &[("id", name), ("since", "7d")]))
            (button(view, &actions::CHANGE_SUBSCRIPTION, &given))
            (button(view, &actions::DELETE_SUBSCRIPTION, &given))
        }
        (holds(view, name, found.items("holds")))
        @if found.maybe("failing_since").is_some() {
            p.error { strong { (t.they_said) ": " } (cut(&last_words(view, &found, &recent), MAX_WORDS_BYTES)) }
        }
        @if !latest(&recent, name).is_empty() {
            figure { (strip(view, latest(&recent, name))) figcaption.small { (t.last_attempts) ": " (counted(latest(&recent, name).len())) } }
        }
        (calls_in_doubt(view, &found))
        (known.facts(view, &found))
        p {
            a href=(listed("/console/deliveries")) { (t.deliveries) } " · "
            a href=(listed("/console/dead-letters")) { (t.dead_letters) } " · "
            a href=(listed("/console/lanes")) { (t.lanes) }
            @if view.may(Admin) { " · " a href=(with_query("/console/audit", [("resource", id)])) { (t.who_changed_it) } }
        }
        (credentials(view, name))
        (past_holds(view, name))
        (history::section(view, &format!("/v1/subscriptions/{}", segment(name)), t.attempts))
        details #terms { summary { (t.all_terms) }
            @for part in ["policy", "order", "filter", "headers", "template"] { h2 { (word(part)) } (json(view, found.field(part))) } }
    };
    Ok(Content::new(format!("{}: {name}", t.subscription), body)
        .badge(html! { (Standing::of_subscription(&found)) }))
}

/// External calls that a person has to end.
fn calls_in_doubt(view: &View<'_>, of: &Value) -> Markup {
    let t = view.t;
    if of.field("order").maybe("external_calls").is_none() {
        return html! {};
    }
    let query = [("subscription", of.text("name")), ("in_doubt", "true"), ("limit", "20")];
    let found = view.read_or_null("/v1/external-calls", &query);
    if found.items("items").is_empty() {
        return html! {};
    }
    let cells = Cells(
        &[
            cell("call_about").code("entity_key"),
            cell("delivery"),
            cell("at").time("updated_at"),
            cell("act"),
        ],
        &[
            ("delivery", &|call| link("deliveries", call.text("in_doubt"))),
            ("act", &|call| button(view, &actions::END_CALL, &[("id", call.text("delivery"))])),
        ],
    );
    html! {
        h2 { (t.calls_in_doubt) }
        p { (t.calls_in_doubt_help) }
        (cells.table(view, t.calls_in_doubt, found.items("items"), EmptyNote::default()))
    }
}

/// What holds it, how much waits, and the way out.
fn holds(view: &View<'_>, name: &str, holds: &[Value]) -> Markup {
    let t = view.t;
    if holds.is_empty() {
        return html! {};
    }
    let wait = [("subscription", name), ("state", "pending"), ("limit", MAX_WAITING)];
    let waiting = view.read_or_null("/v1/deliveries", &wait);
    let plus = if waiting.maybe("next").is_some() { "+" } else { "" };
    let way_out = |reason: &str| {
        HoldReason::parse(reason).map_or("", |reason| match reason {
            HoldReason::Paused => t.out_of_paused,
            HoldReason::Disabled => t.out_of_disabled,
            HoldReason::Suspended => t.out_of_suspended,
            HoldReason::Rejecting => t.out_of_rejecting,
            HoldReason::RateLimit => t.out_of_rate_limit,
            HoldReason::Breaker => t.out_of_breaker,
            HoldReason::Auth => t.out_of_auth,
            HoldReason::Offline => t.out_of_offline,
        })
    };
    html! {
        @for hold in holds {
            div.error {
                p { strong data-word=[explained(hold.text("reason"))] { (t.held) ": " (word(hold.text("reason"))) } " " (told(hold.text("detail"))) }
                p { (counted(waiting.items("items").len())) (plus) " " (t.wait_for_it) " " (way_out(hold.text("reason"))) }
                p.small { (t.since) " " (time(hold.text("since")))
                    @if let Some(until) = hold.maybe("until") { " · " (t.until) " " (time(until)) }
                    @if let Some(probe) = hold.maybe("probe_at") { " · " (t.next_probe) " " (time(probe)) } }
            }
        }
    }
}

/// How many ended holds a page shows.
const MAX_PAST_HOLDS: &str = "20";

/// When it was held before, and why.
fn past_holds(view: &View<'_>, name: &str) -> Markup {
    let path = format!("/v1/subscriptions/{}/past-holds", segment(name));
    let found = view.read_or_null(&path, &[("limit", MAX_PAST_HOLDS)]);
    let cells = Cells(
        &[
            cell("reason").word("reason"),
            cell("since").time("since"),
            cell("until").time("ended_at"),
            cell("took"),
            cell("detail").told("detail"),
        ],
        &[(
            "took",
            &|hold| html! { (span(millis(hold.text("ended_at")) - millis(hold.text("since")))) },
        )],
    );
    html! {
        @if !found.items("items").is_empty() {
            h2 { (view.t.past_holds) }
            (cells.table(view, view.t.past_holds, found.items("items"), EmptyNote::default()))
        }
    }
}

/// Whether something holds it that Resume ends.
fn is_held(view: &View<'_>, name: &str) -> bool {
    let found = view.read_or_null(&format!("/v1/subscriptions/{}", segment(name)), &[]);
    let reasons = found.each("holds", |hold| HoldReason::parse(hold.text("reason")));
    reasons.into_iter().flatten().any(HoldReason::ends_by_resume)
}

fn credentials(view: &View<'_>, name: &str) -> Markup {
    let t = view.t;
    let found = view.read_or_null("/v1/credentials", &[("subscription", name), ("limit", "50")]);
    let cells = Cells(
        &[
            cell("kind"),
            cell("state"),
            cell("made").time("created_at"),
            cell("valid_until").time("valid_until"),
            cell("last_used").time("last_used_at"),
            cell("rotation"),
            cell("act"),
        ],
        &[
            ("kind", &|row| html! { (word(row.text("kind"))) " " (row.int("version")) }),
            ("state", &|row| {
                html! {
                    (state(row.text("state"))) @if let Some(error) = row.maybe("verify_error") { br; (error) }
                }
            }),
            (
                "rotation",
                &|row| html! { (text_or(row.maybe("rotate_every"))) " " (row.text("rotate_command")) },
            ),
            ("act", &|row| {
                let is_active = row.text("state") == "active";
                // The one that signs is replaced, not revoked.
                let signs = is_active && row.text("kind").starts_with("signing");
                let id = ("id", row.text("id"));
                let every = ("every", row.text("rotate_every"));
                html! {
                    @if is_active {
                        (button(view, &actions::ROTATE, &[id])) " "
                        (button(view, &actions::SCHEDULE, &[id, every, ("command", row.text("rotate_command"))])) " "
                    }
                    @if row.text("state") != "revoked" && !signs { (button(view, &actions::REVOKE, &[id])) }
                }
            }),
        ],
    );
    html! {
        h2 { (t.credentials) }
        div.actions { (button(view, &actions::SET_CREDENTIAL, &[("id", name)])) }
        @if found.items("items").is_empty() { p.small { (t.no_credentials) } }
        @else { (cells.table(view, t.credentials, found.items("items"), EmptyNote::default())) }
    }
}

/// A running test, and its result.
pub(super) fn test(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let found = view.one("/v1/subscription-tests")?;
    let name = found.text("subscription");
    let result = found.field("result");
    let is_running = found.is("is_running");
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
    let known = Cells(
        &[
            cell("sent_to"),
            cell("event_type"),
            cell("result").state("class"),
            cell("they_said").filled("excerpt"),
        ],
        &[("sent_to", &|result| text_or(result.maybe("url").filter(|url| !url.is_empty())))],
    );
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
            (known.facts(view, result))
        }
        div.actions {
            @if result.is("ok") && is_held(view, name) { (button(view, &actions::RESUME, &[("id", name)])) }
            @if !is_running { (button(view, &actions::TEST, &[("id", name)])) }
            a.button href={ "/console/subscriptions/" (segment(name)) } { (t.subscription) ": " (name) }
        }
    };
    Ok(Content { is_running, ..Content::new(format!("{}: {name}", t.test), body) })
}
