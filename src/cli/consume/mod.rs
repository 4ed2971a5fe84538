//! `oncebox consume`: runs a command for each event of a pull subscription.
//!
//! One thread leases events, starts and watches commands, extends leases and reports results.
//! Not here: how a command is run (`sys::command`).

pub(super) mod lease;
mod task;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::base::clock::{Clock, span};
use crate::base::stop::Stop;
use crate::cli::consume::lease::{Consumer, LeasedEvent, NextEvents};
use crate::cli::consume::task::{Outcome, Task};
use crate::cli::prelude::*;
use crate::sys::command::{self, Running};
use crate::sys::host::stop_flag;

/// How long the service may hold a request for events. A signal takes effect when the request ends.
const WAIT: Duration = Duration::from_secs(2);
/// How often the service is asked for more events while commands run.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// Wait before the next request to a busy or unreachable service.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long the last results are retried before `consume` ends.
const MAX_FLUSH: Duration = Duration::from_secs(15);

#[derive(Debug, Args)]
#[command(after_help = "\
The command reads the payload on stdin; the other fields of the event are in its environment:
ONCEBOX_WEBHOOK_ID (the same on every attempt: give it to your guard), ONCEBOX_EVENT_TYPE, ONCEBOX_EVENT_ID,
ONCEBOX_DELIVERY, ONCEBOX_ATTEMPT, ONCEBOX_AGGREGATE_TYPE, ONCEBOX_AGGREGATE_ID, ONCEBOX_IDEMPOTENCY_KEY,
ONCEBOX_CONTENT_TYPE, TRACEPARENT. CREDENTIALS_DIRECTORY and other ONCEBOX_… variables are removed, because they
lead to Oncebox's own secrets.

Its exit code is the result:
  0   done
  75  try again later, because it cannot work now, such as without its database: not counted as a failure, and the
      subscription is held until a probe succeeds
  65  never: a dead letter
  any other, a signal, or the timeout: a failed attempt, tried again by the subscription's schedule

When it ends, its background processes are killed. On SIGTERM, running commands finish and no others start.

  oncebox subscription create warehouse --pull --event-type 'order.*'
  oncebox consume warehouse --parallel 4 -- /usr/local/bin/ship-order")]
pub(super) struct Consume {
    /// The pull subscription
    name: String,
    /// Commands that run at the same time
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=100))]
    parallel: u16,
    /// Time limit of a command; then it is killed with every process that it started
    #[arg(long, default_value = "5min", value_name = "SPAN", value_parser = timeout)]
    timeout: Duration,
    /// Delay after exit code 75 until the event comes again [default: the subscription's schedule]
    #[arg(long, value_name = "SPAN", value_parser = input::span)]
    delay: Option<String>,
    /// Process the events that are due now, then end; exit code 1 if any failed
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

/// A run of `oncebox consume`.
struct Work<'a> {
    consumer: Consumer<'a>,
    asked: &'a Consume,
    clock: Clock,
    lease: String,
    tasks: Vec<Task>,
    /// Results that the service has not accepted yet, each with its verb.
    unsent: Vec<(&'static str, Value)>,
    done: u64,
    failed: u64,
    /// Remarks that were printed since the last event, so that each is printed once.
    remarks: BTreeSet<String>,
}

/// Parses `--timeout`. Zero is refused: every event would fail and become a dead letter.
fn timeout(text: &str) -> Result<Duration, String> {
    match span(text)? {
        Duration::ZERO => Err("the timeout must be above zero, such as 30s".to_owned()),
        span => Ok(span),
    }
}

impl Consume {
    pub(super) fn run(&self, global: &GlobalArgs) -> Result<(), Failure> {
        let remote = self.connect.open(global)?;
        let subscription =
            remote.get(&format!("/v1/subscriptions/{}", percent_encoded(&self.name)))?;
        if text(&subscription, "target") != "pull" {
            let why =
                format!("{} is not a pull subscription: its events are sent to its url", self.name);
            return Err(Failure::new(exit::CONFLICT, why)
                .and("Make one with: oncebox subscription create NAME --pull"));
        }
        let lease = subscription.pointer("/policy/lease").and_then(Value::as_str).unwrap_or("60s");
        let stopped = stop_flag().map_err(Failure::failed)?;
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
            let done = work.done;
            let failed = work.failed;
            return Err(Failure::failed(format!("{failed} failed, {done} done")));
        }
        Ok(())
    }
}

