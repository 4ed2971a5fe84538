//! Table `attempts`: every attempt of a delivery, written once.

use crate::base::id::DeliverySeq;
use crate::model::delivery::Attempt;
use crate::model::outcome::AttemptClass;
use crate::store::column::word;
use crate::store::error::Result;
use crate::store::tx::{ReadTx, WriteTx, first, rows};

const INSERT: &str = "
    INSERT INTO attempts
           (delivery_seq, n, started_at, finished_at, url, class, counted, http_status, latency_ms,
            excerpt, failed_reason, key_id, span)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";

pub(super) const OF: &str = "
    SELECT n, started_at, finished_at, url, class, counted, http_status, latency_ms, excerpt,
           failed_reason, key_id, span
      FROM attempts
     WHERE delivery_seq = ?1
       AND n > ?2
     ORDER BY n
     LIMIT ?3";

const IS_STORED: &str = "
    SELECT started_at = ?3 AND span IS ?4
      FROM attempts
     WHERE delivery_seq = ?1
       AND n = ?2";

/// Whether this attempt is already stored under its number.
pub(super) fn is_stored(tx: &ReadTx<'_>, delivery: DeliverySeq, attempt: &Attempt) -> Result<bool> {
    let key = (delivery, attempt.n, attempt.started_at, &attempt.span);
    let found = first(&mut *tx.prepare(IS_STORED)?, key, |row| Ok(row.get(0)?))?;
    Ok(found.unwrap_or(false))
}

/// Writes a delivery's `n`-th attempt.
pub(super) fn insert(
    tx: &WriteTx<'_>,
    delivery: DeliverySeq,
    n: u32,
    attempt: &Attempt,
) -> Result<()> {
    tx.prepare(INSERT)?.execute(rusqlite::params![
        delivery,
        n,
        attempt.started_at,
        attempt.finished_at,
        attempt.url,
        attempt.class.as_str(),
        attempt.counted,
        attempt.http_status,
        attempt.latency_ms,
        attempt.excerpt,
        attempt.failed_reason,
        attempt.key_id,
        attempt.span,
    ])?;
    Ok(())
}

/// The attempts of a delivery with a number above `after`, in order.
pub fn of(tx: &ReadTx<'_>, delivery: DeliverySeq, after: u32, limit: u32) -> Result<Vec<Attempt>> {
    rows(&mut *tx.prepare(OF)?, (delivery, after, limit), |row| {
        let class: String = row.get(4)?;
        Ok(Attempt {
            n: row.get(0)?,
            started_at: row.get(1)?,
            finished_at: row.get(2)?,
            url: row.get(3)?,
            class: word("attempts.class", &class, AttemptClass::parse)?,
            counted: row.get(5)?,
            http_status: row.get(6)?,
            latency_ms: row.get(7)?,
            excerpt: row.get(8)?,
            failed_reason: row.get(9)?,
            key_id: row.get(10)?,
            span: row.get(11)?,
        })
    })
}
