//! Who pays: scarce places are shared among payers, so that one of them stops nobody else; and permits for what costs much.
//!
//! One rule for everything: a payer may take a place while it has fewer than so many times what is free. So one that is
//! alone may use most of it, and whoever comes next always finds something free. Not here: memory (`budget`), and what
//! clients send (`http::shares`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Checks at once. There are four handlers and usually two cores.
const MAX_RUNNING: usize = 2;
/// Handlers that wait for a permit. With two running, one handler stays free for other requests.
const MAX_WAITING: usize = 1;
/// How long a handler waits: a hundred times as long as a check takes.
const WAIT: Duration = Duration::from_millis(100);

/// Who is charged for something.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Payer {
    /// Everybody without a token or a session, together.
    #[default]
    Anonymous,
    /// A tenant, by its name.
    Tenant(Arc<str>),
}

impl Payer {
    /// A tenant.
    pub fn tenant(name: &str) -> Self {
        Self::Tenant(name.into())
    }
}

/// Whether one with `used` places may take another. With 3 times what is free, a payer that is alone has three quarters;
/// with 1, half.
const fn may_take(used: usize, free: usize, times: usize) -> bool {
    used < free.saturating_mul(times)
}

/// How many times what is left a payer may have of room that payers fill for good, such as bytes of the file.
const KEPT_TIMES: u64 = 3;

/// Whether a payer may have `own` of the room, of which `free` is left after that.
pub const fn may_keep(own: u64, free: u64) -> bool {
    own <= free.saturating_mul(KEPT_TIMES)
}

/// The most that each payer can have if all together must fit into `room`: who wants less than an equal part leaves the
/// rest to the others.
pub fn equal_share(mut wanted: Vec<u64>, room: u64) -> u64 {
    wanted.sort_unstable();
    let mut left = room;
    let mut payers = wanted.len();
    for own in wanted {
        let each = u64::try_from(payers).ok().and_then(|payers| left.checked_div(payers));
        let each = each.unwrap_or_default();
        if own > each {
            return each;
        }
        left = left.saturating_sub(own);
        payers = payers.saturating_sub(1);
    }
    u64::MAX
}

/// Places that are shared. Holds nothing of a payer that has none.
#[derive(Debug)]
pub struct Fair {
    free: usize,
    times: usize,
    used: BTreeMap<Payer, usize>,
}

impl Fair {
    /// So many places. A payer may have fewer than `times` what is free, before it takes another.
    pub const fn new(places: usize, times: usize) -> Self {
        Self { free: places, times, used: BTreeMap::new() }
    }

    /// Whether a payer may take a place.
    pub fn has_room(&self, payer: &Payer) -> bool {
        may_take(self.used.get(payer).copied().unwrap_or(0), self.free, self.times)
    }

    /// Takes a place for a payer, if it may.
    pub fn take(&mut self, payer: &Payer) -> bool {
        let has_room = self.has_room(payer);
        if has_room {
            self.free = self.free.saturating_sub(1);
            let used = self.used.entry(payer.clone()).or_default();
            *used = used.saturating_add(1);
        }
        has_room
    }

    /// Gives back a place that was taken.
    pub fn give_back(&mut self, payer: &Payer) {
        let Some(used) = self.used.get_mut(payer) else { return };
        *used = used.saturating_sub(1);
        self.free = self.free.saturating_add(1);
        if *used == 0 {
            self.used.remove(payer);
        }
    }

    /// Places in use.
    pub fn in_use(&self) -> usize {
        self.used.values().sum()
    }
}

/// Work that waits for a place. Payers take turns; each has its own work done in the order it came.
#[derive(Debug)]
pub struct FairQueue<T> {
    running: Fair,
    /// How much more may wait.
    room: usize,
    turns: VecDeque<(Payer, VecDeque<T>)>,
}

/// Of the room for what waits, a payer has fewer than this many times what is left.
const WAITING_TIMES: usize = 3;

impl<T> FairQueue<T> {
    /// Work that runs in these places, and room for so much that waits.
    pub const fn new(places: Fair, room: usize) -> Self {
        Self { running: places, room, turns: VecDeque::new() }
    }

    /// Puts work at the end of its payer's, or returns it if too much waits.
    pub fn push(&mut self, payer: &Payer, work: T) -> Result<(), T> {
        let own = self.turns.iter_mut().find(|(whose, _)| whose == payer);
        let waiting = own.as_ref().map_or(0, |(_, work)| work.len());
        if !may_take(waiting, self.room, WAITING_TIMES) {
            return Err(work);
        }
        self.room = self.room.saturating_sub(1);
        match own {
            Some((_, own)) => own.push_back(work),
            None => self.turns.push_back((payer.clone(), VecDeque::from([work]))),
        }
        Ok(())
    }

    /// Whether something that waits may begin.
    pub fn can_begin(&self) -> bool {
        self.turns.iter().any(|(payer, _)| self.running.has_room(payer))
    }

