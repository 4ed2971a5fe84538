//! What happened in the last hour, in memory: counts by minute, and the latest attempts of each subscription.
//!
//! Everything is bounded: the hour, the tenants, the subscriptions and their attempts. Upkeep stores the counts of each
//! minute that is over, one row for a tenant, and the latest attempts of each subscription that had one, so that a restart
//! goes on with them. A kill loses the counts of the minute that runs, which is a gap then ([`crate::model::history`]). Not here: counters since the start
//! ([`super::counts`]).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::attempt::{Attempt, RecentAttempt};
use crate::pipeline::prelude::*;
use crate::store::runs::{Counted, LatestAttempts};

/// How many minutes are kept.
pub const MINUTES: usize = 60;
/// How many attempts of a subscription are kept.
const MAX_ATTEMPTS: usize = 50;
/// How many subscriptions are kept. Those without an attempt for an hour make room; further ones are left out.
const MAX_SUBSCRIPTIONS: usize = 1_000;
/// How many tenants' arrivals are kept, and how many tenants' minutes are stored: the busiest. Further ones are left out.
const MAX_TENANTS: usize = 100;
/// The upper bounds of the latency buckets, in milliseconds; the last bucket has none.
pub const LATENCY_BOUNDS_MS: [u32; 7] = [10, 50, 100, 500, 1_000, 5_000, 30_000];
/// The number of latency buckets.
pub const BUCKETS: usize = LATENCY_BOUNDS_MS.len() + 1;
const MINUTE_MS: i64 = 60_000;

/// The counts of one minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Minute {
    /// Events that were stored for the first time.
    pub events: u32,
    /// Webhooks that were stored for the first time.
    pub webhooks: u32,
    /// Deliveries that were completed.
    pub delivered: u32,
    /// Attempts that failed.
    pub failed: u32,
    /// How many requests took how long, by bucket. Work of pull consumers is not counted here.
    pub latencies: [u32; BUCKETS],
}

impl Minute {
    /// How much happened.
    fn sum(&self) -> u64 {
        [self.events, self.webhooks, self.delivered, self.failed].into_iter().map(u64::from).sum()
    }

    fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.events, other.events),
            (&mut self.webhooks, other.webhooks),
            (&mut self.delivered, other.delivered),
            (&mut self.failed, other.failed),
        ];
        let latencies = self.latencies.iter_mut().zip(other.latencies);
        for (sum, more) in pairs.into_iter().chain(latencies) {
            *sum = sum.saturating_add(more);
        }
    }
}

/// The minutes that had something, the oldest first, by their number since 1970.
#[derive(Debug, Default)]
struct Hour(VecDeque<(i64, Minute)>);

impl Hour {
    /// Changes the counts of a minute, and forgets what is older than an hour. If the clock was set back, the latest
    /// minute counts.
    fn change<T>(&mut self, minute: i64, change: impl FnOnce(&mut Minute) -> T) -> Option<T> {
        let first = oldest(minute);
        while self.0.front().is_some_and(|(number, _)| *number < first) {
            self.0.pop_front();
        }
        if self.0.back().is_none_or(|(latest, _)| *latest < minute) {
            self.0.push_back((minute, Minute::default()));
        }
        self.0.back_mut().map(|(_, counts)| change(counts))
    }

    fn add_to(&self, sums: &mut [Minute], now: i64) {
        for (number, minute) in &self.0 {
            let place =
                number.checked_sub(oldest(now)).and_then(|place| usize::try_from(place).ok());
            if let Some(sum) = place.and_then(|place| sums.get_mut(place)) {
                sum.add(minute);
            }
        }
    }
}

/// When a minute begins.
pub const fn start_of(minute: i64) -> Timestamp {
    Timestamp::from_ms(minute.saturating_mul(MINUTE_MS))
}

/// The number of the oldest minute that is kept.
fn oldest(now: i64) -> i64 {
    now.saturating_sub(i64::try_from(MINUTES).unwrap_or(i64::MAX)).saturating_add(1)
}

#[derive(Debug, Default)]
struct OfSubscription {
    hour: Hour,
    attempts: VecDeque<RecentAttempt>,
}

#[derive(Debug, Default)]
struct LastHour {
    arrivals: HashMap<String, Hour>,
    subscriptions: HashMap<SubscriptionSeq, OfSubscription>,
    left_out: u64,
    /// The minute in which idle subscriptions were removed last.
    cleared: i64,
    /// The minutes before this one are stored.
    stored: i64,
}

/// What happened in the last hour.
#[derive(Debug)]
pub struct Recent {
    clock: Clock,
    since: Timestamp,
    kept: Mutex<LastHour>,
}

