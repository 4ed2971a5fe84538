//! The database file of the simulated world: committed rows, with the semantics of `store`.
//!
//! A statement here does what the SQL of the named function in `src/store` does. There is one writer, so a job runs when
//! its transaction is committed.

use std::collections::BTreeMap;

use std::time::Duration;

use oncebox::base::clock::Timestamp;
use oncebox::base::id::{DeliverySeq, SubscriptionSeq};
use oncebox::model::delivery::{Jitter, State};
use oncebox::model::event::{Binding, EventOrder};
use oncebox::model::failure::{
    AttemptResult, Facts, NewHold, Next, Rules, Streak, UNSEEN_AFTER, Verdict, judge,
};
use oncebox::model::hold::{Gate, Hold, HoldReason, gate};
use oncebox::model::lane::{self, CallKey, HeadOfLine, Key, OrderTerms, Ordering, Places, Scope};
use oncebox::model::outcome::AttemptClass;
use oncebox::store::deliveries::Due;
use oncebox::store::tx::Settled;

use crate::bug::Bug;
use crate::calls::CallRow;
use crate::dice::{MINUTE, Ms};
use crate::family::EventRow;

/// The longest time that a hold lies ahead.
const LONGEST: Duration = Duration::from_hours(27);
/// How old the time of a job may be when it runs.
const LATE: Ms = MINUTE;

/// A row of `subscriptions` with its rows of `holds`.
#[derive(Clone, Debug)]
pub(crate) struct Sub {
    pub(crate) seq: i64,
    pub(crate) tenant: &'static str,
    /// Requests in flight, where a person asked for a number.
    pub(crate) in_flight_max: Option<u32>,
    pub(crate) has_lanes: bool,
    /// Subscriptions with the same one share their lanes.
    pub(crate) group: Option<i64>,
    pub(crate) head_of_line: HeadOfLine,
    pub(crate) has_funnel: bool,
    /// What its external calls are about, where they are protected.
    pub(crate) calls: Option<CallKey>,
    pub(crate) rules: Rules,
    /// Whether it takes a request a second at most.
    pub(crate) is_slow: bool,
    pub(crate) timeout: Ms,
    pub(crate) holds: Vec<Hold>,
    /// The commit that last changed its holds.
    pub(crate) held_in: u64,
    pub(crate) streak: Streak,
    pub(crate) failing_since: Option<Timestamp>,
    pub(crate) last_success_at: Option<Timestamp>,
    pub(crate) last_failure_at: Option<Timestamp>,
}

/// A row of `deliveries`.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) seq: i64,
    /// Its event.
    pub(crate) event: usize,
    pub(crate) sub: i64,
    pub(crate) lane: Option<i64>,
    pub(crate) order_at: Ms,
    pub(crate) funnel: Option<i64>,
    pub(crate) entity: Option<i64>,
    /// Whether dead letters ahead of it do not block it.
    pub(crate) exclude_failed: bool,
    /// The commit in which it became a dead letter.
    pub(crate) dead_in: u64,
    pub(crate) state: State,
    pub(crate) due_at: Option<Ms>,
    pub(crate) delay: Ms,
    pub(crate) head: bool,
    pub(crate) run_no: u32,
    pub(crate) attempts: u32,
    pub(crate) counted: u32,
    pub(crate) not_before: Ms,
    pub(crate) max_attempts: Option<u32>,
    /// When its time to be confirmed is over.
    pub(crate) confirm_until: Option<Ms>,
    /// The commit since which it waits for its confirmation.
    pub(crate) waits_in: u64,
    pub(crate) last_class: Option<AttemptClass>,
    /// The commit that inserted or reopened it.
    pub(crate) since: u64,
    pub(crate) reason: Option<String>,
    /// Its failure that is not resolved: the class and the time of its latest failed attempt.
    pub(crate) failure: Option<(AttemptClass, Timestamp)>,
    /// How often it failed while others passed.
    pub(crate) alone: u32,
}

