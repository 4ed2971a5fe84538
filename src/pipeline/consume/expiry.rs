//! Ends leases that are over: their deliveries wait for another consumer.
//!
//! Nothing here waits for the writer: while another program holds the file, the lease manager still has to answer
//! consumers and to be able to stop. What follows from an end is decided in `store::consuming`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::base::id::{DeliverySeq, SubscriptionSeq};
use crate::model::lease::LEASES;
use crate::pipeline::consume::{Consume, Expired};
use crate::store::consuming::{self, Consumer};
use crate::store::leases::Lease;
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;
use crate::store::{leases, subscriptions};

/// When leases that could not be ended are looked at again.
const AGAIN: Duration = Duration::from_secs(1);
/// When they are looked at again if one of them cannot be ended until a person has repaired something.
const LEFT_AGAIN: Duration = Duration::from_mins(1);
/// Leases ended in one transaction.
const MAX_ROWS: u32 = 200;

/// Which leases are looked for next, and when.
#[derive(Debug)]
pub(super) struct Expiry {
    /// When the next lease may be over; `None`: nobody has one, or a round is under way.
    next: Option<Timestamp>,
    round: Option<Round>,
    /// Whether those are still to be ended that were given while the clock was wrong.
    future_owed: bool,
    /// Subscriptions of which it was said that they cannot be read.
    unreadable: BTreeSet<SubscriptionSeq>,
}

#[derive(Debug)]
struct Round {
    /// The last lease that was looked at.
    after: (Timestamp, DeliverySeq),
    until: Timestamp,
    is_future: bool,
    /// Jobs that the writer has in hand.
    with_writer: usize,
    /// Whether a lease was left that cannot be ended.
    left: bool,
    /// Whether the writer took none for now.
    refused: bool,
}

impl Expiry {
    pub(super) fn new() -> Self {
        // The first look is at what another run has left.
        let next = Some(Timestamp::from_ms(i64::MIN));
        Self { next, round: None, future_owed: true, unreadable: BTreeSet::new() }
    }

