//! Confirmations: what a target reports of a delivery that it has accepted, and the end of its time to do so.
//!
//! Not here: what follows (`store::confirmations`), and how a report is read and answered (`api::confirmations`).

use crate::keys::{AttemptKey, ConfirmTokens, PresentedToken};
use crate::model::delivery::{DeliveryState, OutgoingRequest};
use crate::model::lease::LeaseOutcome;
use crate::model::retry_rules::RetryRules;
use crate::model::settlement::Settlement;
use crate::pipeline::consume::clean_reason;
use crate::pipeline::counts::Counts;
use crate::pipeline::destinations::{Destination, effective};
use crate::pipeline::prelude::*;
use crate::store::consuming::Consumer;
use crate::store::leases::{self, Held};
use crate::store::{confirmations, deliveries, subscriptions};

/// The path of these URLs, before the token.
pub const CONFIRM_PATH: &str = "/confirm/";
/// Deliveries whose time is ended in one transaction.
const MAX_ROWS: u32 = 200;

/// Takes confirmations.
#[derive(Clone)]
pub struct Confirmations {
    /// The environment.
    pub env: Env,
    /// What was counted.
    pub counts: Arc<Counts>,
    /// Verifies the tokens of confirm URLs.
    pub tokens: ConfirmTokens,
}

/// How a confirmation names its delivery.
#[derive(Clone, Copy, Debug)]
pub enum Presented<'a> {
    /// By a confirm URL.
    Token(&'a PresentedToken),
    /// By its name, with a token of the API.
    ByName {
        /// Whether an attempt was in flight when the confirmation came.
        is_early: bool,
    },
}

/// What became of a confirmation.
#[derive(Debug)]
pub enum Confirmed {
    /// It is stored.
    Stored(Box<Settlement>),
    /// It was stored before.
    Again,
    /// The delivery does not wait for it. Holds the reason as text.
    Refused(String),
    /// The attempt is not settled yet.
    TooEarly,
    /// There is no such delivery, or it does not wait for the confirm URL.
    Missing,
}

/// The confirm URL of an attempt; `None` if it has none.
pub fn url(
    tokens: &ConfirmTokens,
    destination: &Destination,
    outgoing: &OutgoingRequest,
) -> Option<String> {
    let OutgoingRequest { delivery, run_no, attempt_count, event_id, .. } = outgoing;
    // A test of a subscription has no delivery.
    let base = destination.confirm_base.as_deref().filter(|_| delivery.0 > 0)?;
    let n = attempt_count.saturating_add(1);
    let attempt = AttemptKey { delivery: *delivery, run_no: *run_no, n };
    Some(format!("{base}{CONFIRM_PATH}{}", tokens.token(attempt, event_id)))
}

impl Confirmations {
    /// The delivery that a confirm URL names, if its token is ours and its attempt waits or is not settled yet.
    pub fn of_token(&self, token: &str) -> Result<Option<(PresentedToken, Held)>> {
        let Some(presented) = PresentedToken::parse(token) else { return Ok(None) };
        let held = self.env.store.look_up(|tx| leases::any(tx, presented.attempt.delivery))?;
        let held = held.filter(|held| self.has_settled(&presented, held).is_some());
        Ok(held.map(|held| (presented, held)))
    }

    /// Whether the attempt of a confirm URL is settled and waits; `None` if it never will.
    fn has_settled(&self, presented: &PresentedToken, held: &Held) -> Option<bool> {
        let AttemptKey { run_no, n, .. } = presented.attempt;
        let is_ours = self.tokens.verify(presented, &held.event_id) && held.run_no == run_no;
        match held.state {
            DeliveryState::Waiting if is_ours && held.attempt_count == n => Some(true),
            // The target is quicker than our COMMIT of its answer.
            DeliveryState::Pending if is_ours && held.attempt_count.saturating_add(1) == n => {
                Some(false)
            }
            _ => None,
        }
    }

    /// Removes the event's sealed data, and what the policy's detectors find, from the reason of a report.
    pub fn cleaned(&self, held: &Held, mut outcome: LeaseOutcome) -> Result<LeaseOutcome> {
        if let LeaseOutcome::Failed { reason, .. }
        | LeaseOutcome::Away { reason, .. }
        | LeaseOutcome::Refused { reason } = &mut outcome
        {
            let of = (held.tenant.as_str(), held.event_id.as_str());
            let outgoing = self
                .env
                .store
                .read(|tx| deliveries::outgoing_of_event(tx, held.subscription, of))?;
            let open = |mut outgoing| self.env.privacy.open_sealed(&mut outgoing);
            let opened = outgoing.map(open).transpose();
            clean_reason(opened, held.delivery, reason)?;
        }
        Ok(outcome)
    }

