//! How each subscription is called: its row, its secret opened, its schedule worked out; kept in memory
//! until that subscription changes.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::base::cache::Cache;
use crate::base::clock::span;
use crate::base::headers::{BOX, CUSTOM_DATA};
use crate::config::Delivery;
use crate::formats::{self, Formats, add_headers};
use crate::model::delivery::{OutgoingRequest, Schedule, TIMEOUTS, is_custom_data};
use crate::model::event::ALERT_TYPE;
use crate::model::format::TemplateText;
use crate::model::lease::LEASES;
use crate::model::outcome::ClassTable;
use crate::model::rate::Rate;
use crate::model::retry_rules::{BREAKER_AFTER, RetryRules};
use crate::model::subscription::{NewSubscription, Policy, Subscription, Target};
use crate::pipeline::prelude::*;
use crate::store::credential_uses::CredentialUses;
use crate::store::credentials::{self, Credential};
use crate::store::error::Result as StoreResult;
use crate::store::subscriptions;
use crate::store::tx::ChangedSubscriptions;
use crate::targets::http::access::{Access, CredentialCache, used_credentials};

/// How long a target may have to confirm what it accepted.
const CONFIRMED_WITHIN: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_hours(30 * 24);
/// How long a pull consumer has an event to itself, where its subscription does not say.
const LEASE: Duration = Duration::from_mins(1);
/// Bytes of destinations that are kept open. Where there are more, each is opened again now and then.
const MAX_OPEN_BYTES: usize = 64 << 20;
/// Bytes of an open destination without its templates, about.
const OPEN_BYTES: usize = 4096;
/// Bytes of a compiled template for each byte of its text, about.
const COMPILED_PER_BYTE: usize = 24;

/// A subscription, ready to be called.
#[derive(Debug)]
pub struct Destination {
    /// Its row.
    pub subscription: Subscription,
    /// What its deliveries are judged by.
    pub rules: RetryRules,
    /// What its answers mean.
    pub classes: ClassTable,
    /// Time for a whole attempt.
    pub timeout: Duration,
    /// The URL before `/confirm/`, if its deliveries have to be confirmed and our public URL is known.
    pub confirm_base: Option<String>,
    /// How its requests are written.
    pub formats: Formats,
    /// How it proves who it is.
    pub access: Access,
}

impl Destination {
    /// The header fields an event goes out with at that time, in that span of its trace.
    pub fn headers(
        &self,
        outgoing: &OutgoingRequest,
        at: Timestamp,
        span: &str,
    ) -> Vec<(String, String)> {
        let signature = self.access.signatures(&outgoing.webhook_id, at, &outgoing.payload);
        let mut headers = outgoing.standard_fields(at, span, signature);
        headers.extend(outgoing.trace_state().map(|state| ("tracestate".to_owned(), state)));
        let is_named = self.names_events();
        if is_named {
            headers.extend(formats::naming_fields(outgoing));
        }
        let data = outgoing.order.custom_data.as_deref();
        if let Some(data) = data.filter(|data| !data.is_empty() && is_custom_data(data)) {
            headers.push((CUSTOM_DATA.to_owned(), data.to_owned()));
        }
        headers.extend(self.formats.box_name.iter().map(|name| (BOX.to_owned(), name.clone())));
        let own = &self.subscription.new.headers;
        add_headers(&mut headers, own.iter().map(|(name, value)| (name.clone(), value.clone())));
        if is_named {
            add_headers(&mut headers, formats::provider_type_field(outgoing));
        }
        headers
    }

    /// Whether its requests have the header fields that name the event. Records of a topic have the attributes of
    /// `CloudEvents` instead.
    pub fn names_events(&self) -> bool {
        let new = &self.subscription.new;
        matches!(new.target, Target::Http(_)) && new.policy.event_fields.unwrap_or(true)
    }
}

/// All of them, opened when they are first needed.
#[derive(Debug)]
pub struct Destinations {
    env: Env,
    uses: Arc<CredentialUses>,
    open: Cache<SubscriptionSeq, Destination>,
    /// Connections and tokens. They outlive [`Destinations::forget`], until their credential is replaced.
    cached: Mutex<BTreeMap<SubscriptionSeq, CredentialCache>>,
}

impl Destinations {
    /// None opened yet.
    pub fn new(env: Env, uses: Arc<CredentialUses>) -> Self {
        let weigh = |_: &SubscriptionSeq, open: &Destination| {
            let template = open.subscription.new.template.as_ref();
            let texts = template.into_iter().flat_map(TemplateText::texts);
            let bytes = texts.map(str::len).sum::<usize>();
            bytes.saturating_mul(COMPILED_PER_BYTE).saturating_add(OPEN_BYTES)
        };
        let open = Cache::of_bytes(MAX_OPEN_BYTES, weigh);
        Self { env, uses, open, cached: Mutex::default() }
    }

    /// Forgets the destinations of changed subscriptions; called after a commit, and when the settings changed.
    pub fn forget(&self, changed: &ChangedSubscriptions) {
        if changed.all {
            self.open.forget();
        } else {
            changed.these.iter().for_each(|subscription| self.open.forget_one(subscription));
        }
    }

    /// Stores when credentials were last used, if a minute has passed since or `now` says so.
    pub fn store_uses(&self, now: bool) -> StoreResult<()> {
        self.uses.flush(now)
    }

    /// How a subscription is called.
    pub fn of(&self, subscription: SubscriptionSeq) -> Result<Arc<Destination>, String> {
        let found = self.open.get(subscription, |seq| self.read(*seq, None))?;
        found.ok_or_else(|| "the subscription was deleted".to_owned())
    }

