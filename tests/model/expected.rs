//! The model: what should become of events and deliveries, in memory and as plain as can be.

use crate::model::ATTEMPTS;

/// The waits after each counted failure, in milliseconds.
const STEPS: [i64; 5] = [5_000, 30_000, 300_000, 1_800_000, 14_400_000];

/// Refusals in a row after which a target is held.
const REJECTING_AFTER: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Pending,
    Completed,
    Dead,
    Cancelled,
}

#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) state: State,
    event: usize,
    target: usize,
    due_ms: i64,
    attempts: u32,
    failures: u32,
    run: u32,
}

#[derive(Debug)]
pub(crate) struct Model {
    /// After the start of the clock.
    pub(crate) now_ms: i64,
    pub(crate) events: Vec<()>,
    pub(crate) deliveries: Vec<Delivery>,
    pub(crate) answers: Vec<u16>,
    pub(crate) paused: Vec<bool>,
    pub(crate) disabled: Vec<bool>,
    /// Refusals in a row, with no success since.
    refusals: Vec<u32>,
    /// Whether a target refuses what it is sent.
    pub(crate) rejecting: Vec<bool>,
    /// Requests per target.
    pub(crate) sent: Vec<usize>,
}

impl Model {
    pub(crate) fn new(targets: usize) -> Self {
        Self {
            now_ms: 0,
            events: Vec::new(),
            deliveries: Vec::new(),
            answers: vec![200; targets],
            paused: vec![false; targets],
            disabled: vec![false; targets],
            refusals: vec![0; targets],
            rejecting: vec![false; targets],
            sent: vec![0; targets],
        }
    }

    pub(crate) fn publish(&mut self) {
        let event = self.events.len();
        self.events.push(());
        for target in 0..self.answers.len() {
            self.deliveries.push(Delivery {
                state: State::Pending,
                event,
                target,
                due_ms: self.now_ms,
                attempts: 0,
                failures: 0,
                run: 1,
            });
        }
    }

    /// Whether it is allowed, and if so, done.
    pub(crate) fn retry(&mut self, n: usize) -> bool {
        let delivery = &mut self.deliveries[n];
        match delivery.state {
            State::Completed => return false,
            State::Pending => {}
            State::Dead | State::Cancelled => {
                delivery.state = State::Pending;
                delivery.failures = 0;
                delivery.run += 1;
            }
        }
        delivery.due_ms = self.now_ms;
        true
    }

    /// Whether it is allowed, and if so, done.
    pub(crate) fn cancel(&mut self, n: usize) -> bool {
        let delivery = &mut self.deliveries[n];
        let allowed = matches!(delivery.state, State::Pending | State::Dead);
        if allowed {
            delivery.state = State::Cancelled;
        }
        allowed
    }

    fn is_callable(&self, target: usize) -> bool {
        !self.paused[target] && !self.disabled[target] && !self.rejecting[target]
    }

    /// When the next attempt is due that may be made.
    pub(crate) fn next_due(&self) -> Option<i64> {
        let open = self.deliveries.iter().filter(|d| d.state == State::Pending);
        open.filter(|d| self.is_callable(d.target)).map(|d| d.due_ms).min()
    }

    /// Makes every attempt that is due.
    pub(crate) fn run(&mut self) {
        for target in 0..self.answers.len() {
            let status = self.answers[target];
            for n in self.due(target, self.now_ms) {
                if !self.is_callable(target) {
                    break;
                }
                self.sent[target] += 1;
                self.attempt(n, status);
            }
        }
    }

    /// What is due for a target by then, in the order in which it is sent.
    pub(crate) fn due(&self, target: usize, at_ms: i64) -> Vec<usize> {
        let mut due: Vec<usize> = (0..self.deliveries.len())
            .filter(|n| {
                let delivery = &self.deliveries[*n];
                let waits = delivery.state == State::Pending && delivery.target == target;
                waits && delivery.due_ms <= at_ms
            })
            .collect();
        due.sort_by_key(|n| (self.deliveries[*n].due_ms, *n));
        due
    }

    fn attempt(&mut self, n: usize, status: u16) {
        let delivery = &mut self.deliveries[n];
        delivery.attempts += 1;
        if (200..300).contains(&status) {
            delivery.state = State::Completed;
            self.refusals[delivery.target] = 0;
            self.rejecting[delivery.target] = false;
            return;
        }
        let refusals = &mut self.refusals[delivery.target];
        *refusals = if status == 400 { *refusals + 1 } else { 0 };
        self.rejecting[delivery.target] |= *refusals >= REJECTING_AFTER;
        delivery.failures += 1;
        let refused = matches!(status, 400 | 410);
        if refused || delivery.failures >= ATTEMPTS {
            delivery.state = State::Dead;
        } else {
            delivery.due_ms = self.now_ms + STEPS[delivery.failures as usize - 1];
        }
        if status == 410 {
            self.disabled[delivery.target] = true;
        }
    }

    /// Number, state, due time, attempts, failures and run of each delivery.
    pub(crate) fn delivery_lines(&self, start_ms: i64) -> Vec<String> {
        let line = |(n, d): (usize, &Delivery)| {
            let (state, due) = match d.state {
                State::Pending => ("pending", (start_ms + d.due_ms).to_string()),
                State::Completed => ("completed", "-".to_owned()),
                State::Dead => ("dead_letter", "-".to_owned()),
                State::Cancelled => ("cancelled", "-".to_owned()),
            };
            format!("{n} {state} {due} {} {} {}", d.attempts, d.failures, d.run)
        };
        self.deliveries.iter().enumerate().map(line).collect()
    }

    /// Number and status of each event.
    pub(crate) fn event_lines(&self) -> Vec<String> {
        (0..self.events.len()).map(|event| format!("{event} {}", self.status(event))).collect()
    }

    fn status(&self, event: usize) -> &'static str {
        let of: Vec<&Delivery> = self.deliveries.iter().filter(|d| d.event == event).collect();
        let any = |state: State| of.iter().any(|d| d.state == state);
        let all_open = of.iter().all(|d| d.state == State::Pending);
        match (any(State::Pending), any(State::Dead), any(State::Completed)) {
            (true, ..) if of.iter().any(|d| d.state == State::Pending && d.failures > 0) => {
                "failed"
            }
            (true, ..) if all_open => "pending",
            (true, ..) => "processing",
            (false, true, _) => "dead_letter",
            (false, false, true) => "completed",
            (false, false, false) => "cancelled",
        }
    }
}
