//! `oncebox lane`: which lanes wait for what, and what is in a lane. `oncebox external-call`: the latest call about each
//! entity, where a subscription protects external calls.
//!
//! Not here: what is done with a delivery of a lane ([`super::delivery`]).

use crate::cli::prelude::*;
use crate::cli::show::{self, cut, minute};
use crate::cli::timeline;

const LANE_VERBS: &[CommandRow] = &[
    command("list", "Lanes in which something waits, the blocked ones first")
        .calls("listLanes")
        .flags(&[&[field("blocked").help("Only lanes that a dead letter blocks")]]),
    command(
        "show",
        "One lane: what is first, why it waits, what is behind it, and what was parked",
    )
    .calls("getLane")
    .answered(show),
];

pub(super) const LANE: Commands = Commands::new(
    &LANES,
    command("lane", "Lanes: deliveries that go one after another, and what they wait for"),
    LANE_VERBS,
);

const LANES: Noun = Noun::new("/v1/lanes", "Lane", "such lanes")
    .columns(&[
        column("ID", 0, "id"),
        column("SUBSCRIPTION", 1, "subscription"),
        column("KEY", 1, "key"),
        column("FIRST", 0, "delivery"),
        column("STATE", 1, "state"),
        column("BEHIND", 1, "behind"),
        column("SINCE (UTC)", 2, "since"),
        column("WHY", 2, "why"),
    ])
    .fields(&[
        cell("subscription", "subscription"),
        cell("group", "group"),
        cell("key", "key"),
        cell("first", "delivery"),
        cell("state", "state"),
        time("since", "since"),
        cell("behind it", "behind"),
        cell("waits", "why"),
    ])
    .time("since")
    .by(&[("state", state), ("behind", behind), ("why", |lane| cut(&text(lane, "why"), 100))]);

const DELIVERIES: Columns = Columns {
    columns: &[
        column("ID", 0, "id"),
        column("TO", 1, "subscription"),
        column("TYPE", 1, "event_type"),
        column("OF", 1, "about"),
        column("ORDER (UTC)", 2, "order_utc"),
        column("STATE", 1, "state"),
        column("LATE", 3, "late"),
    ],
    by: &[
        ("about", show::about),
        ("order_utc", |d| minute(d, "order_at")),
        ("state", timeline::state),
        ("late", |d| if text(d, "late") == "true" { "late".to_owned() } else { String::new() }),
    ],
};

const CALL_VERBS: &[CommandRow] = &[
    command("list", "The latest call about each entity, the latest first")
        .calls("listExternalCalls")
        .flags(&[&[
            field("subscription").value("NAME"),
            field("in_doubt")
                .help("Only those of which nobody knows whether the target has accepted them"),
        ]]),
    command("end", "Say whether the target has accepted a call that is in doubt")
        .calls("endExternalCall")
        .flags(&[&[
            field("id").help("The call's delivery"),
            field("made").value("true|false"),
            field("reason").value("TEXT"),
        ]])
        .says("ended: {id}")
        .ends(&[
            "Look at the target first. While a call is in doubt, no call for an older state follows.",
        ]),
];

pub(super) const EXTERNAL_CALL: Commands = Commands::new(
    &CALLS,
    command(
        "external-call",
        "The latest call about each entity, where a subscription protects external calls",
    ),
    CALL_VERBS,
);

const CALLS: Noun = Noun::new("/v1/external-calls", "External call", "external calls")
    .columns(&[
        column("ENTITY", 0, "entity_key"),
        column("SUBSCRIPTION", 1, "subscription"),
        column("STATE", 0, "state"),
        column("FAILED", 2, "failed_count"),
        column("DELIVERY", 1, "delivery"),
        column("ACCEPTED", 2, "made_by"),
        column("IN DOUBT", 1, "in_doubt"),
        column("UPDATED (UTC)", 1, "updated_at"),
    ])
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
            LANES.lines().fields(lane)?;
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
