//! Table `outbox`, for the API: single events, and pages.

use rusqlite::types::{FromSql, FromSqlResult, ValueRef};
use rusqlite::{ToSql, params};

use crate::base::id::webhook_id;
use crate::model::event::{Event, EventOrder, NewEvent, Status};
use crate::model::name::DEFAULT_TENANT;
use crate::model::sealed::Sealed;
use crate::store::column::{Clamped, Json};
use crate::store::page::{
    Newest, RowPage, SeqRange, Span, cutoff, newest_first, newest_of_id, newest_seq, row_from,
};
use crate::store::prelude::*;
use crate::store::{families, payloads};

columns! {
    fn event() -> Event = "outbox" [
        seq, id, tenant, source_system, idempotency_key, event_type, aggregate_type, aggregate_id, target, content_type,
        occurred_at, received_at, not_before, ordering_key, process_id, "coalesce(trace_id, replace(id, '-', ''))" as trace_id, max_attempts, custom_data, status,
        open_deliveries as Clamped(open_deliveries), duplicate_count as Clamped(duplicate_count),
        differing_count as Clamped(differing_count), last_error, error_code, completed_at as finished_at,
        sealed_fields as Clamped(sealed_fields), replay_of, headers as Headers(headers),
        "guaranteed_order <> 0" as guaranteed, "exclude_failed <> 0" as exclude_failed, funnel_point, funnel_value,
        entity_type, "(SELECT p.id FROM outbox AS p WHERE p.seq = outbox.parent_seq)" as parent_id,
        "iif(parent_seq IS NULL, NULL, coalesce(parent_binding, 'soft'))" as parent_binding,
        hard_children as Clamped(hard_children), expunged_at
    ] {
        seq,
        webhook_id: webhook_id(String::as_str(&tenant), String::as_str(&source_system), String::as_str(&idempotency_key)),
        waits_for_children: hard_children > 0 && open_deliveries == 0 && status == Status::Processing,
        new: NewEvent {
            id, tenant, source_system, idempotency_key, event_type, aggregate_type, aggregate_id, target,
            payload: Vec::new(), content_type, headers, occurred_at, received_at, not_before, ordering_key,
            order: EventOrder {
                guaranteed, exclude_failed, funnel_point, funnel_value, entity_type, parent_id, parent_key: None,
                parent_binding,
            },
            process_id, trace_id, max_attempts, custom_data, sealed: Sealed { fields: sealed_fields, key: None },
        },
        status, open_deliveries, duplicate_count, differing_count, last_error: Option::filter(last_error, |_: &String| status != Status::Completed), error_code, finished_at,
        completed_at: Option::filter(finished_at, |_: &Timestamp| status == Status::Completed), replay_of,
        hard_children, expunged_at, archived_in: None
    }
    pub(super) const BY_IDENTITY with ", payload, payload_seq" =
        "WHERE tenant = ?1 AND source_system = ?2 AND idempotency_key = ?3";
    const BY_ID with ", payload, payload_seq" = "WHERE id = ?2 AND tenant = ?1";
    pub(super) const BY_SEQ = "WHERE seq = ?1";
}

/// An event's header fields, if it has any. A quarantined row may hold any bytes.
struct Headers(Option<String>);

impl FromSql for Headers {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let text =
            value.as_bytes_or_null()?.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        Ok(Self(text.filter(|text| text != "{}")))
    }
}

/// The conditions of a list's filter, from ?5 on.
macro_rules! filter {
    () => {
        "(?5 IS NULL OR ?5 = iif(seq IN (SELECT value FROM json_each(?13)) AND status IN ('pending', 'failed'),
                                  'processing', status)) AND (?6 IS NULL OR event_type = ?6)
     AND (?7 IS NULL OR webhook_id(tenant, source_system, idempotency_key) = ?7)
     AND (?8 IS NULL OR aggregate_id = ?8) AND (?9 IS NULL OR idempotency_key = ?9)
     AND (?10 IS NULL OR parent_seq = ?10) AND (?11 IS NULL OR process_id = ?11)
     AND (?12 IS NULL OR aggregate_type = ?12)
     AND (?14 IS NULL OR ?14 = (hard_children > 0 AND open_deliveries = 0 AND status = 'processing'))
     AND (?15 OR source_system <> 'oncebox')
     AND (?16 IS NULL OR seq IN (SELECT value FROM json_each(?16)))"
    };
}

pub(crate) const RECEIVED_FROM: &str = row_from!("outbox", "received_at");

