//! Table `outbox`: rows that plain SQL inserted, from finding them to their deliveries.
//!
//! Nothing is taken for granted of such a row, and none may hold up the next: its columns are read as they
//! stand, [`check`] says whether they can be used, and what cannot be is quarantined.
//!
//! Not here: what a person does about a quarantined event ([`crate::store::quarantine`]).

use std::borrow::Cow;

use rusqlite::Row;
use rusqlite::types::ValueRef;

use crate::base::clock::Timestamp;
use crate::model::event::{MAX_INLINE_BYTES, NewEvent, Status};
use crate::model::sql_row::{Column, Defect, Payload, SqlRow};
use crate::model::tenant;
use crate::store::column::any_count;
use crate::store::error::{Error, Result};
use crate::store::outbox_routing::{self, RoutingPlan};
use crate::store::payloads::{self, Placed};
use crate::store::tx::{ReadTx, WriteTx, first, one_row, rows};
use crate::store::{contention, subscriptions, tenants};

/// Rows of one look.
pub const MAX_ROWS: u32 = 100;
/// Looks before something is published: it would wait too long for more.
const MAX_LOOKS_BEFORE: u32 = 10;
/// Bytes of payloads that one transaction looks at, about: others wait for it.
const MAX_BYTES: u64 = 4 << 20;

pub(super) const UNROUTED: &str = "
    SELECT seq
      FROM outbox
     WHERE routed_at IS NULL
       AND seq > ?1
     ORDER BY seq
     LIMIT ?2";

// A payload that is too large is not read at all. The text columns stand in the order of `Column::ALL`.
pub(super) const ROW: &str = "
    SELECT id, tenant, source_system, idempotency_key, event_type, aggregate_type, aggregate_id, target,
           content_type, headers, ordering_key, funnel_point, funnel_value, process_id, trace_id,
           custom_data, occurred_at, received_at, not_before, parent_seq, max_attempts,
           octet_length(payload), iif(octet_length(payload) <= ?2, payload, NULL), payload_seq, own,
           sealed_fields
      FROM outbox
     WHERE seq = ?1";

pub(super) const PARENT: &str = "
    SELECT tenant
      FROM outbox
     WHERE seq = ?1";

pub(super) const ROUTED: &str = "
    UPDATE outbox
       SET trace_id = ?2, routed_at = ?3, open_deliveries = ?4, epoch = ?5
     WHERE seq = ?1
       AND status = 'pending'
       AND routed_at IS NULL";

pub(super) const REPLACE_PAYLOAD: &str = "
    UPDATE outbox
       SET payload = ?2, payload_seq = ?3, sealed_fields = ?4
     WHERE seq = ?1";

// Of what is found here nothing has passed a policy, even where a program appended it as the service would.
pub(super) const QUARANTINE: &str = "
    UPDATE outbox
       SET id = ?2, tenant = ?3, source_system = ?4, idempotency_key = ?5, event_type = ?6,
           aggregate_type = ?7, aggregate_id = ?8, target = ?9, content_type = ?10, headers = ?11,
           ordering_key = ?12, funnel_point = ?13, funnel_value = ?14, process_id = ?15, trace_id = ?16,
           custom_data = ?17, occurred_at = ?18, received_at = ?19, not_before = ?20,
           parent_seq = (SELECT parent.seq FROM outbox AS parent WHERE parent.seq = ?21),
           status = 'quarantined', routed_at = ?22, error_code = ?23, last_error = ?24, own = 0
     WHERE seq = ?1
       AND routed_at IS NULL";

// Touches nothing else that may be what is wrong with the row.
pub(super) const SET_ASIDE: &str = "
    UPDATE outbox
       SET status = 'quarantined', routed_at = ?2, error_code = 'unusable', last_error = ?3,
           parent_seq = NULL, own = 0
     WHERE seq = ?1
       AND routed_at IS NULL";

