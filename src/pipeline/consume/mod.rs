//! Pull consumers: leases due deliveries to them and stores their reports.
//!
//! A request that finds nothing due waits without a thread of its own: [`manager::LeaseManager`], the one thread of
//! this stage, parks it. The manager answers it when something becomes due or its wait is over. It also ends expired
//! leases. A lease is committed before the request is answered. Not here: what follows from a report (`model::lease`),
//! and how an answer is written (`api::consumers`).

mod expiry;
pub mod manager;

use std::collections::BTreeSet;

use crate::base::fair::{Fair, Payer};
use crate::http::message::Response;
use crate::http::service::Reply;
use crate::model::delivery::OutgoingRequest;
use crate::model::hold::HoldReason;
use crate::model::lease::LeaseOutcome;
use crate::model::retry_rules::RetryRules;
use crate::model::subscription::Subscription;
use crate::pipeline::counts::Counts;
use crate::pipeline::destinations::{Destinations, effective};
use crate::pipeline::prelude::*;
use crate::pipeline::threads::Inbox;
use crate::privacy::Opened;
use crate::store::consuming::{self, Consumer, Leased, ReportResult, Settled};
use crate::store::deliveries;
use crate::store::leases::Lease;
use crate::store::tx::ChangedSubscriptions;

/// Requests that may wait for events at once. Each occupies a connection, and most connections are for other requests.
const MAX_WAITING: usize = 512;
/// A tenant may let another request wait while it has fewer than this many times the free places.
const WAITING_TIMES: usize = 3;
/// Deliveries one answer may have.
pub const MAX_ITEMS: u32 = 100;
/// The longest wait for something to become due.
pub const MAX_WAIT: Duration = Duration::from_secs(30);
/// Bytes of payloads in one answer, approximately.
const MAX_ANSWER_BYTES: u64 = 8 << 20;

/// Replaces a reported reason if the event cannot be opened: the reason may quote its sealed data.
const UNOPENED: &str = "not kept: its event cannot be opened";

/// A request for events.
pub struct LeaseRequest {
    /// Of which subscription.
    pub subscription: SubscriptionSeq,
    /// Its tenant.
    pub payer: Payer,
    /// How many at most.
    pub most: u32,
    /// How long it may wait for the first event.
    pub wait: Duration,
    /// Sends the answer.
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

/// The answer to a request for events.
#[derive(Debug)]
pub enum Answer {
    /// Leased events.
    Items(Vec<Item>),
    /// Nothing is due, or a hold keeps events back.
    Nothing(Option<HoldReason>),
    /// Too many requests of the tenant wait already.
    Saturated,
    /// The subscription was deleted meanwhile.
    Gone,
    /// The subscription cannot be used, with the reason.
    Unusable(String),
    /// The file could not be read or written.
    Failed(Error),
}

/// A leased event.
#[derive(Debug)]
pub struct Item {
    /// The event.
    pub outgoing: OutgoingRequest,
    /// The lease, which every report must name.
    pub lease: String,
    /// When the lease ends.
    pub until: Timestamp,
    /// The number of the attempt.
    pub attempt: u32,
    /// The header fields that a pushed request would have.
    pub headers: Vec<(String, String)>,
}

/// What a consumer reports about one delivery.
#[derive(Clone, Debug)]
pub struct Report {
    /// Which.
    pub delivery: DeliverySeq,
    /// Its lease.
    pub lease: String,
    /// The outcome.
    pub outcome: LeaseOutcome,
}

/// What other threads tell the lease manager.
#[derive(Default)]
struct LeaseMsg {
    /// New requests.
    requests: Vec<Waiter>,
    /// What the writer leased for requests.
    granted: Vec<Granted>,
    /// Results of the writer's jobs that end leases.
    expired: Vec<Expired>,
    /// The earliest new end among leases that consumers have extended.
    extended: Option<Timestamp>,
    /// Subscriptions that may have something new due.
    woken: BTreeSet<SubscriptionSeq>,
    /// Whether subscriptions were changed, held or released.
    subscriptions_changed: ChangedSubscriptions,
    /// Whether to answer all waiting requests, and let no more wait.
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

/// The result of a writer's job that ends leases.
#[derive(Debug)]
struct Expired {
    found: Vec<Lease>,
    /// Whether a correction may have left some for the next turn.
    has_more: bool,
    outcome: Result<()>,
}

/// Handles consumers' requests. Cheap to clone.
#[derive(Clone)]
pub struct Consume {
    env: Env,
    destinations: Arc<Destinations>,
    counts: Arc<Counts>,
    inbox: Inbox<LeaseMsg>,
    /// Requests that are not answered yet.
    waiting: Arc<Mutex<Fair>>,
}

/// Removes the data of an event from a reported reason. If the event cannot be opened, its data is unknown, and the reason
/// is not kept.
pub(super) fn clean_reason(
    opened: Result<Option<Opened>>,
    delivery: DeliverySeq,
    reason: &mut String,
) -> Result<()> {
    match opened {
        Ok(None) => {}
        Ok(Some(Opened { echo, is_whole: true, .. })) => {
            *reason = echo.clean_reason(std::mem::take(reason));
        }
        Ok(Some(_)) => UNOPENED.clone_into(reason),
        Err(error) if error.concerns_all() => return Err(error),
        Err(error) => {
            tracing::error!(%error, %delivery, "an event cannot be opened; the reported reason is not kept");
            UNOPENED.clone_into(reason);
        }
    }
    Ok(())
}

impl Consume {
    /// No request waits yet.
    pub(super) fn new(env: Env, destinations: Arc<Destinations>, counts: Arc<Counts>) -> Self {
        let waiting = Mutex::new(Fair::new(MAX_WAITING, WAITING_TIMES));
        let inbox = Inbox::default();
        Self { env, destinations, counts, inbox, waiting: Arc::new(waiting) }
    }

