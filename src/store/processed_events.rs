//! Table `processed_events`: the guards of consumers.

use std::collections::BTreeSet;

use rusqlite::ToSql;
use rusqlite::types::{FromSql, FromSqlResult, ToSqlOutput, ValueRef};

use crate::base::id;
use crate::store::prelude::*;

const CLAIMED_AT: &str = "
    SELECT processed_at FROM processed_events
     WHERE tenant = ?1 AND consumer_group = ?2 AND event_id = ?3";

pub(super) const PAGE: &str = "
    SELECT tenant, consumer_group, event_id, processed_at FROM processed_events
     WHERE (tenant, consumer_group, event_id) > (?1, ?2, ?3)
     ORDER BY tenant, consumer_group, event_id LIMIT ?4";

// Each branch uses a partial index. The last branch repeats the condition of its index literally, as SQLite requires.
pub(super) const NEEDED: &str = "
    WITH unsettled (outbox_seq, webhook_seq) AS (
         SELECT outbox_seq, webhook_seq
           FROM deliveries
          WHERE state = 'pending'
            AND head = 1
          UNION ALL
         SELECT outbox_seq, webhook_seq
           FROM deliveries
          WHERE state = 'pending'
            AND head = 0
          UNION ALL
         SELECT outbox_seq, webhook_seq
           FROM deliveries
          WHERE state = 'dead_letter' OR state = 'parked' OR state = 'in_doubt' OR state = 'waiting'
             OR state = 'leased')
    SELECT coalesce(o.tenant, w.tenant), coalesce(o.source_system, 'in:' || w.provider),
           coalesce(o.idempotency_key, w.provider_event_id), coalesce(o.id, w.id)
      FROM unsettled AS u
      LEFT JOIN outbox AS o ON o.seq = u.outbox_seq
      LEFT JOIN webhook_events AS w ON w.seq = u.webhook_seq
     WHERE coalesce(o.received_at, w.received_at) <= ?1
     LIMIT ?2";

pub(super) const FORGET: &str = "
    DELETE FROM processed_events
     WHERE tenant = ?1 AND consumer_group = ?2 AND event_id = ?3 AND processed_at <= ?4";

/// The result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Whether the group claimed the event now, and not before.
    pub is_first: bool,
    /// When the group claimed the event.
    pub at: Timestamp,
}

/// Claims an event for a consumer group.
/// Fails with `Constraint` when a name is empty or too long.
pub fn claim(
    tx: &WriteTx<'_>,
    tenant: &str,
    consumer_group: &str,
    event_id: &str,
    now: Timestamp,
) -> Result<Claimed> {
    let claimed = insert!(tx, "processed_events" {
        tenant, consumer_group, event_id, processed_at: now
    } "ON CONFLICT DO NOTHING")?;
    if claimed == 1 {
        return Ok(Claimed { is_first: true, at: now });
    }
    let at = tx.value(CLAIMED_AT, (tenant, consumer_group, event_id))?;
    Ok(Claimed { is_first: false, at })
}

/// A text that plain SQL may have written; it need not be UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text(pub Vec<u8>);

impl ToSql for Text {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(&self.0)))
    }
}

impl FromSql for Text {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_bytes().map(|bytes| Self(bytes.to_vec()))
    }
}

/// The key of a guard: tenant, consumer group, event.
pub type Key = (Text, Text, Text);

/// Guards after a key in the order of keys, each with the time of its claim.
pub fn page(tx: &ReadTx<'_>, after: &Key, limit: u32) -> Result<Vec<(Key, Timestamp)>> {
    let (tenant, group, event) = after;
    tx.rows(PAGE, (tenant, group, event, limit), |row| {
        Ok(((row.get(0)?, row.get(1)?, row.get(2)?), row.get(3)?))
    })
}

/// The event ids of guards that are still needed, as (tenant, webhook-id) and (tenant, id). An event needs its guards
/// while it has an unfinished delivery or a dead letter. Covers events received at or before `by`; `None` if there
/// are more than `most`.
pub fn needed(tx: &ReadTx<'_>, by: Timestamp, most: u32) -> Result<Option<BTreeSet<(Text, Text)>>> {
    let limit = most.saturating_add(1);
    let found = tx.rows(NEEDED, (by, limit), |row| {
        let [tenant, source, key, id]: [String; 4] =
            [row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?];
        let webhook_id = id::webhook_id(&tenant, &source, &key);
        let tenant = || Text(tenant.clone().into_bytes());
        Ok([(tenant(), Text(webhook_id.into_bytes())), (tenant(), Text(id.into_bytes()))])
    })?;
    let is_all = u32::try_from(found.len()).is_ok_and(|found| found <= most);
    Ok(is_all.then(|| found.into_iter().flatten().collect()))
}

/// Deletes those of the guards that were claimed at or before `by`; returns how many.
pub fn forget(tx: &WriteTx<'_>, guards: &[Key], by: Timestamp) -> Result<usize> {
    let mut statement = tx.prepare(FORGET)?;
    let mut forgotten = 0_usize;
    for (tenant, group, event) in guards {
        forgotten = forgotten.saturating_add(statement.execute((tenant, group, event, by))?);
    }
    Ok(forgotten)
}
