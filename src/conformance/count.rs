//! Compares the consumer's effects with the events that it was given.

use std::collections::BTreeMap;

use crate::conformance::plan::Event;

/// The effects of a run, and the ids of the events whose effects are wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffectCounts {
    /// Number of effects of this run's events.
    pub effects: usize,
    /// Acknowledged events without an effect.
    pub lost: Vec<String>,
    /// Events with more than one effect.
    pub doubled: Vec<String>,
    /// Events applied after a newer version of their entity. Only counted under [`Guard::Newer`].
    pub stale: Vec<String>,
}

/// The guard that the consumer uses. It decides which effects are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Every event takes effect once, in any order.
    Once,
    /// An event takes effect only if it is newer than the last one of its entity. The last version must take effect.
    Newer,
}

/// Counts the effects: one event id a line, in the order in which they happened.
pub(super) fn count(events: &[&Event], effects: &str, guard: Guard) -> EffectCounts {
    let by_id: BTreeMap<&str, &Event> =
        events.iter().map(|event| (event.id.as_str(), *event)).collect();
    let mut times: BTreeMap<&str, u32> = BTreeMap::new();
    let mut newest: BTreeMap<&str, u32> = BTreeMap::new();
    let mut counted = EffectCounts::default();
    // An unknown id belongs to an earlier run.
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
    let newest = last_versions(events);
    let is_required = |event: &&&Event| {
        guard == Guard::Once || newest.get(event.entity.as_str()) == Some(&event.version)
    };
    let missing = events.iter().filter(is_required).filter(|e| !times.contains_key(e.id.as_str()));
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
        let EffectCounts { effects: _, lost, doubled, stale } =
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
