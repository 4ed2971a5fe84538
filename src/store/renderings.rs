//! Table `renderings`: what is sent of an event, where it is not the payload as it is. Column `deliveries.rendered`:
//! whether it is fixed.

use crate::model::format::Rendering;
use crate::store::prelude::*;

columns! {
    fn rendering() -> Rendering = "renderings" [format, content_type, fields, body, sealed] {
        format, content_type, fields, body, is_sealed: sealed
    }
    pub(super) const OF = "WHERE delivery_seq = ?1";
}

pub(super) const BYTES: &str =
    "SELECT coalesce(length(body), 0) FROM renderings WHERE delivery_seq = ?1";

pub(super) const FIX: &str = "
    UPDATE deliveries SET rendered = 1
     WHERE seq = ?1 AND run_no = ?2 AND rendered = 0 AND state = 'pending'";

pub(super) const NEW_RUN: &str = "
    UPDATE deliveries SET run_no = run_no + 1, counted_failures = 0
     WHERE seq = ?1 AND run_no = ?2 AND state = 'pending'";

/// What an earlier attempt of a delivery has fixed, whose event has that media type.
pub fn fixed(
    tx: &ReadTx<'_>,
    delivery: DeliverySeq,
    content_type: &str,
) -> Result<Option<Rendering>> {
    let is_fixed: bool = tx.value("SELECT rendered FROM deliveries WHERE seq = ?1", [delivery])?;
    is_fixed.then(|| of(tx, delivery, content_type)).transpose()
}

/// The same of a delivery that is known to have one.
pub(super) fn of(tx: &ReadTx<'_>, delivery: DeliverySeq, content_type: &str) -> Result<Rendering> {
    let stored = tx.first(OF, [delivery], rendering)?;
    Ok(stored.unwrap_or_else(|| Rendering::plain(content_type)))
}

/// The bytes of its body.
pub(super) fn bytes(tx: &ReadTx<'_>, delivery: DeliverySeq) -> Result<usize> {
    let found: Option<i64> = tx.find(BYTES, [delivery])?;
    Ok(found.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0))
}

/// Fixes what is sent for a delivery, before it is sent. `false`: it was cancelled, or another run began.
pub fn fix(tx: &WriteTx<'_>, delivery: DeliverySeq, run_no: u32, new: &Rendering) -> Result<bool> {
    if tx.execute(FIX, (delivery, run_no))? == 0 {
        return Ok(false);
    }
    insert!(tx, "renderings" of new {
        delivery_seq: delivery, format, content_type, fields, body, sealed: new.is_sealed
    })
    .map(|_| true)
}

/// Has a delivery rendered anew by its next attempt. What is pending begins a new run.
pub(super) fn forget(tx: &WriteTx<'_>, delivery: DeliverySeq, run_no: u32) -> Result<()> {
    tx.execute(NEW_RUN, (delivery, run_no))?;
    tx.execute("DELETE FROM renderings WHERE delivery_seq = ?1", [delivery])?;
    tx.execute("UPDATE deliveries SET rendered = 0 WHERE seq = ?1", [delivery]).map(drop)
}
