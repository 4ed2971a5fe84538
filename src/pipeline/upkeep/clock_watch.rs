//! The chore that judges the clock, and what follows when believed time follows it.
//!
//! [`crate::base::clock::trust`] decides. Not here: what a suspect clock keeps from happening. That asks the clock for a
//! [`crate::base::clock::SureNow`].

use crate::base::clock::trust::{DoubtedTime, Judgement, KnownTime, STEP, Suspicion, TimeStep};
use crate::pipeline::prelude::*;
use crate::store::known_time;

/// How often the file learns the time.
const STORE_EVERY: Duration = Duration::from_mins(1);

/// Judges the clock once a second.
#[derive(Debug)]
pub struct ClockWatch {
    store: Store,
    clock: Clock,
    /// When the file learned the time, by the monotonic clock.
    stored_at: Duration,
}

/// What a look at the clock found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockLook {
    /// Time goes on.
    Steady,
    /// Believed time has moved by so many ms: due times and waits are checked again.
    Moved(i64),
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
        is_confirmed: false,
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
        Self { store, clock, stored_at: Duration::ZERO }
    }

    /// Judges the clock. Where it is believed again, the file follows first, then believed time.
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
                self.store.writer().write(Queue::Upkeep, known_time::forget_confirmation)?;
                self.store_time()?;
                Ok(ClockLook::Steady)
            }
            Judgement::Believe { step_ms } => self.follow(step_ms),
        }
    }

    /// Follows the clock. What can fail comes before believed time moves, so that a look that failed is made again.
    fn follow(&self, step_ms: i64) -> Result<ClockLook> {
        let step = TimeStep::of(self.clock.now(), step_ms);
        self.store.writer().write(Queue::Upkeep, move |tx| known_time::follow(tx, step))?;
        self.clock.follow(step_ms);
        if Duration::from_millis(step_ms.unsigned_abs()) < STEP {
            tracing::info!("the clock shows again what was expected");
            return Ok(ClockLook::Steady);
        }
        tracing::warn!(step_ms, "the clock was set, and is believed; due times are checked again");
        Ok(ClockLook::Moved(step_ms))
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
