//! Table `audit_events`: who changed what. Each row is appended in the transaction of the change; no row is ever
//! updated or deleted.
//!
//! `meta` holds the head of the chain, so that it is noticed if the last rows are deleted.
//! `model::audit::chain` defines what is hashed and verifies the chain.

use std::path::Path;

use rusqlite::{OptionalExtension, params};

use crate::model::audit::chain::{Hash, Head, Report, Verifier};
use crate::model::audit::{AuditEvent, NewAuditEvent, Outcome};
use crate::store::page::{Found, Newest, SeqRange, Span, cutoff, newest_first, row_from};
use crate::store::prelude::*;
use crate::store::tx::first;
use crate::store::{meta, pool};

/// Rows that are read at once while a chain is verified.
const ROWS_AT_ONCE: u32 = 1_000;

columns! {
    fn audit_event() -> AuditEvent = "audit_events" [
        seq, at, tenant, actor_type, actor_id, actor_display, address, user_agent, action, resource_type, resource_id,
        result, request_id, correlation_id, method, path, status, changes, previous_hash, hash
    ] {
        seq, at, tenant, actor_type, actor_id, actor_display, address, user_agent, action, resource_type, resource_id,
        result, request_id, correlation_id, method, path, status, changes, previous_hash: Hash(previous_hash),
        hash: Hash(hash)
    }
    const BY_SEQ = "WHERE seq = ?1";
    const AFTER = "WHERE seq > ?1 ORDER BY seq LIMIT ?2";
}

pub(super) const DONE_FROM: &str = row_from!("audit_events", "at");

/// The conditions of a list's filter.
macro_rules! filter {
    () => {
        "tenant = ?4
     AND (?5 IS NULL OR actor_id = ?5 OR actor_display = ?5 OR actor_type = ?5)
     AND (?6 IS NULL OR action = ?6 OR action GLOB ?6 || '.*')
     AND (?7 IS NULL OR resource_id = ?7 OR resource_type = ?7)
     AND (?8 IS NULL OR result = ?8) AND (?9 IS NULL OR correlation_id = ?9)"
    };
}

pub(super) const PAGE: &str = newest_first!("audit_events" where filter!());

pub(super) const CUTOFF: &str = cutoff!("audit_events" where "tenant = ?4");

pub(super) const PAGE_OF_CORRELATION: &str = newest_first!(
    "audit_events INDEXED BY audit_events_correlation" where "correlation_id = ?9 AND ", filter!()
);

pub(super) const CUTOFF_OF_CORRELATION: &str = cutoff!(
    "audit_events INDEXED BY audit_events_correlation" where "correlation_id = ?4"
);

// What concerns the newest events of an aggregate, and their deliveries.
pub(super) const PAGE_OF_AGGREGATE: &str = concat!(
    "WITH events (seq, id) AS MATERIALIZED (
          SELECT seq, id FROM outbox INDEXED BY outbox_aggregate
           WHERE tenant = ?4 AND aggregate_id = ?10 AND (?11 IS NULL OR aggregate_type = ?11)
           ORDER BY seq DESC LIMIT 1000),
      resources (id) AS (
          SELECT id FROM events
           UNION ALL
          SELECT 'dlv_' || d.seq FROM events AS e CROSS JOIN deliveries AS d ON d.outbox_seq = e.seq)
     SELECT seq FROM resources AS r
      CROSS JOIN audit_events AS a INDEXED BY audit_events_resource ON a.resource_id = r.id
      WHERE seq < ?1 AND seq >= ?2 AND ",
    filter!(),
    " ORDER BY seq DESC LIMIT ?3"
);

const ANY_TABLE: &str =
    "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'audit_events'";

/// Which rows a list shows. `None` means any.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The actor's id, display or type.
    pub actor: Option<String>,
    /// What was done: `subscription.pause`, or `subscription` for everything done to subscriptions.
    pub action: Option<String>,
    /// The resource's id or type.
    pub resource: Option<String>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// The correlation id of the call.
    pub correlation_id: Option<String>,
    /// The type of the aggregate whose events it concerns; only with `aggregate_id`.
    pub aggregate_type: Option<String>,
    /// The id of the aggregate whose events it concerns.
    pub aggregate_id: Option<String>,
    /// When it was done.
    pub done: Span,
}

/// Appends a row and moves the head of the chain.
/// If it fails, the audited change must be rolled back too.
pub fn append(tx: &WriteTx<'_>, event: &NewAuditEvent) -> Result<()> {
    let before = meta::audit_head(tx)?.map_or_else(|| meta::audit_start(tx), Ok)?;
    let row = event.chained(before);
    insert!(tx, "audit_events" of row {
        seq, at, tenant, actor_type, actor_id, actor_display, address, user_agent, action, resource_type, resource_id,
        result, request_id, correlation_id, method, path, status, changes, previous_hash: row.previous_hash.0,
        hash: row.hash.0
    })?;
    meta::set_audit_head(tx, Head { seq: row.seq, hash: row.hash })
}

