//! Table `outbox`, routing: finds matching subscriptions before an event's row is written, and makes the deliveries
//! afterwards. An event without a matching subscription ends here.

use crate::model::event::{NewEvent, OWN_SOURCE, Status};
use crate::model::lane::Key;
use crate::model::subscription::Routed;
use crate::store::deliveries::{self, OrderedBy, Origin, Place, Route};
use crate::store::matching::{Candidate, MatchedSubscription};
use crate::store::prelude::*;
use crate::store::{meta, subscriptions, tenants};

// Every event is pending when it is inserted.
pub(super) const END: &str = "
    UPDATE outbox SET status = ?2, completed_at = ?3, error_code = ?4, last_error = ?5
     WHERE seq = ?1 AND status = 'pending' AND open_deliveries = 0";

/// The deliveries that an event will get, planned before its row is written.
#[derive(Clone, Debug)]
pub(super) struct RoutingPlan {
    matching: Vec<MatchedSubscription>,
    route: Route,
}

impl RoutingPlan {
    /// How many deliveries it will have.
    pub(super) fn open(&self) -> u32 {
        u32::try_from(self.matching.len()).unwrap_or(u32::MAX)
    }

    /// Whether its deliveries will be in doubt because of a restore; false if it has none.
    pub(super) fn in_doubt(&self) -> bool {
        self.route.in_doubt && !self.matching.is_empty()
    }

    /// Changes the plan for an event that arrived earlier: it gets its original place in its lane.
    pub(super) fn at_original_place(mut self) -> Self {
        self.route.order = OrderedBy::Time;
        self
    }

    /// Changes the plan for an event that replaces a delivery: it has one delivery, at that one's place.
    /// Fails with `Changed` if the subscription does not take it.
    pub(super) fn in_place(mut self, place: Place) -> Result<Self> {
        let found = place.of(&self.matching).ok_or(Error::Changed("the subscription"))?;
        self.matching = vec![found];
        let order_at = place.order_at;
        let order = OrderedBy::Place;
        self.route = Route { order_at, order, in_doubt: false, ..self.route };
        Ok(self)
    }

    /// How often the file was restored.
    pub(super) fn epoch(&self) -> u32 {
        self.route.epoch
    }
}

/// What subscriptions look at in an event.
pub fn routed(new: &NewEvent) -> Routed<'_> {
    Routed {
        tenant: &new.tenant,
        provider: None,
        is_own: new.source_system == OWN_SOURCE,
        event_type: &new.event_type,
        target: new.target.as_deref(),
        key: Key {
            ordering_key: new.ordering_key.as_deref(),
            aggregate: (new.aggregate_type.as_deref(), new.aggregate_id.as_deref()),
            order: Some(&new.order),
        },
    }
}

/// An event of the outbox as a candidate for [`crate::store::matching::Matches::ahead`].
pub fn candidate(new: &NewEvent) -> Candidate<'_> {
    Candidate { id: &new.id, event: routed(new), body: new.body() }
}

/// Finds the subscriptions that match an event, and when its deliveries are due.
pub(super) fn plan(tx: &WriteTx<'_>, new: &NewEvent, now: Timestamp) -> Result<RoutingPlan> {
    let matching = subscriptions::matching(tx, &new.id, routed(new), new.body())?;
    let fence = meta::cached_fence(tx)?;
    let route = Route {
        due_at: new.not_before.map_or(now, |not_before| not_before.max(now)),
        order_at: new.occurred_at.unwrap_or(new.received_at),
        order: new.occurred_at.map_or(OrderedBy::Arrival, |_| OrderedBy::Time),
        in_doubt: fence.is_in_doubt(new.occurred_at, new.received_at),
        epoch: fence.epoch,
        now,
    };
    Ok(RoutingPlan { matching, route })
}

/// Makes the deliveries of an event after its row was written, or ends the event if no subscription matches.
pub(super) fn carry_out(
    tx: &WriteTx<'_>,
    seq: i64,
    new: &NewEvent,
    plan: &RoutingPlan,
    now: Timestamp,
) -> Result<Status> {
    if plan.matching.is_empty() {
        return end_unmatched(tx, seq, new, now);
    }
    let made = deliveries::route(tx, Origin::Outbox(seq), &new.tenant, &plan.matching, plan.route)?;
    for (delivery, found) in made.into_iter().zip(&plan.matching) {
        tx.fresh().made(delivery, found, new);
    }
    Ok(Status::Pending)
}

/// Ends a stored event that no subscription matches.
fn end_unmatched(tx: &WriteTx<'_>, seq: i64, new: &NewEvent, now: Timestamp) -> Result<Status> {
    let (status, error) = match &new.target {
        Some(target) => {
            let reason = format!(
                "there is no subscription named {target:?} that takes events of the outbox"
            );
            let sanitized =
                tenants::pii(tx, &new.tenant)?.rules().map(|policy| policy.sanitize(&reason));
            (Status::Quarantined, Some(sanitized.unwrap_or(reason)))
        }
        None => (Status::Skipped, None),
    };
    let completed_at = status.is_final().then_some(now);
    let code = error.as_ref().map(|_| "unknown_target");
    end(tx, seq, status, completed_at, code.zip(error.as_deref()))?;
    Ok(status)
}

/// Ends a stored event that has no deliveries. `why` is the error code and the reason if it cannot be used.
pub(super) fn end(
    tx: &WriteTx<'_>,
    seq: i64,
    status: Status,
    completed_at: Option<Timestamp>,
    why: Option<(&str, &str)>,
) -> Result<()> {
    let (code, error) = why.unzip();
    tx.change_one(END, (seq, status, completed_at, code, error), "the event")
}
