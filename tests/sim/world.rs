//! A simulated world: one process with its threads, its file, its endpoints and the people around it, all in one queue of
//! events. The dispatcher's decisions and the judgement of attempts are the real ones.
//!
//! Where threads of the process could overtake each other, chance says who is first. A kill may come before any step.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use oncebox::base::clock::{Clock, ManualTime, Timestamp};
use oncebox::base::id::{DeliverySeq, Draw, SubscriptionSeq};
use oncebox::model::delivery::{Jitter, retry_after};
use oncebox::model::failure::Verdict;
use oncebox::model::hold::{Gate, Hold, HoldReason};
use oncebox::model::outcome::{Cause, ClassTable, Outcome};
use oncebox::model::rate::Rate;
use oncebox::pipeline::clock_watch::ClockWatch;
use oncebox::pipeline::scheduler::decisions::{Assignment, Command, Input, Limits, Machine, Pace};
use oncebox::store::tx::Settled;

use crate::bug::Bug;
use crate::dice::{Dice, Ms, SECOND};
use crate::endpoint::{Endpoint, Manner};
use crate::file::{Deed, Effects, File, Report, Row, Sub};
use crate::plan::{PATIENCE, Plan, Wish};
use crate::watch::{Send, Watch};

/// Wall time at the beginning.
const START: Ms = 1_800_000_000_000;
/// Events of one world at most: more means that something goes round in circles.
const MAX_EVENTS: u64 = 400_000;
/// The cap of a subscription that does not say.
const CAP: u32 = 8;
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
    Tell(Told),
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
}

#[derive(Debug)]
struct Batch {
    jobs: Vec<Job>,
    fails: bool,
}

/// A request under way.
#[derive(Clone, Debug)]
struct Flight {
    boot: u32,
    assignment: Assignment,
    run_no: u32,
    started: Ms,
    began_offline: bool,
    outcome: Outcome,
}

/// What a run of the process has in memory.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each true or not")]
struct Process {
    boot: u32,
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
    line: Line,
    /// Turns in a row that nobody asked for, and since when.
    idle_turns: (u32, Ms),
}

/// As `pipeline::line::Line`.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    is_down: bool,
    answered: Option<Ms>,
    down: Option<Ms>,
    probed: Option<(Ms, bool)>,
}

impl Process {
    fn new(boot: u32, clock: Clock, deliverers: usize, commits: u64) -> Self {
        Self {
            boot,
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
            line: Line::default(),
            idle_turns: (0, 0),
        }
    }
}

/// Randomness for the jitter.
#[derive(Debug)]
struct JitterDraw(std::sync::Mutex<Dice>);

