//! Work that the process may have died on. After an unclean end, large work is marked in the file before it is
//! begun, and the mark is taken away afterwards. What was marked at two unclean ends in a row is set aside.
//!
//! After two unclean ends in ten minutes the process may die on something small: for its first minute each delivery is
//! marked, whatever its size. What is marked at the third end are the suspects. Each of them is sent while nothing else
//! is under way, so that the next two ends have one suspect each.
//!
//! After a clean end nothing is marked, so that normal running costs nothing. A power cut or `kill -9` is an unclean end
//! too. An item is convicted when it was in hand at two such ends in a row.
//!
//! Not here: what becomes of a convicted item, which the stage that has it knows.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::base::clock::{Clock, Timestamp};
use crate::store::boots::Boot;
use crate::store::error::Result;
use crate::store::tx::WriteTx;
use crate::store::writer::{Queue, WriterLoop};
use crate::store::{Store, boots, meta};

/// Work of fewer bytes takes too little memory to end the process.
pub const BYTES_LEAST: usize = 256 * 1024;
/// Unclean ends in a row after which an item is set aside.
const MAX_ENDS: i32 = 2;
/// Stored with a small item that was marked beside others: it becomes a suspect, and that end does not count.
const BESIDE_OTHERS: i32 = -1;
/// Unclean ends in a row, all of starts in [`CRASH_WINDOW`], after which every delivery is marked.
const CRASH_ENDS: u32 = 2;
const CRASH_WINDOW: Duration = Duration::from_mins(10);
/// How long a process has to run until nothing is looked for any more.
const PROVEN_AFTER: Duration = Duration::from_mins(1);

/// What was in hand at the last ends, and what is now.
#[derive(Debug)]
pub struct Suspects {
    store: Store,
    /// The number of this start.
    boot: i64,
    /// Whether the last end was unclean.
    is_on: bool,
    /// The suspects: at how many unclean ends in a row each was in hand, a small one alone.
    ends: BTreeMap<String, i32>,
    clock: Clock,
    /// Until when (monotonic) every delivery is marked.
    careful_until: Option<Duration>,
    /// Held for writing while a suspect is attempted, for reading while another delivery is.
    attempts: RwLock<()>,
}

/// A mark, until it is dropped.
#[derive(Debug)]
pub struct Marked<'s>(&'s Suspects, String);

impl Suspects {
    /// Reads what was in hand at the end of the boot before this one, and forgets everything else.
    pub fn at_start(
        writer: &mut WriterLoop,
        (store, clock): (&Store, &Clock),
        boot: i64,
    ) -> Result<Self> {
        let before = writer.read(|tx| boots::before(tx, boot, CRASH_ENDS))?;
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
                "the process was ended again and again without being asked to: for a minute each delivery is marked before \
                 it is sent, and those that were in hand at the last end are sent alone"
            );
        }
        let careful_until = is_careful.then(|| clock.monotonic().saturating_add(PROVEN_AFTER));
        let (store, clock) = (store.clone(), clock.clone());
        Ok(Self { store, boot, is_on, ends, clock, careful_until, attempts: RwLock::default() })
    }

    /// Whether anything may be marked or set aside: the last end was unclean.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether every delivery is marked, because the process has ended again and again.
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

    /// To be held while a suspect is attempted: waits for what is under way.
    pub fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.attempts.write()
    }

    /// To be held while another delivery is attempted; `None` while a suspect is, or waits to be.
    pub fn beside_others(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.attempts.try_read()
    }

    /// Marks an item that takes so many bytes, where that is worth it. A mark that cannot be written is none.
    pub fn mark(&self, item: &str, bytes: usize) -> Option<Marked<'_>> {
        if !self.is_on || (bytes < BYTES_LEAST && !self.is_careful()) {
            return None;
        }
        let (name, boot) = (item.to_owned(), self.boot);
        let first = if bytes < BYTES_LEAST { BESIDE_OTHERS } else { 0 };
        let ends = self.ends.get(item).copied().unwrap_or(first);
        let run = move |tx: &WriteTx<'_>| meta::set_in_hand(tx, &name, boot, ends);
        let written = self.store.writer().write(Queue::Accept, run);
        written.ok().map(|()| Marked(self, item.to_owned()))
    }

    /// Takes a mark away. Nobody waits for it: if it stays, it counts for one end at most.
    pub fn clear(&self, item: &str) {
        if self.is_on {
            let item = item.to_owned();
            let run = move |tx: &WriteTx<'_>| meta::not_in_hand(tx, &item);
            self.store.writer().submit(Queue::Accept, run, drop::<Result<()>>);
        }
    }
}

/// Whether the last starts all ended uncleanly, and the first of them is not long ago.
fn is_crashing(before: &[Boot], now: Timestamp) -> bool {
    let is_recent = |boot: &Boot| {
        // The clock may have been set meanwhile, either way.
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
