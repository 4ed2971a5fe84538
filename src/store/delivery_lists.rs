//! Table `deliveries`, for the API: single deliveries and pages, joined with their events.

use std::collections::BTreeMap;

use rusqlite::params;

use crate::model::delivery::{Delivery, DeliveryState, QueuePlace};
use crate::model::outcome::AttemptClass;
use crate::store::column::Json;
use crate::store::outbox_lists::{TRACED, TRACED_WEBHOOKS, traced};
use crate::store::page::{
    Newest, RowPage, SeqRange, Span, cutoff, newest_first, newest_seq, row_from,
};
use crate::store::prelude::*;

columns! {
    fn delivery() -> Delivery = ("deliveries" from "deliveries AS d
      JOIN subscriptions AS s ON s.seq = d.subscription_seq
      LEFT JOIN outbox AS o ON o.seq = d.outbox_seq
      LEFT JOIN webhook_events AS w ON w.seq = d.webhook_seq
      LEFT JOIN attempts AS a ON a.delivery_seq = d.seq AND a.n = d.attempt_count") [
        d.seq, d.tenant, "coalesce(o.id, w.id)" as event_id, "d.webhook_seq IS NOT NULL" as of_webhook_event,
        "coalesce(o.event_type, w.event_type)" as event_type, s.name as subscription, d.state, d.due_at,
        d.attempt_count, d.counted_failures, d.last_class, d.run_no, d.finished_at, d.reason, d.lease_until,
        "d.head = 0 AND d.state = 'pending'" as is_behind, o.aggregate_type, o.aggregate_id,
        "coalesce(o.idempotency_key, w.provider_event_id)" as key, d.confirm_until, d.created_at, d.lane, d.order_at,
        d.late, "coalesce(o.ordering_key, w.ordering_key)" as ordering_key, a.http_status, a.latency_ms
    ] {
        seq, tenant, event_id, of_webhook_event, event_type, subscription, state, due_at, lease_until, is_behind,
        attempt_count, counted_failures, last_class, run_no, finished_at, reason, aggregate_type, aggregate_id, key,
        confirm_until, created_at, lane, order_at, late, ordering_key, http_status, latency_ms,
        archived_in: None
    }
    /// A delivery of a tenant, by its number.
    pub fn by_seq(tenant: &str, seq: DeliverySeq) -> Option = "WHERE d.seq = ?2 AND d.tenant = ?1";
}

queries! {
    fn sources(deliveries: Json<&Vec<i64>>) -> Vec<(i64, String)> = rows as tuple "
    SELECT d.seq, coalesce(o.source_system, w.provider)
      FROM deliveries AS d
      LEFT JOIN outbox AS o ON o.seq = d.outbox_seq
      LEFT JOIN webhook_events AS w ON w.seq = d.webhook_seq
     WHERE d.seq IN (SELECT value FROM json_each(?1))";
}

/// The sources of the events of deliveries: their `source_system` or their provider, by the number of the delivery. With
/// the key they make the `webhook-id`.
pub fn sources_of(tx: &ReadTx<'_>, deliveries: &[Delivery]) -> Result<BTreeMap<i64, String>> {
    let seqs: Vec<i64> = deliveries.iter().map(|delivery| delivery.seq.0).collect();
    Ok(sources(tx, Json(&seqs))?.into_iter().collect())
}

const ANSWER: &str = "
    SELECT answer_sentence(a.excerpt, a.failed_reason, d.reason)
      FROM deliveries AS d
      LEFT JOIN attempts AS a ON a.delivery_seq = d.seq AND a.n = d.attempt_count
     WHERE d.seq = ?1 AND d.state = 'dead_letter'";

/// The sentence in which the target of a dead letter answered; `None` if the delivery is no dead letter.
pub fn answer(tx: &ReadTx<'_>, dead: DeliverySeq) -> Result<Option<String>> {
    let found: Option<Option<String>> = tx.find(ANSWER, [dead])?;
    Ok(found.flatten())
}

/// The condition of a list's filter by subscription (?5).
macro_rules! of_subscription {
    () => {
        "(?5 IS NULL OR EXISTS (SELECT 1 FROM subscriptions AS s
                                 WHERE s.seq = subscription_seq AND (s.name = ?5 OR s.id = ?5)))"
    };
}