    /// When something is to be done by itself.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.next
    }

    /// Takes notice of a lease that may end then.
    pub(super) fn note(&mut self, until: Timestamp) {
        self.next = Some(self.next.map_or(until, |at| at.min(until)));
    }

    /// Begins to end leases that are over.
    pub(super) fn look(&mut self, consume: &Consume) {
        let now = consume.clock.now();
        if self.round.is_some() || self.next.is_none_or(|at| at > now) {
            return;
        }
        self.next = None;
        // One that would last longer than any was given while the clock was wrong.
        let (after, until) = if self.future_owed {
            let longest = now.plus(*LEASES.end());
            ((longest, DeliverySeq(i64::MAX)), Timestamp::from_ms(i64::MAX))
        } else {
            ((Timestamp::from_ms(i64::MIN), DeliverySeq(i64::MIN)), now)
        };
        let is_future = self.future_owed;
        let round = Round { after, until, is_future, with_writer: 0, left: false, refused: false };
        self.go_on(consume, round);
    }

    /// Takes what came of a job, and goes on.
    pub(super) fn ended(&mut self, consume: &Consume, ended: Expired) {
        let Some(mut round) = self.round.take() else { return };
        round.with_writer = round.with_writer.saturating_sub(1);
        let Expired { found, outcome } = ended;
        match outcome {
            Ok(()) => {}
            Err(error) if error.concerns_all() => {
                if !round.refused {
                    tracing::error!(%error, "leases could not be ended; it is tried again");
                }
                round.refused = true;
            }
            // One of them spoils the others' end.
            Err(_) if found.len() > 1 => {
                for lease in found {
                    self.submit(consume, &mut round, vec![lease]);
                }
            }
            Err(error) => {
                let delivery = found.first().map(|lease| lease.delivery.to_string());
                tracing::error!(%error, delivery, "a lease cannot be ended; it is left for now");
                round.left = true;
            }
        }
        if round.with_writer == 0 && !round.refused {
            self.go_on(consume, round);
        } else if round.with_writer == 0 {
            self.rest(consume, &round);
        } else {
            self.round = Some(round);
        }
    }

    /// Hands the next leases to the writer, as long as there are any.
    fn go_on(&mut self, consume: &Consume, mut round: Round) {
        loop {
            let Round { after, until, .. } = round;
            let found = consume.store.read(|tx| leases::between(tx, after, until, MAX_ROWS));
            let found = found.unwrap_or_else(|error| {
                tracing::error!(%error, "leases could not be read; it is tried again");
                round.refused = true;
                Vec::new()
            });
            let Some(last) = found.last() else { return self.rest(consume, &round) };
            round.after = (last.until, last.delivery);
            self.submit(consume, &mut round, found);
            if round.with_writer > 0 {
                self.round = Some(round);
                return;
            }
        }
    }

    /// Ends a round: settles when the next one is.
    fn rest(&mut self, consume: &Consume, round: &Round) {
        let now = consume.clock.now();
        if round.refused {
            return self.note(now.plus(AGAIN));
        }
        if round.left {
            self.note(now.plus(LEFT_AGAIN));
        }
        if round.is_future {
            self.future_owed = false;
            return self.note(Timestamp::from_ms(i64::MIN));
        }
        match consume.store.read(|tx| leases::next_expiry(tx, round.until)) {
            Ok(None) => {}
            Ok(Some(at)) => self.note(at),
            Err(error) => {
                tracing::error!(%error, "leases could not be read; it is tried again");
                self.note(now.plus(AGAIN));
            }
        }
    }

    /// Lets the writer end leases, but for those whose subscription cannot be read.
    fn submit(&mut self, consume: &Consume, round: &mut Round, mut found: Vec<Lease>) {
        let mut consumers: BTreeMap<SubscriptionSeq, Option<Consumer>> = BTreeMap::new();
        for Lease { subscription, .. } in &found {
            if !consumers.contains_key(subscription) {
                consumers.insert(*subscription, self.consumer(consume, *subscription));
            }
        }
        let all = found.len();
        found.retain(|lease| consumers.get(&lease.subscription).is_some_and(Option::is_some));
        round.left |= found.len() < all;
        if found.is_empty() {
            return;
        }
        round.with_writer = round.with_writer.saturating_add(1);
        let (ending, draw) = (found.clone(), Arc::clone(&consume.draw));
        let (counts, inbox) = (Arc::clone(&consume.counts), consume.inbox.clone());
        consume.store.writer().submit(
            // What waits there is refused while another program holds the file: it can come again.
            Queue::Upkeep,
            move |tx: &WriteTx<'_>| {
                let mut ended = Vec::new();
                for Lease { delivery, subscription, .. } in &ending {
                    let consumer = consumers.get(subscription).and_then(Option::as_ref);
                    let Some(consumer) = consumer else { continue };
                    ended.extend(consuming::expire(tx, consumer, *delivery, &*draw)?);
                }
                Ok(ended)
            },
            move |settled| {
                let outcome = settled.map(|all| all.iter().for_each(|one| counts.consumed(one)));
                inbox.leave(|messages| messages.expired.push(Expired { found, outcome }));
            },
        );
    }

    fn consumer(&mut self, consume: &Consume, seq: SubscriptionSeq) -> Option<Consumer> {
        match consume.store.read(|tx| subscriptions::by_seq(tx, seq)) {
            Ok(found) => {
                self.unreadable.remove(&seq);
                found.map(|subscription| consume.consumer(&subscription))
            }
            Err(error) => {
                if self.unreadable.insert(seq) {
                    let subscription = seq.0;
                    tracing::error!(%error, subscription, "a subscription cannot be read; its leases end when it is mended");
                }
                None
            }
        }
    }
}