/// What came of looking at some rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relayed {
    /// Rows that are routed now; nobody need have wanted them.
    pub routed: u64,
    /// Rows that cannot be used.
    pub quarantined: u64,
    /// The number of the last row that was looked at.
    pub last: i64,
    /// Whether there may be more rows after it.
    pub more: bool,
}

impl Relayed {
    /// Counts what came of others too.
    pub fn add(&mut self, other: Self) {
        self.routed = self.routed.saturating_add(other.routed);
        self.quarantined = self.quarantined.saturating_add(other.quarantined);
    }
}

/// How rows are judged.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Bytes of a payload at most.
    pub payload_bytes_most: u64,
    /// Wall time.
    pub wall: Timestamp,
    /// Schedule time.
    pub now: Timestamp,
}

/// Numbers of rows after `after` that are not routed, the oldest first.
pub fn unrouted(tx: &ReadTx<'_>, after: i64, limit: u32) -> Result<Vec<i64>> {
    rows(&mut *tx.prepare(UNROUTED)?, (after, limit), |row| Ok(row.get(0)?))
}

/// A number that changes with every commit of another connection, our own writer's too.
pub fn data_version(tx: &ReadTx<'_>) -> Result<i64> {
    contention::data_version(tx.conn())
}

/// Routes rows after `after`, at most `limit` and only so many bytes of them. `fresh` makes UUIDs.
/// Fails when the file cannot be written, or one of the rows is such that nothing can be done about it here;
/// see [`set_aside`].
pub fn relay(
    tx: &WriteTx<'_>,
    after: i64,
    limit: u32,
    terms: Terms,
    fresh: &dyn Fn() -> String,
) -> Result<Relayed> {
    let mut done = Relayed { last: after, ..Relayed::default() };
    let mut bytes = 0_u64;
    let found = unrouted(tx, after, limit)?;
    for seq in &found {
        if bytes > MAX_BYTES {
            return Ok(Relayed { more: true, ..done });
        }
        let row = read(tx, *seq, terms.payload_bytes_most)?.ok_or(Error::Changed("the event"))?;
        if let Payload::Bytes(payload) = &row.payload {
            bytes = bytes.saturating_add(u64::try_from(payload.len()).unwrap_or(u64::MAX));
        }
        match relay_one(tx, &row, terms, fresh)? {
            Status::Quarantined => done.quarantined = done.quarantined.saturating_add(1),
            _ => done.routed = done.routed.saturating_add(1),
        }
        done.last = *seq;
    }
    done.more = u32::try_from(found.len()).is_ok_and(|have| have >= limit);
    Ok(done)
}

/// Routes what was committed before this transaction, where a subscription asks for order: what is published in
/// it comes after that. Looks once in a transaction. Rows beyond the first thousand, and those that nothing can be
/// done about here, are left to the relay.
pub fn relay_before(tx: &WriteTx<'_>, terms: Terms, fresh: &dyn Fn() -> String) -> Result<Relayed> {
    let is_needed = tx.is_first_look()
        && subscriptions::is_order_asked_for(tx)?
        && !unrouted(tx, 0, 1)?.is_empty();
    if !is_needed {
        return Ok(Relayed::default());
    }
    let relayed = tx.apart(|| {
        let mut all = Relayed { more: true, ..Relayed::default() };
        for _ in 0..MAX_LOOKS_BEFORE {
            if all.more {
                let done = relay(tx, all.last, MAX_ROWS, terms, fresh)?;
                all.add(done);
                (all.last, all.more) = (done.last, done.more);
            }
        }
        Ok(all)
    })?;
    match relayed {
        Err(error) if !error.passes() && !matches!(error, Error::Fatal(_)) => {
            tracing::debug!(%error, "rows that cannot be routed before what is published are left to the relay");
            Ok(Relayed::default())
        }
        relayed => relayed,
    }
}

