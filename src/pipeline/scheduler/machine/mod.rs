//! Who is sent next: a state machine without SQL, clock, randomness, bodies or secrets.
//!
//! It keeps a *window* of due deliveries per subscription and the set of deliveries in hand. A delivery
//! is in hand from the moment it is fetched until its attempt is settled, that is committed; were it let
//! go when the request is finished, the next fetch could read it as still due and send it twice.
//!
//! Why a delivery fails and when it is due again is decided in `domain::delivery`; what is due is
//! found by `store::deliveries`.

mod hand;
#[cfg(test)]
mod tests;
mod window;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::base::id::{DeliverySeq, SubscriptionSeq};
use crate::pipeline::scheduler::machine::hand::Hand;
pub use crate::pipeline::scheduler::machine::window::Pace;
use crate::pipeline::scheduler::machine::window::{Load, Window};

/// What the machine is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum In {
    /// A subscription was made or changed.
    SubscriptionChanged {
        /// Which.
        subscription: SubscriptionSeq,
        /// Requests in flight at once.
        cap: u32,
        /// Whether that holds however fast it answers, because somebody said so.
        hard: bool,
        /// Whether it may be called now.
        callable: bool,
        /// Whose it is; kept from the first time.
        tenant: String,
        /// What its row says of its endpoint; asked the first time only.
        pace: Pace,
    },
    /// A subscription was deleted.
    SubscriptionGone(SubscriptionSeq),
    /// It may have something new to send.
    Rang(SubscriptionSeq),
    /// The answer to [`Out::Fetch`].
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
        /// How long it might have taken; `None` where nothing was sent.
        limit: Option<Duration>,
    },
    /// An attempt is committed.
    Settled {
        /// Which delivery.
        delivery: DeliverySeq,
        /// Whose.
        subscription: SubscriptionSeq,
        /// When it is tried again.
        next_due: Option<Timestamp>,
    },
    /// Nothing came of an attempt for a reason of ours, and its row stays due.
    PutOff {
        /// Which delivery.
        delivery: DeliverySeq,
        /// Whose.
        subscription: SubscriptionSeq,
        /// Not to be looked at before.
        until: Timestamp,
        /// Whether the reason holds for all that its subscription has.
        whole: bool,
    },
    /// Time has passed.
    Tick,
    /// Start nothing more.
    Stop,
}

/// What the machine asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Out {
    /// Read what is due, and answer with [`In::Fetched`].
    Fetch {
        /// Whose.
        subscription: SubscriptionSeq,
        /// How many rows at most.
        limit: u32,
    },
    /// Hand this to an idle deliverer.
    Start {
        /// Which delivery.
        delivery: DeliverySeq,
        /// Whose.
        subscription: SubscriptionSeq,
    },
    /// Nothing is in hand any more, after a stop.
    Drained,
}

/// The dispatcher's state.
#[derive(Debug)]
pub struct Machine {
    windows: BTreeMap<SubscriptionSeq, Window>,
    hand: Hand,
    /// Subscriptions with something ready, each once, in the order of their turns.
    rotation: VecDeque<SubscriptionSeq>,
    /// When to look again, by time.
    waking: BTreeSet<(Timestamp, SubscriptionSeq)>,
    /// Until when something is put off: a delivery, which stays in hand because its row is still due, or all that
    /// a subscription has.
    resting: BTreeSet<(Timestamp, SubscriptionSeq, Option<DeliverySeq>)>,
    deliverers: usize,
    /// What is in flight, in all and by tenant.
    load: Load,
    tenants: BTreeMap<String, Load>,
    stopping: bool,
}

impl Machine {
    /// A machine that may keep so many requests in flight at once.
    pub fn new(deliverers: usize) -> Self {
        Self {
            windows: BTreeMap::new(),
            hand: Hand::default(),
            rotation: VecDeque::new(),
            waking: BTreeSet::new(),
            resting: BTreeSet::new(),
            deliverers,
            load: Load::default(),
            tenants: BTreeMap::new(),
            stopping: false,
        }
    }

