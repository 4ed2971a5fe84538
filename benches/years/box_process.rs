//! The service in a process of its own, with a clock and a disk that the bench sets. It is killed like any process.
//!
//! The bench writes one command a line to its stdin; it answers each with a line of JSON.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use oncebox::app::data_directory::TOKEN_FILE;
use oncebox::app::{Appliance, Injected};
use oncebox::base::clock::{Clock, ManualTime, Timestamp};
use oncebox::base::faults::{Faults, Step};
use oncebox::base::id::SubscriptionSeq;
use oncebox::config::Settings;
use oncebox::store::deliveries;
use oncebox::sys::disk::{Gauge, Space};
use serde_json::{Value, json};

use crate::rig::wire;

/// The variable that makes this binary the service. It holds the data directory and the time, as JSON.
const PLAN: &str = "ONCEBOX_YEARS_BOX";
/// The size of the disk, of which a twentieth is the reserve.
const DISK_BYTES: u64 = 10_000_000_000;
/// The subscription that is measured is the first one.
const SUBSCRIPTION: SubscriptionSeq = SubscriptionSeq(1);
/// Rows of a claim.
const CLAIMED: u32 = 100;

/// The service, seen from the bench.
pub(crate) struct Service {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    data: PathBuf,
    address: String,
    token: String,
}

impl Service {
    pub(crate) fn start(data: &Path, now: Timestamp) -> Self {
        let plan = json!({ "data": data, "now": now.ms() });
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(PLAN, plan.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (output, data) = (BufReader::new(output), data.to_owned());
        let (address, token) = Default::default();
        let mut service = Self { child, input, output, data, address, token };
        service.told()["address"].as_str().unwrap().clone_into(&mut service.address);
        let token = std::fs::read_to_string(service.data.join(TOKEN_FILE)).unwrap();
        token.trim().clone_into(&mut service.token);
        service
    }

    fn told(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("the service ended"))
    }

    /// Gives a command.
    pub(crate) fn tell(&mut self, command: &str) -> Value {
        writeln!(self.input, "{command}").unwrap();
        self.told()
    }

    /// Asks the API; status and answer.
    pub(crate) fn try_ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        wire::ask(&self.address, method, path, &self.token, &body).unwrap()
    }

    /// Asks the API; what is not a success ends the bench.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.try_ask(method, path, body);
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }

    /// Stops it in order.
    pub(crate) fn stop(mut self) {
        writeln!(self.input, "stop").unwrap();
        assert!(self.child.wait().unwrap().success(), "the stop was not clean");
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Is the service, if this process was started as one.
pub(crate) fn play() -> bool {
    let Ok(plan) = std::env::var(PLAN) else { return false };
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let time = ManualTime::at(Timestamp::from_ms(plan["now"].as_i64().unwrap()));
    let (free, faults) = (Arc::new(AtomicU64::new(DISK_BYTES / 2)), Faults::stalling());
    let gauge = Arc::clone(&free);
    let injected = Injected {
        clock: Clock::from_source(time.clone()),
        faults: faults.clone(),
        gauge: Gauge::new(move |_| {
            Ok(Space { total: DISK_BYTES, free: gauge.load(Ordering::SeqCst) })
        }),
        ..Injected::default()
    };
    let mut settings = Settings::default();
    settings.listen.api = SocketAddr::from(([127, 0, 0, 1], 0));
    settings.database.directory = plan["data"].as_str().unwrap().into();
    settings.delivery.allow = vec!["127.0.0.0/8".parse().unwrap()];
    let appliance = Appliance::start(settings, injected).unwrap();
    println!("{}", json!({ "address": appliance.address().to_string() }));
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (verb, of) = line.split_once(' ').unwrap_or((&line, ""));
        let answer = match verb {
            "advance" => {
                time.advance(Duration::from_millis(of.parse().unwrap()));
                appliance.wake();
                json!({})
            }
            "free" => {
                free.store(if of == "none" { 0 } else { DISK_BYTES / 2 }, Ordering::SeqCst);
                json!({})
            }
            "fail" => {
                let steps = [("commit", Step::Commit), ("archive", Step::Archive)];
                faults.fail(steps.iter().find(|(name, _)| *name == of).map(|(_, step)| *step));
                json!({})
            }
            "due" => due(&appliance, of.parse().unwrap(), Clock::from_source(time.clone()).wall()),
            _ => break,
        };
        println!("{answer}");
    }
    appliance.stop().unwrap();
    true
}

/// Reads what is due as the dispatcher does, so many times: how many rows, and the times in microseconds.
fn due(appliance: &Appliance, times: usize, now: Timestamp) -> Value {
    let (mut count, mut spans) = (0, Vec::new());
    for _ in 0..times {
        let begun = Instant::now();
        let due =
            appliance.store().read(|tx| deliveries::due(tx, SUBSCRIPTION, now, CLAIMED, &[], None));
        spans.push(begun.elapsed().as_micros() as u64);
        count = due.unwrap().0.len();
    }
    json!({ "count": count, "spans": spans })
}
