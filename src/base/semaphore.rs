//! Limits how many public-key checks run at once, so that a flood of them leaves a handler and a core to all other
//! requests.
//!
//! Not here: which requests need a turn, which the scheme knows.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Checks at once. There are four handlers and mostly two cores.
const MAX_RUNNING: usize = 2;
/// Handlers that wait for a turn. One more is free for all else.
const MAX_WAITING: usize = 1;
/// How long one waits: a hundred times what a check takes.
const WAIT: Duration = Duration::from_millis(100);

/// Who has a turn, and who waits for one.
#[derive(Debug, Default)]
pub struct Semaphore {
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    waiting: usize,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub struct Turn<'t>(&'t Semaphore);

impl Semaphore {
    /// A turn, now or in a moment; `None` when there are too many before.
    pub fn take(&self) -> Option<Turn<'_>> {
        let mut state = self.state.lock();
        if state.running >= MAX_RUNNING {
            if state.waiting >= MAX_WAITING {
                return None;
            }
            state.waiting += 1;
            let full = |state: &mut State| state.running >= MAX_RUNNING;
            self.over.wait_while_for(&mut state, full, WAIT);
            state.waiting -= 1;
            if state.running >= MAX_RUNNING {
                return None;
            }
        }
        state.running += 1;
        Some(Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.running = state.running.saturating_sub(1);
        drop(state);
        self.0.over.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_have_a_turn_one_waits_and_others_are_sent_away() {
        let turns = Semaphore::default();
        let first = turns.take().unwrap();
        let second = turns.take().unwrap();
        std::thread::scope(|scope| {
            let third = scope.spawn(|| turns.take().is_some());
            while turns.state.lock().waiting == 0 {
                std::thread::yield_now();
            }
            assert!(turns.take().is_none());
            drop(first);
            // Where this machine is slow, the third has gone by now; it never stays.
            let _had_one = third.join().unwrap();
        });
        drop(second);
        assert_eq!(turns.state.lock().running, 0);
        assert!(turns.take().is_some());
    }
}