    /// Takes one input and says what is to be done.
    pub fn step(&mut self, now: Timestamp, input: In) -> Vec<Out> {
        let mut out = Vec::new();
        match input {
            In::SubscriptionChanged { subscription, cap, hard, callable, tenant, pace } => {
                self.tenants.entry(tenant.clone()).or_default();
                let new = || Window::new(tenant, pace);
                self.windows.entry(subscription).or_insert_with(new);
                self.changed(subscription, (cap, hard), callable);
            }
            In::SubscriptionGone(subscription) => self.changed(subscription, (0, true), false),
            In::Rang(subscription) => self.look(subscription),
            In::Fetched { subscription, rows, more, next_due } => {
                self.fetched(subscription, rows, more, next_due);
            }
            In::Finished { subscription, latency, limit } => {
                self.reckon(subscription, |window| {
                    window.in_flight = window.in_flight.saturating_sub(1);
                    window.note(latency, limit);
                });
                self.enqueue(subscription);
            }
            In::Settled { delivery, subscription, next_due } => {
                self.let_go(delivery);
                self.wake_at(subscription, next_due);
            }
            In::PutOff { delivery, subscription, until, whole } => {
                self.reschedule(delivery, subscription, until, whole);
            }
            In::Tick => {}
            In::Stop => self.stop(),
        }
        self.wake(now);
        self.fill(&mut out);
        self.start(&mut out);
        // Starting empties windows, so a second look saves waiting for the next input.
        self.fill(&mut out);
        if self.stopping && self.load.busy == 0 && self.hand.len() == 0 {
            out.push(Out::Drained);
        }
        out
    }

    /// When to call [`In::Tick`] if nothing else happens before.
    pub fn sleep_until(&self) -> Option<Timestamp> {
        let waking = self.waking.first().map(|(at, _)| *at);
        let resting = self.resting.first().map(|(at, _, _)| *at);
        waking.into_iter().chain(resting).min()
    }

    /// Deliveries that are fetched and not settled.
    pub fn in_hand(&self) -> usize {
        self.hand.len()
    }

    /// Whether a request is under way.
    pub fn is_busy(&self) -> bool {
        self.load.busy > 0
    }

    fn changed(&mut self, subscription: SubscriptionSeq, cap: (u32, bool), callable: bool) {
        let Some(window) = self.windows.get_mut(&subscription) else { return };
        let (cap, hard) = cap;
        window.hard = hard;
        window.cap = usize::try_from(cap).unwrap_or(usize::MAX);
        window.callable = callable;
        if callable {
            window.look = true;
        } else {
            self.drop_ready(subscription);
        }
        // What was put off may be mended by this.
        self.end_rest(|(_, owner, _)| *owner == subscription);
        self.enqueue(subscription);
    }

    fn reschedule(
        &mut self,
        delivery: DeliverySeq,
        subscription: SubscriptionSeq,
        until: Timestamp,
        whole: bool,
    ) {
        if self.stopping {
            return self.let_go(delivery);
        }
        if !whole {
            self.resting.insert((until, subscription, Some(delivery)));
            return;
        }
        self.let_go(delivery);
        self.drop_ready(subscription);
        let Some(window) = self.windows.get_mut(&subscription) else { return };
        window.look = true;
        if !std::mem::replace(&mut window.rests, true) {
            self.resting.insert((until, subscription, None));
        }
    }

    /// Lets what was put off be looked at again.
    fn end_rest(
        &mut self,
        which: impl Fn(&(Timestamp, SubscriptionSeq, Option<DeliverySeq>)) -> bool,
    ) {
        for (_, subscription, delivery) in self.resting.extract_if(.., which).collect::<Vec<_>>() {
            match (delivery, self.windows.get_mut(&subscription)) {
                (Some(delivery), _) => self.let_go(delivery),
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
                let _whose = self.hand.let_go(delivery);
            }
        }
    }

