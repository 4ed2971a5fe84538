//! Table `outbox`, parent and child: finds and checks the parent that an event names, and derives the status of events
//! with hard children.
//!
//! A hard child counts in its parent's `hard_children` once it is routed or quarantined. The rule for the status is
//! [`with_children`].

use rusqlite::types::ValueRef;

use crate::model::event::{EventOrder, HardChildren, NewEvent, Status, derive, with_children};
use crate::model::sql_row::Defect;
use crate::store::deliveries::{self, Origin};
use crate::store::prelude::*;

/// The code of an event whose parent does not exist.
pub const UNKNOWN_PARENT: &str = "unknown_parent";
/// The code of an event with too many ancestors.
pub const TOO_DEEP: &str = "parent_too_deep";
/// The code of an event that is an ancestor of its parent.
pub const CIRCLE: &str = "parent_circle";
/// The most ancestors of an event.
pub const MAX_DEPTH: u8 = 16;
/// The levels that a change of status climbs at most. Repaired events may have children already, so a family may be
/// higher than [`MAX_DEPTH`]; a circle, which only another program can make, ends here.
const MAX_CLIMB: usize = 64;

pub(super) const BY_ID: &str = "SELECT seq FROM outbox WHERE id = ?2 AND tenant = ?1";

pub(super) const BY_KEY: &str =
    "SELECT seq FROM outbox WHERE tenant = ?1 AND source_system = ?2 AND idempotency_key = ?3";

// An event and its ancestors, at most ?2 of them.
pub(super) const CHAIN: &str = "
    WITH RECURSIVE chain (seq, tenant, parent, level) AS (
         SELECT o.seq, o.tenant, o.parent_seq, 1
           FROM outbox AS o
          WHERE o.seq = ?1
          UNION ALL
         SELECT o.seq, o.tenant, o.parent_seq, c.level + 1
           FROM chain AS c
          CROSS JOIN outbox AS o ON o.seq = c.parent
          WHERE c.level < ?2)
    SELECT seq, tenant
      FROM chain";

pub(super) const JOIN: &str = "
    UPDATE outbox SET hard_children = hard_children + 1
     WHERE seq = (SELECT c.parent_seq FROM outbox AS c WHERE c.seq = ?1 AND c.parent_binding = 'hard')
 RETURNING seq";

pub(super) const LEAVE: &str = "
    UPDATE outbox SET hard_children = hard_children - 1
     WHERE seq = (SELECT c.parent_seq FROM outbox AS c WHERE c.seq = ?1 AND c.parent_binding = 'hard')
 RETURNING seq";

pub(super) const PARENT: &str = "
    SELECT parent_seq FROM outbox
     WHERE seq = ?1 AND parent_seq IS NOT NULL AND parent_binding = 'hard'";

// Events that are quarantined, were discarded or are not routed yet do not follow their children.
pub(super) const KIN: &str = "
    SELECT status, hard_children > 0, iif(parent_binding = 'hard', parent_seq, NULL) FROM outbox
     WHERE seq = ?1 AND routed_at IS NOT NULL AND error_code IS NULL AND status <> 'quarantined'";

macro_rules! hard_children {
    ($what:literal, $status:literal) => {
        sql!(
            "(SELECT " $what " FROM outbox AS c INDEXED BY outbox_hard_children
               WHERE c.parent_seq = ?1 AND c.parent_binding = 'hard' AND c.routed_at IS NOT NULL
                 AND c.status " $status " LIMIT 1)"
        )
    };
}

pub(super) const CHILDREN: &str = sql!(
    "SELECT EXISTS " hard_children!("1", "IN ('pending', 'processing', 'failed', 'quarantined')") ", EXISTS "
    hard_children!("1", "= 'completed'") ", " hard_children!("c.id", "= 'dead_letter'")
);

pub(super) const FOLLOW: &str = "
    UPDATE outbox SET status = ?2, completed_at = ?3, last_error = coalesce(?4, last_error)
     WHERE seq = ?1";

queries! {
    /// Takes an event from its parent's count; returns the parent, whose status must be derived again.
    pub(super) fn leave(seq: i64) -> Option<i64> = find LEAVE;
}

/// The number of the parent that an event names. The inner error says why it cannot have that parent.
pub(super) fn parent_of(
    tx: &ReadTx<'_>,
    new: &NewEvent,
) -> Result<std::result::Result<Option<i64>, Defect>> {
    let EventOrder { parent_id, parent_key, .. } = &new.order;
    if parent_id.is_none() && parent_key.is_none() {
        return Ok(Ok(None));
    }
    let id = parent_id.as_deref();
    let key = parent_key.as_deref();
    Ok(match find(tx, &new.tenant, &new.source_system, id, key)? {
        Ok(parent) => check(tx, parent, &new.tenant, None)?.map(|()| Some(parent)),
        Err(defect) => Err(defect),
    })
}

