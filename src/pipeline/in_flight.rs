//! The deliveries being attempted at this moment. The file does not store this: it would cost one more commit for each.

use std::collections::{HashMap, HashSet};

use crate::pipeline::prelude::*;

/// Deliveries under way, and deliveries that must not be.
#[derive(Debug, Default)]
pub struct InFlight {
    /// Each with the time of its start.
    attempts: Mutex<HashMap<DeliverySeq, Timestamp>>,
    claimed: Mutex<HashSet<DeliverySeq>>,
}

/// A claim on a delivery. While it lives, no attempt of the delivery begins.
#[derive(Debug)]
pub struct Claim {
    in_flight: Arc<InFlight>,
    delivery: DeliverySeq,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.in_flight.claimed.lock().remove(&self.delivery);
    }
}

impl InFlight {
    /// An attempt begins. Tells whether it may: not while a person replaces the delivery.
    pub fn begin(&self, delivery: DeliverySeq, at: Timestamp) -> bool {
        let claimed = self.claimed.lock();
        let may_begin = !claimed.contains(&delivery);
        if may_begin {
            self.attempts.lock().insert(delivery, at);
        }
        may_begin
    }

    /// Keeps attempts of a delivery from beginning; `None` if one is under way, or somebody else does the same.
    pub fn claim(self: &Arc<Self>, delivery: DeliverySeq) -> Option<Claim> {
        let mut claimed = self.claimed.lock();
        let is_free = !self.attempts.lock().contains_key(&delivery) && claimed.insert(delivery);
        is_free.then(|| Claim { in_flight: Arc::clone(self), delivery })
    }

    /// It has ended; its outcome may not be stored yet.
    pub fn end(&self, delivery: DeliverySeq) {
        self.attempts.lock().remove(&delivery);
    }

    /// All of them.
    pub fn all(&self) -> Vec<(DeliverySeq, Timestamp)> {
        self.attempts.lock().iter().map(|(delivery, at)| (*delivery, *at)).collect()
    }

    /// Since when a delivery is being attempted.
    pub fn since(&self, delivery: DeliverySeq) -> Option<Timestamp> {
        self.attempts.lock().get(&delivery).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_attempt_and_a_claim_only_one_goes_on() {
        let (in_flight, at) = (Arc::new(InFlight::default()), Timestamp::from_secs(1));
        let [one, other] = [1, 2].map(DeliverySeq);
        let claim = in_flight.claim(one).unwrap();
        assert!(in_flight.claim(one).is_none());
        assert!(!in_flight.begin(one, at) && in_flight.since(one).is_none());
        assert!(in_flight.begin(other, at) && in_flight.claim(other).is_none());
        drop(claim);
        in_flight.end(other);
        assert!(in_flight.begin(one, at) && in_flight.claim(other).is_some());
    }
}
