//! One run of the three processes, from an empty directory to three ledgers nobody writes any more.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::clock::{Clock, Timestamp};
use crate::demo::chaos::{self, Kill};
use crate::demo::children::{Children, Role};
use crate::demo::count::Tally;
use crate::demo::progress::{Progress, State};
use crate::demo::site::{Site, loopback_client, read_line, write_secret};
use crate::demo::{Broken, Error, logistics};
use crate::http::client::{Call, Client};
use crate::stop::Stop;
use crate::store::demo_ledger::{Finance, Logistics};

/// How often the ledgers are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a process may take until it answers.
const READY_MOST: Duration = Duration::from_secs(15);
/// How long one waits between two questions whether it does.
const READY_AGAIN: Duration = Duration::from_millis(5);
/// How long a run may take until what is missing is called missing.
const OVERALL: Duration = Duration::from_mins(2);
/// What more than 10,000 invoices may take beyond that, each.
const OVERALL_PER_INVOICE: Duration = Duration::from_millis(12);
/// How long a question to Oncebox may take.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// Characters of a log that are shown when its process falls.
const WORDS_MOST: usize = 1500;

/// A run to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lap {
    /// Its directory.
    pub(super) name: &'static str,
    /// Invoices to be paid.
    pub(super) invoices: u32,
    /// Invoices a second; 0: as fast as it goes.
    pub(super) per_second: u32,
    /// What misfortune follows from.
    pub(super) seed: u32,
    /// Whether there is any.
    pub(super) faults: bool,
    /// What is broken on purpose.
    pub(super) broken: Broken,
}

/// What happened in a run, as the parent saw it.
#[derive(Clone, Debug)]
pub(super) struct Course {
    /// When Finance was started.
    pub(super) started_at: Timestamp,
    /// From then until everything was shipped, or given up.
    pub(super) lasted: Duration,
    /// Who was killed when.
    pub(super) kills: Vec<(Duration, Role)>,
    /// How long Oncebox took from each start after a kill until it answered.
    pub(super) recoveries: Vec<Duration>,
    /// Deliveries Oncebox still had when time was up; `None`: it ended in time.
    pub(super) out_of_time: Option<u32>,
}

struct Running<'a> {
    lap: Lap,
    children: Children,
    client: Client,
    admin: String,
    site: &'a Site,
    finance: Finance,
    logistics: Logistics,
    clock: &'a Clock,
    interrupted: &'a AtomicBool,
    progress: &'a mut Progress,
    course: Course,
    stop: Stop,
}

impl Lap {
    /// Makes the run; the processes are gone when this returns, however it does.
    pub(super) fn run(
        self,
        dir: &Path,
        progress: &mut Progress,
        interrupted: &AtomicBool,
        clock: &Clock,
    ) -> Result<(Course, Tally), Error> {
        let mut site = Site::make(&dir.join(self.name))?;
        site.invoices = self.invoices;
        site.per_second = self.per_second;
        site.seed = self.seed;
        site.faults = self.faults;
        site.broken = self.broken;
        site.write()?;
        let course = self.drive(&site, progress, interrupted, clock)?;
        let tally = Tally::count(&site, &course)?;
        Ok((course, tally))
    }

    fn drive(
        self,
        site: &Site,
        progress: &mut Progress,
        interrupted: &AtomicBool,
        clock: &Clock,
    ) -> Result<Course, Error> {
        let mut running = Running {
            lap: self,
            children: Children::new(site, clock)?,
            client: loopback_client()?,
            admin: String::new(),
            site,
            finance: Finance::open(&site.finance_db())?,
            logistics: Logistics::open(&site.logistics_db())?,
            clock,
            interrupted,
            progress,
            course: Course {
                started_at: clock.wall(),
                lasted: Duration::ZERO,
                kills: Vec::new(),
                recoveries: Vec::new(),
                out_of_time: None,
            },
            stop: Stop::new(),
        };
        running.start(Role::Oncebox)?;
        running.arrange()?;
        running.start(Role::Logistics)?;
        running.start(Role::Finance)?;
        running.follow()?;
        running.children.stop();
        Ok(running.course)
    }

    fn kills(self, site: &Site) -> Vec<Kill> {
        if !self.faults {
            return Vec::new();
        }
        // A little longer than Finance pays, so that the tail of retries is hit as well.
        let span = site.paying_for();
        chaos::kills(self.seed, span.saturating_add(span / 10))
    }
}

