//! Table `outbox`: finds, checks and routes rows that plain SQL inserted.
//!
//! Such a row may hold anything, and must never block other rows. Its columns are read without validation, [`check`]
//! decides whether it can be used, and a row that cannot be used is quarantined.
//!
//! A person repairs or discards a quarantined event with [`crate::store::quarantine`].

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use rusqlite::types::ValueRef;

use crate::model::event::{MAX_INLINE_BYTES, NewEvent, Status};
use crate::model::name::DEFAULT_TENANT;
use crate::model::sql_row::{Column, Defect, Payload, SqlRow};
use crate::store::column::Clamped;
use crate::store::outbox_routing::{self, RoutingPlan};
use crate::store::prelude::*;
use crate::store::seen_keys::{self, Seen};
use crate::store::{contention, families, payloads, subscriptions, tenants};

/// The code of a quarantined event that does not fit its type.
pub const MISFIT: &str = "misfit";
/// Rows of one batch of the relay.
pub const MAX_ROWS: u32 = 100;
/// Batches that are routed before a published event: more would delay it too long.
const MAX_BATCHES_BEFORE: u32 = 10;
/// Bytes of payloads in one batch, approximately: other writes wait for it.
const MAX_BYTES: u64 = 4 << 20;

pub(super) const UNROUTED: &str =
    "SELECT seq FROM outbox WHERE routed_at IS NULL AND seq > ?1 ORDER BY seq LIMIT ?2";

const UNROUTED_TYPES: &str = "SELECT tenant, event_type FROM outbox WHERE routed_at IS NULL AND seq > ?1 ORDER BY seq LIMIT ?2";

// A payload that is too large is not read at all. The text columns are in the order of `Column::ALL`.
pub(super) const ROW: &str = "
    SELECT id, tenant, source_system, idempotency_key, event_type, aggregate_type, aggregate_id, target,
           content_type, headers, ordering_key, funnel_point, funnel_value, process_id, trace_id,
           custom_data, entity_type, occurred_at, received_at, not_before, parent_seq, max_attempts,
           octet_length(payload), iif(octet_length(payload) <= ?2, payload, NULL), payload_seq, own,
           sealed_fields, guaranteed_order <> 0, exclude_failed <> 0, hard_children > 0
      FROM outbox WHERE seq = ?1";

pub(super) const ROUTED: &str = "
    UPDATE outbox SET trace_id = ?2, routed_at = ?3, open_deliveries = ?4, epoch = ?5
     WHERE seq = ?1 AND status = 'pending' AND routed_at IS NULL";

pub(super) const REPLACE_PAYLOAD: &str =
    "UPDATE outbox SET payload = ?2, payload_seq = ?3, sealed_fields = ?4 WHERE seq = ?1";

// Changes as few columns as possible, because any other column may be the defect.
pub(super) const SET_ASIDE: &str = "
    UPDATE outbox
       SET status = 'quarantined', routed_at = ?2, error_code = 'unusable', last_error = ?3,
           parent_seq = NULL, own = 0
     WHERE seq = ?1 AND routed_at IS NULL";

/// The result of a batch of the relay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relayed {
    /// Rows that were routed, with or without a matching subscription.
    pub routed: u64,
    /// Rows that cannot be used.
    pub quarantined: u64,
    /// Rows that were routed, by tenant.
    pub tenants: BTreeMap<String, u32>,
    /// The number of the last row that was checked.
    pub last: i64,
    /// Whether there may be more rows after it.
    pub more: bool,
    /// Whether the type of the row after it was not compiled before the transaction.
    pub is_stuck: bool,
}

impl Relayed {
    /// Adds the counts of another batch.
    pub fn add(&mut self, other: Self) {
        self.routed = self.routed.saturating_add(other.routed);
        self.quarantined = self.quarantined.saturating_add(other.quarantined);
        for (tenant, rows) in other.tenants {
            let sum = self.tenants.entry(tenant).or_default();
            *sum = sum.saturating_add(rows);
        }
    }
}

/// The limit and the times for checking rows.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// The maximum size of a payload in bytes.
    pub payload_bytes_most: u64,
    /// Wall time.
    pub wall: Timestamp,
    /// Schedule time.
    pub now: Timestamp,
    /// Whether an event fits its type.
    pub check_type: &'a dyn Fn(&NewEvent) -> TypeCheck,
}

/// Whether an event fits its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeCheck {
    /// It does.
    Fits,
    /// It does not, with the reason.
    Misfit(String),
    /// It is not known: the type was not compiled before the transaction, which compiles none.
    NotCompiled,
}

