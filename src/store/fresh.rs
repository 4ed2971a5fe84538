//! Requests of deliveries that were just made, so that the first attempt need not read them. The rows stay the truth: a
//! request is forgotten as soon as the writer touches its row.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::base::id::{self, DeliverySeq};
use crate::model::delivery::{OutgoingOrder, OutgoingRequest};
use crate::model::event::{MAX_INLINE_BYTES, NewEvent};
use crate::store::matching::MatchedSubscription;

/// Bytes of all of them at most, approximately. The oldest are forgotten first: whoever wants to keep many costs the
/// others one read for each delivery.
const MAX_BYTES: usize = 2 << 20;
/// What a request takes beside its body and its headers, approximately.
const OTHER_BYTES: usize = 1024;

/// The requests, by the number of their delivery.
#[derive(Debug, Default)]
pub struct Fresh(Mutex<RequestsByDelivery>);

#[derive(Debug, Default)]
struct RequestsByDelivery {
    requests: BTreeMap<i64, OutgoingRequest>,
    bytes: usize,
}

impl Fresh {
    /// Takes the request of a delivery, if nothing has touched its row since it was made. The caller has seen the row, so
    /// it is committed.
    pub fn take(&self, delivery: DeliverySeq) -> Option<OutgoingRequest> {
        let mut kept = self.0.lock();
        let found = kept.requests.remove(&delivery.0)?;
        kept.bytes = kept.bytes.saturating_sub(size(&found));
        Some(found)
    }

    /// The transaction has inserted, changed or deleted the row of a delivery.
    pub(super) fn touched(&self, delivery: i64) {
        drop(self.take(DeliverySeq(delivery)));
    }

    /// Another program has committed; what it has changed is not known.
    pub(super) fn clear(&self) {
        *self.0.lock() = RequestsByDelivery::default();
    }

    /// The transaction has made a delivery that needs no order. If it is rolled back, nobody asks for the request: its
    /// number is found in no row, until another delivery gets the number and touches it.
    pub(super) fn made(&self, delivery: DeliverySeq, found: &MatchedSubscription, new: &NewEvent) {
        if new.payload.len() > MAX_INLINE_BYTES || found.places.lane.is_some() {
            return;
        }
        let request = request(delivery, found, new);
        let mut kept = self.0.lock();
        kept.bytes = kept.bytes.saturating_add(size(&request));
        kept.requests.insert(delivery.0, request);
        while kept.bytes > MAX_BYTES {
            let Some((_, oldest)) = kept.requests.pop_first() else { return };
            kept.bytes = kept.bytes.saturating_sub(size(&oldest));
        }
    }
}

fn size(request: &OutgoingRequest) -> usize {
    let parts = request.payload.len().saturating_add(request.headers.len());
    parts.saturating_add(OTHER_BYTES)
}

/// What `deliveries::outgoing_within` would read.
fn request(delivery: DeliverySeq, of: &MatchedSubscription, new: &NewEvent) -> OutgoingRequest {
    let NewEvent { tenant, source_system, idempotency_key, .. } = new;
    OutgoingRequest {
        delivery,
        subscription: of.subscription,
        run_no: 1,
        attempt_count: 0,
        accepted_at: new.received_at,
        tenant: tenant.clone(),
        source: source_system.clone(),
        event_id: new.id.clone(),
        webhook_id: id::webhook_id(tenant, source_system, idempotency_key),
        idempotency_key: idempotency_key.clone(),
        event_type: new.event_type.clone(),
        aggregate_type: new.aggregate_type.clone(),
        aggregate_id: new.aggregate_id.clone(),
        payload: new.payload.clone(),
        sealed_fields: new.sealed.fields,
        content_type: new.content_type.clone(),
        headers: new.headers.as_deref().unwrap_or("{}").to_owned(),
        occurred_at: new.occurred_at,
        trace_id: new.trace_id.clone(),
        max_attempts: new.max_attempts,
        order: OutgoingOrder {
            ordering_key: new.ordering_key.clone(),
            entity: of.entity,
            entity_type: new.order.entity_type.clone(),
            custom_data: new.custom_data.clone(),
        },
        rendering: None,
        type_field: None,
    }
}
