//! What waits for a deliverer.
//!
//! Not a channel of crossbeam: there every receiver spins and yields before it sleeps, and with
//! sixty-four of them a third of the processor time of a delivery went into that. Here they sleep at
//! once, and one is rung for at a time: who comes up rings for the next if there is more to do.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::base::id::{DeliverySeq, SubscriptionSeq};

/// A delivery on its way to a deliverer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Which delivery.
    pub delivery: DeliverySeq,
    /// Whose.
    pub subscription: SubscriptionSeq,
}

#[derive(Debug, Default)]
struct Waiting {
    assignments: VecDeque<Assignment>,
    asleep: usize,
    /// Whether one was rung for and is not up yet.
    rung: bool,
    closed: bool,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    filled: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }

    /// Wakes one sleeper, once the lock is free for it. A spurious wake-up costs a ring for nobody.
    fn ring(&self, mut waiting: MutexGuard<'_, Waiting>) {
        let needed = waiting.asleep > 0 && !waiting.rung;
        waiting.rung |= needed;
        drop(waiting);
        if needed {
            self.filled.notify_one();
        }
    }
}

/// The dispatcher's end. Dropped, it lets the deliverers end once they have worked off what waits.
#[derive(Debug)]
pub struct HandOut {
    shared: Arc<Shared>,
    deliverers: usize,
}

/// A deliverer's end. Clones share it.
#[derive(Clone, Debug)]
pub struct Assignments(Arc<Shared>);

/// Both ends, for so many deliverers. Nothing bounds what waits but the dispatcher, which gives out no
/// more than there are deliverers.
pub fn assignments(deliverers: usize) -> (HandOut, Assignments) {
    let shared = Arc::new(Shared::default());
    (HandOut { shared: Arc::clone(&shared), deliverers }, Assignments(shared))
}

impl HandOut {
    /// How many work on the other end.
    pub fn deliverers(&self) -> usize {
        self.deliverers
    }

    /// Gives an assignment to whoever is idle. Never waits.
    pub fn give(&self, assignment: Assignment) {
        let mut waiting = self.shared.lock();
        waiting.assignments.push_back(assignment);
        self.shared.ring(waiting);
    }
}

impl Drop for HandOut {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.filled.notify_all();
    }
}

impl Assignments {
    /// The next assignment, waiting for it; `None` when there will be no more.
    pub fn take(&self) -> Option<Assignment> {
        let mut waiting = self.0.lock();
        loop {
            if let Some(next) = waiting.assignments.pop_front() {
                if !waiting.assignments.is_empty() {
                    self.0.ring(waiting);
                }
                return Some(next);
            }
            if waiting.closed {
                return None;
            }
            waiting.asleep = waiting.asleep.saturating_add(1);
            self.0.filled.wait(&mut waiting);
            waiting.asleep = waiting.asleep.saturating_sub(1);
            waiting.rung = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_is_taken_in_order_even_after_the_dispatcher_has_gone() {
        let (hand_out, assignments) = assignments(2);
        let given = [1, 2, 3]
            .map(|n| Assignment { delivery: DeliverySeq(n), subscription: SubscriptionSeq(1) });
        for assignment in given {
            hand_out.give(assignment);
        }
        drop(hand_out);
        for assignment in given {
            assert_eq!(assignments.take(), Some(assignment));
        }
        assert_eq!(assignments.take(), None);
    }
}
