//! Table `deliveries`: the units of work, from routing to the final state.
//!
//! Most functions here change one row. [`crate::store::settlement`] combines them with changes of attempts, events and
//! subscriptions. Lists are in [`crate::store::delivery_lists`].

use std::time::Duration;

use crate::base::clock::millis;
use crate::model::attempt::AttemptReport;
use crate::model::delivery::{DeliveryState, OutgoingOrder, OutgoingRequest};
use crate::model::event::DeliveryCounts;
use crate::model::lane::Places;
use crate::model::settlement::Settlement;
use crate::model::webhook_event::Began;
use crate::store::column::{Clamped, Json};
use crate::store::matching::MatchedSubscription;
use crate::store::prelude::*;
use crate::store::tx::SetAside;
use crate::store::{external_calls, lanes, payloads, renderings};

/// Due deliveries of taken funnels that one look passes by at most.
const MAX_PASSED_BY: u32 = 1000;

const INSERT: &str = "
    INSERT INTO deliveries
           (outbox_seq, webhook_seq, subscription_seq, tenant, state, due_at, epoch, created_at, funnel, entity,
            lane, order_at, head, late)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";

// The flag: a delivery of the same funnel waits for its confirmation.
pub(super) const DUE: &str = "
    SELECT d.seq, d.lane, d.funnel, d.due_at,
           d.funnel IS NOT NULL AND EXISTS (SELECT 1 FROM deliveries AS w
                                             WHERE w.funnel = d.funnel AND w.state = 'waiting')
      FROM deliveries AS d
     WHERE d.subscription_seq = ?1
       AND d.state = 'pending' AND d.head = 1 AND d.due_at <= ?2 AND (d.due_at, d.seq) > (?3, ?4)
     ORDER BY d.due_at, d.seq LIMIT ?5";

pub(super) const NEXT_DUE: &str = "
    SELECT min(due_at) FROM deliveries
     WHERE subscription_seq = ?1 AND state = 'pending' AND head = 1 AND due_at > ?2";

// A delivery carries either an outbox event or a webhook event: exactly one of the two joins finds a row. ?2: only if it
// may be sent now, as the head of its lane.
pub(super) const OUTGOING: &str = "
    SELECT d.subscription_seq, d.run_no, d.attempt_count, d.tenant,
           coalesce(o.id, w.id),
           coalesce(o.source_system, 'in:' || w.provider),
           coalesce(o.idempotency_key, w.provider_event_id),
           coalesce(o.event_type, w.event_type),
           o.aggregate_type, o.aggregate_id,
           coalesce(o.content_type, w.content_type),
           coalesce(o.trace_id, w.trace_id),
           o.max_attempts,
           coalesce(o.payload, w.payload),
           coalesce(o.payload_seq, w.payload_seq),
           coalesce(o.received_at, w.received_at),
           coalesce(o.sealed_fields, w.sealed_fields),
           coalesce(o.headers, w.headers),
           o.occurred_at, d.entity, o.entity_type, coalesce(d.custom_data, o.custom_data), d.rendered,
           coalesce(o.ordering_key, w.ordering_key), w.type_field
      FROM deliveries AS d
      LEFT JOIN outbox AS o ON o.seq = d.outbox_seq
      LEFT JOIN webhook_events AS w ON w.seq = d.webhook_seq
     WHERE d.seq = ?1 AND (d.state = 'pending' OR d.state = 'leased') AND (d.head = 1 OR NOT ?2)";

// What `OUTGOING` reads, in its order, of an event without a delivery.
const OUTGOING_OF_EVENT: &str = "
    SELECT ?1, 0, 0, tenant, id, source_system, idempotency_key, event_type, aggregate_type, aggregate_id,
           content_type, trace_id, max_attempts, payload, payload_seq, received_at, sealed_fields,
           headers, occurred_at, NULL, entity_type, custom_data, 0, ordering_key, NULL
      FROM outbox WHERE tenant = ?2 AND id = ?3
     UNION ALL
    SELECT ?1, 0, 0, tenant, id, 'in:' || provider, provider_event_id, event_type, NULL, NULL,
           content_type, trace_id, NULL, payload, payload_seq, received_at, sealed_fields,
           headers, NULL, NULL, NULL, NULL, 0, ordering_key, type_field
      FROM webhook_events WHERE tenant = ?2 AND id = ?3
     LIMIT 1";

