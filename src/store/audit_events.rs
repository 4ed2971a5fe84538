//! Table `audit_events`: who changed what. Appended to by the writer alone, in the transaction of the
//! change; never updated, never deleted.
//!
//! The head of the chain is kept in `meta` and moves in the same transaction, so that deleted last rows are noticed.
//! What is hashed, and how a broken chain is found, is in `model::audit::chain`.

use std::path::Path;

use rusqlite::{OptionalExtension, Row, params};

use crate::model::audit::chain::{Hash, Head, Report, Verifier};
use crate::model::audit::{AuditEvent, NewAuditEvent, Outcome};
use crate::store::error::{Error, Result};
use crate::store::page::{Found, Newest, Span, Stretch, newest_first, place, row_from};
use crate::store::tx::{ReadTx, WriteTx, first, rows};
use crate::store::{meta, pool};

/// Rows that are read at once while a chain is looked at.
const ROWS_AT_ONCE: u32 = 1_000;

const INSERT: &str = "
    INSERT INTO audit_events
           (seq, at, tenant, actor_type, actor_id, actor_display, address, user_agent, action,
            resource_type, resource_id, result, request_id, correlation_id, method, path, status,
            changes, previous_hash, hash)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)";

/// What [`audit_event`] reads, in its order.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT seq, at, tenant, actor_type, actor_id, actor_display, address, user_agent, action,
                resource_type, resource_id, result, request_id, correlation_id, method, path, status,
                changes, previous_hash, hash
               FROM audit_events ",
            $rest
        )
    };
}

const BY_SEQ: &str = select!("WHERE seq = ?1");

pub(super) const DONE_FROM: &str = row_from!("audit_events", "at");

pub(super) const PAGE: &str = newest_first!(
    "audit_events" where
    "tenant = ?4
     AND (?5 IS NULL OR actor_id = ?5 OR actor_display = ?5 OR actor_type = ?5)
     AND (?6 IS NULL OR action = ?6 OR action GLOB ?6 || '.*')
     AND (?7 IS NULL OR resource_id = ?7 OR resource_type = ?7)
     AND (?8 IS NULL OR result = ?8)"
);

pub(super) const PLACE: &str = place!("audit_events" where "tenant = ?4");

const AFTER: &str = select!("WHERE seq > ?1 ORDER BY seq LIMIT ?2");

const ANY_TABLE: &str = "
    SELECT 1
      FROM sqlite_master
     WHERE type = 'table'
       AND name = 'audit_events'";

/// Which rows a list shows. Absent means any.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The actor's id, display or type.
    pub actor: Option<String>,
    /// What was done: `subscription.pause`, or `subscription` for everything done to subscriptions.
    pub action: Option<String>,
    /// The thing's id or type.
    pub resource: Option<String>,
    /// What it came to.
    pub outcome: Option<Outcome>,
    /// When it was done.
    pub done: Span,
}

/// Appends a row and moves the head.
/// Fails when the file cannot be written; then the change it is about must not be kept either.
pub fn append(tx: &WriteTx<'_>, event: &NewAuditEvent) -> Result<()> {
    let before = meta::audit_head(tx)?.map_or_else(|| meta::audit_start(tx), Ok)?;
    let row = event.chained(before);
    tx.prepare(INSERT)?.execute(params![
        row.seq,
        row.at,
        row.tenant,
        row.actor_type,
        row.actor_id,
        row.actor_display,
        row.address,
        row.user_agent,
        row.action,
        row.resource_type,
        row.resource_id,
        row.result,
        row.request_id,
        row.correlation_id,
        row.method,
        row.path,
        row.status,
        row.changes,
        row.previous_hash.0,
        row.hash.0,
    ])?;
    meta::set_audit_head(tx, Head { seq: row.seq, hash: row.hash })
}

