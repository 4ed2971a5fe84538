//! The overview: is all well, and what needs a person?

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::console::charts::{heat, is_whole, lines, strip, unknown};
use crate::console::elements;
use crate::console::pages::alerts::subject_of;
use crate::console::pages::{start, subscriptions};
use crate::console::prelude::*;
use crate::model::escalation::{Class, Severity};
use crate::model::health::bytes;
use crate::model::token::Right;

/// Escalations that are looked at, the newest; and how many of a kind are named.
const ESCALATIONS: &str = "100";
const MAX_SUBJECTS: usize = 5;

/// Subscriptions whose latest attempts are drawn.
const MAX_STRIPS: usize = 30;

/// Attempts of each that are drawn.
const MAX_BARS: &str = "30";

/// The form that states the policy of the tenant `default`.
const STATE_POLICY: &str = "/console/act/change-tenant?name=default&back=/console/";

/// Checks whose finding stands on the page already.
const TOLD: [&str; 4] = ["dead_letters", "quarantined", "escalations", "subscriptions"];

pub(super) fn show(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let stats = view.read("/v1/stats", &[])?;
    let recent = view.read_or_null("/v1/stats/recent", &[("attempts", MAX_BARS)]);
    let found = view.checks();
    let minutes = recent.items("minutes");
    let unknown = unknown(minutes, is_whole);
    let body = html! {
        (verdicts(view, &stats, &found))
        (subscriptions::worst(view, &recent))
        (start::hint(view))
        (figures(view, &stats, &recent, &found))
        h2 { (t.last_hour) }
        @if sum(&recent, &["events", "webhooks", "delivered", "failed"]) == 0 { p { (t.quiet_hour) } }
        @else {
            (lines(view, minutes))
            details #latencies { summary { (t.latencies) } (heat(view, minutes, recent.items("latency_bounds_ms"))) }
        }
        @if unknown > 0 { p.small { (unknown) " " (t.unknown_minutes) } }
        (strips(view, &recent))
        (folded_checks(view, &found))
    };
    Ok(Content::new(t.overview, body))
}

/// What needs a person: things of one kind.
struct Need {
    severity: Severity,
    /// The kind, in people's words.
    title: String,
    /// Where they are.
    path: &'static str,
    /// How many.
    count: usize,
    /// What they are, each with its page. Empty where the title says all.
    subjects: Vec<(String, String)>,
    since: Option<String>,
}

impl Need {
    fn new(severity: Severity, title: impl Into<String>, path: &'static str) -> Self {
        let title = title.into();
        let subjects = Vec::new();
        Self { severity, title, path, count: 1, subjects, since: None }
    }

    fn show(&self, view: &View<'_>) -> Markup {
        let (class, mark) =
            if self.severity == Severity::Critical { ("bad", "▲") } else { ("warn", "◆") };
        html! {
            li class=(class) {
                span aria-hidden="true" { (mark) }
                span {
                    a href=(self.path) { (self.title) }
                    @for (n, (name, path)) in self.subjects.iter().take(MAX_SUBJECTS).enumerate() {
                        (if n == 0 { ": " } else { ", " }) a.plain href=(path) { (name) }
                    }
                    @if self.subjects.len() > MAX_SUBJECTS {
                        ", " a.plain href=(self.path) { (view.t.all) " " (counted(self.subjects.len())) }
                    }
                    @if let Some(since) = &self.since { " · " (view.t.since) " " (time(since)) }
                }
            }
        }
    }
}

