//! The thread that leases due events to consumers. It parks requests that find nothing due, and never waits for the
//! writer. Not here: how leases expire (`expiry`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::base::id;
use crate::model::hold::{HoldReason, gate};
use crate::model::lease::{LEASES, LeaseOutcome};
use crate::model::subscription::Subscription;
use crate::pipeline::consume::expiry::Expiry;
use crate::pipeline::consume::{
    Answer, Consume, Granted, Item, LeaseMsg, LeaseRequest, MAX_ANSWER_BYTES, Report, Waiter,
};
use crate::pipeline::destinations::{Destination, lease_time};
use crate::pipeline::prelude::*;
use crate::privacy::NOT_OPENED;
use crate::store::consuming::{self, Leased, Take};
use crate::store::{deliveries, holds, subscriptions};

/// The longest sleep while a request waits or a lease is open: the clock may be set, a client may leave.
const MAX_SLEEP: Duration = Duration::from_millis(250);
/// The longest sleep otherwise.
const MAX_IDLE: Duration = Duration::from_secs(1);
/// How often it checks whether waiting clients are still connected.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Delay before a failed read is repeated.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// Delay before an event that could not be opened is leased again.
const UNOPENED_AGAIN: Duration = Duration::from_mins(1);
/// Due deliveries read at once.
const MAX_DUE: u32 = 1000;
/// How long the thread's end waits for the writer's jobs.
const END_GRACE: Duration = Duration::from_secs(5);

/// The state of the thread.
pub struct LeaseManager {
    consume: Consume,
    parked: Parked,
    /// Requests that wait for the writer.
    with_writer: usize,
    expiry: Expiry,
    checked_at: Duration,
    stopping: bool,
    ending_since: Option<Duration>,
}

impl LeaseManager {
    /// A manager that has read nothing yet.
    pub fn new(consume: Consume) -> Self {
        Self {
            consume,
            parked: Parked::default(),
            with_writer: 0,
            expiry: Expiry::new(),
            checked_at: Duration::ZERO,
            stopping: false,
            ending_since: None,
        }
    }

    /// Runs until it is told to end.
    pub fn run(mut self) {
        while !self.is_done() {
            let messages = self.consume.inbox.take(self.sleep(), false);
            self.turn(messages);
        }
    }

    fn is_done(&self) -> bool {
        let now = self.consume.env.clock.monotonic();
        let over = |since: Duration| now.saturating_sub(since) >= END_GRACE;
        self.ending_since.is_some_and(|since| self.with_writer == 0 || over(since))
    }

    fn sleep(&self) -> Duration {
        let clock = &self.consume.env.clock;
        if self.parked.is_empty() && self.expiry.next().is_none() {
            return MAX_IDLE;
        }
        let times = [self.parked.next_due(), self.expiry.next()];
        let due = times.into_iter().flatten().min().map(|at| at.since(clock.now()));
        let end = self.parked.next_end().map(|at| at.saturating_sub(clock.monotonic()));
        [due, end].into_iter().flatten().fold(MAX_SLEEP, Duration::min)
    }

    fn turn(&mut self, messages: LeaseMsg) {
        let LeaseMsg { requests, granted, expired, extended, woken, .. } = messages;
        self.stopping |= messages.stop || messages.end;
        let mut to_check: BTreeSet<SubscriptionSeq> = woken;
        for granted in granted {
            to_check.insert(granted.waiter.request.subscription);
            self.with_writer = self.with_writer.saturating_sub(1);
            self.hand_over(granted);
        }
        for waiter in requests {
            to_check.insert(waiter.request.subscription);
            self.parked.park(waiter);
        }
        to_check.extend(self.parked.became_due(self.consume.env.clock.now()));
        let changed = messages.subscriptions_changed;
        let is_changed = |of: &SubscriptionSeq| changed.all || changed.these.contains(of);
        to_check.extend(self.parked.subscriptions().into_iter().filter(is_changed));
        if let Some(until) = extended {
            self.expiry.note(until);
        }
        if !messages.end && self.ending_since.is_none() {
            for expired in expired {
                self.expiry.ended(&self.consume, expired);
            }
            self.expiry.start_round(&self.consume);
        }
        if !self.stopping {
            for subscription in to_check {
                self.lease_due(subscription);
            }
        }
        self.answer_ended();
        if messages.end {
            let now = self.consume.env.clock.monotonic();
            self.ending_since.get_or_insert(now);
        }
    }

