//! Table `processed_events`: the guards of consumers.

use crate::clock::Timestamp;
use crate::store::error::Result;
use crate::store::tx::WriteTx;

const CLAIM: &str = "
    INSERT INTO processed_events (tenant, consumer_group, event_id, processed_at)
    VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT DO NOTHING";

/// Claims an event for a consumer group; `true` the first time.
///
/// # Errors
/// `Constraint` when a name is empty or too long.
pub fn claim(
    tx: &WriteTx<'_>,
    tenant: &str,
    consumer_group: &str,
    event_id: &str,
    now: Timestamp,
) -> Result<bool> {
    Ok(tx.prepare(CLAIM)?.execute((tenant, consumer_group, event_id, now))? == 1)
}
