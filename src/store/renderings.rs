//! Table `renderings`: what is sent of an event, where it is not the payload as it is. Column `deliveries.rendered`:
//! whether it is fixed. Table `past_renderings`: what earlier attempts sent, before the delivery was rendered anew.

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

/// Past renderings of a delivery at most.
pub const MAX_PAST: u32 = 16;

pub(super) const COUNT_PAST: &str = "SELECT count(*) FROM past_renderings WHERE delivery_seq = ?1";

// A rendering that no attempt has sent has the last attempt of the one before it, and is not kept.
pub(super) const KEEP: &str = "
    INSERT OR IGNORE INTO past_renderings (delivery_seq, last_n, format, content_type, fields, body, sealed)
    SELECT d.seq, d.attempt_count, coalesce(r.format, 'raw'),
           coalesce(r.content_type, o.content_type, w.content_type), coalesce(r.fields, '[]'), r.body,
           coalesce(r.sealed, 0)
      FROM deliveries AS d
      LEFT JOIN renderings AS r ON r.delivery_seq = d.seq
      LEFT JOIN outbox AS o ON o.seq = d.outbox_seq
      LEFT JOIN webhook_events AS w ON w.seq = d.webhook_seq
     WHERE d.seq = ?1
       AND d.rendered = 1
       AND d.attempt_count > 0";

columns! {
    fn past() -> Rendering = "past_renderings" [format, content_type, fields, body, sealed] {
        format, content_type, fields, body, is_sealed: sealed
    }
    pub(super) const SENT_BY = "WHERE delivery_seq = ?1 AND last_n >= ?2 ORDER BY last_n LIMIT 1";
}

queries! {
    /// How many past renderings of a delivery are kept.
    pub fn count_past(delivery: DeliverySeq) -> u32 = value COUNT_PAST;
}

/// The rendering that an attempt of a delivery has sent, whose event has that media type.
pub fn sent_by(
    tx: &ReadTx<'_>,
    delivery: DeliverySeq,
    n: u32,
    content_type: &str,
) -> Result<Rendering> {
    match tx.first(SENT_BY, (delivery, n), past)? {
        Some(past) => Ok(past),
        None => of(tx, delivery, content_type),
    }
}

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
    Ok(stored.unwrap_or_else(|| Rendering::raw(content_type)))
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

/// Has a delivery rendered anew by its next attempt. What its attempts have sent is kept. What is pending begins a new run.
pub(super) fn forget(tx: &WriteTx<'_>, delivery: DeliverySeq, run_no: u32) -> Result<()> {
    tx.execute(KEEP, [delivery])?;
    tx.execute(NEW_RUN, (delivery, run_no))?;
    tx.execute("DELETE FROM renderings WHERE delivery_seq = ?1", [delivery])?;
    tx.execute("UPDATE deliveries SET rendered = 0 WHERE seq = ?1", [delivery]).map(drop)
}
