//! What is checked of the file of a month, and what the database has to know of one that is put beside it.

use std::collections::BTreeSet;

use crate::archive::tables::moves::{Wanted, note_out, out, place};
use crate::archive::{ArchivedKind, Batch, Month};
use crate::store::error::Result;
use crate::store::seen_keys::{self, Seen};
use crate::store::tx::{ReadTx, WriteTx, tuple};

const EVENTS: &str = "
    SELECT seq, tenant, source_system, idempotency_key, id, status, 1 FROM outbox
     WHERE seq > ?1 ORDER BY seq LIMIT 500";

const WEBHOOK_EVENTS: &str = "
    SELECT seq, tenant, provider, provider_event_id, id, status, origin = 'webhook' OR duplicate_count > 0
      FROM webhook_events
     WHERE seq > ?1 ORDER BY seq LIMIT 500";

const TABLES: [&str; 9] = [
    "outbox",
    "webhook_events",
    "deliveries",
    "attempts",
    "failures",
    "renderings",
    "past_renderings",
    "external_calls",
    "payloads",
];

// A parent may be in the database or in another month, and so may what a subscription refers to.
const TORN: &str = "
    SELECT \"table\", parent, count(*) FROM pragma_foreign_key_check
     WHERE parent IN ('outbox', 'webhook_events', 'deliveries', 'payloads', 'subscriptions')
       AND NOT (\"table\" = 'outbox' AND parent = 'outbox')
     GROUP BY 1, 2 LIMIT 100";

const BODIES_OF_NOTHING: &str = "
    SELECT count(*) FROM payloads
     WHERE seq NOT IN (SELECT payload_seq FROM outbox WHERE payload_seq IS NOT NULL
                       UNION SELECT payload_seq FROM webhook_events WHERE payload_seq IS NOT NULL)";

/// Number, tenant, source, key, id and status of an event, and whether somebody sent it to us.
type Listed = (i64, String, String, String, String, String, bool);

fn listed(tx: &ReadTx<'_>, kind: ArchivedKind, after: i64) -> Result<Vec<Listed>> {
    let sql = match kind {
        ArchivedKind::Event => EVENTS,
        ArchivedKind::WebhookEvent => WEBHOOK_EVENTS,
    };
    tx.rows(sql, [after], tuple)
}

/// Notes the next events of a month that is put beside the database: their keys, so that they are known when they are sent
/// again; or that the database has them as well, so that they are taken out of the month. Returns the number of the last.
pub fn note_month(
    tx: &WriteTx<'_>,
    from: &ReadTx<'_>,
    month: &Month,
    kind: ArchivedKind,
    after: i64,
) -> Result<Option<i64>> {
    let rows = listed(from, kind, after)?;
    let last = rows.last().map(|(seq, ..)| *seq);
    let mut twice = Batch { kind, month: month.clone(), seqs: Vec::new(), bytes: 0 };
    for (seq, tenant, source, key, id, status, was_sent) in rows {
        let identity = (tenant.as_str(), source.as_str(), key.as_str());
        if place(tx, kind, &Wanted::Number(seq))?.is_some() {
            twice.seqs.push(seq);
        } else if seen_keys::look_up(tx, kind.as_str(), identity)?.is_none() {
            let seen = Seen { id, status, month: month.to_string(), was_sent };
            seen_keys::note(tx, kind.as_str(), identity, &seen)?;
        }
    }
    if !twice.seqs.is_empty() {
        let noted = out(tx)?.into_iter().filter(|noted| noted.kind == kind);
        let noted: BTreeSet<i64> = noted.flat_map(|noted| noted.seqs).collect();
        twice.seqs.retain(|seq| !noted.contains(seq));
        let _is_noted = note_out(tx, &twice)?;
    }
    Ok(last)
}

/// Counts the rows of a month by table.
pub fn count(month: &ReadTx<'_>) -> Result<Vec<String>> {
    let count = |table: &&str| {
        let rows = month.count(&format!("SELECT count(*) FROM {table}"), [])?;
        Ok(format!("{table} {rows}"))
    };
    TABLES.iter().map(count).collect()
}

/// What is wrong with the file of a month; `database` is the one it belongs to.
pub fn faults(month: &ReadTx<'_>, database: &ReadTx<'_>) -> Result<Vec<String>> {
    let mut faults: Vec<String> = month.list("PRAGMA quick_check(3)", [])?;
    faults.retain(|fault| fault != "ok");
    let torn: Vec<(String, String, i64)> = month.rows(TORN, [], tuple)?;
    faults.extend(torn.into_iter().map(|(table, parent, count)| {
        format!("rows of {table} that refer to missing rows of {parent}: {count}")
    }));
    let bodies = month.count(BODIES_OF_NOTHING, [])?;
    if bodies > 0 {
        faults.push(format!("rows of payloads that belong to no event: {bodies}"));
    }
    for kind in ArchivedKind::ALL {
        let twice = twice(month, database, kind)?;
        if twice > 0 {
            faults.push(format!("events ({kind}) that the database has as well: {twice}"));
        }
    }
    Ok(faults)
}

/// Counts events that are in the database as well, without a note of it.
fn twice(month: &ReadTx<'_>, database: &ReadTx<'_>, kind: ArchivedKind) -> Result<u64> {
    let mut count = 0;
    let mut after = 0;
    loop {
        let rows = listed(month, kind, after)?;
        let Some((last, ..)) = rows.last() else { return Ok(count) };
        after = *last;
        for (seq, ..) in rows {
            let wanted = Wanted::Number(seq);
            let is_noted = |batch: &Batch| batch.kind == kind && batch.seqs.contains(&seq);
            // The month is asked again: an event may have come back since.
            if place(database, kind, &wanted)?.is_some()
                && !out(database)?.iter().any(is_noted)
                && place(month, kind, &wanted)?.is_some()
            {
                count += 1;
            }
        }
    }
}
