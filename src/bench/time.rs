//! The time of a run: how long its parts may last, and how much fits into a second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::base::clock::Clock;
use crate::demo::site::Error;

/// The end of each measurement: after a span, or when Ctrl-C is pressed.
pub(super) struct RunLimits<'a> {
    /// Longest time of one measurement.
    pub(super) span: Duration,
    pub(super) clock: Clock,
    pub(super) interrupted: &'a AtomicBool,
}

impl RunLimits<'_> {
    /// Fails if Ctrl-C was pressed.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.interrupted.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// The time since a reading of the clock.
    pub(super) fn since(&self, begun: Duration) -> Duration {
        self.clock.monotonic().saturating_sub(begun)
    }
}

/// How many of them there are in a second.
pub(super) fn per_second(count: u64, took: Duration) -> u64 {
    let us = took.as_micros().max(1);
    let scaled = u128::from(count).saturating_mul(1_000_000);
    u64::try_from(scaled / us).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_whole_events_a_second_and_never_divides_by_nothing() {
        assert_eq!(per_second(90, Duration::from_millis(4_500)), 20);
        assert_eq!(per_second(3, Duration::from_secs(2)), 1);
        assert_eq!(per_second(0, Duration::ZERO), 0);
    }
}
