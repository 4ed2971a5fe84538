//! Lanes: who is first, why it waits, and what is behind it.

use crate::console::elements::{Filter, filters};
use crate::console::prelude::*;

pub(super) const LIST: Page = Page::new("/console/lanes", Read, list).menu(|t| t.lanes);
pub(super) const ONE: Page = Page::new("/console/lanes/{id}", Read, one);

fn list(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let names = ["subscription", "blocked", "after"];
    let query: Vec<_> =
        names.iter().filter_map(|name| Some((*name, view.query.get(name)?))).collect();
    let found = view.read("/v1/lanes", &query)?;
    let rows = found.each("items", |row| {
        let more = if row.is("more") { "+" } else { "" };
        vec![
            html! { a href={ "/console/lanes/" (segment(row.text("id"))) } { (row.first_of(&["key", "id"])) } },
            html! { (row.text("subscription")) },
            html! { @if row.is("blocked") { (state("blocked")) } @else { (state(row.text("state"))) } },
            told(row.text("why")),
            time(row.text("since")),
            html! { (row.int("waiting")) (more) },
        ]
    });
    let body = html! {
        (filters(view, &[
            ("subscription", t.subscription, Filter::Text),
            ("blocked", t.blocked, Filter::Choice(&["true"])),
        ]))
        @if rows.is_empty() {
            (empty(t.no_lanes, t.no_lanes_help))
            p { (t.lanes_about) }
            p { (t.lanes_turn_on) " " code { "oncebox subscription change NAME --ordering key" } }
        }
        @else { (table(t.lanes, &[t.key, t.subscription, t.state, t.why, t.since, t.behind], &rows)) }
        (pager(view, &found))
    };
    Ok(Content::new(t.lanes, body))
}

fn one(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let found = match view.read(&format!("/v1/lanes/{}", segment(view.param(0))), &[]) {
        // Its last delivery was sent.
        Err(error) if error.status == 404 => Value::Null,
        found => found?,
    };
    let lane = found.field("lane");
    // The dead letter that blocks a lane is not among those that wait.
    let is_listed = |id: &&str| found.items("deliveries").iter().any(|row| row.text("id") == *id);
    let head = lane.maybe("delivery").filter(|id| !is_listed(id));
    let name = lane.maybe("key").unwrap_or_else(|| view.param(0));
    let body = html! {
        @if let Some(why) = lane.maybe("why") { p { strong { (t.waits_because) } " " (told(why)) } }
        @if let Some(head) = head { div.actions { (link("deliveries", head)) (state(lane.text("state"))) (buttons(view, head, lane.text("state"))) } }
        h2 { (t.in_order) }
        @if found.items("deliveries").is_empty() { (empty(t.lane_empty, t.lane_empty_help)) } @else { (rows(view, t.in_order, found.items("deliveries"))) }
        @if !found.items("parked").is_empty() { h2 { (t.parked) } (rows(view, t.parked, found.items("parked"))) }
    };
    Ok(Content::new(format!("{}: {name}", t.lane), body))
}

fn rows(view: &View<'_>, caption: &str, deliveries: &[Value]) -> Markup {
    let t = view.t;
    let row = |row: &Value| {
        vec![
            link("deliveries", row.text("id")),
            link_of(row),
            state(row.text("state")),
            text_or(row.maybe("reason")),
            time(row.text("order_at")),
            buttons(view, row.text("id"), row.text("state")),
        ]
    };
    let rows: Vec<_> = deliveries.iter().map(row).collect();
    table(caption, &[t.delivery, t.event, t.state, t.reason, t.at, t.act], &rows)
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