pub(super) const PAGE: &str =
    newest_first!("outbox NOT INDEXED" where "tenant = ?4 AND ", filter!());

pub(super) const NEWEST: &str = newest_seq!("outbox");

// SQLite uses the partial index `outbox_listed` only if the statement contains its condition.
pub(super) const PAGE_OF_TENANT: &str = newest_first!(
    "outbox" where "tenant = ?4 AND tenant <> 'default' AND ", filter!()
);

pub(super) const CUTOFF_OF_TENANT: &str =
    cutoff!("outbox" where "tenant = ?4 AND tenant <> 'default'");

// Without statistics SQLite would choose the index of the whole tenant.
pub(super) const PAGE_OF_AGGREGATE: &str = newest_first!(
    "outbox INDEXED BY outbox_aggregate" where "tenant = ?4 AND aggregate_id = ?8 AND ", filter!()
);

pub(super) const CUTOFF_OF_AGGREGATE: &str = cutoff!(
    "outbox INDEXED BY outbox_aggregate" where "tenant = ?4 AND aggregate_id = ?5"
);

pub(super) const PAGE_OF_CHILDREN: &str = newest_first!(
    "outbox INDEXED BY outbox_children" where "tenant = ?4 AND parent_seq = ?10 AND ", filter!()
);

pub(super) const CUTOFF_OF_CHILDREN: &str = cutoff!(
    "outbox INDEXED BY outbox_children" where "tenant = ?4 AND parent_seq = ?5"
);

pub(super) const PAGE_OF_PROCESS: &str = newest_first!(
    "outbox INDEXED BY outbox_process" where "tenant = ?4 AND process_id = ?11 AND ", filter!()
);

pub(super) const CUTOFF_OF_PROCESS: &str = cutoff!(
    "outbox INDEXED BY outbox_process" where "tenant = ?4 AND process_id = ?5"
);

pub(super) const PAGE_OF_TRACE: &str = newest_first!(
    "outbox NOT INDEXED" where "tenant = ?4 AND seq IN (SELECT value FROM json_each(?16)) AND ", filter!()
);

macro_rules! traced {
    ($table:literal, $index:literal) => {
        concat!(
            "SELECT seq FROM ",
            $table,
            " INDEXED BY ",
            $index,
            " WHERE tenant = ?1 AND trace_id = ?2
              UNION ALL
             SELECT seq FROM ",
            $table,
            " WHERE id = ?3 AND tenant = ?1 AND trace_id IS NULL
              ORDER BY seq DESC LIMIT 1000"
        )
    };
}

pub(super) const TRACED: &str = traced!("outbox", "outbox_trace");

pub(super) const TRACED_WEBHOOKS: &str = traced!("webhook_events", "webhook_events_trace");

pub(super) const PAGE_OF_KEY: &str =
    newest_of_id!("outbox", "source_system", "idempotency_key" where filter!());

queries! {
    /// An event without its payload, by its number.
    pub fn by_seq(seq: i64) -> Option<Event> = first as event BY_SEQ;
}

/// An event with its payload.
pub fn by_id(tx: &ReadTx<'_>, tenant: &str, id: &str) -> Result<Option<Event>> {
    tx.first(BY_ID, (tenant, id), |row| with_payload(tx, row))
}

/// An event with its payload, by its tenant, source system and key.
pub(super) fn by_identity(tx: &ReadTx<'_>, identity: (&str, &str, &str)) -> Result<Option<Event>> {
    tx.first(BY_IDENTITY, identity, |row| with_payload(tx, row))
}

/// Which events a list shows. `None` means any.
#[derive(Clone, Debug, Default)]
pub struct OutboxFilter {
    /// Their status.
    pub status: Option<Status>,
    /// Their exact type.
    pub event_type: Option<String>,
    /// Their idempotency key.
    pub idempotency_key: Option<String>,
    /// Their aggregate's type.
    pub aggregate_type: Option<String>,
    /// Their aggregate's id.
    pub aggregate_id: Option<String>,
    /// The `webhook-id` of their deliveries.
    pub webhook_id: Option<String>,
    /// The UUID of their parent.
    pub parent_id: Option<String>,
    /// Their process.
    pub process_id: Option<String>,
    /// Their trace: the newest 1,000 of it.
    pub trace_id: Option<String>,
    /// Whether they wait for their children.
    pub waiting: Option<bool>,
    /// When they were received.
    pub received: Span,
    /// Those that are being attempted, by number: their status is `processing`.
    pub in_flight: Vec<i64>,
    /// Whether operational events are shown too. Those that the filter names by type, key or `webhook-id` always are.
    pub operational: bool,
}

