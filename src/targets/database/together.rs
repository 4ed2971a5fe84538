//! Work that waits at the same time is done together, by one of the threads that wait.
//!
//! The first to come does it at once. What comes meanwhile waits, and goes together as soon as that is done. Nobody waits
//! for company.

use std::collections::HashMap;
use std::hash::Hash;

use crossbeam_channel::{Sender, bounded};
use parking_lot::Mutex;

/// Waiting work, by its purpose.
#[derive(Debug)]
pub(super) struct Together<K: Eq + Hash, W, O> {
    queues: Mutex<HashMap<K, Vec<Waiting<W, O>>>>,
    most: usize,
}

/// Work of a thread that waits.
#[derive(Debug)]
struct Waiting<W, O> {
    work: W,
    tell: Sender<Turn<O>>,
}

/// What a thread that waits is told.
#[derive(Debug)]
enum Turn<O> {
    /// Its work is done.
    Done(O),
    /// It leads: it does the work of all that wait.
    Lead,
}

impl<K: Clone + Eq + Hash, W, O> Together<K, W, O> {
    /// At most `most` go together.
    pub(super) fn new(most: usize) -> Self {
        Self { queues: Mutex::new(HashMap::new()), most }
    }

    /// Does `work` together with what else waits for `key`. `run` does all of it, in any of the threads: it gives an outcome
    /// for each. `None` if the thread that led has panicked.
    pub(super) fn join(&self, key: &K, work: W, run: impl Fn(Vec<W>) -> Vec<O>) -> Option<O> {
        let (tell, told) = bounded(1);
        {
            let mut queues = self.queues.lock();
            let is_led = queues.contains_key(key);
            let queue = queues.entry(key.clone()).or_default();
            queue.push(Waiting { work, tell: tell.clone() });
            if !is_led {
                // There is room for one message, and this is the first.
                drop(tell.send(Turn::Lead));
            }
        }
        drop(tell);
        match told.recv().ok()? {
            Turn::Done(outcome) => return Some(outcome),
            Turn::Lead => {}
        }
        let lead = Lead { together: self, key };
        let taken = lead.take();
        let mut tells = Vec::with_capacity(taken.len());
        let mut works = Vec::with_capacity(taken.len());
        for Waiting { work, tell } in taken {
            tells.push(tell);
            works.push(work);
        }
        for (tell, outcome) in tells.into_iter().zip(run(works)) {
            // Nobody stops waiting.
            drop(tell.send(Turn::Done(outcome)));
        }
        // The leader's own is among them.
        match told.recv().ok()? {
            Turn::Done(outcome) => Some(outcome),
            Turn::Lead => None,
        }
    }
}

/// A thread that leads. When it ends, also by a panic, the next one leads.
struct Lead<'a, K: Clone + Eq + Hash, W, O> {
    together: &'a Together<K, W, O>,
    key: &'a K,
}

impl<K: Clone + Eq + Hash, W, O> Lead<'_, K, W, O> {
    /// What goes together now: the longest waiting, the leader's own first.
    fn take(&self) -> Vec<Waiting<W, O>> {
        let mut queues = self.together.queues.lock();
        let Some(queue) = queues.get_mut(self.key) else { return Vec::new() };
        let rest = queue.split_off(queue.len().min(self.together.most));
        std::mem::replace(queue, rest)
    }
}

impl<K: Clone + Eq + Hash, W, O> Drop for Lead<'_, K, W, O> {
    fn drop(&mut self) {
        let mut queues = self.together.queues.lock();
        match queues.get(self.key).and_then(|queue| queue.first()) {
            Some(next) => drop(next.tell.send(Turn::Lead)),
            None => drop(queues.remove(self.key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn what_waits_while_another_works_goes_together_and_each_gets_its_own() {
        let together = Together::new(3);
        let (release, held) = bounded::<()>(0);
        let sizes = Mutex::new(Vec::new());
        let run = |works: Vec<u32>| {
            if works == [0] {
                held.recv().unwrap();
            }
            sizes.lock().push(works.len());
            works.into_iter().map(|work| work * 10).collect()
        };
        thread::scope(|scope| {
            let together = &together;
            let run = &run;
            let first = scope.spawn(move || together.join(&"a", 0, run));
            while together.queues.lock().get("a").is_none_or(|queue| !queue.is_empty()) {
                thread::yield_now();
            }
            let others: Vec<_> =
                (1..=4).map(|n| scope.spawn(move || together.join(&"a", n, run))).collect();
            while together.queues.lock().get("a").is_none_or(|queue| queue.len() < 4) {
                thread::yield_now();
            }
            // Another key waits for nobody.
            assert_eq!(together.join(&"b", 7, run), Some(70));
            release.send(()).unwrap();
            assert_eq!(first.join().unwrap(), Some(0));
            for (n, other) in (1..).zip(others) {
                assert_eq!(other.join().unwrap(), Some(n * 10));
            }
        });
        assert_eq!(*sizes.lock(), [1, 1, 3, 1]);
        assert!(together.queues.lock().is_empty());
    }

    #[test]
    fn after_a_panic_the_next_one_leads() {
        let together = Together::<&str, u32, u32>::new(50);
        let runs = AtomicUsize::new(0);
        let run = |works: Vec<u32>| {
            assert!(runs.fetch_add(1, Ordering::Relaxed) > 0, "planned");
            works
        };
        thread::scope(|scope| {
            let together = &together;
            let run = &run;
            let panicked = scope.spawn(move || together.join(&"a", 1, run)).join();
            assert!(panicked.is_err());
            assert_eq!(together.join(&"a", 2, run), Some(2));
        });
    }
}