/// Rows, newest first.
pub fn page(tx: &ReadTx<'_>, newest: Newest<'_>, filter: &Filter) -> Result<Found<AuditEvent>> {
    let Newest { tenant, before, limit } = newest;
    let Filter { actor, action, resource, outcome, done } = filter;
    let mut stretch = Stretch::new(tx, DONE_FROM, before, *done)?;
    if actor.is_some() || action.is_some() || resource.is_some() || outcome.is_some() {
        stretch.cut(tx, PLACE, params![tenant])?;
    }
    let more = params![tenant, actor, action, resource, outcome.map(Outcome::as_str)];
    let seqs = stretch.seqs(tx, PAGE, limit, more)?;
    let mut by_seq = tx.prepare(BY_SEQ)?;
    let each = seqs.into_iter().map(|seq| first(&mut by_seq, [seq], audit_event));
    let rows = each.filter_map(Result::transpose).collect::<Result<_>>()?;
    Ok(stretch.found(rows, limit, |event: &AuditEvent| event.seq))
}

/// The latest row, to be noted elsewhere.
pub fn head(tx: &ReadTx<'_>) -> Result<Head> {
    meta::audit_head(tx)?.map_or_else(|| meta::audit_start(tx), Ok)
}

/// A row as it stands.
fn audit_event(row: &Row<'_>) -> Result<AuditEvent> {
    Ok(AuditEvent {
        seq: row.get(0)?,
        at: row.get(1)?,
        tenant: row.get(2)?,
        actor_type: row.get(3)?,
        actor_id: row.get(4)?,
        actor_display: row.get(5)?,
        address: row.get(6)?,
        user_agent: row.get(7)?,
        action: row.get(8)?,
        resource_type: row.get(9)?,
        resource_id: row.get(10)?,
        result: row.get(11)?,
        request_id: row.get(12)?,
        correlation_id: row.get(13)?,
        method: row.get(14)?,
        path: row.get(15)?,
        status: row.get(16)?,
        changes: row.get(17)?,
        previous_hash: Hash(row.get(18)?),
        hash: Hash(row.get(19)?),
    })
}

/// A file that is only looked at: a running service's, a copy, a backup.
#[derive(Debug)]
pub struct Trail(rusqlite::Connection);

impl Trail {
    /// Opens a database for looking at its audit events. Nothing is made, changed or upgraded. `None`
    /// when the file has no such table.
    /// Fails when it is no database, or cannot be opened.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let conn = pool::open_to_look(path)?;
        let there = conn.query_row(ANY_TABLE, [], |_| Ok(())).optional()?.is_some();
        Ok(there.then_some(Self(conn)))
    }

    /// The place behind which rows are handed on: row `after`, or what stands before the first row.
    pub fn start(&self, after: Option<i64>) -> Result<Head> {
        let tx = ReadTx::new(&self.0);
        let start = meta::audit_start(&tx)?;
        let Some(after) = after.filter(|after| *after > start.seq) else { return Ok(start) };
        let found = rows(&mut *tx.prepare(AFTER)?, (after.saturating_sub(1), 1), audit_event)?;
        let found = found.first().filter(|row| row.seq == after);
        Ok(found.map_or(start, |row| Head { seq: row.seq, hash: row.hash }))
    }

    /// Hands on every row behind `start`, in one snapshot; returns the head that the file remembers.
    pub fn walk<E: From<Error>>(
        &mut self,
        start: Head,
        mut row: impl FnMut(AuditEvent) -> std::result::Result<(), E>,
    ) -> std::result::Result<Option<Head>, E> {
        let transaction = self.0.transaction().map_err(Error::from)?;
        let tx = ReadTx::new(&transaction);
        let mut last = start.seq;
        loop {
            let page = rows(&mut *tx.prepare(AFTER)?, (last, ROWS_AT_ONCE), audit_event)?;
            let Some(end) = page.last() else { break };
            last = end.seq;
            for event in page {
                row(event)?;
            }
        }
        Ok(meta::audit_head(&tx)?)
    }

    /// Looks at the whole chain; every place of `noted` has to be in it.
    /// Fails when the file cannot be read. A chain that is broken is no error but in the report.
    pub fn verify(&mut self, noted: &[Head]) -> Result<Report> {
        let start = self.start(None)?;
        let mut verifier = Verifier::new(start);
        for noted in noted {
            verifier.expect(*noted);
        }
        // Rows before the start are none of the chain's; a negative number is handed on as what it is.
        let before_all = Head { seq: i64::MIN, ..start };
        let head = self.walk(before_all, |event| {
            verifier.push(&event);
            Ok::<(), Error>(())
        })?;
        Ok(verifier.finish(head))
    }
}
