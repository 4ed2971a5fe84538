//! Tests whether a consumer's guard holds. Its command is run with events that are repeated, concurrent and out of
//! order, and is killed with -9 at random moments, until it has acknowledged every event. Then its effects are counted.
//!
//! The command is run as `oncebox consume` runs it: the payload is on its input, the event's other fields are in its
//! environment. Exit code 0 means done, 65 means never, any other means try again.
//! A consumer of a topic reads it until it is killed ([`topic`]).
//! Not here: starting and killing processes ([`crate::sys::command`]).

mod plan;
mod topic;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::id::Draw;
use crate::config::own_variables;
use crate::sys::command::{Ended, How, Program, Running, wait};

use plan::Plan;
pub use plan::{EffectCounts, Guard};

/// Most processes of the consumer at the same time.
const PARALLEL: usize = 4;
/// After so many kills, an event's next run is left to finish.
const MAX_KILLS: u32 = 3;
/// After so many failures, not counting kills, an event is given up.
const MAX_FAILURES: u32 = 20;
/// The exit code by which the consumer refuses an event for good.
const NEVER: i32 = 65;
/// How much of a run's output is kept for the report.
const MAX_OUTPUT_BYTES: usize = 4 * 1024;
/// How much of the counting command's output is read.
const MAX_EFFECTS_BYTES: usize = 256 * 1024 * 1024;
/// The longest wait between two looks at the running processes.
const MAX_POLL_WAIT: Duration = Duration::from_secs(1);

/// The settings of a conformance run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of events.
    pub events: u32,
    /// Seed of the events' order and of the kills.
    pub seed: u32,
    /// The consumer's command and its arguments.
    pub command: Vec<OsString>,
    /// Shell command that prints the event id of each effect, one a line, in the order of the effects.
    pub count: Option<String>,
    /// The guard that the effects are checked against.
    pub guard: Guard,
    /// Time limit of one run.
    pub timeout: Duration,
    /// Whether the command reads a topic until it is killed, in place of one event a run. It is counted then.
    pub reads_topic: bool,
}

/// The result of a conformance run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many times the command was run.
    pub runs: u32,
    /// How many runs were killed.
    pub kills: u32,
    /// How many runs got an event that an earlier run had got.
    pub duplicates: u32,
    /// How many of the duplicates ran while another run of their event was still going on.
    pub concurrent: u32,
    /// How many runs got an event after a newer event of its entity.
    pub overtaken: u32,
    /// Ids of the events that were not acknowledged, each with the last run's output.
    pub refused: Vec<(String, String)>,
    /// The counted effects; `None` without a counting command.
    pub counted: Option<EffectCounts>,
}

impl Report {
    /// Whether every event was acknowledged and no counted effect is wrong.
    pub fn is_good(&self) -> bool {
        let right = |counted: &EffectCounts| {
            counted.lost.is_empty() && counted.doubled.is_empty() && counted.stale.is_empty()
        };
        self.refused.is_empty() && self.counted.as_ref().is_none_or(right)
    }
}

/// Why the run has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A command cannot be run.
    #[error("{command} cannot be run: {source}")]
    Command {
        /// The command.
        command: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The topic cannot be made.
    #[error("{0}")]
    Cluster(String),
    /// The counting command failed.
    #[error("the count failed ({how}): {output}")]
    Count {
        /// Its exit code or signal.
        how: String,
        /// Its output.
        output: String,
    },
}

/// Progress of a conformance run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Number of acknowledged events.
    pub acknowledged: usize,
    /// Number of runs so far.
    pub runs: u32,
}

/// Runs the consumer until every event is acknowledged or given up, then counts its effects. `tell` is called with the
/// progress at least once a second.
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
    if options.reads_topic {
        return topic::run(options, clock, &plan, tell);
    }
    let progress = vec![EventProgress::default(); plan.events.len()];
    let waiting = plan.order.iter().copied().collect();
    let mut test = Test {
        options,
        clock,
        plan,
        progress,
        waiting,
        running: Vec::new(),
        usual: None,
        report: Report::default(),
    };
    test.run(tell)?;
    let Test { plan, progress, mut report, .. } = test;
    let mut acknowledged = Vec::new();
    for (event, progress) in plan.events.iter().zip(progress) {
        if progress.acknowledged {
            acknowledged.push(event);
        } else {
            report.refused.push((event.id.clone(), progress.last_failure));
        }
    }
    if let Some(count) = &options.count {
        let effects = effects(count, options.timeout, clock)?;
        report.counted = Some(plan::count(&acknowledged, &effects, options.guard));
    }
    Ok(report)
}

/// The output of the counting command.
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
        _ => Err(Error::Count { how: ended.how.to_string(), output: output(&ended) }),
    }
}

/// What has happened to an event so far.
#[derive(Clone, Debug, Default)]
struct EventProgress {
    runs: u32,
    kills: u32,
    failures: u32,
    acknowledged: bool,
    /// Exit code and output of its last failed run.
    last_failure: String,
}

/// A process of the consumer.
struct ActiveRun {
    event: usize,
    running: Running,
    kill_at: Option<Duration>,
}

