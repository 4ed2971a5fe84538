//! The store: one SQLite file, one writer, a few readers. All SQL is below this folder, one file per
//! table, and nothing else knows that it is SQLite.
//!
//! Functions that write take `&WriteTx`, functions that read take `&ReadTx`. The writer's thread is
//! started by `pipeline`; see [`writer`]. [`error`] says what each error means.

pub mod attempts;
pub mod audit_events;
pub mod boots;
pub(crate) mod column;
pub mod consuming;
mod contention;
pub mod credentials;
pub mod deliveries;
pub mod delivery_lists;
pub mod error;
pub mod escalations;
pub mod failures;
pub mod holds;
pub mod idempotency_keys;
pub mod in_doubt;
pub mod inspect;
pub mod leases;
pub mod meta;
mod operational;
pub mod outbox;
pub mod outbox_lists;
pub mod outbox_relay;
mod outbox_routing;
pub mod page;
mod payloads;
#[cfg(test)]
pub(crate) mod plans;
pub(crate) mod pool;
pub mod processed_events;
pub mod providers;
pub mod quarantine;
pub mod schema;
pub(crate) mod schema_shape;
pub mod settlement;
pub mod stats;
pub mod subjects;
pub mod subscriptions;
pub mod tenants;
pub mod tokens;
pub mod tx;
pub mod webhook_events;
pub mod work_done;
pub mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::TransactionBehavior;

use crate::base::faults::Faults;
use crate::store::error::Result;
use crate::store::pool::Pool;
use crate::store::tx::ReadTx;
use crate::store::writer::{Writer, WriterLoop};

/// Connections that read. Reads are short; more would only hold memory.
const READERS: u32 = 4;
/// Connections for lists, which may look at many rows.
pub(crate) const LISTERS: u32 = 2;
/// A list asks whether its time is over each time that SQLite has done so many steps: about 50 microseconds.
const STEPS_A_LOOK: i32 = 1000;

/// The file, as everyone but the writer sees it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    path: Arc<PathBuf>,
    readers: Pool,
    /// A reader for look-ups by key alone, so that no long list stands before them.
    lookups: Pool,
    /// Readers for lists, so that one that takes long stands before other lists alone.
    lists: Pool,
    writer: Writer,
}

impl Store {
    /// Opens the file, making it where there is none, and brings its schema up to date. The second part
    /// is the writing end, which has to be run on a thread of its own.
    /// Fails when the file is newer than this version, damaged, or cannot be made durable.
    pub fn open(path: &Path, faults: Faults) -> Result<(Self, WriterLoop)> {
        let conn = schema::open_writer(path)?;
        let opener = pool::opener();
        let readers = Pool::open(path, READERS, &opener)?;
        let lookups = Pool::open(path, 1, &opener)?;
        let lists = Pool::open(path, LISTERS, &opener)?;
        let (writer, writer_loop) = writer::pair(conn, faults);
        let path = Arc::new(path.to_owned());
        Ok((Self { path, readers, lookups, lists, writer }, writer_loop))
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The size of the file and of its write-ahead log, in bytes.
    pub fn sizes(&self) -> (u64, u64) {
        let mut log = self.path.as_os_str().to_owned();
        log.push("-wal");
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.len());
        (size(&self.path), size(Path::new(&log)))
    }

    /// Where write jobs are handed in.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Reads; each statement sees the latest commit.
    pub fn read<T>(&self, read: impl FnOnce(&ReadTx<'_>) -> Result<T>) -> Result<T> {
        let conn = self.readers.checkout()?;
        read(&ReadTx::new(&conn))
    }

    /// Looks something up by its key. Waits for other look-ups only, never for a list: the listener asks
    /// here who is calling before it reads a body.
    pub fn look_up<T>(&self, read: impl FnOnce(&ReadTx<'_>) -> Result<T>) -> Result<T> {
        let conn = self.lookups.checkout()?;
        read(&ReadTx::new(&conn))
    }

    /// Reads in one snapshot: every statement sees the same commit.
    pub fn snapshot<T>(&self, read: impl FnOnce(&ReadTx<'_>) -> Result<T>) -> Result<T> {
        let mut conn = self.readers.checkout()?;
        in_snapshot(&mut conn, read)
    }

    /// Reads a list in one snapshot, on a connection of the lists' own, until `is_over` says that it takes too
    /// long.
    /// Fails with `TooLong`, or what `read` returns.
    pub fn list<T>(
        &self,
        is_over: impl FnMut() -> bool + Send + 'static,
        read: impl FnOnce(&ReadTx<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut conn = self.lists.checkout()?;
        // Stays until the connection's next list puts its own in its place.
        conn.progress_handler(STEPS_A_LOOK, Some(is_over))?;
        in_snapshot(&mut conn, read)
    }

    /// A reader that is not shared, for the dispatcher.
    pub fn own_reader(&self) -> Result<OwnReader> {
        pool::open_reader(&self.path).map(OwnReader)
    }
}

fn in_snapshot<T>(
    conn: &mut rusqlite::Connection,
    read: impl FnOnce(&ReadTx<'_>) -> Result<T>,
) -> Result<T> {
    let transaction = conn.transaction_with_behavior(TransactionBehavior::Deferred)?;
    let value = read(&ReadTx::new(&transaction))?;
    transaction.finish()?;
    Ok(value)
}

/// The version of SQLite that is built in.
pub fn sqlite_version() -> &'static str {
    rusqlite::version()
}

/// A reader of a file that another process may be serving. Nothing is made, changed or upgraded.
/// Fails when there is no such file, or it cannot be opened.
pub fn read_only(path: &Path) -> Result<OwnReader> {
    pool::open_reader(path).map(OwnReader)
}

/// A read connection of one's own.
#[derive(Debug)]
pub struct OwnReader(rusqlite::Connection);

impl OwnReader {
    /// Reads; each statement sees the latest commit.
    pub fn tx(&self) -> ReadTx<'_> {
        ReadTx::new(&self.0)
    }
}