    /// Stores a confirmation of a delivery; one by a confirm URL only if its attempt still waits.
    pub fn settle(
        &self,
        tx: &WriteTx<'_>,
        delivery: DeliverySeq,
        presented: Presented<'_>,
        outcome: &LeaseOutcome,
    ) -> Result<Confirmed> {
        let Some(held) = leases::any(tx, delivery)? else { return Ok(Confirmed::Missing) };
        let is_early = match presented {
            Presented::ByName { is_early } => is_early && held.state == DeliveryState::Pending,
            Presented::Token(token) => match self.has_settled(token, &held) {
                Some(has_settled) => !has_settled,
                None => return Ok(Confirmed::Missing),
            },
        };
        match held.state {
            DeliveryState::Waiting => {
                Ok(Confirmed::Stored(Box::new(self.store_one(tx, &held, outcome)?)))
            }
            // Asked before repetition: the attempt before this one may have failed for the same reason.
            _ if is_early => Ok(Confirmed::TooEarly),
            _ if self.is_repeated(tx, &held, outcome)? => Ok(Confirmed::Again),
            _ => Ok(Confirmed::Refused(confirmations::why_not(tx, &held)?)),
        }
    }

    /// Whether this confirmation was stored before. `ok` leaves no trace of its own, so it counts as repeated only where
    /// the subscription asks for confirmations.
    fn is_repeated(&self, tx: &WriteTx<'_>, held: &Held, outcome: &LeaseOutcome) -> Result<bool> {
        let is_asked = !matches!(outcome, LeaseOutcome::Done)
            || self.rules(tx, held.subscription)?.confirm_within.is_some();
        Ok(is_asked && confirmations::is_repeated(tx, held, outcome)?)
    }

    fn store_one(
        &self,
        tx: &WriteTx<'_>,
        held: &Held,
        outcome: &LeaseOutcome,
    ) -> Result<Settlement> {
        let subscription = held.subscription;
        let own = subscriptions::routes(tx)?.get(subscription);
        let target = Consumer {
            subscription,
            url: String::new(),
            rules: self.rules(tx, subscription)?,
            latest_only: own.is_some_and(|found| found.new.order.latest_only),
            now: self.env.clock.now(),
            wall: self.env.clock.wall(),
        };
        confirmations::settle(tx, held, &target, outcome, &*self.env.draw)
    }

    /// A subscription's rules; those of the settings if its own can no longer be read.
    fn rules(&self, tx: &WriteTx<'_>, subscription: SubscriptionSeq) -> Result<RetryRules> {
        let defaults = &self.env.settings.get().delivery;
        let own = subscriptions::routes(tx)?.get(subscription);
        let own = own.and_then(|found| effective(&found.new, defaults).ok());
        let default = || RetryRules { schedule: defaults.schedule(), ..RetryRules::default() };
        Ok(own.map_or_else(default, |effective| effective.rules))
    }

    /// Ends the waits whose time is over, each as a failed attempt.
    pub fn expire(&self) -> Result<()> {
        loop {
            let now = self.env.clock.now();
            let over = self.env.store.read(|tx| confirmations::over(tx, now, MAX_ROWS))?;
            let confirm = self.clone();
            if over.is_empty() {
                return Ok(());
            }
            let ended = self.env.store.writer().write(Queue::Upkeep, move |tx: &WriteTx<'_>| {
                confirm.expire_these(tx, &over, now)
            })?;
            if ended.is_empty() {
                return Ok(());
            }
            for settlement in ended {
                self.counts.confirmed(&settlement);
            }
        }
    }

    fn expire_these(
        &self,
        tx: &WriteTx<'_>,
        over: &[DeliverySeq],
        now: Timestamp,
    ) -> Result<Vec<Settlement>> {
        let mut ended = Vec::new();
        for delivery in over {
            // A damaged row must not keep the others from being ended.
            match tx.in_savepoint(|| self.expire_one(tx, *delivery, now))? {
                Ok(done) => ended.extend(done),
                Err(error) if error.concerns_all() => return Err(error),
                Err(error) => {
                    tracing::error!(%error, %delivery, "a wait for a confirmation cannot be ended");
                }
            }
        }
        Ok(ended)
    }

    fn expire_one(
        &self,
        tx: &WriteTx<'_>,
        delivery: DeliverySeq,
        now: Timestamp,
    ) -> Result<Option<Settlement>> {
        let is_over = |held: &Held| held.confirm_until.is_some_and(|until| until <= now);
        // It may have been confirmed since it was read.
        let Some(held) = leases::any(tx, delivery)?.filter(is_over) else { return Ok(None) };
        let reason = format!("not confirmed within {}", humantime::format_duration(held.delay));
        let outcome = LeaseOutcome::Failed { reason, wait: None, counted: true };
        self.store_one(tx, &held, &outcome).map(Some)
    }
}