impl Row {
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Pending)
    }

    /// Whether it stands in its lane.
    pub(crate) fn is_standing(&self) -> bool {
        matches!(self.state, State::Pending | State::Waiting | State::InDoubt)
    }

    /// Whether its lane waits behind it.
    pub(crate) fn is_blocking(&self) -> bool {
        self.state == State::DeadLetter && self.head && self.lane.is_some()
    }

    pub(crate) fn place(&self) -> (Ms, i64) {
        (self.order_at, self.seq)
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
    pub(crate) funnel: Option<i64>,
    pub(crate) exclude_failed: bool,
    /// What external calls are about, and its state.
    pub(crate) entity: Option<i64>,
    pub(crate) content: u8,
    /// The event that is its parent.
    pub(crate) parent: Option<(usize, Binding)>,
}

/// An attempt as the deliverer hands it in (`failure::AttemptReport`).
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) delivery: i64,
    pub(crate) sub: i64,
    pub(crate) run_no: u32,
    pub(crate) class: AttemptClass,
    pub(crate) status: Option<u16>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) rules: Rules,
    pub(crate) jitter: Jitter,
    pub(crate) is_probe: bool,
    pub(crate) is_offline: bool,
    /// Whether it is noted as an external call, and whether the target may have accepted it without an answer.
    pub(crate) call: Option<bool>,
    /// Schedule time.
    pub(crate) now: Ms,
    /// Wall time.
    pub(crate) at: Ms,
}

/// What a person does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    Pause(i64),
    Resume(i64),
    ResumeIfNeeded(i64),
    /// A change of `in_flight_max`.
    Limit(i64, Option<u32>),
    Retry(i64),
    Cancel(i64),
    Park(i64),
    Skip(i64),
    Unpark(i64),
    MoveToEnd(i64),
    /// Sends a completed delivery again.
    Replay(i64),
    /// Decides about each delivery in doubt.
    EndDoubt,
    Nothing,
}

/// What others learn after a commit (`store::tx::Effects`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Effects {
    pub(crate) rang: Vec<SubscriptionSeq>,
    pub(crate) gates: Vec<(SubscriptionSeq, Gate)>,
    pub(crate) settled: Vec<Settled>,
    /// Deliveries that are due now, whatever their targets asked for: their credential is accepted again, or a person has
    /// released them.
    pub(crate) freed: Vec<i64>,
    pub(crate) subscriptions_changed: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    pub(crate) subs: BTreeMap<i64, Sub>,
    /// In the order of their numbers, from 1.
    pub(crate) rows: Vec<Row>,
    /// Events that were published.
    pub(crate) events: BTreeMap<usize, EventRow>,
    /// External calls, by subscription and entity.
    pub(crate) calls: BTreeMap<(i64, i64), CallRow>,
    /// Transactions so far.
    pub(crate) commits: u64,
    /// The hold of the site without a line.
    pub(crate) offline: Option<Hold>,
    pub(crate) offline_in: u64,
    /// A planted bug.
    pub(crate) bug: Option<Bug>,
}

pub(crate) fn ring(effects: &mut Effects, sub: i64) {
    effects.rang.push(SubscriptionSeq(sub));
}

impl File {
    pub(crate) fn row(&self, seq: i64) -> Option<&Row> {
        self.rows.get(usize::try_from(seq).ok()?.checked_sub(1)?)
    }

    pub(crate) fn at(&mut self, seq: i64) -> &mut Row {
        &mut self.rows[usize::try_from(seq - 1).unwrap()]
    }

