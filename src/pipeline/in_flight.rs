//! The deliveries being attempted at this moment. The file does not store this: it would cost one more commit for each.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::base::clock::Timestamp;
use crate::base::id::DeliverySeq;

/// The deliveries that are being attempted, each with the time of its start.
#[derive(Debug, Default)]
pub struct InFlight(Mutex<HashMap<DeliverySeq, Timestamp>>);

impl InFlight {
    /// An attempt begins.
    pub fn begin(&self, delivery: DeliverySeq, at: Timestamp) {
        self.0.lock().insert(delivery, at);
    }

    /// It has ended; its outcome may not be stored yet.
    pub fn end(&self, delivery: DeliverySeq) {
        self.0.lock().remove(&delivery);
    }

    /// Whether any of these is being attempted.
    pub fn any(&self, deliveries: &[DeliverySeq]) -> bool {
        let all = self.0.lock();
        deliveries.iter().any(|delivery| all.contains_key(delivery))
    }

    /// All of them.
    pub fn all(&self) -> Vec<DeliverySeq> {
        self.0.lock().keys().copied().collect()
    }

    /// Since when a delivery is being attempted.
    pub fn since(&self, delivery: DeliverySeq) -> Option<Timestamp> {
        self.0.lock().get(&delivery).copied()
    }
}
