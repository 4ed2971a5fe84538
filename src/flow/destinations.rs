//! How each subscription is called: its row, its secret opened, its schedule worked out; kept in memory
//! until a subscription changes.

use std::sync::Arc;
use std::time::Duration;

use crate::cache::Cache;
use crate::domain::retry::{self, Schedule};
use crate::domain::signature::SigningSecret;
use crate::domain::subscription::{Policy, Subscription};
use crate::id::SubscriptionSeq;
use crate::secret::MasterKey;
use crate::settings::{Delivery, Live};
use crate::store::{Store, credentials, subscriptions};

/// Destinations kept open at most; those beyond are opened for each attempt.
const OPEN_MOST: usize = 10_000;

/// A subscription, ready to be called.
#[derive(Debug)]
pub struct Destination {
    /// Its row.
    pub subscription: Subscription,
    /// Its waits and number of attempts.
    pub schedule: Schedule,
    /// Time for a whole attempt.
    pub timeout: Duration,
    /// What its requests are signed with.
    pub secret: SigningSecret,
    /// The credential that is.
    pub key_id: String,
}

/// All of them, opened when they are first needed.
#[derive(Debug)]
pub struct Destinations {
    store: Store,
    key: Arc<MasterKey>,
    settings: Live,
    open: Cache<SubscriptionSeq, Destination>,
}

impl Destinations {
    /// None opened yet.
    pub fn new(store: Store, key: Arc<MasterKey>, settings: Live) -> Self {
        Self { store, key, settings, open: Cache::new(OPEN_MOST) }
    }

    /// Forgets them; called after a commit that changed a subscription, and when the settings changed.
    pub fn forget(&self) {
        self.open.forget();
    }

    /// How a subscription is called.
    ///
    /// # Errors
    /// Why it cannot be, for a person.
    pub fn of(&self, subscription: SubscriptionSeq) -> Result<Arc<Destination>, String> {
        let found = self.open.get(subscription, |seq| self.read(*seq))?;
        found.ok_or_else(|| "the subscription was deleted".to_owned())
    }

    fn read(&self, seq: SubscriptionSeq) -> Result<Option<Destination>, String> {
        let (subscription, credential) = self
            .store
            .snapshot(|tx| {
                Ok((subscriptions::by_seq(tx, seq)?, credentials::of_subscription(tx, seq)?))
            })
            .map_err(|error| error.to_string())?;
        let Some(subscription) = subscription else { return Ok(None) };
        let credential = credential.ok_or("the subscription has no signing secret")?;
        let context = credentials::context(&credential.id);
        let opened = self.key.open(&context, &credential.sealed).map_err(|error| {
            format!("the signing secret {} cannot be opened: {error}", credential.id)
        })?;
        let text = std::str::from_utf8(opened.expose())
            .map_err(|error| format!("the signing secret {}: {error}", credential.id))?;
        let secret = SigningSecret::parse(text).map_err(|error| error.to_string())?;
        let (schedule, timeout) =
            effective(&subscription.new.policy, &self.settings.get().delivery)?;
        Ok(Some(Destination { subscription, schedule, timeout, secret, key_id: credential.id }))
    }
}

/// A policy laid over the settings, which hold where a subscription does not say.
///
/// # Errors
/// Which of its values cannot be used.
pub fn effective(policy: &Policy, defaults: &Delivery) -> Result<(Schedule, Duration), String> {
    let span = |text: &String| {
        humantime::parse_duration(text)
            .map_err(|error| format!("{text:?} is not a span like 5s or 30min: {error}"))
    };
    let mut schedule = match &policy.steps {
        None => defaults.schedule.clone(),
        Some(steps) => {
            let steps = steps.iter().map(span).collect::<Result<Vec<_>, _>>()?;
            Schedule::new(steps, defaults.schedule.max_attempts())
                .map_err(|error| error.to_string())?
        }
    };
    if let Some(most) = policy.max_attempts {
        schedule = schedule.with_max_attempts(most).map_err(|error| error.to_string())?;
    }
    let timeout = policy.timeout.as_ref().map_or(Ok(defaults.timeout), span)?;
    if !retry::TIMEOUTS.contains(&timeout) {
        return Err("timeout must be 100ms to 10min".to_owned());
    }
    if let Some(most) = policy.in_flight_max
        && !(1..=256).contains(&most)
    {
        return Err(format!("in_flight_max is {most}; it must be 1 to 256"));
    }
    Ok((schedule, timeout))
}
