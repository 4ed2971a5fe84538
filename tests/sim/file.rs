//! The database file of the simulated world: committed rows, with the semantics of `store`.
//!
//! A statement here does what the SQL of the named function in `src/store` does. There is one writer, so a job runs when
//! its transaction is committed.

use std::collections::BTreeMap;

use oncebox::base::clock::Timestamp;
use oncebox::base::id::{DeliverySeq, SubscriptionSeq};
use oncebox::model::delivery::{Next, Schedule, State};
use oncebox::model::subscription::HoldReason;
use oncebox::store::tx::Settled;

use crate::dice::{MINUTE, Ms};

/// How old the time of a job may be when it runs.
const LATE: Ms = MINUTE;

/// A hold, and the commit that put it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) reason: HoldReason,
    pub(crate) commit: u64,
}

/// A row of `subscriptions` with its rows of `holds`.
#[derive(Clone, Debug)]
pub(crate) struct Sub {
    pub(crate) seq: i64,
    pub(crate) tenant: &'static str,
    /// Requests in flight, where a person asked for a number.
    pub(crate) in_flight_max: Option<u32>,
    pub(crate) has_lanes: bool,
    pub(crate) schedule: Schedule,
    pub(crate) timeout: Ms,
    pub(crate) holds: Vec<Held>,
    pub(crate) failing_since: Option<Timestamp>,
    pub(crate) last_success_at: Option<Timestamp>,
}

/// A row of `deliveries`.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) seq: i64,
    pub(crate) sub: i64,
    pub(crate) lane: Option<i64>,
    pub(crate) order_at: Ms,
    pub(crate) state: State,
    pub(crate) due_at: Option<Ms>,
    pub(crate) delay: Ms,
    pub(crate) head: bool,
    pub(crate) run_no: u32,
    pub(crate) attempts: u32,
    pub(crate) counted: u32,
    pub(crate) not_before: Ms,
    pub(crate) max_attempts: Option<u32>,
    /// The commit that inserted or reopened it.
    pub(crate) since: u64,
    pub(crate) reason: Option<String>,
}

impl Row {
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Pending)
    }
}

/// An event as it is published.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// The subscriptions that match it.
    pub(crate) subs: Vec<i64>,
    /// What its lanes are made of.
    pub(crate) key: Option<i64>,
    /// How long it must wait.
    pub(crate) not_before: Option<Ms>,
    /// How much earlier it occurred, where the publisher says when.
    pub(crate) earlier: Option<Ms>,
    pub(crate) max_attempts: Option<u32>,
}

/// What a settlement stores, as the deliverer hands it in.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) delivery: i64,
    pub(crate) sub: i64,
    pub(crate) run_no: u32,
    pub(crate) success: bool,
    pub(crate) counted: bool,
    pub(crate) next: Next,
    /// The wait that the answer asked for.
    pub(crate) asked: Option<Ms>,
    pub(crate) now: Ms,
    pub(crate) wall: Ms,
}

/// What a person does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    Pause(i64),
    Resume(i64),
    /// A change of `in_flight_max`.
    Limit(i64, Option<u32>),
    Retry(i64),
    Cancel(i64),
}

/// What others learn after a commit (`store::tx::Effects`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Effects {
    pub(crate) rang: Vec<SubscriptionSeq>,
    pub(crate) settled: Vec<Settled>,
    pub(crate) subscriptions_changed: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    pub(crate) subs: BTreeMap<i64, Sub>,
    /// In the order of their numbers, from 1.
    pub(crate) rows: Vec<Row>,
    /// Events that were published, each with the numbers of its deliveries.
    pub(crate) events: BTreeMap<usize, Vec<i64>>,
    /// Transactions so far.
    pub(crate) commits: u64,
}

pub(crate) fn ring(effects: &mut Effects, sub: i64) {
    effects.rang.push(SubscriptionSeq(sub));
}

impl File {
    pub(crate) fn row(&self, seq: i64) -> Option<&Row> {
        self.rows.get(usize::try_from(seq).ok()?.checked_sub(1)?)
    }

