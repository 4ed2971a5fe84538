//! A simulated world: one process with its threads, its file, its endpoints and the people around it, all in one queue of
//! events. The dispatcher's decisions and the judgement of attempts are the real ones.
//!
//! Where threads of the process could overtake each other, chance says who is first. A kill may come before any step.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use oncebox::base::clock::{Clock, ManualTime, Timestamp};
use oncebox::base::id::{DeliverySeq, SubscriptionSeq};
use oncebox::model::delivery::{Jitter, State, retry_after};
use oncebox::model::external_call::NewCall;
use oncebox::model::failure::Verdict;
use oncebox::model::hold::{Gate, Hold, HoldReason};
use oncebox::model::lease::LeaseOutcome;
use oncebox::model::outcome::{AttemptClass, Cause, ClassTable, Outcome};
use oncebox::model::rate::Rate;
use oncebox::pipeline::scheduler::decisions::{Assignment, Command, Input, Limits, Machine, Pace};
use oncebox::pipeline::upkeep::site_watch::ClockWatch;
use oncebox::store::tx::Settled;

use crate::bug::Bug;
use crate::calls::external_call;
use crate::confirm::{Confirmation, Confirmed};
use crate::dice::{Dice, JitterDraw, MINUTE, Ms, SECOND};
use crate::endpoint::{Endpoint, Manner};
use crate::file::{Deed, Effects, File, Report, Row, Sub};
use crate::plan::{PATIENCE, Plan, Wish};
use crate::real::Real;
use crate::watch::{Send, Watch};

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

/// Something that happens.
#[derive(Clone, Debug)]
enum Event {
    /// A wish is put forward.
    Ask(usize),
    /// Somebody sets the wall clock.
    SetClock(Ms),
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
#[derive(Clone, Debug)]
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
    HandIn(Report),
    /// The deliverer is idle.
    Idle(Input),
    Upkeep,
    /// What is not done by now after a stop is given up.
    GraceOver,
}

/// What is told after a transaction.
#[derive(Clone, Debug)]
struct Told {
    effects: Effects,
    acknowledged: Vec<usize>,
    refused: Vec<Job>,
    commit: u64,
    /// External calls that are noted, and whether each may be made.
    begun: Vec<(Box<Outgoing>, bool)>,
    /// Confirmations and their answers.
    confirmed: Vec<(usize, Confirmed)>,
}

/// A request that a deliverer has read and not sent yet.
#[derive(Clone, Debug)]
struct Outgoing {
    assignment: Assignment,
    row: Row,
    /// The latest commit when it was read.
    read_in: u64,
    sub: Sub,
    call: Option<NewCall>,
}

/// A job for the writer.
#[derive(Clone, Debug)]
enum Job {
    Settle(Report),
    Wish(usize, Ms),
    /// Whether the site is offline now.
    Line(bool),
    EndHolds(Ms),
    RestartFailing,
    Clamp(i64, Ms),
    /// An external call is about to be made.
    Begin(Box<Outgoing>, Ms),
    /// A confirmation, and whether an attempt was in flight when it came.
    Confirm(usize, bool),
    /// Waits for a confirmation whose time was over then.
    EndWaits(Vec<i64>, Ms),
}

