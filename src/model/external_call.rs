//! Protection of external calls: no call for an older state after one for a newer state, and no state twice.
//!
//! Not here: what a call is about (`model::lane`), and its row (`store::external_calls`).

use schemars::JsonSchema;
use serde::Serialize;

use crate::base::clock::Timestamp;
use crate::base::id::{DeliverySeq, SubscriptionSeq};
use crate::base::schema::Text;
use crate::base::words::words;
use crate::model::attempt::Attempt;
use crate::model::lane::CallKey;
use crate::model::outcome::AttemptClass;

words! {
    /// The state of the latest call about an entity. Stored in `external_calls.state`.
    pub enum CallState as "ExternalCallState" {
        /// It is under way, or the service ended during it.
        Processing = "PROCESSING",
        /// The target accepted it.
        Ok = "OK",
        /// It failed and is tried again.
        Failed = "FAILED",
        /// It failed or was stopped, and is not tried again.
        FailedEnd = "FAILED_END",
    }
}

/// A call that is about to be made.
#[derive(Clone, Debug)]
pub struct NewCall {
    /// The delivery.
    pub delivery: DeliverySeq,
    /// Its subscription.
    pub subscription: SubscriptionSeq,
    /// The delivery's run.
    pub run_no: u32,
    /// What calls of the subscription are about.
    pub kind: CallKey,
    /// The number of what it is about.
    pub entity: i64,
    /// The text that names it.
    pub entity_key: String,
    /// The SHA-256 of its body, without the envelope of a format.
    pub body_hash: Vec<u8>,
    /// The method and the URL of its request; empty until that is built.
    pub sent: SentTo,
}

/// The method and the URL of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentTo {
    /// The method.
    pub method: String,
    /// The URL.
    pub url: String,
}

/// A call that the end of the service cut short: no answer came, and its attempt is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutCall {
    /// Its delivery.
    pub delivery: DeliverySeq,
    /// How many attempts of the delivery are stored.
    pub attempt_count: u32,
    /// When it began (wall time).
    pub began_at: Timestamp,
    /// The method of its request.
    pub method: Option<String>,
    /// The URL of its request.
    pub url: Option<String>,
}

/// Why a call that was cut short failed.
const CUT_SHORT: &str =
    "the service ended during this call: no answer is known, and the target may have accepted it";

impl CutCall {
    /// The attempt, as the history of the delivery has it. It does not count towards the attempts that are made.
    pub fn attempt(self, at: Timestamp) -> Attempt {
        Attempt {
            n: self.attempt_count.saturating_add(1),
            started_at: self.began_at,
            finished_at: at,
            url: self.url.unwrap_or_default(),
            class: AttemptClass::Transient,
            failed_reason: Some(CUT_SHORT.to_owned()),
            method: self.method,
            ..Attempt::default()
        }
    }
}

/// The newest call about an entity that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeCall {
    /// Its delivery.
    pub delivery: DeliverySeq,
    /// The delivery's place.
    pub order_at: Timestamp,
    /// The SHA-256 of its body; `None` if no answer came, so that nobody knows whether it was made.
    pub body_hash: Option<Vec<u8>>,
}

impl NewCall {
    /// Why the call must not be made, if it must not. `order_at` is its delivery's place.
    pub fn why_not(&self, order_at: Timestamp, made: &MadeCall) -> Option<String> {
        let Self { delivery, kind, body_hash, .. } = self;
        let by = made.delivery;
        if *kind == CallKey::Event {
            let why = "its event was sent before, and external_calls allows that once";
            return made.body_hash.is_some().then(|| why.to_owned());
        }
        if (made.order_at, by) > (order_at, *delivery) {
            let when = if made.body_hash.is_some() { "was" } else { "may have been" };
            return Some(format!("a call for a newer state {when} made: {by} (external_calls)"));
        }
        let is_same = made.body_hash.as_ref() == Some(body_hash);
        is_same.then(|| format!("the target has the same state already: {by} (external_calls)"))
    }
}

/// The latest call about an entity, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ExternalCall {
    /// What the call is about: an event's id, `type/id` of an entity, or the text at `call_path`.
    #[schemars(with = "Text<0, 400>")]
    pub entity_key: String,
    /// `PROCESSING`: it is under way, or was when the service ended. `FAILED`: it is tried again. `FAILED_END`: it was
    /// given up, skipped or cancelled.
    pub state: CallState,
    /// Failed calls about the entity since the last accepted call before this.
    pub failed_count: u32,
    /// Its delivery.
    pub delivery: DeliverySeq,
    /// The delivery whose state the target has accepted last; null if it has accepted none, or if no answer to a newer
    /// call came.
    pub made_by: Option<DeliverySeq>,
    /// The delivery of which nobody knows whether the target has accepted it, and that is not repeated. A person ends that.
    pub in_doubt: Option<DeliverySeq>,
    /// When the first call about the entity began.
    pub created_at: Timestamp,
    /// When the latest call began or ended.
    pub updated_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why_not(kind: CallKey, delivery: i64, at: i64, made_hash: Option<u8>) -> Option<String> {
        let call = NewCall {
            delivery: DeliverySeq(delivery),
            subscription: SubscriptionSeq(1),
            run_no: 1,
            kind,
            entity: 1,
            entity_key: "invoice/1".into(),
            body_hash: vec![1],
            sent: SentTo::default(),
        };
        let made = MadeCall {
            delivery: DeliverySeq(5),
            order_at: Timestamp::from_ms(100),
            body_hash: made_hash.map(|byte| vec![byte]),
        };
        call.why_not(Timestamp::from_ms(at), &made)
    }

    #[test]
    fn a_call_for_an_older_state_or_for_the_same_one_is_not_made() {
        for kind in [CallKey::Entity, CallKey::Custom] {
            // Older by time, and older by number at the same time.
            assert!(why_not(kind, 9, 99, Some(2)).unwrap().contains("was made: dlv_5"));
            assert!(why_not(kind, 4, 100, Some(2)).is_some());
            assert!(why_not(kind, 9, 99, None).unwrap().contains("may have been made"));
            // Newer, with another state, and with the same one.
            assert_eq!(why_not(kind, 6, 100, Some(2)), None);
            assert!(why_not(kind, 6, 100, Some(1)).unwrap().contains("the same state"));
            // After a crash, the interrupted call itself is repeated.
            assert_eq!(why_not(kind, 5, 100, None), None);
        }
    }

    #[test]
    fn an_event_is_sent_once() {
        assert!(why_not(CallKey::Event, 5, 100, Some(2)).is_some());
        assert_eq!(why_not(CallKey::Event, 5, 100, None), None);
    }
}
