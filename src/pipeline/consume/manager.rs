//! The thread that leases events to consumers: answers requests with what is due, parks those that find nothing. It
//! never waits for the writer. Not here: how leases end that are over (`expiry`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::base::id::{self, SubscriptionSeq};
use crate::model::hold::HoldReason;
use crate::model::lease::{LEASES, LeaseOutcome};
use crate::model::subscription::Subscription;
use crate::pipeline::consume::expiry::Expiry;
use crate::pipeline::consume::{
    Answer, Consume, Granted, Item, LeaseMsg, LeaseRequest, MAX_ANSWER_BYTES, Report, Waiter,
};
use crate::pipeline::destinations::{Destination, lease_time};
use crate::privacy::NOT_OPENED;
use crate::store::consuming::{self, Leased, Take};
use crate::store::error::Result;
use crate::store::writer::Queue;
use crate::store::{deliveries, subscriptions};

/// How long it sleeps at most while a request waits or a lease is open: clocks are set, clients leave.
const MAX_SLEEP: Duration = Duration::from_millis(250);
/// How long it sleeps at most otherwise.
const MAX_IDLE: Duration = Duration::from_secs(1);
/// How often it looks whether those who wait are still there.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// When what could not be read is looked for again.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// When an event that cannot be opened is given again.
const UNOPENED_AGAIN: Duration = Duration::from_mins(1);
/// Due deliveries looked for at once.
const MAX_DUE: u32 = 1000;
/// How long an end waits for what the writer has in hand.
const END_GRACE: Duration = Duration::from_secs(5);

/// The thread and what it holds.
pub struct LeaseManager {
    consume: Consume,
    parked: Parked,
    /// Requests that the writer has in hand.
    with_writer: usize,
    expiry: Expiry,
    looked_at: Duration,
    stopping: bool,
    ending_since: Option<Duration>,
}

impl LeaseManager {
    /// A manager that has not looked yet.
    pub fn new(consume: Consume) -> Self {
        Self {
            consume,
            parked: Parked::default(),
            with_writer: 0,
            expiry: Expiry::new(),
            looked_at: Duration::ZERO,
            stopping: false,
            ending_since: None,
        }
    }

    /// Runs until it is told to end.
    pub fn run(mut self) {
        while !self.is_done() {
            let messages = self.consume.inbox.take(self.sleep());
            self.turn(messages);
        }
    }

    fn is_done(&self) -> bool {
        let now = self.consume.clock.monotonic();
        let over = |since: Duration| now.saturating_sub(since) >= END_GRACE;
        self.ending_since.is_some_and(|since| self.with_writer == 0 || over(since))
    }

    fn sleep(&self) -> Duration {
        let clock = &self.consume.clock;
        if self.parked.is_empty() && self.expiry.next().is_none() {
            return MAX_IDLE;
        }
        let times = [self.parked.next_due(), self.expiry.next()];
        let due = times.into_iter().flatten().min().map(|at| at.since(clock.now()));
        let end = self.parked.next_end().map(|at| at.saturating_sub(clock.monotonic()));
        [due, end].into_iter().flatten().fold(MAX_SLEEP, Duration::min)
    }

    fn turn(&mut self, messages: LeaseMsg) {
        let LeaseMsg { requests, granted, expired, extended, rang, .. } = messages;
        self.stopping |= messages.stop || messages.end;
        let mut look: BTreeSet<SubscriptionSeq> = rang;
        for granted in granted {
            look.insert(granted.waiter.request.subscription);
            self.with_writer = self.with_writer.saturating_sub(1);
            self.hand_over(granted);
        }
        for waiter in requests {
            look.insert(waiter.request.subscription);
            self.parked.park(waiter);
        }
        look.extend(self.parked.became_due(self.consume.clock.now()));
        if messages.subscriptions_changed {
            look.extend(self.parked.subscriptions());
        }
        if let Some(until) = extended {
            self.expiry.note(until);
        }
        if !messages.end && self.ending_since.is_none() {
            for expired in expired {
                self.expiry.ended(&self.consume, expired);
            }
            self.expiry.look(&self.consume);
        }
        if !self.stopping {
            for subscription in look {
                self.lease_due(subscription);
            }
        }
        self.answer_over();
        if messages.end {
            let now = self.consume.clock.monotonic();
            self.ending_since.get_or_insert(now);
        }
    }

