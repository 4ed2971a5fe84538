//! Tables `processed_events` and `processed_versions` in a consumer's own file, or in `oncebox.db` if the consumer's tables
//! are there. The same statements as in `packaging/sql/sqlite.sql`.
//!
//! Not here: the guard of a consumer without a database (`store::processed_events`).

use rusqlite::{Connection, Params};

/// Creates the tables of a consumer's guards if they are missing.
pub(crate) const TABLES: &str = "\
CREATE TABLE IF NOT EXISTS processed_events (
  consumer_group TEXT NOT NULL CHECK (length(consumer_group) BETWEEN 1 AND 64),
  event_id       TEXT NOT NULL CHECK (length(event_id) BETWEEN 1 AND 255),
  -- Milliseconds since 1970, UTC.
  processed_at   INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)),
  PRIMARY KEY (consumer_group, event_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS processed_versions (
  consumer_group TEXT NOT NULL CHECK (length(consumer_group) BETWEEN 1 AND 64),
  entity         TEXT NOT NULL CHECK (length(entity) BETWEEN 1 AND 255),
  version        INTEGER NOT NULL,
  processed_at   INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)),
  PRIMARY KEY (consumer_group, entity)
) WITHOUT ROWID;
";

// An INSERT takes the write lock before it reads, so that no other claim comes in between. NOT EXISTS also works on a table
// without the primary key.
const CLAIM: &str = "
    INSERT INTO processed_events (consumer_group, event_id)
    SELECT ?1, ?2
     WHERE NOT EXISTS (SELECT 1 FROM processed_events WHERE consumer_group = ?1 AND event_id = ?2)";

const CLAIM_NEWER: &str = "
    INSERT INTO processed_versions (consumer_group, entity, version) VALUES (?1, ?2, ?3)
        ON CONFLICT (consumer_group, entity) DO UPDATE
       SET version = excluded.version, processed_at = excluded.processed_at
     WHERE excluded.version > processed_versions.version";

/// Claims an event; returns `true` the first time.
pub(crate) fn claim(
    conn: &Connection,
    consumer_group: &str,
    event_id: &str,
) -> rusqlite::Result<bool> {
    claimed(conn, CLAIM, (consumer_group, event_id))
}

/// Claims a version of an entity; returns `true` if it is newer than the last claimed one.
pub(crate) fn claim_newer(
    conn: &Connection,
    consumer_group: &str,
    entity: &str,
    version: i64,
) -> rusqlite::Result<bool> {
    claimed(conn, CLAIM_NEWER, (consumer_group, entity, version))
}

/// Runs a claim, after creating the tables if they are missing.
fn claimed(
    conn: &Connection,
    statement: &str,
    params: impl Params + Copy,
) -> rusqlite::Result<bool> {
    // Prepared again each time: a cached statement may refer to a table whose creation was rolled back.
    let claim = || conn.prepare_cached(statement)?.execute(params);
    let changed = match claim() {
        Err(error) if error.to_string().contains("no such table: processed_") => {
            conn.execute_batch(TABLES)?;
            claim()
        }
        changed => changed,
    };
    Ok(changed? == 1)
}

/// A savepoint, which is rolled back when dropped unless it was kept.
#[derive(Debug)]
pub(crate) struct Savepoint<'c> {
    conn: &'c Connection,
    kept: bool,
}

impl<'c> Savepoint<'c> {
    pub(crate) fn begin(conn: &'c Connection) -> rusqlite::Result<Self> {
        conn.execute_batch("SAVEPOINT oncebox_guard")?;
        Ok(Self { conn, kept: false })
    }

    pub(crate) fn keep(mut self) -> rusqlite::Result<()> {
        self.conn.execute_batch("RELEASE oncebox_guard")?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Savepoint<'_> {
    fn drop(&mut self) {
        if !self.kept {
            // Fails only if SQLite has already rolled back the whole transaction.
            drop(self.conn.execute_batch("ROLLBACK TO oncebox_guard; RELEASE oncebox_guard"));
        }
    }
}
