//! Years in minutes: events of many months under a clock that the bench moves, with what happens to a box in between.
//!
//! In each month events are published and delivered, and what finished 30 days ago moves into the archive. In some months
//! the target is down for a day, the process is killed, the disk is full, or the database is restored from a backup. After
//! two years the schema is upgraded, with the months that are there. The settings are the usual ones: months are deleted
//! after a year, and counted before. At the end no event may be lost or sent twice, and the audit chain has to hold. Times
//! and sizes are reported, not asserted.
//!
//! The archive pauses after each batch, by the clock; under this clock a batch takes no time, so it does not pause.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_arithmetic,
    clippy::iter_over_hash_type,
    clippy::exit,
    reason = "a bench owns its processes, ends by panicking, prints what it measures and reckons in floats"
)]

mod box_process;
mod counted;
#[path = "../rig/mod.rs"]
mod rig;
mod sink;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use oncebox::app::data_directory::DATABASE;
use oncebox::archive::Month as FileMonth;
use oncebox::archive::audit::trail;
use oncebox::backup::manifest::Reason;
use oncebox::backup::{online, restore};
use oncebox::base::clock::Timestamp;
use oncebox::base::faults::{Faults, SplitMix64};
use oncebox::config::KEY_FILE;
use oncebox::keys::file::{read as read_key, retired_ids};
use oncebox::model::audit::Actor;
use oncebox::model::in_doubt::Window;
use oncebox::store::schema;
use rusqlite::Connection;
use serde_json::{Value, json};

use box_process::Service;
use counted::Counted;
use rig::plot::{Panel, svg};
use rig::report::Report;
use rig::server::fresh_directory;
use rig::{median, quantile, rest};
use sink::Sink;

/// 2026-01-01T00:00:00Z.
const START: Timestamp = Timestamp::from_secs(1_767_225_600);
const HOUR: Duration = Duration::from_hours(1);
/// A twelfth of a year, in so many steps.
const MONTH: Duration = Duration::from_mins(43_830);
const STEPS: u64 = 6;
/// Events of a request.
const BATCH: u64 = 250;
/// Events that are looked up in a month.
const LOOK_UPS: u32 = 10;
/// A month that is so many months old does not change any more. It is deleted when it is older than twelve.
const CLOSED_AFTER: usize = 10;
/// After so many months the schema is upgraded.
const UPGRADED_AFTER: u64 = 24;
/// The longest wait for anything.
const PATIENCE: Duration = Duration::from_mins(5);

/// What was measured in a month; times in microseconds.
#[derive(Default)]
struct Month {
    hot_bytes: u64,
    log_bytes: u64,
    archive_bytes: u64,
    insert: Vec<u32>,
    claim: Vec<u32>,
    settle: Vec<u32>,
    by_key: Vec<u32>,
    by_id: Vec<u32>,
    /// Seconds in which the archive moved what was due.
    moving: f64,
}

struct Years {
    service: Option<Service>,
    sink: Sink,
    data: PathBuf,
    now: Timestamp,
    dice: SplitMix64,
    /// Events that were accepted, and how many of them the target is to get.
    accepted: u64,
    /// Events for the consumers that ask.
    pulled: u64,
    /// The number of the first event of each month.
    firsts: Vec<u64>,
    /// Single events and claims that are measured in a month.
    samples: u64,
    /// Months between two that measure look-ups.
    looked_up_every: usize,
    restored: u64,
    /// Seconds of the start that upgraded the schema.
    upgrade: f64,
    counted: Counted,
}

impl Years {
    fn new(samples: u64, looked_up_every: usize) -> Self {
        let data = fresh_directory("years").join("data");
        let service = Service::start(&data, START);
        let sink = Sink::start();
        let hook = json!({ "name": "hook", "url": sink.url, "event_types": ["bench.event"] });
        service.ask("POST", "/v1/subscriptions", &hook);
        let pull = json!({ "name": "pull", "target": "pull", "event_types": ["bench.pull"] });
        service.ask("POST", "/v1/subscriptions", &pull);
        Self {
            service: Some(service),
            sink,
            data,
            now: START,
            dice: SplitMix64::of(1, "years", 0),
            accepted: 0,
            pulled: 0,
            firsts: Vec::new(),
            samples,
            looked_up_every,
            restored: 0,
            upgrade: 0.0,
            counted: Counted::default(),
        }
    }