    /// `outbox::insert`, `deliveries::route`. A repeated publish changes nothing. Tells whether it is stored: not without
    /// its parent.
    pub(crate) fn publish(
        &mut self,
        event: usize,
        spec: &Spec,
        now: Ms,
        effects: &mut Effects,
    ) -> bool {
        if self.events.contains_key(&event) {
            return true;
        }
        if spec.parent.is_some_and(|(parent, _)| !self.events.contains_key(&parent)) {
            return false;
        }
        let not_before = spec.not_before.map_or(0, |wait| now + wait);
        let mut made = Vec::new();
        for sub in &spec.subs {
            let seq = i64::try_from(self.rows.len()).unwrap() + 1;
            let (Places { lane, funnel }, entity) = places(&self.subs[sub], spec);
            let mut order_at = spec.earlier.map_or(now, |earlier| now - earlier);
            if let (Some(entity), None) = (entity, spec.earlier) {
                order_at = self.call_place((*sub, entity), order_at);
            }
            if let (Some(lane), None) = (lane, spec.earlier) {
                let is_dead = |row: &Row| row.state == State::DeadLetter;
                let counts =
                    |row: &&Row| row.lane == Some(lane) && (row.is_standing() || is_dead(row));
                let last = self.rows.iter().filter(counts).map(|row| row.order_at).max();
                order_at = order_at.max(last.unwrap_or(order_at));
            }
            let due_at = now.max(not_before);
            self.rows.push(Row {
                seq,
                event,
                sub: *sub,
                lane,
                order_at,
                funnel,
                entity,
                exclude_failed: spec.exclude_failed,
                dead_in: 0,
                state: State::Pending,
                due_at: Some(due_at),
                delay: 0,
                head: lane.is_none(),
                run_no: 1,
                attempts: 0,
                counted: 0,
                not_before,
                max_attempts: spec.max_attempts,
                confirm_until: None,
                waits_in: 0,
                last_class: None,
                since: self.commits,
                reason: None,
                failure: None,
                alone: 0,
            });
            if let Some(lane) = lane {
                self.elect_head(lane, due_at, effects);
            }
            ring(effects, *sub);
            made.push(seq);
        }
        self.events.insert(event, EventRow::new(made, spec.content, spec.parent));
        self.join(event);
        true
    }

    /// The delivery of a lane that goes next; `None` if none is open, or the lane is blocked.
    pub(crate) fn next_in(&self, lane: i64) -> Option<i64> {
        let of_lane = || self.rows.iter().filter(|row| row.lane == Some(lane));
        let front = of_lane().filter(|row| row.is_standing()).min_by_key(|row| row.place())?;
        let is_blocked = self.bug != Some(Bug::BlockNotSeen)
            && !front.exclude_failed
            && of_lane().any(|row| row.is_blocking() && row.place() < front.place());
        (!is_blocked).then_some(front.seq)
    }

    fn head_of(&self, lane: i64) -> Option<&Row> {
        self.rows.iter().find(|row| row.lane == Some(lane) && row.is_standing() && row.head)
    }

    /// `lanes::elect_head`
    fn elect_head(&mut self, lane: i64, now: Ms, effects: &mut Effects) {
        let next = self.next_in(lane);
        let head = self.head_of(lane);
        let is_taken = head.is_some_and(|row| row.state == State::Waiting);
        let head = head.map(|row| row.seq);
        if head == next || (is_taken && self.bug != Some(Bug::WaitingDoesNotHold)) {
            return;
        }
        if let Some(head) = head {
            self.at(head).head = false;
        }
        let Some(next) = next else { return };
        self.promote(next, now);
        let sub = self.at(next).sub;
        ring(effects, sub);
    }

    fn promote(&mut self, next: i64, now: Ms) {
        let row = self.at(next);
        row.head = true;
        if row.due_at.is_some_and(|due| due > now + row.delay + LATE) {
            row.due_at = Some((now + row.delay).max(row.not_before));
        }
    }

    /// `lanes::hold`
    fn hold_lane(&mut self, lane: i64, delivery: i64, now: Ms) {
        let head = self.head_of(lane).map(|row| (row.seq, row.state == State::Waiting));
        match head {
            Some((head, is_taken)) if head == delivery || is_taken => return,
            Some((head, _)) => self.at(head).head = false,
            None => {}
        }
        self.promote(delivery, now);
    }

    /// Derives its event's status, and elects the head of its lane.
    pub(crate) fn moved_on(&mut self, seq: i64, now: Ms, effects: &mut Effects) {
        let event = self.at(seq).event;
        self.refresh(event);
        self.elect_after(seq, now, effects);
    }

    pub(crate) fn elect_after(&mut self, seq: i64, now: Ms, effects: &mut Effects) {
        if let Some(lane) = self.at(seq).lane {
            self.elect_head(lane, now, effects);
        }
    }

