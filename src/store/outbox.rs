//! Table `outbox`, writing: stores each event once with its deliveries, and counts repeated ones.

use std::borrow::Cow;

use crate::keys::subject::SubjectKey;
use crate::model::event::{DeliveryCounts, MAX_INLINE_BYTES, NewEvent, Status, derive};
use crate::model::sealed::equal_except_keys;
use crate::model::sql_row::Defect;
use crate::store::deliveries::Place;
use crate::store::outbox_routing::{RoutingPlan, carry_out, end, plan};
use crate::store::prelude::*;
use crate::store::seen_keys::{Identity, Seen};
use crate::store::{
    families, meta, outbox_lists, payloads, quarantine, seen_keys, subjects, tenants,
};

/// The code of a quarantined event that cannot be used for another reason than its type's schema.
pub const UNUSABLE: &str = "unusable";

pub(super) const EXISTS: &str = "
    SELECT EXISTS (SELECT 1 FROM outbox
                    WHERE tenant = ?1 AND source_system = ?2 AND idempotency_key = ?3)";

pub(super) const REPEATED: &str = "
    UPDATE outbox SET duplicate_count = duplicate_count + 1, differing_count = differing_count + ?2
     WHERE seq = ?1";

// `OR ROLLBACK`: a violated constraint ends the transaction, whose jobs then run one by one. Otherwise SQLite copies each
// page that it changes, to be able to take back this statement alone: a seventh of its time.
pub(super) const SETTLED: &str = "
    UPDATE OR ROLLBACK outbox
       SET status = ?2, open_deliveries = ?3, completed_at = ?4, last_error = coalesce(?5, last_error)
     WHERE seq = ?1 AND routed_at IS NOT NULL
 RETURNING hard_children > 0, iif(parent_binding = 'hard', parent_seq, NULL)";

/// The result of storing an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The event was stored and routed now.
    First {
        /// Its status, derived from its deliveries.
        status: Status,
        /// Whether its deliveries are in doubt, because they may have been sent before a restore.
        in_doubt: bool,
    },
    /// The event was stored before, and its first content stays. If that is quarantined, the new content cannot be used
    /// either.
    Again {
        /// The UUID of the stored event.
        id: String,
        /// The status of the stored event.
        status: Status,
        /// Whether the content sent now differs from the stored content.
        differs: bool,
    },
    /// Nothing was stored, because the event cannot have this parent.
    NoParent(Defect),
}

/// Stores an event once and makes its deliveries, all in this transaction.
pub fn insert(tx: &WriteTx<'_>, new: &NewEvent, now: Timestamp) -> Result<Inserted> {
    if let Some(again) = archived(tx, new)? {
        return Ok(again);
    }
    let parent = match families::parent_of(tx, new)? {
        Ok(parent) => parent,
        Err(defect) => {
            let again =
                if is_stored(tx, identity(new))? { repeated(tx, new, false, now)? } else { None };
            return Ok(again.unwrap_or(Inserted::NoParent(defect)));
        }
    };
    let plan = plan(tx, new, now)?;
    insert_planned(tx, new, &plan, parent, now)
}

/// Stores an event that replaces a delivery, with a delivery at the same place; returns the delivery. Fails with `Changed`
/// if the subscription does not take the event.
pub(super) fn insert_in_place(
    tx: &WriteTx<'_>,
    new: &NewEvent,
    place: Place,
    now: Timestamp,
) -> Result<DeliverySeq> {
    let plan = plan(tx, new, now)?.in_place(place)?;
    let parent = families::parent_of(tx, new)?.unwrap_or_default();
    insert_planned(tx, new, &plan, parent, now)?;
    // The delivery is the row that was inserted last.
    Ok(DeliverySeq(tx.conn().last_insert_rowid()))
}

fn insert_planned(
    tx: &WriteTx<'_>,
    new: &NewEvent,
    plan: &RoutingPlan,
    parent: Option<i64>,
    now: Timestamp,
) -> Result<Inserted> {
    let open = plan.open();
    let epoch = plan.epoch();
    // Checked first for a large payload, so that a repeated event leaves no row in `payloads`.
    let is_there = new.payload.len() > MAX_INLINE_BYTES && is_stored(tx, identity(new))?;
    if is_there || write(tx, new, now, open, epoch, parent)? == 0 {
        let is_usable = open > 0 || new.target.is_none();
        if let Some(again) = repeated(tx, new, is_usable, now)? {
            return Ok(again);
        }
        one_row(write(tx, new, now, open, epoch, parent)?, "the event")?;
    }
    let seq = tx.conn().last_insert_rowid();
    if let Some(key) = &new.sealed.key {
        subjects::keep(tx, key, new.received_at)?;
    }
    let in_doubt = plan.in_doubt();
    let status = carry_out(tx, seq, new, plan, now)?;
    if parent.is_some() {
        families::join(tx, seq, now)?;
    }
    Ok(Inserted::First { status, in_doubt })
}

/// Inserts the row unless its identity exists; returns how many rows it inserted.
fn write(
    tx: &WriteTx<'_>,
    new: &NewEvent,
    now: Timestamp,
    open: u32,
    epoch: u32,
    parent: Option<i64>,
) -> Result<usize> {
    let placed = payloads::place(tx, &new.payload)?;
    insert!(tx, "outbox" of new {
        id, tenant, source_system, idempotency_key, event_type, aggregate_type, aggregate_id, target,
        payload: placed.inline(), payload_seq: placed.payload_seq(), content_type, occurred_at, received_at, not_before,
        ordering_key, process_id, trace_id, max_attempts, custom_data, routed_at: now, open_deliveries: open,
        epoch: epoch, sealed_fields: new.sealed.fields, headers: new.headers.as_deref().unwrap_or("{}"),
        guaranteed_order: new.order.guaranteed, exclude_failed: new.order.exclude_failed,
        funnel_point: new.order.funnel_point, funnel_value: new.order.funnel_value, entity_type: new.order.entity_type,
        parent_seq: parent, parent_binding: new.order.parent_binding, own: true
    } "ON CONFLICT (tenant, source_system, idempotency_key) DO NOTHING")
}