    /// The next work that may begin. Its place is taken until [`FairQueue::end`].
    pub fn begin(&mut self) -> Option<(Payer, T)> {
        let next = self.turns.iter().position(|(payer, _)| self.running.has_room(payer))?;
        let (payer, mut own) = self.turns.remove(next)?;
        let work = own.pop_front()?;
        self.running.take(&payer);
        self.room = self.room.saturating_add(1);
        if !own.is_empty() {
            self.turns.push_back((payer.clone(), own));
        }
        Some((payer, work))
    }

    /// Work of a payer has ended.
    pub fn end(&mut self, payer: &Payer) {
        self.running.give_back(payer);
    }

    /// Takes out all that waits.
    pub fn drain(&mut self) -> Vec<T> {
        let all: Vec<T> = self.turns.drain(..).flat_map(|(_, own)| own).collect();
        self.room = self.room.saturating_add(all.len());
        all
    }
}

/// Limits how many public-key checks run at once, so that a flood of them leaves a handler and a core to all other
/// requests: two permits, and room for one waiting thread. The scheme decides which requests need a permit.
#[derive(Debug, Default)]
pub struct Semaphore {
    state: Mutex<InUse>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct InUse {
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
            let full = |state: &mut InUse| state.running >= MAX_RUNNING;
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

    fn taken(fair: &mut Fair, payer: &str) -> usize {
        std::iter::repeat_with(|| fair.take(&Payer::tenant(payer))).take_while(|took| *took).count()
    }

    #[test]
    fn one_alone_has_most_and_whoever_comes_next_finds_something_free() {
        for (places, times, wanted) in
            [(4, 3, [3, 1, 0]), (512, 3, [384, 96, 24]), (2, 1, [1, 1, 0]), (2, 3, [2, 0, 0])]
        {
            let mut fair = Fair::new(places, times);
            assert_eq!(["a", "b", "c"].map(|payer| taken(&mut fair, payer)), wanted);
            assert_eq!(fair.in_use(), wanted.iter().sum::<usize>());
        }
    }

    #[test]
    fn who_fills_room_for_good_leaves_some_to_others() {
        let mut left = 64;
        for wanted in [48, 12, 3, 0] {
            let most = (0..=left).rev().find(|own| may_keep(*own, left - own)).unwrap();
            assert_eq!(most, wanted);
            left -= most;
        }
    }

    #[test]
    fn an_equal_share_counts_who_wants_less() {
        assert_eq!(equal_share(vec![10, 1, 10], 13), 6);
        assert_eq!(equal_share(vec![10, 10], 20), u64::MAX);
        assert_eq!((equal_share(vec![5], 4), equal_share(Vec::new(), 0)), (4, u64::MAX));
    }

    #[test]
    fn what_is_given_back_is_shared_anew() {
        let mut fair = Fair::new(64, 3);
        assert_eq!((taken(&mut fair, "a"), taken(&mut fair, "b")), (48, 12));
        for _ in 0..24 {
            fair.give_back(&Payer::tenant("a"));
        }
        assert_eq!((taken(&mut fair, "a"), taken(&mut fair, "b")), (15, 7));
        fair.give_back(&Payer::Anonymous);
        assert_eq!(fair.in_use(), 58, "who has none gives none back");
    }

    #[test]
    fn payers_take_turns_and_each_has_its_own_order() {
        let mut queue = FairQueue::new(Fair::new(8, 3), 100);
        let [a, b] = ["a", "b"].map(Payer::tenant);
        for (payer, work) in [(&a, 1), (&a, 2), (&a, 3), (&b, 10), (&Payer::Anonymous, 20)] {
            queue.push(payer, work).unwrap();
        }
        let mut begun = || queue.begin().map(|(_, work)| work);
        assert_eq!([begun(), begun(), begun(), begun()], [Some(1), Some(10), Some(20), Some(2)]);
    }

    #[test]
    fn who_has_its_places_waits_while_another_begins() {
        let mut queue = FairQueue::new(Fair::new(2, 1), 16);
        let [a, b] = ["a", "b"].map(Payer::tenant);
        queue.push(&a, 1).unwrap();
        queue.push(&a, 2).unwrap();
        assert_eq!(queue.begin(), Some((a.clone(), 1)));
        assert!(queue.begin().is_none() && !queue.can_begin());
        queue.push(&b, 3).unwrap();
        assert_eq!(queue.begin(), Some((b, 3)));
        queue.end(&a);
        assert_eq!(queue.begin(), Some((a, 2)));
    }

    #[test]
    fn so_much_waits_and_room_is_left_for_others() {
        let mut queue = FairQueue::new(Fair::new(0, 1), 8);
        let [a, b] = ["a", "b"].map(Payer::tenant);
        let waits = |queue: &mut FairQueue<()>, payer| {
            std::iter::repeat_with(|| queue.push(payer, ())).take_while(Result::is_ok).count()
        };
        assert_eq!((waits(&mut queue, &a), waits(&mut queue, &b)), (6, 2));
        assert_eq!(queue.drain().len(), 8);
        assert_eq!(waits(&mut queue, &b), 6);
    }

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
