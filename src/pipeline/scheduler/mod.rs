//! The dispatcher: reads due deliveries, decides which is sent next, hands it to an idle deliverer.
//!
//! [`decisions`] decides. This file does the I/O: it takes messages, reads over one connection and fills one queue. The
//! dispatcher sends no request and writes nothing to the database.

pub mod decisions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};

use parking_lot::MutexGuard;

use crate::base::faults::{Stall, Step};
use crate::model::hold::{HoldReason, gate};
use crate::model::rate::Rate;
use crate::model::subscription::{NewSubscription, Subscription, Target};
use crate::pipeline::prelude::*;
use crate::pipeline::scheduler::decisions::{Assignment, Command, Input, Limits, Machine, Pace};
use crate::pipeline::threads::Inbox;
use crate::store::deliveries::DueMark;
use crate::store::tx::ChangedSubscriptions;
use crate::store::{OwnReader, deliveries, subscriptions};
use crate::telemetry::tally::Heartbeat;

/// The longest sleep without a message: the clock may be set meanwhile.
const MAX_SLEEP: Duration = Duration::from_millis(250);
/// How long a stop waits for outcomes to be stored once no request is under way: the disk may refuse them. After that,
/// the next start sends their deliveries again.
const SETTLE_GRACE: Duration = Duration::from_secs(5);
/// How long a stop waits for attempts that are under way. An attempt without an answer by then is abandoned as if the
/// process had been killed. Nothing is counted, and the next start sends the delivery again.
pub const STOP_GRACE: Duration = Duration::from_secs(20);
/// Delay before another look behind deliveries of taken funnels, if the last one found nothing.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// Delay before a failed read is repeated.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// The dispatcher's inbox.
pub type Mailbox = Inbox<DispatcherMsg>;

/// What other threads tell the dispatcher.
#[derive(Debug, Default)]
pub struct DispatcherMsg {
    /// Settled attempts, rescheduled deliveries, idle deliverers, changed gates.
    pub inputs: Vec<Input>,
    /// Subscriptions that may have something new to send.
    pub woken: BTreeSet<SubscriptionSeq>,
    /// Subscriptions that have to be read again.
    pub subscriptions_changed: ChangedSubscriptions,
    /// Whether to stop.
    pub stop: bool,
}

impl DispatcherMsg {
    fn append(&mut self, mut new: Self) {
        self.inputs.append(&mut new.inputs);
        self.woken.append(&mut new.woken);
        self.subscriptions_changed.append(new.subscriptions_changed);
        self.stop |= new.stop;
    }
}

/// How the dispatcher ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Nothing was left in hand.
    pub drained: bool,
    /// Requests were still under way.
    pub busy: bool,
}

/// A subscription as the machine knows it.
#[derive(Debug)]
struct KnownSubscription {
    limits: Limits,
    /// Whether it is held because the site is offline.
    is_offline: bool,
}

/// The dispatcher and what it needs.
#[derive(Debug)]
pub struct Dispatcher {
    env: Env,
    mailbox: Mailbox,
    pulse: Heartbeat,
    reader: OwnReader,
    deliverers: HandOut,
    machine: Machine,
    /// The subscriptions as the machine knows them.
    known: BTreeMap<SubscriptionSeq, KnownSubscription>,
    /// Subscriptions with more due deliveries of taken funnels than one look passes by.
    crowded: BTreeMap<SubscriptionSeq, Saturated>,
    /// Whether the site was offline when subscriptions were last read.
    is_offline: bool,
    /// When the stop began.
    stopping_since: Option<Duration>,
    /// Since when a stopping dispatcher has had no request under way.
    idle_since: Option<Duration>,
}

impl Dispatcher {
    /// A dispatcher that has read nothing yet.
    pub fn new(
        env: Env,
        mailbox: Mailbox,
        pulse: Heartbeat,
        reader: OwnReader,
        deliverers: HandOut,
    ) -> Self {
        Self {
            env,
            mailbox,
            pulse,
            reader,
            machine: Machine::new(deliverers.deliverers),
            deliverers,
            known: BTreeMap::new(),
            crowded: BTreeMap::new(),
            is_offline: false,
            stopping_since: None,
            idle_since: None,
        }
    }