    fn service(&self) -> &Service {
        self.service.as_ref().unwrap()
    }

    fn tell(&mut self, command: &str) -> Value {
        self.service.as_mut().unwrap().tell(command)
    }

    fn advance(&mut self, span: Duration) {
        self.now = self.now.plus(span);
        self.tell(&format!("advance {}", span.as_millis()));
    }

    fn start_again(&mut self) {
        self.service = Some(Service::start(&self.data, self.now));
    }

    fn event(n: u64) -> Value {
        json!({ "event_type": "bench.event", "idempotency_key": format!("k-{n}"), "payload": { "n": n, "text": "x".repeat(300) } })
    }

    /// Publishes the next events.
    fn publish(&mut self, count: u64) {
        let end = self.accepted + count;
        while self.accepted < end {
            let next = end.min(self.accepted + BATCH);
            let events: Vec<Value> = (self.accepted..next).map(Self::event).collect();
            self.service().ask("POST", "/v1/events", &events.into());
            self.accepted = next;
        }
    }

    /// Makes the files those of the version before, and starts.
    fn upgraded(&mut self) {
        self.service.take().unwrap().stop();
        let mut files = archive_files(&self.data);
        files.push(self.data.join(DATABASE));
        for path in &files {
            let conn = Connection::open(path).unwrap();
            conn.execute_batch("PRAGMA legacy_alter_table = ON; BEGIN").unwrap();
            conn.execute_batch(include_str!("step_10_undone.sql")).unwrap();
            conn.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        }
        let begun = Instant::now();
        self.start_again();
        self.upgrade = begun.elapsed().as_secs_f64();
        for path in &files {
            let conn = Connection::open(path).unwrap();
            let version: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
            assert_eq!(version, schema::VERSION, "{}", path.display());
            conn.busy_timeout(PATIENCE).unwrap();
            conn.execute_batch(
                "INSERT INTO seen_sources SELECT * FROM kept_seen_sources; DROP TABLE kept_seen_sources",
            )
            .unwrap();
        }
    }

    /// Waits until the target has got everything and nothing is due.
    fn delivered(&mut self) {
        let begun = Instant::now();
        while self.sink.came.lock().unwrap().distinct < self.accepted
            || self.tell("due 1")["count"] != 0
        {
            assert!(begun.elapsed() < PATIENCE, "events are not delivered");
            rest(Duration::from_millis(2));
        }
    }

    /// Waits as [`Self::delivered`], while time passes.
    fn delivered_in_time(&mut self) {
        let begun = Instant::now();
        while self.sink.came.lock().unwrap().distinct < self.accepted {
            assert!(begun.elapsed() < PATIENCE, "events are not delivered after an outage");
            self.advance(Duration::from_mins(5));
            rest(Duration::from_millis(10));
        }
        self.delivered();
    }

    fn set_down(&self, is_down: bool) {
        self.sink.came.lock().unwrap().is_down = is_down;
    }

    fn month(&mut self, month: u64, events: u64) -> Month {
        if month == UPGRADED_AFTER {
            self.upgraded();
        }
        self.firsts.push(self.accepted);
        let mut measured = Month::default();
        for step in 0..STEPS {
            let count = events / STEPS + u64::from(step < events % STEPS);
            match (month % 12, step) {
                (1 | 4 | 7 | 10, 1) => self.outage(count),
                (2 | 6 | 9, 2) => self.killed(count),
                (3 | 8, 3) => self.full_disk(count),
                (11, 4) => self.restored(count),
                _ => self.publish(count),
            }
            self.delivered();
            self.advance(MONTH / STEPS as u32);
            match (month % 12, step) {
                (5, 4) => self.killed_while_moving(),
                (8, 4) => self.fails_while_moving(),
                _ => {}
            }
            measured.moving += self.archived();
        }
        self.measure(&mut measured);
        measured.moving += self.archived();
        self.look_up(&mut measured);
        self.count_closed();
        let database = self.data.join(DATABASE);
        measured.hot_bytes = fs::metadata(&database).unwrap().len();
        measured.log_bytes = size(&database) - measured.hot_bytes;
        measured.archive_bytes = archive_files(&self.data).iter().map(|path| size(path)).sum();
        measured
    }

