//! `oncebox lane`: which lanes wait for what, and what is in a lane. `oncebox external-call`: the latest call about each
//! entity, where a subscription protects external calls.
//!
//! Not here: what is done with a delivery of a lane ([`super::delivery`]).

use crate::cli::prelude::*;
use crate::cli::show::{self, cut, minute};
use crate::cli::timeline;

const LANE_TABLE: &str = "
lane  Lanes: deliveries that go one after another, and what they wait for
  columns: ID 0 id; SUBSCRIPTION 1 subscription; KEY 1 key; FIRST 0 delivery; STATE 1 state; BEHIND 1 behind; SINCE (UTC) 2 since; WHY 2 why
  fields: subscription; group; key; first = delivery; state; since = @since; behind it = behind; waits = why
  list = listLanes  Lanes in which something waits, the blocked ones first
    blocked  Only lanes that a dead letter blocks
  show = getLane  One lane: what is first, why it waits, what is behind it, and what was parked
";

pub(super) const LANE: Commands = Commands::new(&LANES, LANE_TABLE, &[answered("show", show)]);

const LANES: Noun = Noun::new("/v1/lanes", "Lane", "such lanes", LANE_TABLE).time("since").by(&[
    ("state", state),
    ("behind", behind),
    ("why", |lane| cut(&text(lane, "why"), 100)),
]);

const DELIVERIES: Cells = Cells {
    text: "ID 0 id; TO 1 subscription; TYPE 1 event_type; OF 1 about; ORDER (UTC) 2 order_utc; STATE 1 state; LATE 3 late",
    by: &[
        ("about", show::about),
        ("order_utc", |d| minute(d, "order_at")),
        ("state", timeline::state),
        ("late", |d| if text(d, "late") == "true" { "late".to_owned() } else { String::new() }),
    ],
};

const CALL_TABLE: &str = "
external-call  The latest call about each entity, where a subscription protects external calls
  columns: ENTITY 0 entity_key; SUBSCRIPTION 1 subscription; STATE 0 state; FAILED 2 failed_count; DELIVERY 1 delivery; ACCEPTED 2 made_by; IN DOUBT 1 in_doubt; UPDATED (UTC) 1 updated_at
  list = listExternalCalls  The latest call about each entity, the latest first
    subscription <NAME>
    in_doubt  Only those of which nobody knows whether the target has accepted them
  end = endExternalCall  Say whether the target has accepted a call that is in doubt
    id  The call's delivery
    made <true|false>
    reason <TEXT>
    > ended: {id}
    | Look at the target first. While a call is in doubt, no call for an older state follows.
";

pub(super) const EXTERNAL_CALL: Commands = Commands::new(&CALLS, CALL_TABLE, &[]);

const CALLS: Noun = Noun::new("/v1/external-calls", "External call", "external calls", CALL_TABLE)
    .time("updated_at");

fn state(lane: &Value) -> String {
    if text(lane, "blocked") == "true" { "blocked".to_owned() } else { text(lane, "state") }
}

fn behind(lane: &Value) -> String {
    let more = if text(lane, "more") == "true" { "more than " } else { "" };
    format!("{more}{}", text(lane, "waiting"))
}

fn show(_call: &Call<'_>, _remote: &Remote, found: &Value) -> Done {
    match found.get("lane").filter(|lane| lane.is_object()) {
        Some(lane) => {
            out::line(format_args!("{} {}", LANES.one, text(lane, "id")))?;
            LANES.fields().fields(lane)?;
        }
        None => {
            out::line(format_args!("{} {}: nothing waits in it", LANES.one, text(found, "id")))?;
        }
    }
    for (field, heading) in
        [("deliveries", "In its order"), ("parked", "Parked (of the tenant's first 20,000)")]
    {
        let rows = list(found, field);
        if !rows.is_empty() {
            out::line(format_args!("\n{heading}:"))?;
            DELIVERIES.table(rows)?;
        }
    }
    let first = found.pointer("/lane/delivery").and_then(Value::as_str).unwrap_or_default();
    if found.pointer("/lane/blocked") == Some(&Value::Bool(true)) {
        out::line(format_args!(
            "\nLet it go on:\n  oncebox delivery retry {first}   (send it again first)"
        ))?;
        out::line(format_args!("  oncebox delivery skip {first}   (without it)"))?;
    }
    Ok(())
}