/// What came of a row.
enum RowResult {
    /// It was routed, for this tenant.
    Routed(String),
    /// It cannot be used.
    Quarantined,
    /// It is as it was, because its type was not compiled before.
    Left,
}

/// The tenants and event types of unrouted rows, in the order of the rows, each once. A row whose texts are no texts has
/// none.
pub fn unrouted_types(tx: &ReadTx<'_>, after: i64, limit: u32) -> Result<Vec<(String, String)>> {
    let found = tx.rows(UNROUTED_TYPES, (after, limit), |row| {
        let text = |column| {
            row.get_ref(column).ok().and_then(|value| value.as_str().ok().map(str::to_owned))
        };
        Ok(text(0).zip(text(1)))
    })?;
    let mut seen = BTreeSet::new();
    let mut types: Vec<(String, String)> = found.into_iter().flatten().collect();
    types.retain(|one| seen.insert(one.clone()));
    Ok(types)
}

/// The types of the rows that [`relay_before`] would route. Empty if it would route none.
pub fn types_before(tx: &ReadTx<'_>) -> Result<Vec<(String, String)>> {
    unrouted_types(tx, 0, MAX_ROWS.saturating_mul(MAX_BATCHES_BEFORE))
}

queries! {
    /// Numbers of unrouted rows after `after`, the oldest first.
    pub fn unrouted(after: i64, limit: u32) -> Vec<i64> = list UNROUTED;
}

/// A number that changes with every commit of another connection, including our own writer.
pub fn data_version(tx: &ReadTx<'_>) -> Result<i64> {
    contention::data_version(tx.conn())
}

/// Routes at most `limit` rows after `after`; stops early if their payloads are large. `fresh` makes UUIDs.
/// Fails if the file cannot be written, or if a row can be neither routed nor quarantined; see [`set_aside`].
pub fn relay(
    tx: &WriteTx<'_>,
    after: i64,
    limit: u32,
    terms: Terms<'_>,
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
            RowResult::Left => return Ok(Relayed { more: true, is_stuck: true, ..done }),
            RowResult::Quarantined => done.quarantined = done.quarantined.saturating_add(1),
            RowResult::Routed(tenant) => {
                done.routed = done.routed.saturating_add(1);
                let sum = done.tenants.entry(tenant).or_default();
                *sum = sum.saturating_add(1);
            }
        }
        done.last = *seq;
    }
    done.more = u32::try_from(found.len()).is_ok_and(|have| have >= limit);
    Ok(done)
}

/// Routes rows that were committed before this transaction, so that events published in it come after them. Does
/// nothing unless a subscription or the published event asks for order, and runs once per transaction. The relay routes rows beyond the first
/// thousand and rows that fail here.
pub fn relay_before(
    tx: &WriteTx<'_>,
    is_guaranteed: bool,
    terms: Terms<'_>,
    fresh: &dyn Fn() -> String,
) -> Result<Relayed> {
    let is_needed = (is_guaranteed || subscriptions::is_order_asked_for(tx)?)
        && tx.is_first_relay()
        && !unrouted(tx, 0, 1)?.is_empty();
    if !is_needed {
        return Ok(Relayed::default());
    }
    let relayed = tx.in_savepoint(|| {
        let mut all = Relayed { more: true, ..Relayed::default() };
        for _ in 0..MAX_BATCHES_BEFORE {
            if all.more {
                let done = relay(tx, all.last, MAX_ROWS, terms, fresh)?;
                all.last = done.last;
                // What is left is routed by the relay.
                all.more = done.more && !done.is_stuck;
                all.add(done);
            }
        }
        Ok(all)
    })?;
    match relayed {
        Err(error) if !error.passes() && !matches!(error, Error::Fatal(_)) => {
            tracing::debug!(%error, "rows could not be routed before a published event; the relay will try them");
            Ok(Relayed::default())
        }
        relayed => relayed,
    }
}