fn relay_one(
    tx: &WriteTx<'_>,
    row: &SqlRow,
    terms: Terms,
    fresh: &dyn Fn() -> String,
) -> Result<Status> {
    match check(tx, row, terms.payload_bytes_most, Seen::No)? {
        Ok(event) => {
            let plan = outbox_routing::plan(tx, &event, terms.now)?;
            route(tx, row, &event, &plan, terms.now)
        }
        Err(defect) => {
            quarantine(tx, row, &defect, terms, &fresh())?;
            Ok(Status::Quarantined)
        }
    }
}

/// Whether the policy on personal data has been carried out on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Yes, before it was stored, as for every published event. A second time would find masked and sealed values
    /// again.
    Yes,
    /// Not yet: another program has written the row.
    No,
}

/// Whether a row that plain SQL left can be used: the one place that decides it, at its first sight and
/// again when a person has changed it. What it returns is what is routed; its payload is the row's.
/// Fails when the file cannot be read. A defect of the row is the inner error.
pub fn check(
    tx: &ReadTx<'_>,
    row: &SqlRow,
    payload_bytes_most: u64,
    seen: Seen,
) -> Result<std::result::Result<NewEvent, Defect>> {
    let event = match row.check(payload_bytes_most) {
        Ok(event) => event,
        Err(defect) => return Ok(Err(defect)),
    };
    if event.tenant != tenant::DEFAULT && tenants::by_name(tx, &event.tenant)?.is_none() {
        let reason = format!("there is no tenant {:?}", event.tenant);
        return Ok(Err(Defect::new("unknown_tenant", reason)));
    }
    if seen == Seen::No
        && let Some(policy) = tenants::pii(tx, &event.tenant)?.rules()
        && let Some(reason) = policy.objects_to(&event, &row.other_text_fields())
    {
        return Ok(Err(Defect::new("personal_data", reason)));
    }
    if let Some(parent) = row.parent_seq
        && !is_parent(tx, parent, row.seq, &event.tenant)?
    {
        let reason =
            format!("parent_seq was {parent}; no other event of its tenant has that number");
        return Ok(Err(Defect::new("unknown_parent", reason)));
    }
    Ok(Ok(event))
}

fn is_parent(tx: &ReadTx<'_>, parent: i64, seq: i64, tenant: &str) -> Result<bool> {
    let found = first(&mut *tx.prepare(PARENT)?, [parent], |row| {
        Ok(matches!(row.get_ref(0)?, ValueRef::Text(bytes) if bytes == tenant.as_bytes()))
    })?;
    Ok(found == Some(true) && parent != seq)
}

/// A row as it stands; `None` when there is none of that number. A payload of more than `payload_bytes_most`
/// is not read, unless it is stored apart.
pub fn read(tx: &ReadTx<'_>, seq: i64, payload_bytes_most: u64) -> Result<Option<SqlRow>> {
    let most = i64::try_from(payload_bytes_most).unwrap_or(i64::MAX);
    first(&mut *tx.prepare(ROW)?, (seq, most), |row| {
        let mut texts: [Option<Vec<u8>>; 16] = Default::default();
        for (n, text) in texts.iter_mut().enumerate() {
            *text = bytes(row, n)?;
        }
        let size: Option<i64> = row.get(21)?;
        let size = size.unwrap_or(0).unsigned_abs();
        let apart: Option<i64> = row.get(23)?;
        let payload = if apart.is_none() && size > payload_bytes_most {
            Payload::TooLarge(size)
        } else {
            Payload::Bytes(payloads::fetch(tx, row.get_ref(22)?, apart)?)
        };
        Ok(SqlRow {
            seq,
            texts,
            payload,
            payload_seq: apart,
            occurred_at: row.get(16)?,
            received_at: row.get(17)?,
            not_before: row.get(18)?,
            parent_seq: row.get(19)?,
            max_attempts: row.get(20)?,
            own: row.get(24)?,
            sealed_fields: any_count(row, 25)?,
        })
    })
}

