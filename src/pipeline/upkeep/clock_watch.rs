//! The chore that judges the clock, and what follows when believed time follows it.
//!
//! [`crate::base::clock::trust`] decides. Not here: what a suspect clock keeps from happening. That asks the clock for a
//! [`crate::base::clock::SureNow`].

use crate::base::clock::trust::{DoubtedTime, Judgement, KnownTime, STEP, Suspicion};
use crate::pipeline::prelude::*;
use crate::store::known_time::{self, MovedWaits};
use crate::store::{holds, subscriptions};

/// How often the file learns the time.
const STORE_EVERY: Duration = Duration::from_mins(1);
/// Rows whose ends are moved in one transaction.
const MAX_ROWS: u32 = 500;

/// Judges the clock once a second.
#[derive(Debug)]
pub struct ClockWatch {
    store: Store,
    clock: Clock,
    /// When the file learned the time, by the monotonic clock.
    stored_at: Duration,
    /// The ends of waits that are being moved.
    moving: Option<Moving>,
}

/// A move of the ends of waits. One that failed in between goes on where it ended, so that no row moves twice.
#[derive(Debug)]
struct Moving {
    step_ms: i64,
    /// The rows that are left, each kind from where it continues.
    left: Vec<MovedWaits>,
}

/// What a look at the clock found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockLook {
    /// Time goes on.
    Steady,
    /// Believed time has moved: due times and waits are checked again.
    Moved,
}

/// Begins a run: compares the clock with the time that the file knows.
pub fn begin(clock: &Clock, known: Option<KnownTime>) {
    if let Some(suspicion) = clock.begin(known) {
        warn(clock, suspicion);
    }
}

/// What the file is to know of the time.
pub fn known(clock: &Clock) -> KnownTime {
    let doubted = clock.suspicion().map(|suspicion| DoubtedTime {
        shown: clock.shown(),
        agrees_since: suspicion.agrees_since,
    });
    KnownTime { believed: clock.now(), doubted }
}

fn warn(clock: &Clock, suspicion: Suspicion) {
    let Suspicion { doubt, .. } = suspicion;
    tracing::warn!(
        shown = %clock.shown(),
        believed = %clock.now(),
        believed_from = %suspicion.ends_at(),
        ?doubt,
        "the clock may be wrong: nothing is deleted, given up, expired or rotated by it until a time service keeps it \
         right, or until a person says that it is right (oncebox clock confirm)"
    );
}

impl ClockWatch {
    /// A watch that has not looked yet.
    pub const fn new(store: Store, clock: Clock) -> Self {
        Self { store, clock, stored_at: Duration::ZERO, moving: None }
    }

    /// Judges the clock. Where it is believed again, moves the ends of waits first, then believed time.
    pub fn look(&mut self) -> Result<ClockLook> {
        match self.clock.look() {
            Judgement::Unchanged => {
                let now = self.clock.monotonic();
                if self.stored_at.is_zero() || now.saturating_sub(self.stored_at) >= STORE_EVERY {
                    self.store_time()?;
                }
                Ok(ClockLook::Steady)
            }
            Judgement::Suspect(suspicion) => {
                warn(&self.clock, suspicion);
                self.store_time()?;
                Ok(ClockLook::Steady)
            }
            Judgement::Believe { step_ms } => self.follow(step_ms),
        }
    }

    fn follow(&mut self, found_step_ms: i64) -> Result<ClockLook> {
        let is_same = |moving: &Moving| {
            let difference = moving.step_ms.abs_diff(found_step_ms);
            Duration::from_millis(difference) < STEP
        };
        self.moving = self.moving.take().filter(is_same);
        let step_ms = self.moving.as_ref().map_or(found_step_ms, |moving| moving.step_ms);
        let has_stepped = Duration::from_millis(step_ms.unsigned_abs()) >= STEP;
        if has_stepped {
            self.move_waits(step_ms)?;
        }
        self.clock.follow(step_ms);
        self.store_time()?;
        if !has_stepped {
            tracing::info!("the clock shows again what was expected");
            return Ok(ClockLook::Steady);
        }
        tracing::warn!(step_ms, "the clock was set, and is believed; due times are checked again");
        let at = self.clock.wall();
        let restart = move |tx: &WriteTx<'_>| subscriptions::restart_failing(tx, holds::SITE, at);
        self.store.writer().write(Queue::Upkeep, restart)?;
        Ok(ClockLook::Moved)
    }

    /// Moves the ends of what waits by the step, so that each wait keeps its length. A crash in between makes some waits longer,
    /// by their own length at most: the next start limits them to it.
    fn move_waits(&mut self, step_ms: i64) -> Result<()> {
        let writer = self.store.writer();
        let moving =
            self.moving.get_or_insert_with(|| Moving { step_ms, left: MovedWaits::all().to_vec() });
        while let Some(from) = moving.left.last().cloned() {
            let run = move |tx: &WriteTx<'_>| from.move_some(tx, step_ms, MAX_ROWS);
            let next = writer.write(Queue::Upkeep, run)?;
            moving.left.pop();
            moving.left.extend(next);
        }
        writer.write(Queue::Upkeep, move |tx| known_time::move_holds(tx, step_ms))?;
        self.moving = None;
        Ok(())
    }

    /// Tells the file the time.
    pub fn store_time(&mut self) -> Result<()> {
        let now = self.clock.monotonic();
        let known = known(&self.clock);
        self.store.writer().write(Queue::Upkeep, move |tx| known_time::store(tx, known))?;
        self.stored_at = now;
        Ok(())
    }
}
