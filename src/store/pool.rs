//! A handful of read-only connections, lent one at a time.

use std::ops::{Deref, DerefMut};
use std::path::Path;

use crossbeam_channel::{Receiver, Sender, bounded};
use rusqlite::{Connection, OpenFlags};

use crate::store::error::Result;
use crate::store::schema;

/// The connections that are not lent.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    idle: Receiver<Connection>,
    back: Sender<Connection>,
}

/// A connection on loan; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Lent {
    /// `None` only while it is being given back.
    conn: Option<Connection>,
    spare: Sender<Connection>,
}

/// Opens one read-only connection.
#[expect(clippy::disallowed_methods, reason = "the store is what opens the database")]
pub(crate) fn open_reader(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    schema::configure_reader(&conn)?;
    Ok(conn)
}

impl Pool {
    pub(crate) fn open(path: &Path, size: usize) -> Result<Self> {
        let (back, idle) = bounded(size);
        for _ in 0..size {
            let conn = open_reader(path)?;
            drop(back.send(conn));
        }
        Ok(Self { idle, back })
    }

    /// Takes a connection, waiting until one is free.
    ///
    /// # Panics
    /// Never: the pool holds a sender itself, so the channel cannot be disconnected.
    #[expect(clippy::expect_used, reason = "the pool holds the sending end itself")]
    pub(crate) fn checkout(&self) -> Lent {
        let conn = self.idle.recv().expect("the pool holds the sending end");
        Lent { conn: Some(conn), spare: self.back.clone() }
    }
}

impl Deref for Lent {
    type Target = Connection;

    #[expect(clippy::expect_used, reason = "the connection is only taken in drop")]
    fn deref(&self) -> &Connection {
        self.conn.as_ref().expect("a lent connection is there until it is dropped")
    }
}

impl DerefMut for Lent {
    #[expect(clippy::expect_used, reason = "the connection is only taken in drop")]
    fn deref_mut(&mut self) -> &mut Connection {
        self.conn.as_mut().expect("a lent connection is there until it is dropped")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            drop(self.spare.send(conn));
        }
    }
}
