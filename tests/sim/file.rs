//! The database file of the simulated world: committed rows, with the semantics of `store`.
//!
//! A statement here does what the SQL of the named function in `src/store` does. There is one writer, so a job runs when
//! its transaction is committed.

use std::collections::BTreeMap;

use std::time::Duration;

use oncebox::base::clock::Timestamp;
use oncebox::base::id::{DeliverySeq, SubscriptionSeq};
use oncebox::model::delivery::{Jitter, State};
use oncebox::model::failure::{
    AttemptResult, Facts, NewHold, Next, Rules, Streak, UNSEEN_AFTER, Verdict, judge,
};
use oncebox::model::hold::{Gate, Hold, HoldReason, gate};
use oncebox::model::lane::{HeadOfLine, Places};
use oncebox::model::outcome::AttemptClass;
use oncebox::store::deliveries::Due;
use oncebox::store::tx::Settled;

use crate::bug::Bug;

use crate::dice::{MINUTE, Ms};

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
    pub(crate) sub: i64,
    pub(crate) lane: Option<i64>,
    pub(crate) order_at: Ms,
    pub(crate) funnel: Option<i64>,
    /// Whether dead letters ahead of it do not block it.
    pub(crate) exclude_failed: bool,
    /// The commit that moved it to the end of its lane.
    pub(crate) moved_in: Option<u64>,
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
}

