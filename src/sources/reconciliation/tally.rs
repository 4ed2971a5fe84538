//! The numbers of a run, counted item by item. Pure.

use std::collections::BTreeMap;

use crate::base::clock::Timestamp;
use crate::sources::reconciliation::{MAX_REASONS, ReconciledCounts, ReconciledDay};

/// Characters of a day, like `2026-01-31`.
const DAY_CHARS: usize = 10;

/// What is stored of an item when it is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ItemState {
    /// It came as a webhook.
    Received,
    /// It came by the list alone; whether that was after the run had begun.
    TakenIn { was_missing: bool },
    /// It is not here, and can be taken in.
    Missing,
    /// It is not here, and cannot be taken in for this reason.
    Refused(String),
}

/// The numbers of each day.
#[derive(Debug, Default)]
pub(super) struct Tally(BTreeMap<String, ReconciledDay>);

impl Tally {
    /// Counts an item for the day of its time.
    pub(super) fn add(&mut self, at: Timestamp, state: ItemState) {
        let day: String = at.to_string().chars().take(DAY_CHARS).collect();
        let of_day = self.0.entry(day.clone()).or_insert_with(|| ReconciledDay {
            day,
            counts: ReconciledCounts::default(),
            reasons: Vec::new(),
        });
        let mut one = ReconciledCounts { sent: 1, ..ReconciledCounts::default() };
        match state {
            ItemState::Received => one.received = 1,
            ItemState::TakenIn { was_missing } => {
                one.taken_in = 1;
                one.missing = u64::from(was_missing);
            }
            ItemState::Missing => one.missing = 1,
            ItemState::Refused(why) => {
                one.refused = 1;
                if of_day.reasons.len() < MAX_REASONS && !of_day.reasons.contains(&why) {
                    of_day.reasons.push(why);
                }
            }
        }
        of_day.counts = of_day.counts.plus(one);
    }

    /// The days, the oldest first.
    pub(super) fn into_days(self) -> Vec<ReconciledDay> {
        self.0.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_counts_for_the_day_of_its_time() {
        let at = |text: &str| Timestamp::parse(text).unwrap();
        let mut tally = Tally::default();
        tally.add(at("2026-01-31T00:00:00Z"), ItemState::Missing);
        tally.add(at("2026-01-30T23:59:59Z"), ItemState::Received);
        tally.add(at("2026-01-30T00:00:00Z"), ItemState::TakenIn { was_missing: true });
        tally.add(at("2026-01-30T01:00:00Z"), ItemState::TakenIn { was_missing: false });
        let days = tally.into_days();
        let names: Vec<&str> = days.iter().map(|day| day.day.as_str()).collect();
        assert_eq!(names, ["2026-01-30", "2026-01-31"]);
        let first = ReconciledCounts { sent: 3, received: 1, missing: 1, taken_in: 2, refused: 0 };
        let last = ReconciledCounts { sent: 1, missing: 1, ..ReconciledCounts::default() };
        assert_eq!([days[0].counts, days[1].counts], [first, last]);
    }

    #[test]
    fn a_day_keeps_few_reasons_and_each_once() {
        let mut tally = Tally::default();
        for n in 0..20 {
            let why = format!("reason {}", n % 10);
            tally.add(Timestamp::from_secs(1_700_000_000), ItemState::Refused(why));
        }
        let days = tally.into_days();
        assert_eq!(days[0].counts.refused, 20);
        assert_eq!(days[0].reasons.len(), MAX_REASONS);
    }
}