    /// The target is down for a day.
    fn outage(&mut self, count: u64) {
        self.set_down(true);
        self.publish(count);
        for _ in 0..24 {
            self.advance(HOUR);
            rest(Duration::from_millis(20));
        }
        self.set_down(false);
        self.delivered_in_time();
    }

    /// The process is killed while it delivers. What it has sent and not noted is sent again.
    fn killed(&mut self, count: u64) {
        self.sink.came.lock().unwrap().may_repeat = true;
        self.publish(count);
        self.service.take().unwrap().kill();
        self.start_again();
        self.delivered_in_time();
        self.sink.came.lock().unwrap().may_repeat = false;
    }

    fn killed_while_moving(&mut self) {
        self.ask_archive();
        rest(Duration::from_millis(self.dice.below(100)));
        self.service.take().unwrap().kill();
        self.start_again();
    }

    fn fails_while_moving(&mut self) {
        self.tell("fail archive");
        assert!(self.archive().1, "the planned failure did not meet the archive");
        self.tell("fail none");
    }

    /// The disk has no room, then it refuses a commit. What was refused is published again.
    fn full_disk(&mut self, count: u64) {
        for (full, empty, status) in
            [("free none", "free again", 507), ("fail commit", "fail none", 0)]
        {
            self.tell(full);
            let begun = Instant::now();
            // The disk is looked at each second. What is accepted until then is the next event, and counts.
            loop {
                let n = self.accepted;
                let (got, answer) = self.service().try_ask("POST", "/v1/events", &Self::event(n));
                if got >= 500 && (status == 0 || status == got) {
                    break;
                }
                assert!((200..300).contains(&got), "{got} {answer}");
                self.accepted += 1;
                assert!(begun.elapsed() < PATIENCE, "a full disk refuses nothing");
                rest(Duration::from_millis(50));
            }
            self.tell(empty);
            loop {
                let n = self.accepted;
                let (got, _) = self.service().try_ask("POST", "/v1/events", &Self::event(n));
                if (200..300).contains(&got) {
                    self.accepted += 1;
                    break;
                }
                assert!(begun.elapsed() < PATIENCE, "the disk has room, and events are refused");
                rest(Duration::from_millis(50));
            }
        }
        self.publish(count);
        self.delivered_in_time();
    }

    /// The database is lost a day after a backup, with events that were sent and events that were not.
    fn restored(&mut self, count: u64) {
        self.publish(count / 3);
        self.delivered();
        let backup = self.data.with_file_name("backup.db");
        let plan = online::Plan {
            database: self.data.join(DATABASE),
            to: backup.clone(),
            reason: Reason::Asked,
            now: self.now,
            faults: Faults::none(),
        };
        online::take(&plan, &mut |_| true).unwrap();
        let first = self.accepted;
        self.publish(count / 3);
        self.delivered();
        let unsent = self.accepted;
        self.set_down(true);
        self.publish(count - count / 3 * 2);
        let end = self.accepted;
        self.advance(HOUR * 24);
        self.service.take().unwrap().kill();
        self.put_back(&backup);
        self.start_again();
        self.set_down(false);
        // The sources publish again what the backup does not know. A person knows what the target has.
        for (from, to, verb) in [(first, unsent, "skip"), (unsent, end, "release")] {
            self.accepted = from;
            self.publish(to - from);
            let body = json!({ "filter": { "subscription": "hook" } });
            let path = format!("/v1/deliveries/{verb}");
            while self.service().ask("POST", &path, &body)["more"] == true {}
        }
        self.service().ask("POST", "/v1/in-doubt/end", &Value::Null);
        self.delivered_in_time();
        self.restored += end - first;
    }

    fn put_back(&self, backup: &Path) {
        let key = self.data.join(KEY_FILE);
        let plan = restore::Plan {
            from: backup.to_owned(),
            database: self.data.join(DATABASE),
            force: true,
            without_manifest: false,
            without_months: false,
            retired: retired_ids(&key),
            key_id: Some(read_key(&key).unwrap().key_id()),
            now: self.now,
            window: Some(Window { lost_at: self.now, until: self.now.plus(HOUR * 24) }),
            who: Actor::system(),
            faults: Faults::none(),
        };
        let done = restore::run(&plan).unwrap();
        fs::remove_file(done.aside.unwrap()).unwrap();
        for file in fs::read_dir(backup.parent().unwrap()).unwrap() {
            let path = file.unwrap().path();
            if path.is_file() {
                fs::remove_file(path).unwrap();
            }
        }
    }

