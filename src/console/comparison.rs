//! What a comparison with a target found, as the page after its form shows it.

use crate::console::elements::button_to;
use crate::console::prelude::*;

/// Counts, then the missing deliveries with their buttons.
pub(super) fn show(view: &View<'_>, found: &Value) -> Markup {
    let t = view.t;
    let subscription = found.text("subscription");
    let back = format!("/console/subscriptions/{}", segment(subscription));
    let again = |missing: &Value| {
        let action = if missing.is("of_webhook_event") {
            &actions::REPLAY_WEBHOOK
        } else {
            &actions::REPLAY_EVENT
        };
        let given = [("id", missing.text("event")), ("subscriptions", subscription)];
        button_to(view, action, &given, (action.label)(t), &back)
    };
    let columns = [
        cell("delivery").link("deliveries", "delivery"),
        cell("event_type"),
        cell("key"),
        cell("webhook_id"),
        cell("ended").time("delivered_at"),
        cell("act"),
    ];
    let counts = [
        ("delivered", t.compared_delivered),
        ("listed", t.compared_listed),
        ("missing", t.compared_missing),
    ];
    let nothing = EmptyNote { text: t.compared_nothing, hint: t.compared_nothing_help };
    html! {
        p { (time(found.text("since"))) " – " (time(found.text("until"))) }
        ul { @for (name, meaning) in counts { li { strong { (grouped(found.int(name))) } " " (meaning) } } }
        @if let Some(next) = found.maybe("next") { p { (t.compared_not_whole) " " code { (next) } } }
        (Cells(&columns, &[("act", &again)]).table(view, t.run_missing, found.items("items"), nothing))
    }
}