/// How much needs a person, then each kind, the worst first.
fn verdicts(view: &View<'_>, stats: &Value, found: &Value) -> Markup {
    let t = view.t;
    let escalations = view.read_or_null("/v1/escalations", &[("limit", ESCALATIONS)]);
    let mut needs = things(view, stats);
    needs.extend(escalated(escalations.items("items")));
    let is_new = |check: &&Value| check.text("state") != "ok" && is_untold(check);
    for check in found.items("checks").iter().filter(is_new) {
        let is_bad = check.text("state") == "fail";
        let severity = if is_bad { Severity::Critical } else { Severity::Warning };
        needs.push(Need::new(severity, word(check.text("name")), "#checks"));
    }
    if stats.get("pii_stated") == Some(&Value::Bool(false)) {
        let path = if view.may(Right::Box) { STATE_POLICY } else { "/console/settings" };
        needs.push(Need::new(Severity::Warning, t.pii_unstated, path));
    }
    if needs.is_empty() {
        return html! { p.notice { (t.all_is_well) " " (t.nobody_needed) } };
    }
    needs.sort_by_key(|need| Reverse(need.severity));
    let count = |is_bad: bool| {
        let of = |need: &&Need| (need.severity == Severity::Critical) == is_bad;
        needs.iter().filter(of).map(|need| need.count).sum::<usize>()
    };
    let plus = if escalations.maybe("next").is_some() { "+" } else { "" };
    let waiting = usize::try_from(stats.int("pending")).unwrap_or_default();
    let parts = [
        (count(true), t.critical, plus),
        (count(false), t.warnings, plus),
        (waiting, t.are_waiting, ""),
    ];
    let said: Vec<_> = parts
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, texts, plus)| {
            format!("{}{plus} {}", counted(count), one_or_many(count, texts))
        })
        .collect();
    html! {
        p.headline { strong { (said.join(", ")) } }
        ul.verdicts aria-label=(t.needs_a_person) { @for need in &needs { (need.show(view)) } }
    }
}

/// What waits for a person, by its numbers.
fn things(view: &View<'_>, stats: &Value) -> Vec<Need> {
    let t = view.t;
    let blocked = view.read_or_null("/v1/lanes", &[("blocked", "true"), ("limit", "20")]);
    let blocked = (blocked.items("items").len(), blocked.maybe("next").is_some());
    let counted = |name: &str| (usize::try_from(stats.int(name)).unwrap_or(0), false);
    let things = [
        (counted("dead_letters"), t.dead_need, "/console/dead-letters"),
        (blocked, t.lanes_blocked, "/console/lanes?blocked=true"),
        (counted("in_doubt"), t.are_in_doubt, "/console/deliveries?state=in_doubt"),
        (counted("quarantined"), t.are_unusable, "/console/events?status=quarantined"),
    ];
    let there = things.into_iter().filter(|((count, _), ..)| *count > 0);
    let need = |((count, more), texts, path): ((usize, bool), _, _)| {
        let plus = if more { "+" } else { "" };
        let title = format!("{}{plus} {}", elements::counted(count), one_or_many(count, texts));
        Need::new(Severity::Warning, title, path)
    };
    there.map(need).collect()
}

/// Escalations by their class, each with its subjects.
fn escalated(open: &[Value]) -> Vec<Need> {
    let mut needs: BTreeMap<&str, Need> = BTreeMap::new();
    // Dead letters are counted by themselves.
    for row in open.iter().filter(|row| row.text("class") != Class::DeliveryDead.as_str()) {
        let text = row.text("class");
        let (name, path) = subject_of(row);
        let class = Class::parse(text);
        let severity = class.map_or(Severity::Warning, Class::severity);
        let title = class.map_or_else(|| word(text), |class| class.title().to_owned());
        let need = needs
            .entry(text)
            .or_insert_with(|| Need { count: 0, ..Need::new(severity, title, "/console/alerts") });
        need.count += 1;
        need.subjects.push((name, path));
        // The newest come first.
        need.since = row.maybe("first_at").map(str::to_owned);
    }
    needs.into_values().collect()
}

/// The text for one, or for many: they stand in one text.
fn one_or_many(count: usize, texts: &str) -> &str {
    let (one, many) = texts.split_once('|').unwrap_or((texts, texts));
    if count == 1 { one } else { many }
}

/// A sum over the last hour.
fn sum(recent: &Value, names: &[&str]) -> i64 {
    let each = |row: &Value| names.iter().map(|name| row.int(name)).sum::<i64>();
    recent.items("minutes").iter().map(each).sum()
}

