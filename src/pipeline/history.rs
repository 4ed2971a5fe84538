//! Counts of what happened to each subscription and provider, in memory until upkeep stores them: once a minute, or
//! earlier if there are many.
//!
//! A kill loses what was not stored; the minute is a gap then ([`crate::model::history`]).

use std::collections::HashMap;

use crate::model::history::{DAY_MS, HOUR_MS, HourCounts, Subject};
use crate::pipeline::prelude::*;
use crate::store::history::{self, Counted};

/// How many hours of subjects are counted at most until they are stored; further ones are left out.
const MAX_COUNTED: usize = 20_000;
/// Rows in one transaction.
const MAX_ROWS: usize = 500;

/// The counts that are not stored yet.
#[derive(Debug, Default)]
pub struct History(Mutex<HashMap<(Subject, i64), HourCounts>>);

impl History {
    /// Counts an attempt or a request; `took_ms` if its duration counts.
    pub fn note(&self, of: Subject, at: Timestamp, is_failed: bool, took_ms: Option<u32>) {
        let key = (of, at.ms().div_euclid(HOUR_MS));
        let mut counted = self.0.lock();
        if counted.len() < MAX_COUNTED || counted.contains_key(&key) {
            counted.entry(key).or_default().note(is_failed, took_ms);
        }
    }

    /// Whether the counts must be stored before the minute is over.
    pub fn is_crowded(&self) -> bool {
        self.0.lock().len() >= MAX_COUNTED / 2
    }

    /// Stores what was counted, and deletes days over the bounds. What cannot be stored is counted on.
    pub fn store(&self, store: &Store, now: Timestamp) -> Result<()> {
        let counted = std::mem::take(&mut *self.0.lock()).into_iter();
        let mut counted: Vec<_> =
            counted.map(|((of, hour), counts)| Counted { of, hour, counts }).collect();
        while !counted.is_empty() {
            let rest = counted.split_off(counted.len().min(MAX_ROWS));
            let some = counted.clone();
            let run = move |tx: &WriteTx<'_>| history::add(tx, &some);
            if let Err(error) = store.writer().write(Queue::Upkeep, run) {
                self.give_back(counted.into_iter().chain(rest));
                return Err(error);
            }
            counted = rest;
        }
        let today = now.ms().div_euclid(DAY_MS);
        let full = u32::try_from(MAX_ROWS).unwrap_or(1);
        let run = move |tx: &WriteTx<'_>| history::trim(tx, today, full);
        while store.read(|tx| history::is_over(tx, today))?
            && store.writer().write(Queue::Upkeep, run)? >= MAX_ROWS
        {}
        Ok(())
    }

    fn give_back(&self, unstored: impl Iterator<Item = Counted>) {
        let mut counted = self.0.lock();
        for Counted { of, hour, counts } in unstored {
            counted.entry((of, hour)).or_default().add(&counts);
        }
    }
}
