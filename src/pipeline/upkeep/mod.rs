//! Upkeep: the periodic chores. Each works in bounded transactions and logs only what is wrong.

pub mod clock_watch;
pub mod credential_rotation;
pub mod disk_watch;
pub mod guard_expiry;
pub mod master_key_rotation;
pub mod master_key_schedule;
mod postponing;
pub mod site_watch;

use crossbeam_channel::Receiver;

use crate::alerts::chore::AlertChore;
use crate::base::stop::Stop;
use crate::model::attempt::AttemptReport;
use crate::model::effect::EffectKind;
use crate::pipeline::confirmations::Confirmations;
use crate::pipeline::deliver::deliverer::Deliverer;
use crate::pipeline::in_flight::InFlight;
use crate::pipeline::prelude::*;
use crate::pipeline::recent;
use crate::pipeline::refusals::Refusals;
use crate::pipeline::upkeep::clock_watch::{ClockLook, ClockWatch};
use crate::pipeline::upkeep::credential_rotation::CredentialRotation;
use crate::pipeline::upkeep::disk_watch::DiskWatch;
use crate::pipeline::upkeep::guard_expiry::GuardExpiry;
use crate::pipeline::upkeep::master_key_schedule::MasterKeySchedule;
use crate::pipeline::upkeep::postponing::Postponing;
use crate::pipeline::upkeep::site_watch::SiteWatch;
use crate::store::{
    confirmations, deliveries, escalations, holds, idempotency_keys, past_holds, runs,
    search_values, settlement, subscriptions,
};

/// All chores. Upkeep runs them once a second, in this order. A chore that is needed less often keeps the time of its
/// next run itself.
const CHORES: [(&str, Chore); 22] = [
    ("check the free space", |upkeep| {
        upkeep.disk.look();
        upkeep.disk.note(upkeep.env.clock.monotonic());
        Ok(())
    }),
    ("store outcomes that the disk refused", |upkeep| {
        upkeep.settle_again();
        Ok(())
    }),
    ("record refused calls that were only counted", |upkeep| {
        upkeep.refusals.flush(false);
        Ok(())
    }),
    ("store refused webhooks", |upkeep| {
        // What is left of a disk is for outcomes.
        if !upkeep.disk.is_low() {
            upkeep.refusals.webhooks.store(&upkeep.env.store)?;
        }
        Ok(())
    }),
    ("close connections that were idle for too long", |upkeep| {
        upkeep.deliver.sender.close_idle();
        Ok(())
    }),
    ("check the clock", Upkeep::check_clock),
    ("clamp due times after the clock was set", Upkeep::clamp_due_times),
    ("end holds whose time is over", Upkeep::end_holds),
    ("give up what waits too long behind others", |upkeep| upkeep.site.postponing.run()),
    ("end waits for a confirmation whose time is over", Upkeep::end_waits),
    ("raise what is wrong with the site", |upkeep| upkeep.site.watch.look()),
    ("end escalations about dead letters where none is left", Upkeep::end_without_dead),
    ("tell alert channels of escalations", |upkeep| upkeep.site.alerts.run()),
    ("delete idempotency keys that have expired", Upkeep::expire_idempotency_keys),
    ("resume or end effects that were left", Upkeep::take_left_effects),
    ("rotate credentials", |upkeep| upkeep.rotation.look()),
    ("rotate the master key", |upkeep| upkeep.master_key.look()),
    ("store when credentials were used", |upkeep| upkeep.deliver.destinations.store_uses(false)),
    ("delete old guards", |upkeep| upkeep.site.guard_expiry.turn()),
    ("delete holds that ended long ago", Upkeep::trim_past_holds),
    ("read what the search finds in payloads", Upkeep::find_values),
    ("store the counts of the last minute", |upkeep| upkeep.store_counts(false)),
];
type Chore = fn(&mut Upkeep) -> Result<()>;
/// How often upkeep runs.
const EVERY: Duration = Duration::from_secs(1);
/// How long no wait for a confirmation ends after a start: nobody could confirm while the service was off.
const CONFIRM_GRACE: Duration = Duration::from_mins(1);
/// Rows that a chore changes in one transaction.
const MAX_ROWS: u32 = 500;
/// Events whose payloads are read at once for the search.
const EVENTS_READ: i64 = 500;
/// How often that is done in a turn, so that other chores have theirs.
const MAX_READS: usize = 10;

/// The chores and what they need.
pub struct Upkeep {
    /// The environment.
    pub env: Env,
    /// The free space on the disk.
    pub disk: Arc<DiskWatch>,
    /// Refused calls that were only counted.
    pub refusals: Refusals,
    /// Outcomes that the disk refused.
    pub unsettled: Receiver<Arc<AttemptReport>>,
    /// Settles these outcomes, and knows when credentials were used.
    pub deliver: Deliverer,
    /// Rotates credentials.
    pub rotation: CredentialRotation,
    /// Rotates the master key.
    pub master_key: MasterKeySchedule,
    /// Ends waits for a confirmation.
    pub confirmations: Confirmations,
    /// Chores of the site.
    pub site: SiteChores,
}

