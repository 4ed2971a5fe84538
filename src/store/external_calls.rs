//! Table `external_calls`: the latest call about each entity, and the newest one that was made. Table `deliveries`: those
//! about the same entity, and which of them is newer.

use crate::model::external_call::{CallState, CutCall, ExternalCall, MadeCall, NewCall};
use crate::store::page::Newest;
use crate::store::prelude::*;
use crate::store::sql::queries;

// A call that is still under way was interrupted, even one of the same delivery: of one entity there is one at a time.
pub(super) const MADE: &str = "
    SELECT iif(is_open, delivery_seq, made_seq), iif(is_open, order_at, made_order_at),
           iif(is_open, NULL, made_hash)
      FROM (SELECT c.state = 'PROCESSING' AS is_open, c.delivery_seq, d.order_at, c.made_seq, c.made_order_at,
                   c.made_hash
              FROM external_calls AS c
              -- The delivery of a call that has ended may be in the archive.
              LEFT JOIN deliveries AS d ON d.seq = c.delivery_seq
             WHERE c.subscription_seq = ?1
               AND c.entity = ?2)
     WHERE is_open
        OR made_seq IS NOT NULL";

pub(super) const CUT_SHORT: &str = "
    SELECT c.delivery_seq, d.attempt_count, c.updated_at, c.sent_method, c.sent_url
      FROM external_calls AS c
      JOIN deliveries AS d ON d.seq = c.delivery_seq
     WHERE c.subscription_seq = ?1
       AND c.entity = ?2
       AND c.state = 'PROCESSING'
       AND NOT EXISTS (SELECT 1 FROM attempts AS a WHERE a.delivery_seq = d.seq AND a.started_at = c.updated_at)";

// ?5: nobody knows whether the target has accepted it. Without INDEXED BY, SQLite reads all calls of the subscription.
pub(super) const END: &str = "
    UPDATE external_calls INDEXED BY external_calls_newest
       SET state = ?3, updated_at = ?4, failed_count = failed_count + (?3 <> 'OK'),
           made_seq = iif(?3 = 'OK' OR ?5, delivery_seq, made_seq),
           made_order_at = iif(?3 = 'OK' OR ?5, (SELECT d.order_at FROM deliveries AS d
                                                  WHERE d.seq = delivery_seq), made_order_at),
           made_hash = iif(?3 = 'OK', body_hash, iif(?5, NULL, made_hash))
     WHERE subscription_seq = ?1 AND delivery_seq = ?2 AND state = 'PROCESSING'";

pub(super) const ADVANCE: &str = "
    UPDATE external_calls SET made_seq = ?3, made_order_at = ?4
     WHERE subscription_seq = ?1 AND entity = ?2 AND state <> 'PROCESSING' AND made_hash = ?5
       AND (made_order_at, made_seq) < (?4, ?3)";

pub(super) const NEWEST_PLACE: &str = "
    SELECT max(
           coalesce((SELECT made_order_at FROM external_calls WHERE subscription_seq = ?1 AND entity = ?2), ?3),
           coalesce((
               SELECT order_at
                 FROM deliveries
                WHERE entity = ?2
                  AND finished_at IS NULL
                ORDER BY order_at DESC
                LIMIT 1), ?3), ?3)";

// One that must not go yet does not make an earlier one superfluous.
pub(super) const NEWER: &str = "
    SELECT n.seq FROM deliveries AS d
      JOIN deliveries AS n INDEXED BY deliveries_entity
        ON n.entity = d.entity
      LEFT JOIN outbox AS o ON o.seq = n.outbox_seq
     WHERE d.seq = ?1 AND d.state = 'pending' AND n.finished_at IS NULL
       AND (n.order_at, n.seq) > (d.order_at, d.seq) AND n.state IN ('pending', 'leased', 'waiting')
       AND coalesce(o.not_before <= ?2, 1)
     ORDER BY n.order_at DESC, n.seq DESC LIMIT 1";

