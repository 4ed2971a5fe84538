//! Tables `outbox` and `webhook_events`: the next events of a job, with their deliveries to send again and to create.
//!
//! Events are found in the order in which they were received. Not here: jobs on dead letters ([`super::dead_letters`]).

use std::borrow::Cow;

use rusqlite::{Row, ToSql, params};

use crate::base::clock::Timestamp;
use crate::base::id::{DeliverySeq, SubscriptionSeq};
use crate::jobs::tables::expunged;
use crate::jobs::{Action, Batch, Cursor, Item, JobFilter, JobKind, MAX_BATCH, NewJob};
use crate::model::delivery::DeliveryState;
use crate::model::event::Event;
use crate::model::form_body::Body;
use crate::model::outcome::AttemptClass;
use crate::model::subscription::{Routed, Subscription};
use crate::store::deliveries::{OrderedBy, Origin, Route};
use crate::store::error::{Error, Result};
use crate::store::legal_holds::{can_be_expunged, is_held_by};
use crate::store::page::{MAX_OF_INDEX, number_at};
use crate::store::sql::{changes, columns};
use crate::store::tx::{ReadTx, WriteTx, tuple};
use crate::store::{
    matching, meta, outbox_lists, outbox_routing, payloads, settlement, subscriptions,
    webhook_events,
};

// Not routed events will be routed anyway, quarantined ones must be repaired first, and discarded ones are not sent.
pub(crate) const NEXT: &str = "
    SELECT o.seq, o.received_at FROM outbox AS o NOT INDEXED
     WHERE o.seq > ?2 AND o.seq <= ?3 AND o.tenant = ?1 AND o.routed_at IS NOT NULL
       AND o.status <> 'quarantined' AND o.error_code IS NULL AND o.expunged_at IS NULL AND (?5 IS NULL OR o.event_type = ?5)
       AND (?6 IS NULL OR o.received_at >= ?6) AND (?7 IS NULL OR o.received_at < ?7)
       AND (?8 IS NULL OR o.aggregate_type = ?8) AND (?9 IS NULL OR o.aggregate_id = ?9)
     ORDER BY o.seq LIMIT ?4";

pub(crate) const NEXT_WEBHOOK: &str = "
    SELECT w.seq, w.received_at FROM webhook_events AS w NOT INDEXED
     WHERE w.seq > ?2 AND w.seq <= ?3 AND w.tenant = ?1 AND w.expunged_at IS NULL AND (?5 IS NULL OR w.event_type = ?5)
       AND (?6 IS NULL OR w.received_at >= ?6) AND (?7 IS NULL OR w.received_at < ?7)
       AND (?8 IS NULL OR w.provider = ?8)
     ORDER BY w.seq LIMIT ?4";

pub(crate) const FINISHED: &str = concat!(
    "SELECT e.seq, e.received_at FROM outbox AS e NOT INDEXED
      WHERE e.seq > ?2 AND e.seq <= ?3 AND e.tenant = ?1 AND (?5 IS NULL OR e.event_type = ?5)
        AND (?6 IS NULL OR e.received_at >= ?6) AND (?7 IS NULL OR e.received_at < ?7)
        AND (?8 IS NULL OR e.aggregate_type = ?8) AND (?9 IS NULL OR e.aggregate_id = ?9) AND ",
    can_be_expunged!("outbox"),
    " ORDER BY e.seq LIMIT ?4"
);

pub(crate) const FINISHED_WEBHOOK: &str = concat!(
    "SELECT e.seq, e.received_at FROM webhook_events AS e NOT INDEXED
      WHERE e.seq > ?2 AND e.seq <= ?3 AND e.tenant = ?1 AND (?5 IS NULL OR e.event_type = ?5)
        AND (?6 IS NULL OR e.received_at >= ?6) AND (?7 IS NULL OR e.received_at < ?7)
        AND (?8 IS NULL OR e.provider = ?8) AND ",
    can_be_expunged!("webhook_events"),
    " ORDER BY e.seq LIMIT ?4"
);

const PAYLOAD: &str = "SELECT payload, payload_seq FROM outbox WHERE seq = ?1";

