//! Table `deliveries`: those about the same entity, and which of them is newer.

use crate::store::prelude::*;

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

pub(super) const PLACE: &str = "SELECT order_at FROM deliveries WHERE seq = ?1";

queries! {
    /// The newest delivery about the same entity that waits and comes after a pending one.
    pub fn newer(delivery: DeliverySeq, now: Timestamp) -> Option<DeliverySeq> = find NEWER;

    /// Deliveries about the same entity that are pending and come before this one, at most 1,000.
    pub(super) fn older(delivery: DeliverySeq) -> Vec<DeliverySeq> = list OLDER;

    /// The time by which a delivery is ordered.
    pub(super) fn place(delivery: DeliverySeq) -> Timestamp = value PLACE;
}