    /// Runs until it is told to stop and every delivery in hand is settled, or the grace is over.
    pub fn run(mut self) -> Ended {
        let mut messages = DispatcherMsg {
            subscriptions_changed: ChangedSubscriptions::all(),
            ..DispatcherMsg::default()
        };
        loop {
            let drained = self.turn(&mut messages).unwrap_or_else(|error| {
                // The messages that need the failed read stay for the next turn.
                tracing::error!(%error, "the dispatcher could not read; it tries again");
                false
            });
            if drained || (messages.stop && self.gives_up()) {
                return Ended { drained, busy: self.machine.is_busy() };
            }
            self.env.faults.stand(Stall::Dispatcher);
            self.pulse.tick();
            messages.append(self.mailbox.take(self.sleep(), self.machine.wants_ends()));
        }
    }

    /// Handles the messages; returns whether everything is drained. Messages that need a failed read stay.
    fn turn(&mut self, messages: &mut DispatcherMsg) -> Result<bool> {
        for input in &messages.inputs {
            if let Input::GateChanged { subscription, gate } = input
                && let Some(known) = self.known.get_mut(subscription)
            {
                known.limits.gate = *gate;
            }
        }
        let mut drained = self.feed(std::mem::take(&mut messages.inputs));
        if !messages.subscriptions_changed.is_empty() {
            let changes = self.changes(&messages.subscriptions_changed)?;
            messages.subscriptions_changed = ChangedSubscriptions::default();
            drained |= self.feed(changes);
        }
        let woken = std::mem::take(&mut messages.woken);
        drained |= self.feed(woken.into_iter().map(Input::Woken).collect());
        drained |= self.feed(vec![if messages.stop { Input::Stop } else { Input::Tick }]);
        Ok(drained)
    }

    /// Feeds inputs to the machine and executes its commands; returns whether it is drained.
    fn feed(&mut self, mut inputs: Vec<Input>) -> bool {
        let now = self.env.clock.now();
        let mut drained = false;
        while !inputs.is_empty() {
            let machine = &mut self.machine;
            let commands: Vec<Command> =
                inputs.drain(..).flat_map(|input| machine.step(now, input)).collect();
            for command in commands {
                match command {
                    Command::Fetch { subscription, limit, taken } => {
                        inputs.push(self.fetched(subscription, limit, &taken));
                    }
                    Command::Start(assignment) => self.deliverers.give(assignment),
                    Command::Drained => drained = true,
                }
            }
        }
        drained
    }

    /// Reads due deliveries. A failed read counts as empty and is repeated after [`READ_AGAIN`].
    fn fetched(&mut self, subscription: SubscriptionSeq, limit: u32, taken: &[i64]) -> Input {
        self.fetch(subscription, limit, taken).unwrap_or_else(|error| {
            tracing::error!(%error, "the dispatcher could not read what is due; it tries again");
            let next_due = Some(self.env.clock.now().plus(READ_AGAIN));
            Input::Fetched { subscription, rows: Vec::new(), more: false, next_due }
        })
    }

    /// Reads due deliveries from the first one on. Where that look ended before it found enough, another one goes on where
    /// the last has ended, so that what is behind many deliveries of a taken funnel is reached in slices.
    fn fetch(&mut self, subscription: SubscriptionSeq, limit: u32, taken: &[i64]) -> Result<Input> {
        if self.env.faults.hit(Step::ReadDue) {
            return Err(Error::Busy);
        }
        let now = self.env.clock.now();
        let tx = self.reader.tx();
        let due = |limit, after| deliveries::due(&tx, subscription, now, limit, taken, after);
        let (mut rows, end) = due(limit, None)?;
        let wanted = limit.saturating_sub(u32::try_from(rows.len()).unwrap_or(limit));
        let mut more = wanted == 0;
        let mut again = None;
        if let Some(end) = end.filter(|_| wanted > 0) {
            let monotonic = self.env.clock.monotonic();
            let crowded = self.crowded.entry(subscription).or_default();
            match crowded.begin(end, monotonic) {
                Ok(after) => {
                    let (found, end) = due(wanted, Some(after))?;
                    crowded.ended(end, !found.is_empty(), monotonic);
                    more = end.is_some();
                    rows.extend(found);
                }
                Err(wait) => again = Some(now.plus(wait)),
            }
        } else if wanted > 0 {
            self.crowded.remove(&subscription);
        }
        let next_due = if more { None } else { deliveries::next_due(&tx, subscription, now)? };
        let next_due = next_due.into_iter().chain(again).min();
        Ok(Input::Fetched { subscription, rows, more, next_due })
    }

