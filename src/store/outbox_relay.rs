//! Table `outbox`: routes rows that plain SQL inserted.
//!
//! A row may hold anything, and must never block other rows: one that cannot be used is quarantined. What takes as long
//! as its payload is large is done before the transaction that routes it: see [`crate::store::examined_rows`].
//!
//! A person repairs or discards a quarantined event with [`crate::store::quarantine`].

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::model::event::{MAX_INLINE_BYTES, NewEvent, Status};
use crate::model::sql_row::{Column, Defect, SqlRow};
use crate::store::examined_rows::{ExaminedRow, ExaminedRows, Finding, MAX_BEFORE};
use crate::store::outbox_routing::{self, RoutingPlan};
use crate::store::prelude::*;
use crate::store::seen_keys::{self, Seen};
use crate::store::sql_rows::{self, check_parent};
use crate::store::{contention, families, payloads, subscriptions, tenants};

/// The code of a quarantined event that does not fit its type.
pub const MISFIT: &str = "misfit";
/// Rows of one batch of the relay.
pub const MAX_ROWS: u32 = 100;

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
    /// Whether the row after it was not examined before the transaction as it is now.
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

/// The limit and the times for routing rows.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The maximum size of a payload in bytes.
    pub payload_bytes_most: u64,
    /// Wall time.
    pub wall: Timestamp,
    /// Schedule time.
    pub now: Timestamp,
}

/// What came of a row.
enum RowResult {
    /// It was routed, for this tenant.
    Routed(String),
    /// It cannot be used.
    Quarantined,
    /// The row is unchanged, because it was not examined before, or has changed since.
    Left,
}

/// A number that changes with every commit of another connection, including our own writer.
pub fn data_version(tx: &ReadTx<'_>) -> Result<i64> {
    contention::data_version(tx.conn())
}

/// Routes at most `limit` rows after `after` that were examined before. `fresh` makes UUIDs.
/// Fails if the file cannot be written, or if a row can be neither routed nor quarantined; see [`set_aside`].
pub fn relay(
    tx: &WriteTx<'_>,
    examined: &ExaminedRows,
    after: i64,
    limit: u32,
    terms: Terms,
    fresh: &dyn Fn() -> String,
) -> Result<Relayed> {
    let mut done = Relayed { last: after, ..Relayed::default() };
    let found = sql_rows::unrouted(tx, after, limit)?;
    for seq in &found {
        match relay_one(tx, examined.get(*seq), *seq, terms, fresh)? {
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

/// Routes the rows committed before this transaction, so that its own events come after them. Does nothing unless a
/// subscription or the published event asks for order, and once per transaction if all could be routed. The relay routes
/// the rows beyond [`MAX_BEFORE`], and those that fail here.
pub fn relay_before(
    tx: &WriteTx<'_>,
    examined: &ExaminedRows,
    is_guaranteed: bool,
    terms: Terms,
    fresh: &dyn Fn() -> String,
) -> Result<Relayed> {
    let is_needed = (is_guaranteed || subscriptions::is_order_asked_for(tx)?) && !tx.is_relayed();
    if !is_needed {
        return Ok(Relayed::default());
    }
    let relayed = tx.in_savepoint(|| relay(tx, examined, 0, MAX_BEFORE, terms, fresh))?;
    match relayed {
        Err(error) if !error.passes() && !matches!(error, Error::Fatal(_)) => {
            tracing::debug!(%error, "rows could not be routed before a published event; the relay will try them");
            tx.set_relayed();
            Ok(Relayed::default())
        }
        // Another request in this transaction may have examined what is left; if not, the relay will.
        Ok(all) if all.is_stuck => Ok(all),
        relayed => {
            tx.set_relayed();
            relayed
        }
    }
}

/// Routes a row, or quarantines it, if unchanged since it was examined.
fn relay_one(
    tx: &WriteTx<'_>,
    examined: Option<&ExaminedRow>,
    seq: i64,
    terms: Terms,
    fresh: &dyn Fn() -> String,
) -> Result<RowResult> {
    let Some(examined) = examined else { return Ok(RowResult::Left) };
    let row =
        sql_rows::read(tx, seq, terms.payload_bytes_most)?.ok_or(Error::Changed("the event"))?;
    if row != examined.row {
        return Ok(RowResult::Left);
    }
    match decide(tx, examined)? {
        Ok(event) => {
            let plan = outbox_routing::plan(tx, event, terms.now)?;
            let status = route(tx, &row, event, &plan, terms.now)?;
            let is_routed = status != Status::Quarantined;
            Ok(if is_routed {
                RowResult::Routed(event.tenant.clone())
            } else {
                RowResult::Quarantined
            })
        }
        Err(defect) => {
            quarantine(tx, &row, &defect, terms, &fresh())?;
            Ok(RowResult::Quarantined)
        }
    }
}

/// The event of a row, or why it has none. Asks other rows, and does not look into the row again.
fn decide<'e>(
    tx: &WriteTx<'_>,
    examined: &'e ExaminedRow,
) -> Result<std::result::Result<&'e NewEvent, Defect>> {
    let event = match &examined.finding {
        Finding::Unusable(defect) => return Ok(Err(defect.clone())),
        Finding::Usable(event) | Finding::Misfit { event, .. } => event,
    };
    if let Some(defect) = archived(tx, event)? {
        return Ok(Err(defect));
    }
    if let Finding::Misfit { why, .. } = &examined.finding {
        return Ok(Err(Defect::new(MISFIT, why.clone())));
    }
    Ok(check_parent(tx, &examined.row, &event.tenant)?.map(|()| event))
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
    let inline = placed.inline();
    let payload_seq = placed.payload_seq();
    let replaced = (seq, inline, payload_seq, event.sealed.fields);
    tx.change_one(REPLACE_PAYLOAD, replaced, "the event").map(|()| payload_seq)
}

fn quarantine(
    tx: &WriteTx<'_>,
    row: &SqlRow,
    defect: &Defect,
    terms: Terms,
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
pub fn set_aside(tx: &WriteTx<'_>, seq: i64, why: &str, terms: Terms, fresh: &str) -> Result<()> {
    if let Ok(Some(row)) = sql_rows::read(tx, seq, 0) {
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
