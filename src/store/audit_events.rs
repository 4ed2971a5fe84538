//! Table `audit_events`: who changed what. Each row is appended in the transaction of the change; no row is ever
//! updated. Rows leave the database only for the file of their month (`archive::audit`).
//!
//! `meta` holds the head of the chain, so that it is noticed if the last rows are deleted, and the row before the first.
//! `model::audit::chain` defines what is hashed and verifies the chain.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{OptionalExtension, params};
use serde::Serialize;

use crate::model::audit::chain::{Hash, Head, Report, Verifier};
use crate::model::audit::{AuditEvent, NewAuditEvent, Outcome};
use crate::model::effect::EffectKind;
use crate::store::claimed_effects;
use crate::store::page::{Newest, RowPage, SeqRange, Span, cutoff, newest_first, row_from};
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

// The newest events of an aggregate, and their deliveries.
pub(super) const RESOURCES_OF_AGGREGATE: &str = "
    WITH events (seq, id) AS MATERIALIZED (
         SELECT seq, id FROM outbox INDEXED BY outbox_aggregate
          WHERE tenant = ?1 AND aggregate_id = ?2 AND (?3 IS NULL OR aggregate_type = ?3)
          ORDER BY seq DESC LIMIT 1000),
     resources (id) AS (
         SELECT id FROM events
          UNION ALL
         SELECT 'dlv_' || d.seq FROM events AS e CROSS JOIN deliveries AS d ON d.outbox_seq = e.seq)
    SELECT id FROM resources";

// The names that ?2 is known by: ids and names, and the type of each as the audit events have it.
pub(super) const NAMES: &str = "
    WITH things (type, tenant, id, name) AS (
         SELECT 'subscription', tenant, id, name FROM subscriptions
          UNION ALL
         SELECT 'provider', tenant, id, name FROM providers
          UNION ALL
         SELECT 'source', tenant, id, name FROM sources
          UNION ALL
         SELECT 'alert_channel', tenant, id, name FROM alert_channels
          UNION ALL
         SELECT 'legal_hold', tenant, id, name FROM legal_holds
          UNION ALL
         SELECT 'token', tenant, id, name FROM tokens
          UNION ALL
         SELECT 'user', tenant, id, name FROM users),
     named (type, id, name) AS MATERIALIZED (
         SELECT type, id, name FROM things WHERE tenant = ?1 AND (id = ?2 OR name = ?2) LIMIT 1000)
    SELECT id, type FROM named
     UNION
    SELECT name, type FROM named";

const IS_NAMED: &str =
    "SELECT 1 FROM audit_events INDEXED BY audit_events_resource WHERE resource_id = ?1 LIMIT 1";

// Two names of a resource may find the same row.
pub(super) const PAGE_OF_RESOURCES: &str = concat!(
    "SELECT DISTINCT seq FROM json_each(?10) AS r
      CROSS JOIN audit_events AS a INDEXED BY audit_events_resource ON a.resource_id = json_extract(r.value, '$.name')
      WHERE coalesce(a.resource_type = json_extract(r.value, '$.type'), 1) AND seq < ?1 AND seq >= ?2 AND ",
    filter!(),
    " ORDER BY seq DESC LIMIT ?3"
);

// The trigger lets these rows go, because they are not after the row in `meta.audit_start`.
const LEAVE: &str = "DELETE FROM audit_events WHERE seq > ?1 AND seq <= ?2";

/// The action of deleting the file of a month. The event names the last row of the file.
pub const DELETE: &str = "audit.delete";
/// The head of the last row of a deleted file, in the audit event about it, and in the claim while it is deleted.
pub const LAST: &str = "last";

const ANY_TABLE: &str =
    "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'audit_events'";

/// Which rows a list shows. `None` means any.
#[derive(Clone, Debug, Default)]
pub struct AuditEventFilter {
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
    /// The names of the resources that it concerns, as a JSON array of [`ResourceName`].
    pub resources: Option<String>,
    /// When it was done.
    pub done: Span,
}

/// A name of a resource in audit events: its id, or the name that a refused call typed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResourceName {
    /// The name.
    pub name: String,
    /// The type of the resource; `None`: any.
    #[serde(rename = "type")]
    pub kind: Option<String>,
}

/// All names of the resource with this id or name, as a tenant knows it; `None` if neither a resource nor an audit event of
/// this file is known by it.
pub fn names_of(tx: &ReadTx<'_>, of: &str, name: &str) -> Result<Option<Vec<ResourceName>>> {
    let found: Vec<(String, String)> = tx.rows(NAMES, (of, name), tuple)?;
    if found.is_empty() && !tx.exists(IS_NAMED, [name])? {
        return Ok(None);
    }
    let others = found.into_iter().map(|(name, kind)| ResourceName { name, kind: Some(kind) });
    let asked = ResourceName { name: name.to_owned(), kind: None };
    Ok(Some(std::iter::once(asked).chain(others).collect()))
}

