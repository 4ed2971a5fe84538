//! Table `audit_events`, as a whole: rows handed on in order, and the chain looked at, in a file that is only read.

use std::path::Path;

use rusqlite::OptionalExtension;

use crate::model::audit::AuditEvent;
use crate::model::audit::chain::{Head, Report, Verifier};
use crate::store::audit_events::audit_event;
use crate::store::error::{Error, Result};
use crate::store::tx::{ReadTx, rows};
use crate::store::{meta, pool};

/// Rows that are read at once while a chain is looked at.
const ROWS_AT_ONCE: u32 = 1_000;

const AFTER: &str = "
    SELECT seq, at, tenant, actor_type, actor_id, actor_display, address, user_agent, action,
           resource_type, resource_id, result, request_id, correlation_id, method, path, status,
           changes, previous_hash, hash
      FROM audit_events
     WHERE seq > ?1
     ORDER BY seq
     LIMIT ?2";

const ANY_TABLE: &str = "
    SELECT 1
      FROM sqlite_master
     WHERE type = 'table'
       AND name = 'audit_events'";

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
