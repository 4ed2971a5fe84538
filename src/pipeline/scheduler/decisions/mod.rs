//! Decides which delivery is sent next: a state machine without SQL, clock, randomness, bodies or secrets.
//!
//! It keeps a *window* of due deliveries per subscription and the set of deliveries in hand. A delivery is in hand
//! from the moment it is fetched until its attempt is settled, that is committed. If it were released when the request
//! ends, the next fetch could read it as still due and send it twice.
//!
//! Not here: why a delivery fails and when it is due again (`model::delivery`), and the query of what is due
//! (`store::deliveries`).

#[cfg(test)]
mod tests;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use crate::model::failure::REJECTING_AFTER;
use crate::model::hold::Gate;
use crate::model::lane::Places;
use crate::model::outcome::AttemptClass;
use crate::model::rate::{Bucket, Rate};
use crate::pipeline::prelude::*;
use crate::store::deliveries::Due;
use crate::store::tx::Settled;

/// Rows fetched beyond what may be in flight: enough that a fetch is rare, few enough to be cheap.
const WINDOW_ROWS: u32 = 64;
/// A window is filled again when it holds this many or fewer.
const WINDOW_LOW: usize = 16;
/// While more deliveries of one subscription than this are in hand, no more are fetched.
const MAX_UNSETTLED: usize = 2048;
/// An endpoint hangs if it takes this long, or half of its time limit if that is shorter.
const HANGS_FROM: Duration = Duration::from_secs(5);
/// A subscription may exceed its cap only while it answers faster than this.
const FAST_ENOUGH: Duration = Duration::from_secs(1);
/// Requests in flight when the site comes back online; doubled every [`RAMP_STEP`].
const RAMP_FROM: usize = 2;
const RAMP_STEP: Duration = Duration::from_secs(1);
/// Requests of a subscription, under way or refused, until its refusals hold it.
#[expect(clippy::as_conversions, reason = "no other conversion is constant")]
const BRAKED_AT: usize = REJECTING_AFTER as usize;
/// A tenant may call another new endpoint while it has fewer than this many times the deliverers that are left for them.
const NEW_TIMES: usize = 3;
/// Time limit of a new endpoint's first request, where many new ones of its tenant are called. An endpoint that answers
/// within it is reached in seconds, behind however many that hang.
pub const FIRST_TRY: Duration = Duration::from_secs(1);
/// The part of the deliverers that may wait for a tenant's new or hanging endpoints before first requests are cut short. For
/// all tenants together it is half.
const UNCUT_PART: usize = 8;
/// Latencies remembered per subscription.
const LATENCIES_KEPT: usize = 20;

/// How long an endpoint's last request took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// A short time, whatever the answer was.
    Prompt,
    /// There was no request yet.
    #[default]
    Unknown,
    /// At least five seconds, or at least half of its time limit.
    Hangs,
}

/// How a subscription may be called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests in flight at once.
    pub cap: u32,
    /// Whether a person set the cap: then even a fast endpoint may not exceed it.
    pub is_hard: bool,
    /// The highest rate of requests, if there is one.
    pub rate: Option<Rate>,
    /// What its holds allow.
    pub gate: Gate,
    /// Whether its deliveries may be in funnels.
    pub has_funnels: bool,
    /// Whether its first request may be cut short: it has an HTTP target, and may be sent twice.
    pub can_be_cut: bool,
}

/// An input of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A subscription was made or changed.
    SubscriptionChanged {
        /// Which.
        subscription: SubscriptionSeq,
        /// How it may be called.
        limits: Limits,
        /// Its tenant; read the first time only.
        tenant: String,
        /// The pace of its endpoint, by its row; read the first time only.
        pace: Pace,
    },
    /// A subscription was deleted.
    SubscriptionGone(SubscriptionSeq),
    /// The holds of a subscription have changed.
    GateChanged {
        /// Which.
        subscription: SubscriptionSeq,
        /// What its holds allow now.
        gate: Gate,
    },
    /// The site is online again. Waiting deliveries must not start all at once.
    LineIsBack,
    /// A subscription may have something new to send.
    Woken(SubscriptionSeq),
    /// The answer to [`Command::Fetch`].
    Fetched {
        /// Its subscription.
        subscription: SubscriptionSeq,
        /// The due deliveries, oldest first.
        rows: Vec<Due>,
        /// Whether there may be more than was asked for.
        more: bool,
        /// When the next delivery that is not due yet becomes due.
        next_due: Option<Timestamp>,
    },
    /// A deliverer is idle again.
    Finished {
        /// Whose request it was.
        subscription: SubscriptionSeq,
        /// How long it took.
        latency: Duration,
        /// The time limit; `None` where nothing was sent.
        limit: Option<Duration>,
        /// What came of the attempt, if there was one.
        class: Option<AttemptClass>,
    },
    /// The outcome of an attempt is committed.
    Settled(Settled),
    /// An attempt was not made, for a reason on our side. Its row stays due.
    Reschedule {
        /// Which delivery.
        delivery: DeliverySeq,
        /// Its subscription.
        subscription: SubscriptionSeq,
        /// It is not attempted before this time.
        until: Timestamp,
        /// Whether the reason holds for all deliveries of the subscription.
        all: bool,
    },
    /// Time has passed.
    Tick,
    /// Start nothing more.
    Stop,
}

