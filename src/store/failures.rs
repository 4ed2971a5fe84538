//! Table `failures`: what went wrong with a delivery, from its first failed attempt until it succeeds.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::base::schema::values;
use crate::model::outcome::AttemptClass;
use crate::store::prelude::*;

const NOTE: &str = "
    INSERT INTO failures (delivery_seq, class, code, first_at, last_at, alone)
    VALUES (?1, ?2, ?3, ?4, ?4, ?5)
        ON CONFLICT (delivery_seq) WHERE resolved_at IS NULL
        DO UPDATE SET class = excluded.class, code = excluded.code, last_at = excluded.last_at,
                      count = count + 1, alone = alone + excluded.alone
    RETURNING seq, count";

columns! {
    fn failure() -> Failure = "failures" [seq, class, code, first_at, last_at, count, resolved_at, alone] {
        seq, class, code, first_at, last_at, count, resolved_at, alone
    }
    // An open failure is always the latest one.
    /// The latest failure of a delivery.
    pub fn of(delivery: DeliverySeq) -> Option = "WHERE delivery_seq = ?1 ORDER BY seq DESC LIMIT 1";
}

/// What went wrong with a delivery, from its first failed attempt until it succeeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Failure {
    #[serde(rename = "id", serialize_with = "write_id")]
    #[schemars(with = "FailureId")]
    pub seq: i64,
    /// The class of the latest failed attempt.
    pub class: AttemptClass,
    /// The HTTP status of that attempt, or its kind of error: `no_connection`, `refused`, `tls`, `timeout`, `broken`,
    /// `blocked`, `unbuildable`, `consumer`, `unconfirmed`.
    pub code: String,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    /// Failed attempts.
    pub count: u32,
    /// How many of them came while other deliveries of the subscription passed.
    #[serde(skip)]
    pub alone: u32,
    /// When the delivery succeeded; null if it has not.
    pub resolved_at: Option<Timestamp>,
}

values! {
    /// An id of a failure.
    FailureId = { "type": "string", "pattern": "^flr_[0-9]+$" }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a field by reference")]
fn write_id<S: Serializer>(seq: &i64, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("flr_{seq}"))
}

queries! {
    /// Resolves the failure of a delivery that has succeeded; returns its number, if one was open.
    pub(super) fn resolve(delivery: DeliverySeq, at: Timestamp) -> Option<i64> = find "
    UPDATE failures SET resolved_at = ?2
     WHERE delivery_seq = ?1 AND resolved_at IS NULL
    RETURNING seq";
}

/// A failure, as it is after one more failed attempt.
pub(super) struct NotedFailure {
    /// Its number.
    pub(super) seq: i64,
    /// Failed attempts, with this one.
    count: i64,
}

impl NotedFailure {
    /// Whether this attempt is its first.
    pub(super) fn is_new(&self) -> bool {
        self.count == 1
    }
}

/// Records a failed attempt of a delivery.
pub(super) fn note(
    tx: &WriteTx<'_>,
    delivery: DeliverySeq,
    class: AttemptClass,
    code: &str,
    at: Timestamp,
    is_alone: bool,
) -> Result<NotedFailure> {
    let row = (delivery, class.as_str(), code, at, is_alone);
    let noted = |row: &Row<'_>| Ok(NotedFailure { seq: row.get(0)?, count: row.get(1)? });
    Ok(tx.prepare(NOTE)?.query_row(row, noted)?)
}