impl Work<'_> {
    fn run(&mut self, stopped: &AtomicBool) -> Result<(), Failure> {
        let is_stopped = || stopped.load(Ordering::Relaxed);
        let mut exhausted = false;
        let mut asked_at = None;
        loop {
            // Results are sent before events are requested. Otherwise an event whose lease ended while the service
            // was unreachable would be leased again, although its command is done.
            self.send_results()?;
            let now = self.clock.monotonic();
            let may_ask = asked_at.is_none_or(|at| now.saturating_sub(at) >= ASK_EVERY);
            let free = usize::from(self.asked.parallel).saturating_sub(self.tasks.len());
            let may_ask = may_ask || self.tasks.is_empty();
            if !is_stopped() && !exhausted && free > 0 && may_ask && self.unsent.is_empty() {
                asked_at = Some(now);
                let begun = self.lease(free, stopped)?;
                // A full answer means that more may be due: ask again at once.
                asked_at = asked_at.filter(|_| begun < free);
                exhausted = self.asked.once && begun == 0;
            }
            if self.tasks.is_empty() && (is_stopped() || exhausted) {
                return Ok(());
            }
            self.watch()?;
        }
    }

    /// Leases events and starts their commands. Returns how many.
    fn lease(&mut self, free: usize, stopped: &AtomicBool) -> Result<usize, Failure> {
        let wait = if self.tasks.is_empty() && !self.asked.once { WAIT } else { Duration::ZERO };
        match self.consumer.next(free, wait)? {
            NextEvents::Events(events) => {
                self.remarks.clear();
                let count = events.len();
                let mut begun = Ok(());
                for event in events {
                    // When one command cannot start, the other events go back at once, for other consumers.
                    if begun.is_err() || stopped.load(Ordering::Relaxed) {
                        self.hand_back(&event);
                    } else {
                        begun = self.begin(event);
                    }
                }
                begun.map(|()| count)
            }
            NextEvents::Held(reason) => {
                self.remark(format!("no events: the subscription is {reason}"));
                if self.tasks.is_empty() && !self.asked.once {
                    Stop::new().wait(RETRY_AFTER);
                }
                Ok(0)
            }
            NextEvents::Later(failure) if self.asked.once => Err(failure),
            NextEvents::Later(failure) => {
                self.remark(format!("{}; trying again", failure.message));
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

    fn hand_back(&mut self, event: &LeasedEvent) {
        let mut item = event.reference();
        item.insert("delay".to_owned(), "0s".into());
        item.insert("counted".to_owned(), false.into());
        item.insert("reason".to_owned(), "the consumer is stopping".into());
        self.unsent.push(("nack", Value::Object(item)));
    }

    fn begin(&mut self, event: LeasedEvent) -> Result<(), Failure> {
        // Its lease ended and this consumer got it again while the command still runs: that command goes on.
        let of = |task: &&mut Task| task.event.field("delivery") == event.field("delivery");
        if let Some(task) = self.tasks.iter_mut().find(of) {
            task.continue_as(event);
            return Ok(());
        }
        let Consume { command, timeout, envelope, .. } = self.asked;
        // Three extensions within one lease, so that a single failed one does not lose it.
        let extend_every = humantime::parse_duration(&self.lease).unwrap_or(WAIT) / 3;
        match Task::begin(event, command, *timeout, *envelope, extend_every, &self.clock) {
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

    /// Waits for the commands, takes the results of those that have ended, and extends the leases of the others.
    fn watch(&mut self) -> Result<(), Failure> {
        if self.tasks.is_empty() {
            return Ok(());
        }
        let running: Vec<&Running> = self.tasks.iter().map(|task| &task.running).collect();
        command::wait(&running, ASK_EVERY);
        let mut still = Vec::new();
        let mut taken = Ok(());
        for mut task in std::mem::take(&mut self.tasks) {
            match task.poll() {
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
        let (verb, item) = outcome.report(&task.event, self.asked.delay.as_deref());
        self.unsent.push((verb, item));
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
        let delivery = event.field("delivery");
        let kind = event.field("event_type");
        let result = outcome.result();
        let detail = outcome.detail();
        let took = outcome.took();
        let detail = if detail.is_empty() { detail } else { format!(" ({detail})") };
        out::line(format_args!("{delivery} {kind}: {result}{detail}, {} ms", took.as_millis()))
    }

    fn extend(&mut self) {
        let due: Vec<Value> = self.tasks.iter_mut().filter_map(Task::due_extension).collect();
        if due.is_empty() {
            return;
        }
        let lease = self.lease.clone();
        let answers = match self.consumer.settle("extend", &due, Some(lease.as_str())) {
            Ok(answers) => answers,
            // The next extension comes before the lease ends. If the lease ends after all, the result is still sent.
            Err(failure) => return self.remark(format!("{}; trying again", failure.message)),
        };
        // 500 means that the row is damaged: the command need not stop for that.
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

    /// Sends the results. Those that the service cannot take now are sent again later.
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
                        let delivery = text(refused, "delivery");
                        let why = text(refused, "detail");
                        out::note(format_args!(
                            "oncebox: the service refused the result of {delivery}: {why}"
                        ));
                    }
                }
                Err(failure) if [exit::UNREACHABLE, exit::TEMPORARY].contains(&failure.code) => {
                    self.remark(format!(
                        "{}; the results are kept and sent again",
                        failure.message
                    ));
                    if self.tasks.is_empty() {
                        Stop::new().wait(RETRY_AFTER);
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Kills the running commands and returns their events, uncounted, so that they come again at once.
    fn abandon(&mut self) {
        for mut task in std::mem::take(&mut self.tasks) {
            match task.poll() {
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
                let why = format!(
                    "the results of {count} events could not be sent: these events come again"
                );
                return Err(Failure::temporary(why));
            }
        }
        Ok(())
    }
}