impl Draw for JitterDraw {
    fn fill(&self, into: &mut [u8]) {
        let mut dice = self.0.lock().unwrap();
        for byte in into {
            *byte = dice.draw().to_le_bytes()[0];
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
    endpoints: Vec<Endpoint>,
    flights: BTreeMap<u64, Flight>,
    acknowledged: Vec<bool>,
    process: Process,
    is_up: bool,
    watch: Watch,
    trace: Option<Vec<String>>,
}

impl World {
    pub(crate) fn new(seed: u32, bug: Option<Bug>, is_traced: bool) -> Self {
        let plan = Plan::draw(seed);
        let time = ManualTime::at(Timestamp::from_ms(START));
        let clock = Clock::from_source(time.clone());
        let subs = plan.subs.iter().map(|sub| (sub.seq, sub.clone())).collect();
        let mut world = Self {
            bug,
            dice: Dice::new(seed, "world"),
            jitter: JitterDraw(std::sync::Mutex::new(Dice::new(seed, "jitter"))),
            time,
            now: 0,
            queue: BTreeMap::new(),
            count: 0,
            steps: 0,
            file: File { subs, bug, ..File::default() },
            endpoints: plan.endpoints.clone(),
            flights: BTreeMap::new(),
            acknowledged: vec![false; plan.wishes.len()],
            process: Process::new(0, clock, plan.deliverers, 0),
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
            row.is_open() && row.lane.is_none_or(|lane| self.file.next_in(lane).is_some())
        };
        self.acknowledged.iter().all(|is| *is) && !self.file.rows.iter().any(goes_on)
    }

    fn stuck(&self) -> String {
        let open: Vec<_> = self.file.rows.iter().filter(|row| row.is_open()).collect();
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
            Event::Step(_, step) => self.step(step),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Turn => self.turn(),
            Step::Write => self.write(),
            Step::Commit => self.commit(),
            Step::Tell(told) => self.tell(told),
            Step::Take(assignment) => self.take(assignment),
            Step::Answer(flight) => self.answer(flight),
            Step::HandIn(report) => {
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
        self.process = Process::new(boot, clock, self.plan.deliverers, self.file.commits);
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
        let wait = self.dice.spread(100, 20 * SECOND);
        self.at(self.now + wait, Event::Boot);
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
                if let Input::Finished { subscription, .. } = &input {
                    let own = self.process.started.entry(*subscription).or_default();
                    *own = own.saturating_sub(1);
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
        self.soon(Step::Tell(told));
    }

    fn carry_out(&mut self, job: Job, told: &mut Told) {
        match job {
            Job::Settle(report) => {
                let verdict = self.file.settle(&report, &mut told.effects);
                self.settled(&report, &verdict);
            }
            Job::Line(is_down) => {
                let (now, at) = (self.schedule_now(), self.process.clock.wall().ms());
                self.file.line(is_down, now, at, &mut told.effects);
                self.process.line.is_down &= is_down;
            }
            Job::RestartFailing => {
                let at = self.process.clock.wall().ms();
                self.file.restart_failing(None, at);
            }
            Job::EndHolds(now) => self.file.end_over(now, &mut told.effects),
            Job::Wish(n, now) => {
                match self.plan.wishes[n].1.clone() {
                    Wish::Publish(spec) => self.file.publish(n, &spec, now, &mut told.effects),
                    Wish::Act(deed) => self.act(deed, now, told),
                }
                told.acknowledged.push(n);
            }
            Job::Clamp(sub, handed_in) => {
                // What is settled in the same transaction may be younger than the job.
                let is_old = self.has(Bug::ClampWithOldTime);
                let now = if is_old { handed_in } else { self.schedule_now() };
                self.file.clamp(sub, now, &mut told.effects);
                self.file.clamp_holds(now, &mut told.effects);
            }
        }
    }

    fn act(&mut self, deed: Deed, now: Ms, told: &mut Told) {
        if let Deed::Retry(delivery) = deed {
            self.watch.is_wanted(delivery);
        }
        let at = self.process.clock.wall().ms();
        self.file.act(deed, now, at, &mut told.effects);
    }

    fn settled(&mut self, report: &Report, verdict: &Verdict) {
        let ends = |hold: &&Hold| hold.probe_at.is_some() || hold.reason == HoldReason::Rejecting;
        let stands = self.file.subs[&report.sub].holds.iter().find(ends);
        if let Some(hold) = stands.filter(|_| report.class.is_success()) {
            self.watch.fail(format!("a success has not ended {hold:?}"));
        }
        let row = self.file.row(report.delivery).unwrap();
        self.watch.settled(report, verdict, row, self.now);
    }

    fn tell(&mut self, told: Told) {
        let Told { effects, acknowledged, refused, commit } = told;
        let Effects { rang, gates, settled, subscriptions_changed } = effects;
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
                Job::Line(false) => self.upkeep_within(SECOND),
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
        self.process.upkeep.push(Job::EndHolds(self.schedule_now()));
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
        let row = self.file.row(delivery.0).filter(|row| row.is_open()).cloned();
        let is_held = sub.holds.iter().any(|hold| hold.reason.is_by_a_person());
        let Some(row) = row.filter(|_| !is_held) else {
            let next_due = Some(self.process.clock.now());
            self.says(Input::Settled(Settled { delivery, subscription, next_due }));
            return self.idle(assignment, 0, None);
        };
        let (boot, now, told) = (self.process.boot, self.now, self.process.told);
        let schedule = self.schedule_now();
        self.watch.sends(Send { row: &row, boot, now, schedule, told }, &self.file);
        let flight = self.count;
        let reason = "no answer in time".to_owned();
        let outcome = Outcome::Unreachable { cause: Cause::Timeout, reason };
        let began_offline = self.plan.is_offline(now);
        let run_no = row.run_no;
        let flown = Flight { boot, assignment, run_no, started: now, began_offline, outcome };
        self.flights.insert(flight, flown);
        let way = self.dice.between(1, 40);
        if began_offline {
            let reason = "no route to host".to_owned();
            let outcome = Outcome::Unreachable { cause: Cause::NoConnection, reason };
            self.flights.get_mut(&flight).unwrap().outcome = outcome;
            let wait = self.dice.pick(&[1, 10, 10 * SECOND]).min(sub.timeout);
            return self.after(wait, Step::Answer(flight));
        }
        self.at(now + way, Event::Arrive(flight));
        self.after(sub.timeout, Step::Answer(flight));
    }

    /// The endpoint decides. Its answer is worth nothing to a run of the process that is over.
    fn arrive(&mut self, id: u64) {
        let (now, heal_at) = (self.now, self.plan.heal_at);
        let Some(flight) = self.flights.get(&id) else { return };
        let Assignment { delivery, subscription, .. } = flight.assignment;
        let boot = flight.boot;
        let endpoint = &mut self.endpoints[usize::try_from(subscription.0 - 1).unwrap()];
        let manner = endpoint.manner(delivery.0, now, heal_at);
        let answered = |status, retry_after| Outcome::Answered {
            status,
            retry_after,
            custom_data: None,
            excerpt: String::new(),
        };
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

    fn answer(&mut self, id: u64) {
        // The other one of the answer and the time limit was first.
        let Some(flight) = self.flights.remove(&id) else { return };
        let Flight { assignment, run_no, started, outcome, boot, began_offline } = flight;
        let Assignment { delivery, subscription, is_probe } = assignment;
        let is_offline = began_offline && self.plan.is_offline(self.now);
        self.watch.answered(delivery.0, boot, &outcome, is_offline, self.now);
        let sub = &self.file.subs[&subscription.0];
        let timeout = Duration::from_millis(sub.timeout.unsigned_abs());
        let row = self.file.row(delivery.0).unwrap();
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
            now: self.schedule_now(),
            at: self.process.clock.wall().ms(),
        };
        // The outcome is handed in before the deliverer says that it is idle.
        self.after(0, Step::HandIn(report));
        self.idle(assignment, self.now - started, Some(timeout));
    }

    fn says(&mut self, input: Input) {
        self.process.inputs.push(input);
        self.turn_soon();
    }

    fn idle(&mut self, assignment: Assignment, took: Ms, limit: Option<Duration>) {
        let latency = Duration::from_millis(took.unsigned_abs());
        let subscription = assignment.subscription;
        let wait = 1 + self.dice.below(4);
        self.after(wait, Step::Idle(Input::Finished { subscription, latency, limit }));
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