    /// Insert: a request with one event, until it is accepted. Claim: the due query. Settle: a consumer's word that an
    /// event is done. Insert and settle contain a synced commit.
    fn measure(&mut self, into: &mut Month) {
        self.service().ask("POST", "/v1/subscriptions/hook/pause", &Value::Null);
        for _ in 0..self.samples {
            let event = Self::event(self.accepted);
            into.insert.push(timed(|| self.service().ask("POST", "/v1/events", &event)).0);
            self.accepted += 1;
        }
        let due = self.tell(&format!("due {}", self.samples));
        assert_eq!(due["count"], self.samples.min(100));
        let spans = due["spans"].as_array().unwrap().iter();
        into.claim = spans.map(|span| span.as_u64().unwrap() as u32).collect();
        self.service().ask("POST", "/v1/subscriptions/hook/resume", &Value::Null);
        self.delivered();
        let event = |n: u64| json!({ "event_type": "bench.pull", "idempotency_key": format!("p-{n}"), "payload": n });
        let events: Vec<Value> = (self.pulled..self.pulled + self.samples).map(event).collect();
        self.service().ask("POST", "/v1/events", &events.into());
        self.pulled += self.samples;
        loop {
            let next = self.service().ask("GET", "/v1/consumers/pull/next?max=100", &Value::Null);
            let items = next["items"].as_array().unwrap();
            if items.is_empty() {
                break;
            }
            for item in items {
                let word =
                    json!({ "items": [{ "delivery": item["delivery"], "lease": item["lease"] }] });
                let (span, answer) =
                    timed(|| self.service().ask("POST", "/v1/consumers/pull/ack", &word));
                assert_eq!(answer["items"][0]["status"], 200);
                into.settle.push(span);
            }
        }
    }

    /// Asks for a run, after the one under way.
    fn ask_archive(&self) {
        let body = json!({ "older_than": "30days" });
        let begun = Instant::now();
        while self.service().try_ask("POST", "/v1/archive/runs", &body).0 == 409 {
            assert!(begun.elapsed() < PATIENCE * 12, "the archive does not end");
            rest(Duration::from_millis(5));
        }
    }

    /// Moves what is old enough, and deletes what is older still; how many seconds it took.
    fn archived(&self) -> f64 {
        let (seconds, failed) = self.archive();
        assert!(!failed, "the archive failed");
        seconds
    }

    /// Moves what is old enough; how many seconds it took, and whether it failed.
    fn archive(&self) -> (f64, bool) {
        self.ask_archive();
        let begun = Instant::now();
        loop {
            let run = self.service().ask("GET", "/v1/archive", &Value::Null)["run"].clone();
            if run["since"].is_null() {
                return (begun.elapsed().as_secs_f64(), !run["error"].is_null());
            }
            assert!(begun.elapsed() < PATIENCE * 12, "the archive does not end: {run}");
            rest(Duration::from_millis(5));
        }
    }

    /// Counts what months have that do not change any more, before they are deleted after a year.
    fn count_closed(&mut self) {
        let closed = FileMonth::at(self.now.minus(MONTH * CLOSED_AFTER as u32)).to_string();
        for path in archive_files(&self.data) {
            let month = path.file_stem().unwrap().to_str().unwrap().to_owned();
            if month <= closed && self.counted.newest.as_ref().is_none_or(|newest| *newest < month)
            {
                self.counted.read(&path);
                self.counted.newest = Some(month);
            }
        }
    }

    /// Counts what is still there.
    fn count_rest(&mut self) {
        for path in archive_files(&self.data) {
            let month = path.file_stem().unwrap().to_str().unwrap().to_owned();
            if self.counted.newest.as_ref().is_none_or(|newest| *newest < month) {
                self.counted.read(&path);
            }
        }
        self.counted.read(&self.data.join(DATABASE));
    }

    /// Random events that are in the archive, by key and by id.
    fn look_up(&mut self, into: &mut Month) {
        // Events of this month and the last one may be in the database.
        let months = self.firsts.len();
        let Some(newest) = months.checked_sub(2).map(|month| self.firsts[month]) else { return };
        let oldest = self.firsts[months.saturating_sub(CLOSED_AFTER)];
        if !months.is_multiple_of(self.looked_up_every) || newest <= oldest {
            return;
        }
        for _ in 0..LOOK_UPS {
            let n = oldest + self.dice.below(newest - oldest);
            let (span, found) = timed(|| self.find(n));
            into.by_key.push(span);
            assert!(found["archived_in"].is_string(), "{n}: {found}");
            let path = format!("/v1/events/{}", found["id"].as_str().unwrap());
            into.by_id.push(timed(|| self.service().ask("GET", &path, &Value::Null)).0);
        }
    }

