//! Random operations on a whole Oncebox, each step compared with a small model of what it should do.
//!
//! `ONCEBOX_SEED` repeats a run; `ONCEBOX_MODEL_SECONDS` says how long to go on with fresh seeds.

mod expected;

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use crate::rig::receiver::{Receiver, Reply};
use crate::rig::{Rig, START, file, secs};
use expected::{Model, State};
use serde_json::json;

/// Operations of one run.
const OPERATIONS: u32 = 60;
/// Counted attempts of a subscription's deliveries.
pub(crate) const ATTEMPTS: u32 = 4;
/// The answers that receivers give, the good one several times. What 429 and 401 lead to is tried in `tests/sim`.
const STATUSES: [u16; 8] = [200, 200, 200, 204, 500, 503, 400, 410];

/// Numbers from a seed: splitmix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn index(&mut self, end: usize) -> usize {
        self.below(end.try_into().unwrap()).try_into().unwrap()
    }
}

/// The product and the model, side by side.
struct Run {
    rig: Rig,
    model: Model,
    dice: Dice,
    receivers: Vec<(Receiver, Arc<Mutex<u16>>)>,
    log: String,
}

impl Run {
    fn new(seed: u64) -> Self {
        let rig = Rig::new();
        let mut receivers = Vec::new();
        for name in ["one", "two"] {
            let (receiver, status) = (Receiver::new(), Arc::new(Mutex::new(200)));
            let answered = Arc::clone(&status);
            receiver.decide(move |_| Reply::status(*answered.lock().unwrap()));
            let policy = json!({ "policy": { "max_attempts": ATTEMPTS, "breaker_after": 0 } });
            rig.subscribe_with(name, &receiver, &policy);
            receivers.push((receiver, status));
        }
        Self { rig, model: Model::new(2), dice: Dice(seed), receivers, log: String::new() }
    }

    fn note(&mut self, what: &str) {
        writeln!(self.log, "+{}s {what}", self.model.now_ms / 1000).unwrap();
    }

    fn operate(&mut self) {
        match self.dice.below(12) {
            0..=2 => self.publish(),
            3 => self.publish_again(),
            4 | 5 => self.answer_otherwise(),
            6 | 7 => self.advance(),
            8 => self.act_on_delivery("retry"),
            9 => self.act_on_delivery("cancel"),
            10 => self.act_on_subscription(),
            _ => self.restart(),
        }
        self.model.run();
        self.rig.settle();
    }

    fn publish(&mut self) {
        let key = self.model.events.len();
        self.note(&format!("publish {key}"));
        let line = self.rig.publish(&event(key));
        assert_eq!(line["already_processed"], false);
        self.model.publish();
    }

    fn publish_again(&mut self) {
        if self.model.events.is_empty() {
            return;
        }
        let key = self.dice.index(self.model.events.len());
        self.note(&format!("publish {key} again"));
        assert_eq!(self.rig.publish(&event(key))["already_processed"], true);
    }

    fn answer_otherwise(&mut self) {
        let which = self.dice.index(2);
        let status = STATUSES[self.dice.index(STATUSES.len())];
        self.note(&format!("receiver {which} answers {status}"));
        *self.receivers[which].1.lock().unwrap() = status;
        self.model.answers[which] = status;
    }

    fn advance(&mut self) {
        let span = [1, 5, 30, 60, 300, 1800, 14_400][self.dice.index(7)];
        self.note(&format!("{span} s pass"));
        // In steps to each due time, so that each attempt is made at its time.
        let end = self.model.now_ms + span * 1000;
        while let Some(next) = self.model.next_due().filter(|next| *next <= end) {
            self.step_to(next);
            self.model.run();
            self.rig.settle();
        }
        self.step_to(end);
    }

    /// A 410, or the fifth 400 in a row, stops what has not begun yet. Of several that are due at once nobody can say
    /// which those are: there, another answer is given.
    fn no_gone_for_many(&mut self, which: usize, at_ms: i64) {
        if matches!(self.model.answers[which], 400 | 410) && self.model.due(which, at_ms).len() > 1
        {
            *self.receivers[which].1.lock().unwrap() = 500;
            self.model.answers[which] = 500;
        }
    }

