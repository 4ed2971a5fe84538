//! How each subscription is called: its row, its secret opened, its schedule worked out; kept in memory
//! until a subscription changes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::domain::retry::{self, Schedule};
use crate::domain::signature::SigningSecret;
use crate::domain::subscription::{Policy, Subscription};
use crate::id::SubscriptionSeq;
use crate::keyring::Keyring;
use crate::store::{Store, credentials, subscriptions};

/// What holds where a subscription does not say.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// Waits between attempts, and how many attempts.
    pub schedule: Schedule,
    /// Time for a whole attempt.
    pub timeout: Duration,
}

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
    key: Arc<Keyring>,
    defaults: Defaults,
    generation: AtomicU64,
    open: RwLock<HashMap<SubscriptionSeq, Arc<Destination>>>,
}

impl Destinations {
    /// None opened yet.
    pub fn new(store: Store, key: Arc<Keyring>, defaults: Defaults) -> Self {
        Self { store, key, defaults, generation: AtomicU64::new(0), open: RwLock::default() }
    }

    /// Forgets them; called after a commit that changed a subscription.
    pub fn forget(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.open.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// How a subscription is called.
    ///
    /// # Errors
    /// Why it cannot be, for a person.
    pub fn of(&self, subscription: SubscriptionSeq) -> Result<Arc<Destination>, String> {
        let kept =
            self.open.read().unwrap_or_else(PoisonError::into_inner).get(&subscription).cloned();
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let generation = self.generation.load(Ordering::SeqCst);
        let fresh = Arc::new(self.read(subscription)?);
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        // What was read before a change must not be kept after it.
        if self.generation.load(Ordering::SeqCst) == generation {
            open.insert(subscription, Arc::clone(&fresh));
        }
        Ok(fresh)
    }

    fn read(&self, seq: SubscriptionSeq) -> Result<Destination, String> {
        let (subscription, credential) = self
            .store
            .snapshot(|tx| {
                Ok((subscriptions::by_seq(tx, seq)?, credentials::of_subscription(tx, seq)?))
            })
            .map_err(|error| error.to_string())?;
        let subscription = subscription.ok_or("the subscription was deleted")?;
        let credential = credential.ok_or("the subscription has no signing secret")?;
        let context = credentials::context(&credential.id);
        let opened = self.key.open(&context, &credential.sealed).map_err(|error| {
            format!("the signing secret {} cannot be opened: {error}", credential.id)
        })?;
        let text = std::str::from_utf8(opened.expose())
            .map_err(|error| format!("the signing secret {}: {error}", credential.id))?;
        let secret = SigningSecret::parse(text).map_err(|error| error.to_string())?;
        let (schedule, timeout) = effective(&subscription.new.policy, &self.defaults)?;
        Ok(Destination { subscription, schedule, timeout, secret, key_id: credential.id })
    }
}

/// A policy laid over the defaults.
///
/// # Errors
/// Which of its values cannot be used.
pub fn effective(policy: &Policy, defaults: &Defaults) -> Result<(Schedule, Duration), String> {
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
