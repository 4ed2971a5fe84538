//! Table `deliveries`, leases of pull consumers: taken, extended, settled, expired.
//!
//! Each function here changes one row. [`crate::store::consuming`] combines them with changes of other tables.

use std::time::Duration;

use crate::base::clock::millis;
use crate::model::attempt::AttemptReport;
use crate::model::delivery::DeliveryState;
use crate::model::settlement::Settlement;
use crate::store::column::Millis;
use crate::store::deliveries::Origin;
use crate::store::prelude::*;

// octet_length does not read the payload itself.
pub(super) const DUE_WITH_SIZE: &str = "
    SELECT d.seq, d.attempt_count,
           coalesce(octet_length(o.payload), octet_length(w.payload), octet_length(p.body), 0)
      FROM deliveries AS d
      LEFT JOIN outbox AS o ON o.seq = d.outbox_seq
      LEFT JOIN webhook_events AS w ON w.seq = d.webhook_seq
      LEFT JOIN payloads AS p ON p.seq = coalesce(o.payload_seq, w.payload_seq)
     WHERE d.subscription_seq = ?1 AND d.state = 'pending' AND d.head = 1 AND d.due_at <= ?2
     ORDER BY d.due_at, d.seq LIMIT ?3";

pub(super) const LEASE: &str = "
    UPDATE deliveries
       SET state = 'leased', due_at = NULL, lease_until = ?2, lease_owner = ?3, delay_ms = ?4
     WHERE seq = ?1 AND state = 'pending' AND head = 1";

// ?7: keep the owner until another consumer takes the delivery, so that a late report is still accepted.
pub(super) const PUT_BACK: &str = "
    UPDATE deliveries
       SET state = 'pending', due_at = ?3, delay_ms = ?4, attempt_count = attempt_count + 1,
           counted_failures = counted_failures + ?5, last_class = ?6, lease_until = NULL,
           confirm_until = NULL, lease_owner = iif(?7, lease_owner, NULL)
     WHERE seq = ?1 AND run_no = ?2 AND (state = 'leased' OR state = 'waiting')";

pub(super) const FINISH: &str = "
    UPDATE deliveries
       SET state = ?3, due_at = NULL, lease_until = NULL, confirm_until = NULL, finished_at = ?4,
           attempt_count = attempt_count + ?8, counted_failures = counted_failures + ?5, last_class = ?6,
           reason = ?7
     WHERE seq = ?1 AND run_no = ?2 AND (state = 'leased' OR state = 'pending' OR state = 'waiting')";

pub(super) const EXTEND: &str = "
    UPDATE deliveries SET lease_until = ?2, delay_ms = ?4
     WHERE seq = ?1 AND state = 'leased' AND lease_owner = ?3";

// If the end is later than now plus the lease's span, a wrong clock set it.
pub(super) const CLAMP: &str = "
    UPDATE deliveries SET lease_until = ?1 + delay_ms
     WHERE seq IN (SELECT seq FROM deliveries INDEXED BY deliveries_leases
            WHERE state = 'leased' AND lease_until > ?1 AND lease_until > ?1 + delay_ms LIMIT ?2)";

// Without INDEXED BY, SQLite chooses `deliveries_attention`, which is not in this order.
pub(super) const BETWEEN: &str = "
    SELECT seq, subscription_seq, lease_until FROM deliveries INDEXED BY deliveries_leases
     WHERE state = 'leased' AND lease_until >= ?1 AND lease_until <= ?3
       AND (lease_until > ?1 OR seq > ?2)
     ORDER BY lease_until, seq LIMIT ?4";

pub(super) const NEXT_EXPIRY: &str = "
    SELECT min(lease_until) FROM deliveries INDEXED BY deliveries_leases
     WHERE state = 'leased' AND lease_until > ?1";

/// A lease and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The leased delivery.
    pub delivery: DeliverySeq,
    /// The subscription of the delivery.
    pub subscription: SubscriptionSeq,
    /// When it ends.
    pub until: Timestamp,
}

/// A delivery that a consumer may take.
pub(super) struct Candidate {
    pub(super) delivery: DeliverySeq,
    pub(super) attempt_count: u32,
    pub(super) payload_bytes: u64,
}

/// The columns of a delivery that a report or a confirmation needs.
#[derive(Debug)]
pub struct Held {
    /// The delivery.
    pub delivery: DeliverySeq,
    /// Its subscription.
    pub subscription: SubscriptionSeq,
    /// Its tenant.
    pub tenant: String,
    /// The UUID of the event or webhook event it carries.
    pub event_id: String,
    /// Its state.
    pub state: DeliveryState,
    /// Its run.
    pub run_no: u32,
    /// Attempts so far.
    pub attempt_count: u32,
    /// When the target's time to confirm it ends.
    pub confirm_until: Option<Timestamp>,
    /// The wait that began last; while it waits for its confirmation, the time for that.
    pub delay: Duration,
    pub(super) counted_failures: u32,
    pub(super) origin: Origin,
    pub(super) lane: Option<i64>,
    pub(super) lease_until: Option<Timestamp>,
    pub(super) owner: Option<String>,
    pub(super) max_attempts: Option<u32>,
    pub(super) accepted_at: Timestamp,
    pub(super) reason: Option<String>,
}

