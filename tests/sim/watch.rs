//! What must hold in every world: looked at each time a request goes out, and at the end.

use std::collections::BTreeMap;

use oncebox::model::delivery::State;
use oncebox::model::failure::{NewHold, Verdict};
use oncebox::model::outcome::Outcome;

use crate::dice::{DAY, HOUR, Ms, SECOND};
use crate::file::{File, Report, Row};

/// A wait that was promised to somebody, in the world's own time.
#[derive(Clone, Copy, Debug)]
struct Floor {
    /// When it began.
    at: Ms,
    /// How far schedule time had been set forward by then.
    forward: Ms,
    span: Ms,
}

/// What is known of a delivery.
#[derive(Clone, Debug, Default)]
struct Track {
    /// The run of the process that sent it and has not committed the outcome.
    unsettled: Option<u32>,
    /// The run of the process that was told 2xx.
    taken: Option<u32>,
    /// The commit after which the dispatcher got it.
    fetched: Option<u64>,
    asked: Option<Floor>,
    /// When its latest answer came, and how far schedule time had been set forward by then.
    answered: (Ms, Ms),
    /// What it asked for.
    asks: Option<Ms>,
    /// Whether its latest attempt began and ended without a line.
    is_offline: bool,
    /// Whether a person wanted it sent at once, which lifts `not_before` for good.
    wanted: bool,
    /// Answers that end a delivery for good.
    refused: bool,
    sends: u32,
}

/// A request that goes out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Send<'a> {
    pub(crate) row: &'a Row,
    pub(crate) boot: u32,
    pub(crate) now: Ms,
    /// Schedule time.
    pub(crate) schedule: Ms,
    /// The latest commit that this run of the process has learned of.
    pub(crate) told: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    tracks: BTreeMap<i64, Track>,
    /// Schedule time minus the world's own.
    offset: Option<Ms>,
    /// How far schedule time has been set forward in all.
    forward: Ms,
    /// The latest that schedule time ever was.
    latest: Ms,
    /// Since when a subscription has failed without a time without a line.
    failing: BTreeMap<i64, Ms>,
    /// The latest start of a subscription that takes a request a second, and the run of the process.
    slow: BTreeMap<i64, (Ms, u32)>,
    pub(crate) violation: Option<String>,
}

/// No subscription is disabled that has not failed for so long. Clocks that were set may be to blame for the rest of five
/// days.
const DISABLED_AFTER_ALL: Ms = DAY;