fn bytes(row: &Row<'_>, column: usize) -> Result<Option<Vec<u8>>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(bytes.to_vec()),
        ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Null => None,
    })
}

/// Routes a row that can be used: its deliveries are made, as those of a published event are.
pub(super) fn route(
    tx: &WriteTx<'_>,
    row: &SqlRow,
    event: &NewEvent,
    plan: &RoutingPlan,
    now: Timestamp,
) -> Result<Status> {
    let seq = row.seq;
    let routed =
        tx.prepare(ROUTED)?.execute((seq, &event.trace_id, now, plan.open(), plan.epoch()))?;
    one_row(routed, "the event")?;
    if row.payload_seq.is_none() && event.payload.len() > MAX_INLINE_BYTES {
        let _apart = replace_payload(tx, seq, event)?;
    }
    outbox_routing::carry_out(tx, seq, event, plan, now)
}

/// Puts an event's payload in the place of a row's own; tells where it stands, when not in the row itself.
pub(super) fn replace_payload(tx: &WriteTx<'_>, seq: i64, event: &NewEvent) -> Result<Option<i64>> {
    let placed = payloads::place(tx, &event.payload)?;
    let (inline, apart): (Option<&[u8]>, Option<i64>) = match &placed {
        Placed::Inline(body) => (Some(body), None),
        Placed::Apart(apart) => (None, Some(*apart)),
    };
    let replaced =
        tx.prepare(REPLACE_PAYLOAD)?.execute((seq, inline, apart, event.sealed.fields))?;
    one_row(replaced, "the event").map(|()| apart)
}

fn quarantine(
    tx: &WriteTx<'_>,
    row: &SqlRow,
    defect: &Defect,
    terms: Terms,
    fresh: &str,
) -> Result<()> {
    let row = row.presentable(fresh, terms.wall);
    // A reference to nothing must not stay: the next upgrade would find the file damaged.
    let parent = row.parent_seq.filter(|_| defect.code != "unknown_parent");
    let pii = tenants::pii(tx, &row.text(Column::Tenant).unwrap_or_default())?;
    let reason = pii.rules().map_or(Cow::Borrowed(&defect.reason), |policy| {
        Cow::Owned(policy.sanitize(&defect.reason))
    });
    let text = |column| row.text(column);
    let stored = tx.prepare(QUARANTINE)?.execute(rusqlite::params![
        row.seq,
        text(Column::Id),
        text(Column::Tenant),
        text(Column::SourceSystem),
        text(Column::IdempotencyKey),
        text(Column::EventType),
        text(Column::AggregateType),
        text(Column::AggregateId),
        text(Column::Target),
        text(Column::ContentType),
        text(Column::Headers),
        text(Column::OrderingKey),
        text(Column::FunnelPoint),
        text(Column::FunnelValue),
        text(Column::ProcessId),
        text(Column::TraceId),
        text(Column::CustomData),
        row.occurred_at,
        row.received_at,
        row.not_before,
        parent,
        terms.now,
        defect.code,
        reason,
    ])?;
    one_row(stored, "the event")
}

/// Quarantines a row that [`relay`] can neither route nor quarantine, with what went wrong: as everybody can
/// read it where that can be stored, or else as it stands. `fresh` is a new UUID.
pub fn set_aside(tx: &WriteTx<'_>, seq: i64, why: &str, terms: Terms, fresh: &str) -> Result<()> {
    if let Ok(Some(row)) = read(tx, seq, 0) {
        let row = SqlRow { parent_seq: None, ..row };
        match quarantine(tx, &row, &Defect::new("unusable", why), terms, fresh) {
            Err(error) if !error.passes() => {
                tracing::debug!(%error, seq, "its text cannot be made presentable");
            }
            other => return other,
        }
    }
    one_row(tx.prepare(SET_ASIDE)?.execute((seq, terms.now, why))?, "the event")
}
