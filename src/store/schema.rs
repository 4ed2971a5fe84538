//! Opening the file: schema versions, and the pragmas that durability depends on.
//!
//! A new file is created from `schema.sql` itself, so the file contains its comments. An older file is refused
//! here; `backup::upgrade` takes a backup and calls [`migrate`].

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use serde_json::json;

use crate::base::build;
use crate::base::faults::{Faults, Step};
use crate::model::audit::changes::Changes;
use crate::model::audit::{Actor, NewAuditEvent};
use crate::model::name::DEFAULT_TENANT;
use crate::store::contention::WriteContention;
use crate::store::pool::wait_for_lock;
use crate::store::prelude::*;
use crate::store::schema_shape::SCHEMA;
use crate::store::tx::WriterCache;
use crate::store::work_done::WorkDone;
use crate::store::{audit_events, pool, report_views, schema_names, schema_shape};

/// The schema version this program writes.
pub const VERSION: i64 = Steps::RELEASED.version();
/// This program's own version.
const PROGRAM: &str = build::VERSION;
/// How long emptying the log waits for readers.
const MAX_EMPTYING_WAIT: Duration = Duration::from_millis(20);
const IS_OURS: &str = "
    SELECT EXISTS (
           SELECT 1
             FROM sqlite_master
            WHERE type = 'table'
              AND name = 'outbox')";

const MADE_BY: &str = "
    SELECT value
      FROM meta
     WHERE key = 'program_version'";

const SIGN: &str = "
    INSERT INTO meta (key, value)
    VALUES ('program_version', ?1)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/// The steps that upgrade older schemas. A parameter of [`migrate`], so that tests can use their own steps.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    /// The oldest schema version that can be upgraded.
    pub oldest: i64,
    /// The SQL of each step, in order: the first leads from `oldest` to the version after it.
    pub sql: &'static [&'static str],
}

impl Steps {
    /// The steps of this program. A step that a released program has is never edited.
    pub const RELEASED: Self = Self {
        oldest: 1,
        sql: &[
            include_str!("step_2.sql"),
            include_str!("step_3.sql"),
            include_str!("step_4.sql"),
            include_str!("step_5.sql"),
            include_str!("step_6.sql"),
            include_str!("step_7.sql"),
            include_str!("step_8.sql"),
            include_str!("step_9.sql"),
            include_str!("step_10.sql"),
            include_str!("step_11.sql"),
            include_str!("step_12.sql"),
            include_str!("step_13.sql"),
            include_str!("step_14.sql"),
            include_str!("step_15.sql"),
            include_str!("step_16.sql"),
            include_str!("step_17.sql"),
        ],
    };

    /// The schema version that the last step leads to.
    #[expect(clippy::as_conversions, reason = "`try_from` is not const, and there are few steps")]
    #[expect(clippy::cast_possible_wrap, reason = "there are few steps")]
    pub const fn version(self) -> i64 {
        self.oldest + self.sql.len() as i64
    }

    /// The steps that a file of version `have` needs, each with the version it leads to.
    /// Fails with `NoStep` if that version cannot be upgraded.
    pub fn after(
        self,
        path: &Path,
        have: i64,
    ) -> Result<impl Iterator<Item = (i64, &'static str)>> {
        if have < self.oldest {
            return Err(Error::NoStep { path: path.to_owned(), have });
        }
        let steps = (self.oldest + 1..).zip(self.sql.iter().copied());
        Ok(steps.filter(move |(to, _)| *to > have))
    }
}

/// Opens the write connection, creates the schema in a new file, and checks the pragmas.
pub(crate) fn open_writer(path: &Path) -> Result<Connection> {
    let mut conn = open_raw(path)?;
    // On close SQLite would copy the log without checking that there is room.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let schema_version = version(path, &conn)?;
    if schema_version.is_none() {
        schema_names::check(path, &conn, std::iter::once(SCHEMA))?;
        // These have an effect only before the first table is created.
        conn.execute_batch("PRAGMA page_size = 2048; PRAGMA auto_vacuum = INCREMENTAL;")?;
    }
    conn.execute_batch(
        "PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA foreign_keys = ON;
         PRAGMA secure_delete = ON;
         PRAGMA temp_store = MEMORY;
         PRAGMA cache_size = -16000;
         PRAGMA wal_autocheckpoint = 0;
         PRAGMA trusted_schema = OFF;",
    )?;
    match schema_version {
        Some(VERSION) => {}
        Some(have) => return Err(Error::TooOld { path: path.to_owned(), have, want: VERSION }),
        None => make(&mut conn)?,
    }
    assert_pragmas(path, &conn)?;
    sync_directory(path)?;
    // `WriteContention` waits for the lock instead.
    conn.busy_handler(None)?;
    Ok(conn)
}

