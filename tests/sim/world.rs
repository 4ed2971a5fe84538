//! A simulated world: one process with its threads, its file, its endpoints and the people around it, all in one queue of
//! events. The store and the decisions of dispatcher and deliverers are the real ones; the steps of an attempt are events
//! here, because between them stand the writer and the network.
//!
//! Where threads of the process could overtake each other, chance says who is first. A kill may come before any step.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use oncebox::base::clock::trust::{Judgement, KnownTime, TimeStep};
use oncebox::base::clock::{Clock, ManualTime, Timestamp};
use oncebox::base::id::{DeliverySeq, SubscriptionSeq};
use oncebox::model::attempt::{Attempt, AttemptOrder, AttemptReport};
use oncebox::model::delivery::{Jitter, retry_after};
use oncebox::model::external_call::NewCall;
use oncebox::model::hold::{Gate, Hold, HoldReason, gate};
use oncebox::model::lease::LeaseOutcome;
use oncebox::model::outcome::{AttemptClass, Cause, ClassTable, Outcome};
use oncebox::model::rate::Rate;
use oncebox::model::subscription::Subscription;
use oncebox::pipeline::deliver::external_call::external_call;
use oncebox::pipeline::deliver::inconclusive::is_cut;
use oncebox::pipeline::scheduler::decisions::{
    self, Assignment, Command, Input, Limits, Machine, Pace,
};
use oncebox::pipeline::upkeep::clock_watch;
use oncebox::store::deliveries::{self, Sized};
use oncebox::store::error::Error;
use oncebox::store::tx::{ChangedSubscriptions, Effects, Settled};
use oncebox::store::{confirmations, subscriptions};

use crate::sim::bug::Bug;
use crate::sim::dice::{Dice, JitterDraw, MINUTE, Ms, SECOND};
use crate::sim::endpoint::{Endpoint, Manner};
use crate::sim::file::{Disk, File, Row};
use crate::sim::jobs::{Confirmation, Done, Job, MANY, Outgoing, Times};
use crate::sim::plan::{ClockSet, Deed, PATIENCE, Plan, Wish};
use crate::sim::watch::{Send, Watch};

/// Wall time at the beginning.
const START: Ms = 1_800_000_000_000;
/// Events of one world at most: more means that something goes round in circles.
const MAX_EVENTS: u64 = 400_000;
/// The cap of a subscription that does not say.
const CAP: u32 = 8;
/// How long no wait for a confirmation ends after a start, as in `upkeep`.
const CONFIRM_GRACE: Ms = MINUTE;
/// How long the dispatcher sleeps at most.
const MAX_SLEEP: Ms = 250;
/// As `decisions::FIRST_TRY`.
#[expect(clippy::as_conversions, reason = "`try_from` is not const, and a second is short")]
#[expect(clippy::cast_possible_truncation, reason = "a second is short")]
const FIRST_TRY: Ms = decisions::FIRST_TRY.as_millis() as Ms;

/// Something that happens.
#[derive(Debug)]
enum Event {
    /// A wish is put forward.
    Ask(usize),
    /// Somebody sets the wall clock.
    SetClock(ClockSet),
    /// A time service keeps the wall clock right from now on.
    Synchronise,
    /// The process is asked to stop.
    Stop,
    /// The process starts.
    Boot,
    /// The request reaches the endpoint.
    Arrive(u64),
    /// A target reports what became of a delivery that it has accepted.
    Confirm(usize),
    /// A step of the process, in one of its runs.
    Step(u32, Step),
}

/// A step of one of the process's threads.
#[derive(Debug)]
enum Step {
    /// The dispatcher takes its messages.
    Turn,
    /// The writer begins a transaction.
    Write,
    /// The transaction is on the disk.
    Commit,
    /// The writer tells what was committed.
    Tell(Box<Told>),
    /// A deliverer takes an assignment and sends it.
    Take(Assignment),
    /// The answer is here, or the time is over.
    Answer(u64),
    /// The deliverer hands its outcome in.
    HandIn(Arc<AttemptReport>, Option<NewCall>),
    /// The deliverer is idle.
    Idle(Input),
    Upkeep,
    /// What is not done by now after a stop is given up.
    GraceOver,
}

/// What is told after a transaction.
#[derive(Debug, Default)]
struct Told {
    effects: Effects,
    acknowledged: Vec<usize>,
    refused: Vec<Job>,
    commit: u64,
    /// External calls that are noted, and whether each may be made.
    begun: Vec<(Box<Outgoing>, bool)>,
    /// Confirmations that are answered.
    confirmed: Vec<usize>,
    /// The ends of waits are moved by so many ms.
    clock_step: Option<i64>,
}

/// What a target reports.
#[derive(Clone, Debug)]
struct Asked {
    confirmation: Confirmation,
    is_answered: bool,
    /// How often it came too early.
    early: u32,
}

/// A request under way.
#[derive(Clone, Debug)]
struct Flight {
    boot: u32,
    outgoing: Box<Outgoing>,
    started: Ms,
    began_offline: bool,
    outcome: Outcome,
}

/// What a run of the process has in memory.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each true or not")]
struct Process {
    boot: u32,
    started_at: Ms,
    known: BTreeMap<SubscriptionSeq, Limits>,
    inputs: Vec<Input>,
    rang: BTreeSet<SubscriptionSeq>,
    subscriptions_changed: ChangedSubscriptions,
    /// Whether the ends of waits are being moved, before believed time follows the clock.
    is_following_clock: bool,
    next_turn: Option<Ms>,
    stalled_until: Ms,
    /// Holds of subscriptions as deliverers have them in memory.
    destinations: BTreeMap<SubscriptionSeq, Vec<Hold>>,
    settle: Vec<Job>,
    accept: Vec<Job>,
    upkeep: Vec<Job>,
    /// The jobs of the transaction under way, and whether it fails.
    writing: Option<(Arc<Vec<Job>>, bool)>,
    writer_is_busy: bool,
    unsettled: Vec<Job>,
    next_upkeep: Option<Ms>,
    are_due_times_suspect: bool,
    stopping: bool,
    drained: bool,
    told: u64,
    /// The latest commit that the dispatcher has worked off.
    fed: u64,
    /// Requests that the machine counts as under way.
    started: BTreeMap<SubscriptionSeq, u32>,
    /// Deliveries that were started, until the machine knows that they are settled.
    unsettled_starts: BTreeMap<SubscriptionSeq, BTreeSet<DeliverySeq>>,
    was_offline: bool,
    /// Deliveries that are being attempted.
    in_flight: BTreeSet<i64>,
    line: Line,
    /// Turns in a row that nobody asked for, and since when.
    idle_turns: (u32, Ms),
}