/// What the machine asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read what is due, and answer with [`Input::Fetched`].
    Fetch {
        /// Its subscription.
        subscription: SubscriptionSeq,
        /// How many rows at most.
        limit: u32,
        /// Funnels that are in hand: their deliveries are left out.
        taken: Vec<i64>,
    },
    /// Hand this to an idle deliverer.
    Start(Assignment),
    /// Nothing is in hand any more, after a stop.
    Drained,
}

/// A delivery to be attempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Which delivery.
    pub delivery: DeliverySeq,
    /// Its subscription.
    pub subscription: SubscriptionSeq,
    /// Whether it is sent despite a hold, to learn whether the target works again.
    pub is_probe: bool,
    /// Whether its time limit is [`FIRST_TRY`]. Without an answer until then it is sent again, and nothing is counted.
    pub is_short: bool,
}

/// The dispatcher's state.
#[derive(Debug)]
pub struct Machine {
    windows: BTreeMap<SubscriptionSeq, Window>,
    in_hand: InHand,
    /// Subscriptions with something ready, each once, in the order of their turns.
    rotation: VecDeque<SubscriptionSeq>,
    /// Subscriptions whose window has changed since rows were last asked for. With a walk over the whole rotation instead, each
    /// delivery of an event to a thousand subscriptions would look at the thousand.
    changed: Vec<SubscriptionSeq>,
    /// When to look at a subscription again, by time.
    waking: BTreeSet<(Timestamp, SubscriptionSeq)>,
    /// What is rescheduled, and until when: one delivery, or all of a subscription (`None`). A single delivery stays in
    /// hand, because its row is still due.
    rescheduled: BTreeSet<(Timestamp, SubscriptionSeq, Option<DeliverySeq>)>,
    deliverers: usize,
    /// Requests in flight, in total and by tenant.
    load: Load,
    tenants: BTreeMap<String, Load>,
    /// Deliveries that were started and are not settled.
    started: HashSet<DeliverySeq>,
    /// Limits requests after the site was offline, until all deliverers may be used again.
    ramp: Option<Ramp>,
    /// The time of the latest step.
    latest: Option<Timestamp>,
    stopping: bool,
}

impl Machine {
    /// A machine for this many deliverers.
    pub fn new(deliverers: usize) -> Self {
        Self {
            windows: BTreeMap::new(),
            in_hand: InHand::default(),
            rotation: VecDeque::new(),
            changed: Vec::new(),
            waking: BTreeSet::new(),
            rescheduled: BTreeSet::new(),
            deliverers,
            load: Load::default(),
            tenants: BTreeMap::new(),
            started: HashSet::new(),
            ramp: None,
            latest: None,
            stopping: false,
        }
    }