    /// Gives due deliveries to the waiting requests, first come, first served.
    fn lease_due(&mut self, subscription: SubscriptionSeq) {
        let Some(queue) = self.parked.queues.get_mut(&subscription) else { return };
        let destination = match self.consume.destinations.of(subscription) {
            Ok(destination) => destination,
            Err(reason) => return self.refuse(subscription, &reason),
        };
        queue.next_due = None;
        let wanted =
            queue.waiters.iter().map(|waiter| waiter.request.most).fold(0, u32::saturating_add);
        let now = self.consume.env.clock.now();
        let looked = self.consume.env.store.read(|tx| {
            let (due, _) = deliveries::due(tx, subscription, now, wanted.min(MAX_DUE), &[], None)?;
            let due = due.len();
            let next = deliveries::next_due(tx, subscription, now)?;
            let mut holds = holds::of(tx, subscription)?;
            holds.retain(|hold| hold.reason != HoldReason::Offline);
            Ok((u32::try_from(due).unwrap_or(u32::MAX), next, holds))
        });
        let (mut due, next_due, holds) = match looked {
            Ok(looked) => looked,
            Err(error) => {
                tracing::error!(%error, "what is due could not be read; it is tried again");
                queue.next_due = Some(now.plus(READ_AGAIN));
                return;
            }
        };
        let gate = gate(&holds);
        queue.held = holds.first().map(|hold| hold.reason);
        queue.next_due = gate.opens_at().filter(|at| *at > now).or(next_due);
        if !gate.is_open(now) {
            return;
        }
        if gate.is_probe() {
            due = due.min(1);
        }
        // Checked when it was stored.
        let span = lease_time(&destination.subscription.new.policy).unwrap_or(*LEASES.start());
        while due > 0 {
            let queue = self.parked.queues.get_mut(&subscription);
            let Some(waiter) = queue.and_then(|queue| queue.waiters.pop_front()) else { break };
            if waiter.request.reply.is_left() {
                self.answer(waiter.request, Answer::Nothing(None));
                continue;
            }
            due = due.saturating_sub(waiter.request.most);
            self.take(waiter, span);
        }
    }

    fn refuse(&mut self, subscription: SubscriptionSeq, reason: &str) {
        let Some(queue) = self.parked.queues.get_mut(&subscription) else { return };
        let waiters = std::mem::take(&mut queue.waiters);
        let exists = self.consume.env.store.read(|tx| subscriptions::by_seq(tx, subscription));
        for waiter in waiters {
            let answer = match &exists {
                Ok(None) => Answer::Gone,
                _ => Answer::Unusable(reason.to_owned()),
            };
            self.answer(waiter.request, answer);
        }
    }

    /// Has the writer lease what is due.
    fn take(&mut self, waiter: Waiter, span: Duration) {
        let Env { store, clock, draw, .. } = &self.consume.env;
        let take = Take {
            subscription: waiter.request.subscription,
            most: waiter.request.most,
            bytes_most: MAX_ANSWER_BYTES,
            lease: id::uuid7(clock.wall(), &**draw),
            until: clock.now().plus(span),
            now: clock.now(),
        };
        let lease = take.lease.clone();
        let until = take.until;
        let inbox = self.consume.inbox.clone();
        self.with_writer = self.with_writer.saturating_add(1);
        store.writer().submit(
            Queue::Accept,
            move |tx| consuming::take(tx, &take),
            move |leased| {
                let granted = Granted { waiter, lease, until, leased };
                inbox.leave(|messages| messages.granted.push(granted));
            },
        );
    }

    /// Answers a request with what was leased for it. If another consumer was quicker, the request waits again.
    fn hand_over(&mut self, Granted { waiter, lease, until, leased }: Granted) {
        let answer = match leased {
            Err(error) => Answer::Failed(error),
            Ok(leased) if leased.is_empty() => return self.parked.park_first(waiter),
            Ok(leased) => {
                self.expiry.note(until);
                self.items(waiter.request.subscription, &lease, until, &leased)
            }
        };
        self.answer(waiter.request, answer);
    }