    fn at(&mut self, seq: i64) -> &mut Row {
        &mut self.rows[usize::try_from(seq - 1).unwrap()]
    }

    /// `outbox::insert`, `deliveries::route`. A repeated publish changes nothing.
    pub(crate) fn publish(&mut self, event: usize, spec: &Spec, now: Ms, effects: &mut Effects) {
        if self.events.contains_key(&event) {
            return;
        }
        let not_before = spec.not_before.map_or(0, |wait| now + wait);
        let mut made = Vec::new();
        for sub in &spec.subs {
            let seq = i64::try_from(self.rows.len()).unwrap() + 1;
            let has_lanes = self.subs[sub].has_lanes;
            let lane = spec.key.filter(|_| has_lanes).map(|key| sub * 1000 + key);
            let mut order_at = spec.earlier.map_or(now, |earlier| now - earlier);
            if let (Some(lane), None) = (lane, spec.earlier) {
                let open = self.rows.iter().filter(|row| row.lane == Some(lane) && row.is_open());
                order_at = order_at.max(open.map(|row| row.order_at).max().unwrap_or(order_at));
            }
            let due_at = now.max(not_before);
            self.rows.push(Row {
                seq,
                sub: *sub,
                lane,
                order_at,
                state: State::Pending,
                due_at: Some(due_at),
                delay: 0,
                head: lane.is_none(),
                run_no: 1,
                attempts: 0,
                counted: 0,
                not_before,
                max_attempts: spec.max_attempts,
                since: self.commits,
                reason: None,
            });
            if let Some(lane) = lane {
                self.elect_head(lane, due_at, effects);
            }
            ring(effects, *sub);
            made.push(seq);
        }
        self.events.insert(event, made);
    }

    /// `deliveries::elect_head`
    fn elect_head(&mut self, lane: i64, now: Ms, effects: &mut Effects) {
        let open = || self.rows.iter().filter(|row| row.lane == Some(lane) && row.is_open());
        let head = open().find(|row| row.head).map(|row| row.seq);
        let smallest = open().min_by_key(|row| (row.order_at, row.seq)).map(|row| row.seq);
        let Some(smallest) = smallest else { return };
        if head == Some(smallest) {
            return;
        }
        if let Some(head) = head {
            self.at(head).head = false;
        }
        let row = self.at(smallest);
        row.head = true;
        if row.due_at.is_some_and(|due| due > now + row.delay + LATE) {
            row.due_at = Some((now + row.delay).max(row.not_before));
        }
        ring(effects, row.sub);
    }

    fn elect_after(&mut self, seq: i64, now: Ms, effects: &mut Effects) {
        if let Some(lane) = self.at(seq).lane {
            self.elect_head(lane, now, effects);
        }
    }

    /// `deliveries::due`, `deliveries::due_with_lane`
    pub(crate) fn due(&self, sub: i64, now: Ms, limit: u32) -> Vec<(DeliverySeq, Option<i64>)> {
        let has_lanes = self.subs[&sub].has_lanes;
        let due = |row: &&Row| {
            row.sub == sub && row.is_open() && row.head && row.due_at.is_some_and(|at| at <= now)
        };
        let mut due: Vec<&Row> = self.rows.iter().filter(due).collect();
        due.sort_by_key(|row| (row.due_at, row.seq));
        due.truncate(usize::try_from(limit).unwrap());
        due.iter().map(|row| (DeliverySeq(row.seq), row.lane.filter(|_| has_lanes))).collect()
    }

    /// `deliveries::next_due`
    pub(crate) fn next_due(&self, sub: i64, now: Ms) -> Option<Ms> {
        let open = self.rows.iter().filter(|row| row.sub == sub && row.is_open() && row.head);
        open.filter_map(|row| row.due_at).filter(|at| *at > now).min()
    }

