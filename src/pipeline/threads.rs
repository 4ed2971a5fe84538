//! How a stage's thread is started, and waited for; and its inbox.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Condvar;

use crate::pipeline::prelude::*;
use crate::store::writer::AroundCommit;

/// Starts a stage's thread. If the thread panics, the process ends: otherwise its work would silently stop.
#[expect(clippy::disallowed_methods, reason = "the stages' threads are started here")]
pub(super) fn spawn(
    name: &str,
    listener: &Arc<dyn AroundCommit>,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>> {
    let listener = Arc::clone(listener);
    let stage = name.to_owned();
    let guarded = move || {
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            listener.fatal(&Error::Panicked(stage));
        }
    };
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(guarded)
        .map_err(|source| Error::File { path: "a thread".into(), source: Arc::new(source) })
}

/// Wakes a thread. A ring that it has not noticed yet suffices.
#[derive(Clone, Debug)]
pub struct Bell(Sender<()>, Receiver<()>);

impl Default for Bell {
    fn default() -> Self {
        let (sender, receiver) = bounded(1);
        Self(sender, receiver)
    }
}

impl Bell {
    /// Rings.
    pub fn ring(&self) {
        let _rings_already = self.0.try_send(()).is_err();
    }

    /// Waits for a ring, at most `span`.
    pub fn wait(&self, span: Duration) {
        let _rang = self.1.recv_timeout(span).is_ok();
    }
}

/// Starts threads for code outside the stages.
#[derive(Clone)]
pub struct Spawner(pub(super) Arc<dyn AroundCommit>);

impl std::fmt::Debug for Spawner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Spawner")
    }
}

impl Spawner {
    /// Starts a thread. If it panics, the process ends.
    pub fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
        spawn(name, &self.0, run)
    }
}

/// Waits for a thread's end.
pub fn join(thread: JoinHandle<()>) {
    let name = thread.thread().name().unwrap_or("?").to_owned();
    if thread.join().is_err() {
        tracing::error!(thread = name, "a thread panicked");
    }
}

/// The inbox of one thread: other threads leave messages and wake it; it takes all messages at once. `M` collects what was
/// left since the last look. Clones share it.
#[derive(Debug)]
pub struct Inbox<M>(Arc<InboxState<M>>);

#[derive(Debug, Default)]
struct InboxState<M> {
    left: Mutex<Left<M>>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Left<M> {
    messages: M,
    is_rung: bool,
    /// Whether something was left quietly, and whether that wakes the thread.
    has_quiet: bool,
    is_eager: bool,
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
    /// Leaves a message and wakes the thread. Never blocks.
    pub fn leave(&self, write: impl FnOnce(&mut M)) {
        let mut left = self.0.left.lock();
        write(&mut left.messages);
        let was_rung = std::mem::replace(&mut left.is_rung, true);
        drop(left);
        if !was_rung {
            self.0.bell.notify_one();
        }
    }

    /// Leaves a message that matters only together with another one, unless the thread is eager.
    pub fn leave_quietly(&self, write: impl FnOnce(&mut M)) {
        let mut left = self.0.left.lock();
        write(&mut left.messages);
        left.has_quiet = true;
        let wakes = left.is_eager && !left.is_rung;
        left.is_rung |= wakes;
        drop(left);
        if wakes {
            self.0.bell.notify_one();
        }
    }

    /// Wakes the thread, so that it looks at the clock.
    pub fn ring(&self) {
        self.leave(|_| ());
    }

    /// Takes what was left; waits at most `span` for something. `is_eager`: also for what was left quietly.
    pub(super) fn take(&self, span: Duration, is_eager: bool) -> M {
        let mut left = self.0.left.lock();
        left.is_eager = is_eager;
        let has_nothing = |left: &mut Left<M>| !(left.is_rung || is_eager && left.has_quiet);
        self.0.bell.wait_while_for(&mut left, has_nothing, span);
        std::mem::take(&mut *left).messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn what_was_left_quietly_wakes_only_a_thread_that_is_eager() {
        let inbox: Inbox<Vec<u8>> = Inbox::default();
        inbox.leave_quietly(|left| left.push(1));
        assert_eq!(inbox.take(LONG, true), [1], "it is there already");
        inbox.leave_quietly(|left| left.push(2));
        inbox.leave(|left| left.push(3));
        assert_eq!(inbox.take(LONG, false), [2, 3]);
        inbox.leave_quietly(|left| left.push(4));
        assert_eq!(inbox.take(Duration::ZERO, false), [4]);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| inbox.take(LONG, true));
            while !inbox.0.left.lock().is_eager {
                std::thread::yield_now();
            }
            inbox.leave_quietly(|left| left.push(5));
            assert_eq!(waiting.join().unwrap(), [5]);
        });
    }
}
