//! The dispatcher: reads what is due, decides who is sent next, hands it to idle deliverers.
//!
//! The decisions are in [`machine`]; this file is its hands: letters in, one read connection, one
//! channel out. It sends nothing itself and writes nothing.

pub mod assignments;
pub mod machine;
pub mod mailbox;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::faults::{Faults, Stall, Step};
use crate::base::id::SubscriptionSeq;
use crate::config::Live;
use crate::model::lane::Ordering;
use crate::model::subscription::{Subscription, Target};
use crate::pipeline::scheduler::assignments::{Assignment, HandOut};
use crate::pipeline::scheduler::machine::{In, Machine, Out, Pace};
use crate::pipeline::scheduler::mailbox::{Finished, Letters, Mailbox, PutOff};
use crate::store::error::{Error, Result};
use crate::store::{OwnReader, deliveries, subscriptions};

/// How long the dispatcher sleeps at most: its look at the clock when nobody rings.
const MAX_SLEEP: Duration = Duration::from_millis(250);

/// How long a stop waits for outcomes once no request is under way: the disk may refuse them. Their
/// deliveries are sent again at the next start.
const SETTLE_GRACE: Duration = Duration::from_secs(5);
/// How long a stop waits for attempts that are under way. What is not answered by then is given up as if
/// the process had been killed: nothing is counted, and it is sent again at the next start.
pub const STOP_GRACE: Duration = Duration::from_secs(20);
/// When a read that failed is tried again.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// What the machine was told of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    cap: u32,
    hard: bool,
    callable: bool,
    /// Whether its deliveries are in lanes.
    ordered: bool,
}

/// How the dispatcher ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Nothing was left in hand.
    pub drained: bool,
    /// Requests were still under way.
    pub busy: bool,
}

/// The dispatcher and what it holds.
#[derive(Debug)]
pub struct Dispatcher {
    clock: Clock,
    mailbox: Mailbox,
    reader: OwnReader,
    deliverers: HandOut,
    machine: Machine,
    /// How many requests are in flight at once where the subscription does not say.
    settings: Live,
    known: BTreeMap<SubscriptionSeq, Known>,
    /// Since when there is a stop to wait for.
    stopping_since: Option<Duration>,
    /// Since when no request is under way after a stop.
    idle_since: Option<Duration>,
    faults: Faults,
}

impl Dispatcher {
    /// A dispatcher that has not looked yet.
    pub fn new(
        clock: Clock,
        mailbox: Mailbox,
        reader: OwnReader,
        deliverers: HandOut,
        settings: Live,
        faults: Faults,
    ) -> Self {
        let machine = Machine::new(deliverers.deliverers());
        Self {
            clock,
            mailbox,
            reader,
            deliverers,
            machine,
            settings,
            known: BTreeMap::new(),
            stopping_since: None,
            idle_since: None,
            faults,
        }
    }

    /// Runs until it is told to stop and everything in hand is settled, or cannot be.
    pub fn run(mut self) -> Ended {
        let mut again = Letters { subscriptions_changed: true, ..Letters::default() };
        loop {
            let drained = match self.turn(&mut again) {
                Ok(drained) => drained,
                Err(error) => {
                    // What could not be read is asked for again; nothing is forgotten meanwhile.
                    tracing::error!(%error, "the dispatcher could not read; it tries again");
                    again.subscriptions_changed = true;
                    false
                }
            };
            if drained || (again.stop && self.gives_up()) {
                let busy = self.machine.is_busy();
                return Ended { drained, busy };
            }
            self.faults.stand(Stall::Dispatcher);
            let letters = self.mailbox.take(self.sleep());
            again = merge(again, letters);
        }
    }

    /// Whether a stop has waited long enough for outcomes that do not come or cannot be stored.
    fn gives_up(&mut self) -> bool {
        let now = self.clock.monotonic();
        let stopping_since = *self.stopping_since.get_or_insert(now);
        let idle = if self.machine.is_busy() { None } else { Some(self.idle_since.unwrap_or(now)) };
        self.idle_since = idle;
        let over = |since: Duration, most| now.saturating_sub(since) >= most;
        let gives_up =
            over(stopping_since, STOP_GRACE) || idle.is_some_and(|since| over(since, SETTLE_GRACE));
        if gives_up {
            tracing::warn!(
                in_hand = self.machine.in_hand(),
                "stopped before every outcome was stored; those are sent again at the next start"
            );
        }
        gives_up
    }

    fn sleep(&self) -> Duration {
        let until = self.machine.sleep_until().map(|at| at.since(self.clock.now()));
        until.map_or(MAX_SLEEP, |span| span.min(MAX_SLEEP))
    }