    /// Gives what is due to those who wait for it, in the order they came.
    fn lease_due(&mut self, subscription: SubscriptionSeq) {
        let Some(line) = self.parked.lines.get_mut(&subscription) else { return };
        let destination = match self.consume.destinations.of(subscription) {
            Ok(destination) => destination,
            Err(reason) => return self.refuse(subscription, &reason),
        };
        line.held = destination.subscription.holds.first().map(|hold| hold.reason);
        line.next_due = None;
        if line.held.is_some() {
            return;
        }
        let wanted =
            line.waiters.iter().map(|waiter| waiter.request.most).fold(0, u32::saturating_add);
        let now = self.consume.clock.now();
        let looked = self.consume.store.read(|tx| {
            let due = deliveries::due(tx, subscription, now, wanted.min(MAX_DUE))?.len();
            let next = deliveries::next_due(tx, subscription, now)?;
            Ok((u32::try_from(due).unwrap_or(u32::MAX), next))
        });
        let (mut due, next_due) = match looked {
            Ok(looked) => looked,
            Err(error) => {
                tracing::error!(%error, "what is due could not be read; it is tried again");
                line.next_due = Some(now.plus(READ_AGAIN));
                return;
            }
        };
        line.next_due = next_due;
        // Checked when it was stored.
        let span = lease_time(&destination.subscription.new.policy).unwrap_or(*LEASES.start());
        while due > 0 {
            let line = self.parked.lines.get_mut(&subscription);
            let Some(waiter) = line.and_then(|line| line.waiters.pop_front()) else { break };
            if waiter.request.reply.is_left() {
                self.answer(waiter.request, Answer::Nothing(None));
                continue;
            }
            due = due.saturating_sub(waiter.request.most);
            self.take(waiter, span);
        }
    }

    fn refuse(&mut self, subscription: SubscriptionSeq, reason: &str) {
        let Some(line) = self.parked.lines.get_mut(&subscription) else { return };
        let waiters = std::mem::take(&mut line.waiters);
        let exists = self.consume.store.read(|tx| subscriptions::by_seq(tx, subscription));
        for waiter in waiters {
            let answer = match &exists {
                Ok(None) => Answer::Gone,
                _ => Answer::Unusable(reason.to_owned()),
            };
            self.answer(waiter.request, answer);
        }
    }

