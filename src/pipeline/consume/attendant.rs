//! The thread that attends to consumers: leases for those who ask, answers for those who have waited. It never
//! waits for the writer. Not here: how leases end that are over (`expiry`).

use std::collections::BTreeSet;
use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::base::id::{self, SubscriptionSeq};
use crate::model::lease::{LEASES, Said};
use crate::model::subscription::Subscription;
use crate::pipeline::consume::desk::{Brought, Letters};
use crate::pipeline::consume::expiry::Expiry;
use crate::pipeline::consume::parked::{Parked, Waiter};
use crate::pipeline::consume::{Answer, Asked, Consume, Item, MAX_ANSWER_BYTES, Word};
use crate::pipeline::destinations::{Destination, lease_time};
use crate::pipeline::privacy::NOT_OPENED;
use crate::store::consuming::{self, Ask, Taken};
use crate::store::error::Result;
use crate::store::writer::Queue;
use crate::store::{deliveries, subscriptions};

/// How long it sleeps at most while somebody waits or has something: clocks are set, clients leave.
const MAX_SLEEP: Duration = Duration::from_millis(250);
/// The same while nobody does.
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
#[derive(Debug)]
pub struct Attendant {
    consume: Consume,
    parked: Parked<Asked>,
    /// Requests that the writer has in hand.
    with_writer: usize,
    expiry: Expiry,
    looked_at: Duration,
    stopping: bool,
    ending_since: Option<Duration>,
}

