//! Gives up deliveries that wait behind others for longer than `order.postpone_limit`.
//!
//! The time while a subscription was held, or the service was off, does not count: nothing could go then.

use std::collections::BTreeMap;

use crate::base::clock::trust::SMALL_STEP;
use crate::model::subscription::Subscription;
use crate::pipeline::in_flight::InFlight;
use crate::pipeline::prelude::*;
use crate::store::{postponed, settlement, subscriptions};

/// Deliveries that are given up in one transaction.
const MAX_ROWS: u32 = 100;
/// Small steps of the clock that are remembered. After more, each delivery waits its limit from then on.
const MAX_STEPS: usize = 100;

/// A small step forward of believed time.
#[derive(Clone, Copy, Debug)]
struct SmallStep {
    /// When it was made, by the monotonic clock.
    at: Duration,
    by: Duration,
}

/// The chore, and since when each subscription was not held.
pub struct Postponing {
    store: Store,
    clock: Clock,
    in_flight: Arc<InFlight>,
    /// By the monotonic clock.
    free_since: BTreeMap<SubscriptionSeq, Duration>,
    /// Steps that make rows look older than they are.
    steps: Vec<SmallStep>,
}

impl Postponing {
    /// A chore that has not run yet.
    pub fn new(store: Store, clock: Clock, in_flight: Arc<InFlight>) -> Self {
        Self { store, clock, in_flight, free_since: BTreeMap::new(), steps: Vec::new() }
    }

    /// Takes note that believed time has moved by so many ms. After a large step forward the age of a row in the file says
    /// nothing about how long it waited: each waits its limit from now on. A small one is taken off that age. After a step
    /// back, rows look younger than they are, and wait longer.
    pub fn follow(&mut self, step_ms: i64) {
        let by = Duration::from_millis(u64::try_from(step_ms).unwrap_or(0));
        if by > SMALL_STEP || self.steps.len() >= MAX_STEPS {
            self.free_since.clear();
            self.steps.clear();
        } else {
            self.steps.push(SmallStep { at: self.clock.monotonic(), by });
        }
    }

    /// By how much small steps have moved believed time within so long.
    fn moved_within(&self, span: Duration) -> Duration {
        let since = self.clock.monotonic().saturating_sub(span);
        self.steps.iter().filter(|step| step.at >= since).map(|step| step.by).sum()
    }

    /// Gives up what has waited too long.
    pub fn run(&mut self) -> Result<()> {
        // Giving up cannot be taken back.
        if self.clock.sure_now().is_none() {
            return Ok(());
        }
        if !self.store.read(postponed::any_limit)? {
            self.free_since.clear();
            return Ok(());
        }
        let now = self.clock.monotonic();
        let before = std::mem::take(&mut self.free_since);
        for Subscription { seq, new, holds, .. } in self.store.read(subscriptions::live)? {
            // Checked when it was stored.
            let Ok(Some(limit)) = new.order.postponed_after() else { continue };
            let since = before.get(&seq).filter(|_| holds.is_empty());
            let since =
                *self.free_since.entry(seq).or_insert_with(|| since.copied().unwrap_or(now));
            if now.saturating_sub(since) > limit {
                while self.give_up(seq, limit)? {}
            }
        }
        Ok(())
    }

    /// Gives up some of a subscription; tells whether there may be more.
    fn give_up(&self, subscription: SubscriptionSeq, limit: Duration) -> Result<bool> {
        let now = self.clock.now();
        let due_by = now.minus(limit).minus(self.moved_within(limit));
        let busy: Vec<_> = self.in_flight.all().into_iter().map(|(delivery, _)| delivery).collect();
        let found =
            self.store.read(|tx| postponed::find(tx, subscription, due_by, MAX_ROWS, &busy))?;
        if found.is_empty() {
            return Ok(false);
        }
        let is_full = u32::try_from(found.len()).is_ok_and(|count| count >= MAX_ROWS);
        let at = self.clock.wall();
        let in_flight = Arc::clone(&self.in_flight);
        let reason = format!(
            "postponed: it waited behind others for more than {}",
            humantime::format_duration(limit)
        );
        let give_up = move |tx: &WriteTx<'_>| {
            let is_idle = |delivery: &&DeliverySeq| in_flight.since(**delivery).is_none();
            let mut has_any = false;
            for delivery in found.iter().filter(is_idle) {
                let postpone = || settlement::postpone(tx, *delivery, due_by, &reason, now, at);
                // A damaged row must not keep the others from being given up.
                match tx.in_savepoint(postpone)? {
                    Ok(()) => has_any = true,
                    Err(error) if error.concerns_all() => return Err(error),
                    Err(error) => {
                        tracing::error!(%error, %delivery, "a delivery that waits too long cannot be given up");
                    }
                }
            }
            Ok(has_any)
        };
        let has_any = self.store.writer().write(Queue::Upkeep, give_up)?;
        Ok(is_full && has_any)
    }
}
