//! Consumers that ask for events: what is due is leased to them, and what they say of it is stored.
//!
//! A request that finds nothing waits without a thread of its own: it is parked with [`Attendant`], the one
//! thread of this stage, which answers it when something becomes due or its time is over, and which ends
//! leases that are over. A lease is committed before it is answered. Not here: what follows from a consumer's
//! word (`domain::lease`), and how an answer is written (`api::consumers`).

mod attendant;
mod desk;
mod expiry;
mod parked;

use std::sync::Arc;
use std::time::Duration;

use crate::base::clock::{Clock, Timestamp};
use crate::base::id::{DeliverySeq, Draw, SubscriptionSeq};
use crate::config::Live;
use crate::http::message::Response;
use crate::http::service::Reply;
use crate::model::delivery::OutgoingRequest;
use crate::model::lease::Said;
use crate::model::retry::Schedule;
use crate::model::subscription::{HoldReason, Subscription};
use crate::pipeline::consume::desk::Desk;
use crate::pipeline::consume::parked::Waiter;
use crate::pipeline::counts::Counts;
use crate::pipeline::destinations::{Destinations, effective};
use crate::pipeline::privacy::{Opened, Privacy};
use crate::store::Store;
use crate::store::consuming::{self, Consumer, Heard, Settled};
use crate::store::deliveries;
use crate::store::error::{Error, Result};
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;

pub use crate::pipeline::consume::attendant::Attendant;

/// Requests that may wait for events at once. Each has a connection; most of those are for others.
pub const MAX_WAITING: usize = 512;
/// Deliveries one answer may have.
pub const MAX_ITEMS: u32 = 100;
/// The longest wait for something to become due.
pub const MAX_WAIT: Duration = Duration::from_secs(30);
/// Bytes of payloads in one answer, about.
const MAX_ANSWER_BYTES: u64 = 8 << 20;

/// What stands for a reason that may hold what is sealed in an event that cannot be opened.
const UNOPENED: &str = "not kept: its event cannot be opened";

/// A request for events.
pub struct Asked {
    /// Of which subscription.
    pub subscription: SubscriptionSeq,
    /// How many at most.
    pub most: u32,
    /// How long it may wait for the first.
    pub wait: Duration,
    /// The way back.
    pub reply: Reply,
    /// How the answer is written.
    pub show: Show,
}

/// Writes an answer.
pub type Show = Box<dyn FnOnce(Answer) -> Response + Send>;

impl std::fmt::Debug for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asked").field("subscription", &self.subscription).finish_non_exhaustive()
    }
}

impl Asked {
    fn answer(self, answer: Answer) {
        self.reply.send((self.show)(answer));
    }
}

/// What a request for events is answered.
#[derive(Debug)]
pub enum Answer {
    /// These are leased.
    Items(Vec<Item>),
    /// There is nothing, and why, where something keeps it back.
    Nothing(Option<HoldReason>),
    /// Too many wait already.
    Crowded,
    /// The subscription was deleted meanwhile.
    Gone,
    /// The subscription cannot be used; for the log and a person.
    Unusable(String),
    /// The file could not be read or written.
    Failed(Error),
}

/// A leased event.
#[derive(Debug)]
pub struct Item {
    /// What it is.
    pub parcel: OutgoingRequest,
    /// What the consumer has to show.
    pub lease: String,
    /// When the lease ends.
    pub until: Timestamp,
    /// The number of the attempt.
    pub attempt: u32,
    /// The header fields that a request with it would have.
    pub headers: Vec<(String, String)>,
}

/// What a consumer says of one delivery.
#[derive(Clone, Debug)]
pub struct Word {
    /// Which.
    pub delivery: DeliverySeq,
    /// The lease it had.
    pub lease: String,
    /// What came of it.
    pub said: Said,
}

/// The consumers' way in. Cheap to clone.
#[derive(Clone)]
pub struct Consume {
    store: Store,
    clock: Clock,
    draw: Arc<dyn Draw>,
    destinations: Arc<Destinations>,
    settings: Live,
    counts: Arc<Counts>,
    privacy: Arc<Privacy>,
    desk: Desk,
}

impl std::fmt::Debug for Consume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consume").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

impl Consume {
    /// The way in, and who attends to it.
    pub(super) fn new(
        (store, clock, draw): (Store, Clock, Arc<dyn Draw>),
        destinations: Arc<Destinations>,
        settings: Live,
        (counts, privacy): (Arc<Counts>, Arc<Privacy>),
    ) -> (Self, Attendant) {
        let desk = Desk::default();
        let consume = Self { store, clock, draw, destinations, settings, counts, privacy, desk };
        (consume.clone(), Attendant::new(consume))
    }

    /// Leases what is due, or lets the request wait for it.
    pub fn next(&self, asked: Asked) {
        if self.waiting() >= MAX_WAITING {
            return asked.answer(Answer::Crowded);
        }
        self.desk.come();
        // Its wait begins now, not when somebody comes to it.
        let until = self.clock.monotonic().saturating_add(asked.wait);
        let waiter = Waiter { most: asked.most, until, request: asked };
        self.desk.leave(|letters| letters.asked.push(waiter));
    }