/// Runs `run` while the write connection waits up to [`MAX_EMPTYING_WAIT`] for other connections.
pub(crate) fn with_short_timeout<T>(
    conn: &Connection,
    run: impl FnOnce() -> Result<T>,
) -> Result<T> {
    conn.busy_timeout(MAX_EMPTYING_WAIT)?;
    let outcome = run();
    conn.busy_handler(None)?;
    outcome
}

/// Copies the write-ahead log into a file that no service is using, and empties the log.
pub fn empty_log(path: &Path) -> Result<()> {
    let conn = open_writer(path)?;
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}

/// The schema version of a file; `None` if it does not contain our tables yet.
/// Fails if the file is newer than this version, or cannot be read.
pub(crate) fn version(path: &Path, conn: &Connection) -> Result<Option<i64>> {
    let have: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if have > VERSION {
        let made_by = conn.query_row(MADE_BY, [], |row| row.get::<_, String>(0));
        let made_by = made_by.map_or_else(|_unknown| "a newer oncebox".to_owned(), named);
        return Err(Error::TooNew { path: path.to_owned(), made_by, have, know: VERSION });
    }
    let ours: bool = conn.query_row(IS_OURS, [], |row| row.get(0))?;
    Ok((have > 0 || ours).then_some(have))
}

/// The schema version of a file; `None` if the file does not exist, or does not contain our tables.
/// Fails if it is newer than this version, or cannot be read.
pub fn schema_version(path: &Path) -> Result<Option<i64>> {
    if std::fs::metadata(path).map_or(0, |found| found.len()) == 0 {
        return Ok(None);
    }
    version(path, &pool::open_reader(path)?)
}

fn named(version: String) -> String {
    format!("oncebox {version}")
}

/// Creates the whole schema in one transaction.
fn make(conn: &mut Connection) -> Result<()> {
    let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(SCHEMA)?;
    sign(&transaction)?;
    transaction.commit().map_err(Error::at_commit)
}

/// Fails with `NameTaken` if a step from version `have` needs a name that another program uses in the file.
pub(crate) fn check_names(path: &Path, steps: Steps, have: i64) -> Result<()> {
    if have == 0 && steps.oldest > 0 {
        // Every released oncebox has written its version. An `outbox` of another program looks like an older file.
        return Err(Error::NameTaken { path: path.to_owned(), name: "outbox".to_owned() });
    }
    let conn = pool::open_reader(path)?;
    schema_names::check(path, &conn, steps.after(path, have)?.map(|(_, sql)| sql))
}

/// Upgrades an older file, all steps in one transaction; returns the version it had.
/// Fails if the file is newer than this version, or a step fails; then the file is unchanged.
pub(crate) fn migrate(
    path: &Path,
    steps: Steps,
    by: &(Timestamp, Actor),
    faults: &Faults,
) -> Result<i64> {
    let conn = open_to_migrate(path)?;
    let have = version(path, &conn)?.unwrap_or(0);
    conn.busy_handler(None)?;
    let mut contention = WriteContention::new(conn.path());
    contention.set_at_start(true);
    let transaction = contention.begin(&conn, &WorkDone::default())?;
    carry_out(&transaction, steps.after(path, have)?, faults)?;
    note(&transaction, have, by)?;
    if let Some(table) = schema_shape::orphans(&transaction, 1)?.first() {
        return Err(Error::Constraint(format!(
            "a row of {table} refers to a row that does not exist"
        )));
    }
    if faults.hit(Step::Migrate) {
        return Err(Error::Full);
    }
    transaction.commit().map_err(Error::at_commit)?;
    Ok(have)
}

/// Upgrades the file of a month, if it is older. Its rows refer to rows of other files.
/// Fails if the file is newer, or a step fails; then it is unchanged.
pub fn migrate_month(path: &Path, faults: &Faults) -> Result<()> {
    let conn = open_to_migrate(path)?;
    let have = version(path, &conn)?.unwrap_or(0);
    let mut steps = Steps::RELEASED.after(path, have)?.peekable();
    if steps.peek().is_none() {
        return Ok(());
    }
    let transaction = Transaction::new_unchecked(&conn, TransactionBehavior::Immediate)?;
    carry_out(&transaction, steps, faults)?;
    transaction.commit().map_err(Error::at_commit)
}