    /// `deliveries::due`
    pub(crate) fn due(&self, sub: i64, (now, limit): (Ms, u32), taken: &[i64]) -> Vec<Due> {
        let waits = |funnel| {
            let holds = |row: &Row| row.funnel == Some(funnel) && row.state == State::Waiting;
            self.rows.iter().any(holds)
        };
        let due = |row: &&Row| {
            row.sub == sub
                && row.is_open()
                && row.head
                && row.due_at.is_some_and(|at| at <= now)
                && row.funnel.is_none_or(|funnel| !taken.contains(&funnel) && !waits(funnel))
        };
        let mut due: Vec<&Row> = self.rows.iter().filter(due).collect();
        due.sort_by_key(|row| (row.due_at, row.seq));
        due.truncate(usize::try_from(limit).unwrap());
        let is_told = self.bug != Some(Bug::FunnelNotTold);
        let places = |row: &Row| Places { lane: row.lane, funnel: row.funnel.filter(|_| is_told) };
        due.iter().map(|row| (DeliverySeq(row.seq), places(row))).collect()
    }

    /// `deliveries::next_due`
    pub(crate) fn next_due(&self, sub: i64, now: Ms) -> Option<Ms> {
        let open = self.rows.iter().filter(|row| row.sub == sub && row.is_open() && row.head);
        open.filter_map(|row| row.due_at).filter(|at| *at > now).min()
    }

    /// `settlement::settle`; returns what was decided.
    pub(crate) fn settle(&mut self, report: &Report, effects: &mut Effects) -> Verdict {
        let Report { delivery, sub, run_no, now, .. } = report;
        let facts = self.facts(report);
        let tried = AttemptResult {
            class: report.class,
            reason: "it failed",
            http_status: report.status,
            retry_after: report.retry_after,
            is_probe: report.is_probe,
            is_offline: report.is_offline,
            jitter: report.jitter,
            now: Timestamp::from_ms(*now),
            at: Timestamp::from_ms(report.at),
        };
        let verdict = judge(&tried, &report.rules, &facts);
        if let Some(is_unknown) = report.call {
            self.end_call(report, (&verdict.next, is_unknown));
        }
        let row = self.at(*delivery);
        row.attempts += 1;
        if row.state == State::Pending && row.run_no == *run_no {
            row.counted += u32::from(verdict.counted);
            match &verdict.next {
                Next::Retry(wait) => {
                    row.delay = i64::try_from(wait.as_millis()).unwrap();
                    row.due_at = Some(now + row.delay);
                }
                Next::Park(why) => {
                    row.delay = 0;
                    park(row, why);
                }
                Next::Complete => finish(row, State::Completed, None),
                Next::Confirm(within) => self.wait(report, *within),
                Next::GiveUp(why) => self.give_up(*delivery, why),
            }
            let row = self.at(*delivery);
            row.last_class = Some(verdict.class);
            // What is only accepted has neither succeeded nor failed.
            if !report.is_offline && !matches!(verdict.next, Next::Confirm(_)) {
                let failed = (verdict.class, Timestamp::from_ms(report.at));
                row.failure = (!verdict.class.is_success()).then_some(failed);
                row.alone += u32::from(verdict.is_alone);
            }
            self.moved_on(*delivery, *now, effects);
        }
        let next_due = self.at(*delivery).due_at;
        if !report.is_offline {
            let one_more = facts.extends_streak(verdict.class, tried.now);
            self.note_attempt(*sub, (verdict.class, one_more), Timestamp::from_ms(report.at));
        }
        if verdict.class.is_success() && self.bug != Some(Bug::HoldNotEnded) {
            for reason in [HoldReason::Auth, HoldReason::Breaker, HoldReason::Rejecting] {
                if self.release(*sub, reason, effects) && reason == HoldReason::Auth {
                    self.retry_refused(*sub, report.at, effects);
                }
            }
        }
        self.hold_by(report, &verdict, effects);
        effects.settled.push(Settled {
            delivery: DeliverySeq(*delivery),
            subscription: SubscriptionSeq(*sub),
            next_due: next_due.map(Timestamp::from_ms),
        });
        verdict
    }

    /// `settlement::facts`
    fn facts(&self, report: &Report) -> Facts {
        if report.class.is_success() {
            return Facts::default();
        }
        let (sub, row) = (&self.subs[&report.sub], self.row(report.delivery).unwrap());
        let probe =
            |reason| sub.holds.iter().find(|hold| hold.reason == reason).map(|h| h.probe_no);
        Facts {
            counted_failures: row.counted,
            last_failure: row.failure,
            failures_alone: row.alone,
            is_in_lane: row.lane.is_some(),
            streak: sub.streak,
            failing_since: sub
                .failing_since
                .filter(|_| was_seen(sub, Timestamp::from_ms(report.at))),
            last_success_at: sub.last_success_at,
            auth_probe: probe(HoldReason::Auth),
            breaker_probe: probe(HoldReason::Breaker),
            rate_limited_until: sub.holds.iter().find_map(|hold| hold.until),
        }
    }

