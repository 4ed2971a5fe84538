//! The deliveries being attempted at this moment. The file does not store this: it would cost one more commit for each.

use std::collections::{HashMap, HashSet};

use crate::pipeline::prelude::*;

/// The deliveries that are being attempted, each with the time of its start.
#[derive(Debug, Default)]
pub struct InFlight(Mutex<HashMap<DeliverySeq, Timestamp>>, Mutex<HashSet<DeliverySeq>>);

/// While it lives, no attempt of its delivery begins.
#[derive(Debug)]
pub struct Claim(Arc<InFlight>, DeliverySeq);

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.1.lock().remove(&self.1);
    }
}

impl InFlight {
    /// An attempt begins. Tells whether it may: not while a person replaces the delivery.
    pub fn begin(&self, delivery: DeliverySeq, at: Timestamp) -> bool {
        let claimed = self.1.lock();
        let may_begin = !claimed.contains(&delivery);
        if may_begin {
            self.0.lock().insert(delivery, at);
        }
        may_begin
    }

    /// Keeps attempts of a delivery from beginning; `None` if one is under way, or somebody else does the same.
    pub fn claim(self: &Arc<Self>, delivery: DeliverySeq) -> Option<Claim> {
        let mut claimed = self.1.lock();
        let is_free = !self.0.lock().contains_key(&delivery) && claimed.insert(delivery);
        is_free.then(|| Claim(Arc::clone(self), delivery))
    }

    /// It has ended; its outcome may not be stored yet.
    pub fn end(&self, delivery: DeliverySeq) {
        self.0.lock().remove(&delivery);
    }

    /// All of them.
    pub fn all(&self) -> Vec<(DeliverySeq, Timestamp)> {
        self.0.lock().iter().map(|(delivery, at)| (*delivery, *at)).collect()
    }

    /// Since when a delivery is being attempted.
    pub fn since(&self, delivery: DeliverySeq) -> Option<Timestamp> {
        self.0.lock().get(&delivery).copied()
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
