//! What is in hand: every delivery that is fetched and not settled, and the lanes they are in.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::base::id::{DeliverySeq, SubscriptionSeq};

/// Whose a delivery in hand is, and its lane.
#[derive(Clone, Copy, Debug)]
struct Hold {
    owner: SubscriptionSeq,
    lane: Option<i64>,
}

/// Every delivery that is fetched and not settled.
#[derive(Debug, Default)]
pub(super) struct Hand {
    deliveries: HashMap<DeliverySeq, Hold>,
    /// The lanes they are in. A lane in hand is refused: whoever is its head now waits for who was. Each says
    /// whether that has happened.
    lanes: HashMap<i64, bool>,
}

impl Hand {
    pub(super) fn len(&self) -> usize {
        self.deliveries.len()
    }

    /// Takes a delivery, unless it or its lane is in hand; tells whether it did.
    pub(super) fn take(
        &mut self,
        delivery: DeliverySeq,
        owner: SubscriptionSeq,
        lane: Option<i64>,
    ) -> bool {
        let Entry::Vacant(place) = self.deliveries.entry(delivery) else { return false };
        if lane.is_some_and(|lane| is_refused(&mut self.lanes, lane)) {
            return false;
        }
        place.insert(Hold { owner, lane });
        true
    }

    /// Lets go of a delivery; tells whose it was, and whether another of its lane was refused meanwhile.
    pub(super) fn let_go(&mut self, delivery: DeliverySeq) -> Option<(SubscriptionSeq, bool)> {
        let Hold { owner, lane } = self.deliveries.remove(&delivery)?;
        let was_refused = lane.and_then(|lane| self.lanes.remove(&lane)).unwrap_or(false);
        Some((owner, was_refused))
    }
}

/// Takes a lane in hand, unless it is; then it remembers that somebody was refused.
fn is_refused(lanes: &mut HashMap<i64, bool>, lane: i64) -> bool {
    let is_in_hand = lanes.contains_key(&lane);
    lanes.insert(lane, is_in_hand);
    is_in_hand
}
