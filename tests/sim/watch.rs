//! What must hold in every world: looked at each time a request goes out, and at the end.

use std::collections::{BTreeMap, BTreeSet};

use oncebox::model::attempt::AttemptReport;
use oncebox::model::delivery::DeliveryState;
use oncebox::model::external_call::NewCall;
use oncebox::model::lease::LeaseOutcome;
use oncebox::model::outcome::Outcome;
use oncebox::store::leases::Held;

use crate::sim::dice::{DAY, HOUR, Ms, SECOND};
use crate::sim::file::{File, Row};
use crate::sim::jobs::Confirmation;

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
    /// Attempts whose wait for a confirmation has ended: run and number.
    ended: BTreeSet<(u32, u32)>,
}

/// What a target has of an entity, as far as anybody outside can tell.
#[derive(Clone, Debug, Default)]
struct Entity {
    sends: u32,
    /// The place of the newest delivery that it accepted, or may have.
    newest: Option<(Ms, i64)>,
    /// The state that it accepted last, or may have.
    content: Option<Vec<u8>>,
    /// That state, once its acceptance is stored.
    known: Option<Vec<u8>>,
}

/// A request that goes out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Send<'a> {
    pub(crate) row: &'a Row,
    /// The latest commit when its row was read.
    pub(crate) read_in: u64,
    pub(crate) boot: u32,
    pub(crate) now: Ms,
    /// Schedule time.
    pub(crate) schedule: Ms,
    /// The latest commit that this run of the process has learned of.
    pub(crate) told: u64,
    pub(crate) call: Option<&'a NewCall>,
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
    /// By subscription and entity.
    entities: BTreeMap<(i64, i64), Entity>,
    pub(crate) violation: Option<String>,
}

