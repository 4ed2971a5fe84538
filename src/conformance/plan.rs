//! What a consumer is given: events about a few entities, out of order, some at the same time, some again.

use std::time::Duration;

use serde_json::json;

use crate::base::id;
use crate::base::split_mix::SplitMix64;

/// Versions of each entity, but for the last ones.
const VERSIONS: u32 = 5;
/// How many places an event may be late, out of as many as there are events.
const LATE_PART: u64 = 4;
/// Of 1,000 events, how many are given to two processes at the same time.
const CONCURRENT_PERMILLE: u64 = 350;
/// Of 1,000 events, how many are given again later.
const AGAIN_PERMILLE: u64 = 350;
/// Of 1,000 runs, how many are killed.
const KILLED_PERMILLE: u64 = 500;

/// An event as the consumer gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Its `webhook-id`.
    pub(super) id: String,
    /// What it is about: events with the same one follow one another.
    pub(super) entity: String,
    /// Which of them it is, from 1.
    pub(super) version: u32,
}

impl Event {
    /// What is in the environment of the consumer.
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
            // There is no delivery and no trace; `sh -u` wants them set.
            ("ONCEBOX_DELIVERY", String::new()),
            ("TRACEPARENT", String::new()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    /// The payload, which it reads.
    pub(super) fn input(&self) -> Vec<u8> {
        json!({ "entity": self.entity, "version": self.version }).to_string().into_bytes()
    }
}

/// What is given to the consumer, in this order.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) events: Vec<Event>,
    /// Places in `events`. What stands twice in a row is begun at the same time.
    pub(super) order: Vec<usize>,
    chance: SplitMix64,
}

impl Plan {
    /// `run` names this run: a consumer keeps what it has done in earlier ones.
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
        let late_most = (u64::from(count) / LATE_PART).max(8);
        let mut placed = Vec::new();
        for (place, n) in (0..events.len()).zip(0_u64..) {
            let at = n.saturating_add(chance.below(late_most));
            placed.push((at, place));
            if chance.below(1000) < CONCURRENT_PERMILLE {
                placed.push((at, place));
            }
            if chance.below(1000) < AGAIN_PERMILLE {
                placed.push((at.saturating_add(late_most).saturating_add(n), place));
            }
        }
        placed.sort_unstable();
        let order = placed.into_iter().map(|(_, place)| place).collect();
        Self { events, order, chance }
    }

    /// How long after its start a run is killed, if it is: anywhere from before it has done anything to after
    /// it is done, as it mostly takes `usual`.
    pub(super) fn kill_after(&mut self, usual: Duration) -> Option<Duration> {
        let is_killed = self.chance.below(1000) < KILLED_PERMILLE;
        let most = u64::try_from(usual.as_micros()).unwrap_or(u64::MAX);
        let after = self.chance.below(most.saturating_add(most / 4).max(1));
        is_killed.then(|| Duration::from_micros(after))
    }

    /// Where an event is put that has to be given again: a few places behind, so that others overtake it.
    pub(super) fn place_again(&mut self, waiting: usize) -> usize {
        let behind = self.chance.below(6);
        usize::try_from(behind).unwrap_or(0).min(waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_order_under_other_names() {
        let (one, other) = (Plan::new(50, 7, "a"), Plan::new(50, 7, "b"));
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
            let (one, next) = (&events[pair[0]], &events[pair[1]]);
            one.entity == next.entity && one.version > next.version
        };
        let seen: Vec<usize> = order.clone();
        let overtaken = (0..seen.len())
            .flat_map(|a| (a + 1..seen.len()).map(move |b| (a, b)))
            .any(|(a, b)| overtaken(&[seen[a], seen[b]]));
        assert!(overtaken, "none overtaken");
        assert!(order.len() > 150, "too few repeated");
    }
}