/// A page of rows, newest first.
pub fn page(tx: &ReadTx<'_>, newest: Newest<'_>, filter: &Filter) -> Result<Found<AuditEvent>> {
    let Newest { tenant, before, limit } = newest;
    let Filter { actor, action, resource, correlation_id, .. } = filter;
    let mut range = SeqRange::new(tx, DONE_FROM, before, filter.done)?;
    let outcome = filter.outcome.map(Outcome::as_str);
    let mut more = params![tenant, actor, action, resource, outcome, correlation_id].to_vec();
    let page = if filter.aggregate_id.is_some() {
        more.extend(params![filter.aggregate_id, filter.aggregate_type]);
        PAGE_OF_AGGREGATE
    } else if correlation_id.is_some() {
        range.limit_rows(tx, CUTOFF_OF_CORRELATION, params![correlation_id])?;
        PAGE_OF_CORRELATION
    } else {
        if actor.is_some() || action.is_some() || resource.is_some() || outcome.is_some() {
            range.limit_rows(tx, CUTOFF, params![tenant])?;
        }
        PAGE
    };
    let seqs = range.seqs(tx, page, limit, &more)?;
    let mut by_seq = tx.prepare(BY_SEQ)?;
    let each = seqs.into_iter().map(|seq| first(&mut by_seq, [seq], audit_event));
    let rows = each.filter_map(Result::transpose).collect::<Result<_>>()?;
    Ok(range.found(rows, limit, |event: &AuditEvent| event.seq))
}

/// The row of a number, if it is of the tenant.
pub fn by_seq(tx: &ReadTx<'_>, tenant: &str, seq: i64) -> Result<Option<AuditEvent>> {
    let found = tx.first(BY_SEQ, [seq], audit_event)?;
    Ok(found.filter(|event| event.tenant == tenant))
}

/// Verifies the newest `limit` rows of the chain, each linked to the one before it.
pub fn verify_newest(tx: &ReadTx<'_>, limit: u32) -> Result<Report> {
    let (start, stored) = (meta::audit_start(tx)?, meta::audit_head(tx)?);
    let before = stored.map_or(start.seq, |head| head.seq).saturating_sub(i64::from(limit));
    // Two more: the row before the first, and one that was added after the stored head.
    let after = before.max(start.seq).saturating_sub(1);
    let mut found = tx.rows(AFTER, (after, limit.saturating_add(2)), audit_event)?;
    let start = if before > start.seq && !found.is_empty() {
        let row = found.remove(0);
        Head { seq: row.seq, hash: row.hash }
    } else {
        start
    };
    let mut verifier = Verifier::new(start);
    for row in &found {
        verifier.push(row);
    }
    Ok(verifier.finish(stored))
}

/// The head of the chain: number and hash of the latest row.
pub fn head(tx: &ReadTx<'_>) -> Result<Head> {
    meta::audit_head(tx)?.map_or_else(|| meta::audit_start(tx), Ok)
}

/// Reads the audit events of a file that may be in use, a copy or a backup.
#[derive(Debug)]
pub struct Trail(rusqlite::Connection);

impl Trail {
    /// Opens a file to read its audit events. Creates, changes and upgrades nothing. Returns `None` if the file has no
    /// such table.
    /// Fails if the file is not a database or cannot be opened.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let conn = pool::open_reader_or_immutable(path)?;
        let exists = conn.query_row(ANY_TABLE, [], |_| Ok(())).optional()?.is_some();
        Ok(exists.then_some(Self(conn)))
    }

    /// Where [`Trail::walk`] starts: after row `after`, or before the first row.
    pub fn start(&self, after: Option<i64>) -> Result<Head> {
        let tx = ReadTx::new(&self.0);
        let start = meta::audit_start(&tx)?;
        let Some(after) = after.filter(|after| *after > start.seq) else { return Ok(start) };
        let found = tx.rows(AFTER, (after.saturating_sub(1), 1), audit_event)?;
        let found = found.first().filter(|row| row.seq == after);
        Ok(found.map_or(start, |row| Head { seq: row.seq, hash: row.hash }))
    }

    /// Calls `row` for every row after `start`, in one snapshot; returns the stored head of the chain.
    pub fn walk<E: From<Error>>(
        &mut self,
        start: Head,
        mut row: impl FnMut(AuditEvent) -> std::result::Result<(), E>,
    ) -> std::result::Result<Option<Head>, E> {
        let transaction = self.0.transaction().map_err(Error::from)?;
        let tx = ReadTx::new(&transaction);
        let mut last = start.seq;
        loop {
            let page = tx.rows(AFTER, (last, ROWS_AT_ONCE), audit_event)?;
            let Some(end) = page.last() else { break };
            last = end.seq;
            for event in page {
                row(event)?;
            }
        }
        Ok(meta::audit_head(&tx)?)
    }

    /// Verifies the whole chain, which must contain every head in `noted`.
    /// Fails if the file cannot be read. A broken chain is not an error; the report names it.
    pub fn verify(&mut self, noted: &[Head]) -> Result<Report> {
        let start = self.start(None)?;
        let mut verifier = Verifier::new(start);
        for noted in noted {
            verifier.expect(*noted);
        }
        // The walk includes rows before the start and with negative numbers, so that the verifier reports them.
        let before_all = Head { seq: i64::MIN, ..start };
        let head = self.walk(before_all, |event| {
            verifier.push(&event);
            Ok::<(), Error>(())
        })?;
        Ok(verifier.finish(head))
    }
}
