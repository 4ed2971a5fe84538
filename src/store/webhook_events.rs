//! Table `webhook_events`: events received from providers, each stored once.

use rusqlite::params;

use crate::model::event::{DeliveryCounts, MAX_INLINE_BYTES, Tried};
use crate::model::in_doubt::{self, Fence};
use crate::model::lane::Key;
use crate::model::sealed::Sealed;
use crate::model::subscription::Routed;
use crate::model::webhook_event::{
    Batch, Began, NewWebhookEvent, Status, WebhookEvent, WebhookOrigin, derive, webhook_id,
};
use crate::store::column::Json;
use crate::store::deliveries::{self, OrderedBy, Origin, Route};
use crate::store::outbox_lists::{TRACED_WEBHOOKS, traced};
use crate::store::page::{
    Newest, RowPage, SeqRange, Span, cutoff, newest_first, newest_of_id, row_from,
};
use crate::store::prelude::*;
use crate::store::seen_keys::Identity;
use crate::store::tx::first;
use crate::store::{meta, payloads, seen_keys, subjects, subscriptions};

pub(super) const FIND_IDENTITY: &str = "
    SELECT seq, id FROM webhook_events
     WHERE tenant = ?1 AND provider = ?2 AND provider_event_id = ?3";

pub(super) const HOW_IT_CAME: &str = "
    SELECT seq, origin = 'webhook' OR duplicate_count > 0 FROM webhook_events
     WHERE tenant = ?1 AND provider = ?2 AND provider_event_id = ?3";

pub(super) const FIND_REPLAYED: &str = "
    SELECT seq, id FROM webhook_events
     WHERE fingerprint = ?1 AND +tenant = ?2 AND provider = ?3 AND received_at >= ?4
     ORDER BY seq DESC LIMIT 1";

const REPEATED: &str =
    "UPDATE webhook_events SET duplicate_count = duplicate_count + 1 WHERE seq = ?1";

pub(super) const SETTLED: &str = "
    UPDATE webhook_events SET status = ?2, open_deliveries = ?3, completed_at = ?4,
           error_message = iif(?2 = 'completed', NULL, coalesce(?5, error_message)), retry_count = retry_count + ?6,
           processing_started_at = coalesce(processing_started_at, ?7)
     WHERE seq = ?1";

columns! {
    fn webhook_event() -> WebhookEvent = "webhook_events" [
        seq, id, tenant, provider, provider_event_id, event_type, received_at, content_type, headers as Json(headers),
        key_id, "coalesce(trace_id, replace(id, '-', ''))" as trace_id, status, open_deliveries, duplicate_count, retry_count, processing_started_at,
        completed_at as finished_at, error_message, batch_id, item_no, sealed_fields, ordering_key, type_field, expunged_at, origin
    ] {
        seq,
        webhook_id: webhook_id(String::as_str(&tenant), String::as_str(&provider), String::as_str(&provider_event_id)),
        new: NewWebhookEvent {
            id, tenant, provider, provider_event_id, event_type, received_at, payload: Vec::new(), content_type, headers,
            key_id, trace_id, batch: Batch { batch_id, item_no }, sealed: Sealed { fields: sealed_fields, key: None },
            ordering_key, type_field, origin,
        },
        completed_at: Option::filter(finished_at, |_: &Timestamp| status == Status::Completed),
        status, open_deliveries, duplicate_count, retry_count, processing_started_at, finished_at, error_message,
        expunged_at, archived_in: None
    }
    const BY_ID with ", payload, payload_seq" = "WHERE id = ?2 AND tenant = ?1";
    const BY_SEQ = "WHERE seq = ?1";
}

/// The conditions of a list's filter, from ?5 on.
macro_rules! filter {
    () => {
        "(?5 IS NULL OR ?5 = iif(seq IN (SELECT value FROM json_each(?10)) AND status = 'received', 'processing', status))
     AND (?6 IS NULL OR provider = ?6) AND (?7 IS NULL OR event_type = ?7)
     AND (?8 IS NULL OR id = ?8 OR substr(provider_event_id, 1, length(?8)) = ?8
      OR webhook_id(tenant, 'in:' || provider, provider_event_id) = ?8)"
    };
}

pub(crate) const RECEIVED_FROM: &str = row_from!("webhook_events", "received_at");

pub(super) const PAGE: &str = newest_first!("webhook_events" where "tenant = ?4 AND ", filter!());

pub(super) const PAGE_OF_TRACE: &str = newest_first!(
    "webhook_events NOT INDEXED" where "tenant = ?4 AND seq IN (SELECT value FROM json_each(?11)) AND ", filter!()
);

pub(super) const CUTOFF: &str = cutoff!("webhook_events" where "tenant = ?4");

pub(super) const PAGE_OF_ID: &str =
    newest_of_id!("webhook_events", "provider", "provider_event_id" where filter!());

/// The result of storing a webhook event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inserted {
    /// The UUID of the stored event: the given one, or that of the first receipt.
    pub id: String,
    /// Whether it was already stored.
    pub already_processed: bool,
}

