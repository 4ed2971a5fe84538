//! Who is sent next: a state machine without SQL, clock, randomness, bodies or secrets.
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
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::base::id::{DeliverySeq, SubscriptionSeq};
use crate::model::hold::Gate;
use crate::model::rate::{Bucket, Rate};
use crate::store::tx::Settled;

/// Rows fetched beyond what may be in flight: enough that a fetch is rare, few enough to be cheap.
const WINDOW_ROWS: u32 = 64;
/// A window is filled again when it holds this many or fewer.
const WINDOW_LOW: usize = 16;
/// Deliveries of one subscription that may wait for their settlement before no more are fetched.
const MAX_UNSETTLED: usize = 2048;
/// An endpoint hangs that took so long, or half of its time limit where that is shorter.
const HANGS_FROM: Duration = Duration::from_secs(5);
/// A subscription may exceed its cap only while it answers faster than this.
const FAST_ENOUGH: Duration = Duration::from_secs(1);
/// After a time without a line, requests in flight at first; doubled every [`RAMP_STEP`].
const RAMP_FROM: usize = 2;
const RAMP_STEP: Duration = Duration::from_secs(1);
/// Latencies remembered per subscription.
const LATENCIES_KEPT: usize = 20;

/// How long an endpoint kept its last deliverer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// Not long, whatever it answered.
    Prompt,
    /// It has had no attempt yet.
    #[default]
    Unknown,
    /// To the end of its time limit, or nearly.
    Hangs,
}

/// How a subscription may be called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests in flight at once.
    pub cap: u32,
    /// Whether the cap holds however fast the endpoint answers: a person asked for it.
    pub is_hard: bool,
    /// How many requests it takes at most.
    pub rate: Option<Rate>,
    /// What its holds allow.
    pub gate: Gate,
}