    /// Leases what is due, or lets the request wait until something is.
    pub fn next(&self, request: LeaseRequest) {
        // Counted before the manager reads what is due: that read sees a commit, or the commit wakes the manager.
        let has_place = self.waiting.lock().take(&request.payer);
        if !has_place {
            return request.answer(Answer::Saturated);
        }
        // The wait begins now, not when the manager takes the request.
        let until = self.env.clock.monotonic().saturating_add(request.wait);
        self.inbox.leave(|messages| messages.requests.push(Waiter { request, until }));
    }

    /// Removes the event's sealed data, and what the policy's detectors find, from a report.
    fn cleaned(&self, subscription: &Subscription, mut report: Report) -> Result<Report> {
        let (LeaseOutcome::Failed { reason, .. }
        | LeaseOutcome::Away { reason, .. }
        | LeaseOutcome::Refused { reason }) = &mut report.outcome
        else {
            return Ok(report);
        };
        clean_reason(self.opened(subscription, report.delivery), report.delivery, reason)?;
        Ok(report)
    }

    /// Opens the event of a delivery; `None` if this subscription has no such delivery open.
    fn opened(&self, subscription: &Subscription, delivery: DeliverySeq) -> Result<Option<Opened>> {
        let outgoing = self.env.store.read(|tx| deliveries::outgoing(tx, delivery))?;
        let own = outgoing.filter(|outgoing| outgoing.subscription == subscription.seq);
        own.map(|mut outgoing| self.env.privacy.open_sealed(&mut outgoing)).transpose()
    }

    /// Stores a consumer's reports; `done` is called after COMMIT, with a result for each report.
    pub fn settle(
        &self,
        subscription: &Subscription,
        reports: Vec<Report>,
        done: impl FnOnce(Result<Vec<ReportResult>>) + Send + 'static,
    ) {
        let cleaned = reports.into_iter().map(|report| self.cleaned(subscription, report));
        match cleaned.collect() {
            // This queue tells a consumer to try again instead of waiting, like every client.
            Ok(reports) => self.settle_cleaned(Queue::Accept, subscription, reports, done),
            Err(error) => done(Err(error)),
        }
    }

    /// Stores reports that hold no data of an event.
    fn settle_cleaned(
        &self,
        queue: Queue,
        subscription: &Subscription,
        reports: Vec<Report>,
        done: impl FnOnce(Result<Vec<ReportResult>>) + Send + 'static,
    ) {
        let consumer = self.consumer(subscription);
        let draw = Arc::clone(&self.env.draw);
        let counts = Arc::clone(&self.counts);
        self.env.store.writer().submit(
            queue,
            move |tx| {
                let each = reports.iter().map(|Report { delivery, lease, outcome }| {
                    consuming::settle(tx, &consumer, *delivery, lease, outcome, &*draw)
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

    /// Moves the end of leases to `span` from now. An expired lease is renewed if no other consumer has its delivery.
    /// `done` is called after COMMIT, with a result for each lease.
    pub fn extend(
        &self,
        subscription: SubscriptionSeq,
        leases: Vec<(DeliverySeq, String)>,
        span: Duration,
        done: impl FnOnce(Result<Vec<ReportResult>>) + Send + 'static,
    ) {
        let now = self.env.clock.now();
        let inbox = self.inbox.clone();
        let until = now.plus(span);
        self.env.store.writer().submit(
            Queue::Accept,
            move |tx: &WriteTx<'_>| {
                leases
                    .iter()
                    .map(|(delivery, lease)| {
                        consuming::extend(tx, subscription, *delivery, lease, now, until)
                    })
                    .collect()
            },
            move |results: Result<Vec<ReportResult>>| {
                // The new end may be earlier than the old one.
                inbox.leave(|messages| {
                    messages.extended = Some(messages.extended.map_or(until, |at| at.min(until)));
                });
                done(results);
            },
        );
    }

    /// How many requests are not answered yet.
    pub fn waiting(&self) -> usize {
        self.waiting.lock().in_use()
    }

    /// Tells the manager what was committed, if any request waits.
    pub(super) fn committed(&self, woken: &[SubscriptionSeq], changed: &ChangedSubscriptions) {
        if self.waiting() > 0 && (!woken.is_empty() || !changed.is_empty()) {
            self.inbox.leave(|messages| {
                messages.woken.extend(woken);
                messages.subscriptions_changed.append(changed.clone());
            });
        }
    }

    /// Makes the manager read the clock again, after a test has moved it.
    pub(super) fn wake(&self) {
        self.inbox.ring();
    }

    /// Answers waiting requests, and lets none wait from now on.
    pub(super) fn stop_waiting(&self) {
        self.inbox.leave(|messages| messages.stop = true);
    }

    /// Tells the manager to end.
    pub(super) fn end(&self) {
        self.inbox.leave(|messages| messages.end = true);
    }

    fn consumer(&self, subscription: &Subscription) -> Consumer {
        let park_after = subscription.new.order.parks_after();
        Consumer {
            subscription: subscription.seq,
            url: format!("pull:{}", subscription.new.name),
            rules: RetryRules { park_after, ..self.rules(subscription) },
            latest_only: subscription.new.order.latest_only,
            now: self.env.clock.now(),
            wall: self.env.clock.wall(),
        }
    }

    /// A subscription's rules; those of the settings if its own can no longer be read.
    fn rules(&self, subscription: &Subscription) -> RetryRules {
        let defaults = &self.env.settings.get().delivery;
        let default = || RetryRules { schedule: defaults.schedule(), ..RetryRules::default() };
        effective(&subscription.new, defaults).map_or_else(|_unreadable| default(), |own| own.rules)
    }
}