/// The condition of a list's filter by the status of the last answer.
macro_rules! of_code {
    ($code:literal) => {
        concat!(
            "(",
            $code,
            " IS NULL OR ",
            $code,
            " = (SELECT a.http_status FROM attempts AS a
              WHERE a.delivery_seq = deliveries.seq AND a.n = attempt_count))"
        )
    };
}

/// The condition of a list's filter by the place in the queue: `new` or `in_queue`.
macro_rules! of_queue {
    ($queue:literal) => {
        concat!(
            "(",
            $queue,
            " IS NULL OR (state = 'pending' AND attempt_count = 0 AND (",
            $queue,
            " = 'new' OR head = 1)))"
        )
    };
}

macro_rules! of_event {
    ($table:literal, $number:literal) => {
        sql!(
            "SELECT deliveries.seq
               FROM " $table " AS e
              CROSS JOIN deliveries ON deliveries." $number " = e.seq
              WHERE e.id = ?6 AND e.tenant = ?4 AND deliveries.seq < ?1 AND deliveries.seq >= ?2
                AND (?7 IS NULL OR state = ?7) AND " of_code!("?8") " AND " of_subscription!()
            " AND (?9 IS NULL OR ?9 = (state = 'pending' AND head = 0))
                AND (?10 IS NULL OR deliveries.seq IN (SELECT value FROM json_each(?10)))
                AND (?11 IS NULL OR last_class = ?11) AND " of_queue!("?12")
            " ORDER BY deliveries.seq DESC
              LIMIT ?3"
        )
    };
}

pub(super) const MADE_FROM: &str = row_from!("deliveries", "created_at");

pub(super) const PAGE: &str = newest_first!(
    "deliveries" where "tenant = ?4 AND (?6 IS NULL OR state = ?6) AND ", of_code!("?7"), " AND ",
    of_subscription!(), " AND (?8 IS NULL OR ?8 = (state = 'pending' AND head = 0))
     AND (?9 IS NULL OR seq IN (SELECT value FROM json_each(?9))) AND (?10 IS NULL OR last_class = ?10) AND ",
    of_queue!("?11")
);

pub(super) const PAGE_OF_TRACE: &str = newest_first!(
    "deliveries" where "tenant = ?4 AND (?6 IS NULL OR state = ?6) AND ", of_code!("?7"), " AND ",
    of_subscription!(), " AND (?8 IS NULL OR ?8 = (state = 'pending' AND head = 0))
     AND (?9 IS NULL
      OR outbox_seq = (SELECT seq FROM outbox WHERE id = ?9)
      OR webhook_seq = (SELECT seq FROM webhook_events WHERE id = ?9))
     AND seq IN (SELECT seq FROM deliveries WHERE outbox_seq IN (SELECT value FROM json_each(?10))
                  UNION ALL
                 SELECT seq FROM deliveries WHERE webhook_seq IN (SELECT value FROM json_each(?11)))
     AND (?12 IS NULL OR seq IN (SELECT value FROM json_each(?12))) AND (?13 IS NULL OR last_class = ?13) AND ",
    of_queue!("?14")
);

pub(super) const NEWEST: &str = newest_seq!("deliveries");

// The partial index serves a list only if the statement contains the state as a literal.
pub(super) const PAGE_OF_DEAD: &str = newest_first!(
    "deliveries" where "tenant = ?4 AND state = 'dead_letter' AND (?6 IS NULL OR last_class = ?6) AND ",
    of_code!("?7"), " AND ", of_subscription!(),
    " AND (?8 IS NULL
       OR ?8 = coalesce((SELECT answer_sentence(a.excerpt, a.failed_reason, deliveries.reason) FROM attempts AS a
                          WHERE a.delivery_seq = deliveries.seq AND a.n = attempt_count),
                        answer_sentence(NULL, NULL, deliveries.reason)))"
);

pub(super) const CUTOFF_OF_DEAD: &str =
    cutoff!("deliveries" where "tenant = ?4 AND state = 'dead_letter'");

pub(super) const PAGE_IN_DOUBT: &str = newest_first!(
    "deliveries" where "tenant = ?4 AND state = 'in_doubt' AND ", of_code!("?6"), " AND ",
    of_subscription!()
);

pub(super) const CUTOFF_IN_DOUBT: &str =
    cutoff!("deliveries" where "tenant = ?4 AND state = 'in_doubt'");