    /// The leased events. Those that cannot be opened are handed back, so that the others are still given. Those that
    /// were cancelled meanwhile are left out.
    fn items(
        &self,
        subscription: SubscriptionSeq,
        lease: &str,
        until: Timestamp,
        leased: &[Leased],
    ) -> Answer {
        let destination = match self.consume.destinations.of(subscription) {
            Ok(destination) => destination,
            Err(reason) => {
                let found =
                    self.consume.env.store.read(|tx| subscriptions::by_seq(tx, subscription));
                if let Ok(Some(found)) = found {
                    let reports = leased.iter().map(|leased| hand_back(leased, lease, &reason));
                    self.put_back(&found, reports.collect());
                }
                return Answer::Unusable(reason);
            }
        };
        let mut items = Vec::with_capacity(leased.len());
        let mut unopened = Vec::new();
        for leased in leased {
            match self.item(&destination, lease, until, *leased) {
                Ok(Handover::Item(item)) => items.push(*item),
                Ok(Handover::Cancelled) => {}
                Ok(Handover::Unopenable) => unopened.push(give_up(leased, lease)),
                Err(error) => {
                    let delivery = leased.delivery;
                    tracing::error!(%error, %delivery, "an event cannot be opened; it is handed back");
                    unopened.push(hand_back(leased, lease, "it cannot be opened, see the log"));
                }
            }
        }
        if !unopened.is_empty() {
            self.put_back(&destination.subscription, unopened);
        }
        Answer::Items(items)
    }

    fn item(
        &self,
        destination: &Destination,
        lease: &str,
        until: Timestamp,
        Leased { delivery, attempt }: Leased,
    ) -> Result<Handover> {
        let outgoing = self.consume.env.store.read(|tx| deliveries::outgoing(tx, delivery))?;
        let Some(mut outgoing) = outgoing else { return Ok(Handover::Cancelled) };
        // Reports about the event are cleaned when they come in.
        if !self.consume.env.privacy.open_sealed(&mut outgoing)?.is_whole {
            return Ok(Handover::Unopenable);
        }
        let at = self.consume.env.clock.wall();
        let headers = destination.headers(&outgoing, at, &consuming::span(lease, delivery));
        let item = Item { headers, outgoing, lease: lease.to_owned(), until, attempt };
        Ok(Handover::Item(Box::new(item)))
    }

    fn put_back(&self, subscription: &Subscription, reports: Vec<Report>) {
        // No consumer repeats this report, so the writer must not refuse it.
        self.consume.settle_cleaned(Queue::Settle, subscription, reports, |results| {
            if let Err(error) = results {
                tracing::error!(%error, "events could not be handed back; their leases run out");
            }
        });
    }

    fn answer(&self, request: LeaseRequest, answer: Answer) {
        let payer = request.payer.clone();
        request.answer(answer);
        self.consume.waiting.lock().give_back(&payer);
    }

    /// Answers requests that have waited long enough, and those whose clients have left.
    fn answer_ended(&mut self) {
        let now = self.consume.env.clock.monotonic();
        let is_check_due = now.saturating_sub(self.checked_at) >= CHECK_EVERY;
        if is_check_due {
            self.checked_at = now;
        }
        let stopping = self.stopping;
        let over = self.parked.take(|waiter| {
            stopping || waiter.until <= now || (is_check_due && waiter.request.reply.is_left())
        });
        for (request, held) in over {
            self.answer(request, Answer::Nothing(held));
        }
    }
}

/// What is done with a leased delivery.
enum Handover {
    /// It is given to the consumer.
    Item(Box<Item>),
    /// It was cancelled meanwhile.
    Cancelled,
    /// Its sealed fields can never be opened.
    Unopenable,
}

fn give_up(leased: &Leased, lease: &str) -> Report {
    let outcome = LeaseOutcome::Refused { reason: NOT_OPENED.to_owned() };
    Report { delivery: leased.delivery, lease: lease.to_owned(), outcome }
}

/// The cause is on our side (settings, key, file): no consumer has failed, so nothing is counted.
fn hand_back(leased: &Leased, lease: &str, why: &str) -> Report {
    let reason = format!("it could not be given: {why}");
    let outcome = LeaseOutcome::Failed { reason, wait: Some(UNOPENED_AGAIN), counted: false };
    Report { delivery: leased.delivery, lease: lease.to_owned(), outcome }
}

/// Requests that wait for something to become due.
#[derive(Default)]
struct Parked {
    queues: BTreeMap<SubscriptionSeq, WaitQueue>,
}

/// The requests that wait for one subscription, in the order they came.
#[derive(Default)]
struct WaitQueue {
    waiters: VecDeque<Waiter>,
    /// When the next delivery becomes due.
    next_due: Option<Timestamp>,
    /// The hold that keeps events back, if there is one.
    held: Option<HoldReason>,
}

impl Parked {
    /// Puts a request at the end of its queue.
    fn park(&mut self, waiter: Waiter) {
        self.queue(&waiter).push_back(waiter);
    }

    /// Puts a request back at the front of its queue.
    fn park_first(&mut self, waiter: Waiter) {
        self.queue(&waiter).push_front(waiter);
    }

