//! A semaphore for lists: two handlers read lists at a time, each for a second at most, on connections of their own.
//! Further lists wait in a queue, so that the other handlers stay free for webhooks and events.

use std::collections::VecDeque;

use parking_lot::{Mutex, MutexGuard};
use tracing::Span;

use crate::api::problem::Problem;
use crate::http::service::Reply;
use crate::store::LIST_READERS;

/// The most lists that wait: the last of them begins after at most four seconds. One more is answered 503.
const MAX_WAITING: usize = 8;

/// The lists that run, and those that wait.
pub(super) struct Lists<W>(Mutex<Running<W>>);

struct Running<W> {
    count: u32,
    waiting: VecDeque<List<W>>,
}

impl<W> Default for Lists<W> {
    fn default() -> Self {
        Self(Mutex::new(Running { count: 0, waiting: VecDeque::new() }))
    }
}

/// A request for a list, and the work that answers it.
pub(super) struct List<W> {
    pub(super) work: W,
    pub(super) reply: Reply,
    /// The request's span, for the log.
    pub(super) span: Span,
}

impl<W> Lists<W> {
    fn lock(&self) -> MutexGuard<'_, Running<W>> {
        self.0.lock()
    }

    /// Lets a list begin, queues it, or refuses it if the queue is full.
    pub(super) fn admit(&self, list: List<W>) -> Option<Permit<'_, W>> {
        let mut running = self.lock();
        if running.count < LIST_READERS {
            running.count = running.count.saturating_add(1);
            return Some(Permit { lists: self, next: Some(list), is_released: false });
        }
        if running.waiting.len() < MAX_WAITING {
            running.waiting.push_back(list);
            return None;
        }
        drop(running);
        list.reply.send(Problem::unavailable("Too many lists are asked for at once.", 1).into());
        None
    }
}

/// The permission to read lists.
pub(super) struct Permit<'a, W> {
    lists: &'a Lists<W>,
    pub(super) next: Option<List<W>>,
    is_released: bool,
}

impl<W> Permit<'_, W> {
    /// Takes the next list from the queue. If there is none, the permit is released.
    pub(super) fn take_next(&mut self) {
        let mut running = self.lists.lock();
        self.next = running.waiting.pop_front();
        if self.next.is_none() {
            running.count = running.count.saturating_sub(1);
            self.is_released = true;
        }
    }
}

impl<W> Drop for Permit<'_, W> {
    /// After a panic there may be no other permit to answer the waiting lists. Dropping them answers 500.
    fn drop(&mut self) {
        if !self.is_released {
            let mut running = self.lists.lock();
            running.count = running.count.saturating_sub(1);
            let left = std::mem::take(&mut running.waiting);
            drop(running);
            drop(left);
        }
    }
}