/// The number of the event with an id, or else with a key in a source system. The inner error says that there is none.
pub fn find(
    tx: &ReadTx<'_>,
    tenant: &str,
    source: &str,
    id: Option<&str>,
    key: Option<&str>,
) -> Result<std::result::Result<i64, Defect>> {
    let (found, reason) = match (id, key.unwrap_or_default()) {
        (Some(id), _) => {
            let found = tx.find(BY_ID, (tenant, id))?;
            (found, format!("parent_id is {id:?}, but no event has that id"))
        }
        (None, key) => {
            let identity = (tenant, source, key);
            let found = tx.find(BY_KEY, identity)?;
            let reason = format!(
                "parent_key is {key:?}, but no event of the source system {source:?} has that key"
            );
            (found, reason)
        }
    };
    let hint = "publish the parent first, or before it in the same request";
    Ok(found.ok_or_else(|| Defect::new(UNKNOWN_PARENT, format!("{reason}: {hint}"))))
}

/// Checks whether an event of a tenant can have this parent. `own` is its number if it is stored already.
pub(super) fn check(
    tx: &ReadTx<'_>,
    parent: i64,
    tenant: &str,
    own: Option<i64>,
) -> Result<std::result::Result<(), Defect>> {
    let chain = tx.rows(CHAIN, (parent, MAX_DEPTH + 1), |row| {
        let of_tenant =
            matches!(row.get_ref(1)?, ValueRef::Text(text) if text == tenant.as_bytes());
        Ok((row.get::<_, i64>(0)?, of_tenant))
    })?;
    let is_there = chain.first().is_some_and(|(_, of_tenant)| *of_tenant);
    Ok(if !is_there || own == Some(parent) {
        let reason =
            format!("parent_seq was {parent}; no other event of its tenant has that number");
        Err(Defect::new(UNKNOWN_PARENT, reason))
    } else if chain.iter().any(|(seq, _)| Some(*seq) == own) {
        Err(Defect::new(CIRCLE, "its parent is one of its own descendants"))
    } else if chain.len() > usize::from(MAX_DEPTH) {
        let reason =
            format!("its parent has {MAX_DEPTH} ancestors, so it would have more than that");
        Err(Defect::new(TOO_DEEP, reason))
    } else {
        Ok(())
    })
}

/// An event was routed or quarantined: it counts at its parent, and follows children that came before.
pub(super) fn join(tx: &WriteTx<'_>, seq: i64, now: Timestamp) -> Result<()> {
    refresh(tx, seq, false, now)?;
    match tx.find(JOIN, [seq])? {
        Some(parent) => refresh(tx, parent, false, now),
        None => Ok(()),
    }
}

/// Derives the status of an event's parent again, because that of the event changed.
pub(super) fn changed(tx: &WriteTx<'_>, seq: i64, now: Timestamp) -> Result<()> {
    match tx.find(PARENT, [seq])? {
        Some(parent) => refresh(tx, parent, false, now),
        None => Ok(()),
    }
}

/// Derives the status of an event with hard children again, then that of its parent if it changed, and so on.
/// `has_changed`: it has changed already.
pub(super) fn refresh(tx: &WriteTx<'_>, seq: i64, has_changed: bool, now: Timestamp) -> Result<()> {
    let mut next = Some(seq);
    let mut has_changed = has_changed;
    for _ in 0..MAX_CLIMB {
        let Some(seq) = next else { break };
        let kin = tx.first(KIN, [seq], |row| {
            Ok((
                cell(row, 0, "outbox.status")?,
                row.get::<_, bool>(1)?,
                row.get::<_, Option<i64>>(2)?,
            ))
        })?;
        let Some((before, has_children, parent)) = kin else { break };
        has_changed |= has_children && follow(tx, seq, before, now)?;
        next = parent.filter(|_| std::mem::take(&mut has_changed));
    }
    Ok(())
}

/// Derives the status of an event from its deliveries and its hard children; returns whether it changed.
fn follow(tx: &WriteTx<'_>, seq: i64, before: Status, now: Timestamp) -> Result<bool> {
    let alone = derive(deliveries::counts(tx, Origin::Outbox(seq))?);
    let (children, dead) = tx.prepare(CHILDREN)?.query_row([seq], |row| {
        let dead: Option<String> = row.get(2)?;
        let any_open = row.get(0)?;
        let any_completed = row.get(1)?;
        Ok((HardChildren { any_open, any_dead: dead.is_some(), any_completed }, dead))
    })?;
    let status = with_children(alone, children);
    if status == before {
        return Ok(false);
    }
    let completed_at = status.is_final().then_some(now);
    let is_by_child = status == Status::DeadLetter && alone != status;
    let error = dead.filter(|_| is_by_child);
    let error = error.map(|id| format!("its hard child {id} is a dead letter"));
    tx.change_one(FOLLOW, (seq, status, completed_at, error), "the event").map(|()| true)
}