struct Test<'a> {
    options: &'a Options,
    clock: &'a Clock,
    plan: Plan,
    progress: Vec<EventProgress>,
    waiting: VecDeque<usize>,
    running: Vec<ActiveRun>,
    /// Moving average of how long an unkilled run takes.
    usual: Option<Duration>,
    report: Report,
}

impl Test<'_> {
    fn run(&mut self, tell: &mut dyn FnMut(Progress)) -> Result<(), Error> {
        loop {
            while self.running.len() < PARALLEL
                && let Some(event) = self.waiting.pop_front()
            {
                self.begin(event)?;
            }
            if self.running.is_empty() {
                return Ok(());
            }
            self.wait();
            let acknowledged = self.progress.iter().filter(|event| event.acknowledged).count();
            tell(Progress { acknowledged, runs: self.report.runs });
            for run in std::mem::take(&mut self.running) {
                self.poll(run)?;
            }
        }
    }

    /// Starts a run of an event, and plans its kill.
    fn begin(&mut self, index: usize) -> Result<(), Error> {
        let Some(event) = self.plan.events.get(index) else { return Ok(()) };
        let Some(progress) = self.progress.get_mut(index) else { return Ok(()) };
        progress.runs = progress.runs.saturating_add(1);
        let attempt = progress.runs;
        let is_spared = progress.kills >= MAX_KILLS;
        let overtaken = self.plan.events.iter().zip(&self.progress).any(|(other, progress)| {
            other.entity == event.entity && other.version > event.version && progress.runs > 0
        });
        let Options { command, timeout, .. } = self.options;
        let program = Program {
            argv: command.clone(),
            without: own_variables(),
            environment: event.environment(attempt),
            input: event.input(),
            timeout: *timeout,
            output_most: MAX_OUTPUT_BYTES,
        };
        let running = program.start(self.clock).map_err(|source| {
            let command = command.first().map(|name| name.to_string_lossy().into_owned());
            Error::Command { command: command.unwrap_or_default(), source }
        })?;
        let is_concurrent = self.running.iter().any(|run| run.event == index);
        let report = &mut self.report;
        for (count, applies) in [
            (&mut report.runs, true),
            (&mut report.duplicates, attempt > 1),
            (&mut report.concurrent, is_concurrent),
            (&mut report.overtaken, overtaken),
        ] {
            *count = count.saturating_add(u32::from(applies));
        }
        let after = self.usual.filter(|_| !is_spared).and_then(|usual| self.plan.kill_after(usual));
        let kill_at = after.map(|after| self.clock.monotonic().saturating_add(after));
        self.running.push(ActiveRun { event: index, running, kill_at });
        Ok(())
    }

    /// Waits until a run has ended or is due to be killed.
    fn wait(&self) {
        let now = self.clock.monotonic();
        let next = self.running.iter().filter_map(|run| run.kill_at).min();
        let max = next.map_or(MAX_POLL_WAIT, |at| at.saturating_sub(now).min(MAX_POLL_WAIT));
        if !max.is_zero() {
            let running: Vec<&Running> = self.running.iter().map(|run| &run.running).collect();
            wait(&running, max);
        }
    }

    /// Settles an ended run, or kills an overdue run.
    fn poll(&mut self, mut run: ActiveRun) -> Result<(), Error> {
        let ended = run.running.look().map_err(|source| Error::Command {
            command: "a running consumer".to_owned(),
            source,
        })?;
        match ended {
            Some(ended) => self.settle(run.event, &ended),
            None if run.kill_at.is_some_and(|at| at <= self.clock.monotonic()) => {
                drop(run.running);
                self.report.kills = self.report.kills.saturating_add(1);
                if let Some(progress) = self.progress.get_mut(run.event) {
                    progress.kills = progress.kills.saturating_add(1);
                }
                self.requeue(run.event);
            }
            None => self.running.push(run),
        }
        Ok(())
    }

    /// Records the result of a run.
    fn settle(&mut self, index: usize, ended: &Ended) {
        let usual = self.usual.get_or_insert(ended.took);
        *usual = (usual.saturating_mul(7).saturating_add(ended.took)) / 8;
        let Some(progress) = self.progress.get_mut(index) else { return };
        if ended.how == How::Exited(0) {
            progress.acknowledged = true;
            progress.failures = 0;
            return;
        }
        let never = ended.how == How::Exited(NEVER);
        progress.failures = if never { MAX_FAILURES } else { progress.failures.saturating_add(1) };
        progress.last_failure = format!("{}: {}", ended.how, output(ended));
        if progress.failures < MAX_FAILURES {
            self.requeue(index);
        }
    }

    /// Puts an event back into the queue unless it is acknowledged.
    fn requeue(&mut self, index: usize) {
        let is_done = self.progress.get(index).is_none_or(|progress| progress.acknowledged);
        if !is_done {
            let at = self.plan.requeue_position(self.waiting.len());
            self.waiting.insert(at, index);
        }
    }
}

/// What a run wrote to stderr, or to stdout if stderr is empty.
fn output(ended: &Ended) -> String {
    let text = if ended.stderr.is_empty() { &ended.stdout } else { &ended.stderr };
    String::from_utf8_lossy(text).trim().to_owned()
}
