//! A whole Oncebox in this process: a directory of its own, a clock that stands still, real HTTP.
//!
//! Dropping the rig stops the service and checks the file it leaves behind.
#![allow(dead_code, reason = "each test program uses the part of the rig that it needs")]

pub(crate) mod contract;
pub(crate) mod executable;
pub(crate) mod file;
pub(crate) mod http;
pub(crate) mod port;
pub(crate) mod prelude;
pub(crate) mod process;
pub(crate) mod receiver;
pub(crate) mod smtp;
pub(crate) mod webdriver;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use oncebox::api::people::NewSession;
use oncebox::app::data_directory::{DATABASE, TOKEN_FILE};
use oncebox::app::{Appliance, Error, Injected};
use oncebox::base::clock::{Clock, ManualTime, Timestamp};
use oncebox::base::faults::Faults;
use oncebox::base::headers::Headers;
use oncebox::base::id::{Draw, SystemDraw};
use oncebox::config::Settings;
use oncebox::http::client::Sender;
use oncebox::http::message::{Head, Method};
use oncebox::pipeline::source_marks::SourceMarks;
use oncebox::sys::disk::{Gauge, Space};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use http::Answer;
use receiver::Receiver;

/// When every rig's clock starts: 2026-01-31T12:00:00Z.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_769_860_800);
/// The size of every rig's disk. Its reserve is 500 MB.
pub(crate) const DISK_TOTAL: u64 = 10_000_000_000;
/// No test waits longer than this for anything.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);
const ASKED_AFTER: Duration = Duration::from_millis(2);

/// Says that a test needs what this machine lacks. Where nothing may be skipped, that is a failure.
#[track_caller]
#[expect(clippy::print_stdout, reason = "who runs the tests has to see it")]
pub(crate) fn skipped(why: &str) {
    let everything = std::env::var_os("ONCEBOX_SKIP_NOTHING").is_some();
    assert!(!everything, "would be skipped: {why}");
    println!("skipped: {why}");
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Waits for something that another thread brings about. Asks less often with time: many tests wait side by side.
#[track_caller]
pub(crate) fn until(what: &str, holds: impl FnMut() -> bool) {
    until_asked_within(Duration::from_millis(25), what, holds);
}

#[track_caller]
fn until_asked_within(most: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "waited in vain: {what}");
        thread::sleep((started.elapsed() / 8).clamp(ASKED_AFTER, most));
    }
}

/// A field of a JSON value that is a text.
#[track_caller]
pub(crate) fn text(of: &Value, field: &str) -> String {
    of[field].as_str().unwrap_or_else(|| panic!("no {field} in {of}")).to_owned()
}