#[derive(Debug)]
struct Batch {
    jobs: Vec<Job>,
    fails: bool,
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
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each true or not")]
struct Process {
    boot: u32,
    started_at: Ms,
    clock: Clock,
    clock_watch: ClockWatch,
    machine: Machine,
    known: BTreeMap<SubscriptionSeq, Limits>,
    inputs: Vec<Input>,
    rang: BTreeSet<SubscriptionSeq>,
    subscriptions_changed: bool,
    next_turn: Option<Ms>,
    stalled_until: Ms,
    /// Subscriptions as deliverers have them in memory.
    destinations: BTreeMap<SubscriptionSeq, Sub>,
    settle: Vec<Job>,
    accept: Vec<Job>,
    upkeep: Vec<Job>,
    writing: Option<Batch>,
    writer_is_busy: bool,
    unsettled: Vec<Report>,
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

impl Process {
    fn new((boot, started_at): (u32, Ms), clock: Clock, deliverers: usize, commits: u64) -> Self {
        Self {
            boot,
            started_at,
            clock,
            clock_watch: ClockWatch::default(),
            machine: Machine::new(deliverers),
            known: BTreeMap::new(),
            inputs: Vec::new(),
            rang: BTreeSet::new(),
            subscriptions_changed: true,
            next_turn: None,
            stalled_until: 0,
            destinations: BTreeMap::new(),
            settle: Vec::new(),
            accept: Vec::new(),
            upkeep: Vec::new(),
            writing: None,
            writer_is_busy: false,
            unsettled: Vec::new(),
            next_upkeep: None,
            are_due_times_suspect: true,
            stopping: false,
            drained: false,
            told: commits,
            fed: 0,
            started: BTreeMap::new(),
            unsettled_starts: BTreeMap::new(),
            was_offline: false,
            in_flight: BTreeSet::new(),
            line: Line::default(),
            idle_turns: (0, 0),
        }
    }
}

/// What a world came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ended {
    pub(crate) violation: Option<String>,
    pub(crate) events: u64,
    pub(crate) trace: Vec<String>,
}

pub(crate) struct World {
    plan: Plan,
    bug: Option<Bug>,
    dice: Dice,
    jitter: JitterDraw,
    time: Arc<ManualTime>,
    now: Ms,
    queue: BTreeMap<(Ms, u64), Event>,
    count: u64,
    steps: u64,
    file: File,
    /// A real file that does the same.
    real: Option<Real>,
    endpoints: Vec<Endpoint>,
    flights: BTreeMap<u64, Flight>,
    confirmations: Vec<Asked>,
    acknowledged: Vec<bool>,
    process: Process,
    is_up: bool,
    watch: Watch,
    trace: Option<Vec<String>>,
}

impl World {
    pub(crate) fn new(seed: u32, bug: Option<Bug>, is_traced: bool) -> Self {
        Self::of(seed, Plan::draw(seed), bug, is_traced)
    }

    /// One with a real file beside the simulated one.
    pub(crate) fn beside_a_file(seed: u32) -> Self {
        let plan = Plan::draw(seed).for_a_file();
        let real = Real::new(&plan.subs);
        Self { real: Some(real), ..Self::of(seed, plan, None, true) }
    }

    fn of(seed: u32, plan: Plan, bug: Option<Bug>, is_traced: bool) -> Self {
        let time = ManualTime::at(Timestamp::from_ms(START));
        let clock = Clock::from_source(time.clone());
        let subs = plan.subs.iter().map(|sub| (sub.seq, sub.clone())).collect();
        let mut world = Self {
            bug,
            dice: Dice::new(seed, "world"),
            jitter: JitterDraw::new(seed),
            time,
            now: 0,
            queue: BTreeMap::new(),
            count: 0,
            steps: 0,
            real: None,
            file: File { subs, bug, ..File::default() },
            endpoints: plan.endpoints.clone(),
            flights: BTreeMap::new(),
            confirmations: Vec::new(),
            acknowledged: vec![false; plan.wishes.len()],
            process: Process::new((0, 0), clock, plan.deliverers, 0),
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
        for (at, by) in world.plan.clock_sets.clone() {
            world.at(at, Event::SetClock(by));
        }
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
            let has_head = || row.lane.is_none_or(|lane| self.file.next_in(lane).is_some());
            row.state == State::Waiting || (row.is_standing() && has_head())
        };
        self.acknowledged.iter().all(|is| *is) && !self.file.rows.iter().any(goes_on)
    }