/// Appends a row and moves the head of the chain.
/// If it fails, the audited change must be rolled back too.
pub fn append(tx: &WriteTx<'_>, event: &NewAuditEvent) -> Result<()> {
    let row = event.chained(head(tx)?);
    insert!(tx, "audit_events" of row {
        seq, at, tenant, actor_type, actor_id, actor_display, address, user_agent, action, resource_type, resource_id,
        result, request_id, correlation_id, method, path, status, changes, previous_hash: row.previous_hash.0,
        hash: row.hash.0
    })?;
    meta::set_audit_head(tx, row.head())
}

/// The newest 1,000 events of an aggregate of a tenant in a file, and their deliveries, for [`AuditEventFilter::resources`].
pub fn resources_of(
    tx: &ReadTx<'_>,
    of: &str,
    kind: Option<&str>,
    id: &str,
) -> Result<Vec<String>> {
    tx.list(RESOURCES_OF_AGGREGATE, (of, id, kind))
}

/// A page of rows of this file, newest first.
pub fn page(
    tx: &ReadTx<'_>,
    newest: Newest<'_>,
    filter: &AuditEventFilter,
) -> Result<RowPage<AuditEvent>> {
    let Newest { tenant, before, limit } = newest;
    let AuditEventFilter { actor, action, resource, correlation_id, .. } = filter;
    let mut range = SeqRange::new(tx, DONE_FROM, before, filter.done)?;
    let outcome = filter.outcome.map(Outcome::as_str);
    let mut more = params![tenant, actor, action, resource, outcome, correlation_id].to_vec();
    let page = if filter.resources.is_some() {
        more.extend(params![filter.resources]);
        PAGE_OF_RESOURCES
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

/// Verifies the newest `limit` rows of the chain in this file, each linked to the one before it.
pub fn verify_newest(tx: &ReadTx<'_>, limit: u32) -> Result<Report> {
    let start = start(tx)?;
    let stored = meta::audit_head(tx)?;
    let before = stored.map_or(start.seq, |head| head.seq).saturating_sub(i64::from(limit));
    // Two more: the row before the first, and one that was added after the stored head.
    let after = before.max(start.seq).saturating_sub(1);
    let mut found = tx.rows(AFTER, (after, limit.saturating_add(2)), audit_event)?;
    let start = if before > start.seq && !found.is_empty() {
        let row = found.remove(0);
        row.head()
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
    meta::audit_head(tx)?.map_or_else(|| start(tx), Ok)
}

/// The head before the first row of the database.
pub fn start(tx: &ReadTx<'_>) -> Result<Head> {
    Ok(meta::audit_start(tx)?.unwrap_or(Head::START))
}

/// The first `limit` rows of the database, each with its place in the chain and its time.
pub fn oldest(tx: &ReadTx<'_>, limit: u32) -> Result<Vec<(Head, Timestamp)>> {
    let rows = tx.rows(AFTER, (start(tx)?.seq, limit), audit_event)?;
    let place = |row: &AuditEvent| (row.head(), Timestamp::from_ms(row.at));
    Ok(rows.iter().map(place).collect())
}

/// Deletes the rows after `from` up to `to`, which the file of their month has, and lets the chain begin after them.
/// Fails with `Changed` if the chain does not begin after `from`.
pub fn leave(tx: &WriteTx<'_>, from: Head, to: Head) -> Result<()> {
    if start(tx)? != from {
        return Err(Error::Changed("the start of the audit events"));
    }
    meta::set_audit_start(tx, to)?;
    tx.execute(LEAVE, (from.seq, to.seq)).map(drop)
}

/// Notes in the file of a month that its rows follow `start` and include `last`.
pub fn note_ends(tx: &WriteTx<'_>, start: Head, last: Head) -> Result<()> {
    if meta::audit_start(tx)?.is_none() {
        meta::set_audit_start(tx, start)?;
    }
    if meta::audit_head(tx)?.is_none_or(|head| head.seq < last.seq) {
        meta::set_audit_head(tx, last)?;
    }
    Ok(())
}

/// The audit events of a file, which may be in use, a copy or a backup; or of the files of months and the database after
/// them. Each is read as it was when it was opened.
#[derive(Debug)]
pub struct Trail {
    /// In the order of the chain.
    files: Vec<TrailFile>,
    /// Whether the chain should be complete.
    is_whole: bool,
}

#[derive(Debug)]
struct TrailFile {
    path: PathBuf,
    conn: rusqlite::Connection,
    start: Head,
}

impl TrailFile {
    /// Creates, changes and upgrades nothing. `None` if the file has no such table, or is the file of a month that has no
    /// rows yet.
    fn open(path: &Path, is_month: bool) -> Result<Option<Self>> {
        let conn = pool::open_reader_or_immutable(path)?;
        if conn.query_row(ANY_TABLE, [], |_| Ok(())).optional()?.is_none() {
            return Ok(None);
        }
        // All is read in one snapshot, which ends with the connection.
        conn.execute_batch("BEGIN")?;
        let start = meta::audit_start(&ReadTx::new(&conn))?;
        let start = start.or(if is_month { None } else { Some(Head::START) });
        Ok(start.map(|start| Self { path: path.to_owned(), conn, start }))
    }
}

fn in_file(path: &Path, error: Error) -> Error {
    Error::File { path: path.to_owned(), source: Arc::new(std::io::Error::other(error)) }
}

impl Trail {
    /// Opens a file. Returns `None` if the file has no audit events.
    /// Fails if the file is not a database or cannot be opened.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let file = TrailFile::open(path, false)?;
        Ok(file.map(|file| Self { files: vec![file], is_whole: false }))
    }

    /// Adds the files of months, the latest first. They are looked for after the database was opened, so that no row can be
    /// in neither.
    pub fn add_months(&mut self, paths: &[PathBuf]) -> Result<()> {
        self.is_whole = true;
        for path in paths {
            let file = TrailFile::open(path, true).map_err(|error| in_file(path, error))?;
            self.files.splice(0..0, file);
        }
        Ok(())
    }

    /// The head before the first row.
    pub fn start(&self) -> Head {
        self.files.first().map_or(Head::START, |file| file.start)
    }

    /// Calls `row` for every row and its file; returns the stored head of the chain.
    pub fn walk<E: From<Error>>(
        &self,
        mut row: impl FnMut(&Path, AuditEvent) -> std::result::Result<(), E>,
    ) -> std::result::Result<Option<Head>, E> {
        let mut head = None;
        for (n, file) in self.files.iter().enumerate() {
            // A move that was cut short, or a database from an older backup: rows after the start of a later file count
            // there.
            let later = self.files.iter().skip(n.saturating_add(1)).map(|file| file.start.seq);
            let end = later.min().unwrap_or(i64::MAX);
            let tx = ReadTx::new(&file.conn);
            // Rows before the start and with negative numbers are included, so that the verifier reports them.
            let mut last = i64::MIN;
            loop {
                let page = tx.rows(AFTER, (last, ROWS_AT_ONCE), audit_event);
                let mut page = page.map_err(|error| in_file(&file.path, error))?;
                page.retain(|event| event.seq <= end);
                let Some(end) = page.last() else { break };
                last = end.seq;
                for event in page {
                    row(&file.path, event)?;
                }
            }
            head = meta::audit_head(&tx)?;
        }
        Ok(head)
    }

    /// Whether the deletion of the file that ends with this head is claimed and not finished.
    fn is_being_deleted(&self, last: &str) -> bool {
        let Some(database) = self.files.last() else { return false };
        let tx = ReadTx::new(&database.conn);
        // A database of an earlier version has no claims.
        let claimed = claimed_effects::of_kind(&tx, EffectKind::ArchiveDelete).unwrap_or_default();
        claimed.iter().any(|effect| effect.term(LAST) == last)
    }

    /// Verifies the chain, which must contain every head in `noted`.
    /// Fails if a file cannot be read. A broken chain is not an error; the report names it.
    pub fn verify(&self, noted: &[Head]) -> Result<Report> {
        let start = self.start();
        let has_more = self.files.len() > 1;
        let mut verifier = Verifier::new(start);
        for noted in noted {
            verifier.expect(*noted);
        }
        let before = start.to_string();
        let mut is_explained = start == Head::START;
        let head = self.walk(|path, event| {
            if has_more {
                verifier.set_file(path);
            }
            is_explained |= event.action == DELETE && event.changes.contains(&before);
            verifier.push(&event);
            Ok::<(), Error>(())
        })?;
        if let Some(file) = self.files.last().filter(|_| has_more) {
            verifier.set_file(&file.path);
        }
        if self.is_whole && !is_explained && !self.is_being_deleted(&before) {
            verifier.miss_before_start();
        }
        Ok(verifier.finish(head))
    }
}
