//! When the service ran and what happened was counted: it tells a zero from a gap.

use std::time::Duration;

use crate::base::clock::Timestamp;

/// The runs of the service, each from its start until its counts were stored last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(Vec<(Timestamp, Timestamp)>);

impl Coverage {
    /// These runs.
    pub const fn of(runs: Vec<(Timestamp, Timestamp)>) -> Self {
        Self(runs)
    }

    /// For how much of the time between these two there are counts.
    ///
    /// ```
    /// use std::time::Duration;
    /// use oncebox::base::clock::Timestamp;
    /// use oncebox::model::coverage::Coverage;
    /// let at = Timestamp::from_secs;
    /// let runs = Coverage::of(vec![(at(90), at(200)), (at(10), at(70))]);
    /// assert_eq!(runs.within(at(60), at(120)), Duration::from_secs(40));
    /// assert!(runs.is_whole(at(10), at(70)));
    /// assert!(!runs.is_whole(at(60), at(120)));
    /// ```
    pub fn within(&self, from: Timestamp, until: Timestamp) -> Duration {
        let part =
            |(start, end): &(Timestamp, Timestamp)| (*end).min(until).since((*start).max(from));
        self.0.iter().map(part).sum::<Duration>().min(until.since(from))
    }

    /// Whether there are counts of all the time between these two.
    pub fn is_whole(&self, from: Timestamp, until: Timestamp) -> bool {
        self.within(from, until) == until.since(from)
    }
}
