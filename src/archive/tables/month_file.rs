//! The file of a month, which only the archive writes.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, TransactionBehavior};

use super::rows::{Sum, delete, each_row, moved, put, summary};
use super::{Part, of};
use crate::archive::{Archive, Batch, Month, Numbers, Summary};
use crate::base::clock::Timestamp;
use crate::model::audit::chain::Head;
use crate::store::error::{Error, Result};
use crate::store::tx::{ReadTx, WriteTx, WriterCache, tuple};
use crate::store::{audit_events, schema};
use crate::sys::files;

/// The key in the meta of a month's file under which it has when rows were moved into it last.
const SINCE: &str = "archived_at";

const NOTE_SINCE: &str = "INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)";

const META: &str = "SELECT value FROM meta WHERE key = ?1";

// The triggers keep plain SQL in order, and would refuse rows that are moved. The rows that others refer to may be in the
// database or in another file.
const FOR_ROWS_THAT_MOVE: &str = "
    PRAGMA foreign_keys = OFF;
    DROP TRIGGER IF EXISTS outbox_own_columns_are_left_out;
    DROP TRIGGER IF EXISTS deliveries_count_deaths;
    DROP TRIGGER IF EXISTS subscriptions_updated_at;
    DROP INDEX IF EXISTS subscriptions_name;";

const AUDIT_EVENTS: Part =
    Part { table: "audit_events", condition: "seq IN (SELECT value FROM json_each(?1))" };

/// Makes the file of a month, unless it is there. It gets its name when its tables are in it, so that no reader meets it
/// without them.
pub fn make(archive: &Archive, month: &Month) -> Result<()> {
    let path = archive.path(month);
    if path.exists() {
        return Ok(());
    }
    let failed = |source| Error::File { path: path.clone(), source: Arc::new(source) };
    DirBuilder::new().recursive(true).mode(0o700).create(archive.directory()).map_err(failed)?;
    files::sync_directory_of(archive.directory()).map_err(failed)?;
    let unnamed = files::with_ending(&path, ".new");
    MonthFile::open(&unnamed)?.empty_log()?;
    fs::rename(&unnamed, &path).map_err(failed)?;
    for ending in ["-wal", "-shm"] {
        let _left = fs::remove_file(files::with_ending(&unnamed, ending));
    }
    files::sync_directory_of(&path).map_err(failed)
}

/// When rows were moved into the file of a month last; `None` if it does not say.
pub fn since(month: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    month.find(META, [SINCE])
}

/// The numbers of what a file has.
pub fn numbers(month: &ReadTx<'_>) -> Result<Numbers> {
    let of = |table: &str| -> Result<(i64, i64)> {
        let sql = format!("SELECT coalesce(min(seq), 0), coalesce(max(seq), 0) FROM (
            SELECT (SELECT min(seq) FROM {table}) AS seq UNION ALL SELECT (SELECT max(seq) FROM {table}))");
        Ok(month.first(&sql, [], tuple)?.unwrap_or_default())
    };
    Ok([of("outbox")?, of("webhook_events")?, of("deliveries")?])
}

/// Counts and hashes audit events, whose numbers are given as JSON.
pub fn audit_summary(tx: &ReadTx<'_>, seqs: &str) -> Result<Summary> {
    let mut sum = Sum::new();
    each_row(tx, &AUDIT_EVENTS, seqs, |row, columns| {
        sum.add(AUDIT_EVENTS.table, row, columns.len())
    })?;
    Ok(sum.finish())
}

/// The file of a month, open to be written. Nothing else writes it.
pub struct MonthFile {
    conn: Connection,
    cache: WriterCache,
}

impl MonthFile {
    /// Opens the file, and creates it if it does not exist.
    /// Fails if its schema is another one, or it cannot be made durable.
    pub fn open(path: &Path) -> Result<Self> {
        let conn = schema::open_writer(path)?;
        conn.execute_batch(FOR_ROWS_THAT_MOVE)?;
        Ok(Self { conn, cache: WriterCache::default() })
    }

    /// Copies a batch into the file, commits, and reads it again.
    pub fn take_in(
        &mut self,
        from: &ReadTx<'_>,
        batch: &Batch,
        now: Timestamp,
    ) -> Result<(Summary, Summary)> {
        let mut sum = Sum::new();
        let seqs = batch.json();
        self.change(|to| {
            // A move that was cut short may have left them.
            delete(to, batch)?;
            for part in &of(batch.kind).needed {
                each_row(from, part, &seqs, |row, columns| {
                    put(to, "INSERT OR REPLACE", part.table, row, columns, ["?"; 2])
                })?;
            }
            for part in moved(batch.kind) {
                each_row(from, part, &seqs, |row, columns| {
                    sum.add(part.table, row, columns.len())?;
                    put(to, "INSERT", part.table, row, columns, ["?"; 2])
                })?;
            }
            to.execute(NOTE_SINCE, (SINCE, now)).map(drop)
        })?;
        Ok((sum.finish(), summary(&ReadTx::new(&self.conn), batch)?))
    }

    /// Copies audit events into the file, commits, and reads them again. Rows that a move left there stay. The first row
    /// of the file follows `start`, and `last` is the last one.
    pub fn take_in_audit(
        &mut self,
        from: &ReadTx<'_>,
        seqs: &str,
        [start, last]: [Head; 2],
        now: Timestamp,
    ) -> Result<(Summary, Summary)> {
        self.change(|to| {
            each_row(from, &AUDIT_EVENTS, seqs, |row, columns| {
                put(to, "INSERT OR IGNORE", AUDIT_EVENTS.table, row, columns, ["?"; 2])
            })?;
            audit_events::note_ends(to, start, last)?;
            to.execute(NOTE_SINCE, (SINCE, now)).map(drop)
        })?;
        Ok((audit_summary(from, seqs)?, audit_summary(&ReadTx::new(&self.conn), seqs)?))
    }

    /// Deletes what the file has of a batch.
    pub fn drop_out(&mut self, batch: &Batch) -> Result<()> {
        self.change(|tx| delete(tx, batch))
    }

    /// Copies the write-ahead log into the file.
    pub fn empty_log(&self) -> Result<()> {
        Ok(self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
    }

    /// As [`Self::empty_log`].
    /// Fails with `Busy` while somebody reads an earlier state.
    pub fn empty_log_surely(&self) -> Result<()> {
        let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
        let is_busy: bool = self.conn.query_row(sql, [], |row| row.get(0))?;
        if is_busy { Err(Error::Busy) } else { Ok(()) }
    }

    /// Runs what would change the file, and rolls it back.
    pub fn try_out<T>(&mut self, run: impl FnOnce(&WriteTx<'_>) -> Result<T>) -> Result<T> {
        let transaction = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let done = run(&WriteTx::new(&transaction, &self.cache))?;
        transaction.rollback()?;
        Ok(done)
    }

    /// Changes the file in one transaction.
    pub fn change<T>(&mut self, run: impl FnOnce(&WriteTx<'_>) -> Result<T>) -> Result<T> {
        let transaction = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let done = run(&WriteTx::new(&transaction, &self.cache))?;
        transaction.commit().map_err(Error::at_commit)?;
        Ok(done)
    }
}