fn figures(view: &View<'_>, stats: &Value, recent: &Value, found: &Value) -> Markup {
    let t = view.t;
    let late = stats.maybe("oldest_due_at").map(|at| millis(stats.text("now")) - millis(at));
    let late = late.filter(|late| *late >= 1000);
    let disk = found.items("checks").iter().find(|check| check.text("name") == "disk");
    let disk = disk.map(|check| check.field("value"));
    let card = |name: &str, path: &str, figure: Markup, about: Markup| {
        html! { section.card { h2 { (name) } p.figure { a href=(path) { (figure) } } p.small { (about) } } }
    };
    html! {
        div.cards {
            (card(t.waiting_deliveries, "/console/deliveries?state=pending", number(stats.int("pending")), html! {
                @match late { Some(late) => { (t.queue_age) " " (span(late)) }, None => (t.nothing_is_late) }
            }))
            (card(t.accepted_in_hour, "/console/events", html! { (number(sum(recent, &["events", "webhooks"]))) }, html! {
                (number(sum(recent, &["events"]))) " " (t.events_small) ", " (number(sum(recent, &["webhooks"]))) " " (t.webhooks_small)
            }))
            (card(t.delivered_in_hour, "/console/deliveries?state=completed", number(sum(recent, &["delivered"])), html! {
                (number(sum(recent, &["failed"]))) " " (t.failed_attempts)
            }))
            @if let Some(free) = disk.and_then(|disk| disk.field("free_bytes").as_u64()) {
                (card(t.disk_free, "#checks", html! { (bytes(free)) }, html! {
                    @match disk.and_then(|disk| disk.field("lasts_seconds").as_i64()) {
                        Some(seconds) => { (t.disk_lasts) " " (span(seconds.saturating_mul(1000))) },
                        None => (t.disk_steady),
                    }
                }))
            }
        }
    }
}

/// The latest attempts of each subscription.
fn strips(view: &View<'_>, recent: &Value) -> Markup {
    let t = view.t;
    let all = recent.items("subscriptions");
    let rows = all.get(..MAX_STRIPS).unwrap_or(all);
    let good = |row: &Value| {
        row.items("attempts").iter().filter(|row| row.text("class") == "success").count()
    };
    let cells = Cells(
        &[
            cell("subscription").link("subscriptions", "subscription"),
            cell("last_attempts"),
            cell("succeeded"),
        ],
        &[
            ("last_attempts", &|row| strip(view, row.items("attempts"))),
            ("succeeded", &|row| html! { (good(row)) " / " (row.items("attempts").len()) }),
        ],
    );
    html! {
        @if !rows.is_empty() {
            h2 { (t.last_attempts_of) }
            (cells.table(view, t.last_attempts_of, rows, EmptyNote::default()))
        }
        @if let Some(since) = recent.maybe("since") { p.small { (t.counted_since) " " (time(since)) } }
    }
}

/// Whether the finding of a check stands nowhere else on the page.
fn is_untold(check: &Value) -> bool {
    !TOLD.contains(&check.text("name"))
}

/// The checks, folded away unless one of them found what the page does not say elsewhere.
fn folded_checks(view: &View<'_>, found: &Value) -> Markup {
    let t = view.t;
    let all = found.items("checks");
    let is_bad = |check: &&Value| check.text("state") != "ok";
    let bad = all.iter().filter(is_bad).count();
    html! {
        details #checks open[all.iter().filter(is_bad).any(is_untold)] {
            summary { h2 { (t.checks) } " "
                @if bad == 0 { (t.all_checks_well) " " (all.len()) } @else { (bad) " / " (all.len()) " " (t.some_checks_not) } }
            (checks(view, found))
        }
    }
}

/// The checks of `/readyz`.
pub(super) fn checks(view: &View<'_>, found: &Value) -> Markup {
    let cells = Cells(
        &[cell("check").word("name"), cell("state").state("state"), cell("detail")],
        &[("detail", &|check| html! { (without_command(check.text("detail"))) })],
    );
    cells.table(view, view.t.checks, found.items("checks"), EmptyNote::default())
}

/// The finding of a check without the command for a shell that stands at its end: a page has its own ways.
fn without_command(detail: &str) -> &str {
    let at = [": oncebox ", " (oncebox "].iter().filter_map(|mark| detail.find(mark)).min();
    at.and_then(|at| detail.get(..at)).unwrap_or(detail)
}

#[cfg(test)]
mod tests {
    use super::without_command;

    #[test]
    fn a_page_shows_no_command_for_a_shell() {
        for (detail, shown) in [
            ("5 were given up: oncebox dead-letter list", "5 were given up"),
            (
                "cannot be written: it is full (oncebox doctor names programs)",
                "cannot be written: it is full",
            ),
            ("can be written", "can be written"),
        ] {
            assert_eq!(without_command(detail), shown);
        }
    }
}
