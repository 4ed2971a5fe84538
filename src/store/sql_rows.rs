//! Table `outbox`: reads and checks rows that plain SQL inserted.
//!
//! Such a row may hold anything. Its columns are read without validation, and [`check`] decides whether it can be used.
//! Not here: what becomes of it ([`crate::store::outbox_relay`], [`crate::store::quarantine`]).

use rusqlite::types::ValueRef;

use crate::model::event::NewEvent;
use crate::model::name::DEFAULT_TENANT;
use crate::model::sql_row::{Defect, Payload, SqlRow};
use crate::store::column::Clamped;
use crate::store::prelude::*;
use crate::store::{families, payloads, tenants};

pub(super) const UNROUTED: &str =
    "SELECT seq FROM outbox WHERE routed_at IS NULL AND seq > ?1 ORDER BY seq LIMIT ?2";

// A payload that is too large is not read at all. The text columns are in the order of `Column::ALL`.
pub(super) const ROW: &str = "
    SELECT id, tenant, source_system, idempotency_key, event_type, aggregate_type, aggregate_id, target,
           content_type, headers, ordering_key, funnel_point, funnel_value, process_id, trace_id,
           custom_data, entity_type, occurred_at, received_at, not_before, parent_seq, max_attempts,
           octet_length(payload), iif(octet_length(payload) <= ?2, payload, NULL), payload_seq, own,
           sealed_fields, guaranteed_order <> 0, exclude_failed <> 0, hard_children > 0
      FROM outbox WHERE seq = ?1";

queries! {
    /// Numbers of unrouted rows after `after`, the oldest first.
    pub fn unrouted(after: i64, limit: u32) -> Vec<i64> = list UNROUTED;
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

/// Whether the privacy policy was applied to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyApplied {
    /// Yes, before it was stored, as for every published event. A second check would object to masked and sealed
    /// values.
    Yes,
    /// No: another program wrote the row.
    No,
}

/// Checks whether a row that plain SQL inserted can be used after a person's repair. Returns the event to route.
/// Fails if the file cannot be read. A defect of the row is the inner error.
pub fn check(
    tx: &ReadTx<'_>,
    row: &SqlRow,
    payload_bytes_most: u64,
    policy_applied: PolicyApplied,
) -> Result<std::result::Result<NewEvent, Defect>> {
    let event = match check_alone(tx, row, payload_bytes_most, policy_applied)? {
        Ok(event) => event,
        Err(defect) => return Ok(Err(defect)),
    };
    Ok(check_parent(tx, row, &event.tenant)?.map(|()| event))
}

/// Checks a row without its parent, which other rows of the same batch may change.
/// Fails if the file cannot be read. A defect of the row is the inner error.
pub(super) fn check_alone(
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
    Ok(Ok(event))
}

/// Checks whether a row may have its parent.
/// Fails if the file cannot be read. A defect of the row is the inner error.
pub(super) fn check_parent(
    tx: &ReadTx<'_>,
    row: &SqlRow,
    tenant: &str,
) -> Result<std::result::Result<(), Defect>> {
    row.parent_seq.map_or(Ok(Ok(())), |parent| families::check(tx, parent, tenant, Some(row.seq)))
}
