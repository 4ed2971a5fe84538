//! Alerts: what a person must see, and who is told.

use std::cell::OnceCell;

use crate::console::elements::{row_button, row_form};
use crate::console::pages::subscriptions::{last_failed, said_at_last};
use crate::console::prelude::*;
use crate::model::escalation::{Class, Severity};

/// The lists of the page, the worst first.
const SEVERITIES: [&[(&str, &str); 2]; 3] = [
    &[("severity", Severity::Critical.as_str()), ("limit", FORMS)],
    &[("severity", Severity::Warning.as_str()), ("limit", FORMS)],
    &[("severity", Severity::Info.as_str()), ("limit", FORMS)],
];

pub(super) fn show(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let channels = channels(view)?;
    let all = view.query.get("all").unwrap_or_default();
    let recent = OnceCell::new();
    let escalations = Cells(
        &[
            cell("what"),
            cell("kind"),
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
            ("what", &|row| {
                let (name, path) = subject_of(row);
                let kind = row.text("subject").split_once(':').map_or("", |(kind, _)| kind);
                html! { (word(kind)) " " a href=(path) { (name) } }
            }),
            ("detail", &|row| html! { (told(row.text("detail"))) (words_of(view, row, &recent)) }),
            ("act", &|row| {
                html! {
                    @if row.maybe("resolved_at").is_some() { (t.resolved) }
                    @else if let Some(by) = row.maybe("acknowledged_by") { (t.acknowledged_by) " " (by) }
                    @else { (row_button(view, &actions::ACKNOWLEDGE, ("id", row.text("id")))) }
                }
            }),
        ],
    );
    let words = Severity::ALL.map(Severity::as_str);
    let filters = [
        ("severity", t.how_bad, FilterInput::Choice(&words)),
        ("subject", t.about_what, FilterInput::Text),
    ];
    let empty = EmptyNote { text: t.nobody_needed, hint: "" };
    let list = |always| List {
        filters: &filters,
        always,
        ..List::new(t.alerts, "/v1/escalations", escalations, empty)
    };
    let always = [("all", all), ("limit", FORMS)];
    let is_filtered = ["all", "after", "severity", "subject", "csv"]
        .iter()
        .any(|name| view.query.get(name).is_some());
    let listed = if is_filtered { Some(list(&always).read(view)?) } else { None };
    let ranked = match &listed {
        Some(listed) => html! { (listed) },
        None => by_severity(view, list)?,
    };
    let body = html! {
        (row_form(view, &actions::ACKNOWLEDGE))
        (ranked)
        p { @if all.is_empty() { a href="/console/alerts?all=true" { (t.show_resolved) } } @else { a href="/console/alerts" { (t.open_only) } } }
        (channels)
    };
    Ok(match listed {
        Some(listed) => listed.page(t.alerts, body),
        None => Content::new(t.alerts, body),
    })
}

/// Who is told.
fn channels(view: &View<'_>) -> Result<Markup, PageError> {
    let t = view.t;
    let channels = view.read("/v1/alert-channels", &[("limit", "100")])?;
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
                (Some(_), _) => state("failing"),
                (None, Some(_)) => state("ok"),
                (None, None) => nothing(),
            }),
            ("act", &|row| {
                let given = [("name", row.text("name"))];
                html! { (row_button(view, &actions::TEST_CHANNEL, ("name", row.text("name")))) " " (button(view, &actions::CHANGE_CHANNEL, &given)) " " (button(view, &actions::DELETE_CHANNEL, &given)) }
            }),
        ],
    );
    Ok(html! {
        h2 { (t.channels) }
        div.actions { (button(view, &actions::CREATE_CHANNEL, &[])) }
        (row_form(view, &actions::TEST_CHANNEL))
        (told.table(view, t.channels, channels.items("items"), EmptyNote { text: t.no_channels, hint: t.no_channels_help }))
    })
}

/// The open ones by their severity, the worst first, each with a link to all of it.
fn by_severity<'a>(
    view: &View<'_>,
    list: impl Fn(&'a [(&'a str, &'a str)]) -> List<'a>,
) -> Result<Markup, PageError> {
    let mut sections = Vec::new();
    for always in SEVERITIES {
        let listed = list(always).read(view)?;
        if !listed.found.items("items").is_empty() {
            sections.push((always, listed));
        }
    }
    Ok(html! {
        (list(&[]).filter(view))
        @if sections.is_empty() { (EmptyNote { text: view.t.nobody_needed, hint: "" }) }
        @for ([(_, severity), ..], listed) in &sections {
            @let count = listed.found.items("items").len();
            @let has_more = listed.found.maybe("next").is_some();
            h2 { (word(severity)) ": " (counted(count)) @if has_more { "+" } }
            (listed.table)
            @if has_more { p { a href=(with_query("/console/alerts", [("severity", *severity)])) { (view.t.show_all) } } }
        }
    })
}

/// The words of the target after the detail of an escalation. They are about the delivery in the detail, else about the latest
/// failed delivery of the subscription.
fn words_of(view: &View<'_>, escalation: &Value, recent: &OnceCell<Value>) -> Markup {
    let detail = escalation.text("detail");
    let named = detail.split(' ').next().filter(|word| word.starts_with("dlv_"));
    let subscription = escalation.text("subject").strip_prefix("subscription:");
    let of_answer = subscription.filter(|_| detail.contains("the target answered"));
    let failed = || {
        let recent = recent.get_or_init(|| view.read_or_null("/v1/stats/recent", &[]));
        last_failed(recent, of_answer?)
    };
    html! { @if let Some(id) = named.or_else(failed) { (said_of(view, id, detail)) } }
}

/// The words of the target about a delivery, after a text that lacks them.
pub(super) fn said_of(view: &View<'_>, delivery: &str, text: &str) -> Markup {
    let said = said_at_last(view, delivery).filter(|said| !text.contains(said));
    html! { @if let Some(said) = said { ": " (told(&said)) } }
}

/// The name of what an escalation is about, and its page.
pub(super) fn subject_of(escalation: &Value) -> (String, String) {
    let subject = escalation.text("subject");
    let (kind, name) = subject.split_once(':').unwrap_or(("", subject));
    let page = |list: &str| format!("/console/{list}/{}", segment(name));
    let path = match kind {
        "subscription" => page("subscriptions"),
        "source" => page("sources"),
        "provider" => page("providers"),
        _ => with_query("/console/alerts", [("subject", subject)]),
    };
    (name.to_owned(), path)
}
