//! What the database has to know of a month that is put beside it.

use std::collections::BTreeSet;

use crate::archive::store::{Wanted, note_out, out, place};
use crate::archive::{Batch, Kind, Month};
use crate::store::error::Result;
use crate::store::seen_keys::{self, Seen};
use crate::store::tx::{ReadTx, WriteTx, tuple};

const EVENTS: &str = "
    SELECT seq, tenant, source_system, idempotency_key, id, status FROM outbox
     WHERE seq > ?1 ORDER BY seq LIMIT 500";

const WEBHOOK_EVENTS: &str = "
    SELECT seq, tenant, provider, provider_event_id, id, status FROM webhook_events
     WHERE seq > ?1 ORDER BY seq LIMIT 500";

/// Number, tenant, source, key, id and status of an event.
type Listed = (i64, String, String, String, String, String);

fn listed(tx: &ReadTx<'_>, kind: Kind, after: i64) -> Result<Vec<Listed>> {
    let sql = match kind {
        Kind::Event => EVENTS,
        Kind::WebhookEvent => WEBHOOK_EVENTS,
    };
    tx.rows(sql, [after], tuple)
}

/// Notes the next events of a month that is put beside the database: their keys, so that they are known when they are sent
/// again; or that the database has them as well, so that they are taken out of the month. Returns the number of the last.
pub fn note_month(
    tx: &WriteTx<'_>,
    from: &ReadTx<'_>,
    month: &Month,
    kind: Kind,
    after: i64,
) -> Result<Option<i64>> {
    let rows = listed(from, kind, after)?;
    let last = rows.last().map(|(seq, ..)| *seq);
    let mut twice = Batch { kind, month: month.clone(), seqs: Vec::new(), bytes: 0 };
    for (seq, tenant, source, key, id, status) in rows {
        let identity = (kind.as_str(), (tenant.as_str(), source.as_str(), key.as_str()));
        if place(tx, kind, &Wanted::Number(seq))?.is_some() {
            twice.seqs.push(seq);
        } else if seen_keys::look_up(tx, identity.0, identity.1)?.is_none() {
            let seen = Seen { id, status, month: month.to_string() };
            seen_keys::note(tx, identity, &seen)?;
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