impl OutboxFilter {
    /// The number of the parent; one that no event has, if there is no such parent.
    pub(super) fn parent(&self, tx: &ReadTx<'_>, tenant: &str) -> Result<Option<i64>> {
        let Some(id) = &self.parent_id else { return Ok(None) };
        let found = tx.find(families::BY_ID, (tenant, id))?;
        Ok(found.or(Some(0)))
    }
}

/// A page of events without their payloads, newest first.
pub fn page(tx: &ReadTx<'_>, newest: Newest<'_>, filter: &OutboxFilter) -> Result<RowPage<Event>> {
    let Newest { tenant, before, limit } = newest;
    let OutboxFilter {
        status, event_type, idempotency_key, webhook_id, trace_id, in_flight, ..
    } = filter;
    let OutboxFilter { aggregate_type, aggregate_id, process_id, waiting, received, .. } = filter;
    let is_named = event_type.is_some() || idempotency_key.is_some() || webhook_id.is_some();
    let has_own = filter.operational || is_named;
    let mut range = SeqRange::new(tx, RECEIVED_FROM, before, *received)?;
    let parent = filter.parent(tx, tenant)?;
    let others = [aggregate_id.is_some(), parent.is_some(), process_id.is_some()];
    let unserved = status.is_some()
        || event_type.is_some()
        || webhook_id.is_some()
        || aggregate_type.is_some()
        || waiting.is_some()
        || !has_own
        || others.into_iter().filter(|is_given| *is_given).count() > 1;
    // The page, and how many rows it looks at when an index does not serve the whole filter.
    let mut limited = |page, cutoff, more: &[&dyn ToSql]| {
        if unserved { range.limit_rows(tx, cutoff, more) } else { Ok(()) }.map(|()| page)
    };
    let of_trace = trace_id.as_ref().map(|trace| traced(tx, TRACED, tenant, trace)).transpose()?;
    let of_trace = of_trace.as_ref().map(Json);
    let page = if of_trace.is_some() {
        PAGE_OF_TRACE
    } else if idempotency_key.is_some() {
        PAGE_OF_KEY
    } else if parent.is_some() {
        limited(PAGE_OF_CHILDREN, CUTOFF_OF_CHILDREN, params![tenant, parent])?
    } else if process_id.is_some() {
        limited(PAGE_OF_PROCESS, CUTOFF_OF_PROCESS, params![tenant, process_id])?
    } else if aggregate_id.is_some() {
        limited(PAGE_OF_AGGREGATE, CUTOFF_OF_AGGREGATE, params![tenant, aggregate_id])?
    } else if tenant == DEFAULT_TENANT {
        range.limit_numbers(tx, NEWEST)?;
        PAGE
    } else {
        limited(PAGE_OF_TENANT, CUTOFF_OF_TENANT, params![tenant])?
    };
    let seqs = range.seqs(
        tx,
        page,
        limit,
        params![
            tenant,
            status,
            event_type,
            webhook_id,
            aggregate_id,
            idempotency_key,
            parent,
            process_id,
            aggregate_type,
            Json(in_flight),
            waiting,
            has_own,
            of_trace
        ],
    );
    let mut events = by_seqs(tx, seqs?)?;
    for event in &mut events {
        event.see_in_flight(in_flight);
    }
    Ok(range.found(events, limit, |event| event.seq))
}

/// The numbers of the events of a trace: those that came with it, and the one whose id it was made of.
pub(super) fn traced(tx: &ReadTx<'_>, sql: &str, tenant: &str, trace: &str) -> Result<Vec<i64>> {
    let id = uuid::Uuid::try_parse(trace).map_or_else(|_| String::new(), |id| id.to_string());
    tx.list(sql, (tenant, trace, id))
}

/// Events without their payloads, by their numbers.
pub(super) fn by_seqs(tx: &ReadTx<'_>, seqs: Vec<i64>) -> Result<Vec<Event>> {
    seqs.into_iter().filter_map(|seq| by_seq(tx, seq).transpose()).collect()
}

fn with_payload(tx: &ReadTx<'_>, row: &Row<'_>) -> Result<Event> {
    let mut event = event(row)?;
    event.new.payload = payloads::fetch(tx, row.get_ref("payload")?, row.get("payload_seq")?)?;
    Ok(event)
}