    fn step_to(&mut self, ms: i64) {
        for which in 0..2 {
            self.no_gone_for_many(which, ms);
        }
        let span = u64::try_from(ms - self.model.now_ms).unwrap();
        self.rig.advance(Duration::from_millis(span));
        self.model.now_ms = ms;
    }

    fn act_on_delivery(&mut self, verb: &str) {
        if self.model.deliveries.is_empty() {
            return;
        }
        let n = self.dice.index(self.model.deliveries.len());
        self.note(&format!("{verb} dlv_{}", n + 1));
        let path = format!("/v1/deliveries/dlv_{}/{verb}", n + 1);
        let status = self.rig.call("POST", &path, b"").status;
        let allowed = if verb == "retry" { self.model.retry(n) } else { self.model.cancel(n) };
        assert_eq!(status, if allowed { 200 } else { 409 });
    }

    fn act_on_subscription(&mut self) {
        let which = self.dice.index(2);
        let verb = if self.dice.below(3) == 0 { "pause" } else { "resume" };
        self.note(&format!("{verb} subscription {which}"));
        self.no_gone_for_many(which, self.model.now_ms);
        let path = format!("/v1/subscriptions/{}/{verb}", ["one", "two"][which]);
        self.rig.call("POST", &path, b"").is(200);
        if verb == "pause" {
            self.model.paused[which] = true;
        } else {
            self.model.paused[which] = false;
            self.model.disabled[which] = false;
            self.model.rejecting[which] = false;
        }
    }

    fn restart(&mut self) {
        self.note("restart");
        self.rig.restart();
    }

    fn compare(&self) {
        let sql = "SELECT d.seq - 1, d.state, coalesce(d.due_at, '-'), d.attempt_count,
                          d.counted_failures, d.run_no FROM deliveries AS d ORDER BY d.seq";
        assert_eq!(file::lines(&self.rig.file(), sql), self.model.delivery_lines(START.ms()));
        let sql = "SELECT row_number() OVER (ORDER BY seq) - 1, status FROM outbox ORDER BY seq";
        assert_eq!(file::lines(&self.rig.file(), sql), self.model.event_lines());
        for (which, (receiver, _)) in self.receivers.iter().enumerate() {
            assert_eq!(receiver.count(), self.model.sent[which], "requests to {which}");
        }
    }

    /// Makes every target well and lets time pass: nothing may be left open.
    fn finish(&mut self) {
        for which in 0..2 {
            *self.receivers[which].1.lock().unwrap() = 200;
            self.model.answers[which] = 200;
            self.model.paused[which] = false;
            self.model.disabled[which] = false;
            self.model.rejecting[which] = false;
            let path = format!("/v1/subscriptions/{}/resume", ["one", "two"][which]);
            self.rig.call("POST", &path, b"").is(200);
        }
        self.model.run();
        self.rig.settle();
        while let Some(next) = self.model.next_due() {
            self.step_to(next);
            self.model.run();
            self.rig.settle();
        }
        self.compare();
        let open = self.model.deliveries.iter().filter(|d| d.state == State::Pending).count();
        assert_eq!(open, 0);
    }
}

fn event(key: usize) -> serde_json::Value {
    json!({ "event_type": "a", "idempotency_key": key.to_string(), "payload": key })
}

fn run(seed: u64) {
    let mut run = Run::new(seed);
    let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for _ in 0..OPERATIONS {
            run.operate();
            run.compare();
        }
        run.finish();
    }));
    if let Err(panic) = checked {
        println!("ONCEBOX_SEED={seed} repeats this:\n{}", run.log);
        std::mem::forget(run);
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn random_operations_end_where_the_model_says() {
    if let Some(seed) = std::env::var("ONCEBOX_SEED").ok().and_then(|text| text.parse().ok()) {
        run(seed);
        return;
    }
    let span = std::env::var("ONCEBOX_MODEL_SECONDS").ok().and_then(|text| text.parse().ok());
    let (started, span) = (Instant::now(), secs(span.unwrap_or(5)));
    let first = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros();
    let first = u64::try_from(first).unwrap();
    let mut runs = 0;
    while runs == 0 || started.elapsed() < span {
        let seed = first.wrapping_add(runs);
        println!("seed {seed}");
        run(seed);
        runs += 1;
    }
    println!("{runs} runs of {OPERATIONS} operations");
}