/// The chores of the site and its file, each with its own state.
pub struct SiteChores {
    clock_watch: ClockWatch,
    watch: SiteWatch,
    guard_expiry: GuardExpiry,
    alerts: AlertChore,
    postponing: Postponing,
    /// When the service was started.
    started_at: Duration,
    /// Whether due times may lie too far ahead: after the clock was set, and at the start, because an earlier run with
    /// another clock may have written them.
    are_due_times_suspect: bool,
}

impl SiteChores {
    /// Chores that have not run yet.
    pub fn new(env: &Env, disk: Arc<DiskWatch>, in_flight: Arc<InFlight>) -> Self {
        Self {
            clock_watch: ClockWatch::new(env.store.clone(), env.clock.clone()),
            watch: SiteWatch::new(env.clone(), disk),
            guard_expiry: GuardExpiry::new(env.clone()),
            alerts: AlertChore::new(env.clone()),
            postponing: Postponing::new(env.store.clone(), env.clock.clone(), in_flight),
            started_at: env.clock.monotonic(),
            are_due_times_suspect: true,
        }
    }
}

impl Upkeep {
    /// Runs the chores once a second until a stop is asked for.
    pub fn run(mut self, stop: &Stop) {
        loop {
            for (chore, run) in CHORES {
                if let Err(error) = run(&mut self) {
                    tracing::error!(%error, chore, "a chore could not be done; it is tried again");
                }
            }
            if stop.wait(EVERY) {
                break;
            }
        }
        if let Err(error) = self.site.clock_watch.store_time() {
            tracing::warn!(%error, "the time of the end could not be stored");
        }
        self.settle_again();
        self.refusals.flush(true);
        while self.refusals.webhooks.store(&self.env.store).unwrap_or(false) {}
        if let Err(error) = self.store_counts(true) {
            tracing::warn!(%error, "the counts of the last minute could not be stored");
        }
        if let Err(error) = self.deliver.destinations.store_uses(true) {
            tracing::warn!(%error, "when credentials were last used could not be stored");
        }
    }

    /// Resumes or ends effects that were claimed and left. Those of the archive have a thread of their own, and what was
    /// lost with a master key stays until a person has been told.
    fn take_left_effects(&mut self) -> Result<()> {
        for claim in self.rotation.claims().left(&EffectKind::OF_UPKEEP)? {
            match claim.kind() {
                EffectKind::MasterKeyRotate => self.master_key.take(claim),
                EffectKind::CredentialRotate => self.rotation.end_cut_short(claim)?,
                _ => self.rotation.claims().end_cut_short(claim)?,
            }
        }
        Ok(())
    }

    fn settle_again(&self) {
        let waiting: Vec<Arc<AttemptReport>> = self.unsettled.try_iter().collect();
        for report in waiting {
            self.deliver.settle(report);
        }
    }

    fn store_counts(&self, is_end: bool) -> Result<()> {
        let recent = &self.deliver.counts.recent;
        let history = &self.deliver.counts.history;
        let unstored = recent.to_store(is_end);
        if unstored.is_some() || history.is_crowded() {
            history.store(&self.env.store, self.env.clock.wall())?;
        }
        let Some(unstored) = unstored else { return Ok(()) };
        let until = unstored.until;
        let span = recent.span();
        let seen_at = if is_end { self.env.clock.wall() } else { recent::start_of(until) };
        let owners =
            self.env.store.read(|tx| subscriptions::owners(tx, &unstored.subscriptions()))?;
        let counted = unstored.by_tenant(&owners);
        for some in unstored.attempts.chunks(usize::try_from(MAX_ROWS).unwrap_or(1)) {
            let some = some.to_vec();
            let run = move |tx: &WriteTx<'_>| runs::keep_attempts(tx, &some);
            self.env.store.writer().write(Queue::Upkeep, run)?;
        }
        for some in counted.chunks(usize::try_from(MAX_ROWS).unwrap_or(1)) {
            let some = some.to_vec();
            let run = move |tx: &WriteTx<'_>| runs::keep_minutes(tx, &some);
            self.env.store.writer().write(Queue::Upkeep, run)?;
        }
        let run = move |tx: &WriteTx<'_>| runs::see(tx, seen_at, &span);
        self.env.store.writer().write(Queue::Upkeep, run)?;
        recent.stored(until);
        Ok(())
    }

    fn check_clock(&mut self) -> Result<()> {
        if let ClockLook::Moved(step_ms) = self.site.clock_watch.look()? {
            self.site.are_due_times_suspect = true;
            self.site.postponing.follow(step_ms);
        }
        Ok(())
    }