const WEBHOOK_PAYLOAD: &str = "SELECT payload, payload_seq FROM webhook_events WHERE seq = ?1";

columns! {
    fn event_delivery() -> EventDelivery = ("deliveries" from "deliveries AS d") [
        d.seq, d.state, d.run_no, d.subscription_seq as subscription, d.order_at,
        "coalesce(d.finished_at IS NOT NULL AND (?2 IS NULL OR d.last_class = ?2)
            AND (?3 IS NULL OR ?3 = (SELECT a.http_status FROM attempts AS a
                                      WHERE a.delivery_seq = d.seq AND a.n = d.attempt_count)), 0)" as matches_filter
    ] { seq, state, run_no, subscription, order_at, matches_filter }
    pub(crate) const DELIVERIES_OF = "WHERE d.outbox_seq = ?1";
    pub(crate) const DELIVERIES_OF_WEBHOOK = "WHERE d.webhook_seq = ?1";
}

// After a restore numbers jump far ahead. This finds the next number without a scan of the gap.
const AFTER: &str = "SELECT seq FROM outbox WHERE seq > ?1 AND seq <= ?2 ORDER BY seq LIMIT 1";

const AFTER_WEBHOOK: &str =
    "SELECT seq FROM webhook_events WHERE seq > ?1 AND seq <= ?2 ORDER BY seq LIMIT 1";

const LAST: &str = "SELECT coalesce(max(seq), 0) FROM outbox";

const LAST_WEBHOOK: &str = "SELECT coalesce(max(seq), 0) FROM webhook_events";

changes! {
    /// Stores which event a new event repeats.
    pub fn set_replay_of(id: &str, of: &str) of "the event" =
        "UPDATE outbox SET replay_of = ?2 WHERE id = ?1";
}

/// Where a job begins and ends: it covers the events that exist now.
pub(super) fn start(tx: &ReadTx<'_>, kind: JobKind, filter: &JobFilter) -> Result<Cursor> {
    let mut cursor = Cursor::default();
    let before = |first_from: &str| match filter.since {
        Some(since) => number_at(tx, first_from, since).map(|at| at.saturating_sub(1)),
        None => Ok(0),
    };
    let last = |sql: &str| -> Result<i64> { tx.value(sql, []) };
    if kind.is_expunging() {
        // Also what is in the archive.
        cursor.end = expunged::last(tx, "outbox")?;
        cursor.webhook_end = expunged::last(tx, "webhook_events")?;
        return Ok(cursor);
    }
    if kind != JobKind::ReplayWebhookEvents {
        (cursor.after, cursor.end) = (before(outbox_lists::RECEIVED_FROM)?, last(LAST)?);
    }
    if kind != JobKind::ReplayEvents {
        (cursor.webhook_after, cursor.webhook_end) =
            (before(webhook_events::RECEIVED_FROM)?, last(LAST_WEBHOOK)?);
    }
    Ok(cursor)
}

/// One event, if it matches the filter; `None` if nothing can be sent again.
pub fn one(tx: &ReadTx<'_>, job: &NewJob, origin: Origin) -> Result<Option<Item>> {
    let of = |seq: i64| (seq.saturating_sub(1), seq);
    let mut cursor = Cursor::default();
    match origin {
        Origin::Outbox(seq) => (cursor.after, cursor.end) = of(seq),
        Origin::WebhookEvent(seq) => (cursor.webhook_after, cursor.webhook_end) = of(seq),
    }
    Ok(next(tx, job, &cursor, 1)?.items.pop())
}

