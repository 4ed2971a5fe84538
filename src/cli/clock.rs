//! `oncebox clock`: whether the clock is believed, and the periodic duties.

use crate::cli::prelude::*;

const VERBS: &[CommandRow] = &[
    command("show", "The clock, why it is not believed, and when each periodic duty is due")
        .calls("getClock")
        .answered(show),
    command("confirm", "Say that the clock is right, after a look at it")
        .calls("confirmClock")
        .says("the clock is believed within a second")
        .ends(&[
            "While the clock may be wrong, nothing is deleted, given up, expired or rotated by it.",
        ]),
];

const CLOCK: Noun = Noun::new("/v1/clock", "Clock", "clocks")
    .fields(&[
        time("the clock shows", "shown"),
        time("the service goes by", "believed"),
        cell("believed", "verdict"),
        time("by itself from", "believed_from"),
    ])
    .by(&[("verdict", verdict)]);

pub(super) const COMMANDS: Commands = Commands::new(
    &CLOCK,
    command("clock", "Whether the clock of the machine is believed, and what is done periodically"),
    VERBS,
);

fn show(_call: &Call<'_>, _remote: &Remote, found: &Value) -> Done {
    CLOCK.lines().fields(found)?;
    out::line("")?;
    DUTIES.table(list(found, "duties"))
}

const DUTIES: Columns = Columns {
    columns: &[
        column("DUTY", 0, "duty"),
        column("DONE (UTC)", 0, "done_at"),
        column("DUE (UTC)", 0, "due_at"),
        column("LATE", 0, "late"),
    ],
    by: &[("late", late)],
};

/// Whether the clock is believed, and why not.
fn verdict(found: &Value) -> String {
    let why = match found["doubt"].as_str() {
        None => return "yes".to_owned(),
        Some("set") => "it was set while the service ran",
        Some("behind") => "it is behind the last time that the database knows",
        Some("ahead") => "it is more than a week after the last time that the database knows",
        Some(_) => "it shows a time before this program existed",
    };
    format!("no: {why}. If it is right: oncebox clock confirm")
}

fn late(duty: &Value) -> String {
    let is_late = duty["is_late"] == true;
    if is_late { "by more than a day".to_owned() } else { "no".to_owned() }
}
