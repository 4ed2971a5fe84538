//! A hold: why a subscription must not be called for now, and until when.
//!
//! A subscription can have several holds, and is called when it has none. A hold changes no row of a delivery.

use schemars::JsonSchema;
use serde::Serialize;

use crate::base::clock::Timestamp;
use crate::base::words::words;
use crate::model::escalation::Class;

words! {
    /// Why a subscription must not be called for now. Stored in `holds.reason`.
    pub enum HoldReason as "HoldReason" {
        /// A person paused it. Left by resume.
        Paused = "paused",
        /// The target answered 410, or has failed for five days. Left by resume.
        Disabled = "disabled",
        /// Its tenant is suspended. Stored with the tenant, not in `holds`.
        Suspended = "suspended",
        /// The target refused several deliveries in a row. Left by resume, or by a change of the subscription.
        Rejecting = "rejecting",
        /// The target asked us to wait. Left when the time is over.
        RateLimit = "rate_limit",
        /// Attempts failed in a row. Left by a probe that works.
        Breaker = "breaker",
        /// The target does not accept our credential. Left by a probe that works, a new secret, or resume.
        Auth = "auth",
        /// The site is offline. Stored once, as subscription 0. Left when the network works again.
        Offline = "offline",
    }
}

impl HoldReason {
    /// Whether a person relies on no further attempt: even one that was already scheduled is not started.
    pub const fn is_by_a_person(self) -> bool {
        matches!(self, Self::Paused | Self::Disabled | Self::Suspended)
    }

    /// Whether resuming a subscription ends it. Resuming does not shorten the wait that a target asked for.
    pub const fn ends_by_resume(self) -> bool {
        !matches!(self, Self::Suspended | Self::RateLimit | Self::Offline)
    }

    /// The escalation that is resolved when it ends. A person who pauses or suspends needs none; of the site, the line
    /// tells.
    pub const fn escalation(self) -> Option<Class> {
        match self {
            Self::Disabled => Some(Class::SubscriptionDisabled),
            Self::Rejecting => Some(Class::SubscriptionRejecting),
            Self::RateLimit => Some(Class::SubscriptionRateLimit),
            Self::Breaker => Some(Class::SubscriptionBreaker),
            Self::Auth => Some(Class::SubscriptionAuth),
            Self::Paused | Self::Suspended | Self::Offline => None,
        }
    }

    /// Whether a change of the subscription ends it, because the target may be another one now.
    pub const fn ends_by_change(self) -> bool {
        matches!(self, Self::Rejecting | Self::Breaker | Self::Auth)
    }
}

// A hold as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Hold {
    pub reason: HoldReason,
    pub since: Timestamp,
    /// When it ends by itself; null when something else has to end it.
    pub until: Option<Timestamp>,
    /// When one delivery is tried in spite of it; null when none is.
    pub probe_at: Option<Timestamp>,
    /// How many such probes have failed.
    pub probe_no: u32,
    /// Who paused it, or what the target answered.
    pub detail: String,
}

/// A hold that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PastHold {
    // Its number, by which lists go on.
    #[serde(skip)]
    pub seq: i64,
    pub reason: HoldReason,
    pub since: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// Who paused it, or what the target answered last: the first 200 characters.
    pub detail: String,
}

/// What the holds of a subscription together allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    /// Every delivery that is due.
    #[default]
    Open,
    /// Nothing before this time, then every delivery that is due.
    Until(Timestamp),
    /// Nothing before this time, then one delivery.
    Probe(Timestamp),
    /// Nothing.
    Closed,
}

impl Gate {
    /// When it opens by itself, at least for a probe.
    pub const fn opens_at(self) -> Option<Timestamp> {
        match self {
            Self::Until(at) | Self::Probe(at) => Some(at),
            Self::Open | Self::Closed => None,
        }
    }

    /// Whether a delivery may be sent at this time.
    pub fn is_open(self, now: Timestamp) -> bool {
        match self {
            Self::Open => true,
            Self::Until(at) | Self::Probe(at) => at <= now,
            Self::Closed => false,
        }
    }

    /// Whether only one delivery may be sent.
    pub const fn is_probe(self) -> bool {
        matches!(self, Self::Probe(_))
    }
}

/// What these holds allow together.
///
/// ```
/// use oncebox::base::clock::Timestamp;
/// use oncebox::model::hold::{Gate, Hold, HoldReason, gate};
/// let at = Timestamp::from_secs;
/// let hold = |reason, until, probe_at| Hold {
///     reason, since: at(0), until, probe_at, probe_no: 0, detail: String::new(),
/// };
/// let asked = hold(HoldReason::RateLimit, Some(at(60)), None);
/// let auth = hold(HoldReason::Auth, None, Some(at(5)));
/// assert_eq!(gate(&[]), Gate::Open);
/// assert_eq!(gate(&[asked.clone()]), Gate::Until(at(60)));
/// assert_eq!(gate(&[asked, auth]), Gate::Probe(at(60)));
/// ```
pub fn gate(holds: &[Hold]) -> Gate {
    let until = holds.iter().filter_map(|hold| hold.until).max();
    let probe = holds.iter().filter_map(|hold| hold.probe_at).max();
    if holds.iter().any(|hold| hold.until.is_none() && hold.probe_at.is_none()) {
        return Gate::Closed;
    }
    match (until, probe) {
        (None, None) => Gate::Open,
        (Some(until), None) => Gate::Until(until),
        (until, Some(probe)) => Gate::Probe(until.map_or(probe, |until| until.max(probe))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_without_an_end_closes_the_gate() {
        let hold = |reason, until| Hold {
            reason,
            since: Timestamp::from_secs(0),
            until,
            probe_at: None,
            probe_no: 0,
            detail: String::new(),
        };
        let asked = hold(HoldReason::RateLimit, Some(Timestamp::from_secs(60)));
        assert_eq!(gate(&[asked, hold(HoldReason::Paused, None)]), Gate::Closed);
    }
}
