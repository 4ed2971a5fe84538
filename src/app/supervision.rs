//! Reports to the service manager that the service is ready, alive or stopping.
//!
//! *Ready* is reported when a write has been committed and the writer, the dispatcher and the listener have each answered
//! with a heartbeat; *alive* each time all have answered again. So a hanging thread leads to a restart of the
//! service.

use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};

use crate::app::Appliance;
use crate::store::error::Result;
use crate::store::stats;
use crate::store::writer::Queue;
use crate::sys::systemd::Notifier;

/// Wait before a failed write is repeated.
const WRITE_RETRY: Duration = Duration::from_secs(1);

/// How much longer the manager waits for the start after a failed write, because a restart would not help.
const START_EXTENSION: Duration = Duration::from_mins(1);
/// How often the status text is renewed; it says what `/readyz` would.
const STATUS_EVERY: Duration = Duration::from_secs(5);

/// Reports to the service manager. Its [`Supervision::check`] is called often and never blocks.
#[derive(Debug)]
pub struct Supervision {
    notifier: Notifier,
    /// How often *alive* is reported: half of the manager's watchdog interval.
    every: Option<Duration>,
    stage: Stage,
    next: Duration,
    /// The status text that was last reported, and when it is renewed.
    status: String,
    next_status: Duration,
}

#[derive(Debug)]
enum Stage {
    /// Until a write is committed and every heartbeat has come.
    Starting {
        /// The result of the running write.
        written: Option<Receiver<Result<()>>>,
        committed: bool,
    },
    /// Until a heartbeat is missed.
    Alive,
    /// Until all heartbeats are back. The manager may end the process before that.
    Stuck,
}

impl Supervision {
    /// Asks for the first heartbeats. `watchdog` is the manager's watchdog interval.
    pub fn new(appliance: &Appliance, notifier: Notifier, watchdog: Option<Duration>) -> Self {
        appliance.ask_heartbeat();
        let stage = Stage::Starting { written: None, committed: false };
        let every = watchdog.map(|span| span.div_f64(2.0));
        let status = String::new();
        let next_status = Duration::ZERO;
        Self { notifier, every, stage, next: Duration::ZERO, status, next_status }
    }

    /// Reports what is due now.
    pub fn check(&mut self, appliance: &Appliance, now: Duration) {
        match &mut self.stage {
            Stage::Starting { written, committed } => {
                let outcome = written.as_ref().and_then(|written| written.try_recv().ok());
                match outcome {
                    Some(Ok(())) => *committed = true,
                    Some(Err(error)) => {
                        tracing::error!(%error, "not ready: the database cannot be written");
                        let status =
                            format!("Not ready: the database cannot be written ({error}).");
                        self.notifier.extend_start(START_EXTENSION, &status);
                        *written = None;
                        self.next = now.saturating_add(WRITE_RETRY);
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
                self.report_status(appliance, now);
                self.watch(appliance, now);
            }
            Stage::Stuck => self.watch(appliance, now),
        }
    }

    /// Reports the status text if it has changed.
    fn report_status(&mut self, appliance: &Appliance, now: Duration) {
        if !self.notifier.is_heard() || now < self.next_status {
            return;
        }
        self.next_status = now.saturating_add(STATUS_EVERY);
        let status = status(appliance);
        if status != self.status {
            self.notifier.status(&status);
            self.status = status;
        }
    }

    /// Reports that the settings are being read again, until [`Supervision::reloaded`].
    pub fn reloading(&self, monotonic: Duration) {
        self.notifier.reloading(monotonic);
    }

    /// Reports that the settings were read again.
    pub fn reloaded(&self, appliance: &Appliance) {
        self.notifier.ready(&status(appliance));
    }

    /// Reports that the service is stopping.
    pub fn stopping(&self) {
        self.notifier.stopping("Stopping: running work is finished first.");
    }

    /// Whether *ready* was reported.
    pub fn is_ready(&self) -> bool {
        !matches!(self.stage, Stage::Starting { .. })
    }

    fn begin(&mut self, appliance: &Appliance, now: Duration) {
        self.status = status(appliance);
        self.notifier.ready(&self.status);
        self.next_status = now.saturating_add(STATUS_EVERY);
        tracing::info!(address = %appliance.address(), "ready");
        self.stage = Stage::Alive;
        self.report_alive(appliance, now);
    }

    fn watch(&mut self, appliance: &Appliance, now: Duration) {
        let Some(every) = self.every.filter(|_| now >= self.next) else { return };
        let missing = appliance.missing_heartbeats();
        match (missing.is_empty(), &self.stage) {
            (true, Stage::Stuck) => {
                tracing::info!("every thread answers again");
                self.stage = Stage::Alive;
                self.status.clear();
                self.next_status = now;
                self.report_alive(appliance, now);
            }
            (true, _) => self.report_alive(appliance, now),
            // Half of the remaining watchdog interval passes before a missing heartbeat counts as a failure.
            (false, Stage::Alive) if now >= self.next.saturating_add(every.div_f64(2.0)) => {
                let threads = missing.join(", ");
                tracing::error!(
                    threads,
                    "a thread does not answer; the service manager may restart the service"
                );
                self.notifier.status(&format!("Not well: no heartbeat from {threads}."));
                self.stage = Stage::Stuck;
            }
            (false, _) => (),
        }
    }

    /// Reports *alive*, and asks for the heartbeats of the next report.
    fn report_alive(&mut self, appliance: &Appliance, now: Duration) {
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
    let api = appliance.address();
    let intake = appliance.intake_address();
    if intake == api {
        return format!("Ready, listening on {api}.");
    }
    format!("Ready, listening on {api}, for webhooks on {intake}.")
}

/// Starts an ordinary write; its result comes when it is committed.
fn probe(appliance: &Appliance) -> Receiver<Result<()>> {
    let (sender, receiver) = bounded(1);
    let writer = appliance.store().writer();
    writer.submit(Queue::Accept, stats::probe, move |outcome| drop(sender.send(outcome)));
    receiver
}