    /// `settlement::note_attempt`, `subscriptions::store_attempts`
    fn note_attempt(&mut self, sub: i64, (class, one_more): (AttemptClass, bool), at: Timestamp) {
        let sub = self.subs.get_mut(&sub).unwrap();
        if class.is_success() {
            sub.streak = Streak::default();
            sub.last_success_at = Some(at);
            sub.failing_since = None;
        } else {
            sub.streak = if one_more { sub.streak.and(class) } else { sub.streak };
            sub.failing_since = sub.failing_since.filter(|_| was_seen(sub, at)).or(Some(at));
            sub.last_failure_at = Some(at);
        }
    }

    /// `settlement::hold`
    fn hold_by(&mut self, report: &Report, verdict: &Verdict, effects: &mut Effects) {
        let since = Timestamp::from_ms(report.now);
        let new = |reason, until, probe_at, probe_no| {
            let detail = String::new();
            Hold { reason, since, until, probe_at, probe_no, detail }
        };
        match verdict.hold.clone() {
            None => {}
            Some(NewHold::Until(until)) => {
                self.put(report.sub, new(HoldReason::RateLimit, Some(until), None, 0), effects);
            }
            Some(NewHold::Probe { reason, at, failed }) => {
                self.put(report.sub, new(reason, None, Some(at), failed), effects);
            }
            Some(NewHold::Rejecting) => {
                self.put(report.sub, new(HoldReason::Rejecting, None, None, 0), effects);
                effects.subscriptions_changed = true;
            }
            Some(NewHold::Disabled(_)) => {
                // The time is the wall's, as in `settlement::disable`.
                let since = Timestamp::from_ms(report.at);
                let hold = Hold { since, ..new(HoldReason::Disabled, None, None, 0) };
                self.put(report.sub, hold, effects);
                effects.subscriptions_changed = true;
            }
        }
    }

    /// `holds::put`
    fn put(&mut self, sub: i64, hold: Hold, effects: &mut Effects) {
        let found = self.subs.get_mut(&sub).unwrap();
        if let Some(have) = found.holds.iter_mut().find(|have| have.reason == hold.reason) {
            have.until = have.until.max(hold.until);
            have.probe_at = hold.probe_at;
            have.probe_no = hold.probe_no;
        } else {
            found.holds.push(hold);
        }
        self.changed(sub, effects);
    }

    /// `holds::release`
    fn release(&mut self, sub: i64, reason: HoldReason, effects: &mut Effects) -> bool {
        let found = self.subs.get_mut(&sub).unwrap();
        let before = found.holds.len();
        found.holds.retain(|hold| hold.reason != reason);
        let is_released = found.holds.len() < before;
        if is_released {
            self.changed(sub, effects);
            effects.subscriptions_changed |= reason.is_by_a_person();
        }
        is_released
    }

    /// `deliveries::retry_refused`
    fn retry_refused(&mut self, sub: i64, at: Ms, effects: &mut Effects) {
        let is_refused = |row: &&mut Row| {
            let is_due = row.due_at.is_some_and(|due| due <= at);
            row.sub == sub
                && row.is_open()
                && row.head
                && !is_due
                && row.last_class == Some(AttemptClass::Auth)
        };
        for row in self.rows.iter_mut().filter(is_refused) {
            row.due_at = Some(at.max(row.not_before));
            effects.freed.push(row.seq);
            ring(effects, sub);
        }
    }

    /// `deliveries::wait`, `lanes::hold`
    fn wait(&mut self, report: &Report, within: Duration) {
        let (commits, now) = (self.commits, report.now);
        let row = self.at(report.delivery);
        row.state = State::Waiting;
        (row.due_at, row.waits_in) = (None, commits);
        row.delay = i64::try_from(within.as_millis()).unwrap();
        row.confirm_until = Some(now + row.delay);
        if let Some(lane) = row.lane {
            self.hold_lane(lane, report.delivery, now);
        }
    }

