//! Confirmations in the simulated file (`store::confirmations`, `pipeline::confirmations`).

use oncebox::base::clock::Timestamp;
use oncebox::model::delivery::{Jitter, State};
use oncebox::model::failure::Next;
use oncebox::model::lease::{LeaseOutcome, judge_lease};
use oncebox::model::outcome::AttemptClass;

use crate::bug::Bug;
use crate::dice::Ms;
use crate::file::{Effects, File, finish, park, ring};

/// What a target reports of a delivery that it has accepted.
#[derive(Clone, Debug)]
pub(crate) struct Confirmation {
    pub(crate) delivery: i64,
    /// The attempt that a confirm URL names: run and number.
    pub(crate) token: Option<(u32, u32)>,
    pub(crate) outcome: LeaseOutcome,
}

/// The answer (`pipeline::confirmations::Confirmed`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confirmed {
    Stored,
    Refused,
    TooEarly,
}

impl File {
    /// `Confirmations::settle`
    pub(crate) fn confirm(
        &mut self,
        (confirmation, is_early): (&Confirmation, bool),
        (jitter, now, at): (Jitter, Ms, Ms),
        effects: &mut Effects,
    ) -> Confirmed {
        let Confirmation { delivery, token, outcome } = confirmation;
        let row = self.row(*delivery).unwrap();
        let is_early = match token {
            None => is_early && row.state == State::Pending,
            Some((run_no, n)) => match row.state {
                State::Waiting if (row.run_no, row.attempts) == (*run_no, *n) => false,
                State::Waiting if self.bug == Some(Bug::ConfirmedByOldUrl) => false,
                State::Pending if (row.run_no, row.attempts + 1) == (*run_no, *n) => true,
                _ => return Confirmed::Refused,
            },
        };
        match row.state {
            State::Waiting => {
                self.end_wait(*delivery, outcome, (jitter, now, at), effects);
                Confirmed::Stored
            }
            _ if is_early => Confirmed::TooEarly,
            // What was stored before is answered as it was then, and changes nothing.
            _ => Confirmed::Refused,
        }
    }

    /// `confirmations::over`
    pub(crate) fn waits_over(&self, now: Ms) -> Vec<i64> {
        let over = self.rows.iter().filter(|row| row.confirm_until.is_some_and(|end| end <= now));
        over.map(|row| row.seq).collect()
    }

    /// When the next time to confirm is over.
    pub(crate) fn next_wait_over(&self) -> Option<Ms> {
        self.rows.iter().filter_map(|row| row.confirm_until).min()
    }

    /// `Confirmations::expire_one`; tells whether it was over.
    pub(crate) fn expire(
        &mut self,
        (delivery, over): (i64, Ms),
        (jitter, now, at): (Jitter, Ms, Ms),
        effects: &mut Effects,
    ) -> bool {
        // It may have been confirmed since it was read.
        let is_over = self.row(delivery).unwrap().confirm_until.is_some_and(|end| end <= over);
        if is_over {
            let reason = "not confirmed".to_owned();
            let outcome = LeaseOutcome::Failed { reason, wait: None, counted: true };
            self.end_wait(delivery, &outcome, (jitter, now, at), effects);
        }
        is_over
    }

    /// `consuming::store` of a confirmation
    fn end_wait(
        &mut self,
        delivery: i64,
        outcome: &LeaseOutcome,
        (jitter, now, at): (Jitter, Ms, Ms),
        effects: &mut Effects,
    ) {
        let row = self.row(delivery).unwrap();
        let (sub, counted, is_in_lane) = (row.sub, row.counted, row.lane.is_some());
        let rules = &self.subs[&sub].rules;
        let own = row.max_attempts.and_then(|n| rules.schedule.clone().with_max_attempts(n).ok());
        let schedule = own.as_ref().unwrap_or(&rules.schedule);
        let park_after = rules.park_after.filter(|_| is_in_lane);
        let verdict = judge_lease(outcome, counted, (schedule, park_after), jitter);
        let commits = self.commits;
        let row = self.at(delivery);
        row.attempts += u32::from(!verdict.class.is_success());
        row.counted += u32::from(verdict.counted);
        row.last_class = Some(verdict.class);
        row.confirm_until = None;
        match &verdict.next {
            Next::Retry(wait) => {
                row.delay = i64::try_from(wait.as_millis()).unwrap();
                (row.state, row.due_at) = (State::Pending, Some(now + row.delay));
                row.since = commits;
                ring(effects, sub);
            }
            Next::Park(why) => {
                row.delay = 0;
                park(row, why);
            }
            Next::Complete | Next::Confirm(_) => finish(row, State::Completed, None),
            Next::GiveUp(why) => self.give_up(delivery, why),
        }
        let row = self.at(delivery);
        let failed = (verdict.class, Timestamp::from_ms(at));
        row.failure = (verdict.class != AttemptClass::Success).then_some(failed);
        self.moved_on(delivery, now, effects);
        ring(effects, sub);
        if self.bug != Some(Bug::FunnelNotRung) {
            self.ring_funnels(effects);
        }
    }

    /// `confirmations::clamp`
    pub(crate) fn clamp_waits(&mut self, now: Ms) {
        for row in &mut self.rows {
            row.confirm_until = row.confirm_until.map(|until| until.min(now + row.delay));
        }
    }
}
