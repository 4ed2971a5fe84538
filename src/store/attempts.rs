//! Table `attempts`: every attempt of a delivery, written once.

use schemars::JsonSchema;
use serde::Serialize;

use crate::model::attempt::Attempt;
use crate::store::prelude::*;

columns! {
    fn attempt() -> Attempt = "attempts" [
        n, started_at, finished_at, url, class, counted, http_status, latency_ms, excerpt, failed_reason, key_id, span,
        method, body_sha256, fields, named
    ] {
        n, started_at, finished_at, url, class, counted, http_status, latency_ms, excerpt, failed_reason, key_id, span,
        method, body_sha256, fields, named
    }
    pub(super) const OF = "WHERE delivery_seq = ?1 AND n > ?2 ORDER BY n LIMIT ?3";
    pub(super) const NTH = "WHERE delivery_seq = ?1 AND n = ?2";
    pub(super) const LAST_SENT = "WHERE delivery_seq = ?1 AND method IS NOT NULL ORDER BY n DESC LIMIT 1";
}

const IS_STORED: &str =
    "SELECT started_at = ?3 AND span IS ?4 FROM attempts WHERE delivery_seq = ?1 AND n = ?2";

// An event may have many deliveries, so their number is bounded.
const TRIES: &str = "
    SELECT count(*) FILTER (WHERE class <> 'success'),
           (SELECT f.code FROM deliveries AS d JOIN failures AS f ON f.delivery_seq = d.seq
             WHERE d.outbox_seq = ?1 AND f.resolved_at IS NULL ORDER BY f.last_at DESC, f.seq DESC LIMIT 1),
           max(finished_at)
      FROM (SELECT a.class, a.finished_at
              FROM deliveries AS d JOIN attempts AS a ON a.delivery_seq = d.seq
             WHERE d.outbox_seq = ?1 LIMIT 10000)";

/// The attempts of an event, by all its deliveries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Tries {
    /// How many failed; at most 10,000 attempts are looked at.
    failed_count: u32,
    /// The HTTP status of the latest failed attempt, or its kind of error, until its delivery succeeds.
    failed_error_code: Option<String>,
    /// When the latest attempt ended.
    last_process_timestamp: Option<Timestamp>,
}

/// The attempts of an event.
pub fn tries(tx: &ReadTx<'_>, outbox_seq: i64) -> Result<Tries> {
    let read = in_order!(Tries { failed_count, failed_error_code, last_process_timestamp });
    tx.first(TRIES, [outbox_seq], read)?.ok_or(Error::Changed("the event"))
}

queries! {
    /// The attempts of a delivery with a number above `after`, in order.
    pub fn of(delivery: DeliverySeq, after: u32, limit: u32) -> Vec<Attempt> = rows as attempt OF;

    /// An attempt of a delivery, by its number.
    pub fn nth(delivery: DeliverySeq, n: u32) -> Option<Attempt> = first as attempt NTH;

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
        failed_reason, key_id, span, method, body_sha256, fields, named
    })
    .map(drop)
}