/// Counts that are not stored yet, each with its minute, of tenants' arrivals and of subscriptions; and latest attempts.
#[derive(Debug)]
pub struct Unstored {
    /// Of the minutes before this one.
    pub until: i64,
    arrivals: Vec<(i64, String, Minute)>,
    subscriptions: Vec<(i64, SubscriptionSeq, Minute)>,
    /// The latest attempts of the subscriptions that have counts.
    pub attempts: Vec<LatestAttempts>,
}

impl Unstored {
    /// The subscriptions that have counts.
    pub fn subscriptions(&self) -> BTreeSet<SubscriptionSeq> {
        self.subscriptions.iter().map(|(_, seq, _)| *seq).collect()
    }

    /// One row for a minute and a tenant; `owners` has the tenants of the subscriptions.
    pub fn by_tenant(&self, owners: &HashMap<SubscriptionSeq, String>) -> Vec<Counted> {
        let mut sums = BTreeMap::<i64, HashMap<String, Minute>>::new();
        let delivered = self.subscriptions.iter();
        let delivered = delivered
            .filter_map(|(minute, seq, counts)| Some((*minute, owners.get(seq)?.clone(), *counts)));
        for (minute, tenant, counts) in self.arrivals.iter().cloned().chain(delivered) {
            sums.entry(minute).or_default().entry(tenant).or_default().add(&counts);
        }
        let busiest = |(minute, tenants): (i64, HashMap<String, Minute>)| {
            let mut tenants: Vec<_> = tenants.into_iter().collect();
            tenants.sort_unstable_by_key(|(_, counts)| std::cmp::Reverse(counts.sum()));
            tenants.truncate(MAX_TENANTS);
            tenants.into_iter().map(move |(tenant, counts)| {
                let counts = serde_json::to_string(&counts).unwrap_or_default();
                Counted { minute, tenant, counts }
            })
        };
        sums.into_iter().flat_map(busiest).collect()
    }
}

/// A reading for one tenant.
#[derive(Debug)]
pub struct Reading {
    /// When counting began: the start of the process, or the oldest minute that an earlier one has stored.
    pub since: Timestamp,
    /// When the first minute begins.
    pub first: Timestamp,
    /// The counts of [`MINUTES`] minutes, the oldest first; the last one is not over.
    pub minutes: Vec<Minute>,
    /// The latest attempts by subscription, the newest first.
    pub attempts: Vec<(SubscriptionSeq, Vec<RecentAttempt>)>,
    /// Attempts and arrivals of all tenants that are not counted, because there are too many subscriptions or tenants.
    pub left_out: u64,
}

impl Recent {
    /// Nothing has happened yet.
    pub fn new(clock: Clock) -> Self {
        let since = clock.wall();
        Self { clock, since, kept: Mutex::default() }
    }

    /// The oldest and the latest minute that are kept.
    pub fn span(&self) -> RangeInclusive<i64> {
        let now = self.minute();
        oldest(now)..=now
    }

    /// Goes on with what an earlier process has stored, the oldest first.
    #[must_use]
    pub fn after(mut self, stored: Vec<Counted>) -> Self {
        let now = self.minute();
        let kept = self.kept.get_mut();
        kept.stored = now;
        for Counted { minute, tenant, counts } in stored {
            // A row that cannot be read is only missing in a picture.
            let Ok(counts) = serde_json::from_str::<Minute>(&counts) else { continue };
            if kept.arrivals.len() >= MAX_TENANTS && !kept.arrivals.contains_key(&tenant) {
                continue;
            }
            let hour = kept.arrivals.entry(tenant).or_default();
            hour.change(minute, |sums| sums.add(&counts));
            self.since = self.since.min(start_of(minute));
        }
        self
    }

    /// Goes on with the latest attempts that an earlier process has made.
    #[must_use]
    pub fn after_attempts(mut self, stored: Vec<LatestAttempts>) -> Self {
        let subscriptions = &mut self.kept.get_mut().subscriptions;
        for LatestAttempts { subscription, attempts } in stored.into_iter().take(MAX_SUBSCRIPTIONS)
        {
            let attempts = attempts.into_iter().take(MAX_ATTEMPTS).collect();
            let hour = Hour::default();
            subscriptions.insert(subscription, OfSubscription { hour, attempts });
        }
        self
    }