/// How to recognise a request that is sent again under another id.
#[derive(Clone, Debug)]
pub struct Replay {
    /// See [`Scheme::fingerprint`](crate::signatures::Scheme::fingerprint).
    pub fingerprint: Vec<u8>,
    /// Only requests received at or after this time count.
    pub since: Timestamp,
}

queries! {
    /// A webhook event without its payload, by its number.
    pub fn by_seq(seq: i64) -> Option<WebhookEvent> = first as webhook_event BY_SEQ;
}

/// Stores a webhook event once and makes its deliveries, all in this transaction.
pub fn insert(
    tx: &WriteTx<'_>,
    new: &NewWebhookEvent,
    replay: Option<&Replay>,
    now: Timestamp,
) -> Result<Inserted> {
    let identity = (new.tenant.as_str(), new.provider.as_str(), new.provider_event_id.as_str());
    if let Some(seen) = seen_keys::find(tx, seen_keys::WEBHOOK_EVENT, identity)? {
        return Ok(Inserted { id: seen.id, already_processed: true });
    }
    if let Some(again) = replay.map(|replay| find_replayed(tx, new, replay)).transpose()?.flatten()
    {
        return Ok(again);
    }
    if new.payload.len() > MAX_INLINE_BYTES
        && let Some(again) = find_repeated(tx, new)?
    {
        return Ok(again);
    }
    let matching = subscriptions::matching(tx, &new.id, routed(new), new.body())?;
    let open = u32::try_from(matching.len()).unwrap_or(u32::MAX);
    let unwanted = matching.is_empty();
    let status = if unwanted { Status::Skipped } else { Status::Received };
    let placed = payloads::place(tx, &new.payload)?;
    let inserted = insert!(tx, "webhook_events" of new {
        id, tenant, provider, provider_event_id, event_type, received_at, payload: placed.inline(),
        payload_seq: placed.payload_seq(), content_type, headers: Json(&new.headers), key_id, trace_id, status: status,
        open_deliveries: open, completed_at: unwanted.then_some(new.received_at), batch_id: &new.batch.batch_id,
        item_no: new.batch.item_no, sealed_fields: new.sealed.fields,
        fingerprint: replay.map(|replay| &replay.fingerprint), ordering_key, type_field, origin
    } "ON CONFLICT (tenant, provider, provider_event_id) DO NOTHING")?;
    if inserted == 0 {
        return find_repeated(tx, new)?.ok_or(Error::Changed("the webhook event"));
    }
    let seq = tx.conn().last_insert_rowid();
    let fence = meta::cached_fence(tx)?;
    if let Some(key) = &new.sealed.key {
        subjects::keep(tx, key, new.received_at)?;
    }
    let route = Route {
        due_at: now,
        order_at: new.received_at,
        order: OrderedBy::Arrival,
        in_doubt: is_in_doubt(fence, new),
        epoch: fence.epoch,
        now,
    };
    deliveries::route(tx, Origin::WebhookEvent(seq), &new.tenant, &matching, route)?;
    Ok(Inserted { id: new.id.clone(), already_processed: false })
}

/// What subscriptions look at in a webhook event.
pub fn routed(new: &NewWebhookEvent) -> Routed<'_> {
    Routed {
        is_own: false,
        tenant: &new.tenant,
        provider: Some(&new.provider),
        event_type: &new.event_type,
        target: None,
        key: Key { ordering_key: new.ordering_key.as_deref(), ..Key::default() },
    }
}

/// Whether the deliveries are in doubt. Parses the body's time only while events are held for review.
fn is_in_doubt(fence: Fence, new: &NewWebhookEvent) -> bool {
    fence.window.is_some()
        && fence.is_in_doubt(
            in_doubt::happened_at(&new.headers, &new.body().json_view()),
            new.received_at,
        )
}

/// Whether a webhook event with this tenant, provider and provider's id exists, or was archived.
pub fn is_known(tx: &ReadTx<'_>, identity: Identity<'_>) -> Result<bool> {
    Ok(tx.exists(FIND_IDENTITY, identity)?
        || seen_keys::look_up(tx, seen_keys::WEBHOOK_EVENT, identity)?.is_some())
}

/// How a stored webhook event came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HowItCame {
    /// Its number; `None`: it was archived.
    pub seq: Option<i64>,
    /// Whether its provider sent it, first or later. False: it came by the provider's list alone.
    pub was_sent: bool,
}

/// How a webhook event came; `None` if there is none.
pub fn how_it_came(tx: &ReadTx<'_>, identity: Identity<'_>) -> Result<Option<HowItCame>> {
    let stored = tx.first(HOW_IT_CAME, identity, |row| {
        Ok(HowItCame { seq: Some(row.get(0)?), was_sent: row.get(1)? })
    })?;
    if stored.is_some() {
        return Ok(stored);
    }
    let seen = seen_keys::look_up(tx, seen_keys::WEBHOOK_EVENT, identity)?;
    Ok(seen.map(|seen| HowItCame { seq: None, was_sent: seen.was_sent }))
}