    /// What has changed in these subscriptions since they were last read.
    fn changes(&mut self, changed: &ChangedSubscriptions) -> Result<Vec<Input>> {
        let found = subscriptions::changed(&self.reader.tx(), changed)?;
        let mut inputs = Vec::new();
        // Deliveries that consumers pull are not sent: the machine never learns of their subscriptions.
        let sent: Vec<_> =
            found.into_iter().filter(|found| found.new.target != Target::Pull).collect();
        let live: BTreeSet<SubscriptionSeq> = sent.iter().map(|found| found.seq).collect();
        let is_read = |seq: &SubscriptionSeq| changed.all || changed.these.contains(seq);
        let gone = self.known.keys().filter(|seq| is_read(seq) && !live.contains(seq));
        let gone: Vec<SubscriptionSeq> = gone.copied().collect();
        for subscription in sent {
            inputs.extend(self.learn(&subscription));
        }
        for seq in gone {
            self.known.remove(&seq);
            self.crowded.remove(&seq);
            inputs.push(Input::SubscriptionGone(seq));
        }
        let is_offline = self.known.values().any(|known| known.is_offline);
        if std::mem::replace(&mut self.is_offline, is_offline) && !is_offline {
            inputs.insert(0, Input::LineIsBack);
        }
        Ok(inputs)
    }

    /// Notes a subscription as it is now; returns what the machine has to learn.
    fn learn(&mut self, subscription: &Subscription) -> Option<Input> {
        let default_cap = self.env.settings.get().delivery.cap;
        let Subscription { seq, new, holds, .. } = subscription;
        let own_cap = new.policy.in_flight_max;
        let limits = Limits {
            cap: own_cap.unwrap_or(default_cap),
            is_hard: own_cap.is_some(),
            rate: new.policy.rate.as_deref().and_then(|rate| Rate::parse(rate).ok()),
            gate: gate(holds),
            has_funnels: new.order.funnel_point.is_some() || new.order.external_calls.is_some(),
            can_be_cut: can_be_cut(new),
        };
        let is_offline = holds.iter().any(|hold| hold.reason == HoldReason::Offline);
        let known = KnownSubscription { limits, is_offline };
        let before = self.known.insert(*seq, known).map(|before| before.limits);
        (before != Some(limits)).then(|| Input::SubscriptionChanged {
            subscription: *seq,
            limits,
            tenant: new.tenant.clone(),
            pace: pace(subscription),
        })
    }

    /// Whether a stop has waited long enough for outcomes that do not come or cannot be stored.
    fn gives_up(&mut self) -> bool {
        let now = self.env.clock.monotonic();
        let stopping_since = *self.stopping_since.get_or_insert(now);
        let idle = if self.machine.is_busy() { None } else { Some(self.idle_since.unwrap_or(now)) };
        self.idle_since = idle;
        let over = |since: Duration, most| now.saturating_sub(since) >= most;
        let gives_up =
            over(stopping_since, STOP_GRACE) || idle.is_some_and(|since| over(since, SETTLE_GRACE));
        if gives_up {
            tracing::warn!(
                in_hand = self.machine.in_hand(),
                "stopped before every outcome was stored; the next start sends these deliveries again"
            );
        }
        gives_up
    }

    fn sleep(&self) -> Duration {
        let until = self.machine.sleep_until().map(|at| at.since(self.env.clock.now()));
        until.map_or(MAX_SLEEP, |span| span.min(MAX_SLEEP))
    }
}

/// Where the look behind deliveries of taken funnels is. It goes from the front to the end of what is due, and begins
/// again at the front if it found something, or after [`LOOK_AGAIN`].
#[derive(Debug, Default)]
struct Saturated {
    /// Where the last slice ended.
    at: Option<DueMark>,
    has_found: bool,
    /// Not before this time does it begin again.
    not_before: Duration,
}

impl Saturated {
    /// Where the next slice begins. `front` is the end of the first one. The error is the time until it may begin.
    fn begin(&mut self, front: DueMark, now: Duration) -> std::result::Result<DueMark, Duration> {
        if let Some(at) = self.at {
            return Ok(at.max(front));
        }
        let wait = self.not_before.saturating_sub(now);
        if wait.is_zero() { Ok(front) } else { Err(wait) }
    }

    /// A slice was read. `end`: there may be more behind it.
    fn ended(&mut self, end: Option<DueMark>, has_found: bool, now: Duration) {
        self.at = end;
        self.has_found |= has_found;
        if end.is_none() && !std::mem::take(&mut self.has_found) {
            self.not_before = now.saturating_add(LOOK_AGAIN);
        }
    }
}

