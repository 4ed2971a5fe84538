//! Whether a consumer's guard holds: its command is run with events that come again, at the same time, out of
//! order, and is killed with -9 at any moment, until it has acknowledged each of them. Then its effects are counted.
//!
//! The command gets what `oncebox consume` gives it: the payload on its input, what else is known of the event in its
//! environment; 0 means done, 65 never, all else again. Not here: how it is started and killed ([`crate::sys::command`]).

mod count;
mod plan;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::id::Draw;
use crate::config::own_variables;
use crate::sys::command::{Ended, How, Program, Running, wait};

pub use count::{Counted, Guard};
use plan::Plan;

/// Processes of the consumer at the same time.
const PARALLEL: usize = 4;
/// An event whose runs were killed so often is left to finish.
const MAX_KILLS: u32 = 3;
/// An event that failed so often in a row, without being killed, will not be done.
const MAX_FAILURES: u32 = 20;
/// The exit code that says that an event will never be done.
const NEVER: i32 = 65;
/// Of what a run prints, as much is kept to be shown.
const MAX_SAID_BYTES: usize = 4 * 1024;
/// Of what is counted, as much is read.
const MAX_EFFECTS_BYTES: usize = 256 * 1024 * 1024;
/// How long one waits at most before looking at a running process again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is tried, and how hard.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many events.
    pub events: u32,
    /// Decides their order, and which run is killed when.
    pub seed: u32,
    /// The consumer's command and its arguments.
    pub command: Vec<OsString>,
    /// A shell command that prints the id of each event that took effect, in their order, one a line.
    pub count: Option<String>,
    /// What its effects are judged by.
    pub guard: Guard,
    /// How long one run may take.
    pub timeout: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How often the command was run.
    pub runs: u32,
    /// How many runs were killed.
    pub kills: u32,
    /// How many runs were given an event that had been given before.
    pub duplicates: u32,
    /// How many of these while another run of the same event was going on.
    pub concurrent: u32,
    /// How many runs were given an event after a newer one about the same entity.
    pub overtaken: u32,
    /// Events that were not acknowledged, with what the last run said.
    pub refused: Vec<(String, String)>,
    /// What was counted, where something was.
    pub counted: Option<Counted>,
}

impl Report {
    /// Whether the guard holds, as far as was counted.
    pub fn is_good(&self) -> bool {
        let right = |counted: &Counted| {
            counted.lost.is_empty() && counted.doubled.is_empty() && counted.stale.is_empty()
        };
        self.refused.is_empty() && self.counted.as_ref().is_none_or(right)
    }
}

/// Why nothing can be said about the consumer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command cannot be run.
    #[error("{command} cannot be run: {source}")]
    Command {
        /// Which.
        command: String,
        /// Why.
        source: std::io::Error,
    },
    /// What counts has failed.
    #[error("the count failed ({how}): {said}")]
    Count {
        /// How it ended.
        how: String,
        /// What it said.
        said: String,
    },
}

/// How far a trial has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Events that are acknowledged, of all.
    pub acknowledged: usize,
    /// Runs so far.
    pub runs: u32,
}

/// Tries a consumer; `tell` hears how far it has come, a few times a second.
///
/// # Errors
/// When its command, or the one that counts, cannot be run.
pub fn run(
    options: &Options,
    clock: &Clock,
    draw: &dyn Draw,
    tell: &mut dyn FnMut(Progress),
) -> Result<Report, Error> {
    let mut random = [0; 5];
    draw.fill(&mut random);
    let name = data_encoding::BASE32_NOPAD.encode(&random).to_ascii_lowercase();
    let plan = Plan::new(options.events, options.seed, &name);
    let standings = vec![GuardCheck::default(); plan.events.len()];
    let waiting = plan.order.iter().copied().collect();
    let mut trial = Trial {
        options,
        clock,
        plan,
        standings,
        waiting,
        running: Vec::new(),
        usual: None,
        report: Report::default(),
    };
    trial.carry_out(tell)?;
    let Trial { plan, standings, mut report, .. } = trial;
    let mut acknowledged = Vec::new();
    for (event, standing) in plan.events.iter().zip(standings) {
        if standing.acknowledged {
            acknowledged.push(event);
        } else {
            report.refused.push((event.id.clone(), standing.said));
        }
    }
    if let Some(count) = &options.count {
        let effects = effects(count, options.timeout, clock)?;
        report.counted = Some(count::count(&acknowledged, &effects, options.guard));
    }
    Ok(report)
}

/// What the counting command prints.
fn effects(count: &str, timeout: Duration, clock: &Clock) -> Result<String, Error> {
    let program = Program {
        argv: ["sh", "-c", count].map(OsString::from).to_vec(),
        without: own_variables(),
        environment: Vec::new(),
        input: Vec::new(),
        timeout: timeout.max(Duration::from_mins(1)),
        output_most: MAX_EFFECTS_BYTES,
    };
    let ended = program
        .run(clock)
        .map_err(|source| Error::Command { command: format!("sh -c {count:?}"), source })?;
    match ended.how {
        How::Exited(0) => Ok(String::from_utf8_lossy(&ended.stdout).into_owned()),
        _ => Err(Error::Count { how: how(ended.how), said: said(&ended) }),
    }
}

/// How far an event has come.
#[derive(Clone, Debug, Default)]
struct GuardCheck {
    runs: u32,
    kills: u32,
    failures: u32,
    acknowledged: bool,
    /// How the last run ended that failed by itself.
    said: String,
}