pub(super) const OLDER: &str = "
    SELECT n.seq FROM deliveries AS d
      JOIN deliveries AS n INDEXED BY deliveries_entity
        ON n.entity = d.entity
     WHERE d.seq = ?1 AND n.finished_at IS NULL AND (n.order_at, n.seq) < (d.order_at, d.seq)
       AND n.state = 'pending'
     LIMIT 1000";

pub(super) const ORDER_AT: &str = "SELECT order_at FROM deliveries WHERE seq = ?1";

columns! {
    fn external_call() -> ExternalCall = ("external_calls" from "external_calls AS c INDEXED BY external_calls_newest
      JOIN deliveries AS d ON d.seq = c.delivery_seq") [
        c.entity_key,
        // What was stopped between two attempts is not tried again.
        "iif(c.state IN ('PROCESSING', 'FAILED') AND d.state IN ('dead_letter', 'skipped', 'cancelled'),
             'FAILED_END', c.state)" as state,
        c.failed_count, c.delivery_seq as delivery, "iif(c.made_hash IS NULL, NULL, c.made_seq)" as made_by,
        // A delivery that is still open is sent again, which ends the doubt.
        "CASE WHEN d.state NOT IN ('dead_letter', 'skipped', 'cancelled') THEN NULL
              WHEN c.state = 'PROCESSING' THEN c.delivery_seq
              WHEN c.made_hash IS NULL THEN c.made_seq END" as in_doubt,
        c.created_at, c.updated_at
    ] { entity_key, state, failed_count, delivery, made_by, in_doubt, created_at, updated_at }
    pub(super) const PAGE = "WHERE c.subscription_seq = ?1 AND c.delivery_seq < ?2 AND d.tenant = ?4
       AND (NOT ?5 OR (d.state IN ('dead_letter', 'skipped', 'cancelled')
                       AND (c.state = 'PROCESSING' OR (c.made_hash IS NULL AND c.made_seq IS NOT NULL))))
     ORDER BY c.delivery_seq DESC LIMIT ?3";
    pub(super) const ONE = "WHERE c.subscription_seq = (SELECT subscription_seq FROM deliveries WHERE seq = ?1)
       AND c.delivery_seq = ?1";
}

// ?2: the target has accepted it. What it was, is known of the latest call only: an empty hash is like no other.
pub(super) const END_DOUBT: &str = "
    UPDATE external_calls INDEXED BY external_calls_newest
       SET state = iif(?2 AND (state = 'PROCESSING' OR made_seq = delivery_seq), 'OK', 'FAILED_END'), updated_at = ?3,
           (made_seq, made_order_at, made_hash) = (
               SELECT made_seq, made_order_at, made_hash WHERE NOT ?2 AND state = 'PROCESSING'
                UNION ALL
               SELECT d.seq, d.order_at, iif(d.seq = delivery_seq, body_hash, x'') FROM deliveries AS d
                WHERE ?2 AND d.seq = iif(state = 'PROCESSING', delivery_seq, made_seq))
     WHERE subscription_seq = (SELECT subscription_seq FROM deliveries WHERE seq = ?1) AND delivery_seq = ?1";

/// The newest call about the entity of a new one that was made, or may have been before the service ended.
pub(super) fn made(tx: &ReadTx<'_>, call: &NewCall) -> Result<Option<MadeCall>> {
    let read = in_order!(MadeCall { delivery, order_at, body_hash });
    tx.first(MADE, (call.subscription, call.entity), read)
}

/// A call is not made. If the target has the same state from an older one, it has this newer one's: no call for a state
/// between them may follow. `order_at` is its delivery's place.
pub(super) fn advance(tx: &WriteTx<'_>, call: &NewCall, order_at: Timestamp) -> Result<()> {
    let NewCall { subscription, entity, delivery, body_hash, .. } = call;
    tx.execute(ADVANCE, (subscription, entity, delivery, order_at, body_hash)).map(drop)
}

