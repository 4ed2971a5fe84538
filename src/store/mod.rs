//! The store: one SQLite file, one writer, a few readers. One file per table.
//!
//! Functions that write take `&WriteTx`, functions that read take `&ReadTx`. The writer's thread is
//! started by `pipeline`; see [`writer`]. [`error`] says what each error means.

pub mod attempts;
pub mod audit_events;
pub mod chores;
pub mod claimed_effects;
pub(crate) mod column;
pub mod confirmations;
pub mod consuming;
mod contention;
pub mod credential_rotations;
pub mod credential_uses;
pub mod credentials;
pub mod database_users;
pub mod deliveries;
pub mod delivery_lists;
pub mod error;
pub mod escalations;
pub mod examined_rows;
pub mod external_calls;
pub mod failures;
pub mod families;
pub mod fresh;
pub mod history;
pub mod holds;
pub mod idempotency_keys;
pub mod in_doubt;
mod kept_answers;
pub mod known_time;
pub mod lane_lists;
pub mod lanes;
pub mod leases;
pub mod legal_holds;
pub mod limits;
pub mod matching;
pub mod meta;
pub mod operational;
pub mod outbox;
pub mod outbox_lists;
pub mod outbox_relay;
pub mod outbox_routing;
pub mod page;
pub mod past_holds;
pub(crate) mod payloads;
pub(crate) mod pool;
pub mod postponed;
mod prelude;
pub mod processed_events;
pub mod providers;
pub mod quarantine;
pub mod renderings;
mod report_views;
mod route_index;
pub mod routes;
pub mod runs;
pub mod schema;
mod schema_names;
pub(crate) mod schema_shape;
pub mod search;
pub mod search_values;
pub mod seen_keys;
pub mod sessions;
pub mod settlement;
pub(crate) mod sql;
pub mod sql_rows;
pub mod stats;
pub mod subjects;
pub mod subscriptions;
pub mod superseded;
pub mod tenants;
#[cfg(test)]
pub(crate) mod tests;
pub mod tokens;
pub mod tx;
pub mod users;
pub mod webhook_events;
pub mod work_done;
pub mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::TransactionBehavior;

use crate::base::faults::Faults;
use crate::store::error::{Error, Result};
use crate::store::pool::{Opener, Pool};
use crate::store::routes::{KnownTerms, SharedRoutes};
use crate::store::tx::ReadTx;
use crate::store::writer::{Writer, WriterLoop};

/// Connections that read. Reads are short; more would only hold memory.
const READERS: u32 = 4;
/// Connections for lists, which may read many rows.
pub(crate) const LIST_READERS: u32 = 2;
/// SQLite steps between two checks of a list's time limit: about 50 microseconds.
const STEPS_PER_CHECK: i32 = 1000;

/// Access to the database file: pools of readers, and the queues of the writer. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    path: Arc<PathBuf>,
    readers: Pool,
    /// A reader for look-ups by key alone, so that they never wait for a list.
    lookups: Pool,
    /// Readers for lists, so that a long list delays only other lists.
    lists: Pool,
    /// Opens connections of them all.
    opener: Opener,
    writer: Writer,
    /// The terms of subscriptions that this file's writer knows; `None`: it is another file.
    routes: Option<Arc<SharedRoutes>>,
}

impl Store {
    /// Opens the file and creates it if it does not exist. The returned [`WriterLoop`] must run on its own thread.
    /// Fails if the schema is older or newer than this version, or the file is damaged or cannot be made durable.
    pub fn open(path: &Path, faults: Faults) -> Result<(Self, WriterLoop)> {
        let conn = schema::open_writer(path)?;
        let opener = Opener::start();
        let readers = Pool::open(path, READERS, &opener)?;
        let lookups = Pool::open(path, 1, &opener)?;
        let lists = Pool::open(path, LIST_READERS, &opener)?;
        let (writer, writer_loop) = writer::pair(conn, faults)?;
        let path = Arc::new(path.to_owned());
        let routes = Some(Arc::clone(writer.routes()));
        Ok((Self { path, readers, lookups, lists, opener, writer, routes }, writer_loop))
    }