impl Attendant {
    pub(super) fn new(consume: Consume) -> Self {
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

    /// Attends until it is told to end.
    pub fn run(mut self) {
        loop {
            let letters = self.consume.desk.take(self.sleep());
            self.turn(letters);
            if self.is_done() {
                return;
            }
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

    fn turn(&mut self, letters: Letters) {
        let Letters { asked, brought, ended, extended, rang, subscriptions_changed, .. } = letters;
        let (stop, end) = (letters.stop, letters.end);
        self.stopping |= stop || end;
        let mut look: BTreeSet<SubscriptionSeq> = rang;
        for brought in brought {
            look.insert(brought.waiter.request.subscription);
            self.with_writer = self.with_writer.saturating_sub(1);
            self.hand_over(brought);
        }
        for waiter in asked {
            let subscription = waiter.request.subscription;
            look.insert(subscription);
            self.parked.park(subscription, waiter);
        }
        look.extend(self.parked.became_due(self.consume.clock.now()));
        if subscriptions_changed {
            look.extend(self.parked.subscriptions());
        }
        if let Some(until) = extended {
            self.expiry.note(until);
        }
        if !end && self.ending_since.is_none() {
            for ended in ended {
                self.expiry.ended(&self.consume, ended);
            }
            self.expiry.look(&self.consume);
        }
        if !self.stopping {
            for subscription in look {
                self.attend(subscription);
            }
        }
        self.let_go();
        if end && self.ending_since.is_none() {
            self.ending_since = Some(self.consume.clock.monotonic());
        }
    }

    /// Gives what is due to those who wait for it, in the order they came.
    fn attend(&mut self, subscription: SubscriptionSeq) {
        let Some(line) = self.parked.line(subscription) else { return };
        let destination = match self.consume.destinations.of(subscription) {
            Ok(destination) => destination,
            Err(reason) => return self.refuse(subscription, &reason),
        };
        line.held = destination.subscription.holds.first().map(|hold| hold.reason);
        line.next_due = None;
        if line.held.is_some() {
            return;
        }
        let wanted = line.waiters.iter().map(|waiter| waiter.most).fold(0, u32::saturating_add);
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
            let Some(line) = self.parked.line(subscription) else { break };
            let Some(waiter) = line.waiters.pop_front() else { break };
            if waiter.request.reply.is_left() {
                self.answer(waiter.request, Answer::Nothing(None));
                continue;
            }
            due = due.saturating_sub(waiter.most);
            self.take(waiter, span);
        }
    }

    fn refuse(&mut self, subscription: SubscriptionSeq, reason: &str) {
        let Some(line) = self.parked.line(subscription) else { return };
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
    fn take(&mut self, waiter: Waiter<Asked>, span: Duration) {
        let Consume { store, clock, draw, desk, .. } = &self.consume;
        let ask = Ask {
            subscription: waiter.request.subscription,
            most: waiter.most,
            bytes_most: MAX_ANSWER_BYTES,
            lease: id::uuid7(clock.wall(), &**draw),
            until: clock.now().plus(span),
            now: clock.now(),
        };
        let (lease, until, desk) = (ask.lease.clone(), ask.until, desk.clone());
        self.with_writer = self.with_writer.saturating_add(1);
        store.writer().submit(
            Queue::Accept,
            move |tx| consuming::take(tx, &ask),
            move |taken| {
                let brought = Brought { waiter, lease, until, taken };
                desk.leave(|letters| letters.brought.push(brought));
            },
        );
    }

    /// Answers a request with what was leased for it; where somebody was quicker, it waits again.
    fn hand_over(&mut self, brought: Brought) {
        let Brought { waiter, lease, until, taken } = brought;
        let taken = match taken {
            Ok(taken) => taken,
            Err(error) => return self.answer(waiter.request, Answer::Failed(error)),
        };
        if taken.is_empty() {
            return self.parked.park_first(waiter.request.subscription, waiter);
        }
        self.expiry.note(until);
        let answer = self.items(waiter.request.subscription, &lease, until, &taken);
        self.answer(waiter.request, answer);
    }

    /// What is given. What cannot be opened is handed back, so that it costs the others nothing; what was
    /// cancelled meanwhile is left out.
    fn items(
        &self,
        subscription: SubscriptionSeq,
        lease: &str,
        until: Timestamp,
        taken: &[Taken],
    ) -> Answer {
        let destination = match self.consume.destinations.of(subscription) {
            Ok(destination) => destination,
            Err(reason) => {
                let found = self.consume.store.read(|tx| subscriptions::by_seq(tx, subscription));
                if let Ok(Some(found)) = found {
                    let words = taken.iter().map(|taken| hand_back(taken, lease, &reason));
                    self.put_back(&found, words.collect());
                }
                return Answer::Unusable(reason);
            }
        };
        let (mut items, mut unopened) = (Vec::with_capacity(taken.len()), Vec::new());
        for taken in taken {
            match self.item(&destination, (lease, until), *taken) {
                Ok(Given::Item(item)) => items.push(*item),
                Ok(Given::Left) => {}
                Ok(Given::Never) => unopened.push(give_up(taken, lease)),
                Err(error) => {
                    let delivery = taken.delivery;
                    tracing::error!(%error, %delivery, "an event cannot be opened; it is handed back");
                    unopened.push(hand_back(taken, lease, "it cannot be opened, see the log"));
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
        Taken { delivery, attempt }: Taken,
    ) -> Result<Given> {
        let parcel = self.consume.store.read(|tx| deliveries::parcel(tx, delivery))?;
        let Some(mut parcel) = parcel else { return Ok(Given::Left) };
        // What is said of it afterwards is cleaned when it is said.
        if !self.consume.privacy.open_parcel(&mut parcel)?.is_whole {
            return Ok(Given::Never);
        }
        let at = self.consume.clock.wall();
        let headers = destination.headers(&parcel, at, &consuming::span(lease, delivery));
        let item = Item { headers, parcel, lease: lease.to_owned(), until, attempt };
        Ok(Given::Item(Box::new(item)))
    }

    fn put_back(&self, subscription: &Subscription, words: Vec<Word>) {
        // Nobody would say it again.
        self.consume.settle_cleaned(Queue::Settle, subscription, words, |heard| {
            if let Err(error) = heard {
                tracing::error!(%error, "events could not be handed back; their leases run out");
            }
        });
    }

    fn answer(&self, asked: Asked, answer: Answer) {
        asked.answer(answer);
        self.consume.desk.go();
    }

    /// Answers those who have waited long enough, and those who have left.
    fn let_go(&mut self) {
        let now = self.consume.clock.monotonic();
        let look = now.saturating_sub(self.looked_at) >= LOOK_EVERY;
        if look {
            self.looked_at = now;
        }
        let stopping = self.stopping;
        let over = self.parked.take(|waiter| {
            stopping || waiter.until <= now || (look && waiter.request.reply.is_left())
        });
        for (asked, held) in over {
            self.answer(asked, Answer::Nothing(held));
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

fn give_up(taken: &Taken, lease: &str) -> Word {
    let said = Said::Refused { reason: NOT_OPENED.to_owned() };
    Word { delivery: taken.delivery, lease: lease.to_owned(), said }
}

/// Ours to mend (settings, key, file): no consumer has failed, so nothing counts.
fn hand_back(taken: &Taken, lease: &str, why: &str) -> Word {
    let reason = format!("it could not be given: {why}");
    let said = Said::Failed { reason, wait: Some(UNOPENED_AGAIN), counted: false };
    Word { delivery: taken.delivery, lease: lease.to_owned(), said }
}