    /// Takes one input and returns what to do.
    pub fn step(&mut self, now: Timestamp, input: Input) -> Vec<Command> {
        let mut out = Vec::new();
        if self.latest.replace(now).is_some_and(|latest| now < latest) {
            self.forget_times(now);
        }
        match input {
            Input::SubscriptionChanged { subscription, limits, tenant, pace } => {
                self.tenants.entry(tenant.clone()).or_default();
                let is_braked = pace != Pace::Prompt;
                let new = || Window { tenant, pace, is_braked, ..Window::default() };
                self.windows.entry(subscription).or_insert_with(new);
                self.changed(now, subscription, limits);
            }
            Input::SubscriptionGone(subscription) => {
                let none = Limits { is_hard: true, gate: Gate::Closed, ..Limits::default() };
                self.changed(now, subscription, none);
            }
            Input::GateChanged { subscription, gate } => {
                if let Some(window) = self.windows.get(&subscription) {
                    let limits = Limits { gate, ..window.limits };
                    self.changed(now, subscription, limits);
                }
            }
            Input::LineIsBack => {
                self.ramp = Some(Ramp { most: RAMP_FROM, until: now.plus(RAMP_STEP) });
            }
            Input::Woken(subscription) => self.request_fetch(subscription),
            Input::Fetched { subscription, rows, more, next_due } => {
                self.fetched(now, subscription, rows, more, next_due);
            }
            Input::Finished { subscription, latency, limit, class } => {
                self.change_load(subscription, |window| {
                    window.in_flight = window.in_flight.saturating_sub(1);
                    window.note(latency, limit, class);
                    window.ended_at = Some(now);
                    let is_only = window.in_flight == 0 && window.began_alone;
                    if let (Some(rate), None, true) = (window.limits.rate, limit, is_only) {
                        window.bucket.give_back(rate);
                    }
                });
                self.enqueue(subscription);
            }
            Input::Settled(Settled { delivery, subscription, next_due }) => {
                self.has_ended(delivery, subscription);
                self.release(delivery);
                self.wake_at(subscription, next_due);
            }
            Input::Reschedule { delivery, subscription, until, all } => {
                self.has_ended(delivery, subscription);
                self.reschedule(delivery, subscription, until, all);
            }
            Input::Tick => {}
            Input::Stop => self.stop(),
        }
        self.wake(now);
        self.fill(now, &mut out);
        self.start(now, &mut out);
        // Starting empties windows. Filling them now saves the wait for another input.
        self.fill(now, &mut out);
        if self.stopping && self.load.busy == 0 && self.in_hand.len() == 0 {
            out.push(Command::Drained);
        }
        out
    }

    /// When to give [`Input::Tick`] if no other input comes before.
    pub fn sleep_until(&self) -> Option<Timestamp> {
        let waking = self.waking.first().map(|(at, _)| *at);
        let rescheduled = self.rescheduled.first().map(|(at, _, _)| *at);
        let ramp = self.ramp.map(|ramp| ramp.until);
        waking.into_iter().chain(rescheduled).chain(ramp).min()
    }

    /// Deliveries that are fetched and not settled.
    pub fn in_hand(&self) -> usize {
        self.in_hand.len()
    }

    /// Whether the end of a request may let something begin.
    pub fn wants_ends(&self) -> bool {
        self.stopping || !self.rotation.is_empty()
    }

    /// Whether a request is under way.
    pub fn is_busy(&self) -> bool {
        self.load.busy > 0
    }

    fn changed(&mut self, now: Timestamp, subscription: SubscriptionSeq, limits: Limits) {
        let Some(window) = self.windows.get_mut(&subscription) else { return };
        window.limits = limits;
        // What was dropped is fetched again when the gate opens.
        window.needs_fetch = true;
        if limits.gate.is_probe() || !limits.gate.is_open(now) {
            self.drop_ready(subscription);
        }
        self.wake_at(subscription, limits.gate.opens_at().filter(|at| *at > now));
        // The change may have removed the reason for rescheduling.
        self.end_reschedule(|(_, owner, _)| *owner == subscription);
        self.enqueue(subscription);
    }

    fn reschedule(
        &mut self,
        delivery: DeliverySeq,
        subscription: SubscriptionSeq,
        until: Timestamp,
        all: bool,
    ) {
        if self.stopping {
            return self.release(delivery);
        }
        if !all {
            self.rescheduled.insert((until, subscription, Some(delivery)));
            return;
        }
        self.release(delivery);
        self.drop_ready(subscription);
        let Some(window) = self.windows.get_mut(&subscription) else { return };
        window.needs_fetch = true;
        if !std::mem::replace(&mut window.is_rescheduled, true) {
            self.rescheduled.insert((until, subscription, None));
        }
    }

    /// Forgets every future time and fetches again. After the clock was set back, those times lie too far ahead.
    fn forget_times(&mut self, now: Timestamp) {
        self.ramp = None;
        self.waking.clear();
        self.end_reschedule(|_| true);
        let all: Vec<SubscriptionSeq> = self.windows.keys().copied().collect();
        for subscription in all {
            if let Some(window) = self.windows.get_mut(&subscription) {
                window.next_due = None;
                window.ended_at = None;
                window.bucket = Bucket::default();
                if let Some(rate) = window.limits.rate {
                    window.bucket.take(rate, now);
                }
                let opens_at = window.limits.gate.opens_at();
                self.wake_at(subscription, opens_at.filter(|at| *at > now));
            }
            self.request_fetch(subscription);
        }
    }

