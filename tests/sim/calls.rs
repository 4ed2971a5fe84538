//! External calls in the simulated file (`store::external_calls`, `store::superseded`).

use oncebox::base::clock::Timestamp;
use oncebox::base::id::{DeliverySeq, SubscriptionSeq};
use oncebox::model::delivery::State;
use oncebox::model::external_call::{CallState, MadeCall, NewCall};
use oncebox::model::failure::Next;
use oncebox::model::lane::CallKey;
use oncebox::store::tx::Settled;

use crate::bug::Bug;
use crate::dice::Ms;
use crate::file::{Effects, File, Report, Row, Sub, finish, ring};

/// A row of `external_calls`.
#[derive(Clone, Debug)]
pub(crate) struct CallRow {
    pub(crate) delivery: i64,
    pub(crate) hash: Vec<u8>,
    pub(crate) state: CallState,
    pub(crate) made: Option<MadeCall>,
}

/// `deliver::external_call`
pub(crate) fn external_call(sub: &Sub, row: &Row, content: u8) -> Option<NewCall> {
    let kind = sub.calls?;
    let entity = if kind == CallKey::Event { row.seq } else { row.entity? };
    Some(NewCall {
        delivery: DeliverySeq(row.seq),
        subscription: SubscriptionSeq(row.sub),
        run_no: row.run_no,
        kind,
        entity,
        entity_key: entity.to_string(),
        body_hash: vec![content],
    })
}

impl File {
    /// `external_calls::place`
    pub(crate) fn call_place(&self, (sub, entity): (i64, i64), order_at: Ms) -> Ms {
        let made = self.calls.get(&(sub, entity)).and_then(|call| call.made.as_ref());
        let open = |row: &&Row| {
            row.entity == Some(entity) && (row.is_standing() || row.state == State::Parked)
        };
        let open = self.rows.iter().filter(open).map(|row| row.order_at).max();
        let made = made.map(|made| made.order_at.ms());
        order_at.max(open.unwrap_or(order_at)).max(made.unwrap_or(order_at))
    }

    /// `external_calls::made`
    fn made(&self, call: &NewCall) -> Option<MadeCall> {
        let found = self.calls.get(&(call.subscription.0, call.entity))?;
        let own =
            self.bug == Some(Bug::InterruptedCallForgotten) && found.delivery == call.delivery.0;
        if found.state == CallState::Processing && !own {
            let order_at = Timestamp::from_ms(self.row(found.delivery)?.order_at);
            let delivery = DeliverySeq(found.delivery);
            return Some(MadeCall { delivery, order_at, body_hash: None });
        }
        found.made.clone()
    }

    /// `superseded::begin_call`; tells whether the call may be made.
    pub(crate) fn begin_call(&mut self, call: &NewCall, now: Ms, effects: &mut Effects) -> bool {
        let row = self.row(call.delivery.0).unwrap();
        let next_due = Some(Timestamp::from_ms(now));
        let NewCall { delivery, subscription, .. } = *call;
        let settled = Settled { delivery, subscription, next_due };
        let has_changed = row.state != State::Pending || !row.head || row.run_no != call.run_no;
        let is_held = self.bug != Some(Bug::HeldCallMade)
            && self.subs[&subscription.0].holds.iter().any(|hold| hold.reason.is_by_a_person());
        if has_changed || is_held {
            effects.settled.push(settled);
            return false;
        }
        let order_at = Timestamp::from_ms(row.order_at);
        let made = self.made(call);
        let why_not = made.as_ref().and_then(|made| call.why_not(order_at, made));
        if let Some(why) = why_not.filter(|_| self.bug != Some(Bug::OlderCallMade)) {
            self.advance(call, order_at);
            finish(self.at(delivery.0), State::Skipped, Some(&why));
            self.moved_on(delivery.0, now, effects);
            effects.settled.push(settled);
            ring(effects, subscription.0);
            return false;
        }
        let (hash, state) = (call.body_hash.clone(), CallState::Processing);
        let begun = CallRow { delivery: delivery.0, hash, state, made };
        self.calls.insert((subscription.0, call.entity), begun);
        true
    }

    /// `external_calls::advance`
    fn advance(&mut self, call: &NewCall, order_at: Timestamp) {
        let found = self.calls.get_mut(&(call.subscription.0, call.entity));
        let Some(CallRow { state, made: Some(made), .. }) = found else { return };
        let is_same = made.body_hash.as_ref() == Some(&call.body_hash);
        let is_older = (made.order_at, made.delivery) < (order_at, call.delivery);
        let is_known = *state != CallState::Processing && is_same && is_older;
        if is_known && self.bug != Some(Bug::SameStateForgotten) {
            (made.order_at, made.delivery) = (order_at, call.delivery);
        }
    }

    /// `settlement::end_call`, `external_calls::end`
    pub(crate) fn end_call(&mut self, report: &Report, (next, is_unknown): (&Next, bool)) {
        let row = self.row(report.delivery).unwrap();
        let (state, order_at) = (row.state, Timestamp::from_ms(row.order_at));
        let ended = match (next, state) {
            (Next::Complete | Next::Confirm(_), _) => CallState::Ok,
            (Next::Retry(_) | Next::Park(_), State::Pending | State::Parked) => CallState::Failed,
            (Next::Retry(_) | Next::Park(_) | Next::GiveUp(_), _) => CallState::FailedEnd,
        };
        let is_own = |sub: i64, call: &CallRow| {
            sub == report.sub
                && call.delivery == report.delivery
                && call.state == CallState::Processing
        };
        for ((sub, _), call) in &mut self.calls {
            if !is_own(*sub, call) {
                continue;
            }
            call.state = ended;
            if ended == CallState::Ok || is_unknown {
                let body_hash = (ended == CallState::Ok).then(|| call.hash.clone());
                let delivery = DeliverySeq(report.delivery);
                call.made = Some(MadeCall { delivery, order_at, body_hash });
            }
        }
    }
}