/// The call about the entity of a new one that the end of the service cut short, if its attempt is not stored yet.
pub(super) fn cut_short(tx: &ReadTx<'_>, call: &NewCall) -> Result<Option<CutCall>> {
    let read = in_order!(CutCall { delivery, attempt_count, began_at, method, url });
    tx.first(CUT_SHORT, (call.subscription, call.entity), read)
}

/// Notes that a call is about to be made. `made` is the newest one that was.
pub(super) fn begin(
    tx: &WriteTx<'_>,
    call: &NewCall,
    made: Option<&MadeCall>,
    at: Timestamp,
) -> Result<()> {
    let NewCall { subscription, entity, entity_key, delivery, body_hash, sent, .. } = call;
    let by = made.map(|made| made.delivery);
    let (order_at, hash) = (made.map(|m| m.order_at), made.and_then(|m| m.body_hash.as_ref()));
    insert!(tx, "external_calls" {
        subscription_seq: subscription, entity, entity_key, delivery_seq: delivery, body_hash, state: "PROCESSING",
        made_seq: by, made_order_at: order_at, made_hash: hash, created_at: at, updated_at: at,
        sent_method: sent.method, sent_url: sent.url
    } "ON CONFLICT DO UPDATE
       SET entity_key = excluded.entity_key, failed_count = iif(state = 'OK', 0, failed_count),
           delivery_seq = excluded.delivery_seq, body_hash = excluded.body_hash, state = 'PROCESSING',
           made_seq = excluded.made_seq, made_order_at = excluded.made_order_at,
           made_hash = excluded.made_hash, updated_at = excluded.updated_at,
           sent_method = excluded.sent_method, sent_url = excluded.sent_url")
    .map(drop)
}

/// Notes how the call of a delivery has ended; does nothing if none is under way. `is_unknown`: no answer came, so the
/// target may have accepted it.
pub(super) fn end(
    tx: &WriteTx<'_>,
    subscription: SubscriptionSeq,
    delivery: DeliverySeq,
    state: CallState,
    is_unknown: bool,
    at: Timestamp,
) -> Result<()> {
    tx.execute(END, (subscription, delivery, state.as_str(), at, is_unknown)).map(drop)
}

/// A page of a subscription's calls, the latest first; `in_doubt`: only those that a person has to end.
pub fn page(
    tx: &ReadTx<'_>,
    newest: Newest<'_>,
    subscription: SubscriptionSeq,
    in_doubt: bool,
) -> Result<Vec<ExternalCall>> {
    let Newest { tenant, before, limit } = newest;
    tx.rows(PAGE, (subscription, before, limit, tenant, in_doubt), external_call)
}

/// The call of a delivery, if no later one about its entity has begun.
pub fn of(tx: &ReadTx<'_>, delivery: DeliverySeq) -> Result<Option<ExternalCall>> {
    tx.first(ONE, (delivery,), external_call)
}

/// Ends the doubt about a call that is in doubt. `is_made`: the target has accepted it.
pub fn end_doubt(
    tx: &WriteTx<'_>,
    delivery: DeliverySeq,
    is_made: bool,
    at: Timestamp,
) -> Result<()> {
    tx.execute(END_DOUBT, (delivery, is_made, at)).map(drop)
}

queries! {
    /// The newest delivery about the same entity that waits and comes after a pending one.
    pub fn newer(delivery: DeliverySeq, now: Timestamp) -> Option<DeliverySeq> = find NEWER;

    /// Deliveries about the same entity that are pending and come before this one, at most 1,000.
    pub(super) fn older(delivery: DeliverySeq) -> Vec<DeliverySeq> = list OLDER;

    /// The time by which a delivery is ordered.
    pub(super) fn order_at(delivery: DeliverySeq) -> Timestamp = value ORDER_AT;

    /// The place of an event that is ordered by arrival: not before earlier ones about its entity, even if the clock was
    /// set back in between.
    pub(super) fn place(subscription: SubscriptionSeq, entity: i64, order_at: Timestamp) -> Timestamp =
        value NEWEST_PLACE;
}