    /// Reads another file of the same schema, such as that of a month of the archive. Writes go where they went.
    /// Fails if it cannot be opened.
    pub fn over(&self, path: &Path) -> Result<Self> {
        let readers = Pool::open(path, 1, &self.opener)?;
        let lists = Pool::open(path, 1, &self.opener)?;
        Ok(Self {
            path: Arc::new(path.to_owned()),
            lookups: readers.clone(),
            readers,
            lists,
            routes: None,
            ..self.clone()
        })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An error of the system about a file beside this one.
    pub fn file_error(&self, error: std::io::Error) -> Error {
        Error::File { path: self.path.to_path_buf(), source: Arc::new(error) }
    }

    /// The size of the file and of its write-ahead log, in bytes.
    pub fn sizes(&self) -> (u64, u64) {
        let mut log = self.path.as_os_str().to_owned();
        log.push("-wal");
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.len());
        (size(&self.path), size(Path::new(&log)))
    }

    /// Accepts write jobs.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Reads; each statement sees the latest commit.
    pub fn read<T>(&self, read: impl FnOnce(&ReadTx<'_>) -> Result<T>) -> Result<T> {
        let conn = self.readers.checkout()?;
        read(&ReadTx::knowing(&conn, self.known()))
    }

    /// Looks something up by its key. Never waits for a list: the listener authenticates a caller here before
    /// it reads the body.
    pub fn look_up<T>(&self, read: impl FnOnce(&ReadTx<'_>) -> Result<T>) -> Result<T> {
        let conn = self.lookups.checkout()?;
        read(&ReadTx::knowing(&conn, self.known()))
    }

    /// Reads in one snapshot: every statement sees the same commit.
    pub fn snapshot<T>(&self, read: impl FnOnce(&ReadTx<'_>) -> Result<T>) -> Result<T> {
        let mut conn = self.readers.checkout()?;
        in_snapshot(&mut conn, self.known(), read)
    }

    /// Reads a list in one snapshot, on a connection for lists.
    /// Fails with `TooLong` when `is_over` returns true, or with the error of `read`.
    pub fn list<T>(
        &self,
        is_over: impl FnMut() -> bool + Send + 'static,
        read: impl FnOnce(&ReadTx<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut conn = self.lists.checkout()?;
        // The handler stays set until the next list on this connection replaces it.
        conn.progress_handler(STEPS_PER_CHECK, Some(is_over))?;
        in_snapshot(&mut conn, self.known(), read)
    }

    /// Opens a reader that is not shared, for the dispatcher.
    pub fn own_reader(&self) -> Result<OwnReader> {
        let conn = pool::open_reader(&self.path)?;
        Ok(OwnReader { conn, routes: self.routes.clone() })
    }

    fn known(&self) -> KnownTerms<'_> {
        known(self.routes.as_ref())
    }
}

fn known(routes: Option<&Arc<SharedRoutes>>) -> KnownTerms<'_> {
    routes.map_or(KnownTerms::None, |routes| KnownTerms::Committed(routes))
}

fn in_snapshot<T>(
    conn: &mut rusqlite::Connection,
    known: KnownTerms<'_>,
    read: impl FnOnce(&ReadTx<'_>) -> Result<T>,
) -> Result<T> {
    let transaction = conn.transaction_with_behavior(TransactionBehavior::Deferred)?;
    let value = read(&ReadTx::knowing(&transaction, known))?;
    transaction.finish()?;
    Ok(value)
}

/// The version of SQLite that is built in.
pub fn sqlite_version() -> &'static str {
    rusqlite::version()
}

/// Opens a reader on a file that another process may be serving. Creates, changes and upgrades nothing.
/// Fails if the file does not exist or cannot be opened.
pub fn read_only(path: &Path) -> Result<OwnReader> {
    let conn = pool::open_reader(path)?;
    Ok(OwnReader { conn, routes: None })
}

/// A read connection that is not shared.
#[derive(Debug)]
pub struct OwnReader {
    conn: rusqlite::Connection,
    routes: Option<Arc<SharedRoutes>>,
}

impl OwnReader {
    /// Reads; each statement sees the latest commit.
    pub fn tx(&self) -> ReadTx<'_> {
        ReadTx::knowing(&self.conn, known(self.routes.as_ref()))
    }
}