    /// The counts that are not stored yet: of the minutes that are over or, at the end, of all. `None` while no minute is
    /// over.
    pub fn to_store(&self, is_end: bool) -> Option<Unstored> {
        let until = self.minute().saturating_add(i64::from(is_end));
        let kept = self.kept.lock();
        let first = kept.stored;
        if first >= until {
            return None;
        }
        let new = |hour: &Hour| {
            let minutes = hour.0.iter().copied();
            minutes.filter(|(minute, _)| (first..until).contains(minute)).collect::<Vec<_>>()
        };
        let arrivals = kept.arrivals.iter().flat_map(|(tenant, hour)| {
            new(hour).into_iter().map(|(minute, counts)| (minute, tenant.clone(), counts))
        });
        let subscriptions = kept.subscriptions.iter().flat_map(|(seq, of)| {
            new(&of.hour).into_iter().map(|(minute, counts)| (minute, *seq, counts))
        });
        let arrivals = arrivals.collect();
        let subscriptions = subscriptions.collect();
        let attempted = kept.subscriptions.iter();
        let attempted =
            attempted.filter(|(_, of)| !of.attempts.is_empty() && !new(&of.hour).is_empty());
        let attempts = attempted.map(|(seq, of)| LatestAttempts {
            subscription: *seq,
            attempts: of.attempts.iter().copied().collect(),
        });
        let attempts = attempts.collect();
        Some(Unstored { until, arrivals, subscriptions, attempts })
    }

    /// The counts of the minutes before this one are stored.
    pub fn stored(&self, until: i64) {
        self.kept.lock().stored = until;
    }

    fn minute(&self) -> i64 {
        self.clock.wall().ms().div_euclid(MINUTE_MS)
    }

    /// Counts what a tenant accepted: events and webhooks that were stored for the first time.
    pub fn accepted(&self, tenant: &str, events: u32, webhooks: u32) {
        if events == 0 && webhooks == 0 {
            return;
        }
        let minute = self.minute();
        let mut kept = self.kept.lock();
        let is_new = !kept.arrivals.contains_key(tenant);
        if is_new && kept.arrivals.len() >= MAX_TENANTS {
            kept.left_out =
                kept.left_out.saturating_add(u64::from(events.saturating_add(webhooks)));
            return;
        }
        if is_new {
            kept.arrivals.insert(tenant.to_owned(), Hour::default());
        }
        if let Some(hour) = kept.arrivals.get_mut(tenant) {
            hour.change(minute, |m| m.add(&Minute { events, webhooks, ..Minute::default() }));
        }
    }

    /// Counts an attempt; `is_ours` if its latency is that of a request of ours, not of a consumer's work.
    pub fn attempted(
        &self,
        subscription: SubscriptionSeq,
        delivery: DeliverySeq,
        attempt: &Attempt,
        is_ours: bool,
    ) {
        let Attempt { class, http_status, latency_ms, finished_at: at, .. } = *attempt;
        let bucket = LATENCY_BOUNDS_MS.partition_point(|bound| *bound < latency_ms);
        self.note(subscription, |minute| {
            minute.failed = minute.failed.saturating_add(u32::from(!class.is_success()));
            if let Some(count) = minute.latencies.get_mut(bucket).filter(|_| is_ours) {
                *count = count.saturating_add(1);
            }
            Some(RecentAttempt { delivery, at, class, http_status, latency_ms })
        });
    }

    /// Counts a completed delivery.
    pub fn completed(&self, subscription: SubscriptionSeq) {
        self.note(subscription, |minute| {
            minute.delivered = minute.delivered.saturating_add(1);
            None
        });
    }

    fn note(
        &self,
        subscription: SubscriptionSeq,
        count: impl FnOnce(&mut Minute) -> Option<RecentAttempt>,
    ) {
        let minute = self.minute();
        let mut kept = self.kept.lock();
        let is_new = !kept.subscriptions.contains_key(&subscription);
        if is_new && kept.subscriptions.len() >= MAX_SUBSCRIPTIONS {
            // Looks for idle ones once a minute at most.
            if kept.cleared < minute {
                let first = oldest(minute);
                kept.cleared = minute;
                let is_busy =
                    |of: &OfSubscription| of.hour.0.back().is_some_and(|(n, _)| *n >= first);
                kept.subscriptions.retain(|_, of| is_busy(of));
            }
            if kept.subscriptions.len() >= MAX_SUBSCRIPTIONS {
                kept.left_out = kept.left_out.saturating_add(1);
                return;
            }
        }
        let of = kept.subscriptions.entry(subscription).or_default();
        if let Some(attempt) = of.hour.change(minute, count).flatten() {
            of.attempts.truncate(MAX_ATTEMPTS.saturating_sub(1));
            of.attempts.push_front(attempt);
        }
    }

