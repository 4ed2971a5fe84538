//! Finds the work that ends the process. After an unclean end, each large item is marked in the file before work on it
//! begins, and the mark is removed afterwards. An item that was marked at two unclean ends in a row is *convicted*.
//!
//! After two unclean ends within ten minutes, the cause may be a small item. Each delivery is then marked during the
//! first minute, whatever its size. Deliveries marked at the third end are *suspects*. A suspect is sent while nothing
//! else is under way, so that each further end has one suspect.
//!
//! After a clean end nothing is marked, so normal running costs nothing. A power cut or `kill -9` is an unclean end.
//!
//! Not here: what happens to a convicted item; its stage sets it aside.

use std::collections::BTreeMap;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::pipeline::prelude::*;
use crate::store::meta;
use crate::store::runs::{self, Boot};
use crate::store::writer::WriterLoop;

/// A smaller item takes too little memory to end the process.
pub const MIN_BYTES: usize = 256 * 1024;
/// Unclean ends in a row after which an item is convicted.
const MAX_ENDS: i32 = 2;
/// Stored for a small item that is marked while others are under way. The next unclean end makes it a suspect, but does
/// not count.
const NOT_ALONE: i32 = -1;
/// After this many unclean ends of runs that all began within [`CRASH_WINDOW`], every delivery is marked.
const CRASH_ENDS: u32 = 2;
const CRASH_WINDOW: Duration = Duration::from_mins(10);
/// How long a process marks every delivery after such ends.
const PROVEN_AFTER: Duration = Duration::from_mins(1);

/// The suspects of earlier runs, and the marks of this one.
#[derive(Debug)]
pub struct Suspects {
    store: Store,
    /// The number of this start.
    boot: i64,
    /// Whether the last end was unclean.
    is_on: bool,
    /// At how many unclean ends in a row each suspect was in hand. A small item must have been alone in hand.
    ends: BTreeMap<String, i32>,
    clock: Clock,
    /// Until when (monotonic) every delivery is marked.
    careful_until: Option<Duration>,
    /// Held for writing while a suspect is attempted, for reading while another delivery is.
    attempts: RwLock<()>,
}

/// A mark. Dropping this removes it.
#[derive(Debug)]
pub struct Marked<'s>(&'s Suspects, String);

impl Suspects {
    /// Reads what the run before this one had marked at its end, and deletes older marks.
    pub fn at_start(
        writer: &mut WriterLoop,
        store: Store,
        clock: Clock,
        boot: i64,
    ) -> Result<Self> {
        let before = writer.read(|tx| runs::before(tx, boot, CRASH_ENDS))?;
        let last = before.first();
        let is_on = last.is_some_and(|last| !last.was_clean);
        let found = writer.read(meta::in_hand)?;
        let of_last = |at: i64| is_on && last.is_some_and(|last| last.seq == at);
        let (kept, over): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, at, _)| of_last(*at));
        if !over.is_empty() {
            writer
                .direct(|tx| over.iter().try_for_each(|(item, ..)| meta::not_in_hand(tx, item)))?;
        }
        let ends: BTreeMap<String, i32> =
            kept.into_iter().map(|(item, _, ends)| (item, ends.saturating_add(1))).collect();
        let is_careful = is_crashing(&before, clock.wall());
        if is_careful {
            tracing::warn!(
                suspects = ends.len(),
                "the process ended several times without being asked to: for a minute each delivery is marked before \
                 it is sent, and deliveries that were in hand at the last end are sent alone"
            );
        }
        let careful_until = is_careful.then(|| clock.monotonic().saturating_add(PROVEN_AFTER));
        Ok(Self { store, boot, is_on, ends, clock, careful_until, attempts: RwLock::default() })
    }

    /// Whether anything may be marked or set aside: the last end was unclean.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether every delivery is marked, because the process ended uncleanly several times.
    pub fn is_careful(&self) -> bool {
        self.careful_until.is_some_and(|until| self.clock.monotonic() < until)
    }

    /// Whether an item is to be set aside.
    pub fn is_convicted(&self, item: &str) -> bool {
        self.ends.get(item).is_some_and(|ends| *ends >= MAX_ENDS)
    }

    /// Whether an item may be attempted only while no other delivery is.
    pub fn is_suspect(&self, item: &str) -> bool {
        self.is_careful() && self.ends.contains_key(item)
    }

    /// Waits until nothing is under way. The guard must be held while a suspect is attempted.
    pub fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.attempts.write()
    }

    /// The guard must be held while any other delivery is attempted. `None` while a suspect is attempted or waits.
    pub fn beside_others(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.attempts.try_read()
    }

    /// Marks an item of this many bytes; `None` if it needs no mark, or the mark could not be written.
    pub fn mark(&self, item: &str, bytes: usize) -> Option<Marked<'_>> {
        if !self.is_on || (bytes < MIN_BYTES && !self.is_careful()) {
            return None;
        }
        let name = item.to_owned();
        let boot = self.boot;
        let first = if bytes < MIN_BYTES { NOT_ALONE } else { 0 };
        let ends = self.ends.get(item).copied().unwrap_or(first);
        let run = move |tx: &WriteTx<'_>| meta::set_in_hand(tx, &name, boot, ends);
        let written = self.store.writer().write(Queue::Accept, run);
        written.ok().map(|()| Marked(self, item.to_owned()))
    }

    /// Removes a mark without waiting. A mark that stays counts for one end at most.
    pub fn clear(&self, item: &str) {
        if self.is_on {
            let item = item.to_owned();
            let run = move |tx: &WriteTx<'_>| meta::not_in_hand(tx, &item);
            self.store.writer().submit(Queue::Accept, run, drop::<Result<()>>);
        }
    }
}

/// Whether the last [`CRASH_ENDS`] runs ended uncleanly, and all of them started within [`CRASH_WINDOW`].
fn is_crashing(before: &[Boot], now: Timestamp) -> bool {
    let is_recent = |boot: &Boot| {
        // The clock may have been set meanwhile, forwards or backwards.
        now.since(boot.started_at).max(boot.started_at.since(now)) <= CRASH_WINDOW
    };
    u32::try_from(before.len()).is_ok_and(|ends| ends >= CRASH_ENDS)
        && before.iter().all(|boot| !boot.was_clean && is_recent(boot))
}

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        self.0.clear(&self.1);
    }
}