    fn stop(&mut self) {
        self.stopping = true;
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

    fn let_go(&mut self, delivery: DeliverySeq) {
        let Some((owner, was_refused)) = self.hand.let_go(delivery) else { return };
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
            if let Some(window) = self.windows.get_mut(&subscription) {
                window.next_due = None;
                window.look = true;
            }
            self.enqueue(subscription);
        }
    }

    fn fetched(
        &mut self,
        subscription: SubscriptionSeq,
        rows: Vec<(DeliverySeq, Option<i64>)>,
        more: bool,
        next_due: Option<Timestamp>,
    ) {
        let stopping = self.stopping;
        let Some(window) = self.windows.get_mut(&subscription) else { return };
        window.fetching = false;
        window.look |= more;
        if window.callable && !stopping {
            for (delivery, lane) in rows {
                if self.hand.take(delivery, subscription, lane) {
                    window.ready.push_back(delivery);
                    window.in_hand += 1;
                }
            }
        }
        self.wake_at(subscription, next_due);
        self.enqueue(subscription);
    }

    /// Gives a subscription a turn, if it has something to start or to fetch.
    fn enqueue(&mut self, subscription: SubscriptionSeq) {
        let Some(window) = self.windows.get_mut(&subscription) else { return };
        if window.wants_turn() && !window.queued {
            window.queued = true;
            self.rotation.push_back(subscription);
        }
    }

    fn fill(&mut self, out: &mut Vec<Out>) {
        if self.stopping {
            return;
        }
        for subscription in &self.rotation {
            let Some(window) = self.windows.get_mut(subscription) else { continue };
            if !window.wants_rows() {
                continue;
            }
            window.look = false;
            window.fetching = true;
            let limit = window.rows_wanted();
            out.push(Out::Fetch { subscription: *subscription, limit });
        }
    }

    /// Changes what a subscription has in flight, and with it the load.
    fn reckon(&mut self, subscription: SubscriptionSeq, change: impl FnOnce(&mut Window)) {
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
    fn startable(&self, subscription: SubscriptionSeq, is_shared: bool) -> Option<DeliverySeq> {
        let window = self.windows.get(&subscription)?;
        // Half of the deliverers are kept for first requests, so that a flood leaves some to the others.
        let plenty = self.load.is_plenty(window.pace, self.deliverers);
        // A tenant's share is half of everything, while there is somebody to share with.
        let tenant = self.tenants.get(&window.tenant).filter(|_| is_shared);
        let is_free = window.callable
            && window.has_room(plenty)
            && self.load.has_room(window.pace, self.deliverers)
            && tenant.is_none_or(|load| load.has_room(window.pace, self.deliverers.div_ceil(2)));
        window.ready.front().copied().filter(|_| is_free)
    }

    /// Starts what may be started, one delivery a turn, so that no subscription waits behind another.
    fn start(&mut self, out: &mut Vec<Out>) {
        if self.stopping {
            return;
        }
        let is_shared = self.tenants.len() > 1 && self.is_shared();
        let mut passed_by = 0;
        while self.load.busy < self.deliverers && passed_by < self.rotation.len() {
            let Some(subscription) = self.rotation.pop_front() else { break };
            if let Some(delivery) = self.startable(subscription, is_shared) {
                self.reckon(subscription, |window| {
                    window.ready.pop_front();
                    window.in_flight += 1;
                });
                passed_by = 0;
                out.push(Out::Start { delivery, subscription });
            } else {
                passed_by += 1;
            }
            let Some(window) = self.windows.get_mut(&subscription) else { continue };
            if window.wants_turn() {
                self.rotation.push_back(subscription);
            } else {
                window.queued = false;
                passed_by = passed_by.saturating_sub(1);
            }
        }
    }
}