    /// `deliveries::finish`, `lanes::given_up`
    pub(crate) fn give_up(&mut self, delivery: i64, why: &str) {
        let (commits, sub) = (self.commits, self.at(delivery).sub);
        let blocks = self.subs[&sub].head_of_line == HeadOfLine::Block;
        let row = self.at(delivery);
        finish(row, State::DeadLetter, Some(why));
        row.dead_in = commits;
        if row.lane.is_some() {
            row.head = blocks;
        }
    }

    /// `holds::changed`
    fn changed(&mut self, sub: i64, effects: &mut Effects) {
        let commits = self.commits;
        let gate = self.gate(sub);
        self.subs.get_mut(&sub).unwrap().held_in = commits;
        if self.offline.is_some() {
            effects.subscriptions_changed = true;
        } else {
            effects.gates.push((SubscriptionSeq(sub), gate));
        }
    }

    /// What the holds of a subscription allow, that of the site included.
    pub(crate) fn gate(&self, sub: i64) -> Gate {
        let mut holds = self.subs[&sub].holds.clone();
        holds.extend(self.offline.clone());
        gate(&holds)
    }

    /// `line::go_offline`, `line::go_online`
    pub(crate) fn line(&mut self, is_down: bool, now: Ms, at: Ms, effects: &mut Effects) {
        self.offline = is_down.then(|| Hold {
            reason: HoldReason::Offline,
            since: Timestamp::from_ms(now),
            until: None,
            probe_at: None,
            probe_no: 0,
            detail: String::new(),
        });
        if !is_down {
            self.restart_failing(None, at);
        }
        self.offline_in = self.commits;
        effects.subscriptions_changed = true;
    }

    /// `subscriptions::restart_failing`
    pub(crate) fn restart_failing(&mut self, only: Option<i64>, at: Ms) {
        for sub in self.subs.values_mut().filter(|sub| only.is_none_or(|only| only == sub.seq)) {
            sub.failing_since = sub.failing_since.map(|_| Timestamp::from_ms(at));
        }
    }

    /// `settlement::end_over`
    pub(crate) fn end_over(&mut self, now: Ms, effects: &mut Effects) {
        let is_over = |sub: &&Sub| {
            sub.holds.iter().any(|hold| hold.until.is_some_and(|until| until.ms() <= now))
        };
        let over: Vec<i64> = self.subs.values().filter(is_over).map(|sub| sub.seq).collect();
        for sub in over {
            self.release(sub, HoldReason::RateLimit, effects);
        }
    }

    /// `holds::clamp`
    pub(crate) fn clamp_holds(&mut self, now: Ms, effects: &mut Effects) {
        if self.bug == Some(Bug::HoldsNotClamped) {
            return;
        }
        let now = Timestamp::from_ms(now);
        let mut moved = Vec::new();
        for sub in self.subs.values_mut() {
            for hold in &mut sub.holds {
                let latest = now.plus(LONGEST);
                let is_ahead = |at: Option<Timestamp>| at.is_some_and(|at| at > latest);
                let is_young = hold.since > now;
                if !is_young && !is_ahead(hold.until) && !is_ahead(hold.probe_at) {
                    continue;
                }
                let ahead = if is_young { hold.since.since(now) } else { Duration::ZERO };
                let from_now = |at: Timestamp| at.minus(ahead).min(latest);
                hold.until = hold.until.map(from_now);
                hold.probe_at = hold.probe_at.map(from_now);
                hold.since = hold.since.min(now);
                moved.push(sub.seq);
            }
        }
        for sub in moved {
            self.changed(sub, effects);
        }
    }

    /// A person resumes what a person has to end, and no more: all else must end by itself.
    pub(crate) fn resolved(&self, deed: Deed) -> Deed {
        let Deed::ResumeIfNeeded(sub) = deed else { return deed };
        let needs = |hold: &Hold| hold.until.is_none() && hold.probe_at.is_none();
        if self.subs[&sub].holds.iter().any(needs) { Deed::Resume(sub) } else { Deed::Nothing }
    }

