//! The stop signal: how threads are asked to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// A flag that is set once and that every thread sees. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Flag>);

#[derive(Debug, Default)]
struct Flag {
    asked: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Stop {
    /// A signal that has not been given.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks all threads to stop, and wakes those in [`Stop::wait`].
    pub fn ask(&self) {
        let guard = self.0.lock.lock();
        self.0.asked.store(true, Ordering::Release);
        drop(guard);
        self.0.changed.notify_all();
    }

    /// Whether a stop was asked for.
    pub fn asked(&self) -> bool {
        self.0.asked.load(Ordering::Acquire)
    }

    /// Waits until a stop is asked for, at most `span`; returns whether it was.
    ///
    /// ```
    /// let stop = oncebox::base::stop::Stop::new();
    /// assert!(!stop.wait(std::time::Duration::from_millis(1)));
    /// stop.ask();
    /// assert!(stop.wait(std::time::Duration::from_secs(60)));
    /// ```
    pub fn wait(&self, span: Duration) -> bool {
        let mut guard = self.0.lock.lock();
        self.0.changed.wait_while_for(&mut guard, |()| !self.asked(), span);
        drop(guard);
        self.asked()
    }
}