/// The next events for which there is something to do, the oldest first. Both tables are merged by the time of receipt.
pub(super) fn next(tx: &ReadTx<'_>, job: &NewJob, cursor: &Cursor, limit: u32) -> Result<Batch> {
    let mut batch = Batch { items: Vec::new(), cursor: cursor.clone(), is_last: false };
    let search = Search { tx, job, live: subscriptions::live_of(tx, &job.tenant)? };
    let named = search.named();
    if named.is_none() && job.filter.subscription.is_some() {
        return Ok(Batch { is_last: true, ..batch });
    }
    let rows = limit.max(MAX_BATCH);
    let (own, own_end) = search.events(cursor.after, cursor.end, rows)?;
    let (webhook, webhook_end) =
        search.webhook_events(cursor.webhook_after, cursor.webhook_end, rows)?;
    let mut own = own.into_iter().peekable();
    let mut webhook = webhook.into_iter().peekable();
    while u32::try_from(batch.items.len()).is_ok_and(|have| have < limit) {
        let is_own = match (own.peek(), webhook.peek()) {
            (None, _) if own_end < cursor.end => {
                batch.cursor.after = own_end;
                return Ok(batch);
            }
            (_, None) if webhook_end < cursor.webhook_end => {
                batch.cursor.webhook_after = webhook_end;
                return Ok(batch);
            }
            (None, None) => {
                batch.cursor.after = own_end;
                batch.cursor.webhook_after = webhook_end;
                return Ok(Batch { is_last: true, ..batch });
            }
            (Some((_, at)), Some((_, webhook_at))) => at <= webhook_at,
            (own, _) => own.is_some(),
        };
        let next = if is_own { own.next() } else { webhook.next() };
        let seq = next.map_or(0, |(seq, _)| seq);
        let origin = if is_own {
            batch.cursor.after = seq;
            Origin::Outbox(seq)
        } else {
            batch.cursor.webhook_after = seq;
            Origin::WebhookEvent(seq)
        };
        let actions = search.actions(origin, named)?;
        if !actions.is_empty() {
            batch.items.push(Item { seq, is_webhook_event: !is_own, subscription: None, actions });
        }
    }
    Ok(batch)
}

/// The next events of which a job removes what they have.
pub(super) fn finished(
    tx: &ReadTx<'_>,
    job: &NewJob,
    cursor: &Cursor,
    limit: u32,
) -> Result<Batch> {
    let search = Search { tx, job, live: Vec::new() };
    let JobFilter { aggregate_type, aggregate_id, provider, .. } = &job.filter;
    let is_webhook_event = job.kind == JobKind::ExpungeWebhookEvents;
    let mut cursor = cursor.clone();
    let (found, is_last) = if is_webhook_event {
        let after = cursor.webhook_after;
        let end = cursor.webhook_end;
        let more = params![provider];
        let (found, to) = search.next(&FINISHED_WEBHOOK_EVENTS, after, end, limit, more)?;
        cursor.webhook_after = to;
        (found, to >= cursor.webhook_end)
    } else {
        let more = params![aggregate_type, aggregate_id];
        let (found, to) = search.next(&FINISHED_EVENTS, cursor.after, cursor.end, limit, more)?;
        cursor.after = to;
        (found, to >= cursor.end)
    };
    let item = |(seq, _)| Item { seq, is_webhook_event, subscription: None, actions: Vec::new() };
    Ok(Batch { items: found.into_iter().map(item).collect(), cursor, is_last })
}

/// The statements of a search in one table.
struct SearchStatements {
    /// Finds the first event after a place.
    first_after: &'static str,
    /// Reads the events that the job's filter selects.
    matching: &'static str,
}

const EVENTS: SearchStatements = SearchStatements { first_after: AFTER, matching: NEXT };
const WEBHOOK_EVENTS: SearchStatements =
    SearchStatements { first_after: AFTER_WEBHOOK, matching: NEXT_WEBHOOK };
const FINISHED_EVENTS: SearchStatements =
    SearchStatements { first_after: AFTER, matching: FINISHED };
const FINISHED_WEBHOOK_EVENTS: SearchStatements =
    SearchStatements { first_after: AFTER_WEBHOOK, matching: FINISHED_WEBHOOK };

/// The search for events of a job.
struct Search<'a> {
    tx: &'a ReadTx<'a>,
    job: &'a NewJob,
    /// The tenant's subscriptions.
    live: Vec<Subscription>,
}

/// Numbers of events with the time of their receipt, and the number up to which was searched.
type Events = (Vec<(i64, Timestamp)>, i64);

