//! One run of the processes, from an empty directory until everything is shipped.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::stop::Stop;
use crate::demo::chaos::{self, Kill};
use crate::demo::children::Children;
use crate::demo::count::{LedgerCounts, Observations};
use crate::demo::line::LossyLine;
use crate::demo::progress::{Progress, ProgressCounts};
use crate::demo::setup::{Api, configure};
use crate::demo::site::{Error, Role, Run, Site, Topology};
use crate::demo::store::Ledger;
use crate::demo::topic::Topic;

/// How often the progress is checked.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// How long a process may take until it is ready.
const MAX_READY: Duration = Duration::from_secs(15);
/// Wait between two readiness checks.
const READY_POLL: Duration = Duration::from_millis(5);
/// How long a run of up to 10,000 invoices may take.
const MAX_RUN: Duration = Duration::from_mins(2);
/// How long a longer run may take for each invoice.
const MAX_RUN_PER_INVOICE: Duration = Duration::from_millis(12);
/// Characters at the end of a log that are shown when its process fails.
const MAX_LOG_CHARS: usize = 1500;

struct Driver<'a> {
    children: Children,
    /// The API of each Oncebox, once it is ready.
    boxes: Vec<Api>,
    site: &'a Site,
    finance: Ledger,
    logistics: Ledger,
    clock: &'a Clock,
    interrupted: &'a AtomicBool,
    progress: Progress,
    topic: Option<Topic>,
    observed: Observations,
    stop: Stop,
}

impl Run {
    /// Runs everything. No process is left when this returns.
    pub(super) fn run(
        self,
        dir: &Path,
        what: &str,
        interrupted: &AtomicBool,
        clock: &Clock,
    ) -> Result<(Observations, LedgerCounts), Error> {
        let topic = (self.topology == Topology::Kafka).then(Topic::start).transpose()?;
        let site = &Site::make(dir, self, topic.iter().map(Topic::broker).collect())?;
        let finance = Ledger::finance(&site.finance_db())?;
        if self.topology == Topology::Chain {
            finance.create_outbox()?;
        }
        let mut driver = Driver {
            children: Children::new(site, clock)?,
            boxes: Vec::new(),
            site,
            finance,
            logistics: Ledger::logistics(&site.logistics_db())?,
            clock,
            interrupted,
            progress: Progress::new(what, self.invoices, clock.clone()),
            topic,
            observed: Observations::default(),
            stop: Stop::new(),
        };
        let line = (self.topology == Topology::Chain)
            .then(|| LossyLine::start(site, clock))
            .transpose()?;
        driver.start_all()?;
        driver.follow()?;
        driver.children.stop();
        drop(line);
        let counts = LedgerCounts::count(site, &driver.observed)?;
        Ok((driver.observed, counts))
    }
}

impl Driver<'_> {
    /// Starts the Onceboxes, configures them, and starts Finance and Logistics.
    fn start_all(&mut self) -> Result<(), Error> {
        for role in self.site.run.topology.boxes() {
            self.start(role)?;
            self.boxes.push(Api::of(self.site, role)?);
        }
        configure(self.site)?;
        for role in self.site.run.topology.roles().iter().filter(|role| !role.is_oncebox()) {
            self.start(*role)?;
        }
        Ok(())
    }

    /// Starts a process and waits until it is ready. Returns how long that took.
    fn start(&mut self, role: Role) -> Result<Duration, Error> {
        let started = self.clock.monotonic();
        self.children.start(role)?;
        loop {
            if self.children.is_ready(role) {
                return Ok(self.clock.monotonic().saturating_sub(started));
            }
            self.check()?;
            if self.clock.monotonic().saturating_sub(started) > MAX_READY {
                return Err(self.failure_of(role, "did not answer in time".to_owned()));
            }
            self.stop.wait(READY_POLL);
        }
    }

    /// Kills processes and checks the progress until everything is shipped or time is up.
    fn follow(&mut self) -> Result<(), Error> {
        let Run { faults, seed, topology, invoices, .. } = self.site.run;
        // A little longer than Finance pays, so that the last retries are hit as well.
        let span = self.site.paying_for();
        let span = span.saturating_add(span / 10);
        let kills = if faults { chaos::kills(seed, span, topology.roles()) } else { Vec::new() };
        let mut kills = kills.into_iter().peekable();
        let started = self.clock.monotonic();
        self.observed.started_at = self.clock.wall();
        let limit = MAX_RUN.max(MAX_RUN_PER_INVOICE.saturating_mul(invoices));
        loop {
            let elapsed = self.clock.monotonic().saturating_sub(started);
            self.observed.lasted = elapsed;
            if let Some(topic) = &mut self.topic {
                topic.set_down(faults && chaos::is_dead(seed, elapsed))?;
            }
            let all_handed_on = self.check_progress()?;
            let pending = if all_handed_on { self.pending() } else { None };
            if pending == Some(0) {
                return Ok(());
            }
            if elapsed > limit {
                self.observed.out_of_time = Some(self.pending().unwrap_or(0));
                return Ok(());
            }
            if let Some(kill) = kills.next_if(|kill| kill.at <= elapsed) {
                self.observed.kills.push((elapsed, kill.role));
                self.kill(kill)?;
            } else {
                let next = kills.peek().map(|kill| kill.at.saturating_sub(elapsed));
                self.stop.wait(next.map_or(POLL_EVERY, |next| next.min(POLL_EVERY)));
            }
        }
    }

    fn kill(&mut self, kill: Kill) -> Result<(), Error> {
        self.children.kill(kill.role)?;
        self.stop.wait(kill.dead_for);
        let ready_after = self.start(kill.role)?;
        if kill.role.is_oncebox() {
            self.observed.recoveries.push(ready_after);
        }
        Ok(())
    }

    /// Shows the progress. Returns whether every event has reached an Oncebox (in a chain, Logistics).
    fn check_progress(&mut self) -> Result<bool, Error> {
        self.check()?;
        let finance = self.finance.paid()?;
        let (shipped, absorbed) = self.logistics.shipped()?;
        let paid = finance.paid;
        let kills = self.observed.kills.len();
        self.progress.show(ProgressCounts { paid, shipped, absorbed, kills });
        let handed_on = match self.site.run.topology {
            Topology::Direct => finance.acknowledged,
            // Finance gets no acknowledgements, so Logistics' guard is counted.
            Topology::Chain => self.logistics.guarded()?,
            Topology::Kafka => self.logistics.guarded()?.min(finance.acknowledged),
        };
        Ok(handed_on >= self.site.run.invoices)
    }

    /// Pending deliveries of the Onceboxes; `None` if one does not answer.
    fn pending(&self) -> Option<u32> {
        self.boxes.iter().map(Api::pending).sum()
    }

    /// Fails if Ctrl-C was pressed or a process has ended by itself.
    fn check(&mut self) -> Result<(), Error> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        match self.children.ended() {
            Some((role, status)) => {
                Err(self.failure_of(role, format!("ended by itself ({status})")))
            }
            None => Ok(()),
        }
    }

    fn failure_of(&self, role: Role, what: String) -> Error {
        let log = self.children.log(role);
        // If the log cannot be read, the failure is reported without it.
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let skip = text.chars().count().saturating_sub(MAX_LOG_CHARS);
        let text: String = text.chars().skip(skip).collect();
        let log = log.display();
        Error::Failed(format!("{role} {what}; the end of {log}:\n{text}"))
    }
}