    /// What happened to a tenant, whose subscriptions are given.
    pub fn read(&self, tenant: &str, own: impl Fn(SubscriptionSeq) -> bool) -> Reading {
        let now = self.minute();
        let mut minutes = vec![Minute::default(); MINUTES];
        let mut attempts = Vec::new();
        let kept = self.kept.lock();
        if let Some(hour) = kept.arrivals.get(tenant) {
            hour.add_to(&mut minutes, now);
        }
        for (seq, of) in kept.subscriptions.iter().filter(|(seq, _)| own(**seq)) {
            of.hour.add_to(&mut minutes, now);
            if !of.attempts.is_empty() {
                attempts.push((*seq, of.attempts.iter().copied().collect()));
            }
        }
        let left_out = kept.left_out;
        drop(kept);
        let first = start_of(oldest(now));
        Reading { since: self.since, first, minutes, attempts, left_out }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::clock::{ManualTime, TimeSource};
    use crate::model::outcome::AttemptClass;

    fn attempt(class: AttemptClass, latency_ms: u32) -> Attempt {
        Attempt {
            n: 1,
            started_at: Timestamp::from_secs(0),
            finished_at: Timestamp::from_secs(0),
            url: String::new(),
            class,
            counted: true,
            http_status: Some(200),
            latency_ms,
            ..Attempt::default()
        }
    }

    #[test]
    fn an_hour_later_the_minute_is_gone_and_the_attempts_stay() {
        let hands = ManualTime::at(Timestamp::from_secs(1_000_000));
        let source: Arc<dyn TimeSource> = hands.clone();
        let recent = Recent::new(Clock::from_source(source));
        let subscription = SubscriptionSeq(1);
        let delivery = DeliverySeq(7);
        recent.accepted("default", 3, 1);
        recent.attempted(subscription, delivery, &attempt(AttemptClass::Success, 11), true);
        recent.completed(subscription);
        recent.attempted(subscription, delivery, &attempt(AttemptClass::Transient, 30_001), true);
        let last = *recent.read("default", |_| true).minutes.last().unwrap();
        let latencies = [0, 1, 0, 0, 0, 0, 0, 1];
        assert_eq!(last, Minute { events: 3, webhooks: 1, delivered: 1, failed: 1, latencies });
        assert_eq!(recent.read("other", |_| false).minutes, [Minute::default(); MINUTES]);
        hands.advance(Duration::from_mins(59));
        assert_eq!(recent.read("default", |_| true).minutes[0], last);
        hands.advance(Duration::from_mins(1));
        let reading = recent.read("default", |_| true);
        assert_eq!(reading.minutes, [Minute::default(); MINUTES]);
        assert_eq!(reading.attempts[0].1.len(), 2);
    }

    #[test]
    fn a_minute_is_stored_as_one_row_for_each_of_the_busiest_tenants() {
        let source: Arc<dyn TimeSource> = ManualTime::at(Timestamp::from_secs(1_000_000));
        let recent = Recent::new(Clock::from_source(source));
        recent.accepted("b", 2, 0);
        for n in 0..1_000 {
            recent.completed(SubscriptionSeq(n));
        }
        let unstored = recent.to_store(true).unwrap();
        let until = unstored.until;
        let owner = |seq: SubscriptionSeq| match seq.0 {
            0..700 => "a".to_owned(),
            700..800 => "b".to_owned(),
            other => format!("t-{other}"),
        };
        let owners = unstored.subscriptions().into_iter().map(|seq| (seq, owner(seq))).collect();
        let rows = unstored.by_tenant(&owners);
        assert_eq!(rows.len(), MAX_TENANTS);
        let read = |row: &Counted| serde_json::from_str::<Minute>(&row.counts).unwrap();
        assert_eq!((rows[0].tenant.as_str(), read(&rows[0]).delivered), ("a", 700));
        assert_eq!((rows[1].tenant.as_str(), read(&rows[1]).sum()), ("b", 102));
        assert!(recent.to_store(true).is_some(), "what is not stored is handed out again");
        recent.stored(until);
        assert!(recent.to_store(true).is_none());
    }

    #[test]
    fn what_is_kept_is_bounded_and_says_what_is_left_out() {
        let hands = ManualTime::at(Timestamp::from_secs(1_000_000));
        let source: Arc<dyn TimeSource> = hands.clone();
        let recent = Recent::new(Clock::from_source(source));
        for n in 0..1_010 {
            recent.accepted(&n.to_string(), 1, 0);
            let attempt = attempt(AttemptClass::Success, 1);
            recent.attempted(SubscriptionSeq(n), DeliverySeq(n), &attempt, true);
        }
        for n in 0..60 {
            let attempt = attempt(AttemptClass::Success, 1);
            recent.attempted(SubscriptionSeq(1), DeliverySeq(n), &attempt, false);
        }
        let reading = recent.read("1", |_| true);
        assert_eq!((reading.attempts.len(), reading.left_out), (1_000, 920));
        let (_, of_one) = reading.attempts.iter().find(|(seq, _)| seq.0 == 1).unwrap();
        assert_eq!((of_one.len(), of_one[0].delivery), (50, DeliverySeq(59)));
        hands.advance(Duration::from_hours(1));
        recent.completed(SubscriptionSeq(5_000));
        let reading = recent.read("1", |seq| seq.0 == 5_000);
        let delivered = reading.minutes.last().map(|minute| minute.delivered);
        assert_eq!((delivered, reading.left_out), (Some(1), 920));
    }
}