impl Search<'_> {
    /// The subscription that the filter names.
    fn named(&self) -> Option<&Subscription> {
        let name = self.job.filter.subscription.as_deref()?;
        let is_named = |found: &&Subscription| {
            [found.new.id.as_str(), found.new.name.as_str()].contains(&name)
        };
        self.live.iter().find(is_named)
    }

    fn events(&self, after: i64, end: i64, limit: u32) -> Result<Events> {
        let JobFilter { aggregate_type, aggregate_id, .. } = &self.job.filter;
        self.next(&EVENTS, after, end, limit, params![aggregate_type, aggregate_id])
    }

    fn webhook_events(&self, after: i64, end: i64, limit: u32) -> Result<Events> {
        self.next(&WEBHOOK_EVENTS, after, end, limit, params![self.job.filter.provider])
    }

    fn next(
        &self,
        statements: &SearchStatements,
        after: i64,
        end: i64,
        limit: u32,
        more: &[&dyn ToSql],
    ) -> Result<Events> {
        let Some(next) = self.tx.find::<i64>(statements.first_after, (after, end))? else {
            return Ok((Vec::new(), end.max(after)));
        };
        let last = next.saturating_add(i64::from(MAX_OF_INDEX)).min(end);
        let JobFilter { event_type, since, until, .. } = &self.job.filter;
        let mut params: Vec<&dyn ToSql> =
            vec![&self.job.tenant, &after, &last, &limit, event_type, since, until];
        params.extend_from_slice(more);
        let found: Vec<(i64, Timestamp)> = self.tx.rows(statements.matching, &*params, tuple)?;
        let is_full = u32::try_from(found.len()).is_ok_and(|have| have >= limit);
        let last = found.last().filter(|_| is_full).map_or(last, |(seq, _)| *seq);
        Ok((found, last.max(after)))
    }

    /// What is to be done for one event. Its final deliveries are sent again, even completed ones. If it has none for
    /// the subscription that the filter names, or none at all, the missing ones are created.
    fn actions(
        &self,
        origin: Origin,
        named: Option<&Subscription>,
    ) -> Result<Vec<((Timestamp, i64), Action)>> {
        let JobFilter { class, code, .. } = &self.job.filter;
        let (sql, seq) = origin.choose(DELIVERIES_OF, DELIVERIES_OF_WEBHOOK);
        let found =
            self.tx.rows(sql, (seq, class.map(AttemptClass::as_str), code), event_delivery)?;
        let is_live = |delivery: &&EventDelivery| {
            self.live.iter().any(|live| live.seq == delivery.subscription)
        };
        let is_meant = |delivery: &&EventDelivery| {
            delivery.matches_filter
                && named.is_none_or(|named| named.seq == delivery.subscription)
                && (self.job.kind != JobKind::Recover
                    || delivery.state == DeliveryState::DeadLetter)
        };
        let mut actions: Vec<_> =
            found.iter().filter(is_live).filter(is_meant).map(EventDelivery::action).collect();
        let misses = |live: &&Subscription| match named {
            Some(named) => {
                named.seq == live.seq
                    && found.iter().all(|delivery| delivery.subscription != live.seq)
            }
            None => found.is_empty(),
        };
        let mut missing = self.live.iter().filter(misses).peekable();
        if self.job.filter.is_of_attempts() || missing.peek().is_none() {
            return Ok(actions);
        }
        with_stored(self.tx, origin, |event| {
            let mut read = None;
            for live in missing {
                let payload = || payload(self.tx, origin, event.content_type);
                if matching::wants(&live.new, event.routed, &mut read, payload)? {
                    actions.push(((event.order_at, i64::MAX), Action::Create(origin, live.seq)));
                }
            }
            Ok(())
        })?;
        Ok(actions)
    }
}

/// A delivery of an event.
struct EventDelivery {
    seq: DeliverySeq,
    state: DeliveryState,
    run_no: u32,
    subscription: SubscriptionSeq,
    order_at: Timestamp,
    /// Whether it is final, and its last attempt matches the filter.
    matches_filter: bool,
}

impl EventDelivery {
    fn action(&self) -> ((Timestamp, i64), Action) {
        let action = Action::Change { delivery: self.seq, state: self.state, run_no: self.run_no };
        ((self.order_at, self.seq.0), action)
    }
}

/// What routing needs of a stored event.
struct StoredEvent<'e> {
    routed: Routed<'e>,
    content_type: &'e str,
    order_at: Timestamp,
    not_before: Option<Timestamp>,
}

