//! Limits how many public-key checks run at once, so that a flood of them leaves a handler and a core to all other
//! requests. The scheme decides which requests need a permit.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Checks at once. There are four handlers and usually two cores.
const MAX_RUNNING: usize = 2;
/// Handlers that wait for a permit. With two running, one handler stays free for other requests.
const MAX_WAITING: usize = 1;
/// How long a handler waits: a hundred times as long as a check takes.
const WAIT: Duration = Duration::from_millis(100);

/// Two permits, and room for one waiting thread.
#[derive(Debug, Default)]
pub struct Semaphore {
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    waiting: usize,
}

/// A permit; given back on drop.
#[derive(Debug)]
pub struct Permit<'t>(&'t Semaphore);

impl Semaphore {
    /// A permit, at once or within 100 ms; `None` when none gets free or another thread already waits.
    pub fn take(&self) -> Option<Permit<'_>> {
        let mut state = self.state.lock();
        if state.running >= MAX_RUNNING {
            if state.waiting >= MAX_WAITING {
                return None;
            }
            state.waiting += 1;
            let full = |state: &mut State| state.running >= MAX_RUNNING;
            self.released.wait_while_for(&mut state, full, WAIT);
            state.waiting -= 1;
            if state.running >= MAX_RUNNING {
                return None;
            }
        }
        state.running += 1;
        Some(Permit(self))
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.running = state.running.saturating_sub(1);
        drop(state);
        self.0.released.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_have_a_permit_one_waits_and_others_are_refused() {
        let permits = Semaphore::default();
        let first = permits.take().unwrap();
        let second = permits.take().unwrap();
        std::thread::scope(|scope| {
            let third = scope.spawn(|| permits.take().is_some());
            while permits.state.lock().waiting == 0 {
                std::thread::yield_now();
            }
            assert!(permits.take().is_none());
            drop(first);
            // On a slow machine the third thread has given up by now; either way its wait ends.
            let _had_one = third.join().unwrap();
        });
        drop(second);
        assert_eq!(permits.state.lock().running, 0);
        assert!(permits.take().is_some());
    }
}
