//! What the consumer has done, compared with what it was given.

use std::collections::BTreeMap;

use crate::conformance::plan::Event;

/// What is wrong with the effects, by the names of the events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Effects of events of this run.
    pub effects: usize,
    /// Acknowledged, and without an effect.
    pub lost: Vec<String>,
    /// With more than one effect.
    pub doubled: Vec<String>,
    /// Carried out after a newer version of the same entity. Only where older ones must not be.
    pub stale: Vec<String>,
}

/// How the consumer is guarded, which decides what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Every event once, in any order.
    Once,
    /// Only what is newer: the last version of each entity for certain, older ones never after it.
    Newer,
}

/// Counts effects, given as the events' ids in the order in which they happened.
pub(super) fn count(events: &[&Event], effects: &str, guard: Guard) -> Counted {
    let by_id: BTreeMap<&str, &Event> =
        events.iter().map(|event| (event.id.as_str(), *event)).collect();
    let mut times: BTreeMap<&str, u32> = BTreeMap::new();
    let mut newest: BTreeMap<&str, u32> = BTreeMap::new();
    let mut counted = Counted::default();
    // What is not of this run was done in an earlier one.
    for event in effects.lines().filter_map(|line| by_id.get(line.trim())) {
        counted.effects = counted.effects.saturating_add(1);
        let times = times.entry(&event.id).or_default();
        *times = times.saturating_add(1);
        if *times == 2 {
            counted.doubled.push(event.id.clone());
        }
        let newest = newest.entry(&event.entity).or_default();
        if guard == Guard::Newer && event.version < *newest {
            counted.stale.push(event.id.clone());
        }
        *newest = event.version.max(*newest);
    }
    let wanted = last_versions(events);
    let has_to_be = |event: &&&Event| {
        guard == Guard::Once || wanted.get(event.entity.as_str()) == Some(&event.version)
    };
    let missing = events.iter().filter(has_to_be).filter(|e| !times.contains_key(e.id.as_str()));
    counted.lost = missing.map(|event| event.id.clone()).collect();
    counted
}

fn last_versions<'a>(events: &[&'a Event]) -> BTreeMap<&'a str, u32> {
    let mut versions: BTreeMap<&str, u32> = BTreeMap::new();
    for event in events {
        let last = versions.entry(&event.entity).or_default();
        *last = event.version.max(*last);
    }
    versions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(entity: &str, version: u32) -> Event {
        Event { id: format!("{entity}{version}"), entity: entity.to_owned(), version }
    }

    fn counted(effects: &str, guard: Guard) -> [String; 3] {
        let events = [event("a", 1), event("a", 2), event("b", 1)];
        let Counted { effects: _, lost, doubled, stale } =
            count(&events.iter().collect::<Vec<_>>(), effects, guard);
        [lost, doubled, stale].map(|ids| ids.join(" "))
    }

    #[test]
    fn each_event_once_in_any_order_is_right() {
        assert_eq!(counted("b1\na2\nof another run\na1\n", Guard::Once), ["", "", ""]);
        assert_eq!(counted("a2\na2\na2\nb1\n", Guard::Once), ["a1", "a2", ""]);
    }

    #[test]
    fn of_newer_ones_the_last_has_to_be_there_and_none_after_it() {
        assert_eq!(counted("a2\nb1\n", Guard::Newer), ["", "", ""]);
        assert_eq!(counted("a1\na2\nb1\n", Guard::Newer), ["", "", ""]);
        assert_eq!(counted("a2\na1\n", Guard::Newer), ["b1", "", "a1"]);
        assert_eq!(counted("a1\nb1\n", Guard::Newer), ["a2", "", ""]);
    }
}