    /// Ends the waits of rescheduled deliveries that `which` selects, and fetches again.
    fn end_reschedule(
        &mut self,
        which: impl Fn(&(Timestamp, SubscriptionSeq, Option<DeliverySeq>)) -> bool,
    ) {
        for (_, subscription, delivery) in
            self.rescheduled.extract_if(.., which).collect::<Vec<_>>()
        {
            match (delivery, self.windows.get_mut(&subscription)) {
                (Some(delivery), _) => self.release(delivery),
                (None, Some(window)) => window.is_rescheduled = false,
                (None, None) => {}
            }
            self.request_fetch(subscription);
        }
    }

    fn drop_ready(&mut self, subscription: SubscriptionSeq) {
        let mut refused = Vec::new();
        if let Some(window) = self.windows.get_mut(&subscription) {
            window.in_hand = window.in_hand.saturating_sub(window.ready.len());
            for delivery in window.ready.drain(..) {
                refused.extend(
                    self.in_hand.release(delivery).into_iter().flat_map(|(_, refused)| refused),
                );
            }
        }
        for other in refused {
            self.request_fetch(other);
        }
    }

    fn stop(&mut self) {
        self.stopping = true;
        self.ramp = None;
        let all: Vec<SubscriptionSeq> = self.windows.keys().copied().collect();
        for subscription in all {
            self.drop_ready(subscription);
        }
        self.end_reschedule(|_| true);
    }

    fn request_fetch(&mut self, subscription: SubscriptionSeq) {
        if let Some(window) = self.windows.get_mut(&subscription) {
            window.needs_fetch = true;
        }
        self.enqueue(subscription);
    }

    fn release(&mut self, delivery: DeliverySeq) {
        let Some((owner, refused)) = self.in_hand.release(delivery) else { return };
        if let Some(window) = self.windows.get_mut(&owner) {
            window.in_hand = window.in_hand.saturating_sub(1);
        }
        for other in refused {
            self.request_fetch(other);
        }
        self.enqueue(owner);
    }

    /// A delivery that was started is settled, or was not attempted.
    fn has_ended(&mut self, delivery: DeliverySeq, subscription: SubscriptionSeq) {
        if self.started.remove(&delivery)
            && let Some(window) = self.windows.get_mut(&subscription)
        {
            window.unsettled = window.unsettled.saturating_sub(1);
        }
    }

    fn wake_at(&mut self, subscription: SubscriptionSeq, at: Option<Timestamp>) {
        let (Some(at), Some(window)) = (at, self.windows.get_mut(&subscription)) else { return };
        if window.next_due.is_some_and(|due| due <= at) {
            return;
        }
        if let Some(later) = window.next_due.replace(at) {
            self.waking.remove(&(later, subscription));
        }
        self.waking.insert((at, subscription));
    }

    fn wake(&mut self, now: Timestamp) {
        if self.rescheduled.first().is_some_and(|(at, _, _)| *at <= now) {
            self.end_reschedule(|(at, _, _)| *at <= now);
        }
        while let Some((at, subscription)) = self.waking.first().copied() {
            if at > now {
                break;
            }
            self.waking.remove(&(at, subscription));
            let mut later = None;
            if let Some(window) = self.windows.get_mut(&subscription) {
                window.next_due = None;
                window.needs_fetch = true;
                // Only the earliest time was kept. A later one, of the gate or the rate, is noted now.
                let opens_at = window.limits.gate.opens_at().filter(|at| *at > now);
                later = opens_at.or_else(|| window.rate_opens_at(now));
            }
            self.wake_at(subscription, later);
            self.enqueue(subscription);
        }
    }