/// Routes a row, or quarantines it.
fn relay_one(
    tx: &WriteTx<'_>,
    row: &SqlRow,
    terms: Terms<'_>,
    fresh: &dyn Fn() -> String,
) -> Result<RowResult> {
    let checked = match check(tx, row, terms.payload_bytes_most, PolicyApplied::No)? {
        Ok(event) => match (archived(tx, &event)?, (terms.check_type)(&event)) {
            (Some(defect), _) => Err(defect),
            (None, TypeCheck::NotCompiled) => return Ok(RowResult::Left),
            (None, TypeCheck::Misfit(why)) => Err(Defect::new(MISFIT, why)),
            (None, TypeCheck::Fits) => Ok(event),
        },
        defect => defect,
    };
    match checked {
        Ok(event) => {
            let plan = outbox_routing::plan(tx, &event, terms.now)?;
            let status = route(tx, row, &event, &plan, terms.now)?;
            let is_routed = status != Status::Quarantined;
            Ok(if is_routed { RowResult::Routed(event.tenant) } else { RowResult::Quarantined })
        }
        Err(defect) => {
            quarantine(tx, row, &defect, terms, &fresh())?;
            Ok(RowResult::Quarantined)
        }
    }
}

/// Why a row is none: its event was stored before and is in the archive. Until then the database itself refuses it.
fn archived(tx: &WriteTx<'_>, event: &NewEvent) -> Result<Option<Defect>> {
    let identity =
        (event.tenant.as_str(), event.source_system.as_str(), event.idempotency_key.as_str());
    let seen = seen_keys::find(tx, seen_keys::EVENT, identity)?;
    Ok(seen.map(|Seen { id, month, .. }| {
        let reason = format!(
            "the event {id} had the same tenant, source_system and idempotency_key; it is in the archive of {month}"
        );
        Defect::new("already_processed", reason)
    }))
}

/// Whether the privacy policy was applied to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyApplied {
    /// Yes, before it was stored, as for every published event. A second check would object to masked and sealed
    /// values.
    Yes,
    /// No: another program wrote the row.
    No,
}

/// Checks whether a row that plain SQL inserted can be used, at first and after a person's repair. Returns the event to
/// route.
/// Fails if the file cannot be read. A defect of the row is the inner error.
pub fn check(
    tx: &ReadTx<'_>,
    row: &SqlRow,
    payload_bytes_most: u64,
    policy_applied: PolicyApplied,
) -> Result<std::result::Result<NewEvent, Defect>> {
    let event = match row.check(payload_bytes_most) {
        Ok(event) => event,
        Err(defect) => return Ok(Err(defect)),
    };
    if event.tenant != DEFAULT_TENANT && tenants::by_name(tx, &event.tenant)?.is_none() {
        let reason = format!("there is no tenant {:?}", event.tenant);
        return Ok(Err(Defect::new("unknown_tenant", reason)));
    }
    if policy_applied == PolicyApplied::No
        && let Some(policy) = tenants::pii(tx, &event.tenant)?.rules()
        && let Some(reason) = policy.objects_to(&event)
    {
        return Ok(Err(Defect::new("personal_data", reason)));
    }
    Ok(check_parent(tx, row, &event.tenant)?.map(|()| event))
}

fn check_parent(
    tx: &ReadTx<'_>,
    row: &SqlRow,
    tenant: &str,
) -> Result<std::result::Result<(), Defect>> {
    row.parent_seq.map_or(Ok(Ok(())), |parent| families::check(tx, parent, (tenant, Some(row.seq))))
}

/// Reads a row without validation; `None` if the number does not exist. A payload above `payload_bytes_most` is not
/// read, unless it is in `payloads`.
pub fn read(tx: &ReadTx<'_>, seq: i64, payload_bytes_most: u64) -> Result<Option<SqlRow>> {
    let most = i64::try_from(payload_bytes_most).unwrap_or(i64::MAX);
    tx.first(ROW, (seq, most), |row| {
        let mut texts: [Option<Vec<u8>>; 17] = Default::default();
        for (n, text) in texts.iter_mut().enumerate() {
            *text = bytes(row, n)?;
        }
        let size: Option<i64> = row.get(22)?;
        let size = size.unwrap_or(0).unsigned_abs();
        let payload_seq: Option<i64> = row.get(24)?;
        let payload = if payload_seq.is_none() && size > payload_bytes_most {
            Payload::TooLarge(size)
        } else {
            Payload::Bytes(payloads::fetch(tx, row.get_ref(23)?, payload_seq)?)
        };
        Ok(SqlRow {
            seq,
            texts,
            payload,
            payload_seq,
            occurred_at: row.get(17)?,
            received_at: row.get(18)?,
            not_before: row.get(19)?,
            parent_seq: row.get(20)?,
            has_children: row.get(29)?,
            is_ordered: (row.get(27)?, row.get(28)?),
            max_attempts: row.get(21)?,
            own: row.get(25)?,
            sealed_fields: row.get::<_, Clamped>(26)?.0,
        })
    })
}

fn bytes(row: &Row<'_>, column: usize) -> Result<Option<Vec<u8>>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(bytes.to_vec()),
        ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Null => None,
    })
}

