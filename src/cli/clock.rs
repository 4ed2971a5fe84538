//! `oncebox clock`: whether the clock is believed, and the periodic duties.

use crate::cli::prelude::*;

const TABLE: &str = "
clock  Whether the clock of the machine is believed, and what is done periodically
  show = getClock  The clock, why it is not believed, and when each periodic duty is due
  confirm = confirmClock  Say that the clock is right, after a look at it
    | While the clock may be wrong, nothing is deleted, given up, expired or rotated by it.
    > the clock is believed within a second
";

const CLOCK: Noun = Noun::new("/v1/clock", "Clock", "clocks", TABLE);

pub(super) const COMMANDS: Commands = Commands::new(&CLOCK, TABLE, &[]);