    /// How a subscription would be called with one of its credentials in force alone, in place of all others of its
    /// purpose. For verifying one that is `next`.
    pub fn trying(
        &self,
        subscription: SubscriptionSeq,
        credential: &str,
    ) -> Result<Destination, String> {
        let found = self.read(subscription, Some(credential))?;
        found.ok_or_else(|| "the subscription was deleted".to_owned())
    }

    fn read(
        &self,
        seq: SubscriptionSeq,
        chosen: Option<&str>,
    ) -> Result<Option<Destination>, String> {
        let read = self.env.store.snapshot(|tx| {
            let subscription = subscriptions::latest(tx, seq)?;
            let in_force = credentials::in_force_of_subscription(tx, seq)?;
            Ok((subscription, in_force))
        });
        let (subscription, in_force) = read.map_err(|error| error.to_string())?;
        let Some(subscription) = subscription else {
            self.cached.lock().remove(&seq);
            return Ok(None);
        };
        let access = self.access(seq, &used_credentials(&in_force, chosen), chosen.is_some())?;
        let settings = self.env.settings.get();
        let Effective { rules, classes, timeout, .. } =
            effective(&subscription.new, &settings.delivery)?;
        let formats = Formats::of(&subscription.new, self.env.settings.get().r#box.name.clone())?;
        let public =
            settings.listen.public_url.as_deref().filter(|_| rules.confirm_within.is_some());
        let confirm_base = public.map(|url| url.trim_end_matches('/').to_owned());
        Ok(Some(Destination {
            subscription,
            rules,
            classes,
            timeout,
            confirm_base,
            formats,
            access,
        }))
    }

    fn access(
        &self,
        seq: SubscriptionSeq,
        used: &[&Credential],
        is_trial: bool,
    ) -> Result<Access, String> {
        let last_use = self.uses.track(used.iter().map(|one| one.id.clone()).collect());
        let mut caches = self.cached.lock();
        let mut cache = caches.get(&seq).cloned().unwrap_or_default();
        let access = Access::open(used, &self.env.keyring, &mut cache, last_use)?;
        match (is_trial, cache.is_empty()) {
            (true, _) => {}
            (false, true) => drop(caches.remove(&seq)),
            (false, false) => drop(caches.insert(seq, cache)),
        }
        Ok(access)
    }
}

/// The policy that holds for a subscription: its own, and the settings where that does not say.
#[derive(Debug)]
pub struct Effective {
    /// What its deliveries are judged by.
    pub rules: RetryRules,
    /// What its answers mean.
    pub classes: ClassTable,
    /// Time for a whole attempt.
    pub timeout: Duration,
}

/// Waits between the attempts of an alert. The last is repeated.
const ALERT_STEPS: [Duration; 4] = [
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_mins(2),
    Duration::from_mins(5),
];
/// For three days and a half.
const MAX_ALERT_ATTEMPTS: u32 = 1_000;

/// A policy laid over the settings, which hold where a subscription does not say.
pub fn effective(new: &NewSubscription, defaults: &Delivery) -> Result<Effective, String> {
    let policy = &new.policy;
    let is_alert = new.event_types.names(ALERT_TYPE);
    let span = |text: &String| span(text);
    let mut schedule = match &policy.steps {
        None if is_alert => Schedule::new(ALERT_STEPS.to_vec(), MAX_ALERT_ATTEMPTS)
            .map_err(|error| error.to_string())?,
        None => defaults.schedule(),
        Some(steps) => {
            let steps = steps.iter().map(span).collect::<Result<Vec<_>, _>>()?;
            Schedule::new(steps, defaults.max_attempts).map_err(|error| error.to_string())?
        }
    };
    if let Some(most) = policy.max_attempts {
        schedule = schedule.with_max_attempts(most).map_err(|error| error.to_string())?;
    }
    let timeout = policy.timeout.as_ref().map_or(Ok(defaults.timeout), span)?;
    if !TIMEOUTS.contains(&timeout) {
        return Err("timeout must be 100ms to 10min".to_owned());
    }
    if let Some(most) = policy.in_flight_max
        && !(1..=256).contains(&most)
    {
        return Err(format!("in_flight_max is {most}; it must be 1 to 256"));
    }
    // An alert is tried on its own steps, and does not wait for probes.
    let breaker_after = policy.breaker_after.unwrap_or(if is_alert { 0 } else { BREAKER_AFTER });
    if breaker_after > 100_000 {
        return Err(format!("breaker_after is {breaker_after}; it must be 0 to 100000"));
    }
    let classes = ClassTable::new(&policy.classes)?;
    policy.rate.as_deref().map(Rate::parse).transpose()?;
    let confirm_within = policy.confirm_within.as_ref().map(span).transpose()?;
    if let Some(within) = confirm_within
        && !CONFIRMED_WITHIN.contains(&within)
    {
        return Err("confirm_within must be 1s to 30days".to_owned());
    }
    let park_after = new.order.parks_after();
    Ok(Effective {
        rules: RetryRules { schedule, breaker_after, park_after, confirm_within },
        classes,
        timeout,
    })
}

/// How long a pull consumer has an event to itself.
pub fn lease_time(policy: &Policy) -> Result<Duration, String> {
    let Some(text) = &policy.lease else { return Ok(LEASE) };
    lease_of(text)
}

/// A lease time from its text.
pub fn lease_of(text: &str) -> Result<Duration, String> {
    let span = span(text).map_err(|why| format!("lease {why}"))?;
    if LEASES.contains(&span) {
        return Ok(span);
    }
    Err(format!("lease is {text}; it must be 1s to 12h"))
}
