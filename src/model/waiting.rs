//! Why a delivery waits: the answer to "why has this not gone out yet?".

use schemars::JsonSchema;
use serde::Serialize;

use crate::base::clock::Timestamp;
use crate::base::id::DeliverySeq;
use crate::base::words::words;
use crate::model::delivery::{Delivery, DeliveryState};
use crate::model::hold::{Hold, HoldReason};

words! {
    /// What a delivery waits for.
    pub enum WaitReason as "WaitingFor" {
        /// The end of its attempt, which is under way.
        Attempt = "attempt",
        /// The end of a hold.
        Hold = "hold",
        /// An earlier delivery of its lane.
        Earlier = "earlier",
        /// Its due time.
        Time = "time",
        /// A deliverer, or the rate of its subscription.
        Turn = "turn",
        /// A consumer fetches the delivery, or has leased it.
        Consumer = "consumer",
        /// The target, which has accepted it and has to confirm it.
        Confirmation = "confirmation",
        /// A person.
        Person = "person",
    }
}

/// Why a delivery waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Waiting {
    pub reason: WaitReason,
    /// The reason, for a person.
    pub detail: String,
    /// The earliest end of the wait; null if it is unknown.
    pub until: Option<Timestamp>,
    /// The hold that stops it.
    pub hold: Option<HoldReason>,
    /// The earlier delivery that it waits for.
    pub behind: Option<DeliverySeq>,
}

/// What is known about a delivery that waits.
#[derive(Clone, Copy, Debug)]
pub struct WaitContext<'a> {
    /// The delivery.
    pub delivery: &'a Delivery,
    /// The holds of its subscription.
    pub holds: &'a [Hold],
    /// Whether consumers fetch it.
    pub is_pull: bool,
    /// Since when an attempt is under way.
    pub in_flight_since: Option<Timestamp>,
    /// The rate limit of its subscription.
    pub rate: Option<&'a str>,
    /// Schedule time.
    pub now: Timestamp,
}

impl Waiting {
    fn of(reason: WaitReason, detail: impl Into<String>, until: Option<Timestamp>) -> Self {
        Self { reason, detail: detail.into(), until, hold: None, behind: None }
    }
}

/// Why a delivery waits; `None` if it has ended. `head` is the earlier delivery that it waits for.
pub fn waiting(context: WaitContext<'_>, head: Option<WaitContext<'_>>) -> Option<Waiting> {
    let WaitContext { delivery, holds, in_flight_since, now, .. } = context;
    Some(match delivery.state {
        DeliveryState::Completed
        | DeliveryState::DeadLetter
        | DeliveryState::Skipped
        | DeliveryState::Cancelled => return None,
        DeliveryState::Leased => {
            Waiting::of(WaitReason::Consumer, "a consumer has leased it", delivery.lease_until)
        }
        DeliveryState::Waiting => {
            let until = delivery.confirm_until;
            let end = until.map(|until| format!(" until {until}")).unwrap_or_default();
            let detail = format!("the target has to confirm it{end}");
            Waiting::of(WaitReason::Confirmation, detail, until)
        }
        DeliveryState::Parked => {
            Waiting::of(WaitReason::Person, "it is parked until a person acts", None)
        }
        DeliveryState::InDoubt => {
            let why = "it may have been sent before a restore: a person has to decide";
            Waiting::of(WaitReason::Person, why, None)
        }
        DeliveryState::Pending => match (in_flight_since, longest(holds, now)) {
            (Some(since), _) => {
                let detail = format!("an attempt is under way since {since}");
                Waiting::of(WaitReason::Attempt, detail, None)
            }
            (None, _) if delivery.is_behind => behind(head),
            (None, Some(hold)) => held(delivery, hold),
            (None, None) => return pending(context),
        },
    })
}

/// The hold that lasts longest.
pub fn longest(holds: &[Hold], now: Timestamp) -> Option<&Hold> {
    let ends = |hold: &Hold| hold.until.or(hold.probe_at).map_or(i64::MAX, Timestamp::ms);
    let standing = holds.iter().filter(|hold| hold.until.is_none_or(|until| until > now));
    standing.max_by_key(|hold| ends(hold))
}

fn held(delivery: &Delivery, hold: &Hold) -> Waiting {
    let name = &delivery.subscription;
    let reason = hold.reason.as_str();
    let end = match (hold.until, hold.probe_at) {
        (Some(until), _) => format!("; until {until}"),
        (None, Some(probe_at)) => format!("; one delivery is tried at {probe_at}"),
        (None, None) => String::new(),
    };
    let detail = format!("{name} is held ({reason}) since {}: {}{end}", hold.since, hold.detail);
    let until = hold.until.or(hold.probe_at);
    Waiting { hold: Some(hold.reason), ..Waiting::of(WaitReason::Hold, detail, until) }
}

