//! Table `deliveries`, state `in_doubt`: a restore puts deliveries in doubt, a person decides about each.
//!
//! [`crate::store::settlement`] combines these changes with those of the events.

use crate::store::prelude::*;

/// Unsent deliveries by number.
pub(super) const UNSENT: &str = "
    SELECT seq FROM deliveries
     WHERE seq > ?1 AND (state = 'pending' OR state = 'leased' OR state = 'waiting')
     ORDER BY seq LIMIT ?2";

pub(super) const RELEASE: &str = "
    UPDATE deliveries
       SET state = 'pending', delay_ms = 0, due_at = max(?2, coalesce(
           (SELECT o.not_before FROM outbox AS o WHERE o.seq = deliveries.outbox_seq), 0))
     WHERE seq = ?1 AND state = 'in_doubt'";

pub(super) const SKIP: &str = "
    UPDATE deliveries SET state = 'skipped', finished_at = ?3, reason = ?2
     WHERE seq = ?1 AND state = 'in_doubt'";

// CROSS JOIN makes SQLite scan the partial index `deliveries_attention`, which is in the order of `seq`.
macro_rules! in_doubt {
    ($what:literal, $rest:literal) => {
        sql!(
            "SELECT " $what "
               FROM deliveries AS d
              CROSS JOIN subscriptions AS s ON s.seq = d.subscription_seq
               LEFT JOIN outbox AS o ON o.seq = d.outbox_seq
               LEFT JOIN webhook_events AS w ON w.seq = d.webhook_seq
              WHERE d.state = 'in_doubt'
                AND d.tenant = ?1
                AND (?2 IS NULL OR s.name = ?2 OR s.id = ?2)
                AND (?3 IS NULL OR coalesce(o.event_type, w.event_type) = ?3)
                AND (?4 IS NULL OR coalesce(o.received_at, w.received_at) >= ?4)
                AND (?5 IS NULL OR coalesce(o.received_at, w.received_at) < ?5)" $rest
        )
    };
}

pub(super) const IN_DOUBT: &str = in_doubt!("d.seq", " ORDER BY d.seq LIMIT ?6");

pub(super) const COUNT: &str = in_doubt!("count(*)", "");

/// A filter for deliveries in doubt. `None` means any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InDoubtFilter {
    /// Their subscription, by name or UUID.
    pub subscription: Option<String>,
    /// The exact type of their event.
    pub event_type: Option<String>,
    /// Their event was received at or after this time.
    pub since: Option<Timestamp>,
    /// Their event was received before this time.
    pub until: Option<Timestamp>,
}

queries! {
    /// Deliveries with a number above `after` that could still be sent.
    pub(crate) fn unsent(after: DeliverySeq, limit: u32) -> Vec<DeliverySeq> = list UNSENT;
}

changes! {
    /// Puts a delivery in doubt.
    pub(super) fn put_in_doubt(delivery: DeliverySeq) of "the delivery" = "
    UPDATE deliveries
       SET state = 'in_doubt', due_at = NULL, lease_until = NULL, lease_owner = NULL, confirm_until = NULL
     WHERE seq = ?1 AND state IN ('pending', 'leased', 'waiting')";

    /// Makes a delivery in doubt pending.
    pub(super) fn release(delivery: DeliverySeq, now: Timestamp) of "the delivery" = RELEASE;

    /// Ends a delivery in doubt without sending it.
    pub(super) fn skip(delivery: DeliverySeq, reason: &str, now: Timestamp) of "the delivery" = SKIP;
}

/// Deliveries in doubt, the oldest first.
pub fn in_doubt(
    tx: &ReadTx<'_>,
    tenant: &str,
    filter: &InDoubtFilter,
    limit: u32,
) -> Result<Vec<DeliverySeq>> {
    let InDoubtFilter { subscription, event_type, since, until } = filter;
    let params = (tenant, subscription, event_type, since, until, limit);
    tx.list(IN_DOUBT, params)
}

/// How many deliveries are in doubt.
pub fn count(tx: &ReadTx<'_>, tenant: &str, filter: &InDoubtFilter) -> Result<u64> {
    let InDoubtFilter { subscription, event_type, since, until } = filter;
    let params = (tenant, subscription, event_type, since, until);
    tx.count(COUNT, params)
}
