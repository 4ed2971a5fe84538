//! Who is sent next: a state machine without SQL, clock, randomness, bodies or secrets.
//!
//! It keeps a *window* of due deliveries per subscription and the set of deliveries in hand. A delivery
//! is in hand from the moment it is fetched until its attempt is settled, that is committed; were it let
//! go when the request is finished, the next fetch could read it as still due and send it twice.
//!
//! Why a delivery fails and when it is due again is decided in `domain::delivery`; what is due is
//! found by `store::deliveries`.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use crate::clock::Timestamp;
use crate::id::{DeliverySeq, SubscriptionSeq};

/// Rows fetched beyond what may be in flight: enough that a fetch is rare, few enough to be cheap.
const WINDOW_ROWS: u32 = 64;
/// A window is filled again when it holds this many or fewer.
const WINDOW_LOW: usize = 16;
/// Deliveries of one subscription that may wait for their settlement before no more are fetched.
const UNSETTLED_MOST: usize = 2048;
/// A subscription may exceed its cap only while it answers faster than this.
const FAST_ENOUGH: Duration = Duration::from_secs(1);
/// Latencies remembered per subscription.
const LATENCIES_KEPT: usize = 20;

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

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each true or not")]
struct Window {
    cap: usize,
    /// Whether the cap holds however fast the target answers.
    hard: bool,
    callable: bool,
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
    /// Whether nothing is fetched because it was put off.
    rests: bool,
    /// Whether it stands in the rotation.
    queued: bool,
    next_due: Option<Timestamp>,
    latencies: VecDeque<Duration>,
}

impl Window {
    fn is_fast(&self) -> bool {
        let slow = self.latencies.iter().filter(|latency| **latency >= FAST_ENOUGH).count();
        !self.latencies.is_empty() && slow.saturating_mul(20) <= self.latencies.len()
    }

    fn note(&mut self, latency: Duration) {
        if self.latencies.len() == LATENCIES_KEPT {
            self.latencies.pop_front();
        }
        self.latencies.push_back(latency);
    }
}

/// Whose a delivery in hand is, and its lane.
#[derive(Clone, Copy, Debug)]
struct Hold {
    owner: SubscriptionSeq,
    lane: Option<i64>,
}

/// The dispatcher's state.
#[derive(Debug)]
pub struct Machine {
    windows: BTreeMap<SubscriptionSeq, Window>,
    /// Every delivery that is fetched and not settled.
    in_hand: HashMap<DeliverySeq, Hold>,
    /// The lanes they are in. A lane in hand is refused: whoever is its head now waits for who was. Each says
    /// whether that has happened.
    lanes: HashMap<i64, bool>,
    /// Subscriptions with something ready, each once, in the order of their turns.
    rotation: VecDeque<SubscriptionSeq>,
    /// When to look again, by time.
    waking: BTreeSet<(Timestamp, SubscriptionSeq)>,
    /// Until when something is put off: a delivery, which stays in hand because its row is still due, or all that
    /// a subscription has.
    resting: BTreeSet<(Timestamp, SubscriptionSeq, Option<DeliverySeq>)>,
    deliverers: usize,
    busy: usize,
    stopping: bool,
}

impl Machine {
    /// A machine that may keep so many requests in flight at once.
    pub fn new(deliverers: usize) -> Self {
        Self {
            windows: BTreeMap::new(),
            in_hand: HashMap::new(),
            lanes: HashMap::new(),
            rotation: VecDeque::new(),
            waking: BTreeSet::new(),
            resting: BTreeSet::new(),
            deliverers,
            busy: 0,
            stopping: false,
        }
    }