/// As `pipeline::connectivity::Line`.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    is_down: bool,
    answered: Option<Ms>,
    down: Option<Ms>,
    probed: Option<(Ms, bool)>,
}

/// What a world came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ended {
    pub(crate) violation: Option<String>,
    pub(crate) events: u64,
    pub(crate) trace: Vec<String>,
}

pub(crate) struct World<'d> {
    plan: Plan,
    bug: Option<Bug>,
    dice: Dice,
    jitter: JitterDraw,
    time: Arc<ManualTime>,
    now: Ms,
    queue: BTreeMap<(Ms, u64), Event>,
    count: u64,
    steps: u64,
    file: File<'d>,
    endpoints: Vec<Endpoint>,
    flights: BTreeMap<u64, Flight>,
    confirmations: Vec<Asked>,
    acknowledged: Vec<bool>,
    process: Process,
    /// The process's own.
    clock: Clock,
    /// The time as the file knows it.
    known: Option<KnownTime>,
    machine: Machine,
    is_up: bool,
    watch: Watch,
    trace: Option<Vec<String>>,
}

impl<'d> World<'d> {
    pub(crate) fn new(disk: &'d Disk, seed: u32, bug: Option<Bug>, is_traced: bool) -> Self {
        let plan = Plan::draw(seed);
        let time = ManualTime::at(Timestamp::from_ms(START));
        let clock = Clock::from_source(time.clone());
        let mut world = Self {
            bug,
            dice: Dice::new(seed, "world"),
            jitter: JitterDraw::new(seed),
            time,
            now: 0,
            queue: BTreeMap::new(),
            count: 0,
            steps: 0,
            file: File::new(disk, &plan.subs, bug),
            endpoints: plan.endpoints.clone(),
            flights: BTreeMap::new(),
            confirmations: Vec::new(),
            acknowledged: vec![false; plan.wishes.len()],
            process: Process::default(),
            clock,
            known: None,
            machine: Machine::new(plan.deliverers),
            is_up: false,
            watch: Watch::default(),
            trace: is_traced.then(Vec::new),
            plan,
        };
        world.at(0, Event::Boot);
        for (n, (at, _)) in world.plan.wishes.clone().iter().enumerate() {
            world.at(*at, Event::Ask(n));
        }
        for at in world.plan.stops.clone() {
            world.at(at, Event::Stop);
        }
        for set in world.plan.clock_sets.clone() {
            world.at(set.at, Event::SetClock(set));
        }
        world.at(world.plan.heal_at, Event::Synchronise);
        world
    }

    /// Lets the world run until nothing is open, or something is wrong.
    pub(crate) fn run(mut self) -> Ended {
        let plan = format!("{:?}", self.plan);
        self.note(|| plan);
        // An event that is not to be sent before some time waits for it, however long that is after a clock was set.
        let mut deadline = self.plan.heal_at + PATIENCE;
        while self.watch.violation.is_none() {
            if self.now > self.plan.heal_at && self.is_done() {
                self.watch.at_end(&self.file);
                break;
            }
            let Some(((at, _), event)) = self.queue.pop_first() else {
                let stuck = self.stuck();
                self.watch.fail(format!("nothing will happen any more, and {stuck}"));
                break;
            };
            let wait = self.file.rows.iter().filter(|row| row.is_open()).map(|row| row.not_before);
            let wait = (wait.max().unwrap_or(0) - self.schedule_now()).max(0);
            if wait > 0 {
                deadline = deadline.max(self.now + wait + PATIENCE);
            }
            if at > deadline || self.count > MAX_EVENTS {
                let stuck = self.stuck();
                self.watch.fail(format!("after {} events {stuck}", self.count));
                break;
            }
            self.time.advance(Duration::from_millis((at - self.now).unsigned_abs()));
            self.now = at;
            self.happen(event);
        }
        let trace = self.trace.unwrap_or_default();
        Ended { violation: self.watch.violation, events: self.count, trace }
    }

    fn is_done(&self) -> bool {
        // What is open in a lane without a head waits for a person.
        let goes_on = |row: &Row| {
            let is_head = |head: &Row| head.lane == row.lane && head.is_standing() && head.head;
            row.is_standing() && (row.lane.is_none() || self.file.rows.iter().any(is_head))
        };
        self.acknowledged.iter().all(|is| *is) && !self.file.rows.iter().any(goes_on)
    }