// Of deliveries with the same time the first inserted goes first, so the replacement of one would go behind all of them.
// The flag: nothing with that time goes before it, so the replacement may go a millisecond earlier. Not if it is about an
// entity: there, an earlier time means an older state.
pub(super) const PLACE: &str = "
    SELECT subscription_seq, lane, order_at,
           lane IS NOT NULL
           AND entity IS NULL
           AND NOT EXISTS (
               SELECT 1
                 FROM deliveries AS l
                WHERE l.lane = deliveries.lane
                  AND l.order_at = deliveries.order_at
                  AND l.seq < deliveries.seq
                  AND l.finished_at IS NULL
                  AND l.state <> 'parked')
           AND NOT EXISTS (
               SELECT 1
                 FROM deliveries AS b INDEXED BY deliveries_blocking
                WHERE b.lane = deliveries.lane
                  AND b.order_at = deliveries.order_at
                  AND b.seq < deliveries.seq
                  AND b.state = 'dead_letter'
                  AND b.head = 1)
      FROM deliveries WHERE seq = ?1";

// Deliveries with the same time that go behind one get the next millisecond.
pub(super) const MAKE_WAY: &str = "
    UPDATE deliveries SET order_at = order_at + 1
     WHERE seq IN (
           SELECT l.seq
             FROM deliveries AS l
            WHERE l.lane = ?1
              AND l.order_at = ?2
              AND l.seq > ?3
              AND l.finished_at IS NULL
              AND l.state <> 'parked'
            UNION ALL
           SELECT b.seq
             FROM deliveries AS b INDEXED BY deliveries_blocking
            WHERE b.lane = ?1
              AND b.order_at = ?2
              AND b.seq > ?3
              AND b.state = 'dead_letter'
              AND b.head = 1)";

pub(super) const RETRY: &str = "
    UPDATE deliveries SET due_at = ?3, delay_ms = ?4, attempt_count = attempt_count + 1,
           counted_failures = counted_failures + ?5, last_class = ?6, rendered = rendered OR ?7
     WHERE seq = ?1 AND run_no = ?2 AND state = 'pending'";

// `OR ROLLBACK`: see `outbox::SETTLED`.
pub(super) const FINISH: &str = "
    UPDATE OR ROLLBACK deliveries
       SET state = ?3, due_at = NULL, finished_at = ?4, attempt_count = attempt_count + 1,
           counted_failures = counted_failures + ?5, last_class = ?6, reason = ?7, rendered = rendered OR ?8
     WHERE seq = ?1 AND run_no = ?2 AND state = 'pending'";

pub(super) const WAIT: &str = "
    UPDATE deliveries SET state = 'waiting', due_at = NULL, confirm_until = ?3, delay_ms = ?4,
           attempt_count = attempt_count + 1, last_class = ?5, rendered = rendered OR ?6
     WHERE seq = ?1 AND run_no = ?2 AND state = 'pending'";

// If the due time is later than now plus the delivery's own wait, a wrong clock set it. An event's `not_before` is
// always respected. The condition without `o` comes first, so that the event is read only for suspicious rows.
pub(super) const CLAMP_DUE: &str = "
    UPDATE deliveries
       SET due_at = max(?2 + delay_ms, coalesce(
           (SELECT o.not_before FROM outbox AS o WHERE o.seq = deliveries.outbox_seq), 0))
     WHERE seq IN (
           SELECT d.seq
             FROM deliveries AS d
             LEFT JOIN outbox AS o ON o.seq = d.outbox_seq
            WHERE d.subscription_seq = ?1
              AND d.state = 'pending'
              AND d.head = 1
              AND d.due_at > ?2
              AND d.due_at > ?2 + d.delay_ms
              AND d.due_at > max(?2 + d.delay_ms, coalesce(o.not_before, 0))
            LIMIT ?3)";

macro_rules! counts_of {
    ($event:literal) => {
        sql!(
            "SELECT count(*) FILTER (WHERE finished_at IS NULL),
                    count(*) FILTER (WHERE state = 'pending' AND counted_failures > 0),
                    count(*) FILTER (WHERE state IN ('leased', 'waiting')),
                    count(*) FILTER (WHERE state = 'completed'),
                    count(*) FILTER (WHERE state = 'dead_letter'),
                    count(*) FILTER (WHERE state = 'cancelled'),
                    count(*) FILTER (WHERE state = 'skipped')
               FROM deliveries
              WHERE " $event " = ?1"
        )
    };
}