    fn find(&self, n: u64) -> Value {
        let mut after = String::new();
        loop {
            let path = format!("/v1/events?idempotency_key=k-{n}{after}");
            let page = self.service().ask("GET", &path, &Value::Null);
            match (page["items"].get(0), page["next"].as_str()) {
                (Some(found), _) => return found.clone(),
                (None, Some(next)) => after = format!("&after={next}"),
                (None, None) => panic!("k-{n} is not found"),
            }
        }
    }
}

fn timed<T>(run: impl FnOnce() -> T) -> (u32, T) {
    let begun = Instant::now();
    let done = run();
    (begun.elapsed().as_micros() as u32, done)
}

/// A file and its log.
fn size(path: &Path) -> u64 {
    let log = PathBuf::from(format!("{}-wal", path.display()));
    [path, &log].iter().map(|path| fs::metadata(path).map_or(0, |file| file.len())).sum()
}

fn archive_files(data: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(data.join("archive")).into_iter().flatten();
    let paths = files.map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|ending| ending == "db")).collect();
    files.sort();
    files
}

/// The largest tables and indexes, with their bytes.
fn largest(database: &Path) -> Vec<(String, f64)> {
    let sql = "SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC LIMIT 3";
    let conn = Connection::open(database).unwrap();
    let mut statement = conn.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.collect::<rusqlite::Result<_>>().unwrap()
}

fn number(flag: &str) -> Option<u64> {
    let mut args = std::env::args().skip_while(|arg| arg != flag);
    args.nth(1).map(|number| number.parse().unwrap())
}

fn p(spans: &[u32], share: f64) -> f64 {
    let mut sorted = spans.to_vec();
    sorted.sort_unstable();
    quantile(&sorted, share) / 1e3
}

fn print(n: usize, month: &Month) {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "  {n:>3} {:>7.1} {:>5.1} {:>8.1} {:>6.2} {:>6.2} {:>6.2} {:>6.2} {:>6.2} {:>6.2} {:>7.2} {:>7.2} {:>7.2} {:>7.2}",
        mib(month.hot_bytes),
        mib(month.log_bytes),
        mib(month.archive_bytes),
        p(&month.insert, 0.5),
        p(&month.insert, 0.99),
        p(&month.claim, 0.5),
        p(&month.claim, 0.99),
        p(&month.settle, 0.5),
        p(&month.settle, 0.99),
        p(&month.by_key, 0.5),
        p(&month.by_key, 0.99),
        p(&month.by_id, 0.99),
        month.moving,
    );
}

/// The figures of the last year against those of an early one.
fn report(report: &mut Report, months: &[Month]) {
    let year = |of: &dyn Fn(&Month) -> f64, from: usize, to: usize| {
        let months = &months[from.min(months.len())..to.min(months.len())];
        // A month in which it was not measured has 0.
        median(&months.iter().map(of).filter(|value| *value > 0.0).collect::<Vec<_>>())
    };
    let last = months.len().saturating_sub(12).max(2);
    // From the second year on there are the keys of a whole year.
    let first = if months.len() > 38 { 14 } else { 2 };
    let mut line =
        |what: &str, unit: &'static str, most: Option<f64>, of: &dyn Fn(&Month) -> f64| {
            let (early, late) = (year(of, first, first + 12), year(of, last, months.len()));
            let base =
                (format!("{early:.2} in year {}", if first > 2 { 2 } else { 1 }), late / early);
            report.times(format!("{what}, last year"), (late, unit), base, most);
        };
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    line("database", "MiB", Some(1.1), &|m| mib(m.hot_bytes));
    line("database and its log", "MiB", Some(1.1), &|m| mib(m.hot_bytes + m.log_bytes));
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        line(&format!("insert {name}"), "ms", None, &|m| p(&m.insert, share));
        line(&format!("claim {name}"), "ms", None, &|m| p(&m.claim, share));
        line(&format!("settle {name}"), "ms", None, &|m| p(&m.settle, share));
        line(&format!("look-up by key {name}"), "ms", None, &|m| p(&m.by_key, share));
        line(&format!("look-up by id {name}"), "ms", None, &|m| p(&m.by_id, share));
    }
    let slowest = months.iter().map(|m| p(&m.by_key, 1.0)).fold(0.0, f64::max);
    report.at_most("look-up by key, the slowest", slowest, "ms", 50.0);
}