/// Runs a function with a stored event; returns `None` if there is no such event.
fn with_stored<T>(
    tx: &ReadTx<'_>,
    origin: Origin,
    run: impl FnOnce(StoredEvent<'_>) -> Result<T>,
) -> Result<Option<T>> {
    let done = match origin {
        Origin::Outbox(seq) => outbox_lists::by_seq(tx, seq)?.map(|Event { new, .. }| {
            let routed = outbox_routing::routed(&new);
            let not_before = new.not_before;
            let order_at = new.occurred_at.unwrap_or(new.received_at);
            run(StoredEvent { routed, content_type: &new.content_type, order_at, not_before })
        }),
        Origin::WebhookEvent(seq) => webhook_events::by_seq(tx, seq)?.map(|found| {
            let routed = webhook_events::routed(&found.new);
            let order_at = found.new.received_at;
            let content_type = &found.new.content_type;
            run(StoredEvent { routed, content_type, order_at, not_before: None })
        }),
    };
    done.transpose()
}

/// The payload of a stored event, as filters read it.
fn payload(tx: &ReadTx<'_>, origin: Origin, content_type: &str) -> Result<Cow<'static, [u8]>> {
    let (sql, seq) = origin.choose(PAYLOAD, WEBHOOK_PAYLOAD);
    let fetch = |row: &Row<'_>| payloads::fetch(tx, row.get_ref(0)?, row.get(1)?);
    let found = tx.first(sql, [seq], fetch)?;
    let bytes = found.ok_or(Error::Changed("the event"))?;
    let view = match (Body { content_type, bytes: &bytes }).json_view() {
        Cow::Owned(view) => Some(view),
        Cow::Borrowed(_) => None,
    };
    Ok(Cow::Owned(view.unwrap_or(bytes)))
}

/// Creates the delivery of a stored event for a subscription, at its regular place in the lane. Returns it.
/// Fails with `Changed` if there is one by now, or if the subscription does not want the event any more.
pub(super) fn create(
    tx: &WriteTx<'_>,
    origin: Origin,
    subscription: SubscriptionSeq,
    now: Timestamp,
) -> Result<Option<DeliverySeq>> {
    const CHANGED: Error = Error::Changed("the event");
    let (sql, seq) = origin.choose(DELIVERIES_OF, DELIVERIES_OF_WEBHOOK);
    let nothing: Option<&str> = None;
    let existing = tx.rows(sql, (seq, nothing, nothing), event_delivery)?;
    let route = subscriptions::routes(tx)?.get(subscription).ok_or(CHANGED)?;
    let created = with_stored(tx, origin, |event| {
        let matched = matching::matched(&route, event.routed, &mut None, || {
            payload(tx, origin, event.content_type)
        })?;
        let matching: Vec<_> = matched.into_iter().collect();
        if matching.is_empty() || existing.iter().any(|found| found.subscription == subscription) {
            return Err(CHANGED);
        }
        // A person asks for the delivery, so it is not held as in doubt.
        let route = Route {
            due_at: event.not_before.map_or(now, |not_before| not_before.max(now)),
            order_at: event.order_at,
            order: OrderedBy::Time,
            in_doubt: false,
            epoch: meta::cached_fence(tx)?.epoch,
            now,
        };
        settlement::route_again(tx, origin, event.routed.tenant, &matching, route)
    });
    created?.ok_or(CHANGED)?;
    let all = tx.rows(sql, (seq, nothing, nothing), event_delivery)?;
    Ok(all.iter().find(|found| found.subscription == subscription).map(|found| found.seq))
}

/// The open deliveries of an event, without those that are parked or wait for a confirmation.
pub fn open_deliveries(tx: &ReadTx<'_>, event: i64) -> Result<Vec<DeliverySeq>> {
    let nothing: Option<&str> = None;
    let found = tx.rows(DELIVERIES_OF, (event, nothing, nothing), event_delivery)?;
    let is_open = |delivery: &EventDelivery| {
        matches!(
            delivery.state,
            DeliveryState::Pending | DeliveryState::Leased | DeliveryState::InDoubt
        )
    };
    Ok(found.into_iter().filter(is_open).map(|delivery| delivery.seq).collect())
}
