//! Plans the events for a consumer: about a few entities, out of order, some concurrent, some repeated. Compares the
//! consumer's effects with them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use crate::base::faults::SplitMix64;
use crate::base::id;

/// Events of each entity; the last entities may have fewer.
const VERSIONS: u32 = 5;
/// An event may come late by up to this fraction of all events: 1/4.
const LATE_PART: u64 = 4;
/// Events per 1,000 that two processes get at the same time.
const CONCURRENT_PERMILLE: u64 = 350;
/// Events per 1,000 that are repeated later.
const REPEATED_PERMILLE: u64 = 350;
/// Runs per 1,000 that are killed.
const KILLED_PERMILLE: u64 = 500;

/// An event for the consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Its `webhook-id`.
    pub(super) id: String,
    /// The entity it changes. Events of one entity have consecutive versions.
    pub(super) entity: String,
    /// The entity's version, from 1.
    pub(super) version: u32,
}

impl Event {
    /// The consumer's environment variables for this event.
    pub(super) fn environment(&self, attempt: u32) -> Vec<(String, String)> {
        let Self { id, entity, .. } = self;
        [
            ("ONCEBOX_WEBHOOK_ID", id.clone()),
            ("ONCEBOX_EVENT_TYPE", "conformance.changed".to_owned()),
            ("ONCEBOX_EVENT_ID", id.clone()),
            ("ONCEBOX_ATTEMPT", attempt.to_string()),
            ("ONCEBOX_AGGREGATE_TYPE", "conformance".to_owned()),
            ("ONCEBOX_AGGREGATE_ID", entity.clone()),
            ("ONCEBOX_IDEMPOTENCY_KEY", id.clone()),
            ("ONCEBOX_CONTENT_TYPE", "application/json".to_owned()),
            // Empty, because there is no delivery and no trace, but set for `sh -u`.
            ("ONCEBOX_DELIVERY", String::new()),
            ("TRACEPARENT", String::new()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    /// The payload for the consumer's input.
    pub(super) fn input(&self) -> Vec<u8> {
        json!({ "entity": self.entity, "version": self.version }).to_string().into_bytes()
    }
}

/// The events for the consumer, and their order.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) events: Vec<Event>,
    /// Indexes into `events`. Two equal neighbours are started at the same time.
    pub(super) order: Vec<usize>,
    chance: SplitMix64,
}

impl Plan {
    /// `run` makes the ids unique, because the consumer remembers the events of earlier runs.
    pub(super) fn new(count: u32, seed: u32, run: &str) -> Self {
        let mut chance = SplitMix64::of(seed, "conformance", u64::from(count));
        let entities = count.div_ceil(VERSIONS).max(1);
        let events: Vec<Event> = (0..count)
            .map(|n| Event {
                id: id::webhook_id("conformance", run, &n.to_string()),
                entity: format!("{run}-{}", n.checked_rem(entities).unwrap_or(0)),
                version: n.checked_div(entities).unwrap_or(0).saturating_add(1),
            })
            .collect();
        let max_late = (u64::from(count) / LATE_PART).max(8);
        let mut positioned = Vec::new();
        for (index, n) in (0..events.len()).zip(0_u64..) {
            let at = n.saturating_add(chance.below(max_late));
            positioned.push((at, index));
            if chance.below(1000) < CONCURRENT_PERMILLE {
                positioned.push((at, index));
            }
            if chance.below(1000) < REPEATED_PERMILLE {
                positioned.push((at.saturating_add(max_late).saturating_add(n), index));
            }
        }
        positioned.sort_unstable();
        let order = positioned.into_iter().map(|(_, index)| index).collect();
        Self { events, order, chance }
    }

    /// How long after its start a run is killed; `None` if it is not killed. Up to a quarter longer than the
    /// `usual` run time, so that some kills come before the first step of a run and some after the last.
    pub(super) fn kill_after(&mut self, usual: Duration) -> Option<Duration> {
        let is_killed = self.chance.below(1000) < KILLED_PERMILLE;
        let most = u64::try_from(usual.as_micros()).unwrap_or(u64::MAX);
        let after = self.chance.below(most.saturating_add(most / 4).max(1));
        is_killed.then(|| Duration::from_micros(after))
    }

    /// Queue position for an event that has to be repeated: a few places back, so that others overtake it.
    pub(super) fn requeue_position(&mut self, waiting: usize) -> usize {
        let behind = self.chance.below(6);
        usize::try_from(behind).unwrap_or(0).min(waiting)
    }
}

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

    #[test]
    fn the_same_seed_gives_the_same_order_under_other_names() {
        let one = Plan::new(50, 7, "a");
        let other = Plan::new(50, 7, "b");
        assert_eq!(one.order, other.order);
        assert_ne!(one.events, other.events);
        assert_ne!(one.order, Plan::new(50, 8, "a").order);
    }

    #[test]
    fn a_plan_has_every_event_and_some_twice_at_once_later_again_and_overtaken() {
        let Plan { events, order, .. } = Plan::new(100, 1, "a");
        assert!((0..100).all(|n| order.contains(&n)));
        assert!(order.windows(2).any(|pair| pair[0] == pair[1]), "none at the same time");
        let overtaken = |pair: &[usize]| {
            let one = &events[pair[0]];
            let next = &events[pair[1]];
            one.entity == next.entity && one.version > next.version
        };
        let seen: Vec<usize> = order.clone();
        let overtaken = (0..seen.len())
            .flat_map(|a| (a + 1..seen.len()).map(move |b| (a, b)))
            .any(|(a, b)| overtaken(&[seen[a], seen[b]]));
        assert!(overtaken, "none overtaken");
        assert!(order.len() > 150, "too few repeated");
    }

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
