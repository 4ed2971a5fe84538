//! What the service manager is told of a running Oncebox: that it is ready, that it is alive, that it
//! ends.
//!
//! *Ready* is said when a write has been committed and every thread that others depend on has shown that
//! it comes round; *alive* when they have all shown it again since the last time. A thread that hangs
//! therefore ends in a restart, and not in a service that looks well and does nothing.

use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};

use crate::app::Appliance;
use crate::store::error::Result;
use crate::store::stats;
use crate::store::writer::Queue;
use crate::sys::systemd::Notifier;

/// How long to wait before a write that was refused is tried again.
const WRITE_AGAIN: Duration = Duration::from_secs(1);

/// How much longer the manager waits for the start after such a refusal: a restart would not help.
const PATIENCE: Duration = Duration::from_mins(1);
/// How often the sentence for people is looked at: it says what `/readyz` would.
const STATUS_EVERY: Duration = Duration::from_secs(5);

/// Tells the service manager. To be looked at often: it never blocks.
#[derive(Debug)]
pub struct Supervision {
    notifier: Notifier,
    /// How often the manager wants to hear that we live: half of what it tolerates.
    every: Option<Duration>,
    stage: Stage,
    next: Duration,
    /// The sentence for people, as it was last said, and when it is looked at again.
    said: String,
    next_status: Duration,
}

#[derive(Debug)]
enum Stage {
    /// Left when a write is committed and every pulse was felt.
    Starting {
        /// The outcome of the write that is under way.
        written: Option<Receiver<Result<()>>>,
        committed: bool,
    },
    /// Left when a pulse is missed.
    Alive,
    /// Left when all pulses are back. The manager, hearing nothing, may end the process before that.
    Stuck,
}

impl Supervision {
    /// Asks for the first signs of life. `tolerated` is the longest silence the manager bears.
    pub fn new(appliance: &Appliance, notifier: Notifier, tolerated: Option<Duration>) -> Self {
        appliance.ask_heartbeat();
        let stage = Stage::Starting { written: None, committed: false };
        let every = tolerated.map(|span| span.div_f64(2.0));
        let (said, next_status) = (String::new(), Duration::ZERO);
        Self { notifier, every, stage, next: Duration::ZERO, said, next_status }
    }

    /// Says what there is to say by now.
    pub fn look(&mut self, appliance: &Appliance, now: Duration) {
        match &mut self.stage {
            Stage::Starting { written, committed } => {
                let outcome = written.as_ref().and_then(|written| written.try_recv().ok());
                match outcome {
                    Some(Ok(())) => *committed = true,
                    Some(Err(error)) => {
                        tracing::error!(%error, "not ready: the database cannot be written");
                        let status =
                            format!("Not ready: the database cannot be written ({error}).");
                        self.notifier.extend_start(PATIENCE, &status);
                        *written = None;
                        self.next = now.saturating_add(WRITE_AGAIN);
                    }
                    None => (),
                }
                if *committed && appliance.missing_heartbeats().is_empty() {
                    self.begin(appliance, now);
                } else if written.is_none() && now >= self.next {
                    *written = Some(probe(appliance));
                }
            }
            Stage::Alive => {
                self.say_status(appliance, now);
                self.watch(appliance, now);
            }
            Stage::Stuck => self.watch(appliance, now),
        }
    }

    /// Says how it is where that has changed.
    fn say_status(&mut self, appliance: &Appliance, now: Duration) {
        if !self.notifier.is_heard() || now < self.next_status {
            return;
        }
        self.next_status = now.saturating_add(STATUS_EVERY);
        let status = status(appliance);
        if status != self.said {
            self.notifier.status(&status);
            self.said = status;
        }
    }

    /// The settings are being read again. Ends with [`Supervision::reloaded`].
    pub fn reloading(&self, monotonic: Duration) {
        self.notifier.reloading(monotonic);
    }

    /// The settings have been read again.
    pub fn reloaded(&self, appliance: &Appliance) {
        self.notifier.ready(&status(appliance));
    }

    /// The service is asked to end.
    pub fn stopping(&self) {
        self.notifier.stopping("Stopping: what is under way is finished first.");
    }

    /// Whether the manager was told that the service is ready.
    pub fn is_ready(&self) -> bool {
        !matches!(self.stage, Stage::Starting { .. })
    }

    fn begin(&mut self, appliance: &Appliance, now: Duration) {
        self.said = status(appliance);
        self.notifier.ready(&self.said);
        self.next_status = now.saturating_add(STATUS_EVERY);
        tracing::info!(address = %appliance.address(), "ready");
        self.stage = Stage::Alive;
        self.say_alive(appliance, now);
    }

    fn watch(&mut self, appliance: &Appliance, now: Duration) {
        let Some(every) = self.every.filter(|_| now >= self.next) else { return };
        let missing = appliance.missing_heartbeats();
        match (missing.is_empty(), &self.stage) {
            (true, Stage::Stuck) => {
                tracing::info!("every thread comes round again");
                self.stage = Stage::Alive;
                self.said.clear();
                self.next_status = now;
                self.say_alive(appliance, now);
            }
            (true, _) => self.say_alive(appliance, now),
            // Half of what is left of the silence is waited out before it is called a failure.
            (false, Stage::Alive) if now >= self.next.saturating_add(every.div_f64(2.0)) => {
                let threads = missing.join(", ");
                tracing::error!(
                    threads,
                    "a thread shows no sign of life; the service manager is not told that all is well"
                );
                self.notifier.status(&format!("Not well: no sign of life from {threads}."));
                self.stage = Stage::Stuck;
            }
            (false, _) => (),
        }
    }

    /// Says that all is well, and asks for the signs by which to say it the next time.
    fn say_alive(&mut self, appliance: &Appliance, now: Duration) {
        if let Some(every) = self.every {
            self.notifier.alive();
            self.next = now.saturating_add(every);
            appliance.ask_heartbeat();
        }
    }
}

fn status(appliance: &Appliance) -> String {
    if let Some(why) = appliance.not_ready() {
        return format!("Not ready: {why}");
    }
    let (api, intake) = (appliance.address(), appliance.intake_address());
    if intake == api {
        return format!("Ready, listening on {api}.");
    }
    format!("Ready, listening on {api}, for webhooks on {intake}.")
}

/// A write like any other; its outcome comes when it is committed.
fn probe(appliance: &Appliance) -> Receiver<Result<()>> {
    let (tell, answer) = bounded(1);
    let writer = appliance.store().writer();
    writer.submit(Queue::Accept, stats::probe, move |outcome| drop(tell.send(outcome)));
    answer
}
