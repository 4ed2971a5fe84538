//! Pull consumers: what is due is leased to them, and what they report of it is stored.
//!
//! A request that finds nothing waits without a thread of its own: [`manager::LeaseManager`], the one thread of this
//! stage, parks it. The manager answers it when something becomes due or its time is over, and ends leases that are
//! over. A lease is committed before it is answered. Not here: what follows from a report (`model::lease`), and how an
//! answer is written (`api::consumers`).

mod expiry;
pub mod manager;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::base::clock::{Clock, Timestamp};
use crate::base::id::{DeliverySeq, Draw, SubscriptionSeq};
use crate::config::Live;
use crate::http::message::Response;
use crate::http::service::Reply;
use crate::model::delivery::OutgoingRequest;
use crate::model::delivery::Schedule;
use crate::model::hold::HoldReason;
use crate::model::lease::LeaseOutcome;
use crate::model::subscription::Subscription;
use crate::pipeline::counts::Counts;
use crate::pipeline::destinations::{Destinations, effective};
use crate::pipeline::inbox::Inbox;
use crate::privacy::{Opened, Privacy};
use crate::store::Store;
use crate::store::consuming::{self, Consumer, Leased, ReportResult, Settled};
use crate::store::deliveries;
use crate::store::error::{Error, Result};
use crate::store::leases::Lease;
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;

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
pub struct LeaseRequest {
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

impl LeaseRequest {
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
    pub outgoing: OutgoingRequest,
    /// What the consumer has to show.
    pub lease: String,
    /// When the lease ends.
    pub until: Timestamp,
    /// The number of the attempt.
    pub attempt: u32,
    /// The header fields that a request with it would have.
    pub headers: Vec<(String, String)>,
}

/// What a consumer reports of one delivery.
#[derive(Clone, Debug)]
pub struct Report {
    /// Which.
    pub delivery: DeliverySeq,
    /// The lease it had.
    pub lease: String,
    /// What came of it.
    pub outcome: LeaseOutcome,
}

/// What other threads tell the lease manager.
#[derive(Default)]
struct LeaseMsg {
    /// New requests.
    requests: Vec<Waiter>,
    /// What the writer leased for requests.
    granted: Vec<Granted>,
    /// What came of leases that the writer was to end.
    expired: Vec<Expired>,
    /// The earliest end of a lease that its consumer has moved since.
    extended: Option<Timestamp>,
    /// Subscriptions that may have something new.
    rang: BTreeSet<SubscriptionSeq>,
    /// Whether subscriptions were changed, held or released.
    subscriptions_changed: bool,
    /// Whether to answer those who wait, and let nobody wait any longer.
    stop: bool,
    /// Whether to end.
    end: bool,
}

/// A request that waits.
struct Waiter {
    request: LeaseRequest,
    /// When it has waited long enough.
    until: Duration,
}

/// What the writer leased for a request.
struct Granted {
    waiter: Waiter,
    lease: String,
    until: Timestamp,
    leased: Result<Vec<Leased>>,
}

/// What came of leases that the writer was to end.
#[derive(Debug)]
struct Expired {
    found: Vec<Lease>,
    outcome: Result<()>,
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
    inbox: Inbox<LeaseMsg>,
    /// Requests that are not answered yet.
    waiting: Arc<AtomicUsize>,
}

impl Consume {
    /// A way in that nobody uses yet.
    pub(super) fn new(
        (store, clock, draw): (Store, Clock, Arc<dyn Draw>),
        destinations: Arc<Destinations>,
        settings: Live,
        (counts, privacy): (Arc<Counts>, Arc<Privacy>),
    ) -> Self {
        let (inbox, waiting) = (Inbox::default(), Arc::default());
        Self { store, clock, draw, destinations, settings, counts, privacy, inbox, waiting }
    }

    /// Leases what is due, or lets the request wait for it.
    pub fn next(&self, request: LeaseRequest) {
        if self.waiting() >= MAX_WAITING {
            return request.answer(Answer::Crowded);
        }
        // Counted before the manager looks for what is due: a commit is either seen by that look or rings.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // The wait begins now, not when the manager takes the request.
        let until = self.clock.monotonic().saturating_add(request.wait);
        self.inbox.leave(|messages| messages.requests.push(Waiter { request, until }));
    }