pub(super) const OF_EVENT: &str = of_event!("outbox", "outbox_seq");

pub(super) const OF_WEBHOOK_EVENT: &str = of_event!("webhook_events", "webhook_seq");

/// Which deliveries a list shows. `None` means any.
#[derive(Clone, Debug, Default)]
pub struct DeliveryFilter {
    /// Their state.
    pub state: Option<DeliveryState>,
    /// Their subscription, by name or UUID.
    pub subscription: Option<String>,
    /// The UUID of the event or webhook event they carry.
    pub event_id: Option<String>,
    /// The trace of the event that they carry: of its newest 1,000 events.
    pub trace_id: Option<String>,
    /// The class of their last attempt.
    pub class: Option<AttemptClass>,
    /// The HTTP status of their last attempt.
    pub code: Option<u16>,
    /// The sentence in which the target answered. Only for dead letters.
    pub answer: Option<String>,
    /// Whether they wait behind others.
    pub postponed: Option<bool>,
    /// Those that were never attempted, by their place in the queue.
    pub queue: Option<QueuePlace>,
    /// Those that are being attempted, if only these are wanted.
    pub in_flight: Option<Vec<i64>>,
    /// When they were made.
    pub made: Span,
}

impl DeliveryFilter {
    /// Whether few rows of an index by state may match.
    fn is_of_few(&self) -> bool {
        let Self { subscription, class, code, answer, .. } = self;
        subscription.is_some() || class.is_some() || code.is_some() || answer.is_some()
    }
}

/// A page of deliveries, newest first.
pub fn page(
    tx: &ReadTx<'_>,
    newest: Newest<'_>,
    filter: &DeliveryFilter,
) -> Result<RowPage<Delivery>> {
    let Newest { tenant, before, limit } = newest;
    let DeliveryFilter {
        state,
        subscription,
        event_id,
        trace_id,
        class,
        code,
        postponed,
        queue,
        ..
    } = filter;
    let queue = queue.map(QueuePlace::as_str);
    let seen = filter.in_flight.as_ref().map(Json);
    let mut range = SeqRange::new(tx, MADE_FROM, before, filter.made)?;
    let seqs = if let Some(trace) = trace_id {
        let events = traced(tx, TRACED, tenant, trace)?;
        let webhook_events = traced(tx, TRACED_WEBHOOKS, tenant, trace)?;
        let events = Json(&events);
        let hooks = Json(&webhook_events);
        let more = params![
            tenant,
            subscription,
            state,
            code,
            postponed,
            event_id,
            events,
            hooks,
            seen,
            class,
            queue
        ];
        range.seqs(tx, PAGE_OF_TRACE, limit, more)?
    } else if let Some(event_id) = event_id {
        let more =
            params![tenant, subscription, event_id, state, code, postponed, seen, class, queue];
        let mut found = range.seqs(tx, OF_EVENT, limit, more)?;
        if found.is_empty() {
            found = range.seqs(tx, OF_WEBHOOK_EVENT, limit, more)?;
        }
        found
    } else {
        let indexed =
            match state.filter(|_| postponed.is_none() && seen.is_none() && queue.is_none()) {
                Some(DeliveryState::DeadLetter) => Some((CUTOFF_OF_DEAD, PAGE_OF_DEAD)),
                Some(DeliveryState::InDoubt) if class.is_none() => {
                    Some((CUTOFF_IN_DOUBT, PAGE_IN_DOUBT))
                }
                _ => None,
            };
        if let Some((cutoff, page)) = indexed {
            if filter.is_of_few() {
                range.limit_rows(tx, cutoff, params![tenant])?;
            }
            if *state == Some(DeliveryState::DeadLetter) {
                let more = params![tenant, subscription, class, code, filter.answer];
                range.seqs(tx, page, limit, more)?
            } else {
                range.seqs(tx, page, limit, params![tenant, subscription, code])?
            }
        } else {
            range.limit_numbers(tx, NEWEST)?;
            let more = params![tenant, subscription, state, code, postponed, seen, class, queue];
            range.seqs(tx, PAGE, limit, more)?
        }
    };
    let each = seqs.into_iter().map(|seq| by_seq(tx, tenant, DeliverySeq(seq)));
    let rows = each.filter_map(Result::transpose).collect::<Result<_>>()?;
    Ok(range.found(rows, limit, |delivery: &Delivery| delivery.seq.0))
}