impl Watch {
    pub(crate) fn fail(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    fn track(&mut self, delivery: i64) -> &mut Track {
        self.tracks.entry(delivery).or_default()
    }

    /// Follows schedule time, which a clock that was set moves.
    pub(crate) fn clock(&mut self, now: Ms, schedule: Ms) {
        let offset = schedule - now;
        self.forward += (offset - self.offset.unwrap_or(offset)).max(0);
        self.offset = Some(offset);
        self.latest = self.latest.max(schedule);
    }

    pub(crate) fn fetched(&mut self, delivery: i64, commits: u64) {
        self.track(delivery).fetched.get_or_insert(commits);
    }

    pub(crate) fn sends(&mut self, send: Send<'_>, file: &File) {
        let Send { row, boot, now, told, .. } = send;
        self.clock(now, send.schedule);
        let name = format!("delivery {} of subscription {}", row.seq, row.sub);
        let sub = &file.subs[&row.sub];
        let by_a_person = sub.holds.iter().find(|hold| hold.reason.is_by_a_person());
        if let Some(hold) = by_a_person.filter(|_| sub.held_in <= told) {
            self.fail(format!("{name} is sent although it is held: {hold:?}"));
        }
        self.looks_at_lane(send, file, &name);
        self.looks_at_funnel(send, file, &name);
        let (latest, forward) = (self.latest, self.forward);
        let track = self.track(row.seq);
        let (unsettled, taken, asked) = (track.unsettled, track.taken, track.asked);
        let is_lifted = track.wanted;
        track.unsettled = Some(boot);
        track.sends += 1;
        if unsettled == Some(boot) {
            self.fail(format!("{name} is sent while its last attempt is not committed"));
        }
        if taken == Some(boot) {
            self.fail(format!("{name} is sent again although its 2xx was received"));
        }
        if latest < row.not_before && !is_lifted {
            self.fail(format!("{name} is sent {} ms early", row.not_before - latest));
        }
        if let Some(Floor { at, forward: before, span }) = asked {
            let waited = now - at + forward - before;
            if waited < span {
                self.fail(format!("{name} is sent after {waited} ms, and was to wait {span} ms"));
            }
        }
    }

    /// The dispatcher has started a request: so many are under way, of the subscription and in all.
    pub(crate) fn starts(
        &mut self,
        sub: i64,
        (own, most): (u32, Option<u32>),
        (all, deliverers): (usize, usize),
    ) {
        if most.is_some_and(|most| own > most.max(1)) {
            self.fail(format!("request {own} of subscription {sub} is started, of {most:?}"));
        }
        if all > deliverers {
            self.fail(format!("request {all} is started, of {deliverers}"));
        }
    }

    /// A request is started of a subscription that takes one a second.
    pub(crate) fn starts_slowly(&mut self, sub: i64, now: Ms, boot: u32) {
        let (now, before) = (now + self.forward, self.slow.insert(sub, (now + self.forward, boot)));
        if let Some((at, run)) = before
            && run == boot
            && now - at < SECOND
        {
            self.fail(format!("subscription {sub} is called again after {} ms", now - at));
        }
    }

    fn looks_at_lane(&mut self, send: Send<'_>, file: &File, name: &str) {
        let Some(lane) = send.row.lane else { return };
        let fetched = self.track(send.row.seq).fetched.unwrap_or(file.commits);
        for other in file.rows.iter().filter(|row| row.lane == Some(lane)) {
            if other.seq == send.row.seq {
                continue;
            }
            let is_unsettled = self.track(other.seq).unsettled == Some(send.boot);
            if is_unsettled {
                self.fail(format!("{name} is sent while {} of its lane is", other.seq));
            }
            // It may have been fetched before it was moved to the end.
            let is_moved = send.row.moved_in.is_some_and(|moved_in| moved_in >= fetched);
            let is_before = other.place() < send.row.place() && !is_moved;
            if is_before && other.is_open() && other.since < fetched {
                self.fail(format!("{name} is sent before {} of its lane", other.seq));
            }
            let blocks = other.is_blocking() && !send.row.exclude_failed;
            if is_before && blocks && other.dead_in < fetched {
                self.fail(format!("{name} is sent although {} blocks its lane", other.seq));
            }
        }
    }

    fn looks_at_funnel(&mut self, send: Send<'_>, file: &File, name: &str) {
        for other in file.rows.iter().filter(|row| row.funnel == send.row.funnel) {
            let is_other = send.row.funnel.is_some() && other.seq != send.row.seq;
            if is_other && self.track(other.seq).unsettled == Some(send.boot) {
                self.fail(format!("{name} is sent while {} of its funnel is", other.seq));
            }
        }
    }

    /// The process has the answer.
    pub(crate) fn answered(
        &mut self,
        delivery: i64,
        boot: u32,
        outcome: &Outcome,
        is_offline: bool,
        now: Ms,
    ) {
        let forward = self.forward;
        let track = self.track(delivery);
        track.answered = (now, forward);
        track.asks = outcome.retry_after().map(|wait| i64::try_from(wait.as_millis()).unwrap());
        track.is_offline = is_offline;
        match outcome.status() {
            Some(200..=299) => track.taken = Some(boot),
            Some(300..=499) => track.refused = true,
            _ => {}
        }
    }

    /// The outcome is committed.
    pub(crate) fn settled(&mut self, report: &Report, verdict: &Verdict, row: &Row, now: Ms) {
        let name = format!("delivery {} of subscription {}", row.seq, row.sub);
        let began = *self.failing.entry(row.sub).or_insert(now);
        let track = self.track(report.delivery);
        track.unsettled = None;
        let (at, forward) = track.answered;
        track.asked = track.asks.map(|span| Floor { at, forward, span });
        let (is_offline, is_real) = (track.is_offline, !track.is_offline);
        if is_offline && verdict.counted {
            self.fail(format!("an attempt of {name} without a line is counted"));
        }
        if report.class.is_success() || is_offline {
            self.failing.remove(&row.sub);
        }
        if let Some(NewHold::Disabled(why)) = &verdict.hold
            && report.status != Some(410)
            && now - began < DISABLED_AFTER_ALL
            && is_real
        {
            let hours = (now - began) / HOUR;
            self.fail(format!("{name}: its subscription is disabled after {hours} h: {why}"));
        }
    }

    /// The dispatcher knows that a delivery is settled, or that it is no longer to be sent.
    pub(crate) fn released(&mut self, delivery: i64) {
        self.track(delivery).fetched = None;
    }

    /// A person wants it sent now, whatever was asked for.
    pub(crate) fn is_wanted(&mut self, delivery: i64) {
        let track = self.track(delivery);
        track.asked = None;
        track.taken = None;
        track.wanted = true;
    }

    /// The process was killed.
    pub(crate) fn killed(&mut self) {
        for track in self.tracks.values_mut() {
            track.fetched = None;
        }
    }

    /// All causes are gone, and time enough has passed: nothing is open, and nothing is dead without a reason.
    pub(crate) fn at_end(&mut self, file: &File) {
        for row in &file.rows {
            let Track { refused, sends, .. } = *self.track(row.seq);
            let sub = &file.subs[&row.sub];
            let most = row.max_attempts.unwrap_or_else(|| sub.rules.schedule.max_attempts());
            match row.state {
                State::Completed if sends == 0 => {
                    self.fail(format!("delivery {} is completed and was never sent", row.seq));
                }
                State::DeadLetter if !refused && row.counted < most.min(8) => {
                    self.fail(format!("delivery {} is dead without a reason: {row:?}", row.seq));
                }
                _ => {}
            }
        }
    }
}
