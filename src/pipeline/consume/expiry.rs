//! Ends expired leases, so that other consumers can take their deliveries.
//!
//! Nothing here waits for the writer: the lease manager must answer consumers and stop even while another program locks
//! the file. `store::consuming` decides what follows from an expired lease.

use std::collections::{BTreeMap, BTreeSet};

use crate::pipeline::consume::{Consume, Expired};
use crate::pipeline::prelude::*;
use crate::store::consuming::{self, Consumer};
use crate::store::leases::Lease;
use crate::store::{leases, subscriptions};

/// Delay before leases that could not be ended are tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// The delay if a lease cannot be ended until a person repairs something.
const LEFT_AGAIN: Duration = Duration::from_mins(1);
/// Leases ended in one transaction.
const MAX_ROWS: u32 = 200;

/// Looks for expired leases in rounds, and has the writer end them.
#[derive(Debug)]
pub(super) struct Expiry {
    /// When the next lease may expire; `None`: no lease is open, or a round is under way.
    next: Option<Timestamp>,
    round: Option<Round>,
    /// Whether ends may lie too far ahead: at the start, and after the clock was set back.
    are_ends_suspect: bool,
    /// The time of the latest look.
    latest: Timestamp,
    /// Unreadable subscriptions, which the log has named already.
    unreadable: BTreeSet<SubscriptionSeq>,
}

#[derive(Debug)]
struct Round {
    /// The last lease that was looked at.
    after: (Timestamp, DeliverySeq),
    until: Timestamp,
    /// Whether it corrects ends that lie too far ahead.
    is_correction: bool,
    /// Jobs that the writer has not answered yet.
    with_writer: usize,
    /// Whether there is a lease that cannot be ended.
    has_stuck: bool,
    /// Whether the file could not be read or written: the round is tried again.
    has_failed: bool,
}

impl Expiry {
    pub(super) fn new() -> Self {
        // The first round ends leases of earlier runs.
        let latest = Timestamp::from_ms(i64::MIN);
        let unreadable = BTreeSet::new();
        Self { next: Some(latest), round: None, are_ends_suspect: true, latest, unreadable }
    }