/// Whether a first request of the subscription may be cut short. A command or a mail server would not notice. An external
/// call is not sent twice without need.
fn can_be_cut(new: &NewSubscription) -> bool {
    matches!(new.target, Target::Http(_)) && new.order.external_calls.is_none()
}

/// The pace of an endpoint that this run has not called yet, by its subscription's row. The row does not tell whether a
/// failing endpoint refuses or hangs, so the worse is assumed.
fn pace(subscription: &Subscription) -> Pace {
    match (subscription.failing_since, subscription.last_success_at) {
        (Some(_), _) => Pace::Hangs,
        (None, Some(_)) => Pace::Prompt,
        (None, None) => Pace::Unknown,
    }
}

/// Assignments that wait for a deliverer.
///
/// Not a crossbeam channel: its receivers spin and yield before they sleep. With 64 of them, that took a third of a
/// delivery's processor time. Here a deliverer sleeps at once. One is woken at a time, the one that fell asleep last, and
/// it wakes the next if more assignments wait: so few are busy, and their caches are warm.
#[derive(Debug, Default)]
struct Waiting {
    assignments: VecDeque<Assignment>,
    asleep: Vec<Arc<Sleeper>>,
    /// Whether a deliverer was woken and has not run yet.
    rung: bool,
    closed: bool,
}

/// A deliverer that sleeps.
#[derive(Debug)]
struct Sleeper {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Sleeper {
    fn wake(&self) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }

    fn sleep(&self) {
        while !self.is_woken.load(Ordering::Acquire) {
            thread::park();
        }
    }
}

#[derive(Debug, Default)]
struct AssignmentQueue(Mutex<Waiting>);

impl AssignmentQueue {
    /// Wakes a sleeping deliverer, after releasing the lock that it needs.
    fn ring(mut waiting: MutexGuard<'_, Waiting>) {
        let sleeper = if waiting.rung { None } else { waiting.asleep.pop() };
        waiting.rung |= sleeper.is_some();
        drop(waiting);
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }
}

/// The dispatcher's end of the queue. When it is dropped, the deliverers finish what waits and end.
#[derive(Debug)]
pub struct HandOut {
    shared: Arc<AssignmentQueue>,
    deliverers: usize,
}

/// A deliverer's end of the queue. Clones share the queue.
#[derive(Clone, Debug)]
pub struct Assignments(Arc<AssignmentQueue>);

/// Makes both ends. The queue needs no limit: the dispatcher starts no more attempts than there are deliverers.
pub fn assignments(deliverers: usize) -> (HandOut, Assignments) {
    let shared = Arc::new(AssignmentQueue::default());
    (HandOut { shared: Arc::clone(&shared), deliverers }, Assignments(shared))
}

impl HandOut {
    /// Gives an assignment to an idle deliverer. Never waits.
    fn give(&self, assignment: Assignment) {
        let mut waiting = self.shared.0.lock();
        waiting.assignments.push_back(assignment);
        AssignmentQueue::ring(waiting);
    }
}

impl Drop for HandOut {
    fn drop(&mut self) {
        let mut waiting = self.shared.0.lock();
        waiting.closed = true;
        waiting.asleep.drain(..).for_each(|sleeper| sleeper.wake());
    }
}

impl Assignments {
    /// Waits for the next assignment; `None` when there will be no more.
    pub fn take(&self) -> Option<Assignment> {
        let mut waiting = self.0.0.lock();
        loop {
            if let Some(next) = waiting.assignments.pop_front() {
                if !waiting.assignments.is_empty() {
                    AssignmentQueue::ring(waiting);
                }
                return Some(next);
            }
            if waiting.closed {
                return None;
            }
            let sleeper = Sleeper { thread: thread::current(), is_woken: AtomicBool::new(false) };
            let sleeper = Arc::new(sleeper);
            waiting.asleep.push(Arc::clone(&sleeper));
            drop(waiting);
            sleeper.sleep();
            waiting = self.0.0.lock();
            waiting.rung = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::DeliverySeq;

    #[test]
    fn what_was_given_is_taken_in_order_even_after_the_dispatcher_has_gone() {
        let (hand_out, assignments) = assignments(2);
        let given = [1, 2, 3].map(|n| (DeliverySeq(n), SubscriptionSeq(1))).map(
            |(delivery, subscription)| Assignment {
                delivery,
                subscription,
                is_probe: false,
                is_short: false,
            },
        );
        for assignment in given {
            hand_out.give(assignment);
        }
        drop(hand_out);
        for assignment in given {
            assert_eq!(assignments.take(), Some(assignment));
        }
        assert_eq!(assignments.take(), None);
    }
}
