//! Table `attempts`: every attempt of a delivery, written once.

use crate::model::delivery::Attempt;
use crate::store::prelude::*;

columns! {
    fn attempt() -> Attempt = "attempts" [
        n, started_at, finished_at, url, class, counted, http_status, latency_ms, excerpt, failed_reason, key_id, span,
        method, body_sha256, fields
    ] {
        n, started_at, finished_at, url, class, counted, http_status, latency_ms, excerpt, failed_reason, key_id, span,
        method, body_sha256, fields
    }
    pub(super) const OF = "WHERE delivery_seq = ?1 AND n > ?2 ORDER BY n LIMIT ?3";
    pub(super) const LAST_SENT = "WHERE delivery_seq = ?1 AND body_sha256 IS NOT NULL ORDER BY n DESC LIMIT 1";
}

const IS_STORED: &str =
    "SELECT started_at = ?3 AND span IS ?4 FROM attempts WHERE delivery_seq = ?1 AND n = ?2";

queries! {
    /// The attempts of a delivery with a number above `after`, in order.
    pub fn of(delivery: DeliverySeq, after: u32, limit: u32) -> Vec<Attempt> = rows as attempt OF;

    /// The latest attempt of a delivery that sent something.
    pub fn last_sent(delivery: DeliverySeq) -> Option<Attempt> = first as attempt LAST_SENT;
}

/// Whether this attempt is already stored under its number.
pub(super) fn is_stored(tx: &ReadTx<'_>, delivery: DeliverySeq, attempt: &Attempt) -> Result<bool> {
    let key = (delivery, attempt.n, attempt.started_at, &attempt.span);
    let found = tx.find(IS_STORED, key)?;
    Ok(found.unwrap_or(false))
}

/// Writes a delivery's `n`-th attempt.
pub(super) fn insert(
    tx: &WriteTx<'_>,
    delivery: DeliverySeq,
    n: u32,
    attempt: &Attempt,
) -> Result<()> {
    insert!(tx, "attempts" of attempt {
        delivery_seq: delivery, n: n, started_at, finished_at, url, class, counted, http_status, latency_ms, excerpt,
        failed_reason, key_id, span, method, body_sha256, fields
    })
    .map(drop)
}
