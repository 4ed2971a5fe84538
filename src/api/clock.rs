//! `/v1/clock`: whether the clock is believed, and the periodic duties that need one that is.

use serde_json::json;

use crate::api::prelude::*;
use crate::base::clock::trust::{ClockDoubt, Suspicion};
use crate::model::duty::{Chore, Duty};
use crate::model::token::Right::Box;
use crate::store::{chores, known_time};

/// The clock.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Clock",
    about: "The clock of the machine, and the periodic duties. While the clock may be wrong, nothing is deleted, given up, \
            expired or rotated by it. Only for admin tokens of the tenant `default`.",
    routes: &[
        get("/v1/clock", Box, Now(show))
            .doc("getClock", "Show whether the clock is believed, and the periodic duties", &[])
            .about(
                "A clock is suspect after it was set by more than a minute, and at a start far from the last time that the \
                 database knows.",
            )
            .returns(&[Returns::json::<ClockReport>(200, "The clock and the duties.")]),
        post("/v1/clock/confirm", Box, Act("clock.confirm", confirm))
            .doc("confirmClock", "Say that the clock is right", &[])
            .about(
                "The service believes the clock within a second. Waits that have begun keep their length. Answers 409 if \
                 the clock is believed already.",
            )
            .returns(&[Returns::json::<ClockConfirmation>(200, "The clock is believed.")]),
    ],
};

/// The clock and the duties.
#[derive(Serialize, JsonSchema)]
struct ClockReport {
    /// What the clock of the machine shows.
    shown: Timestamp,
    /// The time that the service goes by. While the clock is suspect, it is carried on from the last time that was
    /// believed.
    believed: Timestamp,
    /// Why the clock is not believed; null if it is.
    doubt: Option<ClockDoubt>,
    /// When the clock is believed if it is not set again, as the clock shows it; null if it is believed.
    believed_from: Option<Timestamp>,
    duties: Vec<DutyReport>,
}

/// A periodic duty.
#[derive(Serialize, JsonSchema)]
struct DutyReport {
    duty: Duty,
    /// When it is due next; null: it was not done yet.
    due_at: Option<Timestamp>,
    /// When it was done last; null: it was not done yet.
    done_at: Option<Timestamp>,
    /// Whether it is overdue by more than a day.
    is_late: bool,
}

/// A clock that a person has confirmed.
#[derive(Serialize, JsonSchema)]
struct ClockConfirmation {
    /// What the clock shows.
    shown: Timestamp,
}

/// `GET /v1/clock`
fn show(api: &Api, _call: &Call) -> Result<Response, Problem> {
    let now = api.env.clock.now();
    let chores = api.env.store.read(chores::all)?;
    let suspicion = api.env.clock.suspicion();
    let duty = |chore: Chore| DutyReport {
        duty: chore.duty,
        due_at: chore.due_at,
        done_at: chore.done_at,
        is_late: chore.is_late(now),
    };
    Ok(ok(&ClockReport {
        shown: api.env.clock.shown(),
        believed: now,
        doubt: suspicion.map(|suspicion| suspicion.doubt),
        believed_from: suspicion.map(Suspicion::ends_at),
        duties: chores.into_iter().map(duty).collect(),
    }))
}

/// `POST /v1/clock/confirm`
fn confirm(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let Some(suspicion) = api.env.clock.suspicion() else {
        return Err(Problem::conflict("The clock is believed already."));
    };
    let shown = api.env.clock.shown();
    let before = json!({ "doubt": suspicion.doubt, "believed": api.env.clock.now() });
    let after = json!({ "doubt": Value::Null, "believed": shown });
    let audited = change(api, call, move |tx| {
        known_time::confirm(tx, shown)?;
        let change = Change::changed("clock", "site", &before, &after);
        Ok(change.answer(ClockConfirmation { shown }))
    })?;
    // Only what is recorded is done.
    api.env.clock.confirm();
    Ok(audited)
}