/// What stands between the spaces of a line.
pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// Asserts that a text has all these.
#[track_caller]
pub(crate) fn shows(text: &str, wanted: &[&str]) {
    for part in wanted {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

/// A JSON object with further fields.
pub(crate) fn merged(mut object: Value, more: &Value) -> Value {
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

/// Asserts fields of a JSON value. A dot in a name leads on: `actor.type`, `items.0`.
#[track_caller]
pub(crate) fn has(value: &Value, wanted: &Value) {
    for (path, wanted) in wanted.as_object().unwrap() {
        let found = value.pointer(&format!("/{}", path.replace('.', "/")));
        assert_eq!(found.unwrap_or(&Value::Null), wanted, "{path} of {value:#}");
    }
}

/// Real randomness, but for the jitter, which is as much of its span as the test says.
#[derive(Debug)]
struct RigDraw {
    system: SystemDraw,
    jitter_permille: AtomicU64,
}

impl Draw for RigDraw {
    fn fill(&self, into: &mut [u8]) {
        self.system.fill(into);
    }

    fn below(&self, end: u64) -> u64 {
        end.saturating_sub(1) * self.jitter_permille.load(Ordering::SeqCst) / 1000
    }
}

/// A running Oncebox and what a test needs to drive it.
pub(crate) struct Rig {
    appliance: Option<Appliance>,
    pub(crate) time: Arc<ManualTime>,
    draw: Arc<RigDraw>,
    disk_free: Arc<AtomicU64>,
    settings: Settings,
    faults: Faults,
    line: Option<Arc<dyn Sender>>,
    pub(crate) token: String,
    /// Looks at the database while the service runs: a new connection would read the whole schema for each question.
    looking: Mutex<Option<rusqlite::Connection>>,
    home: TempDir,
}

impl Rig {
    /// Loopback may be called, retries have no jitter, everything else is the default.
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// The same, with a receiver that gets everything of the outbox.
    #[track_caller]
    pub(crate) fn subscribed(name: &str) -> (Self, Receiver) {
        Self::subscribed_to(name, Receiver::new())
    }

    /// The same with a receiver that answers as it was told.
    #[track_caller]
    pub(crate) fn subscribed_to(name: &str, receiver: Receiver) -> (Self, Receiver) {
        Self::subscribed_with(name, receiver, &json!({}))
    }

    /// The same with further fields of the subscription.
    #[track_caller]
    pub(crate) fn subscribed_with(name: &str, to: Receiver, more: &Value) -> (Self, Receiver) {
        let rig = Self::new();
        rig.subscribe_with(name, &to, more);
        (rig, to)
    }

    /// The same with a receiver that answers when it is told to.
    #[track_caller]
    pub(crate) fn on_word(name: &str, more: &Value) -> (Self, Receiver, mpsc::Sender<u16>) {
        let (receiver, tell) = Receiver::on_word();
        let (rig, receiver) = Self::subscribed_with(name, receiver, more);
        (rig, receiver, tell)
    }

    /// The same with other settings.
    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::start(change, Faults::none()).unwrap()
    }

    /// The same with a planned failure.
    pub(crate) fn with_faults(change: impl FnOnce(&mut Settings), faults: Faults) -> Self {
        Self::start(change, faults).unwrap()
    }

    /// With a planned failure that may hit the start itself.
    pub(crate) fn try_with_faults(faults: Faults) -> Result<Self, Error> {
        Self::try_with(|_| {}, faults)
    }

    /// The same with other settings.
    pub(crate) fn try_with(
        change: impl FnOnce(&mut Settings),
        faults: Faults,
    ) -> Result<Self, Error> {
        Self::start(change, faults)
    }

    /// Settings it does not start with, and why.
    pub(crate) fn refused(change: impl FnOnce(&mut Settings)) -> Error {
        Self::start(change, Faults::none()).err().unwrap()
    }

    fn start(change: impl FnOnce(&mut Settings), faults: Faults) -> Result<Self, Error> {
        let home = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        settings.listen.api = SocketAddr::from(([127, 0, 0, 1], 0));
        settings.database.directory = home.path().join("data");
        settings.delivery.allow = vec!["127.0.0.0/8".parse().unwrap()];
        settings.delivery.deliverers = 8;
        change(&mut settings);
        let draw =
            Arc::new(RigDraw { system: SystemDraw::new(), jitter_permille: AtomicU64::new(0) });
        let time = ManualTime::at(START);
        let (token, disk_free) = (String::new(), Arc::new(AtomicU64::new(DISK_TOTAL / 2)));
        let mut rig = Self {
            appliance: None,
            time,
            draw,
            disk_free,
            settings,
            faults,
            line: None,
            token,
            looking: Mutex::default(),
            home,
        };
        rig.appliance = Some(rig.appliance_again()?);
        std::fs::read_to_string(rig.data().join(TOKEN_FILE))
            .unwrap()
            .trim()
            .clone_into(&mut rig.token);
        Ok(rig)
    }

    pub(crate) fn appliance(&self) -> &Appliance {
        self.appliance.as_ref().unwrap()
    }

    /// Stops it, and returns what made it end by itself.
    pub(crate) fn stop_failed(&mut self) -> Error {
        self.look_no_more();
        self.appliance.take().unwrap().stop().unwrap_err()
    }

    /// Starts another Oncebox on the same directory.
    pub(crate) fn appliance_again(&self) -> Result<Appliance, Error> {
        let free = Arc::clone(&self.disk_free);
        let look =
            move |_: &Path| Ok(Space { total: DISK_TOTAL, free: free.load(Ordering::SeqCst) });
        let injected = Injected {
            gauge: Gauge::new(look),
            clock: Clock::from_source(self.time.clone()),
            draw: self.draw.clone(),
            faults: self.faults.clone(),
            sender: self.line.clone(),
            // However slow the machine is, rows are read before a publish stops waiting for them.
            source_marks: SourceMarks::new(PATIENCE),
            ..Injected::default()
        };
        Appliance::start(self.settings.clone(), injected)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// Somewhere beside the data directory.
    pub(crate) fn home(&self) -> PathBuf {
        self.home.path().to_owned()
    }

    /// Stops it in order.
    pub(crate) fn stop(&mut self) {
        self.look_no_more();
        self.appliance.take().unwrap().stop().unwrap();
    }

    /// Starts it again with another line to the outside.
    pub(crate) fn restart_on(&mut self, line: Arc<dyn Sender>) {
        self.stop();
        self.line = Some(line);
        self.start_again();
    }

    /// Starts it again after a stop.
    pub(crate) fn start_again(&mut self) {
        self.appliance = Some(self.appliance_again().unwrap());
    }

    /// Stops it in order and starts it again, without planned failures.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.faults = Faults::none();
        self.start_again();
    }

    /// The same with other settings.
    pub(crate) fn restart_with(&mut self, change: impl FnOnce(&mut Settings)) {
        self.stop();
        change(&mut self.settings);
        self.start_again();
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.appliance.as_ref().unwrap().address()
    }

    /// Lets time pass.
    pub(crate) fn advance(&self, span: Duration) {
        self.time.advance(span);
        self.appliance.as_ref().unwrap().wake();
    }

    pub(crate) fn now(&self) -> Timestamp {
        Clock::from_source(self.time.clone()).wall()
    }

    /// How much room the disk has from now on; upkeep sees it within a second.
    pub(crate) fn disk_free(&self, bytes: u64) {
        self.disk_free.store(bytes, Ordering::SeqCst);
    }

    /// How much of its span the jitter adds from now on.
    pub(crate) fn jitter(&self, permille: u64) {
        self.draw.jitter_permille.store(permille, Ordering::SeqCst);
    }

    /// Waits until nothing is left to do before time passes.
    #[track_caller]
    pub(crate) fn settle(&self) {
        self.settle_at(self.now());
    }

    /// The same by a schedule that is not at the wall's time.
    #[track_caller]
    pub(crate) fn settle_at(&self, now: Timestamp) {
        let due = format!(
            "SELECT seq FROM deliveries AS d WHERE state = 'pending' AND head = 1 AND due_at <= {now}
                AND NOT EXISTS (SELECT 1 FROM subscriptions AS s
                                 WHERE s.seq = d.subscription_seq AND s.target_kind = 'pull')
                AND NOT EXISTS (SELECT 1 FROM holds AS h WHERE h.subscription_seq IN (d.subscription_seq, 0)
                                   AND coalesce(max(coalesce(h.until, h.probe_at), coalesce(h.probe_at, h.until)),
                                                {now} + 1) > {now})
                AND NOT EXISTS (SELECT 1 FROM tenants AS t
                                 WHERE t.name = d.tenant AND t.suspended_at IS NOT NULL)",
            now = now.ms()
        );
        until("everything due is sent and settled", || self.lines(&due).is_empty());
    }

    /// Lets time pass by as much again and again until this holds.
    #[track_caller]
    pub(crate) fn passing(&self, what: &str, span: Duration, mut holds: impl FnMut() -> bool) {
        until_asked_within(ASKED_AFTER, what, || {
            let is_there = holds();
            if !is_there {
                self.advance(span);
            }
            is_there
        });
    }

    /// Lets time pass, and waits until nothing is left to do.
    #[track_caller]
    pub(crate) fn pass(&self, span: Duration) {
        self.advance(span);
        self.settle();
    }

    /// Waits until so many requests are sent and settled.
    #[track_caller]
    pub(crate) fn sent(&self, receiver: &Receiver, count: usize) {
        until("it is sent", || receiver.count() == count);
        self.settle();
    }

    /// Waits until nothing is left to do, and asserts how many requests were sent.
    #[track_caller]
    pub(crate) fn has_sent(&self, receiver: &Receiver, count: usize) {
        self.settle();
        assert_eq!(receiver.count(), count, "{:?}", receiver.bodies());
    }

    /// Publishes an event of this type with nothing in it, and waits until nothing is left to do.
    #[track_caller]
    pub(crate) fn deliver(&self, event_type: &str) {
        self.publish_type(event_type);
        self.settle();
    }

    /// The database, for reading.
    pub(crate) fn file(&self) -> rusqlite::Connection {
        file::open(&self.data().join(DATABASE))
    }

    /// The database, as another program writes to it.
    pub(crate) fn writable(&self) -> rusqlite::Connection {
        let mut conn = rusqlite::Connection::open(self.data().join(DATABASE)).unwrap();
        // A transaction that reads first could fail at once.
        conn.set_transaction_behavior(rusqlite::TransactionBehavior::Immediate);
        conn.busy_timeout(Duration::from_mins(1)).unwrap();
        conn
    }

    /// Writes to it so.
    #[track_caller]
    pub(crate) fn write(&self, sql: &str) {
        self.writable().execute_batch(sql).unwrap();
    }

    /// A row of the outbox, inserted by another program.
    #[track_caller]
    pub(crate) fn insert(&self, payload: &str) {
        let sql = "INSERT INTO outbox (event_type, payload) VALUES ('a', ?1)";
        self.writable().execute(sql, [payload]).unwrap();
    }

    /// The rows of a query.
    #[track_caller]
    pub(crate) fn lines(&self, sql: &str) -> Vec<String> {
        if self.appliance.is_none() {
            return file::lines(&self.file(), sql);
        }
        let mut looking = self.looking.lock();
        file::lines(looking.get_or_insert_with(|| self.file()), sql)
    }

    /// Closes the connection of [`Rig::lines`]: the last one that closes tidies the file up.
    fn look_no_more(&self) {
        *self.looking.lock() = None;
    }

    /// Everything that is carried out, as text.
    pub(crate) fn dump(&self) -> String {
        file::dump(&self.file(), START.ms())
    }

    /// The one value of a query.
    pub(crate) fn one(&self, sql: &str) -> String {
        let mut lines = self.lines(sql);
        assert_eq!(lines.len(), 1, "{sql}: {lines:?}");
        lines.remove(0)
    }

    /// Asserts the one value of a query.
    #[track_caller]
    pub(crate) fn says(&self, sql: &str, value: &str) {
        assert_eq!(self.one(sql), value, "{sql}");
    }

    /// Waits until that is the one value of a query.
    #[track_caller]
    pub(crate) fn becomes(&self, sql: &str, value: &str) {
        until(sql, || self.one(sql) == value);
    }

    /// The state of a delivery in the file.
    pub(crate) fn state(&self, delivery: u32) -> String {
        self.one(&format!("SELECT state FROM deliveries WHERE seq = {delivery}"))
    }
}

/// The API, by its verbs.
impl Rig {
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let answer = http::send(self.address(), method, path, fields, body).unwrap();
        contract::check((method, path, body), &answer);
        answer
    }

    /// A request with the admin's token.
    pub(crate) fn call(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        self.call_as(&self.token, method, path, body)
    }

    pub(crate) fn call_as(&self, token: &str, method: &str, path: &str, body: &[u8]) -> Answer {
        let bearer = format!("Bearer {token}");
        self.send(method, path, &[("Authorization", &bearer)], body)
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Value {
        self.call("GET", path, b"").is(200).json()
    }

    #[track_caller]
    pub(crate) fn get_as(&self, token: &str, path: &str) -> Value {
        self.call_as(token, "GET", path, b"").is(200).json()
    }

    /// What a list has.
    #[track_caller]
    pub(crate) fn items(&self, path: &str) -> Vec<Value> {
        self.get(path)["items"].as_array().unwrap().clone()
    }

    /// The id of the first that a list has.
    #[track_caller]
    pub(crate) fn id(&self, path: &str) -> String {
        text(&self.get(path)["items"][0], "id")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_as(&self.token, path, body)
    }

    pub(crate) fn post_as(&self, token: &str, path: &str, body: &Value) -> Answer {
        self.call_as(token, "POST", path, body.to_string().as_bytes())
    }

    /// Events under the key of a request.
    pub(crate) fn post_keyed(&self, token: &str, key: &str, body: &str) -> Answer {
        let bearer = format!("Bearer {token}");
        let fields = [("Authorization", bearer.as_str()), ("Idempotency-Key", key)];
        self.send("POST", "/v1/events", &fields, body.as_bytes())
    }

    pub(crate) fn patch(&self, path: &str, body: &Value) -> Answer {
        self.call("PATCH", path, body.to_string().as_bytes())
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.call("DELETE", path, b"")
    }

    /// A subscription to everything of the outbox; returns its secret.
    #[track_caller]
    pub(crate) fn subscribe(&self, name: &str, receiver: &Receiver) -> String {
        self.subscribe_with(name, receiver, &json!({}))
    }

    /// A subscription with further fields; returns its secret.
    #[track_caller]
    pub(crate) fn subscribe_with(&self, name: &str, to: &Receiver, more: &Value) -> String {
        self.subscribe_as(merged(json!({ "name": name, "url": to.url() }), more))
    }

    /// A subscription of consumers that ask; returns its secret.
    #[track_caller]
    pub(crate) fn pull(&self, name: &str, more: &Value) -> String {
        self.subscribe_as(merged(json!({ "name": name, "target": "pull" }), more))
    }

    #[track_caller]
    fn subscribe_as(&self, body: Value) -> String {
        text(&self.post("/v1/subscriptions", &body).is(201).json(), "secret")
    }

    /// A source; returns what was made.
    #[track_caller]
    pub(crate) fn source(&self, name: &str, kind: &str, settings: &Value) -> Value {
        let body = json!({ "name": name, "kind": kind, "settings": settings });
        self.post("/v1/sources", &body).is(201).json()
    }

    /// Publishes one event, which must be accepted; returns its line of the answer.
    #[track_caller]
    pub(crate) fn publish(&self, body: &Value) -> Value {
        let answer = self.post("/v1/events", body);
        assert!(matches!(answer.status, 200 | 201), "{answer:?}");
        answer.json()["events"][0].clone()
    }

    /// Publishes an event of this type, with nothing in it.
    #[track_caller]
    pub(crate) fn publish_type(&self, event_type: &str) -> Value {
        self.publish(&json!({ "event_type": event_type, "payload": {} }))
    }

    /// Publishes an event of each of these types.
    #[track_caller]
    pub(crate) fn publish_types(&self, types: &[&str]) {
        for event_type in types {
            self.publish_type(event_type);
        }
    }

    /// Publishes an event of this type with further fields; returns its id.
    #[track_caller]
    pub(crate) fn publish_id(&self, event_type: &str, more: &Value) -> String {
        text(&self.publish(&merged(json!({ "event_type": event_type, "payload": {} }), more)), "id")
    }

    #[track_caller]
    pub(crate) fn provider(&self, name: &str, scheme: &Value, secret: &str) {
        let body = json!({ "name": name, "scheme": scheme, "pii": "allow", "secret": secret });
        self.post("/v1/providers", &body).is(201);
    }

    /// A provider that shows its secret in `X-Token`.
    #[track_caller]
    pub(crate) fn token_provider(&self, name: &str, secret: &str) {
        let check = json!({ "token": { "header": "X-Token" } });
        self.provider(name, &json!({ "kind": "generic", "check": check }), secret);
    }

    /// A token of that role.
    #[track_caller]
    pub(crate) fn token_of(&self, role: &str) -> String {
        self.token_in("default", role)
    }

    /// A token of that role in that tenant.
    #[track_caller]
    pub(crate) fn token_in(&self, tenant: &str, role: &str) -> String {
        let mut body = json!({ "name": role, "role": role, "tenant": tenant });
        if role == "publish" {
            body["source_systems"] = json!(["*"]);
            body["consumer_groups"] = json!(["*"]);
        }
        let made = self.post("/v1/tokens", &body).is(201).json();
        made["token"].as_str().unwrap().to_owned()
    }

    /// A user of the console in the tenant `default`, without a password.
    #[track_caller]
    pub(crate) fn user(&self, name: &str, role: &str) {
        self.post("/v1/users", &json!({ "name": name, "role": role })).is(201);
    }

    /// The head of a request of a browser.
    pub(crate) fn head(method: Method, path: &str) -> Head {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut headers = Headers::default();
        headers.push("user-agent", b"Firefox");
        Head {
            method,
            path: path.to_owned(),
            query: (!query.is_empty()).then(|| query.to_owned()),
            headers,
            door: 0,
            peer: SocketAddr::from(([192, 0, 2, 1], 40_000)),
            client: [192, 0, 2, 1].into(),
            request_id: "req-1".to_owned(),
        }
    }

    /// The secret of a new one-time link of a user.
    #[track_caller]
    pub(crate) fn link(&self, name: &str) -> String {
        let made = self.post(&format!("/v1/users/{name}/link"), &Value::Null).is(201).json();
        let url = made["url"].as_str().unwrap().to_owned();
        url.split_once("/console/enter?link=").unwrap().1.to_owned()
    }

    /// A session of a user, begun with a one-time link.
    #[track_caller]
    pub(crate) fn log_in_by_link(&self, name: &str) -> NewSession {
        let head = Self::head(Method::Post, "/console/enter");
        self.appliance().api().enter(&head, &self.link(name)).unwrap()
    }

    /// A new tenant; returns an admin token of it.
    #[track_caller]
    pub(crate) fn tenant(&self, name: &str) -> String {
        self.post("/v1/tenants", &json!({ "name": name, "pii": "allow" })).is(201);
        self.token_in(name, "admin")
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.look_no_more();
        let Some(appliance) = self.appliance.take() else { return };
        // A test that fails has said why; stopping could wait for what it left hanging.
        if thread::panicking() {
            std::mem::forget(appliance);
            return;
        }
        appliance.stop().unwrap();
        file::check(&self.data().join(DATABASE));
        let clean = self.one("SELECT stopped_at IS NOT NULL FROM boots ORDER BY seq DESC LIMIT 1");
        // A planned failure may have hit the note.
        assert!(clean == "1" || self.faults.happened(), "the stop was not noted");
    }
}