    /// `settlement::settle`
    pub(crate) fn settle(&mut self, report: &Report, effects: &mut Effects) {
        let Report { delivery, sub, run_no, next, now, .. } = report;
        let row = self.at(*delivery);
        row.attempts += 1;
        let next_due = if row.state == State::Pending && row.run_no == *run_no {
            row.counted += u32::from(report.counted);
            match next {
                Next::Retry(wait) => {
                    row.delay = i64::try_from(wait.as_millis()).unwrap();
                    row.due_at = Some(now + row.delay);
                }
                Next::Complete => finish(row, State::Completed, None),
                Next::GiveUp(why) | Next::GiveUpAndDisable(why) => {
                    finish(row, State::DeadLetter, Some(why));
                }
            }
            let next_due = row.due_at;
            if matches!(next, Next::GiveUpAndDisable(_)) {
                self.hold(*sub, HoldReason::Disabled, effects);
            }
            self.elect_after(*delivery, *now, effects);
            next_due
        } else {
            row.due_at
        };
        let wall = Timestamp::from_ms(report.wall);
        let found = self.subs.get_mut(sub).unwrap();
        if report.success {
            found.last_success_at = Some(wall);
            found.failing_since = None;
        } else {
            found.failing_since = found.failing_since.or(Some(wall));
        }
        effects.settled.push(Settled {
            delivery: DeliverySeq(*delivery),
            subscription: SubscriptionSeq(*sub),
            next_due: next_due.map(Timestamp::from_ms),
        });
    }

    fn hold(&mut self, sub: i64, reason: HoldReason, effects: &mut Effects) {
        let commit = self.commits;
        let sub = self.subs.get_mut(&sub).unwrap();
        if sub.holds.iter().all(|hold| hold.reason != reason) {
            sub.holds.push(Held { reason, commit });
        }
        effects.subscriptions_changed = true;
    }

    /// What a person does; nothing where the state does not allow it.
    pub(crate) fn act(&mut self, deed: Deed, now: Ms, effects: &mut Effects) {
        match deed {
            Deed::Pause(sub) => self.hold(sub, HoldReason::Paused, effects),
            Deed::Resume(sub) => {
                self.subs.get_mut(&sub).unwrap().holds.clear();
                effects.subscriptions_changed = true;
            }
            Deed::Limit(sub, limit) => {
                self.subs.get_mut(&sub).unwrap().in_flight_max = limit;
                effects.subscriptions_changed = true;
            }
            Deed::Retry(delivery) if self.row(delivery).is_some() => {
                self.retry(delivery, now, effects);
            }
            Deed::Cancel(delivery) if self.row(delivery).is_some() => {
                let row = self.at(delivery);
                if matches!(row.state, State::Pending | State::DeadLetter) {
                    finish(row, State::Cancelled, Some("a person"));
                    self.elect_after(delivery, now, effects);
                }
            }
            Deed::Retry(_) | Deed::Cancel(_) => {}
        }
    }

    /// `settlement::retry`
    fn retry(&mut self, delivery: i64, now: Ms, effects: &mut Effects) {
        let commits = self.commits;
        let row = self.at(delivery);
        match row.state {
            State::Pending => {}
            State::DeadLetter | State::Cancelled => {
                row.state = State::Pending;
                row.reason = None;
                row.counted = 0;
                row.run_no += 1;
                row.head = row.lane.is_none();
                row.since = commits;
            }
            _ => return,
        }
        row.due_at = Some(now);
        row.delay = 0;
        let sub = row.sub;
        self.elect_after(delivery, now, effects);
        ring(effects, sub);
    }

    /// `deliveries::clamp_due_times`
    pub(crate) fn clamp(&mut self, sub: i64, now: Ms, effects: &mut Effects) {
        let mut moved = false;
        for row in self.rows.iter_mut().filter(|row| row.sub == sub && row.is_open() && row.head) {
            let latest = (now + row.delay).max(row.not_before);
            if row.due_at.is_some_and(|due| due > latest) {
                row.due_at = Some(latest);
                moved = true;
            }
        }
        if moved {
            ring(effects, sub);
        }
    }
}

fn finish(row: &mut Row, state: State, why: Option<&str>) {
    row.state = state;
    row.due_at = None;
    row.reason = why.map(str::to_owned);
}