pub(super) const COUNTS_OF_EVENT: &str = counts_of!("outbox_seq");

pub(super) const COUNTS_OF_WEBHOOK_EVENT: &str = counts_of!("webhook_seq");

// Three seeks, each on a partial index: heads of lanes, deliveries behind them, and those that need attention.
pub(super) const HAS_UNFINISHED: &str = "
    SELECT EXISTS (SELECT 1 FROM deliveries
                    WHERE subscription_seq = ?1 AND state = 'pending' AND head = 1)
        OR EXISTS (SELECT 1 FROM deliveries
                    WHERE subscription_seq = ?1 AND state = 'pending' AND head = 0)
        OR EXISTS (
           SELECT 1
             FROM deliveries
            WHERE (state = 'dead_letter' OR state = 'parked' OR state = 'in_doubt' OR state = 'waiting'
                   OR state = 'leased')
              AND subscription_seq = ?1)";

const EVENTS_OF: &str = "
    SELECT seq, outbox_seq, webhook_seq FROM deliveries WHERE seq IN (SELECT value FROM json_each(?1))";

// The few that were refused with the credential before: they wait for steps of up to hours.
const RETRY_REFUSED: &str = "
    UPDATE deliveries
       SET due_at = max(?2, coalesce(
           (SELECT o.not_before FROM outbox AS o WHERE o.seq = deliveries.outbox_seq), 0))
     WHERE seq IN (
           SELECT seq
             FROM deliveries
            WHERE subscription_seq = ?1
              AND state = 'pending'
              AND head = 1
              AND due_at > ?2
              AND last_class = 'auth'
            LIMIT 1000)";

/// The event that a delivery carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The row of `outbox` with this number.
    Outbox(i64),
    /// The row of `webhook_events` with this number.
    WebhookEvent(i64),
}

impl Origin {
    /// The statement for its table, and its number there.
    pub(crate) const fn choose<'s>(self, outbox: &'s str, webhook: &'s str) -> (&'s str, i64) {
        match self {
            Self::Outbox(seq) => (outbox, seq),
            Self::WebhookEvent(seq) => (webhook, seq),
        }
    }

    /// From `outbox_seq` and `webhook_seq` of a delivery, which has one of the two.
    pub(super) fn of(outbox: Option<i64>, webhook: Option<i64>) -> Result<Self> {
        let found = outbox.map(Self::Outbox).or_else(|| webhook.map(Self::WebhookEvent));
        found.ok_or(Error::Changed("the delivery"))
    }
}

/// Due time, lane order and initial state of an event's new deliveries.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// When they may first be sent.
    pub due_at: Timestamp,
    /// The time by which a lane is ordered.
    pub order_at: Timestamp,
    /// What `order_at` is.
    pub order: OrderedBy,
    /// Whether they may have been delivered before a restore. A person then decides whether they are sent.
    pub in_doubt: bool,
    /// How often the file was restored.
    pub epoch: u32,
    /// When they are made.
    pub now: Timestamp,
}

/// What the time is by which a lane is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderedBy {
    /// That of arrival: the event goes behind all earlier ones in its lane.
    Arrival,
    /// One of the event's own: it may go before others that are there already, and is late then.
    Time,
    /// That of the delivery which it replaces.
    Place,
}

/// The place of a delivery, for its replacement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) subscription: SubscriptionSeq,
    lane: Option<i64>,
    pub(super) order_at: Timestamp,
}

impl Place {
    /// The subscription of this place among those that match, in the lane of this place.
    pub(super) fn of(self, matching: &[MatchedSubscription]) -> Option<MatchedSubscription> {
        let found = matching.iter().find(|found| found.subscription == self.subscription)?;
        let places = Places { lane: self.lane, ..found.places };
        Some(MatchedSubscription { places, ..*found })
    }
}

queries! {
    /// The next due time of a subscription's deliveries after `now`.
    pub fn next_due(subscription: SubscriptionSeq, now: Timestamp) -> Option<Timestamp> = value NEXT_DUE;

    /// Whether a subscription has unfinished deliveries or dead letters.
    pub fn has_unfinished(subscription: SubscriptionSeq) -> bool = value HAS_UNFINISHED;
}

