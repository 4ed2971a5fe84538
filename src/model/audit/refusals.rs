//! Limits the rows that refused calls write: [`MAX_AT_ONCE`] a minute for each address, action and result, of which
//! [`MAX_ROWS`] kinds are told apart. Further refusals are counted, and the next row has their number.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::audit::{NewAuditEvent, Outcome};

/// How long further refusals of the same kind are counted instead of written.
const WINDOW: Duration = Duration::from_mins(1);
/// Kinds that are counted separately. All others are counted together.
const MAX_ROWS: usize = 20;

/// Refusals of a kind within a minute that are written at once. Those of a flood that goes on for minutes are only counted.
const MAX_AT_ONCE: u32 = 10;

/// What is counted together: address, action and result. `None`: all kinds beyond [`MAX_ROWS`].
type RefusalKind = Option<(String, String, Outcome)>;

/// The refusals of the last minute.
#[derive(Debug, Default)]
pub struct Ledger {
    open: BTreeMap<RefusalKind, Window>,
}

#[derive(Debug)]
struct Window {
    since: Duration,
    /// How many more are written at once.
    at_once: u32,
    /// How many refusals were counted and not written.
    counted: u32,
    /// The last of them.
    last: Option<NewAuditEvent>,
}

impl Ledger {
    /// Counts a refusal; returns it if its row is to be written at once.
    pub fn note(&mut self, refused: NewAuditEvent, now: Duration) -> Option<NewAuditEvent> {
        let address = refused.origin.address.clone().unwrap_or_default();
        let own = Some((address, refused.action.clone(), refused.outcome));
        let kind =
            if self.open.contains_key(&own) || self.open.len() < MAX_ROWS { own } else { None };
        if let Some(window) = self.open.get_mut(&kind) {
            if window.at_once > 0 {
                window.at_once = window.at_once.saturating_sub(1);
                return Some(refused);
            }
            window.counted = window.counted.saturating_add(1);
            window.last = Some(refused);
            return None;
        }
        let at_once = MAX_AT_ONCE.saturating_sub(1);
        self.open.insert(kind, Window { since: now, at_once, counted: 0, last: None });
        Some(refused)
    }

    /// The rows for counted refusals whose minute is over; with `all`, for all of them.
    pub fn due(&mut self, now: Duration, all: bool) -> Vec<NewAuditEvent> {
        let is_over = |window: &Window| all || now.saturating_sub(window.since) >= WINDOW;
        let over: Vec<RefusalKind> = self
            .open
            .iter()
            .filter(|(_, window)| is_over(window))
            .map(|(kind, _)| kind.clone())
            .collect();
        let mut due = Vec::new();
        for kind in over {
            let Some(window) = self.open.remove(&kind) else { continue };
            let Some(mut row) = window.last else { continue };
            row.changes = row.changes.and("calls", window.counted);
            if kind.is_none() {
                row.changes = row.changes.and("of", "several addresses or actions");
            }
            due.push(row);
            // The next refusal is only counted, so a caller that continues gets one row a minute, not two.
            self.open.insert(kind, Window { since: now, at_once: 0, counted: 0, last: None });
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Timestamp;
    use crate::model::audit::{Actor, Origin};

    fn refused(address: &str) -> NewAuditEvent {
        let origin = Origin { address: Some(address.to_owned()), ..Origin::default() };
        let local =
            NewAuditEvent::local(Timestamp::from_secs(1), "default", Actor::anonymous(), "a.b");
        NewAuditEvent { origin, outcome: Outcome::Denied, ..local }
    }

    #[test]
    fn a_flood_is_one_row_a_minute_with_a_count() {
        let mut ledger = Ledger::default();
        let at = Duration::from_secs;
        let mut rows = Vec::new();
        for second in 0..600 {
            for _ in 0..10 {
                rows.extend(ledger.note(refused("192.0.2.1"), at(second)));
            }
            rows.extend(ledger.due(at(second), false));
        }
        rows.extend(ledger.due(at(600), true));
        assert_eq!(rows.len(), 20);
        let counted: Vec<String> = rows.iter().map(|row| row.changes.to_text()).collect();
        assert!(counted[..10].iter().all(|changes| changes == "{}"));
        assert!(counted[10].contains(r#""after":600"#), "{counted:?}");
    }

    #[test]
    fn further_addresses_are_counted_together() {
        let mut ledger = Ledger::default();
        let at = Duration::from_secs;
        let rows = (0..5000).filter_map(|n| ledger.note(refused(&format!("192.0.2.{n}")), at(1)));
        // Those that are counted together are one kind more.
        assert_eq!(rows.count(), MAX_ROWS + usize::try_from(MAX_AT_ONCE).unwrap());
        let due = ledger.due(at(61), false);
        assert_eq!(due.len(), 1);
        assert!(due[0].changes.to_text().contains(r#""after":4970"#), "{:?}", due[0].changes);
        assert!(ledger.due(at(62), true).is_empty());
    }

    #[test]
    fn a_kind_without_refusals_for_a_minute_is_forgotten() {
        let mut ledger = Ledger::default();
        let at = Duration::from_secs;
        for _ in 0..MAX_AT_ONCE {
            assert!(ledger.note(refused("a"), at(0)).is_some());
        }
        assert!(ledger.note(refused("a"), at(59)).is_none());
        assert_eq!(ledger.due(at(60), false).len(), 1);
        assert!(ledger.due(at(120), false).is_empty());
        assert!(ledger.note(refused("a"), at(121)).is_some());
    }
}