impl Running<'_> {
    /// Starts a process and waits until it answers; tells how long that took.
    fn start(&mut self, role: Role) -> Result<Duration, Error> {
        let started = self.clock.monotonic();
        self.children.start(role)?;
        loop {
            if self.children.is_ready(role) {
                return Ok(self.clock.monotonic().saturating_sub(started));
            }
            self.check()?;
            if self.clock.monotonic().saturating_sub(started) > READY_MOST {
                return Err(self.fell(role, "did not answer in time".to_owned()));
            }
            self.stop.wait(READY_AGAIN);
        }
    }

    /// Makes the subscription, and gives each side what it has to know and no more.
    fn arrange(&mut self) -> Result<(), Error> {
        self.admin = read_line(&self.site.admin_token())?;
        let url = format!("http://{}{}", self.site.logistics, logistics::PATH);
        let subscription =
            json!({ "name": "logistics", "url": url, "event_types": ["invoice.paid"] });
        let made =
            self.ask("POST", "/v1/subscriptions", "making the subscription", &subscription)?;
        let token = json!({ "name": "finance", "role": "publish" });
        let token = self.ask("POST", "/v1/tokens", "making Finance's token", &token)?;
        let text = |value: &Value, field: &str| {
            value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        write_secret(&self.site.secret(), &text(&made, "secret"))?;
        write_secret(&self.site.publish_token(), &text(&token, "token"))
    }

    fn ask(
        &self,
        method: &str,
        path: &str,
        what: &'static str,
        body: &Value,
    ) -> Result<Value, Error> {
        let url = format!("http://{}{path}", self.site.oncebox);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = [
            ("content-type".to_owned(), "application/json".to_owned()),
            ("authorization".to_owned(), format!("Bearer {}", self.admin)),
        ];
        let (headers, body, timeout) = (&headers, body.as_bytes(), ASK_TIMEOUT);
        let refused = |status, said: String| Error::Refused { what, status, said };
        let answer = self.client.call(&Call { method, url: &url, headers, body, timeout });
        let answer = answer.map_err(|error| refused(0, error.to_string()))?;
        if !(200..300).contains(&answer.status) {
            let said = String::from_utf8_lossy(&answer.body).into_owned();
            return Err(refused(answer.status, said));
        }
        serde_json::from_slice(&answer.body)
            .map_err(|error| refused(answer.status, error.to_string()))
    }

    /// Kills and looks until everything is shipped or time is up.
    fn follow(&mut self) -> Result<(), Error> {
        let mut kills = self.lap.kills(self.site).into_iter().peekable();
        let started = self.clock.monotonic();
        self.course.started_at = self.clock.wall();
        let overall = OVERALL.max(OVERALL_PER_INVOICE.saturating_mul(self.lap.invoices));
        loop {
            let elapsed = self.clock.monotonic().saturating_sub(started);
            self.course.lasted = elapsed;
            let all_acknowledged = self.look()?;
            let pending = if all_acknowledged { self.pending() } else { None };
            if pending == Some(0) {
                return Ok(());
            }
            if elapsed > overall {
                self.course.out_of_time = Some(self.pending().unwrap_or(0));
                return Ok(());
            }
            if let Some(kill) = kills.next_if(|kill| kill.at <= elapsed) {
                self.course.kills.push((elapsed, kill.role));
                self.kill(kill)?;
            } else {
                let next = kills.peek().map(|kill| kill.at.saturating_sub(elapsed));
                self.stop.wait(next.map_or(LOOK_EVERY, |next| next.min(LOOK_EVERY)));
            }
        }
    }

    fn kill(&mut self, kill: Kill) -> Result<(), Error> {
        self.children.kill(kill.role)?;
        self.stop.wait(kill.dead_for);
        let ready_after = self.start(kill.role)?;
        if kill.role == Role::Oncebox {
            self.course.recoveries.push(ready_after);
        }
        Ok(())
    }

    /// Shows how far the two sides are; tells whether Finance is done.
    fn look(&mut self) -> Result<bool, Error> {
        self.check()?;
        let finance = self.finance.counts()?;
        let (shipped, absorbed) = self.logistics.counts()?;
        let (paid, kills) = (finance.paid, self.course.kills.len());
        self.progress.show(State { paid, shipped, absorbed, kills });
        Ok(finance.acknowledged >= self.lap.invoices)
    }

    /// Deliveries Oncebox still has; `None` when it does not say.
    fn pending(&self) -> Option<u32> {
        let stats = self.ask("GET", "/v1/stats", "asking for its numbers", &Value::Null).ok()?;
        u32::try_from(stats.get("pending")?.as_u64()?).ok()
    }

    /// Whether somebody wants an end, or a process has come to one by itself.
    fn check(&mut self) -> Result<(), Error> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        match self.children.ended() {
            Some((role, status)) => Err(self.fell(role, format!("ended by itself ({status})"))),
            None => Ok(()),
        }
    }

    fn fell(&self, role: Role, what: String) -> Error {
        let log = self.children.log(role);
        // Without its log the failure is told all the same.
        let words = std::fs::read_to_string(&log).unwrap_or_default();
        let skip = words.chars().count().saturating_sub(WORDS_MOST);
        let words = words.chars().skip(skip).collect();
        Error::Fell { role: role.name(), what, log, words }
    }
}
