//! `oncebox consume`: runs a command for each event of a pull subscription.
//!
//! One thread leases events, starts commands, watches them, extends their leases and reports their results. Not here:
//! how a command is run (`sys::command`).

pub(super) mod lease;
mod task;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::base::clock::Clock;
use crate::base::stop::Stop;
use crate::cli::consume::lease::{Consumer, Leased, Next};
use crate::cli::consume::task::{Outcome, Task};
use crate::cli::exit::{self, Failure};
use crate::cli::remote::{ConnectArgs, plain};
use crate::cli::shared::Shared;
use crate::cli::show::text;
use crate::cli::{input, out};
use crate::sys::command::{self, Running};

/// How long the service may hold a request for events: a signal is heeded after it.
const WAIT: Duration = Duration::from_secs(2);
/// How often it is asked for more while commands run.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// When a service that was busy or away is asked again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long an end waits for the service to take what came of the last commands.
const MAX_FLUSH: Duration = Duration::from_secs(15);

#[derive(Debug, Args)]
#[command(after_help = "\
The command reads the payload on stdin; the other fields of the event are in its environment:
ONCEBOX_WEBHOOK_ID (the same on every attempt: give it to your guard), ONCEBOX_EVENT_TYPE, ONCEBOX_EVENT_ID,
ONCEBOX_DELIVERY, ONCEBOX_ATTEMPT, ONCEBOX_AGGREGATE_TYPE, ONCEBOX_AGGREGATE_ID, ONCEBOX_IDEMPOTENCY_KEY,
ONCEBOX_CONTENT_TYPE, TRACEPARENT. Other variables ONCEBOX_… and CREDENTIALS_DIRECTORY are not handed on: they
lead to Oncebox's own secrets.

Its exit code says what came of it:
  0   done
  75  again later, and it does not count as a failure
  65  never: a dead letter
  any other, a signal, or the timeout: a failed attempt, tried again by the subscription's schedule

Whatever it leaves running is killed when it ends. SIGTERM: no more is begun, what runs is finished.

  oncebox subscription create warehouse --pull --event-type 'order.*'
  oncebox consume warehouse --parallel 4 -- /usr/local/bin/ship-order")]
pub(super) struct Consume {
    /// The pull subscription
    name: String,
    /// Commands at once
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=100))]
    parallel: u16,
    /// Time for one command; then it is killed with every process it started
    #[arg(long, default_value = "5min", value_name = "SPAN", value_parser = time_for_one)]
    timeout: Duration,
    /// When an event comes again whose command exited 75 [default: by the schedule]
    #[arg(long, value_name = "SPAN", value_parser = input::span)]
    delay: Option<String>,
    /// Only what is due now, then end; 1 if any failed
    #[arg(long)]
    once: bool,
    /// Give the command the whole event as JSON, the payload in base64, instead of the payload
    #[arg(long)]
    envelope: bool,
    #[command(flatten)]
    connect: ConnectArgs,
    /// The command and its arguments, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What is under way.
struct Work<'a> {
    consumer: Consumer<'a>,
    asked: &'a Consume,
    clock: Clock,
    lease: String,
    tasks: Vec<Task>,
    /// Verdicts that the service has not taken yet, with the verb they go by.
    unsent: Vec<(&'static str, Value)>,
    done: u64,
    failed: u64,
    /// What was said of why nothing comes, since something came, so that it is said once.
    remarks: BTreeSet<String>,
}

/// In no time nothing can be done: each event would be a failure, and in the end a dead letter.
fn time_for_one(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(span) if span.is_zero() => Err("a command needs some time, such as 30s".to_owned()),
        Ok(span) => Ok(span),
        Err(error) => Err(format!("give a span like 30s or 5min: {error}")),
    }
}

impl Consume {
    pub(super) fn run(&self, shared: &Shared) -> Result<(), Failure> {
        let remote = self.connect.open(shared)?;
        let subscription = remote.get(&format!("/v1/subscriptions/{}", plain(&self.name)))?;
        if text(&subscription, "target") != "pull" {
            let why =
                format!("{} is no pull subscription: its events are sent to its url", self.name);
            return Err(Failure::new(exit::CONFLICT, why)
                .and("Make one with: oncebox subscription create NAME --pull"));
        }
        let lease = subscription.pointer("/policy/lease").and_then(Value::as_str).unwrap_or("60s");
        let stopped = stopped()?;
        let mut work = Work {
            consumer: Consumer { remote: &remote, name: &self.name },
            asked: self,
            clock: Clock::machine(),
            lease: lease.to_owned(),
            tasks: Vec::new(),
            unsent: Vec::new(),
            done: 0,
            failed: 0,
            remarks: BTreeSet::new(),
        };
        if let Err(failure) = work.run(&stopped) {
            work.abandon();
            return Err(failure);
        }
        work.flush()?;
        if self.once && work.failed > 0 {
            let (done, failed) = (work.done, work.failed);
            return Err(Failure::failed(format!("{failed} failed, {done} done")));
        }
        Ok(())
    }
}