changes! {
    /// Makes a new delivery a dead letter.
    pub(super) fn set_aside(delivery: DeliverySeq, reason: &str, now: Timestamp) of "the delivery" = "
    UPDATE deliveries
       SET state = 'dead_letter', due_at = NULL, head = 1, finished_at = ?3, reason = ?2
     WHERE seq = ?1 AND (state = 'pending' OR state = 'in_doubt')";

    /// Stores what the receiver wants to get back with the next attempt.
    pub(super) fn set_custom_data(delivery: DeliverySeq, data: &str) of "the delivery" =
        "UPDATE deliveries SET custom_data = ?2 WHERE seq = ?1";

    /// Counts an attempt that came too late to change the delivery's state. `is_fixed`: what it sent stays.
    pub(super) fn count_late(delivery: DeliverySeq, is_fixed: bool) of "the delivery" = "
    UPDATE deliveries SET attempt_count = attempt_count + 1, rendered = rendered OR ?2 WHERE seq = ?1";

    /// Makes a pending delivery due now.
    pub(super) fn make_due_now(delivery: DeliverySeq, now: Timestamp) of "the delivery" =
        "UPDATE deliveries SET due_at = ?2, delay_ms = 0 WHERE seq = ?1 AND state = 'pending'";

    /// Cancels a delivery that is pending, leased, in doubt or a dead letter.
    pub(super) fn cancel(delivery: DeliverySeq, reason: &str, now: Timestamp) of "the delivery" = "
    UPDATE deliveries
       SET state = 'cancelled', due_at = NULL, lease_until = NULL, confirm_until = NULL, finished_at = ?3, reason = ?2
     WHERE seq = ?1
       AND state IN ('pending', 'leased', 'waiting', 'parked', 'dead_letter', 'in_doubt')";

    /// Reopens a finished delivery, if its state and run are still those given.
    // The dispatcher ignores deleted subscriptions, so a reopened delivery of one would never be sent. It clears the lease,
    // because a late report from the earlier run must not change the new one.
    pub(super) fn replay(delivery: DeliverySeq, state: DeliveryState, run_no: u32, now: Timestamp) of "the delivery" = "
    UPDATE deliveries
       SET state = 'pending', due_at = ?4, delay_ms = 0, finished_at = NULL, reason = NULL,
           counted_failures = 0, run_no = run_no + 1, head = lane IS NULL, lease_owner = NULL
     WHERE seq = ?1 AND state = ?2 AND run_no = ?3 AND finished_at IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM outbox AS o WHERE o.seq = outbox_seq AND o.expunged_at IS NOT NULL)
       AND NOT EXISTS (SELECT 1 FROM webhook_events AS w WHERE w.seq = webhook_seq AND w.expunged_at IS NOT NULL)
       AND EXISTS (SELECT 1 FROM subscriptions AS s
                    WHERE s.seq = deliveries.subscription_seq AND s.deleted_at IS NULL)";
}

/// The place of a delivery, made free for its replacement.
pub(super) fn place(tx: &WriteTx<'_>, delivery: DeliverySeq) -> Result<Place> {
    let (mut place, may_go_earlier) = tx.prepare(PLACE)?.query_row([delivery], |row| {
        let place = Place { subscription: row.get(0)?, lane: row.get(1)?, order_at: row.get(2)? };
        Ok((place, row.get(3)?))
    })?;
    if may_go_earlier {
        place.order_at = place.order_at.minus(Duration::from_millis(1));
    } else if let Some(lane) = place.lane {
        tx.execute(MAKE_WAY, (lane, place.order_at, delivery))?;
    }
    Ok(place)
}