/// An earlier delivery of its lane goes first. The detail says what that one waits for.
fn behind(head: Option<WaitContext<'_>>) -> Waiting {
    let Some(head) = head else {
        let detail = "an earlier delivery of its lane goes first";
        return Waiting::of(WaitReason::Earlier, detail, None);
    };
    let front = head.delivery;
    let first = format!("behind {} of {}", front.seq, front.about());
    let (detail, until, hold) = match waiting(head, None) {
        _ if front.state == DeliveryState::DeadLetter => {
            (format!("{first}: {}", blocked(front)), None, None)
        }
        Some(why) => (format!("{first}, which waits: {}", why.detail), why.until, why.hold),
        None => (first, None, None),
    };
    let behind = Some(front.seq);
    Waiting { hold, behind, ..Waiting::of(WaitReason::Earlier, detail, until) }
}

/// Why a lane waits behind a dead letter.
pub fn blocked(front: &Delivery) -> String {
    let why = front.reason.as_deref().unwrap_or("it failed");
    format!(
        "it was given up ({why}) and blocks its lane until a person retries, skips or cancels it"
    )
}

fn pending(context: WaitContext<'_>) -> Option<Waiting> {
    let WaitContext { delivery, is_pull, rate, now, .. } = context;
    let due = delivery.due_at?;
    let (reason, detail) = if due > now {
        let failed = match delivery.counted_failures {
            0 => String::new(),
            1 => " after one failed attempt".to_owned(),
            count => format!(" after {count} failed attempts"),
        };
        (WaitReason::Time, format!("the next attempt is at {due}{failed}"))
    } else if is_pull {
        let name = &delivery.subscription;
        (
            WaitReason::Consumer,
            format!("for a consumer to ask for it: oncebox consume {name} -- COMMAND"),
        )
    } else if let Some(rate) = rate {
        (WaitReason::Turn, format!("it is due; its subscription takes {rate} at most"))
    } else {
        (WaitReason::Turn, "it is due and starts when a deliverer is idle".to_owned())
    };
    Some(Waiting::of(reason, detail, (due > now).then_some(due)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(seq: i64, is_behind: bool) -> Delivery {
        Delivery {
            archived_in: None,
            seq: DeliverySeq(seq),
            tenant: "default".into(),
            event_id: String::new(),
            of_webhook_event: false,
            event_type: "invoice.paid".into(),
            aggregate_type: Some("invoice".into()),
            aggregate_id: Some("4711".into()),
            key: "k".into(),
            subscription: "erp".into(),
            state: DeliveryState::Pending,
            due_at: Some(Timestamp::from_secs(100)),
            lease_until: None,
            confirm_until: None,
            is_behind,
            attempt_count: 2,
            counted_failures: 2,
            last_class: None,
            http_status: None,
            latency_ms: None,
            run_no: 1,
            finished_at: None,
            reason: None,
            created_at: Timestamp::from_secs(1),
            lane: Some(7),
            order_at: Timestamp::from_secs(1),
            late: false,
            ordering_key: None,
        }
    }

    fn known<'a>(delivery: &'a Delivery, holds: &'a [Hold]) -> WaitContext<'a> {
        let now = Timestamp::from_secs(50);
        WaitContext { delivery, holds, is_pull: false, in_flight_since: None, rate: None, now }
    }

    #[test]
    fn a_delivery_waits_for_what_the_earlier_one_waits_for() {
        let front = delivery(17, false);
        let back = delivery(18, true);
        let hold = Hold {
            reason: HoldReason::Auth,
            since: Timestamp::from_secs(40),
            until: None,
            probe_at: Some(Timestamp::from_secs(70)),
            probe_no: 0,
            detail: "the target answered 401".into(),
        };
        let holds = [hold];
        let why = waiting(known(&back, &holds), Some(known(&front, &holds))).unwrap();
        assert_eq!((why.reason, why.behind), (WaitReason::Earlier, Some(DeliverySeq(17))));
        assert_eq!(why.hold, Some(HoldReason::Auth));
        assert!(
            why.detail
                .starts_with("behind dlv_17 of invoice/4711, which waits: erp is held (auth)")
        );
        assert!(why.detail.ends_with("one delivery is tried at 1970-01-01T00:01:10.000Z"));
    }

    #[test]
    fn without_a_hold_a_delivery_waits_until_it_is_due() {
        let front = delivery(17, false);
        let why = waiting(known(&front, &[]), None).unwrap();
        assert_eq!(why.reason, WaitReason::Time);
        assert!(why.detail.ends_with("after 2 failed attempts"), "{}", why.detail);
    }

    #[test]
    fn a_delivery_that_has_ended_waits_for_nothing() {
        let mut done = delivery(17, false);
        done.state = DeliveryState::Completed;
        assert_eq!(waiting(known(&done, &[]), None), None);
    }
}
