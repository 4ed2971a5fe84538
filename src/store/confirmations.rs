//! Table `deliveries`, state `waiting`: the target has accepted a delivery and has to confirm that it is done.
//!
//! A confirmation that says `ok` completes the delivery. One that fails, or does not come in time, is stored as one more
//! attempt, without a request. What follows is decided and written as for the report of a consumer
//! ([`crate::store::consuming`]).

use crate::base::id::Draw;
use crate::model::attempt::Attempt;
use crate::model::delivery::DeliveryState;
use crate::model::failure::Next;
use crate::model::lease::{LeaseFacts, LeaseOutcome};
use crate::model::outcome::AttemptClass;
use crate::model::settlement::Settlement;
use crate::store::consuming::{self, Consumer, LeaseWork};
use crate::store::leases::Held;
use crate::store::prelude::*;
use crate::store::{attempts, settlement};

// Without INDEXED BY, SQLite chooses `deliveries_attention`, which is not in this order.
pub(super) const OVER: &str = "
    SELECT seq FROM deliveries INDEXED BY deliveries_confirmations
     WHERE state = 'waiting' AND confirm_until <= ?1
     ORDER BY confirm_until LIMIT ?2";

// If the end is later than now plus the time to confirm, a wrong clock set it.
pub(super) const CLAMP: &str = "
    UPDATE deliveries SET confirm_until = ?1 + delay_ms
     WHERE seq IN (
           SELECT seq
             FROM deliveries INDEXED BY deliveries_confirmations
            WHERE state = 'waiting'
              AND confirm_until > ?1
              AND confirm_until > ?1 + delay_ms
            LIMIT ?2)";

queries! {
    /// Deliveries whose time to confirm is over, the longest over first.
    pub fn over(now: Timestamp, limit: u32) -> Vec<DeliverySeq> = list OVER;
}

changes! {
    /// Corrects at most `limit` ends that a wrong clock set too far ahead; returns how many.
    pub fn clamp(now: Timestamp, limit: u32) -> usize = CLAMP;
}

/// Stores what became of a delivery that waits for its confirmation.
/// Fails with `Changed` if it does not wait.
pub fn settle(
    tx: &WriteTx<'_>,
    held: &Held,
    target: &Consumer,
    outcome: &LeaseOutcome,
    draw: &dyn Draw,
) -> Result<Settlement> {
    let facts = LeaseFacts { counted_failures: held.counted_failures, ..LeaseFacts::default() };
    let work = LeaseWork { started_at: target.wall, span: None };
    let mut settlement = consuming::settlement_of(held, target, work, outcome, &facts, draw);
    // The target has accepted the delivery, so that no hold follows.
    settlement.verdict.hold = None;
    consuming::store(tx, held, &settlement, false)?;
    if target.latest_only && settlement.verdict.next == Next::Complete {
        settlement::skip_older(tx, held.delivery, target.now)?;
    }
    Ok(settlement)
}

/// Whether this confirmation was the last thing that happened to the delivery.
pub fn is_repeated(tx: &ReadTx<'_>, held: &Held, outcome: &LeaseOutcome) -> Result<bool> {
    let class = match outcome {
        LeaseOutcome::Done => return Ok(held.state == DeliveryState::Completed),
        LeaseOutcome::Failed { .. } | LeaseOutcome::Away { .. } => AttemptClass::Transient,
        LeaseOutcome::Refused { .. } => AttemptClass::Validation,
    };
    let stands = matches!(
        held.state,
        DeliveryState::Pending | DeliveryState::DeadLetter | DeliveryState::Parked
    );
    let is_same = |last: Attempt| {
        let is_confirmation = last.url.is_empty() && last.class == class;
        is_confirmation && last.failed_reason.as_deref() == outcome.failed_reason()
    };
    Ok(stands && latest_attempt(tx, held)?.is_some_and(is_same))
}

/// What has happened to a delivery that does not wait for its confirmation.
pub fn why_not(tx: &ReadTx<'_>, held: &Held) -> Result<String> {
    let Held { delivery, state, .. } = held;
    let why = match held.reason.clone() {
        None => latest_attempt(tx, held)?.and_then(|last| last.failed_reason),
        reason => reason,
    };
    let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
    let rule = "only a delivery that waits for its confirmation can be confirmed";
    Ok(format!("{delivery} is {state}{why}; {rule}."))
}

fn latest_attempt(tx: &ReadTx<'_>, held: &Held) -> Result<Option<Attempt>> {
    Ok(attempts::of(tx, held.delivery, held.attempt_count.saturating_sub(1), 1)?.pop())
}