/// Routes a usable row and makes its deliveries, as for a published event.
pub(super) fn route(
    tx: &WriteTx<'_>,
    row: &SqlRow,
    event: &NewEvent,
    plan: &RoutingPlan,
    now: Timestamp,
) -> Result<Status> {
    let seq = row.seq;
    let routed = (seq, &event.trace_id, now, plan.open(), plan.epoch());
    tx.change_one(ROUTED, routed, "the event")?;
    if row.payload_seq.is_none() && event.payload.len() > MAX_INLINE_BYTES {
        let _payload_seq = replace_payload(tx, seq, event)?;
    }
    let status = outbox_routing::carry_out(tx, seq, event, plan, now)?;
    if row.parent_seq.is_some() || row.has_children {
        families::join(tx, seq, now)?;
    }
    Ok(status)
}

/// Replaces the payload of a row; returns its number in `payloads`, if it is stored there.
pub(super) fn replace_payload(tx: &WriteTx<'_>, seq: i64, event: &NewEvent) -> Result<Option<i64>> {
    let placed = payloads::place(tx, &event.payload)?;
    let (inline, payload_seq) = (placed.inline(), placed.payload_seq());
    let replaced = (seq, inline, payload_seq, event.sealed.fields);
    tx.change_one(REPLACE_PAYLOAD, replaced, "the event").map(|()| payload_seq)
}

fn quarantine(
    tx: &WriteTx<'_>,
    row: &SqlRow,
    defect: &Defect,
    terms: Terms<'_>,
    fresh: &str,
) -> Result<()> {
    let row = row.presentable(fresh, terms.wall);
    let tenant = row.text(Column::Tenant).unwrap_or_default();
    // A parent that it cannot have is removed: the next upgrade would report the file as damaged.
    let (parent, reason) = match check_parent(tx, &row, &tenant)? {
        Ok(()) => (row.parent_seq, Cow::Borrowed(defect.reason.as_str())),
        Err(lost) if lost.code == defect.code => (None, Cow::Borrowed(defect.reason.as_str())),
        Err(lost) => (None, Cow::Owned(format!("{}; {}", defect.reason, lost.reason))),
    };
    let pii = tenants::pii(tx, &tenant)?;
    let reason = pii.rules().map(|policy| policy.sanitize(&reason).into()).unwrap_or(reason);
    let text = |column| row.text(column);
    // own = 0, because no privacy policy was applied to the row, even if a program with our crate inserted it.
    let stored = update!(tx, "outbox" {
        id: text(Column::Id), tenant: text(Column::Tenant), source_system: text(Column::SourceSystem),
        idempotency_key: text(Column::IdempotencyKey), event_type: text(Column::EventType),
        aggregate_type: text(Column::AggregateType), aggregate_id: text(Column::AggregateId),
        target: text(Column::Target), content_type: text(Column::ContentType), headers: text(Column::Headers),
        ordering_key: text(Column::OrderingKey), funnel_point: text(Column::FunnelPoint),
        funnel_value: text(Column::FunnelValue), process_id: text(Column::ProcessId), trace_id: text(Column::TraceId),
        custom_data: text(Column::CustomData), entity_type: text(Column::EntityType), occurred_at: row.occurred_at,
        received_at: row.received_at, not_before: row.not_before, parent_seq: parent, status: "quarantined",
        routed_at: terms.now, error_code: defect.code, last_error: reason, own: false
    } "WHERE seq = ? AND routed_at IS NULL", [row.seq])?;
    one_row(stored, "the event")?;
    if parent.is_some() { families::join(tx, row.seq, terms.now) } else { Ok(()) }
}

/// Quarantines a row that [`relay`] can neither route nor quarantine, with the error `why`. Makes its text presentable
/// if that can be stored, or else leaves the text unchanged. `fresh` is a new UUID.
pub fn set_aside(
    tx: &WriteTx<'_>,
    seq: i64,
    why: &str,
    terms: Terms<'_>,
    fresh: &str,
) -> Result<()> {
    if let Ok(Some(row)) = read(tx, seq, 0) {
        let row = SqlRow { parent_seq: None, ..row };
        match quarantine(tx, &row, &Defect::new("unusable", why), terms, fresh) {
            Err(error) if !error.passes() => {
                tracing::debug!(%error, seq, "the text of a quarantined row cannot be made presentable");
            }
            other => return other,
        }
    }
    tx.change_one(SET_ASIDE, (seq, terms.now, why), "the event")
}