    fn stuck(&self) -> String {
        let open: Vec<_> = self.file.rows.iter().filter(|row| row.is_standing()).collect();
        let asked = self.acknowledged.iter().filter(|is| !**is).count();
        format!(
            "{asked} wishes are not acknowledged, {} deliveries are open; schedule time is {}; {open:?} {:?}",
            open.len(),
            self.process.clock.now().ms(),
            self.process.machine,
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
        self.process.clock.now().ms()
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
            Event::SetClock(by) => self.set_clock(by),
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
            Step::Commit => self.commit(),
            Step::Tell(told) => self.tell(*told),
            Step::Take(assignment) => self.take(assignment),
            Step::Answer(flight) => self.answer(flight),
            Step::HandIn(report) => {
                self.process.in_flight.remove(&report.delivery);
                self.process.settle.push(Job::Settle(report));
                self.wake_writer();
            }
            Step::Idle(input) => {
                self.process.inputs.push(input);
                self.turn_soon();
            }
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
        let now = self.schedule_now();
        self.process.accept.push(Job::Wish(n, now));
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
            self.process.accept.push(Job::Confirm(n, is_early));
            self.wake_writer();
        } else {
            let wait = self.dice.between(SECOND, 20 * SECOND);
            self.at(self.now + wait, Event::Confirm(n));
        }
    }

    fn set_clock(&mut self, by: Ms) {
        if self.is_healed() {
            return;
        }
        let wall = self.process.clock.wall().ms();
        self.time.set_wall(Timestamp::from_ms(wall + by));
        self.upkeep_within(SECOND);
    }

    // The process.