    fn fetched(
        &mut self,
        now: Timestamp,
        subscription: SubscriptionSeq,
        rows: Vec<Due>,
        more: bool,
        next_due: Option<Timestamp>,
    ) {
        let stopping = self.stopping;
        let Some(window) = self.windows.get_mut(&subscription) else { return };
        window.fetching = false;
        let (mut has_taken, mut is_refused) = (false, false);
        if window.limits.gate.is_open(now) && !stopping {
            for (delivery, places) in rows {
                if window.limits.gate.is_probe() && window.in_hand > 0 {
                    // The gate may have changed after the rows were asked for.
                    window.needs_fetch = true;
                    break;
                }
                let is_in_hand = self.in_hand.deliveries.contains_key(&delivery);
                if self.in_hand.take(delivery, subscription, places) {
                    window.ready.push_back(delivery);
                    window.in_hand += 1;
                    has_taken = true;
                } else {
                    is_refused |= !is_in_hand;
                }
            }
        } else {
            window.needs_fetch = true;
        }
        // If every place is taken, another fetch would read the same rows: the release of a place asks for it.
        window.needs_fetch |= more && (has_taken || !is_refused);
        self.wake_at(subscription, next_due);
        self.enqueue(subscription);
    }

    /// Puts a subscription that has changed into the rotation, if it has something to start or to fetch.
    fn enqueue(&mut self, subscription: SubscriptionSeq) {
        self.changed.push(subscription);
        let Some(window) = self.windows.get_mut(&subscription) else { return };
        if !window.queued && window.has_work() {
            window.queued = true;
            self.rotation.push_back(subscription);
        }
    }

    /// Asks for rows for the windows that have become low.
    fn fill(&mut self, now: Timestamp, out: &mut Vec<Command>) {
        let changed = std::mem::take(&mut self.changed);
        if self.stopping {
            return;
        }
        for subscription in changed {
            let Some(window) = self.windows.get_mut(&subscription) else { continue };
            if !window.wants_rows(now) {
                continue;
            }
            window.needs_fetch = false;
            window.fetching = true;
            let limit = window.rows_wanted();
            let taken = if window.limits.has_funnels {
                self.in_hand.refuse_funnels(subscription)
            } else {
                Vec::new()
            };
            out.push(Command::Fetch { subscription, limit, taken });
        }
        debug_assert!(!self.is_anybody_overlooked(now), "a subscription waits for rows");
    }

    /// Whether a subscription that has a turn wants rows and has not asked for them.
    fn is_anybody_overlooked(&self, now: Timestamp) -> bool {
        self.rotation
            .iter()
            .filter_map(|subscription| self.windows.get(subscription))
            .any(|window| window.wants_rows(now))
    }

    /// Changes what a subscription has in flight, and with it the load.
    fn change_load(&mut self, subscription: SubscriptionSeq, change: impl FnOnce(&mut Window)) {
        let Some(window) = self.windows.get_mut(&subscription) else { return };
        let old = window.load();
        change(window);
        self.load.replace(old, window.load());
        if let Some(tenant) = self.tenants.get_mut(&window.tenant) {
            tenant.replace(old, window.load());
        }
    }

    /// Whether more than one tenant has something due.
    fn is_shared(&self) -> bool {
        let windows =
            self.rotation.iter().filter_map(|subscription| self.windows.get(subscription));
        let mut waiting = windows.filter(|window| window.has_due());
        let first = waiting.next();
        first.is_some_and(|first| waiting.any(|window| window.tenant != first.tenant))
    }

    /// How many deliverers may be busy while fast endpoints get further requests. They are idle again within a second, so one is kept
    /// for first requests; a quarter, if there are other tenants.
    fn most_of_fast(&self) -> usize {
        let kept = if self.tenants.len() > 1 { self.deliverers / 4 } else { 1 };
        self.deliverers.saturating_sub(kept.max(1))
    }

    /// The delivery that a subscription may start now. Its own limits and the shares of its pace and tenant decide.
    fn startable(
        &self,
        now: Timestamp,
        subscription: SubscriptionSeq,
        is_shared: bool,
    ) -> Option<Startable> {
        let window = self.windows.get(&subscription)?;
        // Deliverers are kept for first requests: half of them, or fewer while endpoints answer fast and stay below their caps.
        let plenty = self.load.is_plenty(window.pace, self.deliverers)
            || (window.is_modest(now, self.deliverers) && self.load.busy < self.most_of_fast());
        let own = self.tenants.get(&window.tenant).copied().unwrap_or_default();
        // A tenant may use half of everything while another tenant has something due.
        let tenant_most = if is_shared { self.deliverers.div_ceil(2) } else { self.deliverers };
        // A tenant leaves deliverers for new endpoints of others.
        let left = (self.deliverers - self.deliverers / 4).saturating_sub(self.load.unproven);
        let is_kept = window.pace == Pace::Unknown
            && self.tenants.len() > 1
            && own.unproven >= left.saturating_mul(NEW_TIMES);
        let is_free = window.limits.gate.is_open(now)
            && window.limits.rate.is_none_or(|rate| window.bucket.next_at(rate) <= now)
            && !is_kept
            && window.has_room(plenty)
            && self.load.has_room(window.pace, self.deliverers)
            && (!is_shared || own.has_room(window.pace, tenant_most));
        let delivery = window.ready.front().copied().filter(|_| is_free)?;
        let is_scarce = own.unproven >= (tenant_most / UNCUT_PART).max(1)
            || self.load.unproven >= self.deliverers / 2;
        Some(Startable { delivery, is_short: is_scarce && window.may_be_cut() })
    }

