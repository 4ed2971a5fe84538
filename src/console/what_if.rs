//! What the terms of a subscription, the schema of an event type, or the policy of a provider would have done with the events of a
//! period, as a form shows it.

use crate::console::prelude::*;

/// Counts with what they mean, then examples.
pub(super) fn show(view: &View<'_>, found: &Value) -> Markup {
    if !found.field("refused_then").is_null() {
        of_schema(view, found)
    } else if !found.field("other_key").is_null() {
        of_provider(view, found)
    } else {
        of_terms(view, found)
    }
}

fn of_schema(view: &View<'_>, found: &Value) -> Markup {
    let t = view.t;
    let counts = [("refused_now", t.what_if_refused_now), ("refused_then", t.what_if_refused_then)];
    let nothing = EmptyNote { text: t.what_if_nothing, hint: t.what_if_nothing_help };
    let columns = [
        cell("event").link("events", "event"),
        cell("at").time("received_at"),
        cell("why").told("why"),
    ];
    html! {
        h2 { (t.what_if_schema_title) }
        (numbers(view, found, &counts))
        (Cells(&columns, &[]).table(view, t.what_if_schema_title, found.items("examples"), nothing))
    }
}

fn of_provider(view: &View<'_>, found: &Value) -> Markup {
    let t = view.t;
    let counts = [
        ("refused", t.what_if_refused),
        ("changed", t.what_if_stored_otherwise),
        ("other_key", t.what_if_other_key),
        ("sealed", t.what_if_sealed),
    ];
    let nothing = EmptyNote { text: t.what_if_nothing, hint: t.what_if_nothing_help };
    let columns = [
        cell("event").link("webhooks", "event"),
        cell("event_type"),
        cell("at").time("received_at"),
        cell("difference").word("difference"),
        cell("why").told("why"),
    ];
    html! {
        h2 { (t.what_if_provider_title) }
        (numbers(view, found, &counts))
        (Cells(&columns, &[]).table(view, t.what_if_provider_title, found.items("examples"), nothing))
    }
}

/// Which events were looked at, and the counts.
fn numbers(view: &View<'_>, found: &Value, counts: &[(&str, &str)]) -> Markup {
    let t = view.t;
    html! {
        p { (grouped(found.int("looked_at"))) " " (t.what_if_looked_at) " " (time(found.text("since"))) "." }
        @if let Some(next) = found.maybe("next") { p { (t.what_if_not_whole) " " code { (next) } } }
        ul { @for (name, meaning) in counts { li { strong { (grouped(found.int(name))) } " " (meaning) } } }
    }
}

/// Counts, then examples with what is sent now and then.
fn of_terms(view: &View<'_>, found: &Value) -> Markup {
    let t = view.t;
    let counts = [
        ("wanted_now", t.what_if_wanted_now),
        ("wanted_then", t.what_if_wanted_then),
        ("more", t.what_if_more),
        ("fewer", t.what_if_fewer),
        ("changed", t.what_if_changed),
        ("failing", t.what_if_failing),
        ("other_lane", t.what_if_other_lane),
    ];
    let nothing = EmptyNote { text: t.what_if_nothing, hint: t.what_if_nothing_help };
    let body = |example: &Value| {
        html! {
            @for (sign, name) in [("−", "now"), ("+", "then")] {
                @if let Some(sent) = example.maybe(name) { details { summary { (sign) " " (word(name)) } pre { (sent) } } }
            }
        }
    };
    let columns = [
        cell("event").link("events", "event"),
        cell("event_type"),
        cell("at").time("received_at"),
        cell("difference").word("difference"),
        cell("why").told("why"),
        cell("sent"),
    ];
    html! {
        h2 { (t.what_if_title) }
        (numbers(view, found, &counts))
        (Cells(&columns, &[("sent", &body)]).table(view, t.what_if_title, found.items("examples"), nothing))
    }
}