/// Rules of every file that are looked at after each commit, by their first words.
const AT_EACH_COMMIT: [&str; 2] = ["a lane has one head", "an event's status is"];

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

    pub(crate) fn sends(&mut self, send: Send<'_>, file: &File<'_>) {
        let Send { row, boot, now, told, .. } = send;
        self.clock(now, send.schedule);
        let name = format!("delivery {} of subscription {}", row.seq, row.sub);
        let by_a_person = file.holds[&row.sub].iter().find(|hold| hold.reason.is_by_a_person());
        if let Some(hold) = by_a_person.filter(|_| file.held_in(row.sub) <= told) {
            self.fail(format!("{name} is sent although it is held: {hold:?}"));
        }
        self.looks_at_lane(send, file, &name);
        self.looks_at_funnel(send, file, &name);
        self.looks_at_call(send, &name);
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

    /// In place of a request that was started and not sent, another one may start at once.
    pub(crate) fn finished(&mut self, sub: i64, was_sent: bool) {
        if !was_sent {
            self.slow.remove(&sub);
        }
    }

    fn looks_at_lane(&mut self, send: Send<'_>, file: &File<'_>, name: &str) {
        let Some(lane) = send.row.lane else { return };
        for other in file.rows.iter().filter(|row| row.lane == Some(lane)) {
            if other.seq == send.row.seq {
                continue;
            }
            let is_unsettled = self.track(other.seq).unsettled == Some(send.boot);
            if is_unsettled {
                self.fail(format!("{name} is sent while {} of its lane is", other.seq));
            }
            let is_before = other.place() < send.row.place();
            if is_before && other.is_standing() && other.since <= send.read_in {
                self.fail(format!("{name} is sent before {} of its lane", other.seq));
            }
            if other.state == DeliveryState::Waiting && other.waits_in <= send.read_in {
                self.fail(format!("{name} is sent while {} of its lane waits", other.seq));
            }
            let blocks = file.is_blocking(other) && !send.row.exclude_failed;
            if is_before && blocks && other.dead_in <= send.read_in {
                self.fail(format!("{name} is sent although {} blocks its lane", other.seq));
            }
        }
    }

    fn looks_at_funnel(&mut self, send: Send<'_>, file: &File<'_>, name: &str) {
        for other in file.rows.iter().filter(|row| row.funnel == send.row.funnel) {
            let is_other = send.row.funnel.is_some() && other.seq != send.row.seq;
            if is_other && self.track(other.seq).unsettled == Some(send.boot) {
                self.fail(format!("{name} is sent while {} of its funnel is", other.seq));
            }
            let fetched = self.track(send.row.seq).fetched.unwrap_or(file.commits);
            if is_other && other.state == DeliveryState::Waiting && other.waits_in <= fetched {
                self.fail(format!("{name} is sent while {} of its funnel waits", other.seq));
            }
        }
    }

    fn looks_at_call(&mut self, send: Send<'_>, name: &str) {
        let Some(call) = send.call else { return };
        let entity = self.entity(call);
        entity.sends += 1;
        let Entity { newest, known, .. } = entity.clone();
        if newest > Some(send.row.place()) {
            self.fail(format!("{name} is sent after {newest:?}, which is a newer state"));
        }
        if known.as_ref() == Some(&call.body_hash) {
            self.fail(format!("{name} is sent, and its state was accepted before"));
        }
    }

    /// An event without a time of its own is stored: it is newer than what a target has of its entity.
    pub(crate) fn arrives(&mut self, event: usize, file: &File<'_>) {
        for row in file.rows.iter().filter(|row| row.event == event) {
            let known = row.entity.and_then(|entity| self.entities.get(&(row.sub, entity)));
            let newest = known.and_then(|entity| entity.newest);
            if newest > Some(row.place()) {
                self.fail(format!(
                    "delivery {} arrives behind {newest:?}, which was sent",
                    row.seq
                ));
            }
        }
    }

    fn entity(&mut self, call: &NewCall) -> &mut Entity {
        self.entities.entry((call.subscription.0, call.entity)).or_default()
    }

    /// A target accepts an external call, or may have.
    pub(crate) fn accepts(&mut self, call: &NewCall, row: &Row) {
        let entity = self.entity(call);
        entity.newest = entity.newest.max(Some(row.place()));
        let state = Some(call.body_hash.clone());
        if entity.known != state {
            entity.known = None;
        }
        entity.content = state;
    }

    /// The acceptance of an external call is stored.
    pub(crate) fn accepted(&mut self, call: &NewCall) {
        let entity = self.entity(call);
        if entity.content.as_ref() == Some(&call.body_hash) {
            entity.known = Some(call.body_hash.clone());
        }
    }

    /// A confirmation is stored. `before` is its delivery as it was.
    pub(crate) fn confirmed(&mut self, confirmation: &Confirmation, before: &Held) {
        let n = (before.run_no, before.attempt_count);
        if confirmation.token.is_some_and(|token| token != n) {
            self.fail(format!("{confirmation:?} ends another wait: {n:?}"));
        }
        self.wait_ends(before);
        let track = self.track(before.delivery.0);
        track.refused |= matches!(confirmation.outcome, LeaseOutcome::Refused { .. });
        if confirmation.outcome != LeaseOutcome::Done {
            track.taken = None;
        }
    }

    /// A wait for a confirmation has ended without one. `before` is its delivery as it was.
    pub(crate) fn expired(&mut self, before: &Held) {
        if before.confirm_until.is_none_or(|until| until.ms() > self.latest) {
            self.fail(format!("a wait ends early: {before:?}"));
        }
        self.wait_ends(before);
        self.track(before.delivery.0).taken = None;
    }

    fn wait_ends(&mut self, before: &Held) {
        let n = (before.run_no, before.attempt_count);
        if before.state != DeliveryState::Waiting || !self.track(before.delivery.0).ended.insert(n)
        {
            self.fail(format!("the wait {n:?} of {} ends again", before.delivery));
        }
    }

    /// What must hold in the file after every commit.
    pub(crate) fn looks_at(&mut self, file: &File<'_>) {
        let mut held = BTreeSet::new();
        for row in file.rows.iter().filter(|row| row.state == DeliveryState::Waiting) {
            let is_free = |place: Option<i64>| place.is_none_or(|place| held.insert(place));
            if ![row.lane, row.funnel].map(is_free).iter().all(|is| *is) {
                self.fail(format!("delivery {} waits beside another one", row.seq));
            }
        }
        if let Some(what) = file.broken(|rule| AT_EACH_COMMIT.iter().any(|it| rule.starts_with(it)))
        {
            self.fail(what);
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
    pub(crate) fn settled(
        &mut self,
        report: &AttemptReport,
        (is_counted, is_disabled): (bool, bool),
        now: Ms,
    ) {
        let AttemptReport { delivery, subscription: sub, attempt, .. } = report;
        let name = format!("{delivery} of subscription {}", sub.0);
        let began = *self.failing.entry(sub.0).or_insert(now);
        let track = self.track(delivery.0);
        track.unsettled = None;
        let (at, forward) = track.answered;
        track.asked = track.asks.map(|span| Floor { at, forward, span });
        let (is_offline, is_real) = (track.is_offline, !track.is_offline);
        if is_offline && is_counted {
            self.fail(format!("an attempt of {name} without a line is counted"));
        }
        if attempt.class.is_success() || is_offline {
            self.failing.remove(&sub.0);
        }
        let is_too_early = attempt.http_status != Some(410) && now - began < DISABLED_AFTER_ALL;
        if is_disabled && is_too_early && is_real {
            let hours = (now - began) / HOUR;
            self.fail(format!("{name}: its subscription is disabled after {hours} h"));
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

    /// What its target asked for is over.
    pub(crate) fn is_freed(&mut self, delivery: i64) {
        self.track(delivery).asked = None;
    }

    /// The process has ended.
    pub(crate) fn killed(&mut self, file: &File<'_>) {
        for track in self.tracks.values_mut() {
            track.fetched = None;
        }
        // Whatever the target said to a call that was under way: nobody knows it any more.
        for call in file.open_calls() {
            self.entities.entry(call).or_default().known = None;
        }
    }

    /// All causes are gone, and time enough has passed: nothing is open, and nothing is dead without a reason.
    pub(crate) fn at_end(&mut self, file: &File<'_>) {
        for row in &file.rows {
            let Track { refused, sends, .. } = *self.track(row.seq);
            let sub = &file.subs[&row.sub];
            let key = (row.sub, row.entity.unwrap_or(row.seq));
            let called = self.entities.get(&key).is_some_and(|entity| entity.sends > 0);
            let most = row.max_attempts.unwrap_or_else(|| sub.rules.schedule.max_attempts());
            match row.state {
                DeliveryState::Completed if sends == 0 => {
                    self.fail(format!("delivery {} is completed and was never sent", row.seq));
                }
                DeliveryState::Skipped if row.is_call_spared() && !called => {
                    self.fail(format!("delivery {} is skipped without a call: {row:?}", row.seq));
                }
                DeliveryState::Waiting => self.fail(format!("delivery {} waits for ever", row.seq)),
                DeliveryState::DeadLetter if !refused && row.counted < most.min(8) => {
                    self.fail(format!("delivery {} is dead without a reason: {row:?}", row.seq));
                }
                _ => {}
            }
        }
        self.looks_at_states(file);
        if let Some(what) = file.broken(|_| true) {
            self.fail(what);
        }
    }

    /// Where nobody stopped a call, the target has the newest state of each entity.
    fn looks_at_states(&mut self, file: &File<'_>) {
        for ((sub, entity), Entity { content, .. }) in self.entities.clone() {
            let own: Vec<&Row> = file
                .rows
                .iter()
                .filter(|row| row.sub == sub && row.entity == Some(entity))
                .collect();
            let is_stopped =
                |row: &&&Row| row.state != DeliveryState::Completed && !row.is_call_spared();
            let Some(newest) = own.iter().max_by_key(|row| row.place()) else { continue };
            if !own.iter().any(|row| is_stopped(&row)) && content.as_ref() != Some(&newest.content)
            {
                self.fail(format!(
                    "the target of subscription {sub} has {content:?}, and {newest:?} is the newest"
                ));
            }
        }
    }
}