fn plot(months: &[Month]) {
    let all = |of: &dyn Fn(&Month) -> f64| months.iter().map(of).collect::<Vec<f64>>();
    let mib = f64::from(1 << 20);
    let panels = [
        Panel {
            title: "database, MiB",
            lines: vec![
                ("file", all(&|m| m.hot_bytes as f64 / mib)),
                ("log", all(&|m| m.log_bytes as f64 / mib)),
            ],
        },
        Panel { title: "archive, MiB", lines: vec![("", all(&|m| m.archive_bytes as f64 / mib))] },
        Panel {
            title: "p99, ms",
            lines: vec![
                ("insert", all(&|m| p(&m.insert, 0.99))),
                ("claim", all(&|m| p(&m.claim, 0.99))),
                ("settle", all(&|m| p(&m.settle, 0.99))),
            ],
        },
        Panel {
            title: "look-up in the archive p99, ms",
            lines: vec![
                ("by key", all(&|m| p(&m.by_key, 0.99))),
                ("by id", all(&|m| p(&m.by_id, 0.99))),
            ],
        },
    ];
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("years.svg");
    fs::write(&path, svg(&panels, 12)).unwrap();
    println!("  {}", path.display());
}

fn main() {
    if box_process::play() {
        return;
    }
    let Some(options) = rig::begin() else { return };
    let months = number("--months").unwrap_or(84);
    let usual = if options.full { 10_000_000 } else { options.pick(250 * months, 84_000) };
    let events = number("--events").unwrap_or(usual);
    let mut told = Report::new("years", options);
    let begun = Instant::now();
    println!(
        "  {months} months, {events} events; sizes in MiB, times in ms, moving in s\n  \
         mon     hot   log  archive  ins50  ins99  clm50  clm99  set50  set99   key50   key99    id99  moving"
    );
    let mut years = Years::new(options.pick(20, 100), options.pick(12, 1));
    let mut measured = Vec::new();
    for month in 0..months {
        let of_month = years.month(month, events / months);
        print(measured.len() + 1, &of_month);
        measured.push(of_month);
    }
    years.service.take().unwrap().stop();
    report(&mut told, &measured);
    plot(&measured);
    for (name, bytes) in largest(&years.data.join(DATABASE)) {
        told.line(format!("of the database: {name}"), bytes / f64::from(1 << 20), "MiB");
    }
    years.count_rest();
    let doubled = years.counted.doubled;
    let chain = trail(&years.data.join(DATABASE)).unwrap().unwrap().verify(&[]).unwrap();
    let came = years.sink.came.lock().unwrap();
    let unsent = (0..years.accepted).filter(|n| !came.has(*n)).count() as u64;
    let lost = unsent + years.counted.missing(years.accepted, years.pulled);
    told.line("events published", (years.accepted + years.pulled) as f64, "");
    told.line("sent to the target", came.sends as f64, "");
    told.line("answered 503 in outages", came.refused as f64, "");
    told.line("sent again after a kill, with the same webhook-id", came.repeated as f64, "");
    told.line("published again after a restore", years.restored as f64, "");
    told.line("the start that upgraded the schema", years.upgrade, "s");
    told.line("months that have a file", archive_files(&years.data).len() as f64, "");
    told.line("audit events in the chain", chain.rows as f64, "");
    told.line("minutes", begun.elapsed().as_secs_f64() / 60.0, "");
    told.at_most("lost", lost as f64, "", 0.0);
    told.at_most("sent twice", came.twice as f64, "", 0.0);
    told.at_most("in two files", doubled as f64, "", 0.0);
    told.at_most("breaks of the audit chain", chain.breaks.len() as f64, "", 0.0);
    let is_whole = lost + came.twice + doubled == 0 && chain.breaks.is_empty();
    drop((told, came));
    drop(fs::remove_dir_all(years.data.parent().unwrap()));
    if !is_whole {
        std::process::exit(1);
    }
}