columns! {
    fn read() -> Held = ("deliveries" from "deliveries AS d
      LEFT JOIN outbox AS o ON o.seq = d.outbox_seq
      LEFT JOIN webhook_events AS w ON w.seq = d.webhook_seq") [
        d.seq as delivery, d.state, d.run_no, d.attempt_count, d.counted_failures, d.outbox_seq, d.webhook_seq, d.lane,
        d.lease_until, d.lease_owner as owner, o.max_attempts, "coalesce(o.received_at, w.received_at)" as accepted_at,
        d.reason, d.subscription_seq as subscription, d.tenant, "coalesce(o.id, w.id)" as event_id, d.confirm_until,
        d.delay_ms as Millis(delay)
    ] {
        delivery, state, run_no, attempt_count, counted_failures, origin: Origin::of(outbox_seq, webhook_seq)?, lane,
        lease_until, owner, max_attempts, accepted_at, reason, subscription, tenant, event_id, confirm_until, delay
    }
    pub(super) const HELD = "WHERE d.seq = ?1";
}

queries! {
    /// A delivery in any state.
    pub fn any(delivery: DeliverySeq) -> Option<Held> = first as read HELD;

    /// The earliest end of a lease that is later than `after`.
    pub fn next_expiry(after: Timestamp) -> Option<Timestamp> = value NEXT_EXPIRY;
}

changes! {
    /// Ends a lease early and makes the delivery due now.
    pub(super) fn take_from(delivery: DeliverySeq, now: Timestamp) of "the delivery" = "
    UPDATE deliveries
       SET state = 'pending', due_at = ?2, delay_ms = 0, lease_until = NULL, lease_owner = NULL
     WHERE seq = ?1 AND state = 'leased'";

    /// Corrects at most `limit` ends that a wrong clock set too far ahead; returns how many.
    pub(crate) fn clamp(now: Timestamp, limit: u32) -> usize = CLAMP;

    /// Moves the end of a lease.
    pub(super) fn extend(delivery: DeliverySeq, until: Timestamp, owner: &str, span: Millis) of "the delivery" = EXTEND;
}

/// Leases a delivery again to the consumer whose lease has expired; returns whether that was possible.
pub(super) fn renew(
    tx: &WriteTx<'_>,
    delivery: DeliverySeq,
    now: Timestamp,
    until: Timestamp,
    owner: &str,
) -> Result<bool> {
    let span = millis(until.since(now));
    Ok(tx.execute(LEASE, (delivery, until, owner, span))? == 1)
}

/// Due deliveries with the sizes of their payloads, oldest first.
pub(super) fn due_with_size(
    tx: &ReadTx<'_>,
    subscription: SubscriptionSeq,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<Candidate>> {
    tx.rows(DUE_WITH_SIZE, (subscription, now, limit), |row| {
        Ok(Candidate {
            delivery: row.get(0)?,
            attempt_count: row.get(1)?,
            payload_bytes: row.get::<_, i64>(2)?.unsigned_abs(),
        })
    })
}

/// Leases a delivery to a consumer.
pub(super) fn lease(
    tx: &WriteTx<'_>,
    delivery: DeliverySeq,
    now: Timestamp,
    until: Timestamp,
    owner: &str,
) -> Result<()> {
    let is_leased = renew(tx, delivery, now, until, owner)?;
    one_row(usize::from(is_leased), "the delivery")
}

/// A delivery of a subscription, leased or not.
pub(super) fn held(
    tx: &ReadTx<'_>,
    delivery: DeliverySeq,
    subscription: SubscriptionSeq,
) -> Result<Option<Held>> {
    Ok(any(tx, delivery)?.filter(|held| held.subscription == subscription))
}

/// Makes a leased delivery pending after a failed attempt. `keeps_owner`: a late report under the lease is still accepted.
pub(super) fn put_back(
    tx: &WriteTx<'_>,
    settlement: &Settlement,
    due_at: Timestamp,
    wait: Duration,
    keeps_owner: bool,
) -> Result<()> {
    let AttemptReport { delivery, run_no, attempt, .. } = &*settlement.report;
    let row = (delivery, run_no, due_at, millis(wait), attempt.counted, attempt.class, keeps_owner);
    tx.change_one(PUT_BACK, row, "the delivery")
}

/// Puts a delivery into its final state after a report. `is_attempt`: it is one more attempt.
pub(super) fn finish(
    tx: &WriteTx<'_>,
    settlement: &Settlement,
    state: DeliveryState,
    reason: Option<&str>,
    is_attempt: bool,
) -> Result<()> {
    let AttemptReport { delivery, run_no, attempt, now, .. } = &*settlement.report;
    let row =
        (delivery, run_no, state.as_str(), now, attempt.counted, attempt.class, reason, is_attempt);
    tx.change_one(FINISH, row, "the delivery")
}

/// Leases that end at or before `until`, in the order of their ends, starting after `after`.
pub fn between(
    tx: &ReadTx<'_>,
    after: (Timestamp, DeliverySeq),
    until: Timestamp,
    limit: u32,
) -> Result<Vec<Lease>> {
    let params = (after.0, after.1, until, limit);
    tx.rows(BETWEEN, params, in_order!(Lease { delivery, subscription, until }))
}