    /// A report without what was sealed in the event or what the policy's detectors find. If the event cannot be
    /// opened, nobody knows what that would be: the outcome is kept and its reason is not.
    fn cleaned(&self, subscription: &Subscription, mut report: Report) -> Result<Report> {
        let (LeaseOutcome::Failed { reason, .. } | LeaseOutcome::Refused { reason }) =
            &mut report.outcome
        else {
            return Ok(report);
        };
        match self.opened(subscription, report.delivery) {
            Ok(None) => {}
            Ok(Some(Opened { echo, is_whole: true })) => {
                *reason = echo.clean_reason(std::mem::take(reason));
            }
            Ok(Some(_)) => UNOPENED.clone_into(reason),
            Err(error) if error.concerns_all() => return Err(error),
            Err(error) => {
                let delivery = report.delivery;
                tracing::error!(%error, %delivery, "an event cannot be opened; the reason of its failure is not kept");
                UNOPENED.clone_into(reason);
            }
        }
        Ok(report)
    }

    /// The event of a delivery; `None` where no report of it is accepted.
    fn opened(&self, subscription: &Subscription, delivery: DeliverySeq) -> Result<Option<Opened>> {
        let outgoing = self.store.read(|tx| deliveries::outgoing(tx, delivery))?;
        let own = outgoing.filter(|outgoing| outgoing.subscription == subscription.seq);
        own.map(|mut outgoing| self.privacy.open_sealed(&mut outgoing)).transpose()
    }

    /// Stores what a consumer reports; `done` is called after COMMIT, with an answer for each report.
    pub fn settle(
        &self,
        subscription: &Subscription,
        reports: Vec<Report>,
        done: impl FnOnce(Result<Vec<ReportResult>>) + Send + 'static,
    ) {
        let cleaned = reports.into_iter().map(|report| self.cleaned(subscription, report));
        match cleaned.collect() {
            // Like every client, a consumer is told to try again where it would have to wait.
            Ok(reports) => self.settle_cleaned(Queue::Accept, subscription, reports, done),
            Err(error) => done(Err(error)),
        }
    }

    /// Stores reports that hold nothing of an event.
    fn settle_cleaned(
        &self,
        queue: Queue,
        subscription: &Subscription,
        reports: Vec<Report>,
        done: impl FnOnce(Result<Vec<ReportResult>>) + Send + 'static,
    ) {
        let consumer = self.consumer(subscription);
        let (draw, counts) = (Arc::clone(&self.draw), Arc::clone(&self.counts));
        self.store.writer().submit(
            queue,
            move |tx| {
                let each = reports.iter().map(|Report { delivery, lease, outcome }| {
                    consuming::settle(tx, &consumer, (*delivery, lease), outcome, &*draw)
                });
                each.collect::<Result<Vec<Settled>>>()
            },
            move |settled| {
                let count = |Settled { result, settlement }| {
                    if let Some(settlement) = &settlement {
                        counts.consumed(settlement);
                    }
                    result
                };
                done(settled.map(|all| all.into_iter().map(count).collect()));
            },
        );
    }

    /// Moves the end of leases to `span` from now. A lease that is over is renewed if nobody else has its delivery.
    /// `done` is called after COMMIT, with an answer for each.
    pub fn extend(
        &self,
        subscription: SubscriptionSeq,
        leases: Vec<(DeliverySeq, String)>,
        span: Duration,
        done: impl FnOnce(Result<Vec<ReportResult>>) + Send + 'static,
    ) {
        let (now, inbox) = (self.clock.now(), self.inbox.clone());
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
            move |results: Result<Vec<ReportResult>>| {
                // A lease may end earlier than it would have.
                inbox.leave(|messages| {
                    messages.extended = Some(messages.extended.map_or(until, |at| at.min(until)));
                });
                done(results);
            },
        );
    }

    /// How many requests are not answered yet.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Tells the manager what was committed, if any request waits.
    pub(super) fn committed(&self, rang: &[SubscriptionSeq], subscriptions_changed: bool) {
        if self.waiting() > 0 && (!rang.is_empty() || subscriptions_changed) {
            self.inbox.leave(|messages| {
                messages.rang.extend(rang);
                messages.subscriptions_changed |= subscriptions_changed;
            });
        }
    }

    /// Lets the manager look at the clock, which a test has moved.
    pub(super) fn wake(&self) {
        self.inbox.ring();
    }

    /// Answers those who wait, and lets nobody wait from now on.
    pub(super) fn stop_waiting(&self) {
        self.inbox.leave(|messages| messages.stop = true);
    }

    /// Lets the manager end.
    pub(super) fn end(&self) {
        self.inbox.leave(|messages| messages.end = true);
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
        own.map_or_else(|| defaults.schedule(), |effective| effective.rules.schedule)
    }
}
