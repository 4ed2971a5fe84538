//! One run of the processes, from an empty directory until everything is shipped.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::stop::Stop;
use crate::demo::chaos::{self, Kill};
use crate::demo::children::Children;
use crate::demo::count::{LedgerCounts, Observations};
use crate::demo::line::Line;
use crate::demo::progress::{Progress, State};
use crate::demo::setup::{Api, configure};
use crate::demo::site::{Error, Role, Run, Site, Topology};
use crate::demo::store::{Finance, Logistics};

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
    run: Run,
    children: Children,
    /// The API of each Oncebox, once it is ready.
    boxes: Vec<Api>,
    site: &'a Site,
    finance: Finance,
    logistics: Logistics,
    clock: &'a Clock,
    interrupted: &'a AtomicBool,
    progress: &'a mut Progress,
    observed: Observations,
    stop: Stop,
}

impl Run {
    /// Runs everything. No process is left when this returns.
    pub(super) fn run(
        self,
        dir: &Path,
        progress: &mut Progress,
        interrupted: &AtomicBool,
        clock: &Clock,
    ) -> Result<(Observations, LedgerCounts), Error> {
        let site = Site::make(dir, self)?;
        let observed = self.drive(&site, progress, interrupted, clock)?;
        let counts = LedgerCounts::count(&site, &observed)?;
        Ok((observed, counts))
    }

    fn drive(
        self,
        site: &Site,
        progress: &mut Progress,
        interrupted: &AtomicBool,
        clock: &Clock,
    ) -> Result<Observations, Error> {
        let mut driver = Driver {
            run: self,
            children: Children::new(site, clock)?,
            boxes: Vec::new(),
            site,
            finance: open_finance(site)?,
            logistics: Logistics::open(&site.logistics_db())?,
            clock,
            interrupted,
            progress,
            observed: Observations {
                started_at: clock.wall(),
                lasted: Duration::ZERO,
                kills: Vec::new(),
                recoveries: Vec::new(),
                out_of_time: None,
            },
            stop: Stop::new(),
        };
        let line =
            (self.topology == Topology::Chain).then(|| Line::start(site, clock)).transpose()?;
        driver.start_all()?;
        driver.follow()?;
        driver.children.stop();
        drop(line);
        Ok(driver.observed)
    }

    fn kills(self, site: &Site) -> Vec<Kill> {
        if !self.faults {
            return Vec::new();
        }
        // A little longer than Finance pays, so that the last retries are hit as well.
        let span = site.paying_for();
        chaos::kills(self.seed, span.saturating_add(span / 10), self.topology.roles())
    }
}

/// Opens Finance's database, with an outbox table for a chain.
fn open_finance(site: &Site) -> Result<Finance, Error> {
    let finance = Finance::open(&site.finance_db())?;
    if site.run.topology == Topology::Chain {
        finance.create_outbox()?;
    }
    Ok(finance)
}

impl Driver<'_> {
    /// Starts the Onceboxes, configures them, and starts Finance and Logistics.
    fn start_all(&mut self) -> Result<(), Error> {
        for role in self.run.topology.boxes() {
            self.start(role)?;
            self.boxes.push(Api::of(self.site, role)?);
        }
        configure(self.site)?;
        for role in self.run.topology.roles().iter().filter(|role| !role.is_oncebox()) {
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
        let mut kills = self.run.kills(self.site).into_iter().peekable();
        let started = self.clock.monotonic();
        self.observed.started_at = self.clock.wall();
        let limit = MAX_RUN.max(MAX_RUN_PER_INVOICE.saturating_mul(self.run.invoices));
        loop {
            let elapsed = self.clock.monotonic().saturating_sub(started);
            self.observed.lasted = elapsed;
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
        let finance = self.finance.counts()?;
        let (shipped, absorbed) = self.logistics.counts()?;
        let (paid, kills) = (finance.paid, self.observed.kills.len());
        self.progress.show(State { paid, shipped, absorbed, kills });
        let handed_on = match self.run.topology {
            Topology::Direct => finance.acknowledged,
            // Finance gets no acknowledgements, so Logistics' guard is counted.
            Topology::Chain => self.logistics.guarded()?,
        };
        Ok(handed_on >= self.run.invoices)
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
