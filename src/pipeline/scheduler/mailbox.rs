//! Where the other threads leave word for the dispatcher. Leaving word never blocks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::base::clock::Timestamp;
use crate::base::id::{DeliverySeq, SubscriptionSeq};
use crate::store::tx::Settled;
use crate::telemetry::heartbeat::Heartbeat;

/// A delivery of which nothing came for a reason of ours, and whose row stays due.
#[derive(Clone, Copy, Debug)]
pub struct PutOff {
    /// Which.
    pub delivery: DeliverySeq,
    /// Whose.
    pub subscription: SubscriptionSeq,
    /// When it is looked at again.
    pub until: Timestamp,
    /// Whether the reason holds for all that its subscription has.
    pub whole: bool,
}

/// A deliverer is idle again.
#[derive(Clone, Copy, Debug)]
pub struct Finished {
    /// Whose request it was.
    pub subscription: SubscriptionSeq,
    /// How long it took.
    pub latency: Duration,
    /// How long it might have taken; `None` where nothing was sent.
    pub limit: Option<Duration>,
}

/// What was left since the last look.
#[derive(Debug, Default)]
pub struct Letters {
    /// Subscriptions that may have something new.
    pub rang: BTreeSet<SubscriptionSeq>,
    /// Attempts that are committed.
    pub settled: Vec<Settled>,
    /// Deliveries that wait for what is ours to mend.
    pub reschedule: Vec<PutOff>,
    /// Deliverers that are idle again.
    pub finished: Vec<Finished>,
    /// Whether subscriptions have to be read again.
    pub subscriptions_changed: bool,
    /// Whether to stop.
    pub stop: bool,
    /// Whether anybody wants the dispatcher to look at the clock.
    pub woken: bool,
}

impl Letters {
    fn is_empty(&self) -> bool {
        self.rang.is_empty()
            && self.settled.is_empty()
            && self.reschedule.is_empty()
            && self.finished.is_empty()
            && !self.subscriptions_changed
            && !self.stop
            && !self.woken
    }
}

/// The dispatcher's letter box. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Mailbox(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    letters: Mutex<Letters>,
    left: Condvar,
    pulse: Heartbeat,
}

impl Mailbox {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Leaves word.
    pub fn leave(&self, write: impl FnOnce(&mut Letters)) {
        let mut letters = self.0.letters.lock();
        let was_empty = letters.is_empty();
        write(&mut letters);
        drop(letters);
        // Whoever found letters lying there has woken the dispatcher already.
        if was_empty {
            self.0.left.notify_one();
        }
    }

    /// The sign of life of whoever takes the letters.
    pub fn pulse(&self) -> &Heartbeat {
        &self.0.pulse
    }

    /// Takes what was left, waiting for it at most `span`.
    pub fn take(&self, span: Duration) -> Letters {
        self.0.pulse.tick();
        let mut letters = self.0.letters.lock();
        self.0.left.wait_while_for(&mut letters, |letters| letters.is_empty(), span);
        std::mem::take(&mut letters)
    }
}