    /// What a person does; nothing where the state does not allow it.
    pub(crate) fn act(&mut self, deed: Deed, now: Ms, at: Ms, effects: &mut Effects) {
        match deed {
            Deed::Pause(sub) => {
                let hold = Hold {
                    reason: HoldReason::Paused,
                    since: Timestamp::from_ms(now),
                    until: None,
                    probe_at: None,
                    probe_no: 0,
                    detail: String::new(),
                };
                self.put(sub, hold, effects);
                effects.subscriptions_changed = true;
            }
            Deed::Resume(sub) => {
                for reason in HoldReason::ALL.into_iter().filter(|reason| reason.ends_by_resume()) {
                    if self.release(sub, reason, effects) && reason == HoldReason::Auth {
                        self.retry_refused(sub, at, effects);
                    }
                }
                self.restart_failing(Some(sub), at);
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
                let (state, sub) = (row.state, row.sub);
                if row.is_standing() || matches!(state, State::Parked | State::DeadLetter) {
                    finish(row, State::Cancelled, Some("a person"));
                    if state == State::Waiting {
                        ring(effects, sub);
                        self.ring_funnels(effects);
                    }
                    self.moved_on(delivery, now, effects);
                }
            }
            Deed::Replay(delivery) => {
                if self.row(delivery).is_some_and(|row| row.state == State::Completed) {
                    self.reopen(delivery, now, effects);
                }
            }
            Deed::EndDoubt => self.end_doubt(now, effects),
            Deed::Retry(_) | Deed::Cancel(_) | Deed::ResumeIfNeeded(_) | Deed::Nothing => {}
            Deed::Park(_) | Deed::Skip(_) | Deed::Unpark(_) | Deed::MoveToEnd(_) => {
                self.act_in_lane(deed, now, effects);
            }
        }
    }

    /// `settlement::park`, `skip`, `release`, `move_to_end`
    fn act_in_lane(&mut self, deed: Deed, now: Ms, effects: &mut Effects) {
        match deed {
            Deed::Park(delivery) if self.row(delivery).is_some_and(is_open_in_lane) => {
                park(self.at(delivery), "a person");
                self.moved_on(delivery, now, effects);
            }
            Deed::Skip(delivery) if self.row(delivery).is_some() => {
                let row = self.at(delivery);
                if matches!(row.state, State::Pending | State::Parked | State::DeadLetter) {
                    finish(row, State::Skipped, Some("a person"));
                    self.moved_on(delivery, now, effects);
                }
            }
            Deed::Unpark(delivery)
                if self.row(delivery).is_some_and(|row| row.state == State::Parked) =>
            {
                self.unpark(delivery, now);
                effects.freed.push(delivery);
                self.moved_on(delivery, now, effects);
                let sub = self.at(delivery).sub;
                ring(effects, sub);
            }
            Deed::MoveToEnd(delivery) if self.row(delivery).is_some_and(is_open_in_lane) => {
                let lane = self.at(delivery).lane;
                let of_lane = self.rows.iter().filter(|row| row.lane == lane && row.is_standing());
                let last = of_lane.map(|row| row.order_at).max().unwrap_or_default();
                self.at(delivery).order_at = last + 1;
                self.elect_after(delivery, now, effects);
            }
            _ => {}
        }
    }

    /// `lanes::release`
    fn unpark(&mut self, delivery: i64, now: Ms) {
        let commits = self.commits;
        let row = self.at(delivery);
        (row.state, row.reason) = (State::Pending, None);
        row.due_at = Some(now.max(row.not_before));
        (row.delay, row.counted, row.since) = (0, 0, commits);
    }

    /// `settlement::retry`
    fn retry(&mut self, delivery: i64, now: Ms, effects: &mut Effects) {
        match self.at(delivery).state {
            State::Pending => {}
            State::Parked => self.unpark(delivery, now),
            State::DeadLetter | State::Cancelled | State::Skipped => {
                return self.reopen(delivery, now, effects);
            }
            _ => return,
        }
        let row = self.at(delivery);
        (row.due_at, row.delay) = (Some(now), 0);
        let sub = row.sub;
        self.moved_on(delivery, now, effects);
        ring(effects, sub);
    }