/// Set by SIGINT and SIGTERM.
pub(super) fn stopped() -> Result<Arc<AtomicBool>, Failure> {
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let registered = signal_hook::flag::register(signal, Arc::clone(&stopped));
        let _id = registered.map_err(Failure::failed)?;
    }
    Ok(stopped)
}

impl Work<'_> {
    fn run(&mut self, stopped: &AtomicBool) -> Result<(), Failure> {
        let is_stopped = || stopped.load(Ordering::Relaxed);
        let mut exhausted = false;
        let mut asked_at = None;
        loop {
            // What is known is said before anything is asked for: else an event whose lease ended while the service
            // was away would be given again, though its command has done its work.
            self.send_results()?;
            let now = self.clock.monotonic();
            let may_ask = asked_at.is_none_or(|at| now.saturating_sub(at) >= ASK_EVERY);
            let free = usize::from(self.asked.parallel).saturating_sub(self.tasks.len());
            let may_ask = may_ask || self.tasks.is_empty();
            if !is_stopped() && !exhausted && free > 0 && may_ask && self.unsent.is_empty() {
                asked_at = Some(now);
                let begun = self.lease(free, stopped)?;
                // Much may be due: it is asked for more at once.
                asked_at = asked_at.filter(|_| begun < free);
                exhausted = self.asked.once && begun == 0;
            }
            if self.tasks.is_empty() && (is_stopped() || exhausted) {
                return Ok(());
            }
            self.watch()?;
        }
    }

    /// Leases events and begins their commands; tells how many.
    fn lease(&mut self, free: usize, stopped: &AtomicBool) -> Result<usize, Failure> {
        let wait = if self.tasks.is_empty() && !self.asked.once { WAIT } else { Duration::ZERO };
        match self.consumer.next(free, wait)? {
            Next::Events(events) => {
                self.remarks.clear();
                let count = events.len();
                let mut begun = Ok(());
                for event in events {
                    // The others are not kept from everybody when one cannot be begun.
                    if begun.is_err() || stopped.load(Ordering::Relaxed) {
                        self.hand_back(&event);
                    } else {
                        begun = self.begin(event);
                    }
                }
                begun.map(|()| count)
            }
            Next::Held(reason) => {
                self.remark(format!("nothing is given: the subscription is {reason}"));
                if self.tasks.is_empty() && !self.asked.once {
                    Stop::new().wait(RETRY_AFTER);
                }
                Ok(0)
            }
            Next::Later(failure) if self.asked.once => Err(failure),
            Next::Later(failure) => {
                self.remark(format!("{}; it is asked again", failure.message));
                if self.tasks.is_empty() {
                    Stop::new().wait(RETRY_AFTER);
                }
                Ok(0)
            }
        }
    }

    fn remark(&mut self, remark: String) {
        if !self.remarks.contains(&remark) {
            out::note(format_args!("oncebox: {remark}"));
            self.remarks.insert(remark);
        }
    }

    fn hand_back(&mut self, event: &Leased) {
        let mut word = event.reference();
        word.insert("delay".to_owned(), "0s".into());
        word.insert("counted".to_owned(), false.into());
        word.insert("reason".to_owned(), "the consumer is stopping".into());
        self.unsent.push(("nack", Value::Object(word)));
    }

    fn begin(&mut self, event: Leased) -> Result<(), Failure> {
        // Its lease has ended, and we have it again while its command still runs: there is no need for another one.
        let of = |task: &&mut Task| task.event.field("delivery") == event.field("delivery");
        if let Some(task) = self.tasks.iter_mut().find(of) {
            task.continue_as(event);
            return Ok(());
        }
        let Consume { command, timeout, envelope, .. } = self.asked;
        // A lease that is short or long: it is extended thrice before it ends.
        let every = humantime::parse_duration(&self.lease).unwrap_or(WAIT) / 3;
        match Task::begin(event, (command, *timeout, *envelope), every, &self.clock) {
            Ok(task) => self.tasks.push(task),
            Err((event, error)) => {
                self.hand_back(&event);
                let command = command.first().map(|word| word.to_string_lossy().into_owned());
                let command = command.unwrap_or_default();
                return Err(Failure::input(format!("{command} cannot be run: {error}")));
            }
        }
        Ok(())
    }

    /// Waits for the commands, takes what came of those that have ended, and extends the others' leases.
    fn watch(&mut self) -> Result<(), Failure> {
        if self.tasks.is_empty() {
            return Ok(());
        }
        let running: Vec<&Running> = self.tasks.iter().map(|task| &task.running).collect();
        command::wait(&running, ASK_EVERY);
        let (mut still, mut taken) = (Vec::new(), Ok(()));
        for mut task in std::mem::take(&mut self.tasks) {
            match task.look() {
                None => still.push(task),
                Some(outcome) => {
                    let note = self.take(&task, &outcome);
                    taken = taken.and(note);
                }
            }
        }
        self.tasks = still;
        taken?;
        self.extend();
        Ok(())
    }

    fn take(&mut self, task: &Task, outcome: &Outcome) -> Result<(), Failure> {
        let (verb, word) = outcome.report(&task.event, self.asked.delay.as_deref());
        self.unsent.push((verb, word));
        if outcome.is_done() {
            self.done = self.done.saturating_add(1);
        } else {
            self.failed = self.failed.saturating_add(1);
        }
        outcome.print_output()?;
        let event = &task.event;
        if self.consumer.remote.json() {
            return out::json(&json!({
                "delivery": event.field("delivery"), "webhook_id": event.field("webhook_id"),
                "event_type": event.field("event_type"), "result": outcome.result(),
                "detail": outcome.detail(), "took_ms": outcome.took().as_millis(),
            }));
        }
        let (delivery, kind) = (event.field("delivery"), event.field("event_type"));
        let (result, detail, took) = (outcome.result(), outcome.detail(), outcome.took());
        let detail = if detail.is_empty() { detail } else { format!(" ({detail})") };
        out::line(format_args!("{delivery} {kind}: {result}{detail}, {} ms", took.as_millis()))
    }

    fn extend(&mut self) {
        let due: Vec<Value> = self.tasks.iter_mut().filter_map(Task::extension).collect();
        if due.is_empty() {
            return;
        }
        let lease = self.lease.clone();
        let answers = match self.consumer.settle("extend", &due, Some(("lease", &lease))) {
            Ok(answers) => answers,
            // It is tried again before the lease ends; should it end, what the command does is not lost.
            Err(failure) => return self.remark(format!("{}; it is tried again", failure.message)),
        };
        // 500 means that the row is damaged, which is no reason to stop the command.
        let is_lost = |one: &&Value| ["404", "409"].contains(&text(one, "status").as_str());
        for refused in answers.iter().filter(is_lost) {
            let delivery = text(refused, "delivery");
            out::note(format_args!(
                "oncebox: {delivery}: {}; its command is killed",
                text(refused, "detail")
            ));
            self.tasks.retain(|task| task.event.field("delivery") != delivery);
        }
    }

    /// Says what came of commands; what the service does not take now is said again.
    fn send_results(&mut self) -> Result<(), Failure> {
        for verb in ["ack", "nack"] {
            let words: Vec<Value> = self
                .unsent
                .iter()
                .filter(|(by, _)| *by == verb)
                .map(|(_, word)| word.clone())
                .collect();
            if words.is_empty() {
                continue;
            }
            match self.consumer.settle(verb, &words, None) {
                Ok(answers) => {
                    self.unsent.retain(|(by, _)| *by != verb);
                    for refused in answers.iter().filter(|one| text(one, "status") != "200") {
                        let (delivery, why) = (text(refused, "delivery"), text(refused, "detail"));
                        out::note(format_args!("oncebox: {delivery} is not taken: {why}"));
                    }
                }
                Err(failure) if [exit::UNREACHABLE, exit::TEMPORARY].contains(&failure.code) => {
                    self.remark(format!("{}; what came of commands is kept", failure.message));
                    if self.tasks.is_empty() {
                        Stop::new().wait(RETRY_AFTER);
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Kills what runs and hands the events back, uncounted, so that they come again at once.
    fn abandon(&mut self) {
        for mut task in std::mem::take(&mut self.tasks) {
            match task.look() {
                None => self.hand_back(&task.event),
                Some(outcome) => {
                    self.unsent.push(outcome.report(&task.event, self.asked.delay.as_deref()));
                }
            }
        }
        if let Err(failure) = self.flush() {
            self.remark(failure.message);
        }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let began = self.clock.monotonic();
        while !self.unsent.is_empty() {
            self.send_results()?;
            if self.clock.monotonic().saturating_sub(began) > MAX_FLUSH {
                let count = self.unsent.len();
                let why = format!("what came of {count} events could not be said: they come again");
                return Err(Failure::temporary(why));
            }
        }
        Ok(())
    }
}