/// Makes a delivery for each subscription that matches the event, in their order.
pub(crate) fn route(
    tx: &WriteTx<'_>,
    origin: Origin,
    tenant: &str,
    matching: &[MatchedSubscription],
    route: Route,
) -> Result<Vec<DeliverySeq>> {
    let (outbox, webhook) = match origin {
        Origin::Outbox(seq) => (Some(seq), None),
        Origin::WebhookEvent(seq) => (None, Some(seq)),
    };
    let Route { due_at: first_at, order_at, order, in_doubt, epoch, now } = route;
    let state = if in_doubt { DeliveryState::InDoubt } else { DeliveryState::Pending };
    let state = state.as_str();
    let due_at = (!in_doubt).then_some(first_at);
    let mut insert = tx.prepare(INSERT)?;
    let mut made = Vec::with_capacity(matching.len());
    for found in matching {
        let MatchedSubscription { subscription, places: Places { lane, funnel }, .. } = found;
        let entity = found.entity;
        let order_at = match entity.filter(|_| order == OrderedBy::Arrival) {
            Some(entity) => external_calls::place(tx, *subscription, entity, order_at)?,
            None => order_at,
        };
        let (last, last_of_all) = lane.map_or(Ok((None, None)), |lane| lanes::last(tx, lane))?;
        // Not even a clock that was set back in between puts an event before those that arrived earlier.
        let order_at = if order == OrderedBy::Arrival {
            last_of_all.max(Some(order_at))
        } else {
            Some(order_at)
        };
        let is_late = order == OrderedBy::Time && last > order_at;
        insert.execute((
            outbox,
            webhook,
            subscription,
            tenant,
            state,
            due_at,
            epoch,
            now,
            funnel,
            entity,
            lane,
            order_at,
            last.is_none(),
            is_late,
        ))?;
        let delivery = DeliverySeq(tx.conn().last_insert_rowid());
        made.push(delivery);
        if let Some(why) = found.unknown {
            tx.set_aside(SetAside { delivery, why, now });
        }
        if let Some(lane) = lane.filter(|_| last.is_some()) {
            // If this insert changes the head, the new row is the head, and its due time is already correct.
            lanes::elect_head(tx, lane, first_at)?;
        }
        tx.ring(*subscription);
    }
    Ok(made)
}

/// A delivery that is due, and its places.
pub type Due = (DeliverySeq, Places);

/// Where a look at due deliveries has ended: the due time and the number of the last one.
pub type DueMark = (Timestamp, DeliverySeq);

/// Due deliveries of a subscription, oldest first. Skips deliveries whose funnel is in `taken` (sorted). Starts after a
/// mark, and reads a bounded number of rows; returns the mark where it ended if there may be more.
pub fn due(
    tx: &ReadTx<'_>,
    subscription: SubscriptionSeq,
    now: Timestamp,
    limit: u32,
    taken: &[i64],
    after: Option<DueMark>,
) -> Result<(Vec<Due>, Option<DueMark>)> {
    let (from, seq) = after.unwrap_or((Timestamp::from_ms(i64::MIN), DeliverySeq(0)));
    let most = limit.saturating_add(MAX_PASSED_BY);
    let mut statement = tx.prepare(DUE)?;
    let mut rows = statement.query((subscription, now, from, seq, most))?;
    let mut due: Vec<Due> = Vec::new();
    let mut looked_at = 0_u32;
    let mut mark = None;
    let is_full = |due: &[Due]| u32::try_from(due.len()).is_ok_and(|count| count >= limit);
    while !is_full(&due)
        && let Some(row) = rows.next()?
    {
        let seq: DeliverySeq = row.get(0)?;
        let funnel: Option<i64> = row.get(2)?;
        let is_taken = funnel.is_some_and(|funnel| taken.binary_search(&funnel).is_ok());
        if !is_taken && !row.get::<_, bool>(4)? {
            due.push((seq, Places { lane: row.get(1)?, funnel }));
        }
        looked_at = looked_at.saturating_add(1);
        mark = Some((row.get(3)?, seq));
    }
    let may_be_more = is_full(&due) || looked_at >= most;
    Ok((due, mark.filter(|_| may_be_more)))
}

/// The request of a delivery; `None` if the delivery is neither pending nor leased.
pub fn outgoing(tx: &ReadTx<'_>, delivery: DeliverySeq) -> Result<Option<OutgoingRequest>> {
    let found = sized(tx, delivery, false, usize::MAX)?;
    Ok(found.and_then(|found| match found {
        Sized::OutgoingRequest(outgoing) => Some(*outgoing),
        Sized::Larger(_) => None,
    }))
}

/// An outgoing request, or only the size of its body.
#[derive(Debug)]
pub enum Sized {
    /// The request.
    OutgoingRequest(Box<OutgoingRequest>),
    /// The size of the body in bytes. The body was not read.
    Larger(usize),
}

/// The request of a delivery that is sent now, or only its size if the body is in `payloads` and has more than `most`
/// bytes. `None` if it is no longer pending, or no longer the head of its lane.
pub fn outgoing_within(
    tx: &ReadTx<'_>,
    delivery: DeliverySeq,
    most: usize,
) -> Result<Option<Sized>> {
    sized(tx, delivery, true, most)
}