    /// Starts deliveries, one per subscription and turn, so that no subscription starves another.
    fn start(&mut self, now: Timestamp, out: &mut Vec<Command>) {
        if self.stopping {
            return;
        }
        let most = self.ramp(now);
        let is_shared = self.tenants.len() > 1 && self.is_shared();
        let mut passed_by = 0;
        while self.load.busy < most && passed_by < self.rotation.len() {
            let Some(subscription) = self.rotation.pop_front() else { break };
            let startable = self.startable(now, subscription, is_shared);
            if let Some(Startable { delivery, is_short }) = startable {
                let mut is_probe = false;
                self.change_load(subscription, |window| {
                    window.start_one(now, is_short);
                    is_probe = window.limits.gate.is_probe();
                });
                passed_by = 0;
                self.started.insert(delivery);
                let started = Assignment { delivery, subscription, is_probe, is_short };
                out.push(Command::Start(started));
            } else {
                passed_by += 1;
                let next =
                    self.windows.get(&subscription).and_then(|window| window.rate_opens_at(now));
                self.wake_at(subscription, next);
            }
            self.changed.push(subscription);
            let Some(window) = self.windows.get_mut(&subscription) else { continue };
            if window.wants_turn(now) {
                self.rotation.push_back(subscription);
            } else {
                window.queued = false;
                passed_by = passed_by.saturating_sub(1);
            }
        }
    }

    /// How many requests may be in flight in total. After the site was offline: few at first, doubled each second.
    fn ramp(&mut self, now: Timestamp) -> usize {
        while let Some(ramp) = &mut self.ramp {
            if now < ramp.until {
                return ramp.most.min(self.deliverers);
            }
            ramp.until = ramp.until.plus(RAMP_STEP);
            ramp.most = ramp.most.saturating_mul(2);
            if ramp.most >= self.deliverers {
                self.ramp = None;
            }
        }
        self.deliverers
    }
}

/// A delivery that may start now.
#[derive(Clone, Copy, Debug)]
struct Startable {
    delivery: DeliverySeq,
    /// Whether it is cut short.
    is_short: bool,
}

/// How many requests may be in flight, until when.
#[derive(Clone, Copy, Debug)]
struct Ramp {
    most: usize,
    until: Timestamp,
}

/// Every delivery that is fetched and not settled.
#[derive(Debug, Default)]
struct InHand {
    deliveries: HashMap<DeliverySeq, (SubscriptionSeq, Places)>,
    /// The places of these deliveries. Each with the subscriptions of which a delivery was refused: it must wait until the
    /// place is free.
    places: HashMap<i64, Vec<SubscriptionSeq>>,
    funnels: BTreeSet<i64>,
}

impl InHand {
    fn len(&self) -> usize {
        self.deliveries.len()
    }

    /// Takes a delivery in hand, unless it or one of its places already is; returns whether it did.
    fn take(&mut self, delivery: DeliverySeq, owner: SubscriptionSeq, places: Places) -> bool {
        let Entry::Vacant(entry) = self.deliveries.entry(delivery) else { return false };
        for number in places.numbers() {
            if let Some(refused) = self.places.get_mut(&number) {
                note(refused, owner);
                return false;
            }
        }
        self.places.extend(places.numbers().map(|number| (number, Vec::new())));
        self.funnels.extend(places.funnel);
        entry.insert((owner, places));
        true
    }

    /// The funnels that are in hand. When one is released, the subscription is told.
    fn refuse_funnels(&mut self, owner: SubscriptionSeq) -> Vec<i64> {
        for funnel in &self.funnels {
            note(self.places.entry(*funnel).or_default(), owner);
        }
        self.funnels.iter().copied().collect()
    }