/// What the machine is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A subscription was made or changed.
    SubscriptionChanged {
        /// Which.
        subscription: SubscriptionSeq,
        /// How it may be called.
        limits: Limits,
        /// Whose it is; kept from the first time.
        tenant: String,
        /// What its row says of its endpoint; used the first time only.
        pace: Pace,
    },
    /// A subscription was deleted.
    SubscriptionGone(SubscriptionSeq),
    /// The holds of a subscription have changed.
    GateChanged {
        /// Whose.
        subscription: SubscriptionSeq,
        /// What they allow now.
        gate: Gate,
    },
    /// The line to the outside works again: what has waited is not sent all at once.
    LineIsBack,
    /// A subscription may have something new to send.
    Rang(SubscriptionSeq),
    /// The answer to [`Command::Fetch`].
    Fetched {
        /// Whose.
        subscription: SubscriptionSeq,
        /// What is due, oldest first, each with the lane it is in.
        rows: Vec<(DeliverySeq, Option<i64>)>,
        /// Whether there may be more than was asked for.
        more: bool,
        /// When the next one that is not due yet will be.
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
    },
    /// An attempt is committed.
    Settled(Settled),
    /// An attempt had no outcome for a reason on our side. Its row stays due.
    Reschedule {
        /// Which delivery.
        delivery: DeliverySeq,
        /// Whose.
        subscription: SubscriptionSeq,
        /// It is not looked at before.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read what is due, and answer with [`Input::Fetched`].
    Fetch {
        /// Whose.
        subscription: SubscriptionSeq,
        /// How many rows at most.
        limit: u32,
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
    /// Whose.
    pub subscription: SubscriptionSeq,
    /// Whether it is sent in spite of a hold, to learn whether the target works again.
    pub is_probe: bool,
}

/// The dispatcher's state.
#[derive(Debug)]
pub struct Machine {
    windows: BTreeMap<SubscriptionSeq, Window>,
    in_hand: InHand,
    /// Subscriptions with something ready, each once, in the order of their turns.
    rotation: VecDeque<SubscriptionSeq>,
    /// When to look again, by time.
    waking: BTreeSet<(Timestamp, SubscriptionSeq)>,
    /// Until when something is rescheduled: a delivery, which stays in hand because its row is still due, or all
    /// deliveries of a subscription.
    resting: BTreeSet<(Timestamp, SubscriptionSeq, Option<DeliverySeq>)>,
    deliverers: usize,
    /// What is in flight, in all and by tenant.
    load: Load,
    tenants: BTreeMap<String, Load>,
    /// After a time without a line, until all deliverers may be used again.
    ramp: Option<Ramp>,
    /// The time of the latest step.
    latest: Option<Timestamp>,
    stopping: bool,
}

impl Machine {
    /// A machine that may keep so many requests in flight at once.
    pub fn new(deliverers: usize) -> Self {
        Self {
            windows: BTreeMap::new(),
            in_hand: InHand::default(),
            rotation: VecDeque::new(),
            waking: BTreeSet::new(),
            resting: BTreeSet::new(),
            deliverers,
            load: Load::default(),
            tenants: BTreeMap::new(),
            ramp: None,
            latest: None,
            stopping: false,
        }
    }

    /// Takes one input and says what is to be done.
    pub fn step(&mut self, now: Timestamp, input: Input) -> Vec<Command> {
        let mut out = Vec::new();
        if self.latest.replace(now).is_some_and(|latest| now < latest) {
            self.looks_at_all(now);
        }
        match input {
            Input::SubscriptionChanged { subscription, limits, tenant, pace } => {
                self.tenants.entry(tenant.clone()).or_default();
                let new = || Window { tenant, pace, ..Window::default() };
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
            Input::Rang(subscription) => self.look(subscription),
            Input::Fetched { subscription, rows, more, next_due } => {
                self.fetched(now, subscription, rows, more, next_due);
            }
            Input::Finished { subscription, latency, limit } => {
                self.change_load(subscription, |window| {
                    window.in_flight = window.in_flight.saturating_sub(1);
                    window.note(latency, limit);
                });
                self.enqueue(subscription);
            }
            Input::Settled(Settled { delivery, subscription, next_due }) => {
                self.release(delivery);
                self.wake_at(subscription, next_due);
            }
            Input::Reschedule { delivery, subscription, until, all } => {
                self.reschedule(delivery, subscription, until, all);
            }
            Input::Tick => {}
            Input::Stop => self.stop(),
        }
        self.wake(now);
        self.fill(now, &mut out);
        self.start(now, &mut out);
        // Starting empties windows, so a second look saves waiting for the next input.
        self.fill(now, &mut out);
        if self.stopping && self.load.busy == 0 && self.in_hand.len() == 0 {
            out.push(Command::Drained);
        }
        out
    }

    /// When to call [`Input::Tick`] if nothing else happens before.
    pub fn sleep_until(&self) -> Option<Timestamp> {
        let waking = self.waking.first().map(|(at, _)| *at);
        let resting = self.resting.first().map(|(at, _, _)| *at);
        let ramp = self.ramp.map(|ramp| ramp.until);
        waking.into_iter().chain(resting).chain(ramp).min()
    }

    /// Deliveries that are fetched and not settled.
    pub fn in_hand(&self) -> usize {
        self.in_hand.len()
    }

    /// Whether a request is under way.
    pub fn is_busy(&self) -> bool {
        self.load.busy > 0
    }

    fn changed(&mut self, now: Timestamp, subscription: SubscriptionSeq, limits: Limits) {
        let Some(window) = self.windows.get_mut(&subscription) else { return };
        window.limits = limits;
        // What was dropped is fetched again when the gate opens.
        window.look = true;
        if limits.gate.is_probe() || !limits.gate.is_open(now) {
            self.drop_ready(subscription);
        }
        self.wake_at(subscription, limits.gate.opens_at().filter(|at| *at > now));
        // The change may have removed the reason for rescheduling.
        self.end_rest(|(_, owner, _)| *owner == subscription);
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
            self.resting.insert((until, subscription, Some(delivery)));
            return;
        }
        self.release(delivery);
        self.drop_ready(subscription);
        let Some(window) = self.windows.get_mut(&subscription) else { return };
        window.look = true;
        if !std::mem::replace(&mut window.rests, true) {
            self.resting.insert((until, subscription, None));
        }
    }

    /// Forgets every time that lies ahead, after the clock was set back: each may be much further ahead than it was
    /// meant to be.
    fn looks_at_all(&mut self, now: Timestamp) {
        self.ramp = None;
        self.waking.clear();
        self.end_rest(|_| true);
        let all: Vec<SubscriptionSeq> = self.windows.keys().copied().collect();
        for subscription in all {
            if let Some(window) = self.windows.get_mut(&subscription) {
                window.next_due = None;
                window.bucket = Bucket::default();
                if let Some(rate) = window.limits.rate {
                    window.bucket.take(rate, now);
                }
                let opens_at = window.limits.gate.opens_at();
                self.wake_at(subscription, opens_at.filter(|at| *at > now));
            }
            self.look(subscription);
        }
    }

    /// Looks again at what was rescheduled.
    fn end_rest(
        &mut self,
        which: impl Fn(&(Timestamp, SubscriptionSeq, Option<DeliverySeq>)) -> bool,
    ) {
        for (_, subscription, delivery) in self.resting.extract_if(.., which).collect::<Vec<_>>() {
            match (delivery, self.windows.get_mut(&subscription)) {
                (Some(delivery), _) => self.release(delivery),
                (None, Some(window)) => window.rests = false,
                (None, None) => {}
            }
            self.look(subscription);
        }
    }

    fn drop_ready(&mut self, subscription: SubscriptionSeq) {
        if let Some(window) = self.windows.get_mut(&subscription) {
            window.in_hand = window.in_hand.saturating_sub(window.ready.len());
            for delivery in window.ready.drain(..) {
                let _whose = self.in_hand.release(delivery);
            }
        }
    }

    fn stop(&mut self) {
        self.stopping = true;
        self.ramp = None;
        let all: Vec<SubscriptionSeq> = self.windows.keys().copied().collect();
        for subscription in all {
            self.drop_ready(subscription);
        }
        self.end_rest(|_| true);
    }

    fn look(&mut self, subscription: SubscriptionSeq) {
        if let Some(window) = self.windows.get_mut(&subscription) {
            window.look = true;
        }
        self.enqueue(subscription);
    }

    fn release(&mut self, delivery: DeliverySeq) {
        let Some((owner, was_refused)) = self.in_hand.release(delivery) else { return };
        if let Some(window) = self.windows.get_mut(&owner) {
            window.in_hand = window.in_hand.saturating_sub(1);
            window.look |= was_refused;
        }
        self.enqueue(owner);
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
        if self.resting.first().is_some_and(|(at, _, _)| *at <= now) {
            self.end_rest(|(at, _, _)| *at <= now);
        }
        while let Some((at, subscription)) = self.waking.first().copied() {
            if at > now {
                break;
            }
            self.waking.remove(&(at, subscription));
            let mut later = None;
            if let Some(window) = self.windows.get_mut(&subscription) {
                window.next_due = None;
                window.look = true;
                // The earliest time was kept alone: what it woke for may still wait for its gate or its rate.
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
        rows: Vec<(DeliverySeq, Option<i64>)>,
        more: bool,
        next_due: Option<Timestamp>,
    ) {
        let stopping = self.stopping;
        let Some(window) = self.windows.get_mut(&subscription) else { return };
        window.fetching = false;
        window.look |= more;
        if window.limits.gate.is_open(now) && !stopping {
            for (delivery, lane) in rows {
                if window.limits.gate.is_probe() && window.in_hand > 0 {
                    // The gate may have changed after the rows were asked for.
                    window.look = true;
                    break;
                }
                if self.in_hand.take(delivery, subscription, lane) {
                    window.ready.push_back(delivery);
                    window.in_hand += 1;
                }
            }
        } else {
            window.look = true;
        }
        self.wake_at(subscription, next_due);
        self.enqueue(subscription);
    }

    /// Gives a subscription a turn, if it has something to start or to fetch.
    fn enqueue(&mut self, subscription: SubscriptionSeq) {
        let Some(window) = self.windows.get_mut(&subscription) else { return };
        if !window.queued && window.has_turn_to_take() {
            window.queued = true;
            self.rotation.push_back(subscription);
        }
    }

    fn fill(&mut self, now: Timestamp, out: &mut Vec<Command>) {
        if self.stopping {
            return;
        }
        for subscription in &self.rotation {
            let Some(window) = self.windows.get_mut(subscription) else { continue };
            if !window.wants_rows(now) {
                continue;
            }
            window.look = false;
            window.fetching = true;
            let limit = window.rows_wanted();
            out.push(Command::Fetch { subscription: *subscription, limit });
        }
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

    /// What a subscription may start now, by its own limits, its endpoint's and its tenant's.
    fn startable(
        &self,
        now: Timestamp,
        subscription: SubscriptionSeq,
        is_shared: bool,
    ) -> Option<DeliverySeq> {
        let window = self.windows.get(&subscription)?;
        // Half of the deliverers are kept for first requests, so that a flood leaves some to the others.
        let plenty = self.load.is_plenty(window.pace, self.deliverers);
        // A tenant may use half of everything while another tenant has something due.
        let tenant = self.tenants.get(&window.tenant).filter(|_| is_shared);
        let is_free = window.limits.gate.is_open(now)
            && window.limits.rate.is_none_or(|rate| window.bucket.next_at(rate) <= now)
            && window.has_room(plenty)
            && self.load.has_room(window.pace, self.deliverers)
            && tenant.is_none_or(|load| load.has_room(window.pace, self.deliverers.div_ceil(2)));
        window.ready.front().copied().filter(|_| is_free)
    }

    /// Starts what may be started, one delivery a turn, so that no subscription waits behind another.
    fn start(&mut self, now: Timestamp, out: &mut Vec<Command>) {
        if self.stopping {
            return;
        }
        let most = self.ramp(now);
        let is_shared = self.tenants.len() > 1 && self.is_shared();
        let mut passed_by = 0;
        while self.load.busy < most && passed_by < self.rotation.len() {
            let Some(subscription) = self.rotation.pop_front() else { break };
            if let Some(delivery) = self.startable(now, subscription, is_shared) {
                let mut is_probe = false;
                self.change_load(subscription, |window| {
                    window.ready.pop_front();
                    window.in_flight += 1;
                    is_probe = window.limits.gate.is_probe();
                    if let Some(rate) = window.limits.rate {
                        window.bucket.take(rate, now);
                    }
                });
                passed_by = 0;
                out.push(Command::Start(Assignment { delivery, subscription, is_probe }));
            } else {
                passed_by += 1;
                let next =
                    self.windows.get(&subscription).and_then(|window| window.rate_opens_at(now));
                self.wake_at(subscription, next);
            }
            let Some(window) = self.windows.get_mut(&subscription) else { continue };
            if window.wants_turn(now) {
                self.rotation.push_back(subscription);
            } else {
                window.queued = false;
                passed_by = passed_by.saturating_sub(1);
            }
        }
    }

    /// How many requests may be in flight in all. After a time without a line: few at first, then more each second.
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

/// How many requests may be in flight for now.
#[derive(Clone, Copy, Debug)]
struct Ramp {
    most: usize,
    until: Timestamp,
}

/// Every delivery that is fetched and not settled.
#[derive(Debug, Default)]
struct InHand {
    /// Each with its subscription and its lane.
    deliveries: HashMap<DeliverySeq, (SubscriptionSeq, Option<i64>)>,
    /// The lanes they are in. A second delivery of such a lane is refused: the lane's new head waits until the old
    /// one is settled. The flag says whether that has happened.
    lanes: HashMap<i64, bool>,
}

impl InHand {
    fn len(&self) -> usize {
        self.deliveries.len()
    }

    /// Takes a delivery, unless it or its lane is in hand; returns whether it did.
    fn take(&mut self, delivery: DeliverySeq, owner: SubscriptionSeq, lane: Option<i64>) -> bool {
        let Entry::Vacant(entry) = self.deliveries.entry(delivery) else { return false };
        if let Some(lane) = lane {
            let is_in_hand = self.lanes.contains_key(&lane);
            self.lanes.insert(lane, is_in_hand);
            if is_in_hand {
                return false;
            }
        }
        entry.insert((owner, lane));
        true
    }

    /// Releases a delivery; returns its subscription, and whether another one of its lane was refused meanwhile.
    fn release(&mut self, delivery: DeliverySeq) -> Option<(SubscriptionSeq, bool)> {
        let (owner, lane) = self.deliveries.remove(&delivery)?;
        let was_refused = lane.and_then(|lane| self.lanes.remove(&lane)).unwrap_or(false);
        Some((owner, was_refused))
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
    /// Whether one more request may start when `most` deliverers may be busy. Endpoints that hang get half of them,
    /// and no more than three quarters wait for endpoints that may hang.
    fn has_room(self, pace: Pace, most: usize) -> bool {
        let is_spared = self.unproven < most - most / 4;
        self.busy < most
            && match pace {
                Pace::Prompt => true,
                Pace::Unknown => is_spared,
                Pace::Hangs => is_spared && self.hanging < most.div_ceil(2),
            }
    }

    /// Whether more than half of the deliverers are idle, for one more request to an endpoint that has one already.
    /// For a prompt endpoint, deliverers that wait for endpoints that may hang do not count: it would have to wait
    /// for their time limits.
    fn is_plenty(self, pace: Pace, most: usize) -> bool {
        let lost = if pace == Pace::Prompt { self.unproven } else { 0 };
        (most - self.busy) * 2 > most - lost
    }

    /// Replaces one part of it by another.
    fn replace(&mut self, old: Self, new: Self) {
        self.busy = self.busy.saturating_add(new.busy).saturating_sub(old.busy);
        self.unproven = self.unproven.saturating_add(new.unproven).saturating_sub(old.unproven);
        self.hanging = self.hanging.saturating_add(new.hanging).saturating_sub(old.hanging);
    }
}

/// The due deliveries of one subscription, and what it may do with them.
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
    /// Fetched, not settled.
    in_hand: usize,
    /// Whether there may be due rows that were not fetched.
    look: bool,
    /// Whether a fetch was asked for and not answered.
    fetching: bool,
    /// Whether nothing is fetched because all of its deliveries are rescheduled.
    rests: bool,
    /// Whether it is in the rotation.
    queued: bool,
    next_due: Option<Timestamp>,
    latencies: VecDeque<Duration>,
}

impl Window {
    /// Whether it may start one more: its first always, others once it has had an attempt, while `plenty` of
    /// deliverers are idle and its cap allows it or its target is fast.
    fn has_room(&self, plenty: bool) -> bool {
        let is_known = self.pace != Pace::Unknown;
        let cap = usize::try_from(self.limits.cap).unwrap_or(usize::MAX);
        let has_more = self.in_flight < cap || (!self.limits.is_hard && self.is_fast());
        self.in_flight == 0 || (is_known && plenty && has_more)
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

    /// Whether it has something to start or to look for, once its gate is open.
    fn has_turn_to_take(&self) -> bool {
        self.has_due() || (self.limits.gate != Gate::Closed && self.look)
    }

    /// Whether it is to get a turn.
    fn wants_turn(&self, now: Timestamp) -> bool {
        self.limits.gate.is_open(now) && self.has_turn_to_take()
    }

    /// Whether it holds little enough to be filled again, and may be. A probe is fetched when nothing else is in hand.
    fn wants_rows(&self, now: Timestamp) -> bool {
        self.limits.gate.is_open(now)
            && !(self.limits.gate.is_probe() && self.in_hand > 0)
            && self.look
            && !self.fetching
            && !self.rests
            && self.ready.len() <= WINDOW_LOW
            && self.in_hand <= MAX_UNSETTLED
    }

    /// When the rate lets the next request start, if that is what it waits for.
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

    /// Remembers how long a request took, and judges the endpoint by it where the time limit is known.
    fn note(&mut self, latency: Duration, limit: Option<Duration>) {
        if let Some(limit) = limit {
            let hangs = latency >= HANGS_FROM.min(limit / 2);
            self.pace = if hangs { Pace::Hangs } else { Pace::Prompt };
        }
        if self.latencies.len() == LATENCIES_KEPT {
            self.latencies.pop_front();
        }
        self.latencies.push_back(latency);
    }
}
