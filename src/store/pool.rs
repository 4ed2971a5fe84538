//! Read-only connections, and an r2d2 pool of them.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use r2d2::{NopErrorHandler, PooledConnection};
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::config::DbConfig;
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, OpenFlags};
use scheduled_thread_pool::ScheduledThreadPool;

use crate::base::id;
use crate::model::answer_sentence;
use crate::store::error::{Error, Result};
use crate::sys::files::directory_of;
use crate::sys::user;

/// How long a reader waits for a connection, and how long the start waits for all connections.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// How often a locked database is tried again, once per millisecond, before the error `Busy`.
const MAX_BUSY_TRIES: i32 = 2_000;
/// Prepared statements cached per connection: more than `store` has.
const STATEMENTS_KEPT: usize = 192;

/// A pool of connections. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Pool(r2d2::Pool<SqliteConnectionManager>);

/// A connection on loan; dropping it gives it back.
pub(crate) type Lent = PooledConnection<SqliteConnectionManager>;

/// Opens one read-only connection. Root opens the file and its log with the rights of the directory's owner.
#[expect(clippy::disallowed_methods, reason = "the store is what opens the database")]
pub(crate) fn open_reader(path: &Path) -> Result<Connection> {
    let opened = user::in_directory(directory_of(path), || {
        let opened = Connection::open_with_flags(path, flags());
        // The first read opens the log. Whoever uses the connection meets its errors.
        Ok(opened.inspect(|conn| drop(conn.query_row("PRAGMA schema_version", [], |_| Ok(())))))
    });
    let conn = opened
        .map_err(|error| Error::File { path: path.to_owned(), source: Arc::new(error) })??;
    set_up_reader(&conn)?;
    Ok(conn)
}

fn flags() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

/// Opens a file that may be on read-only storage. In WAL mode SQLite needs a writable directory even for reading,
/// except with `immutable=1`.
#[expect(clippy::disallowed_methods, reason = "the store is what opens the database")]
pub(crate) fn open_reader_or_immutable(path: &Path) -> Result<Connection> {
    let usual = open_reader(path).and_then(|conn| {
        conn.query_row("PRAGMA schema_version", [], |_| Ok(()))?;
        Ok(conn)
    });
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if usual.is_ok() || !path.exists() || Path::new(&log).exists() {
        return usual;
    }
    let name = percent_encoding::percent_encode(
        path.as_os_str().as_encoded_bytes(),
        percent_encoding::NON_ALPHANUMERIC,
    );
    let flags = flags() | OpenFlags::SQLITE_OPEN_URI;
    let conn = Connection::open_with_flags(format!("file:{name}?immutable=1"), flags)?;
    set_up_reader(&conn)?;
    Ok(conn)
}

/// The thread that opens the connections of all pools. Connections do not break, so it works only at the start.
#[derive(Clone)]
pub(crate) struct Opener(Arc<ScheduledThreadPool>);

impl Opener {
    pub(crate) fn start() -> Self {
        let one = ScheduledThreadPool::builder().num_threads(1);
        Self(Arc::new(one.thread_name_pattern("pool-{}").build()))
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opener")
    }
}

impl Pool {
    /// Opens `size` connections and keeps them open.
    pub(crate) fn open(path: &Path, size: u32, opener: &Opener) -> Result<Self> {
        let manager = SqliteConnectionManager::file(path)
            .with_flags(flags())
            .with_init(|conn| set_up_reader(conn));
        let pool = r2d2::Pool::builder()
            .max_size(size)
            .max_lifetime(None)
            .idle_timeout(None)
            // A read-only connection to a local file does not break.
            .test_on_check_out(false)
            .connection_timeout(MAX_WAIT)
            .error_handler(Box::new(NopErrorHandler))
            .thread_pool(Arc::clone(&opener.0))
            .build(manager);
        let failed = |error| Error::File {
            path: path.to_owned(),
            source: Arc::new(std::io::Error::other(error)),
        };
        pool.map(Self).map_err(failed)
    }

    /// Takes the most recently returned connection, because its cache is the warmest.
    /// Fails with `Busy` if none is returned within [`MAX_WAIT`].
    pub(crate) fn checkout(&self) -> Result<Lent> {
        self.0.get().map_err(|_timed_out| Error::Busy)
    }
}

/// Keeps prepared statements for reuse. `QPSG` makes plans independent of bound values, so they are those that `plans`
/// tests. Without it SQLite prepares a `LIMIT ?` again at each use: a sixth of an event's instructions.
pub(super) fn keep_statements(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

/// Sets up a connection that only reads.
pub(super) fn set_up_reader(conn: &Connection) -> rusqlite::Result<()> {
    conn.busy_handler(Some(wait_for_lock))?;
    keep_statements(conn)?;
    conn.execute_batch(
        "PRAGMA query_only = ON;
         PRAGMA temp_store = MEMORY;
         PRAGMA cache_size = -1500;
         PRAGMA trusted_schema = OFF;",
    )?;
    // For searching a list by webhook-id, which is computed and not stored.
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    conn.create_scalar_function("webhook_id", 3, flags, |call| {
        let tenant: String = call.get(0)?;
        let source: String = call.get(1)?;
        let key: String = call.get(2)?;
        Ok(id::webhook_id(&tenant, &source, &key))
    })?;
    // For grouping dead letters by the target's words, which are not stored in this form.
    conn.create_scalar_function("answer_sentence", 3, flags, |call| {
        let excerpt: Option<String> = call.get(0)?;
        let failed_reason: Option<String> = call.get(1)?;
        let reason: Option<String> = call.get(2)?;
        let [excerpt, failed_reason, reason] = [&excerpt, &failed_reason, &reason];
        Ok(answer_sentence::of_dead_letter(
            excerpt.as_deref(),
            failed_reason.as_deref(),
            reason.as_deref(),
        ))
    })?;
    // As above for one id, without making texts: a search compares those of all events.
    conn.create_scalar_function("has_webhook_id", 4, flags, |call| {
        let text = |at: usize| call.get_raw(at).as_str().unwrap_or_default();
        let digest = id::identity_digest(&[text(0), text(1), text(2)]);
        let wanted = call.get_raw(3).as_blob().unwrap_or_default();
        Ok(wanted.len() == id::WEBHOOK_ID_BYTES && digest.starts_with(wanted))
    })
}

#[expect(clippy::disallowed_methods, reason = "SQLite's busy handler must sleep between two tries")]
pub(super) fn wait_for_lock(tries: i32) -> bool {
    std::thread::sleep(Duration::from_millis(1));
    tries < MAX_BUSY_TRIES
}
