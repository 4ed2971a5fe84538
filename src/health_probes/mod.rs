//! Health probes: a target to which nothing was sent for a while is asked whether it works, so that a person learns that
//! it does not before the next event fails.
//!
//! A probe is no attempt: it changes no delivery and no count of its subscription. When there are more probes than time,
//! the longest overdue of each tenant come first. Not here: the setting and what is shown (`model::health_probe`), and
//! the request (`pipeline::probe`).

mod store;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;

use crate::base::clock::span;
use crate::base::id::SubscriptionSeq;
use crate::env::Env;
use crate::model::health_probe::HealthState;
use crate::model::hold::{Hold, HoldReason};
use crate::model::outcome::AttemptClass;
use crate::model::subscription::Subscription;
use crate::pipeline::Pipeline;
use crate::pipeline::deliver::deliverer::Deliverer;
use crate::pipeline::probe::{SubscriptionTests, Threads, Turn};
use crate::pipeline::upkeep::disk_watch::DiskWatch;
use crate::store::error::Result;
use crate::store::subscriptions;
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;

pub use store::unhealthy;

/// How often due probes are looked for: while something is probed, and while nothing is.
const EVERY: Duration = Duration::from_secs(1);
const WHILE_NONE: Duration = Duration::from_secs(5);
/// When a probe is repeated that was the first to fail, or of which nothing was learnt.
const AGAIN: Duration = Duration::from_secs(30);
/// Probes have threads of their own, so that targets that hang delay no test of a person and no rotation.
const THREADS: Threads = Threads("probe", 4, 256);
/// The longest wait that a target may ask for.
const MAX_ASKED: Duration = Duration::from_hours(24);
/// An unhealthy target is probed at least as often as this, so that its recovery is seen soon.
const WHILE_UNHEALTHY: Duration = Duration::from_mins(5);

/// Looks for due probes on a thread of its own, until upkeep ends. Nobody waits for probes under way: what they find out
/// is stored or not.
/// Fails when the thread cannot be started.
pub fn start(flow: &Pipeline, disk: &Arc<DiskWatch>) -> Result<()> {
    let deliver = flow.rotation.tests().deliver.clone();
    let threads = SubscriptionTests::start(deliver, &flow.spawner, THREADS)?;
    let prober = Prober { threads, disk: Arc::clone(disk), taken: Arc::default() };
    let stop = flow.upkeep_stop.clone();
    let run = move || {
        let mut wait = EVERY;
        while !stop.wait(wait) {
            wait = prober.look().unwrap_or_else(|error| {
                tracing::error!(%error, "due health probes could not be found; it is tried again");
                EVERY
            });
        }
    };
    flow.spawner.spawn("probes", run).map(drop)
}

#[derive(Clone)]
struct Prober {
    threads: SubscriptionTests,
    disk: Arc<DiskWatch>,
    /// Subscriptions that are not probed before a time (monotonic): those that wait for a thread, and for a while those
    /// that had one, in case nothing was learnt or stored.
    taken: Arc<Mutex<BTreeMap<SubscriptionSeq, Duration>>>,
}

impl Prober {
    /// Begins what is due, the longest overdue first, and ends what is over; returns the wait until the next look. What is
    /// left of a disk is for outcomes.
    fn look(&self) -> Result<Duration> {
        let Env { store, clock, .. } = &self.threads.deliver.env;
        if self.disk.is_low() {
            return Ok(EVERY);
        }
        let now = clock.wall();
        let monotonic = clock.monotonic();
        let idle = store.read(|tx| store::idle(tx, now))?;
        // What is not probed has no row.
        if idle.is_empty() {
            return Ok(WHILE_NONE);
        }
        if !store.read(|tx| store::over(tx, now))?.is_empty() {
            store.writer().write(Queue::Upkeep, move |tx| store::end_over(tx, now))?;
        }
        self.taken.lock().retain(|_, until| *until > monotonic);
        let due = idle.into_iter().filter_map(|(seq, tenant, every, state, last)| {
            let wait = match state {
                HealthState::Healthy => Duration::MAX,
                HealthState::Unknown => AGAIN,
                HealthState::Unhealthy => WHILE_UNHEALTHY,
            };
            let at = last.plus(wait.min(span(&every).ok()?));
            (at <= now && !self.taken.lock().contains_key(&seq)).then_some((at, seq, tenant))
        });
        let mut due: Vec<_> = due.collect();
        due.sort_unstable();
        for (_, seq, tenant) in due {
            self.taken.lock().insert(seq, Duration::MAX);
            let own = self.clone();
            let job = move |turn| {
                let is_now = turn == Turn::Now;
                let again_at = own.threads.deliver.env.clock.monotonic().saturating_add(AGAIN);
                own.taken.lock().insert(seq, if is_now { again_at } else { Duration::ZERO });
                if is_now && let Err(error) = own.probe(seq) {
                    tracing::error!(%error, "a subscription could not be read; it is probed later");
                }
            };
            self.threads.submit(&tenant, Box::new(job));
        }
        Ok(EVERY)
    }

    /// Probes a target, unless something else than the target keeps it from being called, or something is under way to it.
    fn probe(&self, seq: SubscriptionSeq) -> Result<()> {
        let Deliverer { env, counts, in_flight, .. } = self.threads.deliver.clone();
        let Env { store, clock, .. } = env;
        let under_way: Vec<i64> = in_flight.all().iter().map(|(delivery, _)| delivery.0).collect();
        let is_busy = store.read(|tx| store::is_busy(tx, seq, &json!(under_way).to_string()))?;
        let found = store.read(|tx| subscriptions::by_seq(tx, seq))?;
        let waits =
            |hold: &Hold| matches!(hold.reason, HoldReason::RateLimit | HoldReason::Offline);
        let is_held = |it: &Subscription| it.is_held_by_a_person() || it.holds.iter().any(waits);
        let Some(found) = found.filter(|it| !is_busy && !is_held(it)) else { return Ok(()) };
        let probed = found.clone();
        let taken = Arc::clone(&self.taken);
        let note = move |class: AttemptClass, reason: String, asked: Option<Duration>| {
            let worked = &counts.probes_worked;
            let failed = &counts.probes_failed;
            (if class.is_success() { worked } else { failed }).add();
            // It says nothing of whether the target works.
            if class == AttemptClass::RateLimited {
                let wait = asked.unwrap_or_default().clamp(WHILE_UNHEALTHY, MAX_ASKED);
                taken.lock().insert(seq, clock.monotonic().saturating_add(wait));
                return;
            }
            let now = clock.wall();
            let run = move |tx: &WriteTx<'_>| store::note(tx, &probed, (class, &reason), now);
            store.writer().submit(Queue::Upkeep, run, |stored| {
                if let Err(error) = stored {
                    tracing::warn!(%error, "the result of a health probe could not be stored");
                }
            });
        };
        self.threads.probe(&found, Box::new(note));
        Ok(())
    }
}