/// A run that is going on.
struct Going {
    event: usize,
    running: Running,
    kill_at: Option<Duration>,
}

struct Trial<'a> {
    options: &'a Options,
    clock: &'a Clock,
    plan: Plan,
    standings: Vec<GuardCheck>,
    waiting: VecDeque<usize>,
    running: Vec<Going>,
    /// How long a run takes that is not killed.
    usual: Option<Duration>,
    report: Report,
}

impl Trial<'_> {
    fn carry_out(&mut self, tell: &mut dyn FnMut(Progress)) -> Result<(), Error> {
        loop {
            while self.running.len() < PARALLEL
                && let Some(event) = self.waiting.pop_front()
            {
                self.begin(event)?;
            }
            if self.running.is_empty() {
                return Ok(());
            }
            self.rest();
            let acknowledged = self.standings.iter().filter(|event| event.acknowledged).count();
            tell(Progress { acknowledged, runs: self.report.runs });
            for going in std::mem::take(&mut self.running) {
                self.look(going)?;
            }
        }
    }

    fn begin(&mut self, place: usize) -> Result<(), Error> {
        let (Some(event), Some(standing)) =
            (self.plan.events.get(place), self.standings.get_mut(place))
        else {
            return Ok(());
        };
        let is_spared = standing.kills >= MAX_KILLS;
        standing.runs = standing.runs.saturating_add(1);
        let overtaken = self.plan.events.iter().zip(&self.standings).any(|(other, standing)| {
            other.entity == event.entity && other.version > event.version && standing.runs > 0
        });
        let attempt = self.standings.get(place).map_or(1, |standing| standing.runs);
        let Options { command, timeout, .. } = self.options;
        let program = Program {
            argv: command.clone(),
            without: own_variables(),
            environment: event.environment(attempt),
            input: event.input(),
            timeout: *timeout,
            output_most: MAX_SAID_BYTES,
        };
        let running = program.start(self.clock).map_err(|source| {
            let command = command.first().map(|name| name.to_string_lossy().into_owned());
            Error::Command { command: command.unwrap_or_default(), source }
        })?;
        let is_concurrent = self.running.iter().any(|going| going.event == place);
        let Report { runs, duplicates, concurrent, overtaken: late, .. } = &mut self.report;
        let counts = [(runs, true), (duplicates, attempt > 1), (concurrent, is_concurrent)];
        for (count, applies) in counts.into_iter().chain([(late, overtaken)]) {
            *count = count.saturating_add(u32::from(applies));
        }
        let after = self.usual.filter(|_| !is_spared).and_then(|usual| self.plan.kill_after(usual));
        let kill_at = after.map(|after| self.clock.monotonic().saturating_add(after));
        self.running.push(Going { event: place, running, kill_at });
        Ok(())
    }

    /// Waits until a run has ended or is to be killed.
    fn rest(&self) {
        let now = self.clock.monotonic();
        let next = self.running.iter().filter_map(|going| going.kill_at).min();
        let most = next.map_or(LOOK_EVERY, |at| at.saturating_sub(now).min(LOOK_EVERY));
        if !most.is_zero() {
            let running: Vec<&Running> = self.running.iter().map(|going| &going.running).collect();
            wait(&running, most);
        }
    }

    fn look(&mut self, mut going: Going) -> Result<(), Error> {
        let ended = going.running.look().map_err(|source| Error::Command {
            command: "a run that was begun".to_owned(),
            source,
        })?;
        match ended {
            Some(ended) => self.settle(going.event, &ended),
            None if going.kill_at.is_some_and(|at| at <= self.clock.monotonic()) => {
                drop(going.running);
                self.report.kills = self.report.kills.saturating_add(1);
                if let Some(standing) = self.standings.get_mut(going.event) {
                    standing.kills = standing.kills.saturating_add(1);
                }
                self.again(going.event);
            }
            None => self.running.push(going),
        }
        Ok(())
    }

    fn settle(&mut self, place: usize, ended: &Ended) {
        let usual = self.usual.get_or_insert(ended.took);
        *usual = (usual.saturating_mul(7).saturating_add(ended.took)) / 8;
        let Some(standing) = self.standings.get_mut(place) else { return };
        if ended.how == How::Exited(0) {
            standing.acknowledged = true;
            standing.failures = 0;
            return;
        }
        let never = ended.how == How::Exited(NEVER);
        standing.failures = if never { MAX_FAILURES } else { standing.failures.saturating_add(1) };
        standing.said = format!("{}: {}", how(ended.how), said(ended));
        if standing.failures < MAX_FAILURES {
            self.again(place);
        }
    }

    /// What is not acknowledged comes again.
    fn again(&mut self, place: usize) {
        let is_done = self.standings.get(place).is_none_or(|standing| standing.acknowledged);
        if !is_done {
            let at = self.plan.place_again(self.waiting.len());
            self.waiting.insert(at, place);
        }
    }
}

fn how(how: How) -> String {
    match how {
        How::Exited(code) => format!("exit code {code}"),
        How::Killed(signal) => format!("signal {signal}"),
        How::TimedOut => "its time was over".to_owned(),
    }
}

fn said(ended: &Ended) -> String {
    let text = if ended.stderr.is_empty() { &ended.stdout } else { &ended.stderr };
    String::from_utf8_lossy(text).trim().to_owned()
}
