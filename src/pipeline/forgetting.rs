//! Forgets guards of consumers after 90 days.
//!
//! Once a day it goes over all guards in the order of their keys, a few a turn: an index over their age would make
//! each of them dearer to claim. Not here: answers to requests (`upkeep`), and files of drop folders (`sources`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::base::clock::{Clock, Timestamp};
use crate::pipeline::clock_watch::ClockWatch;
use crate::store::Store;
use crate::store::error::Result;
use crate::store::processed_events::{self, Key, Text};
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;

/// How long a guard is kept, and longer while its event is open or a dead letter.
pub const GUARDS_KEPT: Duration = Duration::from_hours(90 * 24);
/// How often it is looked.
const EVERY: Duration = Duration::from_hours(24);
/// Guards that are looked at in a turn …
const MAX_GUARDS: u32 = 1_000;
/// … and rows that one transaction forgets.
const MAX_ROWS: u32 = 500;
/// Open events and dead letters older than guards are kept, beyond which no guard is forgotten.
const MAX_OPEN: u32 = 10_000;

/// Where it stands.
#[derive(Debug)]
pub struct Forgetting {
    store: Store,
    clock: Clock,
    watch: Arc<ClockWatch>,
    /// When it begins again.
    due: Timestamp,
    walk: Option<Walk>,
}

/// On its way over the guards.
#[derive(Debug)]
struct Walk {
    after: Key,
    by: Timestamp,
    /// What is not to be forgotten; looked up when there is something to forget.
    needed: Option<BTreeSet<(Text, Text)>>,
}

impl Forgetting {
    /// Begins at once.
    pub fn new(store: Store, clock: Clock, watch: Arc<ClockWatch>) -> Self {
        let due = clock.now();
        Self { store, clock, watch, due, walk: None }
    }

    /// Does a little of it, where there is anything to do.
    pub fn turn(&mut self) -> Result<()> {
        let now = self.clock.now();
        // By a clock that may be wrong, nothing is old.
        if self.watch.is_suspect(now) || (self.walk.is_none() && now < self.due) {
            return Ok(());
        }
        let walk = if let Some(walk) = self.walk.take() {
            walk
        } else {
            self.due = now.plus(EVERY);
            let by = self.clock.wall().minus(GUARDS_KEPT);
            Walk { after: Key::default(), by, needed: None }
        };
        self.walk = self.forget_guards(walk)?;
        Ok(())
    }

    /// Goes on a little; `None` at the end.
    fn forget_guards(&self, mut walk: Walk) -> Result<Option<Walk>> {
        let by = walk.by;
        let page = self.store.read(|tx| processed_events::page(tx, &walk.after, MAX_GUARDS))?;
        let Some((last, _)) = page.last() else { return Ok(None) };
        walk.after = last.clone();
        let is_last = u32::try_from(page.len()).is_ok_and(|found| found < MAX_GUARDS);
        let old: Vec<Key> =
            page.into_iter().filter(|(_, at)| *at <= by).map(|(key, _)| key).collect();
        if old.is_empty() {
            return Ok((!is_last).then_some(walk));
        }
        let needed = match walk.needed.take() {
            None => self.store.read(|tx| processed_events::needed(tx, by, MAX_OPEN))?,
            known => known,
        };
        let Some(needed) = needed else {
            tracing::warn!(
                open = MAX_OPEN,
                "no old guard is forgotten while more deliveries than that of the same age are open or dead: \
                 look at them"
            );
            return Ok(None);
        };
        let is_needed =
            |(tenant, _, event): &Key| needed.contains(&(tenant.clone(), event.clone()));
        let old: Vec<Key> = old.into_iter().filter(|guard| !is_needed(guard)).collect();
        for some in old.chunks(usize::try_from(MAX_ROWS).unwrap_or(1)) {
            let some = some.to_vec();
            let run = move |tx: &WriteTx<'_>| processed_events::forget(tx, &some, by);
            self.store.writer().write(Queue::Upkeep, run)?;
        }
        walk.needed = Some(needed);
        Ok((!is_last).then_some(walk))
    }
}
