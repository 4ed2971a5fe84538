//! Tables `processed_events` and `processed_versions` in a consumer's own file, and in ours where the consumer's
//! tables live beside it. The same statements as in `packaging/sql/sqlite.sql`.
//!
//! Not here: the guard of a consumer without a database, which is `store::processed_events`.

use rusqlite::{Connection, Params};

/// The tables of a consumer's guards. Does nothing where they are.
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

// Takes the write lock before it looks, so that nobody claims in between; and it is right whatever keys a table
// has that somebody else made.
const CLAIM: &str = "
    INSERT INTO processed_events (consumer_group, event_id)
    SELECT ?1, ?2
     WHERE NOT EXISTS (
           SELECT 1
             FROM processed_events
            WHERE consumer_group = ?1
              AND event_id = ?2)";

const CLAIM_NEWER: &str = "
    INSERT INTO processed_versions (consumer_group, entity, version)
    VALUES (?1, ?2, ?3)
        ON CONFLICT (consumer_group, entity) DO UPDATE
       SET version = excluded.version, processed_at = excluded.processed_at
     WHERE excluded.version > processed_versions.version";

/// Claims an event; `true` the first time.
pub(crate) fn claim(
    conn: &Connection,
    consumer_group: &str,
    event_id: &str,
) -> rusqlite::Result<bool> {
    claimed(conn, CLAIM, (consumer_group, event_id))
}

/// Claims a version of an entity; `true` when it is newer than the last one claimed.
pub(crate) fn claim_newer(
    conn: &Connection,
    consumer_group: &str,
    entity: &str,
    version: i64,
) -> rusqlite::Result<bool> {
    claimed(conn, CLAIM_NEWER, (consumer_group, entity, version))
}

/// Makes the tables where the statement finds none.
fn claimed(
    conn: &Connection,
    statement: &str,
    params: impl Params + Copy,
) -> rusqlite::Result<bool> {
    // A statement that is kept may have seen a table that was rolled back since.
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

/// A savepoint: rolled back when it is dropped, unless it was kept.
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
            // It only fails where SQLite has undone the whole transaction already.
            drop(self.conn.execute_batch("ROLLBACK TO oncebox_guard; RELEASE oncebox_guard"));
        }
    }
}
