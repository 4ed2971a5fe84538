//! `oncebox clock`: whether the clock is believed, and the periodic duties.

use crate::cli::prelude::*;
use crate::cli::show::Cells;

const TABLE: &str = "
clock  Whether the clock of the machine is believed, and what is done periodically
  fields: the clock shows = @shown; the service goes by = @believed; believed = verdict; by itself from = @believed_from
  show = getClock  The clock, why it is not believed, and when each periodic duty is due
  confirm = confirmClock  Say that the clock is right, after a look at it
    | While the clock may be wrong, nothing is deleted, given up, expired or rotated by it.
    > the clock is believed within a second
";

const CLOCK: Noun = Noun::new("/v1/clock", "Clock", "clocks", TABLE).by(&[("verdict", verdict)]);

pub(super) const COMMANDS: Commands = Commands::new(&CLOCK, TABLE, &[answered("show", show)]);

fn show(_call: &Call<'_>, _remote: &Remote, found: &Value) -> Done {
    CLOCK.fields().fields(found)?;
    out::line("")?;
    DUTIES.table(list(found, "duties"))
}

const DUTIES: Cells = Cells {
    text: "DUTY 0 duty; DONE (UTC) 0 done_at; DUE (UTC) 0 due_at; LATE 0 late",
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
