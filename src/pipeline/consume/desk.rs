//! Where requests for events are left, and word that something has become due. Leaving word never blocks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::base::clock::Timestamp;
use crate::base::id::SubscriptionSeq;
use crate::pipeline::consume::Asked;
use crate::pipeline::consume::expiry::Ended;
use crate::pipeline::consume::parked::Waiter;
use crate::store::consuming::Taken;
use crate::store::error::Result;

/// What was left since the last look.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent words, each left or not")]
pub(super) struct Letters {
    /// New requests.
    pub(super) asked: Vec<Waiter<Asked>>,
    /// Requests for which something was taken, or not.
    pub(super) brought: Vec<Brought>,
    /// What came of leases that the writer was to end.
    pub(super) ended: Vec<Ended>,
    /// The earliest end that a lease was given since by its consumer.
    pub(super) extended: Option<Timestamp>,
    /// Subscriptions that may have something new.
    pub(super) rang: BTreeSet<SubscriptionSeq>,
    /// Whether subscriptions were changed, held or let go.
    pub(super) subscriptions_changed: bool,
    /// Whether anybody wants the clock to be looked at.
    pub(super) woken: bool,
    /// Whether nobody may wait any longer.
    pub(super) stop: bool,
    /// Whether to end.
    pub(super) end: bool,
}

/// What the writer took for a request.
#[derive(Debug)]
pub(super) struct Brought {
    pub(super) waiter: Waiter<Asked>,
    pub(super) lease: String,
    pub(super) until: Timestamp,
    pub(super) taken: Result<Vec<Taken>>,
}

/// The desk. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Desk(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    letters: Mutex<Letters>,
    left: Condvar,
    /// Requests that are not answered yet.
    waiting: AtomicUsize,
}

impl Desk {
    /// Leaves word.
    pub(super) fn leave(&self, write: impl FnOnce(&mut Letters)) {
        let mut letters = self.0.letters.lock();
        write(&mut letters);
        drop(letters);
        self.0.left.notify_one();
    }

    /// Tells those who wait what was committed. Costs one look where nobody does.
    pub(super) fn tell(&self, rang: &[SubscriptionSeq], subscriptions_changed: bool) {
        if self.waiting() == 0 || (rang.is_empty() && !subscriptions_changed) {
            return;
        }
        self.leave(|letters| {
            letters.rang.extend(rang);
            letters.subscriptions_changed |= subscriptions_changed;
        });
    }

    /// Takes what was left, waiting for it at most `span`.
    pub(super) fn take(&self, span: Duration) -> Letters {
        let mut letters = self.0.letters.lock();
        self.0.left.wait_while_for(&mut letters, |letters| letters.is_empty(), span);
        std::mem::take(&mut letters)
    }

    /// How many requests are not answered yet.
    pub(super) fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::SeqCst)
    }

    /// Counts a request that has come. Before it looks whether anything is due, so that a commit is either
    /// seen by that look or tells of itself.
    pub(super) fn come(&self) {
        self.0.waiting.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a request that was answered.
    pub(super) fn go(&self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Letters {
    fn is_empty(&self) -> bool {
        self.asked.is_empty()
            && self.brought.is_empty()
            && self.ended.is_empty()
            && self.extended.is_none()
            && self.rang.is_empty()
            && !self.subscriptions_changed
            && !self.woken
            && !self.stop
            && !self.end
    }
}