    /// Releases a delivery; returns its subscription, and those of which another delivery was refused meanwhile.
    fn release(
        &mut self,
        delivery: DeliverySeq,
    ) -> Option<(SubscriptionSeq, Vec<SubscriptionSeq>)> {
        let (owner, places) = self.deliveries.remove(&delivery)?;
        let mut refused = Vec::new();
        for number in places.numbers() {
            refused.append(&mut self.places.remove(&number).unwrap_or_default());
        }
        if let Some(funnel) = places.funnel {
            self.funnels.remove(&funnel);
        }
        Some((owner, refused))
    }
}

/// Notes a subscription once.
fn note(refused: &mut Vec<SubscriptionSeq>, owner: SubscriptionSeq) {
    if !refused.contains(&owner) {
        refused.push(owner);
    }
}

/// Requests in flight: of one subscription, of one tenant, of all.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    busy: usize,
    /// Of those, to endpoints that are not known to be prompt.
    unproven: usize,
    /// Of those, to endpoints that hang.
    hanging: usize,
}

impl Load {
    /// Whether one more request may start when `most` deliverers may be busy. Endpoints that hang get half of them.
    /// Endpoints that hang and unknown ones together get three quarters.
    fn has_room(self, pace: Pace, most: usize) -> bool {
        let is_within_share = self.unproven < most - most / 4;
        self.busy < most
            && match pace {
                Pace::Prompt => true,
                Pace::Unknown => is_within_share,
                Pace::Hangs => is_within_share && self.hanging < most.div_ceil(2),
            }
    }

    /// Whether more than half of the deliverers are idle. Only then does an endpoint get more than one request that is not fast, and
    /// one that is fast more than its cap.
    /// For a prompt endpoint, deliverers that hanging or unknown endpoints occupy are left out: they may stay busy
    /// until their time limits.
    fn is_plenty(self, pace: Pace, most: usize) -> bool {
        let uncounted = if pace == Pace::Prompt { self.unproven } else { 0 };
        (most - self.busy) * 2 > most - uncounted
    }

    /// Replaces the part of one subscription.
    fn replace(&mut self, old: Self, new: Self) {
        self.busy = self.busy.saturating_add(new.busy).saturating_sub(old.busy);
        self.unproven = self.unproven.saturating_add(new.unproven).saturating_sub(old.unproven);
        self.hanging = self.hanging.saturating_add(new.hanging).saturating_sub(old.hanging);
    }
}

/// One subscription: its due deliveries, limits and state.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each true or not")]
struct Window {
    tenant: String,
    pace: Pace,
    limits: Limits,
    /// What the rate still allows.
    bucket: Bucket,
    /// Fetched, not started.
    ready: VecDeque<DeliverySeq>,
    /// Started, not finished.
    in_flight: usize,
    /// Whether nothing was in flight when the latest one started. If that one is not sent, its token is put back; of
    /// several, nobody knows whether the bucket has become full since.
    began_alone: bool,
    /// Fetched, not settled.
    in_hand: usize,
    /// Started, not settled.
    unsettled: usize,
    /// Whether the request that started last is cut short.
    is_short: bool,
    /// Refusals in a row.
    refused: usize,
    /// Whether no request has succeeded since one was refused, or since the start. Then no more are sent than it takes to
    /// hold it.
    is_braked: bool,
    /// Whether there may be due rows that were not fetched.
    needs_fetch: bool,
    /// Whether a fetch was asked for and not answered.
    fetching: bool,
    /// Whether nothing is fetched because all of its deliveries are rescheduled.
    is_rescheduled: bool,
    /// Whether it is in the rotation.
    queued: bool,
    next_due: Option<Timestamp>,
    latencies: VecDeque<Duration>,
    /// When its last request ended.
    ended_at: Option<Timestamp>,
}

impl Window {
    /// Whether it may start one more request. The first always may. Further ones need a known pace and `plenty` of idle
    /// deliverers, and must stay below the cap. Only a fast endpoint without a hard cap may exceed it.
    fn has_room(&self, plenty: bool) -> bool {
        let is_known = self.pace != Pace::Unknown;
        let has_more = self.in_flight < self.cap() || (!self.limits.is_hard && self.is_fast());
        // Each refusal brings the hold nearer. While it is on its way, nothing starts.
        let is_braked = self.is_braked
            && self.unsettled > 0
            && self.in_flight.saturating_add(self.refused) >= BRAKED_AT;
        !is_braked && (self.in_flight == 0 || (is_known && plenty && has_more))
    }