    /// Works off the letters; tells whether everything is drained. Letters that could not be worked off
    /// for a failed read stay in `letters`.
    fn turn(&mut self, letters: &mut Letters) -> Result<bool> {
        let mut inputs = Vec::new();
        for settled in letters.settled.drain(..) {
            let (delivery, subscription) = (settled.delivery, settled.subscription);
            inputs.push(In::Settled { delivery, subscription, next_due: settled.next_due });
        }
        for PutOff { delivery, subscription, until, whole } in letters.reschedule.drain(..) {
            inputs.push(In::PutOff { delivery, subscription, until, whole });
        }
        for Finished { subscription, latency, limit } in letters.finished.drain(..) {
            inputs.push(In::Finished { subscription, latency, limit });
        }
        let mut drained = self.feed(inputs);
        if letters.subscriptions_changed {
            let changes = self.changes()?;
            letters.subscriptions_changed = false;
            drained |= self.feed(changes);
        }
        let rang = std::mem::take(&mut letters.rang);
        drained |= self.feed(rang.into_iter().map(In::Rang).collect());
        drained |= self.feed(vec![if letters.stop { In::Stop } else { In::Tick }]);
        letters.woken = false;
        Ok(drained)
    }

    /// Steps the machine through inputs and does what it asks; tells whether it is drained.
    fn feed(&mut self, mut inputs: Vec<In>) -> bool {
        let now = self.clock.now();
        let mut drained = false;
        while !inputs.is_empty() {
            let mut answers = Vec::new();
            let machine = &mut self.machine;
            let outs: Vec<Out> =
                inputs.drain(..).flat_map(|input| machine.step(now, input)).collect();
            for out in outs {
                match out {
                    Out::Fetch { subscription, limit } => {
                        answers.push(self.fetched(subscription, limit));
                    }
                    Out::Start { delivery, subscription } => {
                        self.deliverers.give(Assignment { delivery, subscription });
                    }
                    Out::Drained => drained = true,
                }
            }
            inputs = answers;
        }
        drained
    }

    /// What is due; a failed read finds nothing and is tried again shortly.
    fn fetched(&self, subscription: SubscriptionSeq, limit: u32) -> In {
        self.fetch(subscription, limit).unwrap_or_else(|error| {
            tracing::error!(%error, "the dispatcher could not read what is due; it tries again");
            let next_due = Some(self.clock.now().plus(READ_AGAIN));
            In::Fetched { subscription, rows: Vec::new(), more: false, next_due }
        })
    }

    fn fetch(&self, subscription: SubscriptionSeq, limit: u32) -> Result<In> {
        if self.faults.hit(Step::ReadDue) {
            return Err(Error::Busy);
        }
        let now = self.clock.now();
        let tx = self.reader.tx();
        let rows = if self.known.get(&subscription).is_some_and(|known| known.ordered) {
            deliveries::due_with_lane(&tx, subscription, now, limit)?
        } else {
            deliveries::due(&tx, subscription, now, limit)?
        };
        let more = u32::try_from(rows.len()).is_ok_and(|have| have >= limit);
        let next_due = if more { None } else { deliveries::next_due(&tx, subscription, now)? };
        Ok(In::Fetched { subscription, rows, more, next_due })
    }

    /// What has changed about the subscriptions since the last look.
    fn changes(&mut self) -> Result<Vec<In>> {
        let usual = self.settings.get().delivery.cap;
        let mut fresh = BTreeMap::new();
        let mut inputs = Vec::new();
        // What consumers ask for is not sent: the machine does not know that there is such a subscription.
        let live = subscriptions::live(&self.reader.tx())?;
        let called = |subscription: &Subscription| subscription.new.target != Target::Pull;
        for subscription in live.into_iter().filter(called) {
            let pace = pace(&subscription);
            let Subscription { seq, new, holds, .. } = subscription;
            let asked = new.policy.in_flight_max;
            let (cap, hard, callable) = (asked.unwrap_or(usual), asked.is_some(), holds.is_empty());
            let ordered = new.ordering != Ordering::None;
            let known = Known { cap, hard, callable, ordered };
            if self.known.get(&seq) != Some(&known) {
                let (subscription, tenant) = (seq, new.tenant);
                inputs.push(In::SubscriptionChanged {
                    subscription,
                    cap,
                    hard,
                    callable,
                    tenant,
                    pace,
                });
            }
            fresh.insert(seq, known);
        }
        for gone in self.known.keys().filter(|known| !fresh.contains_key(known)) {
            inputs.push(In::SubscriptionGone(*gone));
        }
        self.known = fresh;
        Ok(inputs)
    }
}

/// What a row says of its endpoint before we have called it. Whether it refuses or hangs cannot be told from it.
fn pace(subscription: &Subscription) -> Pace {
    match (subscription.failing_since, subscription.last_success_at) {
        (Some(_), _) => Pace::Hangs,
        (None, Some(_)) => Pace::Prompt,
        (None, None) => Pace::Unknown,
    }
}

fn merge(mut old: Letters, new: Letters) -> Letters {
    old.rang.extend(new.rang);
    old.settled.extend(new.settled);
    old.reschedule.extend(new.reschedule);
    old.finished.extend(new.finished);
    old.subscriptions_changed |= new.subscriptions_changed;
    old.stop |= new.stop;
    old.woken |= new.woken;
    old
}
