//! Work that the process may have died on. After an unclean end, large work is marked in the file before it is
//! begun, and the mark is taken away afterwards. What was marked at two unclean ends in a row is set aside.
//!
//! After a clean end nothing is marked, so that normal running costs nothing. A power cut or a
//! `kill -9` marks as well: only the second in a row with the same item in hand convicts it.
//!
//! Not here: what becomes of a convicted item, which the stage that has it knows.

use std::collections::BTreeMap;

use crate::store::error::Result;
use crate::store::tx::WriteTx;
use crate::store::writer::{Queue, WriterLoop};
use crate::store::{Store, boots, meta};

/// Work of fewer bytes takes too little memory to end the process.
pub const BYTES_LEAST: usize = 256 * 1024;
/// Unclean ends in a row after which an item is set aside.
const MAX_ENDS: u32 = 2;

/// What was in hand at the last ends, and what is now.
#[derive(Debug)]
pub struct Suspects {
    store: Store,
    /// The number of this start.
    boot: i64,
    /// Whether the last end was unclean.
    is_on: bool,
    /// At how many unclean ends in a row an item was in hand.
    ends: BTreeMap<String, u32>,
}

/// A mark, until it is dropped.
#[derive(Debug)]
pub struct Marked<'s>(&'s Suspects, String);

impl Suspects {
    /// Reads what was in hand at the end of the boot before this one, and forgets everything else.
    pub fn at_start(writer: &mut WriterLoop, store: &Store, boot: i64) -> Result<Self> {
        let last = writer.read(|tx| boots::before(tx, boot))?;
        let is_on = last.is_some_and(|(_, was_clean)| !was_clean);
        let found = writer.read(meta::in_hand)?;
        let of_last = |at: i64| is_on && last.is_some_and(|(seq, _)| seq == at);
        let (kept, over): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, at, _)| of_last(*at));
        if !over.is_empty() {
            writer
                .direct(|tx| over.iter().try_for_each(|(item, ..)| meta::not_in_hand(tx, item)))?;
        }
        let ends = kept.into_iter().map(|(item, _, ends)| (item, ends.saturating_add(1))).collect();
        Ok(Self { store: store.clone(), boot, is_on, ends })
    }

    /// Whether an item is to be set aside.
    pub fn is_convicted(&self, item: &str) -> bool {
        self.ends.get(item).is_some_and(|ends| *ends >= MAX_ENDS)
    }

    /// Marks an item that takes so many bytes, where that is worth it. A mark that cannot be written is none.
    pub fn mark(&self, item: &str, bytes: usize) -> Option<Marked<'_>> {
        if !self.is_on || bytes < BYTES_LEAST {
            return None;
        }
        let (name, boot) = (item.to_owned(), self.boot);
        let ends = self.ends.get(item).copied().unwrap_or(0);
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

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        self.0.clear(&self.1);
    }
}
