//! Notices when the wall clock is set. For a while after that, our time is suspect.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::base::clock::{Clock, Timestamp};

/// A jump of this much is a step, not drift: NTP corrects smaller offsets gradually.
const STEP: Duration = Duration::from_secs(2);
/// How long after a step the clock is suspect: long enough for NTP to set it right.
const SUSPECT_FOR: Duration = Duration::from_mins(10);

/// The state of our clock.
#[derive(Debug)]
pub struct ClockWatch {
    suspect_until_ms: AtomicI64,
}

impl Default for ClockWatch {
    fn default() -> Self {
        Self { suspect_until_ms: AtomicI64::new(i64::MIN) }
    }
}

impl ClockWatch {
    /// Whether the clock was stepped lately.
    pub fn is_suspect(&self, now: Timestamp) -> bool {
        now.ms() < self.suspect_until_ms.load(Ordering::Acquire)
    }

    /// Checks the clock. After a step it adopts the new wall time and returns the step in ms. A negative step means
    /// that the clock was set back, and due times must be moved earlier.
    pub fn look(&self, clock: &Clock) -> Option<i64> {
        let step = clock.step_ms();
        if Duration::from_millis(step.unsigned_abs()) < STEP {
            return None;
        }
        clock.re_anchor();
        self.suspect_until_ms.store(clock.now().plus(SUSPECT_FOR).ms(), Ordering::Release);
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualTime;

    #[test]
    fn a_step_makes_the_clock_suspect_for_ten_minutes() {
        let time = ManualTime::at(Timestamp::from_secs(1_000_000));
        let clock = Clock::from_source(time.clone());
        let watch = ClockWatch::default();
        time.advance(Duration::from_hours(1));
        assert_eq!(watch.look(&clock), None);
        time.set_wall(Timestamp::from_secs(900_000));
        assert_eq!(watch.look(&clock), Some(-103_600_000));
        assert!(watch.is_suspect(clock.now()));
        time.advance(SUSPECT_FOR);
        assert!(!watch.is_suspect(clock.now()));
    }
}
