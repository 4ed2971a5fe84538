//! The rules by which failed attempts of a delivery are judged.

use std::time::Duration;

use crate::model::delivery::Schedule;

/// Transient failures in a row after which a subscription is held, unless its policy says otherwise.
pub const BREAKER_AFTER: u32 = 10;

/// The limits of a delivery: its subscription's, or the event's own `max_attempts` if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryRules {
    /// Waits, and the number of counted attempts.
    pub schedule: Schedule,
    /// Transient failures in a row after which the breaker opens; 0: never.
    pub breaker_after: u32,
    /// Counted failures after which a delivery in a lane is parked; `None`: never.
    pub park_after: Option<u32>,
    /// How long the target has to confirm what it accepted; `None`: a 2xx completes a delivery.
    pub confirm_within: Option<Duration>,
}

impl RetryRules {
    /// The rules for an event, which may have a number of attempts of its own.
    #[must_use]
    pub fn of_event(&self, max_attempts: Option<u32>) -> Self {
        let mut rules = self.clone();
        // The schema bounds the event's own number, so it cannot be refused here.
        let own = max_attempts.and_then(|most| rules.schedule.clone().with_max_attempts(most).ok());
        if let Some(schedule) = own {
            rules.schedule = schedule;
        }
        rules
    }
}

impl Default for RetryRules {
    fn default() -> Self {
        Self {
            schedule: Schedule::default(),
            breaker_after: BREAKER_AFTER,
            park_after: None,
            confirm_within: None,
        }
    }
}
