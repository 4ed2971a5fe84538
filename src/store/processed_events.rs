//! Table `processed_events`: the guards of consumers.

use crate::clock::Timestamp;
use crate::store::error::Result;
use crate::store::tx::WriteTx;

const CLAIM: &str = "
    INSERT INTO processed_events (tenant, consumer_group, event_id, processed_at)
    VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT DO NOTHING";

const CLAIMED_AT: &str = "
    SELECT processed_at
      FROM processed_events
     WHERE tenant = ?1
       AND consumer_group = ?2
       AND event_id = ?3";

/// Whether a group has claimed an event now or before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Whether it was now.
    pub is_first: bool,
    /// When it was.
    pub at: Timestamp,
}

/// Claims an event for a consumer group.
///
/// # Errors
/// `Constraint` when a name is empty or too long.
pub fn claim(
    tx: &WriteTx<'_>,
    tenant: &str,
    consumer_group: &str,
    event_id: &str,
    now: Timestamp,
) -> Result<Claimed> {
    if tx.prepare(CLAIM)?.execute((tenant, consumer_group, event_id, now))? == 1 {
        return Ok(Claimed { is_first: true, at: now });
    }
    let at =
        tx.prepare(CLAIMED_AT)?.query_row((tenant, consumer_group, event_id), |row| row.get(0))?;
    Ok(Claimed { is_first: false, at })
}