fn carry_out(
    transaction: &Connection,
    steps: impl Iterator<Item = (i64, &'static str)>,
    faults: &Faults,
) -> Result<()> {
    for (step, sql) in steps {
        if faults.hit(Step::Migrate) {
            return Err(Error::Full);
        }
        let in_step = |error| match error {
            Error::Sqlite(source) => Error::Schema { step, source },
            other => other,
        };
        report_views::drop_older(transaction, sql, Steps::RELEASED.sql).map_err(in_step)?;
        transaction.execute_batch(sql).map_err(Error::from).map_err(in_step)?;
    }
    sign(transaction)
}

fn open_to_migrate(path: &Path) -> Result<Connection> {
    let conn = open_raw(path)?;
    // A step may drop a table and recreate it under the old name. Foreign keys would report its rows as missing, so
    // they are off, and orphans are checked before the commit. The modern ALTER TABLE would fail if an ERP has a view
    // of the dropped table; legacy_alter_table ignores views.
    conn.execute_batch(
        "PRAGMA synchronous = FULL;
         PRAGMA foreign_keys = OFF;
         PRAGMA legacy_alter_table = ON;
         PRAGMA secure_delete = ON;
         PRAGMA trusted_schema = OFF;",
    )?;
    Ok(conn)
}

/// Appends the upgrade's audit event.
fn note(conn: &Connection, from: i64, (at, who): &(Timestamp, Actor)) -> Result<()> {
    let cache = WriterCache::default();
    let changes = Changes::between(&json!({ "schema": from }), &json!({ "schema": VERSION }));
    let event = NewAuditEvent::local(*at, DEFAULT_TENANT, who.clone(), "database.upgrade");
    let event = event.of("database", "oncebox.db", changes);
    audit_events::append(&WriteTx::new(conn, &cache), &event).map(drop)
}

/// Stores the schema version, and the version of this program.
fn sign(conn: &Connection) -> Result<()> {
    conn.pragma_update(None, "user_version", VERSION)?;
    conn.execute(SIGN, [PROGRAM])?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the store is what opens the database")]
fn open_raw(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_handler(Some(wait_for_lock))?;
    pool::keep_statements(&conn)?;
    Ok(conn)
}

fn assert_pragmas(path: &Path, conn: &Connection) -> Result<()> {
    for (pragma, want) in [
        ("journal_mode", "wal"),
        ("synchronous", "2"),
        ("foreign_keys", "1"),
        ("auto_vacuum", "2"),
        ("secure_delete", "1"),
    ] {
        let have = conn.query_row(&format!("PRAGMA {pragma}"), [], |row| {
            row.get_ref(0).map(|value| match value {
                rusqlite::types::ValueRef::Integer(number) => number.to_string(),
                other => other.as_str().unwrap_or("?").to_owned(),
            })
        })?;
        if have != want {
            return Err(Error::Pragma { path: path.to_owned(), pragma, have, want });
        }
    }
    Ok(())
}

/// Syncs the directory: a new file is durable only if its directory entry is.
fn sync_directory(path: &Path) -> Result<()> {
    let directory =
        path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    std::fs::File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|source| Error::File { path: directory.to_owned(), source: Arc::new(source) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by() -> (Timestamp, Actor) {
        (Timestamp::from_secs(0), Actor::system())
    }
    use crate::store::schema_shape::shape;

    /// An invented step to today's schema: it recreates a table.
    const STEPS: Steps = Steps {
        oldest: 0,
        sql: &["CREATE TABLE boots_1 (
                  seq        INTEGER PRIMARY KEY AUTOINCREMENT,
                  started_at INTEGER NOT NULL,
                  version    TEXT NOT NULL,
                  stopped_at INTEGER,
                  seen_at    INTEGER
                ) STRICT;
                INSERT INTO boots_1 SELECT seq, started_at, version, stopped_at, seen_at FROM boots;
                DROP TABLE boots;
                ALTER TABLE boots_1 RENAME TO boots;"],
    };

    /// A file of the version before [`STEPS`].
    #[expect(clippy::disallowed_methods, reason = "the test plays the older version")]
    fn older_file(path: &Path) {
        drop(open_writer(path).unwrap());
        let conn = Connection::open(path).unwrap();
        conn.execute_batch("ALTER TABLE boots ADD COLUMN host TEXT").unwrap();
        conn.execute_batch("INSERT INTO boots (started_at, version) VALUES (7, '0.0.9')").unwrap();
        conn.pragma_update(None, "user_version", STEPS.oldest).unwrap();
    }

    #[test]
    fn an_older_file_is_brought_to_schema_sql_with_its_rows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("oncebox.db");
        older_file(&path);
        assert_eq!(migrate(&path, STEPS, &by(), &Faults::none()).unwrap(), STEPS.oldest);
        let stepped = open_writer(&path).unwrap();
        let written = Connection::open_in_memory().unwrap();
        written.execute_batch(SCHEMA).unwrap();
        assert_eq!(shape(&stepped).unwrap(), shape(&written).unwrap());
        let kept = "SELECT version FROM boots WHERE started_at = 7";
        let kept: String = stepped.query_row(kept, [], |row| row.get(0)).unwrap();
        assert_eq!(kept, "0.0.9");
    }

    #[test]
    fn only_the_steps_after_a_files_version_are_carried_out() {
        let steps = Steps { oldest: 3, sql: &["four", "five"] };
        let path = Path::new("oncebox.db");
        let after = |have| steps.after(path, have).map(Iterator::collect::<Vec<_>>);
        assert_eq!(steps.version(), 5);
        assert_eq!(after(3).unwrap(), [(4, "four"), (5, "five")]);
        assert_eq!(after(4).unwrap(), [(5, "five")]);
        assert_eq!(after(5).unwrap(), []);
        assert!(matches!(after(2), Err(Error::NoStep { have: 2, .. })));
    }

    #[test]
    fn a_file_from_before_the_first_release_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("oncebox.db");
        older_file(&path);
        let refused = migrate(&path, Steps::RELEASED, &by(), &Faults::none()).unwrap_err();
        assert!(refused.to_string().contains("no released oncebox made"), "{refused}");
        assert_eq!(schema_version(&path).unwrap(), Some(STEPS.oldest));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test plays the ERP")]
    fn an_erp_in_the_same_file_may_have_views_over_ours_and_orphans_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("oncebox.db");
        older_file(&path);
        let erp = Connection::open(&path).unwrap();
        erp.execute_batch(
            "PRAGMA foreign_keys = OFF;
             CREATE VIEW starts AS SELECT started_at, version FROM boots;
             CREATE TABLE customers (id INTEGER PRIMARY KEY);
             CREATE TABLE invoices (customer INTEGER REFERENCES customers (id));
             INSERT INTO invoices VALUES (9);",
        )
        .unwrap();
        drop(erp);
        assert_eq!(migrate(&path, STEPS, &by(), &Faults::none()).unwrap(), STEPS.oldest);
        let conn = open_writer(&path).unwrap();
        assert_eq!(schema_shape::differences(&conn).unwrap(), [""; 0]);
        let starts: i64 =
            conn.query_row("SELECT count(*) FROM starts", [], |row| row.get(0)).unwrap();
        assert_eq!(starts, 1);
        conn.pragma_update(None, "foreign_keys", false).unwrap();
        conn.execute_batch(
            "INSERT INTO failures (delivery_seq, class, code, first_at, last_at)
             VALUES (9, 'transient', '500', 0, 0)",
        )
        .unwrap();
        assert_eq!(schema_shape::orphans(&conn, 5).unwrap(), ["failures"]);
    }

    #[test]
    fn an_older_file_is_not_opened_before_it_is_brought_up_to_date() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("oncebox.db");
        older_file(&path);
        assert!(matches!(open_writer(&path), Err(Error::TooOld { have: 0, .. })));
    }

    #[test]
    fn a_fresh_file_holds_the_comments_of_schema_sql() {
        let dir = tempfile::tempdir().unwrap();
        let conn = open_writer(&dir.path().join("oncebox.db")).unwrap();
        let sql: String = conn
            .query_row("SELECT sql FROM sqlite_master WHERE name = 'outbox'", [], |row| row.get(0))
            .unwrap();
        assert!(sql.contains("-- The event's id at its source."), "{sql}");
        let made_by: String = conn.query_row(MADE_BY, [], |row| row.get(0)).unwrap();
        assert_eq!(made_by, PROGRAM);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test plays the newer version")]
    fn a_file_of_a_newer_version_is_refused_by_both_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("oncebox.db");
        drop(open_writer(&path).unwrap());
        let conn = Connection::open(&path).unwrap();
        conn.pragma_update(None, "user_version", 99).unwrap();
        conn.execute(SIGN, ["7.1.0"]).unwrap();
        let migrated = migrate(&path, STEPS, &by(), &Faults::none());
        for refusal in [open_writer(&path).unwrap_err(), migrated.unwrap_err()] {
            let refusal = refusal.to_string();
            let by_name = format!(
                "made by oncebox 7.1.0 (schema 99); this is oncebox {PROGRAM} (schema {VERSION})"
            );
            assert!(refusal.contains(&by_name), "{refusal}");
        }
    }

    #[test]
    fn a_file_that_is_no_database_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("oncebox.db");
        std::fs::write(&path, "this is a text file, and a long one ".repeat(200)).unwrap();
        let before = std::fs::read(&path).unwrap();
        assert!(open_writer(&path).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}