/// Stores an event that cannot be used as quarantined, with the reason. It gets no deliveries, and no parent if it cannot
/// have the one that it names.
pub fn insert_quarantined(
    tx: &WriteTx<'_>,
    new: &NewEvent,
    code: &str,
    why: &str,
    now: Timestamp,
) -> Result<Inserted> {
    if let Some(again) = archived(tx, new)? {
        return Ok(again);
    }
    if is_stored(tx, identity(new))?
        && let Some(again) = repeated(tx, new, false, now)?
    {
        return Ok(again);
    }
    let (parent, code, why) = match families::parent_of(tx, new)? {
        Ok(parent) => (parent, code, Cow::Borrowed(why)),
        Err(lost) if lost.code == code => (None, code, Cow::Borrowed(why)),
        // A repair must name the parent again.
        Err(lost) => (None, lost.code, format!("{}; {why}", lost.reason).into()),
    };
    let why = tenants::pii(tx, &new.tenant)?
        .rules()
        .map(|policy| policy.sanitize(&why).into())
        .unwrap_or(why);
    let inserted = write(tx, new, now, 0, meta::cached_fence(tx)?.epoch, parent)?;
    one_row(inserted, "the event")?;
    let seq = tx.conn().last_insert_rowid();
    let status = Status::Quarantined;
    // A person may repair the event; its sealed values must be readable then.
    if let Some(key) = &new.sealed.key {
        subjects::keep(tx, key, new.received_at)?;
    }
    end(tx, seq, status, None, Some((code, &why)))?;
    if parent.is_some() {
        families::join(tx, seq, now)?;
    }
    Ok(Inserted::First { status, in_doubt: false })
}

/// Whether an event with this tenant, source system and key exists, or was archived.
pub fn is_known(tx: &ReadTx<'_>, identity: Identity<'_>) -> Result<bool> {
    Ok(is_stored(tx, identity)? || seen_keys::look_up(tx, seen_keys::EVENT, identity)?.is_some())
}

/// Whether the database has an event with this tenant, source system and key.
pub(super) fn is_stored(tx: &ReadTx<'_>, identity: Identity<'_>) -> Result<bool> {
    tx.value(EXISTS, identity)
}

/// A repeated event that was archived: its content is not compared any more.
fn archived(tx: &WriteTx<'_>, new: &NewEvent) -> Result<Option<Inserted>> {
    let seen = seen_keys::find(tx, seen_keys::EVENT, identity(new))?;
    Ok(seen.map(|Seen { id, status, .. }| Inserted::Again {
        id,
        status: Status::parse(&status).unwrap_or(Status::Completed),
        differs: false,
    }))
}

fn identity(new: &NewEvent) -> Identity<'_> {
    (&new.tenant, &new.source_system, &new.idempotency_key)
}

/// Counts a repeated event. If the stored event is quarantined, and the new one is usable or differs, it discards the
/// stored event instead and returns `None`: the key is free.
fn repeated(
    tx: &WriteTx<'_>,
    new: &NewEvent,
    is_usable: bool,
    now: Timestamp,
) -> Result<Option<Inserted>> {
    let kept = outbox_lists::by_identity(tx, identity(new))?.ok_or(Error::Changed("the event"))?;
    let differs = (kept.expunged_at.is_none() && differs(&kept.new, new))
        || kept.new.event_type != new.event_type
        || kept.new.aggregate_id != new.aggregate_id
        || kept.new.target != new.target;
    if kept.status == Status::Quarantined && (is_usable || differs) {
        return quarantine::discard_republished(tx, &kept, new, now).map(|()| None);
    }
    tx.execute(REPEATED, (kept.seq, differs))?;
    Ok(Some(Inserted::Again { id: kept.new.id, status: kept.status, differs }))
}

/// Whether the bodies differ. The same text under the same key is sealed to the same bytes. If the subject has another
/// key now, only the unsealed parts can be compared.
fn differs(kept: &NewEvent, new: &NewEvent) -> bool {
    let sealed = kept.sealed.fields > 0 && new.sealed.fields > 0;
    kept.payload != new.payload
        && !(sealed && equal_except_keys(&kept.payload, &new.payload, SubjectKey::id_in))
}

/// Derives an event's status again after one of its deliveries changed, and the status of the events above it.
pub(crate) fn refresh(
    tx: &WriteTx<'_>,
    seq: i64,
    counts: DeliveryCounts,
    error: Option<&str>,
    now: Timestamp,
) -> Result<()> {
    let status = derive(counts);
    let completed_at = status.is_final().then_some(now);
    let settled = (seq, status.as_str(), counts.open, completed_at, error);
    let kin = tx.first(SETTLED, settled, |row| {
        Ok((row.get::<_, bool>(0)?, row.get::<_, Option<i64>>(1)?))
    })?;
    match kin.ok_or(Error::Changed("the event"))? {
        (false, None) => Ok(()),
        (false, Some(parent)) => families::refresh(tx, parent, false, now),
        (true, _) => families::refresh(tx, seq, true, now),
    }
}