fn find_repeated(tx: &WriteTx<'_>, new: &NewWebhookEvent) -> Result<Option<Inserted>> {
    let identity = (&new.tenant, &new.provider, &new.provider_event_id);
    let kept: Option<(i64, String)> = tx.first(FIND_IDENTITY, identity, tuple)?;
    if new.origin == WebhookOrigin::Webhook {
        return repeated(tx, kept);
    }
    // A list shows an event again and again. Counted are requests, which show that the provider sent it.
    Ok(kept.map(|(_, id)| Inserted { id, already_processed: true }))
}

/// Finds and counts an event with the same signed bytes, under any id.
fn find_replayed(
    tx: &WriteTx<'_>,
    new: &NewWebhookEvent,
    Replay { fingerprint, since }: &Replay,
) -> Result<Option<Inserted>> {
    let same = (fingerprint, &new.tenant, &new.provider, since);
    let kept = tx.first(FIND_REPLAYED, same, tuple)?;
    repeated(tx, kept)
}

/// Counts a repeated event, if one was found.
fn repeated(tx: &WriteTx<'_>, kept: Option<(i64, String)>) -> Result<Option<Inserted>> {
    let Some((seq, id)) = kept else { return Ok(None) };
    tx.execute(REPEATED, [seq])?;
    Ok(Some(Inserted { id, already_processed: true }))
}

/// Derives a webhook event's status again after one of its deliveries changed.
pub(crate) fn refresh(
    tx: &WriteTx<'_>,
    seq: i64,
    counts: DeliveryCounts,
    tried: Tried<'_>,
    now: Timestamp,
) -> Result<()> {
    let status = derive(counts);
    let final_at =
        matches!(status, Status::Completed | Status::Failed | Status::Skipped).then_some(now);
    let Tried { started_at, error } = tried;
    let attempts = u32::from(started_at.is_some());
    // A consumer has begun before its attempt is known.
    let started_at = started_at.or_else(|| (status == Status::Processing).then_some(now));
    let settled = (seq, status, counts.open, final_at, error, attempts, started_at);
    tx.change_one(SETTLED, settled, "the webhook event")
}

/// A webhook event with its payload.
pub fn by_id(tx: &ReadTx<'_>, tenant: &str, id: &str) -> Result<Option<WebhookEvent>> {
    tx.first(BY_ID, (tenant, id), |row| {
        let mut found = webhook_event(row)?;
        found.new.payload = payloads::fetch(tx, row.get_ref("payload")?, row.get("payload_seq")?)?;
        Ok(found)
    })
}

/// Which webhook events a list shows. `None` means any.
#[derive(Clone, Debug, Default)]
pub struct WebhookEventFilter {
    /// Their status.
    pub status: Option<Status>,
    /// Their provider.
    pub provider: Option<String>,
    /// Their exact type.
    pub event_type: Option<String>,
    /// The provider's own id.
    pub provider_event_id: Option<String>,
    /// Their trace: the newest 1,000 of it.
    pub trace_id: Option<String>,
    /// Our id, the `webhook-id` of their deliveries, or a prefix of the provider's id.
    pub id: Option<String>,
    /// When they were received.
    pub received: Span,
    /// Those that are being attempted, by number, and since when: their status is `processing`.
    pub in_flight: Vec<Began>,
}

/// A page of webhook events without their payloads, newest first.
pub fn page(
    tx: &ReadTx<'_>,
    newest: Newest<'_>,
    filter: &WebhookEventFilter,
) -> Result<RowPage<WebhookEvent>> {
    let Newest { tenant, before, limit } = newest;
    let WebhookEventFilter {
        status,
        provider,
        event_type,
        provider_event_id,
        id,
        trace_id,
        received,
        in_flight,
    } = filter;
    let seen: Vec<i64> = in_flight.iter().map(|(seq, _)| *seq).collect();
    let seen = Json(&seen);
    let mut range = SeqRange::new(tx, RECEIVED_FROM, before, *received)?;
    let seqs = if let Some(trace) = trace_id {
        let of_trace = traced(tx, TRACED_WEBHOOKS, tenant, trace)?;
        let of_trace = Json(&of_trace);
        let more =
            params![tenant, status, provider, event_type, id, provider_event_id, seen, of_trace];
        range.seqs(tx, PAGE_OF_TRACE, limit, more)?
    } else if let Some(provider_event_id) = provider_event_id {
        let more = params![tenant, status, provider, event_type, id, provider_event_id, seen];
        range.seqs(tx, PAGE_OF_ID, limit, more)?
    } else {
        if status.is_some() || provider.is_some() || event_type.is_some() || id.is_some() {
            range.limit_rows(tx, CUTOFF, params![tenant])?;
        }
        range.seqs(
            tx,
            PAGE,
            limit,
            params![tenant, status, provider, event_type, id, provider_event_id, seen],
        )?
    };
    let mut by_seq = tx.prepare(BY_SEQ)?;
    let each = seqs.into_iter().map(|seq| first(&mut by_seq, [seq], webhook_event));
    let mut rows: Vec<WebhookEvent> = each.filter_map(Result::transpose).collect::<Result<_>>()?;
    for event in &mut rows {
        event.see_in_flight(in_flight);
    }
    Ok(range.found(rows, limit, |event: &WebhookEvent| event.seq))
}