    /// Lets the writer lease what is due.
    fn take(&mut self, waiter: Waiter, span: Duration) {
        let Consume { store, clock, draw, inbox, .. } = &self.consume;
        let take = Take {
            subscription: waiter.request.subscription,
            most: waiter.request.most,
            bytes_most: MAX_ANSWER_BYTES,
            lease: id::uuid7(clock.wall(), &**draw),
            until: clock.now().plus(span),
            now: clock.now(),
        };
        let (lease, until, inbox) = (take.lease.clone(), take.until, inbox.clone());
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

    /// The leased events. Those that cannot be opened are handed back, so that the others are still given; those
    /// that were cancelled meanwhile are left out.
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
                let found = self.consume.store.read(|tx| subscriptions::by_seq(tx, subscription));
                if let Ok(Some(found)) = found {
                    let reports = leased.iter().map(|leased| hand_back(leased, lease, &reason));
                    self.put_back(&found, reports.collect());
                }
                return Answer::Unusable(reason);
            }
        };
        let (mut items, mut unopened) = (Vec::with_capacity(leased.len()), Vec::new());
        for leased in leased {
            match self.item(&destination, (lease, until), *leased) {
                Ok(Given::Item(item)) => items.push(*item),
                Ok(Given::Left) => {}
                Ok(Given::Never) => unopened.push(give_up(leased, lease)),
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
        (lease, until): (&str, Timestamp),
        Leased { delivery, attempt }: Leased,
    ) -> Result<Given> {
        let outgoing = self.consume.store.read(|tx| deliveries::outgoing(tx, delivery))?;
        let Some(mut outgoing) = outgoing else { return Ok(Given::Left) };
        // What is said of it afterwards is cleaned when it is said.
        if !self.consume.privacy.open_sealed(&mut outgoing)?.is_whole {
            return Ok(Given::Never);
        }
        let at = self.consume.clock.wall();
        let headers = destination.headers(&outgoing, at, &consuming::span(lease, delivery));
        let item = Item { headers, outgoing, lease: lease.to_owned(), until, attempt };
        Ok(Given::Item(Box::new(item)))
    }

    fn put_back(&self, subscription: &Subscription, reports: Vec<Report>) {
        // Nobody would report it again, so it must not be refused.
        self.consume.settle_cleaned(Queue::Settle, subscription, reports, |results| {
            if let Err(error) = results {
                tracing::error!(%error, "events could not be handed back; their leases run out");
            }
        });
    }

    fn answer(&self, request: LeaseRequest, answer: Answer) {
        request.answer(answer);
        self.consume.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Answers those who have waited long enough, and those who have left.
    fn answer_over(&mut self) {
        let now = self.consume.clock.monotonic();
        let look = now.saturating_sub(self.looked_at) >= LOOK_EVERY;
        if look {
            self.looked_at = now;
        }
        let stopping = self.stopping;
        let over = self.parked.take(|waiter| {
            stopping || waiter.until <= now || (look && waiter.request.reply.is_left())
        });
        for (request, held) in over {
            self.answer(request, Answer::Nothing(held));
        }
    }
}

/// What becomes of something that was leased.
enum Given {
    /// It is given.
    Item(Box<Item>),
    /// It was cancelled meanwhile.
    Left,
    /// What is sealed in it will never open.
    Never,
}

fn give_up(leased: &Leased, lease: &str) -> Report {
    let outcome = LeaseOutcome::Refused { reason: NOT_OPENED.to_owned() };
    Report { delivery: leased.delivery, lease: lease.to_owned(), outcome }
}

/// Ours to mend (settings, key, file): no consumer has failed, so nothing counts.
fn hand_back(leased: &Leased, lease: &str, why: &str) -> Report {
    let reason = format!("it could not be given: {why}");
    let outcome = LeaseOutcome::Failed { reason, wait: Some(UNOPENED_AGAIN), counted: false };
    Report { delivery: leased.delivery, lease: lease.to_owned(), outcome }
}

/// Requests that wait for something to become due.
#[derive(Default)]
struct Parked {
    lines: BTreeMap<SubscriptionSeq, WaitingLine>,
}

/// The requests that wait for one subscription, in the order they came.
#[derive(Default)]
struct WaitingLine {
    waiters: VecDeque<Waiter>,
    /// When something becomes due by itself.
    next_due: Option<Timestamp>,
    /// Why nothing is given.
    held: Option<HoldReason>,
}

impl Parked {
    /// Lets a request wait behind those that came before.
    fn park(&mut self, waiter: Waiter) {
        self.line(&waiter).push_back(waiter);
    }

    /// Lets a request wait that was first already.
    fn park_first(&mut self, waiter: Waiter) {
        self.line(&waiter).push_front(waiter);
    }

    fn line(&mut self, waiter: &Waiter) -> &mut VecDeque<Waiter> {
        &mut self.lines.entry(waiter.request.subscription).or_default().waiters
    }

    /// The subscriptions that requests wait for.
    fn subscriptions(&self) -> Vec<SubscriptionSeq> {
        self.lines.keys().copied().collect()
    }

    /// Subscriptions of which something became due by itself.
    fn became_due(&self, now: Timestamp) -> Vec<SubscriptionSeq> {
        let due = self.lines.iter().filter(|(_, line)| line.next_due.is_some_and(|at| at <= now));
        due.map(|(subscription, _)| *subscription).collect()
    }

    /// When something becomes due by itself.
    fn next_due(&self) -> Option<Timestamp> {
        self.lines.values().filter_map(|line| line.next_due).min()
    }

    /// When the first has waited long enough.
    fn next_end(&self) -> Option<Duration> {
        let ends = self.lines.values().flat_map(|line| &line.waiters);
        ends.map(|waiter| waiter.until).min()
    }

    /// Takes out those that need not wait any longer, each with what keeps it from having anything; those
    /// that stay keep their order.
    fn take(
        &mut self,
        mut is_over: impl FnMut(&Waiter) -> bool,
    ) -> Vec<(LeaseRequest, Option<HoldReason>)> {
        let mut over = Vec::new();
        for line in self.lines.values_mut() {
            let (ended, stays): (VecDeque<_>, VecDeque<_>) =
                std::mem::take(&mut line.waiters).into_iter().partition(&mut is_over);
            line.waiters = stays;
            over.extend(ended.into_iter().map(|waiter| (waiter.request, line.held)));
        }
        self.lines.retain(|_, line| !line.waiters.is_empty());
        over
    }

    /// Whether nobody waits.
    fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::message::Response;
    use crate::http::service::{Reply, WayBack};

    const ERP: SubscriptionSeq = SubscriptionSeq(1);

    struct Nowhere;

    impl WayBack for Nowhere {
        fn is_left(&self) -> bool {
            false
        }

        fn deliver(self: Box<Self>, _response: Response) {}
    }

    /// A request that is told by how many deliveries it asks for.
    fn waiter(most: u32, until: u64) -> Waiter {
        let response = || Response::new(200);
        let reply = Reply::new(Box::new(Nowhere), response());
        let show = Box::new(move |_| response());
        let request = LeaseRequest { subscription: ERP, most, wait: Duration::ZERO, reply, show };
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
        let order = parked.lines[&ERP].waiters.iter().map(|waiter| waiter.request.most);
        assert_eq!(order.collect::<Vec<_>>(), [4, 1]);
        assert_eq!(take(&mut parked, 30).len(), 2);
        assert!(parked.is_empty() && parked.next_end().is_none());
    }

    #[test]
    fn a_line_knows_when_something_becomes_due_and_what_holds_it() {
        let mut parked = Parked::default();
        parked.park(waiter(1, 30));
        parked.lines.get_mut(&ERP).unwrap().next_due = Some(Timestamp::from_secs(5));
        assert_eq!(parked.next_due(), Some(Timestamp::from_secs(5)));
        assert!(parked.became_due(Timestamp::from_secs(4)).is_empty());
        assert_eq!(parked.became_due(Timestamp::from_secs(5)), [ERP]);
        parked.lines.get_mut(&ERP).unwrap().held = Some(HoldReason::Paused);
        assert_eq!(take(&mut parked, 30), [(1, Some(HoldReason::Paused))]);
    }
}