    /// Takes one input and says what is to be done.
    pub fn step(&mut self, now: Timestamp, input: In) -> Vec<Out> {
        let mut out = Vec::new();
        match input {
            In::SubscriptionChanged { subscription, cap, hard, callable } => {
                self.changed(subscription, (cap, hard), callable);
            }
            In::SubscriptionGone(subscription) => self.changed(subscription, (0, true), false),
            In::Rang(subscription) => self.look(subscription),
            In::Fetched { subscription, rows, more, next_due } => {
                self.fetched(subscription, rows, more, next_due);
            }
            In::Finished { subscription, latency } => {
                self.busy = self.busy.saturating_sub(1);
                if let Some(window) = self.windows.get_mut(&subscription) {
                    window.in_flight = window.in_flight.saturating_sub(1);
                    window.note(latency);
                }
                self.enqueue(subscription);
            }
            In::Settled { delivery, subscription, next_due } => {
                self.let_go(delivery);
                self.wake_at(subscription, next_due);
            }
            In::PutOff { delivery, subscription, until, whole } => {
                self.put_off(delivery, subscription, until, whole);
            }
            In::Tick => {}
            In::Stop => self.stop(),
        }
        self.wake(now);
        self.fill(&mut out);
        self.start(&mut out);
        // Starting empties windows, so a second look saves waiting for the next input.
        self.fill(&mut out);
        if self.stopping && self.busy == 0 && self.in_hand.is_empty() {
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
        self.in_hand.len()
    }

    /// Whether a request is under way.
    pub fn is_busy(&self) -> bool {
        self.busy > 0
    }

    fn changed(&mut self, subscription: SubscriptionSeq, cap: (u32, bool), callable: bool) {
        let window = self.windows.entry(subscription).or_default();
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

    fn put_off(
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
                let lane = self.in_hand.remove(&delivery).and_then(|hold| hold.lane);
                lane.map(|lane| self.lanes.remove(&lane));
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
        let Some(Hold { owner, lane }) = self.in_hand.remove(&delivery) else { return };
        let was_refused = lane.and_then(|lane| self.lanes.remove(&lane)).unwrap_or(false);
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
                let Entry::Vacant(place) = self.in_hand.entry(delivery) else { continue };
                if lane.is_some_and(|lane| is_refused(&mut self.lanes, lane)) {
                    continue;
                }
                place.insert(Hold { owner: subscription, lane });
                window.ready.push_back(delivery);
                window.in_hand += 1;
            }
        }
        self.wake_at(subscription, next_due);
        self.enqueue(subscription);
    }

    /// Gives a subscription a turn, if it has something to start or to fetch.
    fn enqueue(&mut self, subscription: SubscriptionSeq) {
        let Some(window) = self.windows.get_mut(&subscription) else { return };
        let wants = window.callable && (window.look || !window.ready.is_empty());
        if wants && !window.queued {
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
            let wants = window.callable && window.look && !window.fetching && !window.rests;
            if !wants || window.ready.len() > WINDOW_LOW || window.in_hand > UNSETTLED_MOST {
                continue;
            }
            window.look = false;
            window.fetching = true;
            let beside =
                u32::try_from(window.in_hand.saturating_add(window.cap)).unwrap_or(u32::MAX);
            let limit = WINDOW_ROWS.saturating_add(beside.min(4096));
            out.push(Out::Fetch { subscription: *subscription, limit });
        }
    }

    /// Starts what may be started, one delivery a turn, so that no subscription waits behind another.
    fn start(&mut self, out: &mut Vec<Out>) {
        if self.stopping {
            return;
        }
        let mut passed_by = 0;
        while self.busy < self.deliverers && passed_by < self.rotation.len() {
            let Some(subscription) = self.rotation.pop_front() else { break };
            let idle = self.deliverers - self.busy;
            let Some(window) = self.windows.get_mut(&subscription) else { continue };
            // Half of the deliverers are kept for first requests, so that thirty endpoints that hang
            // leave some to the one that does not.
            let plenty = idle * 2 > self.deliverers;
            let room = window.in_flight == 0
                || (plenty
                    && (window.in_flight < window.cap || (!window.hard && window.is_fast())));
            match window.ready.front().copied() {
                Some(delivery) if window.callable && room => {
                    window.ready.pop_front();
                    window.in_flight += 1;
                    self.busy += 1;
                    passed_by = 0;
                    out.push(Out::Start { delivery, subscription });
                }
                _ => passed_by += 1,
            }
            if window.callable && (!window.ready.is_empty() || window.look) {
                self.rotation.push_back(subscription);
            } else {
                window.queued = false;
                passed_by = passed_by.saturating_sub(1);
            }
        }
    }
}