fn sized(
    tx: &ReadTx<'_>,
    delivery: DeliverySeq,
    must_be_head: bool,
    most: usize,
) -> Result<Option<Sized>> {
    tx.first(OUTGOING, (delivery, must_be_head), |row| {
        let payload_seq: Option<i64> = row.get(14)?;
        let mut bytes = payload_seq.map_or(Ok(0), |seq| payloads::bytes(tx, seq))?;
        if row.get(22)? {
            bytes = bytes.saturating_add(renderings::bytes(tx, delivery)?);
        }
        if bytes > most {
            return Ok(Sized::Larger(bytes));
        }
        Ok(Sized::OutgoingRequest(Box::new(outgoing_request(tx, delivery, row)?)))
    })
}

/// The request that a delivery of an event or webhook event to a subscription would be; there may be none.
pub fn outgoing_of_event(
    tx: &ReadTx<'_>,
    subscription: SubscriptionSeq,
    (tenant, event_id): (&str, &str),
) -> Result<Option<OutgoingRequest>> {
    let read = |row: &Row<'_>| outgoing_request(tx, DeliverySeq(0), row);
    tx.first(OUTGOING_OF_EVENT, (subscription, tenant, event_id), read)
}

fn outgoing_request(
    tx: &ReadTx<'_>,
    delivery: DeliverySeq,
    row: &Row<'_>,
) -> Result<OutgoingRequest> {
    let tenant: String = row.get(3)?;
    let source: String = row.get(5)?;
    let key: String = row.get(6)?;
    let content_type: String = row.get(10)?;
    let is_fixed: bool = row.get(22)?;
    let rendering = is_fixed.then(|| renderings::of(tx, delivery, &content_type)).transpose()?;
    Ok(OutgoingRequest {
        delivery,
        subscription: row.get(0)?,
        run_no: row.get(1)?,
        attempt_count: row.get(2)?,
        event_id: row.get(4)?,
        webhook_id: crate::base::id::webhook_id(&tenant, &source, &key),
        tenant,
        source,
        idempotency_key: key,
        event_type: row.get(7)?,
        aggregate_type: row.get(8)?,
        aggregate_id: row.get(9)?,
        content_type,
        trace_id: row.get(11)?,
        max_attempts: row.get(12)?,
        accepted_at: row.get(15)?,
        payload: payloads::fetch(tx, row.get_ref(13)?, row.get(14)?)?,
        sealed_fields: row.get::<_, Clamped>(16)?.0,
        headers: row.get(17)?,
        occurred_at: row.get(18)?,
        order: OutgoingOrder {
            ordering_key: row.get(23)?,
            entity: row.get(19)?,
            entity_type: row.get(20)?,
            custom_data: row.get(21)?,
        },
        rendering,
        type_field: row.get(24)?,
    })
}

/// The columns of a delivery that decide how it may change.
pub(super) struct DeliveryRow {
    pub(super) state: DeliveryState,
    pub(super) run_no: u32,
    pub(super) attempt_count: u32,
    pub(super) counted_failures: u32,
    pub(super) origin: Origin,
    pub(super) subscription: SubscriptionSeq,
    pub(super) due_at: Option<Timestamp>,
    pub(super) lane: Option<i64>,
    /// Whether it is the head of its lane, or in none.
    pub(super) is_head: bool,
    /// Whether its lane has other open deliveries.
    pub(super) has_others: bool,
}

columns! {
    fn read_state() -> DeliveryRow = "deliveries" [
        state, run_no, attempt_count, counted_failures, outbox_seq, webhook_seq, subscription_seq, due_at, lane, head,
        "lane IS NOT NULL AND EXISTS (
               SELECT 1
                 FROM deliveries AS l
                WHERE l.lane = deliveries.lane
                  AND l.finished_at IS NULL
                  AND l.state <> 'parked'
                  AND l.seq <> deliveries.seq)" as has_others
    ] {
        state, run_no, attempt_count, counted_failures, origin: Origin::of(outbox_seq, webhook_seq)?,
        subscription: subscription_seq, due_at, lane, is_head: head, has_others
    }
    pub(super) const STATE = "WHERE seq = ?1";
}