    fn queue(&mut self, waiter: &Waiter) -> &mut VecDeque<Waiter> {
        &mut self.queues.entry(waiter.request.subscription).or_default().waiters
    }

    /// The subscriptions that requests wait for.
    fn subscriptions(&self) -> Vec<SubscriptionSeq> {
        self.queues.keys().copied().collect()
    }

    /// Subscriptions with a delivery that has become due.
    fn became_due(&self, now: Timestamp) -> Vec<SubscriptionSeq> {
        let due =
            self.queues.iter().filter(|(_, queue)| queue.next_due.is_some_and(|at| at <= now));
        due.map(|(subscription, _)| *subscription).collect()
    }

    /// When the next delivery becomes due.
    fn next_due(&self) -> Option<Timestamp> {
        self.queues.values().filter_map(|queue| queue.next_due).min()
    }

    /// When the first request has waited long enough.
    fn next_end(&self) -> Option<Duration> {
        let ends = self.queues.values().flat_map(|queue| &queue.waiters);
        ends.map(|waiter| waiter.until).min()
    }

    /// Takes out the requests that `is_over` selects, each with the hold that keeps its events back. The others keep
    /// their order.
    fn take(
        &mut self,
        mut is_over: impl FnMut(&Waiter) -> bool,
    ) -> Vec<(LeaseRequest, Option<HoldReason>)> {
        let mut over = Vec::new();
        for queue in self.queues.values_mut() {
            let (ended, stays): (VecDeque<_>, VecDeque<_>) =
                std::mem::take(&mut queue.waiters).into_iter().partition(&mut is_over);
            queue.waiters = stays;
            over.extend(ended.into_iter().map(|waiter| (waiter.request, queue.held)));
        }
        self.queues.retain(|_, queue| !queue.waiters.is_empty());
        over
    }

    /// Whether no request waits.
    fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::fair::Payer;
    use crate::http::message::Response;
    use crate::http::service::{Reply, ResponseHandle};

    const ERP: SubscriptionSeq = SubscriptionSeq(1);

    struct Nowhere;

    impl ResponseHandle for Nowhere {
        fn is_left(&self) -> bool {
            false
        }

        fn deliver(self: Box<Self>, _response: Response) {}
    }

    /// A request; tests recognize it by how many deliveries it asks for.
    fn waiter(most: u32, until: u64) -> Waiter {
        let response = || Response::new(200);
        let reply = Reply::new(Box::new(Nowhere), response());
        let show = Box::new(move |_| response());
        let (payer, wait) = (Payer::Anonymous, Duration::ZERO);
        let request = LeaseRequest { subscription: ERP, payer, most, wait, reply, show };
        Waiter { request, until: Duration::from_secs(until) }
    }

    fn take(parked: &mut Parked, until: u64) -> Vec<(u32, Option<HoldReason>)> {
        let over = parked.take(|waiter| waiter.until <= Duration::from_secs(until));
        over.into_iter().map(|(request, held)| (request.most, held)).collect()
    }

    #[test]
    fn requests_that_have_waited_long_enough_are_taken_out_and_the_others_keep_their_places() {
        let mut parked = Parked::default();
        for (request, until) in [(1, 30), (2, 10), (3, 20)] {
            parked.park(waiter(request, until));
        }
        assert_eq!(parked.next_end(), Some(Duration::from_secs(10)));
        assert_eq!(take(&mut parked, 20), [(2, None), (3, None)]);
        parked.park_first(waiter(4, 30));
        let order = parked.queues[&ERP].waiters.iter().map(|waiter| waiter.request.most);
        assert_eq!(order.collect::<Vec<_>>(), [4, 1]);
        assert_eq!(take(&mut parked, 30).len(), 2);
        assert!(parked.is_empty() && parked.next_end().is_none());
    }

    #[test]
    fn a_queue_knows_when_something_becomes_due_and_what_holds_it() {
        let mut parked = Parked::default();
        parked.park(waiter(1, 30));
        parked.queues.get_mut(&ERP).unwrap().next_due = Some(Timestamp::from_secs(5));
        assert_eq!(parked.next_due(), Some(Timestamp::from_secs(5)));
        assert!(parked.became_due(Timestamp::from_secs(4)).is_empty());
        assert_eq!(parked.became_due(Timestamp::from_secs(5)), [ERP]);
        parked.queues.get_mut(&ERP).unwrap().held = Some(HoldReason::Paused);
        assert_eq!(take(&mut parked, 30), [(1, Some(HoldReason::Paused))]);
    }
}
