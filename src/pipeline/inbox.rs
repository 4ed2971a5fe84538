//! A thread's inbox: other threads leave messages and wake it; it takes all messages at once. Leaving never blocks.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The inbox of one thread. `M` collects what was left since the last look. Clones share it.
#[derive(Debug)]
pub struct Inbox<M>(Arc<Shared<M>>);

#[derive(Debug, Default)]
struct Shared<M> {
    left: Mutex<Left<M>>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Left<M> {
    messages: M,
    is_rung: bool,
}

impl<M> Clone for Inbox<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M: Default> Default for Inbox<M> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<M: Default> Inbox<M> {
    /// Leaves a message and wakes the thread.
    pub fn leave(&self, write: impl FnOnce(&mut M)) {
        let mut left = self.0.left.lock();
        write(&mut left.messages);
        let was_rung = std::mem::replace(&mut left.is_rung, true);
        drop(left);
        if !was_rung {
            self.0.bell.notify_one();
        }
    }

    /// Wakes the thread, so that it looks at the clock.
    pub fn ring(&self) {
        self.leave(|_| ());
    }

    /// Takes what was left; waits at most `span` for something.
    pub(super) fn take(&self, span: Duration) -> M {
        let mut left = self.0.left.lock();
        self.0.bell.wait_while_for(&mut left, |left| !left.is_rung, span);
        std::mem::take(&mut *left).messages
    }
}
