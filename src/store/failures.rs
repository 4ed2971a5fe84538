//! Table `failures`: what went wrong with a delivery, from its first failed attempt until it succeeds.

use crate::base::clock::Timestamp;
use crate::base::id::DeliverySeq;
use crate::model::outcome::AttemptClass;
use crate::store::error::Result;
use crate::store::sql::columns;
use crate::store::tx::{ReadTx, WriteTx};

const NOTE: &str = "
    INSERT INTO failures (delivery_seq, class, code, first_at, last_at, alone)
    VALUES (?1, ?2, ?3, ?4, ?4, ?5)
        ON CONFLICT (delivery_seq) WHERE resolved_at IS NULL
        DO UPDATE SET class = excluded.class, code = excluded.code, last_at = excluded.last_at,
                      count = count + 1, alone = alone + excluded.alone
    RETURNING seq, count";

const RESOLVE: &str = "
    UPDATE failures SET resolved_at = ?2
     WHERE delivery_seq = ?1 AND resolved_at IS NULL
    RETURNING seq";

columns! {
    fn failure() -> Failure = "failures" [seq, class, code, first_at, last_at, count, resolved_at, alone] {
        seq, class, code, first_at, last_at, count, resolved_at, alone
    }
    // An open failure is always the latest one.
    const OF = "WHERE delivery_seq = ?1 ORDER BY seq DESC LIMIT 1";
}

/// A failure as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its number; in the API `flr_17`.
    pub seq: i64,
    /// The class of its latest attempt.
    pub class: AttemptClass,
    /// The status or the cause of its latest attempt.
    pub code: String,
    /// When the first attempt failed.
    pub first_at: Timestamp,
    /// When the latest attempt failed.
    pub last_at: Timestamp,
    /// Failed attempts.
    pub count: u32,
    /// How many of them came while other deliveries of the subscription passed.
    pub alone: u32,
    /// When the delivery succeeded.
    pub resolved_at: Option<Timestamp>,
}

/// Records a failed attempt; returns the failure's number, and whether the failure is new.
pub(super) fn note(
    tx: &WriteTx<'_>,
    delivery: DeliverySeq,
    (class, code): (AttemptClass, &str),
    at: Timestamp,
    is_alone: bool,
) -> Result<(i64, bool)> {
    let row = (delivery, class.as_str(), code, at, is_alone);
    Ok(tx.prepare(NOTE)?.query_row(row, |row| Ok((row.get(0)?, row.get::<_, i64>(1)? == 1)))?)
}

/// Resolves the failure of a delivery that has succeeded; returns its number, if one was open.
pub(super) fn resolve(
    tx: &WriteTx<'_>,
    delivery: DeliverySeq,
    at: Timestamp,
) -> Result<Option<i64>> {
    tx.find(RESOLVE, (delivery, at))
}

/// The latest failure of a delivery.
pub fn of(tx: &ReadTx<'_>, delivery: DeliverySeq) -> Result<Option<Failure>> {
    tx.first(OF, [delivery], failure)
}
