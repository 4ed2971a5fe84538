//! A handful of read-only connections, lent one at a time.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rusqlite::{Connection, OpenFlags};

use crate::store::connection;
use crate::store::error::Result;

/// The connections that are not lent. Clones share them.
///
/// The one that came back last goes out first: its pages are the warmest. Who finds none sleeps at once;
/// a channel would let sixty-four deliverers spin for four connections.
#[derive(Clone, Debug)]
pub(crate) struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    idle: Mutex<Idle>,
    returned: Condvar,
}

#[derive(Debug)]
struct Idle {
    connections: Vec<Connection>,
    /// Who sleeps until one comes back. Ringing is a system call, and mostly for nobody.
    waiting: usize,
}

/// A connection on loan; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Lent {
    /// `None` only while it is being given back.
    conn: Option<Connection>,
    home: Arc<Shared>,
}

/// Opens one read-only connection.
#[expect(clippy::disallowed_methods, reason = "the store is what opens the database")]
pub(crate) fn open_reader(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    connection::configure_reader(&conn)?;
    Ok(conn)
}

/// Opens a file that may be a copy in a place where nothing can be written: a database whose log is on
/// needs a writable directory even to be read, unless it is said that nobody changes it.
#[expect(clippy::disallowed_methods, reason = "the store is what opens the database")]
pub(crate) fn open_to_look(path: &Path) -> Result<Connection> {
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
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let conn = Connection::open_with_flags(format!("file:{name}?immutable=1"), flags)?;
    connection::configure_reader(&conn)?;
    Ok(conn)
}

impl Pool {
    pub(crate) fn open(path: &Path, size: usize) -> Result<Self> {
        let idle = (0..size).map(|_| open_reader(path)).collect::<Result<Vec<_>>>()?;
        let idle = Mutex::new(Idle { connections: idle, waiting: 0 });
        Ok(Self(Arc::new(Shared { idle, returned: Condvar::new() })))
    }

    /// Takes a connection, waiting until one is free.
    pub(crate) fn checkout(&self) -> Lent {
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while idle.connections.is_empty() {
            idle.waiting = idle.waiting.saturating_add(1);
            idle = self.0.returned.wait(idle).unwrap_or_else(PoisonError::into_inner);
            idle.waiting = idle.waiting.saturating_sub(1);
        }
        let conn = idle.connections.pop();
        Lent { conn, home: Arc::clone(&self.0) }
    }
}

impl Deref for Lent {
    type Target = Connection;

    #[expect(clippy::expect_used, reason = "checkout waits for one, and it is only taken in drop")]
    fn deref(&self) -> &Connection {
        self.conn.as_ref().expect("a lent connection is there until it is dropped")
    }
}

impl DerefMut for Lent {
    #[expect(clippy::expect_used, reason = "checkout waits for one, and it is only taken in drop")]
    fn deref_mut(&mut self) -> &mut Connection {
        self.conn.as_mut().expect("a lent connection is there until it is dropped")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            let mut idle = self.home.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.connections.push(conn);
            let awaited = idle.waiting > 0;
            drop(idle);
            if awaited {
                self.home.returned.notify_one();
            }
        }
    }
}
