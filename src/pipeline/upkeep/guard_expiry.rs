//! Deletes guards of consumers after 90 days.
//!
//! Once a day it walks over all guards in the order of their keys, a few per turn. An index on their age would make
//! each claim of a guard slower. Not here: idempotency keys (`upkeep`), and files of drop folders (`sources`).

use std::collections::BTreeSet;

use crate::model::duty::Duty;
use crate::pipeline::prelude::*;
use crate::store::chores;
use crate::store::processed_events::{self, Key, Text};

/// How long a guard is kept. It stays longer while its event is open or a dead letter.
pub const GUARDS_KEPT: Duration = Duration::from_hours(90 * 24);
/// How long after a walk that failed the next one begins.
const RETRY_AFTER: Duration = Duration::from_mins(10);
/// Guards read in one turn.
const MAX_GUARDS: u32 = 1_000;
/// Guards deleted in one transaction.
const MAX_ROWS: u32 = 500;
/// No guard is deleted while more open events and dead letters than this are older than [`GUARDS_KEPT`].
const MAX_OPEN: u32 = 10_000;

/// The daily walk over the guards.
#[derive(Debug)]
pub struct GuardExpiry {
    env: Env,
    /// No walk begins before, by the monotonic clock.
    again_at: Duration,
    walk: Option<Walk>,
}

/// A walk that is under way.
#[derive(Debug)]
struct Walk {
    after: Key,
    by: Timestamp,
    /// Events whose guards must stay; read when the first old guard is found.
    needed: Option<BTreeSet<(Text, Text)>>,
}

impl GuardExpiry {
    /// Nothing is under way.
    pub const fn new(env: Env) -> Self {
        Self { env, again_at: Duration::ZERO, walk: None }
    }

    /// Does one turn of the walk, if one is due or under way. While the clock may be wrong, the age of a guard is not
    /// known.
    pub fn turn(&mut self) -> Result<()> {
        let Some(now) = self.env.clock.sure_now() else { return Ok(()) };
        let walk = match self.walk.take() {
            Some(walk) => walk,
            None if self.env.clock.monotonic() < self.again_at => return Ok(()),
            None if !self.env.store.read(|tx| chores::is_due(tx, Duty::DeleteGuards, now))? => {
                return Ok(());
            }
            None => Walk { after: Key::default(), by: now.minus(self.kept()), needed: None },
        };
        self.again_at = self.env.clock.monotonic() + RETRY_AFTER;
        self.walk = self.delete_guards(walk)?;
        if self.walk.is_none() {
            let done = move |tx: &WriteTx<'_>| chores::done(tx, Duty::DeleteGuards, now);
            self.env.store.writer().write(Queue::Upkeep, done)?;
        }
        Ok(())
    }

    /// A guard does not go before its event has left the database.
    fn kept(&self) -> Duration {
        let archive = &self.env.settings.get().archive;
        archive.after_of.values().fold(GUARDS_KEPT.max(archive.after), |most, of| most.max(*of))
    }

    /// Handles the next guards; `None` at the end of the walk.
    fn delete_guards(&self, mut walk: Walk) -> Result<Option<Walk>> {
        let by = walk.by;
        let page = self.env.store.read(|tx| processed_events::page(tx, &walk.after, MAX_GUARDS))?;
        let Some((last, _)) = page.last() else { return Ok(None) };
        walk.after = last.clone();
        let is_last = u32::try_from(page.len()).is_ok_and(|found| found < MAX_GUARDS);
        let old: Vec<Key> =
            page.into_iter().filter(|(_, at)| *at <= by).map(|(key, _)| key).collect();
        if old.is_empty() {
            return Ok((!is_last).then_some(walk));
        }
        let needed = match walk.needed.take() {
            None => self.env.store.read(|tx| processed_events::needed(tx, by, MAX_OPEN))?,
            known => known,
        };
        let Some(needed) = needed else {
            tracing::warn!(
                open = MAX_OPEN,
                "no old guard is deleted: more deliveries than that, as old as the guards, are open or dead letters; \
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
            self.env.store.writer().write(Queue::Upkeep, run)?;
        }
        walk.needed = Some(needed);
        Ok((!is_last).then_some(walk))
    }
}
