//! Upkeep: the chores that run by the clock. Each turn does a bounded amount and says nothing unless
//! something is wrong.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::base::clock::Clock;
use crate::base::stop::Stop;
use crate::model::delivery::Settlement;
use crate::pipeline::clock_watch::ClockWatch;
use crate::pipeline::deliver::Deliver;
use crate::pipeline::disk_watch::DiskWatch;
use crate::pipeline::forgetting::Forgetting;
use crate::pipeline::refusals::Refusals;
use crate::store::error::Result;
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;
use crate::store::{Store, deliveries, idempotency_keys, subscriptions};

/// How often upkeep looks.
const EVERY: Duration = Duration::from_secs(1);
/// Rows a chore moves in one transaction.
const MAX_ROWS: u32 = 500;

/// The chores and what they need.
#[derive(Debug)]
pub struct Upkeep {
    /// The file.
    pub store: Store,
    /// Time.
    pub clock: Clock,
    /// Whether our clock can be trusted.
    pub clock_watch: Arc<ClockWatch>,
    /// The room on the disk.
    pub disk: Arc<DiskWatch>,
    /// Refused calls that were only counted.
    pub refusals: Refusals,
    /// Outcomes that the disk refused.
    pub unsettled: Receiver<Settlement>,
    /// Where they are handed in again.
    pub deliver: Deliver,
}

impl Upkeep {
    /// Looks once a second until a stop is asked for.
    pub fn run(&self, stop: &Stop) {
        // Due times may have been written by another boot, with another clock.
        let mut owed = self.tick(true);
        let (store, clock) = (self.store.clone(), self.clock.clone());
        let mut forgetting = Forgetting::new(store, clock, Arc::clone(&self.clock_watch));
        while !stop.wait(EVERY) {
            owed = self.tick(owed);
            log("forget what is old", forgetting.turn());
        }
        self.settle_again();
        self.refusals.flush(true);
    }

    /// One turn of every chore; `owed` says whether due times have to be looked at. Tells whether they
    /// still have to be, because it could not be done.
    fn tick(&self, owed: bool) -> bool {
        self.disk.look();
        self.settle_again();
        self.refusals.flush(false);
        let step_ms = self.clock_watch.look(&self.clock);
        if let Some(step_ms) = step_ms {
            tracing::warn!(step_ms, "the clock was set; due times are looked at again");
        }
        let pulled_in = if owed || step_ms.is_some() { self.clamp_due_times() } else { Ok(()) };
        let still_owed = pulled_in.is_err();
        log("pull in due times", pulled_in);
        let expired = self.expire_idempotency_keys();
        log("expire idempotency keys", expired);
        still_owed
    }

    /// Hands in again what the disk refused before.
    fn settle_again(&self) {
        let waiting: Vec<Settlement> = self.unsettled.try_iter().collect();
        for settlement in waiting {
            self.deliver.settle(settlement);
        }
    }

    fn expire_idempotency_keys(&self) -> Result<()> {
        let now = self.clock.now();
        // An empty look costs a read; the write transaction is only taken when there is something.
        if !self.store.read(|tx| idempotency_keys::any_expired(tx, now))? {
            return Ok(());
        }
        // As many turns as it takes, so that the table cannot grow faster than it is swept.
        let full = usize::try_from(MAX_ROWS).unwrap_or(0);
        let run = move |tx: &WriteTx<'_>| idempotency_keys::expire(tx, now, MAX_ROWS);
        while self.store.writer().write(Queue::Upkeep, run)? == full {}
        Ok(())
    }

    fn clamp_due_times(&self) -> Result<()> {
        for subscription in self.store.read(subscriptions::live)? {
            let seq = subscription.seq;
            loop {
                let now = self.clock.now();
                let run =
                    move |tx: &WriteTx<'_>| deliveries::clamp_due_times(tx, seq, now, MAX_ROWS);
                let moved = self.store.writer().write(Queue::Upkeep, run)?;
                if moved < usize::try_from(MAX_ROWS).unwrap_or(usize::MAX) {
                    break;
                }
            }
        }
        Ok(())
    }
}

fn log(chore: &str, outcome: Result<()>) {
    if let Err(error) = outcome {
        tracing::error!(%error, chore, "a chore could not be done; it is tried again");
    }
}