    fn stuck(&self) -> String {
        let open: Vec<_> = self.file.rows.iter().filter(|row| row.is_standing()).collect();
        let asked = self.acknowledged.iter().filter(|is| !**is).count();
        format!(
            "{asked} wishes are not acknowledged, {} deliveries are open; schedule time is {}; {open:?} {:?}",
            open.len(),
            self.clock.now().ms(),
            self.machine,
        )
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{now:>9} {}", what()));
        }
    }

    fn at(&mut self, at: Ms, event: Event) {
        // Chance decides between what happens at the same time.
        let order = self.dice.draw() & !0xF_FFFF | self.count & 0xF_FFFF;
        self.count += 1;
        self.queue.insert((at.max(self.now), order), event);
    }

    /// A step of a thread, a little later: most are quick, some wait for the processor.
    fn soon(&mut self, step: Step) {
        let wait = if self.dice.one_in(12) { self.dice.spread(1, 400) } else { self.dice.below(3) };
        self.after(wait, step);
    }

    fn after(&mut self, wait: Ms, step: Step) {
        let boot = self.process.boot;
        self.at(self.now + wait, Event::Step(boot, step));
    }

    fn is_healed(&self) -> bool {
        self.now >= self.plan.heal_at
    }

    fn fails(&mut self, one_in: i64) -> bool {
        one_in > 0 && !self.is_healed() && self.dice.one_in(one_in)
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn schedule_now(&self) -> Ms {
        self.clock.now().ms()
    }

    fn happen(&mut self, event: Event) {
        if let Event::Step(boot, _) = &event {
            if !self.is_up || *boot != self.process.boot {
                return;
            }
            self.steps += 1;
            if self.plan.kills.contains(&self.steps) && !self.is_healed() {
                self.kill();
                return;
            }
        }
        if self.is_up {
            self.watch.clock(self.now, self.schedule_now());
        }
        self.note(|| format!("{event:?}"));
        match event {
            Event::Ask(n) => self.ask(n),
            Event::SetClock(set) => self.set_clock(set),
            Event::Synchronise => {
                self.time.set_synchronised(true);
                self.upkeep_within(SECOND);
            }
            Event::Stop if self.is_up && !self.is_healed() => {
                self.process.stopping = true;
                self.turn_soon();
                self.after(25 * SECOND, Step::GraceOver);
            }
            Event::Stop => {}
            Event::Boot => self.boot(),
            Event::Arrive(flight) => self.arrive(flight),
            Event::Confirm(n) => self.confirm(n),
            Event::Step(_, step) => self.step(step),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Turn => self.turn(),
            Step::Write => self.write(),
            Step::Commit => self.commit_now(),
            Step::Tell(told) => self.tell(*told),
            Step::Take(assignment) => self.take(assignment),
            Step::Answer(flight) => self.answer(flight),
            Step::HandIn(report, call) => {
                self.process.in_flight.remove(&report.delivery.0);
                self.process.settle.push(Job::Settle(report, call));
                self.wake_writer();
            }
            Step::Idle(input) => self.says(input),
            Step::Upkeep => self.upkeep(),
            Step::GraceOver => self.kill(),
        }
    }

    // The people around it.

    fn ask(&mut self, n: usize) {
        let is_pause = matches!(self.plan.wishes[n].1, Wish::Act(Deed::Pause(_)));
        // A pause that comes after the last resume would hold its subscription for ever.
        self.acknowledged[n] |= is_pause && self.is_healed();
        if self.acknowledged[n] {
            return;
        }
        if !self.is_up || self.process.stopping {
            let wait = self.dice.between(SECOND, 5 * SECOND);
            return self.at(self.now + wait, Event::Ask(n));
        }
        let now = self.clock.now();
        self.process.accept.push(Job::Wish(n, self.plan.wishes[n].1.clone(), now));
        self.wake_writer();
    }

    /// A target asks until it has an answer.
    fn confirm(&mut self, n: usize) {
        let Asked { confirmation, is_answered, .. } = &self.confirmations[n];
        if *is_answered {
            return;
        }
        if self.is_up && !self.process.stopping {
            let is_early = self.process.in_flight.contains(&confirmation.delivery);
            self.process.accept.push(Job::Confirm(n, confirmation.clone(), is_early));
            self.wake_writer();
        } else {
            let wait = self.dice.between(SECOND, 20 * SECOND);
            self.at(self.now + wait, Event::Confirm(n));
        }
    }

    fn set_clock(&mut self, set: ClockSet) {
        if self.is_healed() {
            return;
        }
        let shown = self.clock.shown().ms();
        self.time.set_synchronised(set.is_synchronised);
        self.time.set_wall(Timestamp::from_ms(shown + set.by));
        self.upkeep_within(SECOND);
    }

    // The process.

    fn boot(&mut self) {
        self.clock = Clock::from_source(self.time.clone());
        self.clock.begin(self.known);
        self.machine = Machine::new(self.plan.deliverers);
        self.process = Process {
            boot: self.process.boot + 1,
            started_at: self.now,
            told: self.file.commits,
            subscriptions_changed: ChangedSubscriptions::all(),
            are_due_times_suspect: true,
            ..Process::default()
        };
        self.file.boot();
        self.process.line.is_down = self.file.is_offline();
        self.is_up = true;
        self.watch.clock(self.now, self.schedule_now());
        self.turn_soon();
        self.upkeep_within(SECOND);
    }

    fn kill(&mut self) {
        // What was being written is on the disk, or it is not.
        if self.process.writing.is_some() && self.dice.one_in(2) {
            self.commit_now();
        }
        self.note(|| "killed".to_owned());
        self.goes_down();
    }

    fn goes_down(&mut self) {
        self.is_up = false;
        self.watch.killed(&self.file);
        if self.plan.is_restored && !self.is_healed() && self.dice.one_in(2) {
            let now = self.schedule_now();
            self.file.restore(now);
            self.note(|| "restored".to_owned());
        }
        let wait = self.dice.spread(100, 20 * SECOND);
        self.at(self.now + wait, Event::Boot);
        for n in 0..self.confirmations.len() {
            let wait = self.dice.between(SECOND, 5 * SECOND);
            if !self.confirmations[n].is_answered {
                self.at(self.now + wait, Event::Confirm(n));
            }
        }
        for n in 0..self.acknowledged.len() {
            if !self.acknowledged[n] && self.plan.wishes[n].0 <= self.now {
                let wait = self.dice.between(SECOND, 5 * SECOND);
                self.at(self.now + wait, Event::Ask(n));
            }
        }
    }

    // The dispatcher: the same order as `scheduler::Dispatcher::turn`.

    fn turn_soon(&mut self) {
        let wait =
            if self.dice.one_in(10) { self.dice.below(MAX_SLEEP) } else { self.dice.below(3) };
        self.turn_within(wait);
    }

    fn turn_within(&mut self, wait: Ms) {
        let wait = wait.max(self.process.stalled_until - self.now);
        let at = self.now + wait;
        if self.process.next_turn.is_none_or(|next| next > at) {
            self.process.next_turn = Some(at);
            self.after(wait, Step::Turn);
        }
    }

    fn turn(&mut self) {
        if self.process.next_turn != Some(self.now) {
            return;
        }
        self.process.next_turn = None;
        let told = self.process.told;
        self.counts_turn();
        // A look at the file may take long.
        if self.dice.one_in(300) {
            self.process.stalled_until = self.now + self.dice.spread(MAX_SLEEP, 6 * SECOND);
        }
        let inputs = std::mem::take(&mut self.process.inputs);
        self.note_gates(&inputs);
        let mut drained = self.feed(inputs);
        let changed = std::mem::take(&mut self.process.subscriptions_changed);
        if !changed.is_empty() {
            let inputs = self.changes(&changed);
            drained |= self.feed(inputs);
        }
        let rang = std::mem::take(&mut self.process.rang);
        drained |= self.feed(rang.into_iter().map(Input::Woken).collect());
        let last = if self.process.stopping { Input::Stop } else { Input::Tick };
        drained |= self.feed(vec![last]);
        self.process.fed = told;
        self.process.drained |= drained && self.process.stopping;
        if self.process.drained {
            self.ends_when_written();
        }
        if let Some(until) = self.machine.sleep_until() {
            self.turn_within((until.ms() - self.schedule_now()).max(1));
        }
    }

    /// As `Dispatcher::note_gates`.
    fn note_gates(&mut self, inputs: &[Input]) {
        for input in inputs {
            if let Input::GateChanged { subscription, gate } = input
                && let Some(limits) = self.process.known.get_mut(subscription)
            {
                limits.gate = *gate;
            }
        }
    }

    /// A dispatcher that looks again and again with nothing to do wastes a processor.
    fn counts_turn(&mut self) {
        let process = &mut self.process;
        let is_asked = !process.inputs.is_empty() || !process.rang.is_empty();
        let (count, since) = process.idle_turns;
        let is_changed = !process.subscriptions_changed.is_empty();
        if is_asked || is_changed || self.now - since > SECOND {
            process.idle_turns = (0, self.now);
        } else {
            process.idle_turns = (count + 1, since);
        }
        if process.idle_turns.0 > 100 {
            self.watch.fail("the dispatcher looks 100 times a second for nothing".to_owned());
        }
    }

    fn feed(&mut self, mut inputs: Vec<Input>) -> bool {
        let now = self.clock.now();
        let mut drained = false;
        while !inputs.is_empty() {
            let mut commands = Vec::new();
            for input in inputs.drain(..) {
                if let Input::Finished { subscription, limit, .. } = &input {
                    let own = self.process.started.entry(*subscription).or_default();
                    *own = own.saturating_sub(1);
                    self.watch.finished(subscription.0, limit.is_some());
                }
                if let Input::Settled(Settled { delivery, subscription, .. })
                | Input::Reschedule { delivery, subscription, .. } = &input
                {
                    self.watch.released(delivery.0);
                    let starts = self.process.unsettled_starts.entry(*subscription).or_default();
                    starts.remove(delivery);
                }
                commands.extend(self.machine.step(now, input));
            }
            for command in commands {
                match command {
                    Command::Fetch { subscription, limit, taken } => {
                        let fetched = self.fetched(subscription, limit, &taken);
                        inputs.push(fetched);
                    }
                    Command::Start(assignment) => self.start(assignment),
                    Command::Drained => drained = true,
                }
            }
        }
        drained
    }

    fn start(&mut self, assignment: Assignment) {
        let Assignment { delivery, subscription, is_probe, .. } = assignment;
        *self.process.started.entry(subscription).or_default() += 1;
        let own = self.process.started[&subscription];
        let all: u32 = self.process.started.values().sum();
        let limits = self.process.known[&subscription];
        let most = limits.is_hard.then_some(limits.cap);
        let all = (usize::try_from(all).unwrap(), self.plan.deliverers);
        self.watch.starts(subscription.0, (own, most), all);
        let others = self.process.unsettled_starts.entry(subscription).or_default();
        let others_count = others.len();
        others.insert(delivery);
        if self.file.held_in(subscription.0) <= self.process.fed {
            let (gate, now) = (gate(&self.file.holds[&subscription.0]), self.clock.now());
            let is_wrong = gate.is_probe() != is_probe || (is_probe && others_count > 0);
            if !gate.is_open(now) || is_wrong {
                self.watch.fail(format!(
                    "{delivery} of {subscription:?} is started as {assignment:?} \
                     beside {others_count} at {now:?}; its gate is {gate:?}"
                ));
            }
        }
        if limits.rate.is_some() {
            self.watch.starts_slowly(subscription.0, self.now, self.process.boot);
        }
        self.soon(Step::Take(assignment));
    }

    /// As `Dispatcher::fetch`: two reads, between which a transaction may be committed.
    fn fetched(&mut self, subscription: SubscriptionSeq, limit: u32, taken: &[i64]) -> Input {
        let now = self.clock.now();
        if self.fails(self.plan.failing_reads) {
            let next_due = Some(now.plus(Duration::from_secs(1)));
            return Input::Fetched { subscription, rows: Vec::new(), more: false, next_due };
        }
        let commits = self.file.commits;
        let (mut rows, _) =
            self.file.read(|tx| deliveries::due(tx, subscription, now, limit, taken, None));
        for (delivery, places) in &mut rows {
            self.watch.fetched(delivery.0, commits);
            places.funnel = places.funnel.filter(|_| !self.has(Bug::FunnelNotTold));
        }
        if self.process.writing.is_some() && self.dice.one_in(3) {
            self.commit_now();
        }
        let more = u32::try_from(rows.len()).unwrap() >= limit;
        let next = || self.file.read(|tx| deliveries::next_due(tx, subscription, now));
        let next_due = if more { None } else { next() };
        Input::Fetched { subscription, rows, more, next_due }
    }

    /// As `Dispatcher::changes`.
    fn changes(&mut self, changed: &ChangedSubscriptions) -> Vec<Input> {
        let mut inputs = Vec::new();
        for found in self.file.read(|tx| subscriptions::changed(tx, changed)) {
            let pace = pace(&found);
            let Subscription { seq: subscription, new, holds, .. } = found;
            let limits = Limits {
                cap: new.policy.in_flight_max.unwrap_or(CAP),
                is_hard: new.policy.in_flight_max.is_some(),
                rate: new.policy.rate.as_deref().map(|rate| Rate::parse(rate).unwrap()),
                gate: self.seen(gate(&holds)),
                has_funnels: new.order.funnel_point.is_some() || new.order.external_calls.is_some(),
                can_be_cut: new.order.external_calls.is_none(),
            };
            if self.process.known.get(&subscription) != Some(&limits) {
                let tenant = self.file.subs[&subscription.0].tenant.to_owned();
                inputs.push(Input::SubscriptionChanged { subscription, limits, tenant, pace });
            }
            self.process.known.insert(subscription, limits);
        }
        let is_offline = self.file.is_offline();
        if std::mem::replace(&mut self.process.was_offline, is_offline) && !is_offline {
            inputs.insert(0, Input::LineIsBack);
        }
        inputs
    }

    /// A gate as the dispatcher sees it.
    fn seen(&self, gate: Gate) -> Gate {
        if gate.is_probe() && self.has(Bug::ProbeGateOpen) { Gate::Open } else { gate }
    }

    // The writer.

    fn wake_writer(&mut self) {
        if !std::mem::replace(&mut self.process.writer_is_busy, true) {
            self.soon(Step::Write);
        }
    }

    fn write(&mut self) {
        let process = &mut self.process;
        let mut jobs = std::mem::take(&mut process.settle);
        jobs.append(&mut process.accept);
        jobs.append(&mut process.upkeep);
        if jobs.is_empty() {
            self.process.writer_is_busy = false;
            if self.process.drained {
                self.ends_when_written();
            }
            return;
        }
        let fails = self.fails(self.plan.failing_commits);
        if self.has(Bug::SettledBeforeCommit) {
            self.tells_too_early(&jobs);
        }
        self.process.writing = Some((Arc::new(jobs), fails));
        let wait = if self.dice.one_in(20) {
            self.dice.spread(20, 3 * SECOND)
        } else {
            self.dice.between(1, 12)
        };
        self.after(wait, Step::Commit);
    }

    fn tells_too_early(&mut self, jobs: &[Job]) {
        for job in jobs {
            let Job::Settle(report, _) = job else { continue };
            let AttemptReport { delivery, subscription, .. } = **report;
            self.says(Input::Settled(Settled { delivery, subscription, next_due: None }));
        }
    }

    fn commit_now(&mut self) {
        let Some((jobs, fails)) = self.process.writing.take() else { return };
        let seed = u32::try_from(self.dice.draw() >> 32).unwrap();
        let (now, at) = (self.clock.now(), self.clock.wall());
        let mut told = Told::default();
        match self.file.write(&jobs, Times { now, at, seed }, fails) {
            Ok((done, effects)) => {
                told.effects = effects;
                if self.has(Bug::FunnelNotRung) {
                    drop_rings(&done, &mut told.effects);
                }
                for (job, done) in jobs.iter().zip(done) {
                    self.done(job, done, &mut told);
                }
            }
            Err(Error::Full) if fails => told.refused = jobs.to_vec(),
            Err(error) => self.watch.fail(format!("{error}, in {jobs:?}")),
        }
        told.commit = self.file.commits;
        self.watch.looks_at(&self.file);
        self.soon(Step::Tell(Box::new(told)));
    }

    /// A job is committed.
    fn done(&mut self, job: &Job, done: Done, told: &mut Told) {
        match (job, done) {
            (Job::Settle(report, call), Done::Settled(counted, holds)) => {
                self.settled(report, call.as_ref(), counted, &holds);
            }
            (job, Done::TooEarly) => told.refused.push(job.clone()),
            (Job::Wish(n, wish, _), done) => {
                told.acknowledged.push(*n);
                self.granted(*n, wish, done);
            }
            (Job::Line(is_down), _) => self.process.line.is_down &= is_down,
            (Job::FollowClock(step), _) => told.clock_step = Some(step.ms()),
            (Job::Begin(outgoing, ..), Done::Begun(may_go)) => {
                let row = self.file.row(outgoing.row.seq).unwrap();
                let is_held = self.file.holds[&row.sub].iter().any(|it| it.reason.is_by_a_person());
                let goes_all_the_same = is_held && self.has(Bug::HeldCallMade)
                    || row.is_call_spared() && self.has(Bug::OlderCallMade);
                told.begun.push((outgoing.clone(), may_go || goes_all_the_same));
            }
            (Job::Confirm(n, confirmation, _), Done::Ended(ended)) => {
                self.watch.confirmed(confirmation, &ended[0]);
                told.confirmed.push(*n);
            }
            (Job::Confirm(n, ..), Done::Refused) => told.confirmed.push(*n),
            (_, Done::Ended(ended)) => {
                for before in &ended {
                    self.watch.expired(before);
                }
            }
            _ => {}
        }
    }

    /// The ends of waits are moved: believed time follows the clock.
    fn follow_clock(&mut self, step_ms: i64) {
        self.clock.follow(step_ms);
        self.process.is_following_clock = false;
        self.known = Some(clock_watch::known(&self.clock));
        self.clamp_due_times();
        self.watch.clock(self.now, self.schedule_now());
        self.turn_within(MAX_SLEEP);
        self.upkeep_within(SECOND);
        self.wake_writer();
    }

    /// What was asked is done.
    fn granted(&mut self, n: usize, wish: &Wish, done: Done) {
        if let Wish::Act(Deed::Retry(delivery) | Deed::Replay(delivery)) = wish {
            self.watch.is_wanted(*delivery);
        }
        match done {
            Done::Arrived => self.watch.arrives(n, &self.file),
            Done::Released(released) => released.iter().for_each(|it| self.watch.is_freed(*it)),
            Done::AcceptedAgain(sub) => self.frees_refused(sub),
            _ => {}
        }
    }

    /// The credential of a subscription is accepted again: what was refused with it is due now.
    fn frees_refused(&mut self, sub: i64) {
        let is_refused = |row: &&Row| row.sub == sub && row.last_class == Some(AttemptClass::Auth);
        for row in self.file.rows.iter().filter(is_refused) {
            self.watch.is_freed(row.seq);
        }
    }

    fn settled(
        &mut self,
        report: &AttemptReport,
        call: Option<&NewCall>,
        is_counted: bool,
        [before, after]: &[Vec<Hold>; 2],
    ) {
        let is_success = report.attempt.class.is_success();
        let ends = |hold: &&Hold| hold.probe_at.is_some() || hold.reason == HoldReason::Rejecting;
        if let Some(hold) = after.iter().find(ends).filter(|_| is_success) {
            self.watch.fail(format!("a success has not ended {hold:?}"));
        }
        call.filter(|_| is_success).into_iter().for_each(|call| self.watch.accepted(call));
        let has = |holds: &[Hold], reason| holds.iter().any(|hold| hold.reason == reason);
        let changed = |from, to, reason| has(to, reason) && !has(from, reason);
        let is_disabled = changed(before, after, HoldReason::Disabled);
        self.watch.settled(report, (is_counted, is_disabled), self.now);
        if changed(after, before, HoldReason::Auth) {
            self.frees_refused(report.subscription.0);
        }
    }

    fn tell(&mut self, told: Told) {
        let Told { effects, acknowledged, refused, commit, begun, confirmed, clock_step } = told;
        if let Some(step_ms) = clock_step {
            self.follow_clock(step_ms);
        }
        let Effects { rang, gates, settled, subscriptions_changed, .. } = effects;
        let is_changed = |of: &SubscriptionSeq| {
            subscriptions_changed.all || subscriptions_changed.these.contains(of)
        };
        self.process.destinations.retain(|of, _| !is_changed(of));
        self.process.told = commit;
        self.process.rang.extend(rang);
        let is_told = !self.has(Bug::HoldNotTold);
        for (subscription, gate) in gates.into_iter().filter(|_| is_told) {
            let gate = self.seen(gate);
            self.process.inputs.push(Input::GateChanged { subscription, gate });
        }
        self.process.inputs.extend(settled.into_iter().map(Input::Settled));
        if is_told {
            self.process.subscriptions_changed.append(subscriptions_changed);
        }
        self.turn_soon();
        for n in acknowledged {
            self.acknowledged[n] = true;
        }
        for n in confirmed {
            self.confirmations[n].is_answered = true;
        }
        for (outgoing, may_go) in begun {
            if may_go {
                self.fly(outgoing);
            } else {
                self.lets_go(outgoing.assignment);
            }
        }
        for job in refused {
            match job {
                Job::Settle(..) => {
                    self.process.unsettled.push(job);
                    self.upkeep_within(SECOND);
                }
                Job::Wish(n, ..) => self.at(self.now + SECOND, Event::Ask(n)),
                // The next attempt that fails says it again.
                Job::Line(true) => self.process.line.is_down = false,
                Job::EndHolds(_) => {}
                Job::FollowClock(_) => {
                    self.process.is_following_clock = false;
                    self.upkeep_within(SECOND);
                }
                Job::Confirm(n, ..) => {
                    // As `Retry-After` says at first; an attempt that a kill has ended is not settled for long.
                    let wait = SECOND << self.confirmations[n].early.min(12);
                    self.confirmations[n].early += 1;
                    self.at(self.now + wait, Event::Confirm(n));
                }
                Job::Begin(outgoing, ..) => {
                    let Assignment { delivery, subscription, .. } = outgoing.assignment;
                    let until = Timestamp::from_ms(self.schedule_now() + 5 * SECOND);
                    self.says(Input::Reschedule { delivery, subscription, until, all: false });
                    self.lets_go(outgoing.assignment);
                }
                Job::Line(false) | Job::EndWaits(..) => self.upkeep_within(SECOND),
                Job::Clamp(..) => {
                    self.process.are_due_times_suspect = true;
                    self.upkeep_within(SECOND);
                }
            }
        }
        self.upkeep_for_holds();
        self.soon(Step::Write);
    }

    fn ends_when_written(&mut self) {
        let process = &self.process;
        let is_idle = !process.writer_is_busy && process.unsettled.is_empty();
        if is_idle && process.settle.is_empty() && process.accept.is_empty() {
            self.note(|| "stopped".to_owned());
            self.goes_down();
        }
    }

    // Upkeep: once a second, simulated where it has something to do.

    fn upkeep_within(&mut self, wait: Ms) {
        let wait = self.dice.between(1, wait);
        self.upkeep_after(wait);
    }

    /// When the time of a hold is over, and when the line is back.
    fn upkeep_for_holds(&mut self) {
        let now = self.schedule_now();
        let ends = self.file.holds.values().flatten();
        if let Some(end) = ends.filter_map(|hold| hold.until).min() {
            let wait = (end.ms() - now).max(0) + self.dice.between(1, SECOND);
            self.upkeep_after(wait);
        }
        let ends = self.file.rows.iter().filter_map(|row| row.confirm_until);
        if let Some(end) = ends.min() {
            let grace = self.process.started_at + CONFIRM_GRACE - self.now;
            let wait = (end - now).max(grace).max(0) + self.dice.between(1, SECOND);
            self.upkeep_after(wait);
        }
        if self.process.line.is_down {
            let back = self.plan.line_is_back(self.now).unwrap_or(self.now);
            let wait = back - self.now + self.dice.between(1, SECOND);
            self.upkeep_after(wait);
        }
    }

    fn upkeep_after(&mut self, wait: Ms) {
        let at = self.now + wait;
        if self.process.next_upkeep.is_none_or(|next| next > at) {
            self.process.next_upkeep = Some(at);
            self.after(wait, Step::Upkeep);
        }
    }

    fn upkeep(&mut self) {
        if self.process.next_upkeep != Some(self.now) {
            return;
        }
        self.process.next_upkeep = None;
        self.process.settle.append(&mut self.process.unsettled);
        self.known = Some(clock_watch::known(&self.clock));
        // The watch writes, and waits for it, before believed time follows the clock.
        match self.clock.look() {
            Judgement::Unchanged | Judgement::Suspect(_) => {}
            Judgement::Believe { step_ms } => {
                if !std::mem::replace(&mut self.process.is_following_clock, true) {
                    let step = TimeStep::of(self.clock.now(), step_ms);
                    self.process.upkeep.push(Job::FollowClock(step));
                }
            }
        }
        if std::mem::take(&mut self.process.are_due_times_suspect) {
            self.clamp_due_times();
        }
        let now = self.clock.now();
        self.process.upkeep.push(Job::EndHolds(now));
        let over = self.file.read(|tx| confirmations::over(tx, now, MANY));
        if !over.is_empty() && self.now - self.process.started_at >= CONFIRM_GRACE {
            self.process.upkeep.push(Job::EndWaits(over, now));
        }
        if self.process.line.is_down && self.probe(self.now) {
            self.process.upkeep.push(Job::Line(false));
        }
        self.upkeep_for_holds();
        self.wake_writer();
    }

    fn clamp_due_times(&mut self) {
        self.process.upkeep.extend(self.file.subs.keys().map(|sub| Job::Clamp(*sub)));
    }

    // The line: the same order as `line::Line`.

    fn probe(&mut self, since: Ms) -> bool {
        if let Some((at, works)) = self.process.line.probed
            && self.now - at < SECOND
            && self.now > at
            && (!works || at >= since)
        {
            return works;
        }
        let works = !self.plan.is_offline(self.now);
        self.process.line.probed = Some((self.now, works));
        if !works {
            self.process.line.down = Some(self.now);
        }
        works
    }

    fn note_line(&mut self, started: Ms, outcome: &Outcome) -> bool {
        let (now, line) = (self.now, &mut self.process.line);
        match outcome {
            Outcome::Blocked { .. }
            | Outcome::Postponed { .. }
            | Outcome::Unbuildable { .. }
            | Outcome::NoToken { .. }
            | Outcome::Unacknowledged { .. }
            | Outcome::Accepted { .. }
            | Outcome::Refused { .. } => return false,
            Outcome::Answered { .. }
            | Outcome::Unreachable { cause: Cause::Refused | Cause::Tls, .. } => {
                line.answered = Some(now);
                return line.is_down && outcome.status().is_none();
            }
            Outcome::Unreachable { .. } => {}
        }
        if line.is_down || line.down.is_some_and(|at| at >= started) {
            return true;
        }
        let is_proof = |at: Ms| at > started && now - at < SECOND;
        if line.answered.is_some_and(is_proof) || self.probe(started) {
            return false;
        }
        self.process.line.is_down = true;
        self.process.settle.push(Job::Line(true));
        self.wake_writer();
        self.upkeep_for_holds();
        true
    }

    // The deliverers: the steps of `pipeline::deliver`, with the network and the writer in between as events.

    fn take(&mut self, assignment: Assignment) {
        let Assignment { delivery, subscription, .. } = assignment;
        if self.fails(self.plan.failing_reads) {
            let all = self.dice.one_in(2);
            let wait = if all { 30 * SECOND } else { 5 * SECOND };
            let until = Timestamp::from_ms(self.schedule_now() + wait);
            self.says(Input::Reschedule { delivery, subscription, until, all });
            return self.idle(assignment, 0, None);
        }
        let file = &self.file;
        let kept = self.process.destinations.entry(subscription);
        let holds = kept.or_insert_with(|| file.holds[&subscription.0].clone());
        let is_held = holds.iter().any(|hold| hold.reason.is_by_a_person());
        let outgoing = file.read(|tx| {
            if self.bug == Some(Bug::HeadNotAsked) {
                return deliveries::outgoing(tx, delivery);
            }
            Ok(match deliveries::outgoing_within(tx, delivery, usize::MAX)? {
                Some(Sized::OutgoingRequest(outgoing)) => Some(*outgoing),
                _ => None,
            })
        });
        let Some(outgoing) = outgoing.filter(|_| !is_held) else {
            let next_due = Some(self.clock.now());
            self.says(Input::Settled(Settled { delivery, subscription, next_due }));
            return self.idle(assignment, 0, None);
        };
        self.process.in_flight.insert(delivery.0);
        let makes_calls = file.subs[&subscription.0].calls.is_some();
        let called = makes_calls.then(|| file.read(|tx| subscriptions::by_seq(tx, subscription)));
        let call = called.flatten().and_then(|called| external_call(&outgoing, &called));
        // Its body says what state it is.
        let call = call.map(|call| NewCall { body_hash: outgoing.payload.clone(), ..call });
        let (row, read_in) = (file.row(delivery.0).unwrap().clone(), file.commits);
        let outgoing = Box::new(Outgoing { assignment, row, read_in, call: call.clone() });
        if let Some(call) = call {
            let now = self.clock.now();
            self.process.settle.push(Job::Begin(outgoing, call, now));
            self.wake_writer();
        } else {
            self.fly(outgoing);
        }
    }

    /// The request is not sent.
    fn lets_go(&mut self, assignment: Assignment) {
        self.process.in_flight.remove(&assignment.delivery.0);
        self.idle(assignment, 0, None);
    }

    fn fly(&mut self, outgoing: Box<Outgoing>) {
        let (boot, now, told) = (self.process.boot, self.now, self.process.told);
        let Outgoing { row, read_in, call, .. } = &*outgoing;
        let schedule = self.schedule_now();
        // A call is under way since it was noted: a hold of the same transaction comes too late.
        let told = told - u64::from(call.is_some());
        let send = Send { row, read_in: *read_in, boot, now, schedule, told, call: call.as_ref() };
        self.watch.sends(send, &self.file);
        let flight = self.count;
        let reason = "no answer in time".to_owned();
        let mut outcome = Outcome::Unreachable { cause: Cause::Timeout, reason };
        let began_offline = self.plan.is_offline(now);
        let mut timeout = self.file.subs[&row.sub].timeout;
        if outgoing.assignment.is_short && timeout > FIRST_TRY {
            timeout = FIRST_TRY;
        }
        let mut wait = timeout;
        if began_offline {
            let reason = "no route to host".to_owned();
            outcome = Outcome::Unreachable { cause: Cause::NoConnection, reason };
            wait = self.dice.pick(&[1, 10, 10 * SECOND]).min(timeout);
        }
        self.flights
            .insert(flight, Flight { boot, outgoing, started: now, began_offline, outcome });
        if !began_offline {
            let way = self.dice.between(1, 40);
            self.at(now + way, Event::Arrive(flight));
        }
        self.after(wait, Step::Answer(flight));
    }

    /// The endpoint decides. Its answer is worth nothing to a run of the process that is over.
    fn arrive(&mut self, id: u64) {
        let (now, heal_at) = (self.now, self.plan.heal_at);
        let Some(flight) = self.flights.get(&id) else { return };
        let Outgoing { assignment, row, call, .. } = &*flight.outgoing;
        let Assignment { delivery, subscription, .. } = *assignment;
        let (boot, row, call) = (flight.boot, row.clone(), call.clone());
        let endpoint = &mut self.endpoints[usize::try_from(subscription.0 - 1).unwrap()];
        let manner = endpoint.manner(delivery.0, now, heal_at);
        let answered = |status, retry_after| Outcome::Answered {
            status,
            retry_after,
            custom_data: None,
            excerpt: String::new(),
        };
        let is_taken = matches!(manner, Manner::Takes(_) | Manner::LosesAnswer);
        if let Some(call) = call.filter(|_| is_taken || manner == Manner::Hangs) {
            self.watch.accepts(&call, &row);
        }
        let is_confirmed = self.file.subs[&row.sub].rules.confirm_within.is_some();
        if is_taken && is_confirmed {
            self.works_on(&row);
        }
        let (wait, outcome) = match manner {
            Manner::Takes(wait) => (wait, answered(200, None)),
            Manner::Answers(status, asked) => {
                let wall = self.clock.wall();
                let asked = asked.and_then(|secs| retry_after(&secs.to_string(), wall));
                (self.dice.between(1, 50), answered(status, asked))
            }
            Manner::Refuses | Manner::Unreachable | Manner::LosesAnswer => {
                let reason = format!("{manner:?}");
                let cause = match manner {
                    Manner::Refuses => Cause::Refused,
                    Manner::Unreachable => Cause::NoConnection,
                    _ => Cause::Broken,
                };
                (self.dice.between(1, 50), Outcome::Unreachable { cause, reason })
            }
            Manner::Hangs => return,
        };
        self.note(|| format!("flight {id}: {outcome:?}"));
        let flight = self.flights.get_mut(&id).unwrap();
        let mut timeout = self.plan.subs[usize::try_from(subscription.0 - 1).unwrap()].timeout;
        if flight.outgoing.assignment.is_short && timeout > FIRST_TRY {
            timeout = FIRST_TRY;
        }
        // An answer does not come over a line that is down.
        let is_lost = self.plan.is_offline(now) || self.plan.is_offline(now + wait);
        if now + wait < flight.started + timeout && !is_lost {
            flight.outcome = outcome;
            self.at(now + wait, Event::Step(boot, Step::Answer(id)));
        }
    }

    /// The target works on what it has accepted, and says what became of it, or forgets to.
    fn works_on(&mut self, row: &Row) {
        let within = self.file.subs[&row.sub].rules.confirm_within.unwrap_or_default();
        let within = i64::try_from(within.as_millis()).unwrap();
        let reason = || "it is wrong".to_owned();
        let outcome = match self.dice.below(if self.is_healed() { 1 } else { 10 }) {
            0..=5 => LeaseOutcome::Done,
            6 | 7 => LeaseOutcome::Failed { reason: reason(), wait: None, counted: true },
            8 if self.dice.one_in(3) => LeaseOutcome::Refused { reason: reason() },
            _ => return,
        };
        let token = (row.run_no, row.attempts + 1);
        let token = self.dice.one_in(2).then_some(token);
        let most = if self.is_healed() { within / 2 } else { 2 * within };
        let at = self.now + self.dice.spread(1, most);
        let confirmation = Confirmation { delivery: row.seq, token, outcome };
        self.confirmations.push(Asked { confirmation, is_answered: false, early: 0 });
        self.at(at, Event::Confirm(self.confirmations.len() - 1));
    }

    fn answer(&mut self, id: u64) {
        // The other one of the answer and the time limit was first.
        let Some(flight) = self.flights.remove(&id) else { return };
        let Flight { outgoing, started, outcome, boot, began_offline } = flight;
        let Outgoing { assignment, row, call, .. } = *outgoing;
        let Assignment { delivery, subscription, is_probe, is_short } = assignment;
        let is_short = is_short && self.file.subs[&subscription.0].timeout > FIRST_TRY;
        let latency = Duration::from_millis((self.now - started).unsigned_abs());
        let is_cut = is_short && is_cut(latency, &outcome);
        let is_offline = began_offline && self.plan.is_offline(self.now);
        self.watch.answered(delivery.0, boot, &outcome, is_offline || is_cut, self.now);
        let sub = &self.file.subs[&subscription.0];
        let timeout = Duration::from_millis(sub.timeout.unsigned_abs());
        let rules = sub.rules.of_event(row.max_attempts);
        let is_offline = !is_cut && self.note_line(started, &outcome);
        let is_inconclusive =
            (is_cut && !self.has(Bug::CutCounts)) || (is_offline && !self.has(Bug::OfflineCounts));
        let class = ClassTable::default().classify(&outcome);
        let (now, at) = (self.clock.now(), self.clock.wall());
        let attempt = Attempt {
            n: row.attempts + 1,
            started_at: at,
            finished_at: at,
            url: "https://example.com/".to_owned(),
            class,
            counted: false,
            http_status: outcome.status(),
            latency_ms: 1,
            failed_reason: (!class.is_success()).then(|| "it failed".to_owned()),
            method: outcome.was_sent().then(|| "POST".to_owned()),
            ..Attempt::default()
        };
        let report = AttemptReport {
            code: outcome.code(),
            retry_after: outcome.retry_after().filter(|_| !self.has(Bug::RetryAfterIgnored)),
            rules,
            jitter: Jitter::new(&self.jitter),
            is_probe,
            is_inconclusive,
            order: AttemptOrder { is_call: call.is_some(), ..AttemptOrder::default() },
            ..AttemptReport::new(delivery, subscription, row.run_no, attempt, now)
        };
        // The outcome is handed in before the deliverer says that it is idle.
        self.after(0, Step::HandIn(Arc::new(report), call));
        self.idle(assignment, self.now - started, Some((timeout, class)));
    }

    fn says(&mut self, input: Input) {
        self.process.inputs.push(input);
        self.turn_soon();
    }

    fn idle(
        &mut self,
        assignment: Assignment,
        took: Ms,
        attempt: Option<(Duration, AttemptClass)>,
    ) {
        let (limit, class) = attempt.unzip();
        let latency = Duration::from_millis(took.unsigned_abs());
        let subscription = assignment.subscription;
        let wait = 1 + self.dice.below(4);
        self.after(wait, Step::Idle(Input::Finished { subscription, latency, limit, class }));
    }
}

/// Of waits that have ended, nobody learns but their own subscriptions.
fn drop_rings(done: &[Done], effects: &mut Effects) {
    let ended = |done: &Done| match done {
        Done::Ended(ended) => ended.iter().map(|before| before.subscription).collect(),
        _ => Vec::new(),
    };
    let own: Vec<SubscriptionSeq> = done.iter().flat_map(ended).collect();
    effects.rang.retain(|sub| own.is_empty() || own.contains(sub));
}

/// As `scheduler::pace`.
fn pace(sub: &Subscription) -> Pace {
    match (sub.failing_since, sub.last_success_at) {
        (Some(_), _) => Pace::Hangs,
        (None, Some(_)) => Pace::Prompt,
        (None, None) => Pace::Unknown,
    }
}
