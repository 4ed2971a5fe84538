//! Lanes: who is first, why it waits, and what is behind it.

use crate::console::pages::alerts::said_of;
use crate::console::prelude::*;

pub(super) fn list(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let fields = [
        ("subscription", t.subscription, FilterInput::Text),
        ("blocked", t.blocked, FilterInput::Choice(&["true"])),
    ];
    let cells = Cells(
        &[
            cell("key"),
            cell("subscription"),
            cell("state"),
            cell("why"),
            cell("since").time("since"),
            cell("behind"),
        ],
        &[
            (
                "key",
                &|row| html! { a href={ "/console/lanes/" (segment(row.text("id"))) } { (row.first_of(&["key", "id"])) } },
            ),
            ("why", &|row| {
                let why = row.text("why");
                html! { (told(why)) @if row.is("blocked") { (said_of(view, row.text("delivery"), why)) } }
            }),
            ("state", &|row| state(if row.is("blocked") { "blocked" } else { row.text("state") })),
            ("behind", &|row| html! { (number(row.int("waiting"))) @if row.is("more") { "+" } }),
        ],
    );
    let empty = EmptyNote { text: t.no_lanes, hint: t.no_lanes_help };
    let list = List { filters: &fields, ..List::new(t.lanes, "/v1/lanes", cells, empty) };
    let listed = list.read(view)?;
    let body = html! {
        p.small { (t.lanes_about) }
        (listed)
        @if listed.found.items("items").is_empty() {
            p { (t.lanes_turn_on) " " code { "oncebox subscription change NAME --ordering key" } }
        }
    };
    Ok(listed.page(t.lanes, body))
}

pub(super) fn one(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let found = match view.one("/v1/lanes") {
        // Its last delivery was sent.
        Err(error) if error.status == 404 => Value::Null,
        found => found?,
    };
    let lane = found.field("lane");
    // The dead letter that blocks a lane is not among those that wait.
    let is_listed = |id: &&str| found.items("deliveries").iter().any(|row| row.text("id") == *id);
    let head = lane.maybe("delivery").filter(|id| !is_listed(id));
    let name = lane.maybe("key").unwrap_or_else(|| view.param(0));
    let cells = Cells(
        &[
            cell("delivery").link("deliveries", "id"),
            cell("event"),
            cell("state").state("state"),
            cell("reason").filled("reason"),
            cell("at").time("order_at"),
            cell("act"),
        ],
        &[("event", &link_of), ("act", &|row| buttons(view, row.text("id"), row.text("state")))],
    );
    let body = html! {
        @if let Some(why) = lane.maybe("why") { p { strong { (t.waits_because) } " " (told(why))
            @if lane.is("blocked") { (said_of(view, lane.text("delivery"), why)) } } }
        @if let Some(head) = head { div.actions { (link("deliveries", head)) (state(lane.text("state"))) (buttons(view, head, lane.text("state"))) } }
        h2 { (t.in_order) }
        (cells.table(view, t.in_order, found.items("deliveries"), EmptyNote { text: t.lane_empty, hint: t.lane_empty_help }))
        @if !found.items("parked").is_empty() { h2 { (t.parked) } (cells.table(view, t.parked, found.items("parked"), EmptyNote::default())) }
    };
    Ok(Content::new(format!("{}: {name}", t.lane), body))
}

/// What the API does not refuse for a delivery in this state.
fn buttons(view: &View<'_>, id: &str, state: &str) -> Markup {
    let all = match state {
        "pending" => &[&actions::PARK, &actions::SKIP, &actions::MOVE_TO_END][..],
        "dead_letter" => &[&actions::RETRY_DELIVERY, &actions::SKIP],
        "parked" | "in_doubt" => &[&actions::RELEASE, &actions::SKIP],
        _ => &[],
    };
    html! { @for action in all { (button(view, action, &[("id", id)])) " " } }
}