    /// Requests in flight at once, however fast the endpoint is.
    fn cap(&self) -> usize {
        usize::try_from(self.limits.cap).unwrap_or(usize::MAX)
    }

    /// Whether its next request may be cut short. A probe may not: its outcome decides about the hold.
    fn may_be_cut(&self) -> bool {
        self.pace == Pace::Unknown && self.limits.can_be_cut && !self.limits.gate.is_probe()
    }

    /// Moves its first ready delivery in flight.
    fn start_one(&mut self, now: Timestamp, is_short: bool) {
        self.ready.pop_front();
        self.began_alone = self.in_flight == 0;
        self.in_flight += 1;
        self.unsettled += 1;
        self.is_short = is_short;
        if let Some(rate) = self.limits.rate {
            self.bucket.take(rate, now);
        }
    }

    /// What it adds to the load.
    fn load(&self) -> Load {
        let busy = self.in_flight;
        let unproven = if self.pace == Pace::Prompt { 0 } else { busy };
        let hanging = if self.pace == Pace::Hangs { busy } else { 0 };
        Load { busy, unproven, hanging }
    }

    /// Whether it has something due, or may have.
    fn has_due(&self) -> bool {
        self.limits.gate != Gate::Closed && (self.fetching || !self.ready.is_empty())
    }

    /// Whether it has something to start or to fetch, once its gate is open.
    fn has_work(&self) -> bool {
        self.has_due() || (self.limits.gate != Gate::Closed && self.needs_fetch)
    }

    /// Whether it stays in the rotation.
    fn wants_turn(&self, now: Timestamp) -> bool {
        self.limits.gate.is_open(now) && self.has_work()
    }

    /// Whether more rows are to be fetched. A probe is fetched only when nothing else is in hand.
    fn wants_rows(&self, now: Timestamp) -> bool {
        self.limits.gate.is_open(now)
            && !(self.limits.gate.is_probe() && self.in_hand > 0)
            && self.needs_fetch
            && !self.fetching
            && !self.is_rescheduled
            && self.ready.len() <= WINDOW_LOW
            && self.in_hand <= MAX_UNSETTLED
    }

    /// When the rate allows the next request, if a delivery waits for that.
    fn rate_opens_at(&self, now: Timestamp) -> Option<Timestamp> {
        let rate = self.limits.rate.filter(|_| !self.ready.is_empty())?;
        Some(self.bucket.next_at(rate)).filter(|at| *at > now)
    }

    /// How many rows to ask for.
    fn rows_wanted(&self) -> u32 {
        if self.limits.gate.is_probe() {
            return 1;
        }
        let in_hand = u32::try_from(self.in_hand).unwrap_or(u32::MAX);
        WINDOW_ROWS.saturating_add(in_hand.saturating_add(self.limits.cap).min(4096))
    }

    fn is_fast(&self) -> bool {
        let slow = self.latencies.iter().filter(|latency| **latency >= FAST_ENOUGH).count();
        !self.latencies.is_empty() && slow.saturating_mul(20) <= self.latencies.len()
    }

    /// Whether it is fast and takes no large part: below its cap and half of the deliverers. One that stopped answering a second
    /// ago is not fast, although its last latencies were.
    fn is_modest(&self, now: Timestamp, deliverers: usize) -> bool {
        let is_small = self.in_flight < self.cap() && self.in_flight.saturating_mul(2) < deliverers;
        is_small && self.ended_at.is_some_and(|at| now.since(at) < FAST_ENOUGH) && self.is_fast()
    }

    /// Remembers a request's latency. With a known time limit, it also decides the pace.
    fn note(&mut self, latency: Duration, limit: Option<Duration>, class: Option<AttemptClass>) {
        if let Some(class) = class {
            let is_refusal = class == AttemptClass::Validation;
            self.refused = if is_refusal { self.refused.saturating_add(1) } else { 0 };
            self.is_braked = is_refusal || (self.is_braked && !class.is_success());
        }
        if let Some(limit) = limit {
            let is_cut = self.is_short && limit > FIRST_TRY && latency >= FIRST_TRY;
            let hangs = is_cut || latency >= HANGS_FROM.min(limit / 2);
            self.pace = if hangs { Pace::Hangs } else { Pace::Prompt };
        }
        if self.latencies.len() == LATENCIES_KEPT {
            self.latencies.pop_front();
        }
        self.latencies.push_back(latency);
    }
}
