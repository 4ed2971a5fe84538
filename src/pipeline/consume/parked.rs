//! Requests that wait for something to become due, each with the end of its wait.
//!
//! Pure: who may have what is decided by the store.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::base::id::SubscriptionSeq;
use crate::model::subscription::HoldReason;

/// A request that waits.
#[derive(Debug)]
pub(super) struct Waiter<T> {
    pub(super) request: T,
    /// How many it wants.
    pub(super) most: u32,
    /// When it has waited long enough.
    pub(super) until: Duration,
}

/// Those that wait for one subscription, in the order they came.
#[derive(Debug)]
pub(super) struct Line<T> {
    pub(super) waiters: VecDeque<Waiter<T>>,
    /// When something becomes due by itself.
    pub(super) next_due: Option<Timestamp>,
    /// Why nothing is given.
    pub(super) held: Option<HoldReason>,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self { waiters: VecDeque::new(), next_due: None, held: None }
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Parked<T> {
    lines: BTreeMap<SubscriptionSeq, Line<T>>,
}

impl<T> Default for Parked<T> {
    fn default() -> Self {
        Self { lines: BTreeMap::new() }
    }
}

impl<T> Parked<T> {
    /// Lets a request wait behind those that came before.
    pub(super) fn park(&mut self, subscription: SubscriptionSeq, waiter: Waiter<T>) {
        self.lines.entry(subscription).or_default().waiters.push_back(waiter);
    }

    /// Lets a request wait that has stood in front already.
    pub(super) fn park_first(&mut self, subscription: SubscriptionSeq, waiter: Waiter<T>) {
        self.lines.entry(subscription).or_default().waiters.push_front(waiter);
    }

    /// Those of one subscription.
    pub(super) fn line(&mut self, subscription: SubscriptionSeq) -> Option<&mut Line<T>> {
        self.lines.get_mut(&subscription)
    }

    /// The subscriptions that somebody waits for.
    pub(super) fn subscriptions(&self) -> Vec<SubscriptionSeq> {
        self.lines.keys().copied().collect()
    }

    /// Subscriptions of which something became due by itself.
    pub(super) fn became_due(&self, now: Timestamp) -> Vec<SubscriptionSeq> {
        let due = self.lines.iter().filter(|(_, line)| line.next_due.is_some_and(|at| at <= now));
        due.map(|(subscription, _)| *subscription).collect()
    }

    /// When something becomes due by itself.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.lines.values().filter_map(|line| line.next_due).min()
    }

    /// When the first has waited long enough.
    pub(super) fn next_end(&self) -> Option<Duration> {
        let ends = self.lines.values().flat_map(|line| &line.waiters);
        ends.map(|waiter| waiter.until).min()
    }

    /// Takes out those that need not wait any longer, each with what keeps it from having anything; those
    /// that stay keep their order.
    pub(super) fn take(
        &mut self,
        mut is_over: impl FnMut(&Waiter<T>) -> bool,
    ) -> Vec<(T, Option<HoldReason>)> {
        let mut over = Vec::new();
        for line in self.lines.values_mut() {
            let (ended, stays): (VecDeque<_>, VecDeque<_>) =
                std::mem::take(&mut line.waiters).into_iter().partition(&mut is_over);
            line.waiters = stays;
            over.extend(ended.into_iter().map(|waiter| (waiter.request, line.held)));
        }
        self.lines.retain(|_, line| !line.waiters.is_empty());
        over
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERP: SubscriptionSeq = SubscriptionSeq(1);

    fn waiter(request: u32, until: u64) -> Waiter<u32> {
        Waiter { request, most: 1, until: Duration::from_secs(until) }
    }

    #[test]
    fn whoever_has_waited_long_enough_is_taken_out_and_the_others_keep_their_places() {
        let mut parked = Parked::default();
        for (request, until) in [(1, 30), (2, 10), (3, 20)] {
            parked.park(ERP, waiter(request, until));
        }
        assert_eq!(parked.next_end(), Some(Duration::from_secs(10)));
        let over = parked.take(|waiter| waiter.until <= Duration::from_secs(20));
        assert_eq!(over, [(2, None), (3, None)]);
        parked.park_first(ERP, waiter(4, 30));
        let order = parked.line(ERP).unwrap().waiters.iter().map(|waiter| waiter.request);
        assert_eq!(order.collect::<Vec<_>>(), [4, 1]);
        assert_eq!(parked.take(|_| true).len(), 2);
        assert!(parked.is_empty() && parked.next_end().is_none());
    }

    #[test]
    fn a_line_knows_when_something_becomes_due_and_what_holds_it() {
        let mut parked = Parked::default();
        parked.park(ERP, waiter(1, 30));
        parked.line(ERP).unwrap().next_due = Some(Timestamp::from_secs(5));
        assert_eq!(parked.next_due(), Some(Timestamp::from_secs(5)));
        assert!(parked.became_due(Timestamp::from_secs(4)).is_empty());
        assert_eq!(parked.became_due(Timestamp::from_secs(5)), [ERP]);
        parked.line(ERP).unwrap().held = Some(HoldReason::Paused);
        assert_eq!(parked.take(|_| true), [(1, Some(HoldReason::Paused))]);
    }
}