    fn boot(&mut self) {
        let boot = self.process.boot + 1;
        let clock = Clock::from_source(self.time.clone());
        self.process =
            Process::new((boot, self.now), clock, self.plan.deliverers, self.file.commits);
        self.process.line.is_down = self.file.offline.is_some();
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
        self.watch.killed();
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
        if std::mem::take(&mut self.process.subscriptions_changed) {
            let changes = self.changes();
            drained |= self.feed(changes);
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
        if let Some(until) = self.process.machine.sleep_until() {
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
        if is_asked || process.subscriptions_changed || self.now - since > SECOND {
            process.idle_turns = (0, self.now);
        } else {
            process.idle_turns = (count + 1, since);
        }
        if process.idle_turns.0 > 100 {
            self.watch.fail("the dispatcher looks 100 times a second for nothing".to_owned());
        }
    }

    fn feed(&mut self, mut inputs: Vec<Input>) -> bool {
        let now = self.process.clock.now();
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
                commands.extend(self.process.machine.step(now, input));
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
        let Assignment { delivery, subscription, is_probe } = assignment;
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
        let changed = self.file.subs[&subscription.0].held_in.max(self.file.offline_in);
        if changed <= self.process.fed {
            let (gate, now) = (self.file.gate(subscription.0), self.process.clock.now());
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
        let now = self.schedule_now();
        if self.fails(self.plan.failing_reads) {
            let next_due = Some(Timestamp::from_ms(now + SECOND));
            return Input::Fetched { subscription, rows: Vec::new(), more: false, next_due };
        }
        let rows = self.file.due(subscription.0, (now, limit), taken);
        let commits = self.file.commits;
        if let Some(real) = &self.real {
            let due: Vec<i64> = rows.iter().map(|(delivery, _)| delivery.0).collect();
            let simulated = (due, self.file.next_due(subscription.0, now));
            let found = real.due(subscription.0, (now, limit), taken);
            if found != simulated {
                self.watch.fail(format!("{found:?} is due in the real file, not {simulated:?}"));
            }
        }
        for (delivery, _) in &rows {
            self.watch.fetched(delivery.0, commits);
        }
        if self.process.writing.is_some() && self.dice.one_in(3) {
            self.commit_now();
        }
        let more = u32::try_from(rows.len()).unwrap() >= limit;
        let next_due = if more { None } else { self.file.next_due(subscription.0, now) };
        let next_due = next_due.map(Timestamp::from_ms);
        Input::Fetched { subscription, rows, more, next_due }
    }

    /// As `Dispatcher::changes`.
    fn changes(&mut self) -> Vec<Input> {
        let mut inputs = Vec::new();
        for sub in self.file.subs.values() {
            let subscription = SubscriptionSeq(sub.seq);
            let gate = self.file.gate(sub.seq);
            let is_probe = gate.is_probe() && !self.has(Bug::ProbeGateOpen);
            let limits = Limits {
                cap: sub.in_flight_max.unwrap_or(CAP),
                is_hard: sub.in_flight_max.is_some(),
                rate: sub.is_slow.then(|| Rate::parse("60/min").unwrap()),
                gate: if gate.is_probe() && !is_probe { Gate::Open } else { gate },
                has_funnels: sub.has_funnel,
                host: None,
            };
            if self.process.known.get(&subscription) != Some(&limits) {
                let (tenant, pace) = (sub.tenant.to_owned(), pace(sub));
                inputs.push(Input::SubscriptionChanged { subscription, limits, tenant, pace });
            }
            self.process.known.insert(subscription, limits);
        }
        let is_offline = self.file.offline.is_some();
        if std::mem::replace(&mut self.process.was_offline, is_offline) && !is_offline {
            inputs.insert(0, Input::LineIsBack);
        }
        inputs
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
        self.process.writing = Some(Batch { jobs, fails });
        let wait = if self.dice.one_in(20) {
            self.dice.spread(20, 3 * SECOND)
        } else {
            self.dice.between(1, 12)
        };
        self.after(wait, Step::Commit);
    }

    fn tells_too_early(&mut self, jobs: &[Job]) {
        for job in jobs {
            let Job::Settle(Report { delivery, sub, .. }) = job else { continue };
            let (delivery, subscription) = (DeliverySeq(*delivery), SubscriptionSeq(*sub));
            let settled = Settled { delivery, subscription, next_due: None };
            self.process.inputs.push(Input::Settled(settled));
        }
        self.turn_soon();
    }

    fn commit(&mut self) {
        if self.process.writing.is_some() {
            self.commit_now();
        }
    }

    fn commit_now(&mut self) {
        let Some(Batch { jobs, fails }) = self.process.writing.take() else { return };
        let mut told = Told {
            effects: Effects::default(),
            acknowledged: Vec::new(),
            refused: Vec::new(),
            commit: 0,
            begun: Vec::new(),
            confirmed: Vec::new(),
        };
        if fails {
            told.refused = jobs;
        } else {
            self.file.commits += 1;
            for job in jobs {
                self.carry_out(job, &mut told);
            }
        }
        told.commit = self.file.commits;
        told.effects.freed.iter().for_each(|delivery| self.watch.is_freed(*delivery));
        self.watch.looks_at(&self.file);
        let differs = self.real.as_ref().and_then(|real| real.differs(&self.file, &told.effects));
        if let Some(what) = differs {
            self.watch.fail(what);
        }
        self.soon(Step::Tell(Box::new(told)));
    }

    fn carry_out(&mut self, job: Job, told: &mut Told) {
        let (now, at) = (self.schedule_now(), self.process.clock.wall().ms());
        match job.clone() {
            Job::Settle(report) => {
                if let Some(real) = &self.real {
                    real.settle(&report, self.file.row(report.delivery).unwrap());
                }
                let verdict = self.file.settle(&report, &mut told.effects);
                self.settled(&report, &verdict);
            }
            Job::Line(is_down) => {
                self.real.iter().for_each(|real| real.line(is_down, (now, at)));
                self.file.line(is_down, now, at, &mut told.effects);
                self.process.line.is_down &= is_down;
            }
            Job::RestartFailing => {
                self.real.iter().for_each(|real| real.restart_failing(at));
                self.file.restart_failing(None, at);
            }
            Job::EndHolds(now) => {
                self.real.iter().for_each(|real| real.end_over(now, at));
                self.file.end_over(now, &mut told.effects);
            }
            Job::Wish(n, now) => {
                if self.grants(n, now, told) {
                    told.acknowledged.push(n);
                } else {
                    told.refused.push(job);
                }
            }
            Job::Clamp(sub, handed_in) => {
                // What is settled in the same transaction may be younger than the job.
                let now = if self.has(Bug::ClampWithOldTime) { handed_in } else { now };
                self.real.iter().for_each(|real| real.clamp(sub, now));
                self.file.clamp(sub, now, &mut told.effects);
                self.file.clamp_waits(now);
                self.file.clamp_holds(now, &mut told.effects);
            }
            Job::Begin(outgoing, now) => {
                let call = outgoing.call.as_ref().unwrap();
                let may_go = self.file.begin_call(call, now, &mut told.effects);
                if self.real.as_ref().is_some_and(|real| real.begin_call(call, now) != may_go) {
                    self.watch.fail(format!("only one file lets {call:?} be made"));
                }
                told.begun.push((outgoing, may_go));
            }
            Job::Confirm(n, is_early) => {
                let confirmed = self.stores(n, is_early, told);
                told.confirmed.push((n, confirmed));
            }
            Job::EndWaits(over, then) => {
                for delivery in over {
                    self.expires(delivery, then, told);
                }
            }
        }
    }

    /// Does what is asked; tells whether that is possible.
    fn grants(&mut self, n: usize, now: Ms, told: &mut Told) -> bool {
        match self.plan.wishes[n].1.clone() {
            Wish::Publish(spec) => {
                let is_new = !self.file.events.contains_key(&n);
                let is_stored = self.file.publish(n, &spec, now, &mut told.effects);
                if self.real.as_ref().is_some_and(|real| real.publish(n, &spec, now) != is_stored) {
                    self.watch.fail(format!("only one file stores event {n}"));
                }
                if is_stored && is_new && spec.earlier.is_none() {
                    self.watch.arrives(n, &self.file);
                }
                is_stored
            }
            Wish::Act(deed) => {
                if let Deed::Retry(delivery) | Deed::Replay(delivery) = deed {
                    self.watch.is_wanted(delivery);
                }
                let at = self.process.clock.wall().ms();
                let deed = self.file.resolved(deed);
                self.real.iter().for_each(|real| real.act(deed, (now, at)));
                self.file.act(deed, now, at, &mut told.effects);
                true
            }
        }
    }

    fn stores(&mut self, n: usize, is_early: bool, told: &mut Told) -> Confirmed {
        let confirmation = self.confirmations[n].confirmation.clone();
        let Confirmation { delivery, outcome, .. } = &confirmation;
        let before = self.file.row(*delivery).unwrap().clone();
        let times @ (seed, now, at) = self.times();
        let by = (&confirmation, is_early);
        let jitter = Jitter::new(&JitterDraw::new(seed));
        let confirmed = self.file.confirm(by, (jitter, now, at), &mut told.effects);
        if confirmed == Confirmed::Stored {
            self.watch.confirmed(&confirmation, &before);
            if let Some(real) = &self.real {
                real.end_wait((*delivery, outcome), &self.file.subs[&before.sub], None, times);
            }
        }
        confirmed
    }

    fn expires(&mut self, delivery: i64, then: Ms, told: &mut Told) {
        let before = self.file.row(delivery).unwrap().clone();
        let times @ (seed, now, at) = self.times();
        let jitter = Jitter::new(&JitterDraw::new(seed));
        if self.file.expire((delivery, then), (jitter, now, at), &mut told.effects) {
            self.watch.expired(&before);
        }
        if let Some(real) = &self.real {
            let reason = "not confirmed".to_owned();
            let outcome = LeaseOutcome::Failed { reason, wait: None, counted: true };
            let sub = &self.file.subs[&before.sub];
            real.end_wait((delivery, &outcome), sub, Some(then), times);
        }
    }

    /// What the storing of a confirmation needs: a seed for the jitter, schedule time and wall time.
    fn times(&mut self) -> (u32, Ms, Ms) {
        let seed = u32::try_from(self.dice.draw() >> 32).unwrap();
        (seed, self.schedule_now(), self.process.clock.wall().ms())
    }

    fn settled(&mut self, report: &Report, verdict: &Verdict) {
        let ends = |hold: &&Hold| hold.probe_at.is_some() || hold.reason == HoldReason::Rejecting;
        let stands = self.file.subs[&report.sub].holds.iter().find(ends);
        if let Some(hold) = stands.filter(|_| report.class.is_success()) {
            self.watch.fail(format!("a success has not ended {hold:?}"));
        }
        let row = self.file.row(report.delivery).unwrap();
        let content = self.file.events[&row.event].content;
        let call = external_call(&self.file.subs[&row.sub], row, content);
        if let Some(call) = call.filter(|_| report.call.is_some() && report.class.is_success()) {
            self.watch.accepted(&call);
        }
        self.watch.settled(report, verdict, row, self.now);
    }

    fn tell(&mut self, told: Told) {
        let Told { effects, acknowledged, refused, commit, begun, confirmed } = told;
        let Effects { rang, gates, settled, subscriptions_changed, freed: _ } = effects;
        if subscriptions_changed {
            self.process.destinations.clear();
        }
        self.process.told = commit;
        self.process.rang.extend(rang);
        let gates = gates.into_iter().filter(|_| !self.has(Bug::HoldNotTold));
        let is_open = self.has(Bug::ProbeGateOpen);
        for (subscription, gate) in gates.collect::<Vec<_>>() {
            let gate = if is_open && gate.is_probe() { Gate::Open } else { gate };
            self.process.inputs.push(Input::GateChanged { subscription, gate });
        }
        self.process.inputs.extend(settled.into_iter().map(Input::Settled));
        self.process.subscriptions_changed |= subscriptions_changed && !self.has(Bug::HoldNotTold);
        self.turn_soon();
        for n in acknowledged {
            self.acknowledged[n] = true;
        }
        for (n, confirmed) in confirmed {
            let asked = &mut self.confirmations[n];
            asked.is_answered |= confirmed != Confirmed::TooEarly;
            if !asked.is_answered {
                // As `Retry-After` says at first; an attempt that a kill has ended is not settled for long.
                let wait = SECOND << asked.early.min(12);
                asked.early += 1;
                self.at(self.now + wait, Event::Confirm(n));
            }
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
                Job::Settle(report) => {
                    self.process.unsettled.push(report);
                    self.upkeep_within(SECOND);
                }
                Job::Wish(n, _) => self.at(self.now + SECOND, Event::Ask(n)),
                // The next attempt that fails says it again.
                Job::Line(true) => self.process.line.is_down = false,
                Job::EndHolds(_) | Job::RestartFailing => {}
                Job::Confirm(n, _) => self.at(self.now + SECOND, Event::Confirm(n)),
                Job::Begin(outgoing, _) => {
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
        let ends = self.file.subs.values().flat_map(|sub| &sub.holds);
        if let Some(end) = ends.filter_map(|hold| hold.until).min() {
            let wait = (end.ms() - now).max(0) + self.dice.between(1, SECOND);
            self.upkeep_after(wait);
        }
        if let Some(end) = self.file.next_wait_over() {
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
        for report in std::mem::take(&mut self.process.unsettled) {
            self.process.settle.push(Job::Settle(report));
        }
        if self.process.clock_watch.look(&self.process.clock).is_some() {
            self.process.are_due_times_suspect = true;
            self.process.upkeep.push(Job::RestartFailing);
            self.watch.clock(self.now, self.schedule_now());
            self.turn_within(MAX_SLEEP);
        }
        if std::mem::take(&mut self.process.are_due_times_suspect) {
            let now = self.schedule_now();
            self.process.upkeep.extend(self.file.subs.keys().map(|sub| Job::Clamp(*sub, now)));
        }
        let now = self.schedule_now();
        self.process.upkeep.push(Job::EndHolds(now));
        let over = self.file.waits_over(now);
        if !over.is_empty() && self.now - self.process.started_at >= CONFIRM_GRACE {
            self.process.upkeep.push(Job::EndWaits(over, now));
        }
        if self.process.line.is_down && self.probe(self.now) {
            self.process.upkeep.push(Job::Line(false));
        }
        self.upkeep_for_holds();
        self.wake_writer();
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
            | Outcome::Unbuildable { .. }
            | Outcome::NoToken { .. }
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

    // The deliverers: the same order as `deliver::Deliver::tick`.

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
        let sub = kept.or_insert_with(|| file.subs[&subscription.0].clone()).clone();
        let is_first = |row: &&Row| row.is_open() && (row.head || self.has(Bug::HeadNotAsked));
        let row = self.file.row(delivery.0).filter(is_first).cloned();
        let is_held = sub.holds.iter().any(|hold| hold.reason.is_by_a_person());
        let Some(row) = row.filter(|_| !is_held) else {
            let next_due = Some(self.process.clock.now());
            self.says(Input::Settled(Settled { delivery, subscription, next_due }));
            return self.idle(assignment, 0, None);
        };
        self.process.in_flight.insert(row.seq);
        let call = external_call(&sub, &row, self.file.events[&row.event].content);
        let is_call = call.is_some();
        let read_in = self.file.commits;
        let outgoing = Box::new(Outgoing { assignment, row, read_in, sub, call });
        if is_call {
            let now = self.schedule_now();
            self.process.settle.push(Job::Begin(outgoing, now));
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
        let Outgoing { row, read_in, sub, call, .. } = &*outgoing;
        let schedule = self.schedule_now();
        // A call is under way since it was noted: a hold of the same transaction comes too late.
        let told = told - u64::from(call.is_some());
        let send = Send { row, read_in: *read_in, boot, now, schedule, told, call: call.as_ref() };
        self.watch.sends(send, &self.file);
        let flight = self.count;
        let reason = "no answer in time".to_owned();
        let mut outcome = Outcome::Unreachable { cause: Cause::Timeout, reason };
        let (began_offline, timeout) = (self.plan.is_offline(now), sub.timeout);
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
                let wall = self.process.clock.wall();
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
        let timeout = self.plan.subs[usize::try_from(subscription.0 - 1).unwrap()].timeout;
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
        let Assignment { delivery, subscription, is_probe } = assignment;
        let is_unknown = |outcome: &Outcome| {
            matches!(outcome, Outcome::Unreachable { cause: Cause::Timeout | Cause::Broken, .. })
        };
        let is_offline = began_offline && self.plan.is_offline(self.now);
        self.watch.answered(delivery.0, boot, &outcome, is_offline, self.now);
        let sub = &self.file.subs[&subscription.0];
        let timeout = Duration::from_millis(sub.timeout.unsigned_abs());
        let run_no = row.run_no;
        let mut rules = sub.rules.clone();
        let own = |most| rules.schedule.clone().with_max_attempts(most).ok();
        rules.schedule = row.max_attempts.and_then(own).unwrap_or(rules.schedule);
        let is_offline = self.note_line(started, &outcome) && !self.has(Bug::OfflineCounts);
        let class = ClassTable::default().classify(&outcome);
        let report = Report {
            delivery: delivery.0,
            sub: subscription.0,
            run_no,
            class,
            status: outcome.status(),
            retry_after: outcome.retry_after().filter(|_| !self.has(Bug::RetryAfterIgnored)),
            rules,
            jitter: Jitter::new(&self.jitter),
            is_probe,
            is_offline,
            call: call.map(|_| is_unknown(&outcome)),
            now: self.schedule_now(),
            at: self.process.clock.wall().ms(),
        };
        // The outcome is handed in before the deliverer says that it is idle.
        self.after(0, Step::HandIn(report));
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

/// As `scheduler::pace`.
fn pace(sub: &Sub) -> Pace {
    match (sub.failing_since, sub.last_success_at) {
        (Some(_), _) => Pace::Hangs,
        (None, Some(_)) => Pace::Prompt,
        (None, None) => Pace::Unknown,
    }
}