    /// What a consumer says, without what was sealed or what the policy's detectors find. Of an event that cannot
    /// be opened nobody knows what that would be: what came of it is heard, and its reason is not.
    fn cleaned(&self, subscription: &Subscription, mut word: Word) -> Result<Word> {
        let (Said::Failed { reason, .. } | Said::Refused { reason }) = &mut word.said else {
            return Ok(word);
        };
        match self.opened(subscription, word.delivery) {
            Ok(None) => {}
            Ok(Some(Opened { echo, is_whole: true })) => {
                *reason = echo.clean_reason(std::mem::take(reason));
            }
            Ok(Some(_)) => UNOPENED.clone_into(reason),
            Err(error) if error.concerns_all() => return Err(error),
            Err(error) => {
                let delivery = word.delivery;
                tracing::error!(%error, %delivery, "an event cannot be opened; the reason of its failure is not kept");
                UNOPENED.clone_into(reason);
            }
        }
        Ok(word)
    }

    /// What was given with a delivery; `None` where nothing is heard of it.
    fn opened(&self, subscription: &Subscription, delivery: DeliverySeq) -> Result<Option<Opened>> {
        // What is not open any more is not heard either.
        let parcel = self.store.read(|tx| deliveries::parcel(tx, delivery))?;
        let own = parcel.filter(|parcel| parcel.subscription == subscription.seq);
        own.map(|mut parcel| self.privacy.open_parcel(&mut parcel)).transpose()
    }

    /// Stores what a consumer says; `done` is called after COMMIT, with an answer for each.
    pub fn settle(
        &self,
        subscription: &Subscription,
        words: Vec<Word>,
        done: impl FnOnce(Result<Vec<Heard>>) + Send + 'static,
    ) {
        let cleaned = words.into_iter().map(|word| self.cleaned(subscription, word));
        let words = match cleaned.collect::<Result<Vec<Word>>>() {
            Ok(words) => words,
            Err(error) => return done(Err(error)),
        };
        // A consumer is told to come again where it would have to wait, as whoever else asks for something.
        self.settle_cleaned(Queue::Accept, subscription, words, done);
    }

    /// The same for words that hold nothing of an event.
    fn settle_cleaned(
        &self,
        queue: Queue,
        subscription: &Subscription,
        words: Vec<Word>,
        done: impl FnOnce(Result<Vec<Heard>>) + Send + 'static,
    ) {
        let consumer = self.consumer(subscription);
        let (draw, counts) = (Arc::clone(&self.draw), Arc::clone(&self.counts));
        self.store.writer().submit(
            queue,
            move |tx| {
                words
                    .iter()
                    .map(|Word { delivery, lease, said }| {
                        consuming::settle(tx, &consumer, (*delivery, lease), said, &*draw)
                    })
                    .collect::<Result<Vec<Settled>>>()
            },
            move |settled| {
                let count = |Settled { heard, settlement }| {
                    if let Some(settlement) = &settlement {
                        counts.consumed(settlement);
                    }
                    heard
                };
                done(settled.map(|all| all.into_iter().map(count).collect()));
            },
        );
    }

    /// Gives a consumer more time from now on, also for what it had and nobody else has taken; `done` is called after COMMIT, with an answer for each.
    pub fn extend(
        &self,
        subscription: SubscriptionSeq,
        leases: Vec<(DeliverySeq, String)>,
        span: Duration,
        done: impl FnOnce(Result<Vec<Heard>>) + Send + 'static,
    ) {
        let (now, desk) = (self.clock.now(), self.desk.clone());
        let until = now.plus(span);
        self.store.writer().submit(
            Queue::Accept,
            move |tx: &WriteTx<'_>| {
                leases
                    .iter()
                    .map(|(delivery, lease)| {
                        consuming::extend(tx, subscription, (*delivery, lease), (now, until))
                    })
                    .collect()
            },
            move |heard: Result<Vec<Heard>>| {
                // It may end earlier than it would have.
                desk.leave(|letters| {
                    letters.extended = Some(letters.extended.map_or(until, |at| at.min(until)));
                });
                done(heard);
            },
        );
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.desk.waiting()
    }

    /// Tells those who wait what was committed.
    pub(super) fn tell(&self, rang: &[SubscriptionSeq], subscriptions_changed: bool) {
        self.desk.tell(rang, subscriptions_changed);
    }

    /// Lets the clock be looked at, which a test has moved.
    pub(super) fn wake(&self) {
        self.desk.leave(|letters| letters.woken = true);
    }

    /// Answers whoever waits, and lets nobody wait from now on.
    pub(super) fn stop_waiting(&self) {
        self.desk.leave(|letters| letters.stop = true);
    }

    /// Lets the thread end.
    pub(super) fn end(&self) {
        self.desk.leave(|letters| letters.end = true);
    }

    fn consumer(&self, subscription: &Subscription) -> Consumer {
        Consumer {
            subscription: subscription.seq,
            url: format!("pull:{}", subscription.new.name),
            schedule: self.schedule(Some(subscription)),
            now: self.clock.now(),
            wall: self.clock.wall(),
        }
    }

    /// A subscription's waits; those of the settings, where its own can no longer be read.
    fn schedule(&self, subscription: Option<&Subscription>) -> Schedule {
        let defaults = &self.settings.get().delivery;
        let own = subscription.and_then(|found| effective(&found.new.policy, defaults).ok());
        own.map_or_else(|| defaults.schedule.clone(), |(schedule, _)| schedule)
    }
}