impl DeliveryRow {
    /// Elects the head of its lane, if it is in one.
    pub(super) fn elect_head(&self, tx: &WriteTx<'_>, now: Timestamp) -> Result<()> {
        self.lane.map_or(Ok(()), |lane| lanes::elect_head(tx, lane, now))
    }
}

/// The current state of a delivery.
pub(super) fn state(tx: &ReadTx<'_>, delivery: DeliverySeq) -> Result<DeliveryRow> {
    tx.first(STATE, [delivery], read_state)?.ok_or(Error::Changed("the delivery"))
}

/// The events and webhook events of deliveries that are being attempted, by number, the latter with its start.
pub fn events_of(
    tx: &ReadTx<'_>,
    all: &[(DeliverySeq, Timestamp)],
) -> Result<(Vec<i64>, Vec<Began>)> {
    let seqs: Vec<i64> = all.iter().map(|(delivery, _)| delivery.0).collect();
    let found: Vec<(DeliverySeq, Option<i64>, Option<i64>)> =
        tx.rows(EVENTS_OF, [Json(&seqs)], tuple)?;
    let began = |of| all.iter().find(|(delivery, _)| *delivery == of).map(|(_, at)| *at);
    let webhook_events = found.iter().filter_map(|(of, _, seq)| Some(((*seq)?, began(*of)?)));
    Ok((found.iter().filter_map(|(_, seq, _)| *seq).collect(), webhook_events.collect()))
}

/// Reschedules a delivery after a failed attempt.
pub(super) fn reschedule(
    tx: &WriteTx<'_>,
    settlement: &Settlement,
    due_at: Timestamp,
    wait: Duration,
) -> Result<()> {
    let AttemptReport { delivery, run_no, attempt, .. } = &*settlement.report;
    let sent = attempt.method.is_some();
    let row = (delivery, run_no, due_at, millis(wait), attempt.counted, attempt.class, sent);
    tx.change_one(RETRY, row, "the delivery")
}

/// Puts a delivery into its final state after an attempt.
pub(super) fn finish(
    tx: &WriteTx<'_>,
    settlement: &Settlement,
    state: DeliveryState,
    reason: Option<&str>,
) -> Result<()> {
    let AttemptReport { delivery, run_no, attempt, now, .. } = &*settlement.report;
    let sent = attempt.method.is_some();
    let row = (delivery, run_no, state.as_str(), now, attempt.counted, attempt.class, reason, sent);
    tx.change_one(FINISH, row, "the delivery")
}

/// Makes a delivery wait for its confirmation, after the target has accepted it.
pub(super) fn wait(tx: &WriteTx<'_>, settlement: &Settlement, within: Duration) -> Result<()> {
    let AttemptReport { delivery, run_no, attempt, now, .. } = &*settlement.report;
    let sent = attempt.method.is_some();
    let row = (delivery, run_no, now.plus(within), millis(within), attempt.class, sent);
    tx.change_one(WAIT, row, "the delivery")
}

/// Counts the deliveries of one event by state.
pub(super) fn counts(tx: &ReadTx<'_>, origin: Origin) -> Result<DeliveryCounts> {
    let (sql, seq) = origin.choose(COUNTS_OF_EVENT, COUNTS_OF_WEBHOOK_EVENT);
    let read = in_order!(DeliveryCounts {
        open,
        open_failed,
        with_worker,
        completed,
        dead,
        cancelled,
        skipped
    });
    tx.first(sql, [seq], read)?.ok_or(Error::Changed("the deliveries"))
}

/// Corrects at most `limit` due times that a wrong clock set too far ahead; returns how many.
pub fn clamp_due_times(
    tx: &WriteTx<'_>,
    subscription: SubscriptionSeq,
    now: Timestamp,
    limit: u32,
) -> Result<usize> {
    let moved = tx.execute(CLAMP_DUE, (subscription, now, limit))?;
    if moved > 0 {
        tx.ring(subscription);
    }
    Ok(moved)
}

/// Makes those due now whose latest attempt was refused for its credential, because it may be accepted from now on.
pub(super) fn retry_refused(
    tx: &WriteTx<'_>,
    subscription: SubscriptionSeq,
    now: Timestamp,
) -> Result<()> {
    if tx.execute(RETRY_REFUSED, (subscription, now))? > 0 {
        tx.ring(subscription);
    }
    Ok(())
}