    /// When the next round is due.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.next
    }

    /// Notes when a lease may expire.
    pub(super) fn note(&mut self, until: Timestamp) {
        self.next = Some(self.next.map_or(until, |at| at.min(until)));
    }

    /// Starts a round, if one is due.
    pub(super) fn start_round(&mut self, consume: &Consume) {
        let now = consume.env.clock.now();
        if now < std::mem::replace(&mut self.latest, now) {
            self.are_ends_suspect = true;
            self.note(Timestamp::from_ms(i64::MIN));
        }
        if self.round.is_some() || self.next.is_none_or(|at| at > now) {
            return;
        }
        self.next = None;
        let after = (Timestamp::from_ms(i64::MIN), DeliverySeq(i64::MIN));
        let until = now;
        let is_correction = std::mem::take(&mut self.are_ends_suspect);
        let has_stuck = false;
        let has_failed = false;
        let mut round =
            Round { after, until, is_correction, with_writer: 0, has_stuck, has_failed };
        if !is_correction {
            return self.submit_next(consume, round);
        }
        round.with_writer = 1;
        self.round = Some(round);
        let clock = consume.env.clock.clone();
        let inbox = consume.inbox.clone();
        consume.env.store.writer().submit(
            Queue::Upkeep,
            // One batch in a turn: what accepts events waits for this transaction.
            move |tx: &WriteTx<'_>| leases::clamp(tx, clock.now(), MAX_ROWS),
            move |corrected| {
                let has_more = corrected.as_ref().is_ok_and(|count| *count > 0);
                let found = Vec::new();
                let outcome = corrected.map(drop);
                let ended = Expired { found, has_more, outcome };
                inbox.leave(|messages| messages.expired.push(ended));
            },
        );
    }

    /// Takes the result of a writer's job and continues the round.
    pub(super) fn ended(&mut self, consume: &Consume, ended: Expired) {
        let Some(mut round) = self.round.take() else { return };
        round.with_writer = round.with_writer.saturating_sub(1);
        let Expired { found, has_more, outcome } = ended;
        self.are_ends_suspect |= has_more;
        match outcome {
            Ok(()) => {}
            Err(error) if error.concerns_all() => {
                if !round.has_failed {
                    tracing::error!(%error, "leases could not be ended; this is tried again");
                }
                round.has_failed = true;
            }
            // One lease makes the whole job fail: each gets its own job.
            Err(_) if found.len() > 1 => {
                for lease in found {
                    self.submit(consume, &mut round, vec![lease]);
                }
            }
            Err(error) => {
                let delivery = found.first().map(|lease| lease.delivery.to_string());
                tracing::error!(%error, delivery, "a lease cannot be ended; it is tried again in a minute");
                round.has_stuck = true;
            }
        }
        if round.with_writer == 0 && !round.has_failed && !round.is_correction {
            self.submit_next(consume, round);
        } else if round.with_writer == 0 {
            self.end_round(consume, &round);
        } else {
            self.round = Some(round);
        }
    }

    /// Hands the next leases to the writer, as long as there are any.
    fn submit_next(&mut self, consume: &Consume, mut round: Round) {
        loop {
            let Round { after, until, .. } = round;
            let found = consume.env.store.read(|tx| leases::between(tx, after, until, MAX_ROWS));
            let found = found.unwrap_or_else(|error| {
                tracing::error!(%error, "leases could not be read; this is tried again");
                round.has_failed = true;
                Vec::new()
            });
            let Some(last) = found.last() else { return self.end_round(consume, &round) };
            round.after = (last.until, last.delivery);
            self.submit(consume, &mut round, found);
            if round.with_writer > 0 {
                self.round = Some(round);
                return;
            }
        }
    }

    /// Ends a round and sets the time of the next.
    fn end_round(&mut self, consume: &Consume, round: &Round) {
        let now = consume.env.clock.now();
        if round.has_failed {
            self.are_ends_suspect |= round.is_correction;
            return self.note(now.plus(AGAIN));
        }
        if round.has_stuck {
            self.note(now.plus(LEFT_AGAIN));
        }
        if round.is_correction {
            return self.note(Timestamp::from_ms(i64::MIN));
        }
        match consume.env.store.read(|tx| leases::next_expiry(tx, round.until)) {
            Ok(None) => {}
            Ok(Some(at)) => self.note(at),
            Err(error) => {
                tracing::error!(%error, "leases could not be read; this is tried again");
                self.note(now.plus(AGAIN));
            }
        }
    }

    /// Has the writer end leases, except those whose subscription cannot be read.
    fn submit(&mut self, consume: &Consume, round: &mut Round, mut found: Vec<Lease>) {
        let mut consumers: BTreeMap<SubscriptionSeq, Option<Consumer>> = BTreeMap::new();
        for Lease { subscription, .. } in &found {
            if !consumers.contains_key(subscription) {
                consumers.insert(*subscription, self.consumer(consume, *subscription));
            }
        }
        let all = found.len();
        found.retain(|lease| consumers.get(&lease.subscription).is_some_and(Option::is_some));
        round.has_stuck |= found.len() < all;
        if found.is_empty() {
            return;
        }
        round.with_writer = round.with_writer.saturating_add(1);
        let ending = found.clone();
        let draw = Arc::clone(&consume.env.draw);
        let counts = Arc::clone(&consume.counts);
        let inbox = consume.inbox.clone();
        consume.env.store.writer().submit(
            // This queue refuses jobs while another program locks the file; then the round is tried again.
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
                let ended = Expired { found, has_more: false, outcome };
                inbox.leave(|messages| messages.expired.push(ended));
            },
        );
    }

    fn consumer(&mut self, consume: &Consume, seq: SubscriptionSeq) -> Option<Consumer> {
        match consume.env.store.read(|tx| subscriptions::by_seq(tx, seq)) {
            Ok(found) => {
                self.unreadable.remove(&seq);
                found.map(|subscription| consume.consumer(&subscription))
            }
            Err(error) => {
                if self.unreadable.insert(seq) {
                    let subscription = seq.0;
                    tracing::error!(%error, subscription, "a subscription cannot be read; its leases end once it is repaired");
                }
                None
            }
        }
    }
}
