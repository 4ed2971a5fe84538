//! The first steps of a box: a provider, a subscription, a test event, an alert channel.

use crate::console::actions::Action;
use crate::console::prelude::*;
use crate::model::event::OWN_SOURCE;
use crate::model::outcome::AttemptClass;

/// How many rows of a list are looked at.
const SOME: &str = "20";

/// A step: what to do, what leads there, whether it is done.
type Step = (&'static str, Markup, bool);

pub(super) fn show(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let steps = steps(view)?;
    let body = html! {
        @if is_over(&steps) { p.notice { (t.all_steps_done) } }
        ol.steps {
            @for (about, way, is_done) in &steps {
                li { p { (about) " " (state(if *is_done { "done" } else { "open" })) } div.actions { (way) } }
            }
        }
    };
    Ok(Content::new(t.first_steps, body))
}

/// A link to the steps for who may do them, until all are done.
pub(super) fn hint(view: &View<'_>) -> Markup {
    let t = view.t;
    html! {
        @if view.may(Admin) && steps(view).is_ok_and(|steps| !is_over(&steps)) {
            p.notice.open { (t.steps_left) " " a href="/console/start" { (t.first_steps) } }
        }
    }
}

fn is_over(steps: &[Step]) -> bool {
    steps.iter().all(|(.., is_done)| *is_done)
}

fn steps(view: &View<'_>) -> Result<[Step; 4], PageError> {
    let t = view.t;
    let some =
        |path: &str| view.read(path, &[("limit", SOME)]).map(|found| found.items("items").to_vec());
    // One row tells: a box that has begun has full lists.
    let is_there = |path: &str| {
        view.read(path, &[("limit", "1")]).map(|found| !found.items("items").is_empty())
    };
    let form = |action: &'static Action| button(view, action, &[]);
    // Each alert channel has a subscription of its own.
    let is_own = |found: &Value| found.text("owner_id") != OWN_SOURCE;
    let subscription = some("/v1/subscriptions")?.into_iter().find(is_own);
    let test = subscription.as_ref().map_or_else(
        || html! {},
        |found| button(view, &actions::TEST, &[("id", found.text("id"))]),
    );
    Ok([
        (
            t.step_provider,
            form(&actions::CREATE_PROVIDER),
            is_there("/v1/providers")? || is_there("/v1/events")?,
        ),
        (t.step_subscription, form(&actions::CREATE_SUBSCRIPTION), subscription.is_some()),
        (t.step_test, test, is_there("/v1/deliveries")? || has_passed_test(view)?),
        (t.step_alert, form(&actions::CREATE_CHANNEL), is_there("/v1/alert-channels")?),
    ])
}

/// Whether one of the latest tests of subscriptions succeeded.
fn has_passed_test(view: &View<'_>) -> Result<bool, PageError> {
    let asked = [("action", "subscription.test"), ("limit", SOME)];
    let tests = view.read("/v1/audit-events", &asked)?;
    let class = |row: &Value| row.field("changes").field("class").text("after").to_owned();
    Ok(tests.items("items").iter().any(|row| class(row) == AttemptClass::Success.as_str()))
}