/// Takes a lane in hand, unless it is; then it remembers that somebody was refused.
fn is_refused(lanes: &mut HashMap<i64, bool>, lane: i64) -> bool {
    let is_in_hand = lanes.contains_key(&lane);
    lanes.insert(lane, is_in_hand);
    is_in_hand
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUB: SubscriptionSeq = SubscriptionSeq(1);

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn machine(deliverers: usize, cap: u32) -> Machine {
        let mut machine = Machine::new(deliverers);
        let out = machine.step(
            at(0),
            In::SubscriptionChanged { subscription: SUB, cap, hard: false, callable: true },
        );
        assert_eq!(fetches(&out), [SUB]);
        machine
    }

    fn fetched(rows: std::ops::Range<i64>) -> In {
        let rows = rows.map(|seq| (DeliverySeq(seq), None)).collect();
        In::Fetched { subscription: SUB, rows, more: false, next_due: None }
    }

    fn fetches(out: &[Out]) -> Vec<SubscriptionSeq> {
        out.iter()
            .filter_map(|o| match o {
                Out::Fetch { subscription, .. } => Some(*subscription),
                Out::Start { .. } | Out::Drained => None,
            })
            .collect()
    }

    fn starts(out: &[Out]) -> Vec<i64> {
        out.iter()
            .filter_map(|o| match o {
                Out::Start { delivery, .. } => Some(delivery.0),
                Out::Fetch { .. } | Out::Drained => None,
            })
            .collect()
    }

    fn settled(delivery: i64, next_due: Option<Timestamp>) -> In {
        In::Settled { delivery: DeliverySeq(delivery), subscription: SUB, next_due }
    }

    #[test]
    fn no_more_are_started_than_the_cap() {
        let mut machine = machine(64, 3);
        assert_eq!(starts(&machine.step(at(0), fetched(1..10))), [1, 2, 3]);
        let finished = In::Finished { subscription: SUB, latency: Duration::from_secs(2) };
        assert_eq!(starts(&machine.step(at(0), finished)), [4]);
    }

    #[test]
    fn a_fast_subscription_may_exceed_its_cap_while_half_the_deliverers_are_idle() {
        let mut machine = machine(8, 1);
        assert_eq!(starts(&machine.step(at(0), fetched(1..20))), [1]);
        let finished = In::Finished { subscription: SUB, latency: Duration::from_millis(5) };
        assert_eq!(starts(&machine.step(at(0), finished)), [2, 3, 4, 5]);
    }

    #[test]
    fn a_cap_that_was_asked_for_holds_however_fast_the_target_is() {
        let mut machine = machine(8, 1);
        machine.step(
            at(0),
            In::SubscriptionChanged { subscription: SUB, cap: 1, hard: true, callable: true },
        );
        assert_eq!(starts(&machine.step(at(0), fetched(1..20))), [1]);
        let finished = In::Finished { subscription: SUB, latency: Duration::from_millis(5) };
        assert_eq!(starts(&machine.step(at(0), finished)), [2]);
    }

    #[test]
    fn a_delivery_that_is_finished_but_not_settled_is_not_sent_again() {
        let mut machine = machine(64, 8);
        assert_eq!(starts(&machine.step(at(0), fetched(1..2))), [1]);
        machine.step(at(0), In::Finished { subscription: SUB, latency: Duration::ZERO });
        machine.step(at(0), In::Rang(SUB));
        assert_eq!(starts(&machine.step(at(0), fetched(1..2))), [0_i64; 0]);
        machine.step(at(0), settled(1, None));
        machine.step(at(0), In::Rang(SUB));
        assert_eq!(starts(&machine.step(at(0), fetched(1..2))), [1]);
    }

    #[test]
    fn a_retry_is_looked_for_when_it_is_due() {
        let mut machine = machine(64, 8);
        machine.step(at(0), fetched(1..2));
        machine.step(at(0), settled(1, Some(at(5))));
        assert_eq!(machine.sleep_until(), Some(at(5)));
        assert_eq!(fetches(&machine.step(at(4), In::Tick)), [SubscriptionSeq(0); 0]);
        assert_eq!(fetches(&machine.step(at(5), In::Tick)), [SUB]);
    }

    #[test]
    fn a_held_subscription_starts_nothing_and_lets_go_of_its_window() {
        let mut machine = machine(64, 1);
        machine.step(at(0), fetched(1..5));
        machine.step(
            at(0),
            In::SubscriptionChanged { subscription: SUB, cap: 1, hard: false, callable: false },
        );
        assert_eq!(machine.in_hand(), 1, "only the one in flight stays in hand");
        let out = machine.step(at(0), In::Finished { subscription: SUB, latency: Duration::ZERO });
        assert_eq!(out, []);
    }

    #[test]
    fn turns_go_round_so_that_one_subscription_does_not_starve_another() {
        let mut machine = machine(2, 8);
        let other = SubscriptionSeq(2);
        machine.step(
            at(0),
            In::SubscriptionChanged { subscription: other, cap: 8, hard: false, callable: true },
        );
        machine.step(at(0), fetched(1..50));
        let rows = (100..150).map(|seq| (DeliverySeq(seq), None)).collect();
        let out = machine
            .step(at(0), In::Fetched { subscription: other, rows, more: false, next_due: None });
        assert_eq!(starts(&out), [100]);
        let finished = In::Finished { subscription: SUB, latency: Duration::from_millis(5) };
        assert_eq!(starts(&machine.step(at(0), finished)), [2]);
    }

    #[test]
    fn half_of_the_deliverers_are_kept_for_the_first_request_of_each() {
        let mut machine = machine(8, 8);
        assert_eq!(starts(&machine.step(at(0), fetched(1..50))), [1, 2, 3, 4]);
        let other = SubscriptionSeq(2);
        machine.step(
            at(0),
            In::SubscriptionChanged { subscription: other, cap: 8, hard: false, callable: true },
        );
        let rows = (100..150).map(|seq| (DeliverySeq(seq), None)).collect();
        let fetched = In::Fetched { subscription: other, rows, more: false, next_due: None };
        assert_eq!(starts(&machine.step(at(0), fetched)), [100]);
    }

    #[test]
    fn a_stop_is_drained_when_the_last_attempt_is_settled() {
        let mut machine = machine(64, 8);
        machine.step(at(0), fetched(1..2));
        assert_eq!(machine.step(at(0), In::Stop), []);
        assert_eq!(
            machine.step(at(0), In::Finished { subscription: SUB, latency: Duration::ZERO }),
            []
        );
        assert_eq!(machine.step(at(0), settled(1, None)), [Out::Drained]);
    }

    #[test]
    fn a_lane_in_hand_is_refused_until_its_delivery_is_settled() {
        let mut machine = machine(4, 4);
        let fetched = |seq| In::Fetched {
            subscription: SUB,
            rows: vec![(DeliverySeq(seq), Some(7))],
            more: false,
            next_due: None,
        };
        let started = |out: &[Out], seq| {
            out.contains(&Out::Start { delivery: DeliverySeq(seq), subscription: SUB })
        };
        assert!(started(&machine.step(at(0), fetched(1)), 1));
        machine.step(at(0), In::Rang(SUB));
        // An earlier one has come, and is the head now.
        assert!(!started(&machine.step(at(0), fetched(2)), 2));
        machine.step(at(0), In::Finished { subscription: SUB, latency: Duration::ZERO });
        let settled = In::Settled { delivery: DeliverySeq(1), subscription: SUB, next_due: None };
        assert_eq!(fetches(&machine.step(at(0), settled)), [SUB]);
        assert!(started(&machine.step(at(0), fetched(2)), 2));
    }

    fn put_off(delivery: i64, until: Timestamp, whole: bool) -> In {
        In::PutOff { delivery: DeliverySeq(delivery), subscription: SUB, until, whole }
    }

    #[test]
    fn a_delivery_that_is_put_off_is_not_started_again_before_its_time() {
        let mut machine = machine(4, 4);
        // It is unordered, and there are more than fit into a window: it is looked at again and again.
        let more = |rows: std::ops::Range<i64>| match fetched(rows) {
            In::Fetched { subscription, rows, next_due, .. } => {
                In::Fetched { subscription, rows, more: true, next_due }
            }
            other => other,
        };
        assert_eq!(starts(&machine.step(at(0), more(1..2))), [1]);
        machine.step(at(0), In::Finished { subscription: SUB, latency: Duration::ZERO });
        machine.step(at(0), put_off(1, at(30), false));
        assert_eq!(starts(&machine.step(at(0), more(1..3))), [2], "others are not held up");
        assert_eq!(machine.sleep_until(), Some(at(30)));
        machine.step(at(30), In::Tick);
        assert_eq!(starts(&machine.step(at(30), more(1..2))), [1]);
    }

    #[test]
    fn a_subscription_that_is_put_off_is_not_read_before_its_time_however_much_is_due() {
        let mut machine = machine(2, 4);
        assert_eq!(starts(&machine.step(at(0), fetched(1..50))), [1]);
        machine.step(at(0), In::Finished { subscription: SUB, latency: Duration::ZERO });
        let out = machine.step(at(0), put_off(1, at(30), true));
        assert_eq!(out, []);
        assert_eq!(machine.step(at(0), In::Rang(SUB)), []);
        machine.step(at(1), In::Finished { subscription: SUB, latency: Duration::ZERO });
        assert_eq!(machine.step(at(1), put_off(2, at(31), true)), []);
        assert_eq!(machine.step(at(29), In::Tick), []);
        assert_eq!(fetches(&machine.step(at(30), In::Tick)), [SUB]);
        assert_eq!(starts(&machine.step(at(30), fetched(1..50))), [1]);
    }

    #[test]
    fn what_is_put_off_is_looked_at_when_its_subscription_is_changed_and_keeps_no_stop_waiting() {
        let mut machine = machine(4, 4);
        machine.step(at(0), fetched(1..2));
        machine.step(at(0), In::Finished { subscription: SUB, latency: Duration::ZERO });
        machine.step(at(0), put_off(1, at(30), false));
        let changed =
            In::SubscriptionChanged { subscription: SUB, cap: 9, hard: true, callable: true };
        assert_eq!(fetches(&machine.step(at(1), changed)), [SUB]);
        machine.step(at(1), fetched(1..2));
        machine.step(at(1), In::Finished { subscription: SUB, latency: Duration::ZERO });
        machine.step(at(1), put_off(1, at(31), false));
        assert_eq!(machine.step(at(2), In::Stop), [Out::Drained]);
    }

    #[test]
    fn a_lane_that_is_let_go_of_before_its_time_is_looked_at_then_and_not_at_once() {
        let (mut machine, lane) = (machine(4, 4), Some(7));
        let rows = vec![(DeliverySeq(1), lane)];
        machine.step(at(0), In::Fetched { subscription: SUB, rows, more: false, next_due: None });
        machine.step(at(0), In::Finished { subscription: SUB, latency: Duration::ZERO });
        // Its secret does not open: nothing came of it, and it is still due by its row.
        let later = Some(at(30));
        let let_go = In::Settled { delivery: DeliverySeq(1), subscription: SUB, next_due: later };
        assert!(fetches(&machine.step(at(0), let_go)).is_empty());
        assert!(fetches(&machine.step(at(29), In::Tick)).is_empty());
        assert_eq!(fetches(&machine.step(at(30), In::Tick)), [SUB]);
    }
}
