//! The memory budget: one limit for all bodies, outgoing requests and rows that are being processed.
//!
//! Two kinds of work share the limit: requests, which are refused when there is no room, and our own work
//! (deliveries, sources), which waits. Neither kind can take more than three quarters, so neither stops the
//! other. The first piece of work of each kind is always admitted, however large, so that nothing waits for ever.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// Kind of work that takes shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkKind {
    Request,
    Own,
}

#[derive(Debug, Default)]
struct BudgetUsage {
    request: usize,
    own: usize,
}

impl BudgetUsage {
    fn used(&mut self, kind: WorkKind) -> &mut usize {
        match kind {
            WorkKind::Request => &mut self.request,
            WorkKind::Own => &mut self.own,
        }
    }

    fn fits(&mut self, kind: WorkKind, bytes: usize, limit: usize) -> bool {
        let all = self.request.saturating_add(self.own);
        let own = *self.used(kind);
        let most = limit.saturating_sub(limit.div_euclid(4));
        own == 0 || (all.saturating_add(bytes) <= limit && own.saturating_add(bytes) <= most)
    }
}

/// The budget. Clones share it.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: usize,
    state: Mutex<BudgetUsage>,
    freed: Condvar,
}

/// Bytes taken from the budget; given back on drop.
#[derive(Debug)]
pub struct Share {
    from: Arc<Inner>,
    kind: WorkKind,
    bytes: usize,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Inner { limit, state: Mutex::default(), freed: Condvar::new() }))
    }

    /// Takes bytes for a request; `None` while there is no room.
    ///
    /// ```
    /// let budget = oncebox::base::budget::Budget::new(100);
    /// let share = budget.try_take(60).unwrap();
    /// assert!(budget.try_take(20).is_none(), "requests take at most three quarters");
    /// drop(share);
    /// assert!(budget.try_take(1_000).is_some(), "a single request is admitted, however large");
    /// ```
    pub fn try_take(&self, bytes: usize) -> Option<Share> {
        let mut state = self.0.state.lock();
        let fits = state.fits(WorkKind::Request, bytes, self.0.limit);
        fits.then(|| self.share(&mut state, WorkKind::Request, bytes))
    }

    /// Takes bytes for work of our own; `None` while there is no room.
    pub fn try_take_own(&self, bytes: usize) -> Option<Share> {
        let mut state = self.0.state.lock();
        let fits = state.fits(WorkKind::Own, bytes, self.0.limit);
        fits.then(|| self.share(&mut state, WorkKind::Own, bytes))
    }

    /// Takes bytes for work of our own, and waits for room.
    pub fn take_own(&self, bytes: usize) -> Share {
        let Inner { limit, state, freed } = &*self.0;
        let mut state = state.lock();
        freed.wait_while(&mut state, |state| !state.fits(WorkKind::Own, bytes, *limit));
        self.share(&mut state, WorkKind::Own, bytes)
    }

    fn share(&self, state: &mut BudgetUsage, kind: WorkKind, bytes: usize) -> Share {
        let used = state.used(kind);
        *used = used.saturating_add(bytes);
        Share { from: Arc::clone(&self.0), kind, bytes }
    }

    /// Bytes that are taken now.
    #[cfg(test)]
    pub fn used(&self) -> usize {
        let state = self.0.state.lock();
        state.request.saturating_add(state.own)
    }
}

impl Share {
    /// Takes a part of it away, which is given back on its own. No more than there is.
    #[must_use]
    pub fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
        Self { from: Arc::clone(&self.from), kind: self.kind, bytes }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.from.state.lock();
        let used = state.used(self.kind);
        *used = used.saturating_sub(self.bytes);
        drop(state);
        self.from.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_kind_takes_all_and_one_of_each_always_goes_on() {
        let budget = Budget::new(100);
        let requests = [budget.try_take(40), budget.try_take(35)];
        assert!(requests.iter().all(Option::is_some) && budget.try_take(1).is_none());
        let own = budget.try_take_own(60).unwrap();
        assert_eq!(budget.used(), 135);
        drop(requests);
        assert!(budget.try_take(500).is_some());
        drop(own);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_part_is_given_back_on_its_own() {
        let budget = Budget::new(100);
        let mut whole = budget.take_own(60);
        let part = whole.split(25);
        drop(whole);
        assert_eq!(budget.used(), 25);
        drop(part);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_waiting_thread_continues_as_soon_as_there_is_room() {
        let budget = Budget::new(100);
        let first = budget.try_take_own(75);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| budget.take_own(70));
            assert!(budget.try_take_own(70).is_none());
            drop(first);
            assert_eq!(second.join().unwrap().bytes, 70);
        });
        assert_eq!(budget.used(), 0);
    }
}
