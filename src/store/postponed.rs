//! Deliveries that have waited for too long behind others in their lane or funnel.

use crate::store::column::to_json;
use crate::store::page::MAX_OF_INDEX;
use crate::store::prelude::*;

pub(super) const HAS_LIMIT: &str = "
    SELECT 1 FROM subscriptions
     WHERE deleted_at IS NULL AND json_extract(order_terms, '$.postpone_limit') IS NOT NULL
     LIMIT 1";

pub(super) const BEHIND: &str = "
    SELECT seq FROM deliveries
     WHERE subscription_seq = ?1 AND state = 'pending' AND head = 0 AND due_at <= ?2
     ORDER BY due_at, seq LIMIT ?3";

// ?4: deliveries in flight. Their funnels are taken, as are those of deliveries that wait for their confirmation.
pub(super) const IN_FUNNEL: &str = "
    SELECT seq
      FROM (SELECT seq, funnel AS point
              FROM deliveries
             WHERE subscription_seq = ?1
               AND state = 'pending'
               AND head = 1
               AND due_at <= ?2
             ORDER BY due_at, seq
             LIMIT ?5)
     WHERE point IS NOT NULL AND seq NOT IN (SELECT value FROM json_each(?4))
       AND (EXISTS (SELECT 1 FROM deliveries AS w WHERE w.funnel = point AND w.state = 'waiting')
            OR point IN (SELECT f.funnel
                              FROM deliveries AS f
                             WHERE f.seq IN (SELECT value FROM json_each(?4))
                               AND f.funnel IS NOT NULL))
     LIMIT ?3";

changes! {
    /// Gives up a delivery that has waited since `due_by` or longer; tells whether it still did. It keeps its place in its
    /// lane.
    pub(super) fn give_up(delivery: DeliverySeq, now: Timestamp, reason: &str, due_by: Timestamp) -> bool = "
    UPDATE deliveries
       SET state = 'dead_letter', due_at = NULL, head = 1, finished_at = ?2, reason = ?3
     WHERE seq = ?1 AND state = 'pending' AND due_at <= ?4 AND (head = 0 OR funnel IS NOT NULL)";
}

queries! {
    /// Whether any subscription has a limit.
    pub fn any_limit() -> bool = exists HAS_LIMIT;
}

/// Deliveries of a subscription that wait behind others and could have gone at or before `due_by`; at most `limit`,
/// without those in flight.
pub fn find(
    tx: &ReadTx<'_>,
    subscription: SubscriptionSeq,
    due_by: Timestamp,
    limit: u32,
    in_flight: &[DeliverySeq],
) -> Result<Vec<DeliverySeq>> {
    let seq = |row: &Row<'_>| Ok(row.get(0)?);
    let mut found: Vec<DeliverySeq> = tx.rows(BEHIND, (subscription, due_by, limit), seq)?;
    found.retain(|delivery| !in_flight.contains(delivery));
    let numbers: Vec<i64> = in_flight.iter().map(|delivery| delivery.0).collect();
    let busy = to_json("the deliveries", &numbers)?;
    let params = (subscription, due_by, limit, busy, MAX_OF_INDEX);
    found.extend(tx.rows(IN_FUNNEL, params, seq)?);
    Ok(found)
}