    fn end_holds(&mut self) -> Result<()> {
        let now = self.env.clock.now();
        if self.env.store.read(|tx| holds::any_over(tx, now))? {
            let at = self.env.clock.wall();
            let run = move |tx: &WriteTx<'_>| settlement::end_over(tx, now, at, MAX_ROWS);
            self.env.store.writer().write(Queue::Upkeep, run)?;
        }
        Ok(())
    }

    fn trim_past_holds(&mut self) -> Result<()> {
        let Some(now) = self.env.clock.sure_now() else { return Ok(()) };
        let full = usize::try_from(MAX_ROWS).unwrap_or(0);
        let run = move |tx: &WriteTx<'_>| past_holds::trim(tx, now, MAX_ROWS);
        while self.env.store.read(|tx| past_holds::is_over(tx, now))?
            && self.env.store.writer().write(Queue::Upkeep, run)? >= full
        {}
        Ok(())
    }

    /// Reads from new payloads what the search finds in them.
    fn find_values(&mut self) -> Result<()> {
        let mut is_new = false;
        for _ in 0..MAX_READS {
            let next = self.env.store.snapshot(|tx| search_values::next(tx, EVENTS_READ))?;
            let Some((found, upto)) = next else { break };
            let keep = move |tx: &WriteTx<'_>| search_values::keep(tx, &found, upto);
            self.env.store.writer().write(Queue::Upkeep, keep)?;
            is_new = true;
        }
        if is_new && self.env.store.read(search_values::is_over)? {
            self.env.store.writer().write(Queue::Upkeep, search_values::trim)?;
        }
        Ok(())
    }

    fn end_without_dead(&mut self) -> Result<()> {
        if !self.env.store.read(|tx| escalations::without_dead(tx, 1))?.is_empty() {
            let at = self.env.clock.wall();
            let run = move |tx: &WriteTx<'_>| escalations::end_without_dead(tx, MAX_ROWS, at);
            self.env.store.writer().write(Queue::Upkeep, run)?;
        }
        Ok(())
    }

    fn end_waits(&mut self) -> Result<()> {
        let is_new =
            self.env.clock.monotonic().saturating_sub(self.site.started_at) < CONFIRM_GRACE;
        if is_new { Ok(()) } else { self.confirmations.expire() }
    }

    fn expire_idempotency_keys(&mut self) -> Result<()> {
        let Some(now) = self.env.clock.sure_now() else { return Ok(()) };
        // A read is cheap; the write transaction is only begun when a key has expired.
        if !self.env.store.read(|tx| idempotency_keys::any_expired(tx, now))? {
            return Ok(());
        }
        // Repeated until none is left, so that the table cannot grow faster than it is cleaned.
        let full = usize::try_from(MAX_ROWS).unwrap_or(0);
        let run = move |tx: &WriteTx<'_>| idempotency_keys::expire(tx, now, MAX_ROWS);
        while self.env.store.writer().write(Queue::Upkeep, run)? == full {}
        Ok(())
    }

    fn clamp_due_times(&mut self) -> Result<()> {
        if !self.site.are_due_times_suspect {
            return Ok(());
        }
        for subscription in self.env.store.read(subscriptions::live)? {
            let seq = subscription.seq;
            loop {
                // The time is read in the transaction: an attempt settled in it may be newer than this job.
                let clock = self.env.clock.clone();
                let run = move |tx: &WriteTx<'_>| {
                    deliveries::clamp_due_times(tx, seq, clock.now(), MAX_ROWS)
                };
                let moved = self.env.store.writer().write(Queue::Upkeep, run)?;
                if moved < usize::try_from(MAX_ROWS).unwrap_or(usize::MAX) {
                    break;
                }
            }
        }
        loop {
            let clock = self.env.clock.clone();
            let run = move |tx: &WriteTx<'_>| confirmations::clamp(tx, clock.now(), MAX_ROWS);
            if self.env.store.writer().write(Queue::Upkeep, run)? == 0 {
                break;
            }
        }
        loop {
            let clock = self.env.clock.clone();
            let run = move |tx: &WriteTx<'_>| idempotency_keys::clamp(tx, clock.now(), MAX_ROWS);
            if self.env.store.writer().write(Queue::Upkeep, run)? == 0 {
                break;
            }
        }
        let at = self.env.clock.wall();
        self.env.store.writer().write(Queue::Upkeep, move |tx| subscriptions::clamp(tx, at))?;
        if self.env.store.read(holds::any)? {
            let clock = self.env.clock.clone();
            self.env
                .store
                .writer()
                .write(Queue::Upkeep, move |tx| holds::clamp(tx, clock.now()))?;
        }
        self.site.are_due_times_suspect = false;
        Ok(())
    }
}