    /// `deliveries::reopen`, `deliveries::replay`
    fn reopen(&mut self, delivery: i64, now: Ms, effects: &mut Effects) {
        let commits = self.commits;
        let row = self.at(delivery);
        (row.state, row.reason) = (State::Pending, None);
        (row.due_at, row.delay, row.counted) = (Some(now), 0, 0);
        row.run_no += 1;
        row.head = row.lane.is_none();
        row.since = commits;
        let sub = row.sub;
        self.moved_on(delivery, now, effects);
        ring(effects, sub);
    }

    /// `lanes::ring_funnels`
    pub(crate) fn ring_funnels(&self, effects: &mut Effects) {
        for sub in self.subs.values().filter(|sub| sub.has_funnel) {
            ring(effects, sub.seq);
        }
    }

    /// `settlement::put_in_doubt` for all that is not sent: the process is down, and its file is restored.
    pub(crate) fn restore(&mut self, now: Ms) {
        self.commits += 1;
        let open = |row: &&Row| matches!(row.state, State::Pending | State::Waiting);
        let open: Vec<i64> = self.rows.iter().filter(open).map(|row| row.seq).collect();
        for seq in open {
            let row = self.at(seq);
            row.state = State::InDoubt;
            (row.due_at, row.confirm_until) = (None, None);
            self.moved_on(seq, now, &mut Effects::default());
        }
    }

    /// `settlement::release`, `skip`: a person releases what is in doubt, and every third was sent before.
    fn end_doubt(&mut self, now: Ms, effects: &mut Effects) {
        let doubtful = |row: &&Row| row.state == State::InDoubt;
        let doubtful: Vec<i64> = self.rows.iter().filter(doubtful).map(|row| row.seq).collect();
        for seq in doubtful {
            let commits = self.commits;
            let row = self.at(seq);
            if seq % 3 == 0 {
                finish(row, State::Skipped, Some("it was sent before the restore"));
            } else {
                row.state = State::Pending;
                (row.delay, row.since) = (0, commits);
                row.due_at = Some(now.max(row.not_before));
                let sub = row.sub;
                effects.freed.push(seq);
                ring(effects, sub);
            }
            self.moved_on(seq, now, effects);
        }
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

/// Whether a subscription was called lately, so that it has failed since its first failure.
fn was_seen(sub: &Sub, at: Timestamp) -> bool {
    sub.last_failure_at.is_none_or(|last| at.since(last) <= UNSEEN_AFTER)
}

fn is_open_in_lane(row: &Row) -> bool {
    row.is_open() && row.lane.is_some()
}

/// What `deliveries::matching` decides.
fn places(sub: &Sub, spec: &Spec) -> (Places, Option<i64>) {
    let terms = terms(sub);
    let ordering = if sub.has_lanes { Ordering::Key } else { Ordering::None };
    let scope = Scope {
        subscription: SubscriptionSeq(sub.seq),
        tenant: "default",
        ordering,
        terms: &terms,
    };
    let order = EventOrder {
        funnel_value: spec.funnel.map(|value| value.to_string()),
        entity_type: Some("thing".to_owned()),
        ..EventOrder::default()
    };
    let (key, id) = (spec.key.map(|n| n.to_string()), spec.entity.map(|n| n.to_string()));
    let key =
        Key { ordering_key: key.as_deref(), aggregate: (None, id.as_deref()), order: Some(&order) };
    let entity = lane::entity(scope, ("any", key), |_| None).map(|entity| entity.number);
    let call = entity.filter(|_| sub.calls.is_some());
    let funnel = call.or_else(|| lane::funnel(scope, key));
    (Places { lane: lane::lane(scope, key), funnel }, entity)
}

/// What `subscriptions.order_terms` would be.
pub(crate) fn terms(sub: &Sub) -> OrderTerms {
    OrderTerms {
        group: sub.group.map(|group| group.to_string()),
        head_of_line: sub.head_of_line,
        park_after: sub.rules.park_after,
        funnel_point: sub.has_funnel.then(|| "point".to_owned()),
        external_calls: sub.calls,
        ..OrderTerms::default()
    }
}

pub(crate) fn park(row: &mut Row, why: &str) {
    finish(row, State::Parked, Some(why));
    row.head = false;
}

pub(crate) fn finish(row: &mut Row, state: State, why: Option<&str>) {
    row.state = state;
    (row.due_at, row.confirm_until) = (None, None);
    row.reason = why.map(str::to_owned);
}