/// What others learn after a commit (`store::tx::Effects`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Effects {
    pub(crate) rang: Vec<SubscriptionSeq>,
    pub(crate) gates: Vec<(SubscriptionSeq, Gate)>,
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
            let Sub { group, has_funnel, .. } = self.subs[sub];
            let owner = group.map_or(*sub, |group| 500 + group);
            let lane = spec.key.filter(|_| has_lanes).map(|key| owner * 1000 + key);
            let funnel = spec.funnel.filter(|_| has_funnel).map(|value| 1_000_000 + value);
            let mut order_at = spec.earlier.map_or(now, |earlier| now - earlier);
            if let (Some(lane), None) = (lane, spec.earlier) {
                let counts = |row: &&Row| {
                    let blocks = row.state == State::DeadLetter && row.head;
                    row.lane == Some(lane) && (row.is_open() || blocks)
                };
                let last = self.rows.iter().filter(counts).map(|row| row.order_at).max();
                order_at = order_at.max(last.unwrap_or(order_at));
            }
            let due_at = now.max(not_before);
            self.rows.push(Row {
                seq,
                sub: *sub,
                lane,
                order_at,
                funnel,
                exclude_failed: spec.exclude_failed,
                moved_in: None,
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
        self.events.insert(event, made);
    }

    /// The delivery of a lane that goes next; `None` if none is open, or the lane is blocked.
    pub(crate) fn next_in(&self, lane: i64) -> Option<i64> {
        let of_lane = || self.rows.iter().filter(|row| row.lane == Some(lane));
        let front = of_lane().filter(|row| row.is_open()).min_by_key(|row| row.place())?;
        let is_blocked = self.bug != Some(Bug::BlockNotSeen)
            && !front.exclude_failed
            && of_lane().any(|row| row.is_blocking() && row.place() < front.place());
        (!is_blocked).then_some(front.seq)
    }

    /// `lanes::elect_head`
    fn elect_head(&mut self, lane: i64, now: Ms, effects: &mut Effects) {
        let next = self.next_in(lane);
        let heads =
            self.rows.iter().filter(|row| row.lane == Some(lane) && row.is_open() && row.head);
        let head = heads.map(|row| row.seq).next();
        if head == next {
            return;
        }
        if let Some(head) = head {
            self.at(head).head = false;
        }
        let Some(next) = next else { return };
        let row = self.at(next);
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

    /// `deliveries::due`
    pub(crate) fn due(&self, sub: i64, (now, limit): (Ms, u32), taken: &[i64]) -> Vec<Due> {
        let due = |row: &&Row| {
            row.sub == sub
                && row.is_open()
                && row.head
                && row.due_at.is_some_and(|at| at <= now)
                && row.funnel.is_none_or(|funnel| !taken.contains(&funnel))
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
        let (blocks, commits) = (self.subs[sub].head_of_line == HeadOfLine::Block, self.commits);
        let row = self.at(*delivery);
        row.attempts += 1;
        if row.state == State::Pending && row.run_no == *run_no {
            row.counted += u32::from(verdict.counted);
            match &verdict.next {
                Next::Retry(wait) => {
                    row.delay = i64::try_from(wait.as_millis()).unwrap();
                    row.due_at = Some(now + row.delay);
                }
                Next::Park(why) => park(row, why),
                // No subscription has a time to confirm.
                Next::Complete | Next::Confirm(_) => finish(row, State::Completed, None),
                Next::GiveUp(why) => {
                    finish(row, State::DeadLetter, Some(why));
                    (row.head, row.dead_in) = (blocks, commits);
                }
            }
            let failed = (verdict.class, Timestamp::from_ms(report.at));
            row.failure = (!verdict.class.is_success()).then_some(failed);
            row.alone += u32::from(verdict.is_alone);
        }
        let next_due = row.due_at;
        self.elect_after(*delivery, *now, effects);
        if !report.is_offline {
            let one_more = facts.extends_streak(verdict.class, tried.now);
            self.note_attempt(*sub, (verdict.class, one_more), Timestamp::from_ms(report.at));
        }
        if verdict.class.is_success() && self.bug != Some(Bug::HoldNotEnded) {
            for reason in [HoldReason::Auth, HoldReason::Breaker, HoldReason::Rejecting] {
                self.release(*sub, reason, effects);
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
    fn release(&mut self, sub: i64, reason: HoldReason, effects: &mut Effects) {
        let found = self.subs.get_mut(&sub).unwrap();
        let before = found.holds.len();
        found.holds.retain(|hold| hold.reason != reason);
        if found.holds.len() < before {
            self.changed(sub, effects);
            effects.subscriptions_changed |= reason.is_by_a_person();
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
            // What a person has to end, and no more: all else must end by itself.
            Deed::ResumeIfNeeded(sub) => {
                let needs = |hold: &Hold| hold.until.is_none() && hold.probe_at.is_none();
                if self.subs[&sub].holds.iter().any(needs) {
                    self.act(Deed::Resume(sub), now, at, effects);
                }
            }
            Deed::Resume(sub) => {
                for reason in HoldReason::ALL.into_iter().filter(|reason| reason.ends_by_resume()) {
                    self.release(sub, reason, effects);
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
                if matches!(row.state, State::Pending | State::DeadLetter) {
                    finish(row, State::Cancelled, Some("a person"));
                    self.elect_after(delivery, now, effects);
                }
            }
            Deed::Retry(_) | Deed::Cancel(_) => {}
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
                self.elect_after(delivery, now, effects);
            }
            Deed::Skip(delivery) if self.row(delivery).is_some() => {
                let row = self.at(delivery);
                if matches!(row.state, State::Pending | State::Parked | State::DeadLetter) {
                    finish(row, State::Skipped, Some("a person"));
                    self.elect_after(delivery, now, effects);
                }
            }
            Deed::Unpark(delivery)
                if self.row(delivery).is_some_and(|row| row.state == State::Parked) =>
            {
                let commits = self.commits;
                let row = self.at(delivery);
                row.state = State::Pending;
                row.due_at = Some(now.max(row.not_before));
                (row.delay, row.counted, row.since) = (0, 0, commits);
                let sub = row.sub;
                self.elect_after(delivery, now, effects);
                ring(effects, sub);
            }
            Deed::MoveToEnd(delivery) if self.row(delivery).is_some_and(is_open_in_lane) => {
                let (lane, commits) = (self.at(delivery).lane, self.commits);
                let of_lane = self.rows.iter().filter(|row| row.lane == lane && row.is_open());
                let last = of_lane.map(|row| row.order_at).max().unwrap_or_default();
                let row = self.at(delivery);
                (row.order_at, row.moved_in) = (last + 1, Some(commits));
                self.elect_after(delivery, now, effects);
            }
            _ => {}
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

/// Whether a subscription was called lately, so that it has failed since its first failure.
fn was_seen(sub: &Sub, at: Timestamp) -> bool {
    sub.last_failure_at.is_none_or(|last| at.since(last) <= UNSEEN_AFTER)
}

fn is_open_in_lane(row: &Row) -> bool {
    row.is_open() && row.lane.is_some()
}

fn park(row: &mut Row, why: &str) {
    finish(row, State::Parked, Some(why));
    row.head = false;
}

fn finish(row: &mut Row, state: State, why: Option<&str>) {
    row.state = state;
    row.due_at = None;
    row.reason = why.map(str::to_owned);
}
