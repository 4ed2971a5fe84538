//! Sharing SQLite's write lock with other programs: the writer waits for the lock, yields it regularly, and logs when
//! it is locked out.
//!
//! SQLite has no queue for its write lock: a program that wants it retries with growing pauses.
//! `docs/decisions/0009-plain-sql.md` explains the constants with measurements.

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::store::error::{Error, Result};
use crate::store::work_done::WorkDone;
use crate::sys::locks::LockFile;

/// The byte of `-shm` that every program with the file open locks ("dead man switch" in SQLite's `os_unix.c`).
const OPEN_BYTE: u16 = 128;
/// The writer yields when it has held the lock for this much longer than the lock was free.
const HELD_LIMIT: Duration = Duration::from_millis(50);
/// How long the writer yields. It is longer than the pauses of SQLite's busy handler in the first 100 ms (1, 2, 5, 10,
/// 15, 20, 25 ms), so that another program tries at least once during the gap.
const GAP: Duration = Duration::from_millis(30);
/// After another program's commit, the gap ends early if no further commit follows within this time.
const GAP_UNUSED: Duration = Duration::from_millis(3);
/// How often the gap is checked for a commit.
const GAP_CHECK: Duration = Duration::from_micros(500);
/// For how long the answer to "does another program have the file open?" is cached.
const SHARED_FOR: Duration = Duration::from_millis(100);
/// How long the writer sleeps between two tries for the lock. A program with short transactions in a tight loop frees
/// the lock for about 20 µs only; a few tries are enough to hit such a moment.
const RETRY: Duration = Duration::from_micros(100);
/// For how long the writer uses [`RETRY`].
const RETRY_OFTEN: Duration = Duration::from_millis(100);
/// How long it sleeps between two tries after that: the other transaction is a long one.
const RETRY_LONG: Duration = Duration::from_millis(1);
/// How long it sleeps between two tries while it is locked out, which may last for hours.
const RETRY_LOCKED_OUT: Duration = Duration::from_millis(4);
/// How long a transaction waits for the lock.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a transaction waits while the writer is locked out, so that clients get a 503 quickly.
const PATIENCE_LOCKED_OUT: Duration = Duration::from_millis(100);

/// What the writer knows about other programs that use its file.
#[derive(Debug)]
pub(crate) struct WriteContention {
    /// The `-shm` file, on which SQLite takes its locks.
    index: PathBuf,
    index_file: Option<LockFile>,
    /// When it was last checked whether another program has the file open, and the result.
    shared: Option<(Duration, bool)>,
    /// How much longer the lock was held than free.
    held: Duration,
    taken_at: Duration,
    freed_at: Duration,
    /// The last `PRAGMA data_version`; only commits of other connections change it.
    version: Option<i64>,
    /// The service is starting: there are no clients yet that could be answered 503.
    at_start: bool,
    locked_out: bool,
}

impl WriteContention {
    /// For the writer of a file.
    pub(crate) fn new(file: Option<&str>) -> Self {
        Self {
            index: PathBuf::from(format!("{}-shm", file.unwrap_or_default())),
            index_file: None,
            shared: None,
            held: Duration::ZERO,
            taken_at: Duration::ZERO,
            freed_at: Duration::ZERO,
            version: None,
            at_start: false,
            locked_out: false,
        }
    }

    /// Sets whether the service is starting. While it is, the writer waits for the lock without a limit and logs it.
    pub(crate) fn set_at_start(&mut self, at_start: bool) {
        self.at_start = at_start;
    }

    /// Begins a transaction. While another program has the lock, it sleeps and retries: for at most 2 s, except while
    /// the service is starting.
    /// Fails with `Busy` after that time.
    #[expect(clippy::disallowed_methods, reason = "the pause between two tries for the lock")]
    pub(crate) fn begin<'conn>(
        &mut self,
        conn: &'conn Connection,
        done: &WorkDone,
    ) -> Result<Transaction<'conn>> {
        let asked = done.now();
        loop {
            let begun = Transaction::new_unchecked(conn, TransactionBehavior::Immediate);
            let now = done.now();
            let waited = now.saturating_sub(asked);
            let patience = if self.locked_out { PATIENCE_LOCKED_OUT } else { PATIENCE };
            match begun.map_err(Error::from) {
                Ok(transaction) => {
                    self.held = self.held.saturating_sub(now.saturating_sub(self.freed_at));
                    self.taken_at = now;
                    let _noted = self.is_changed(conn, done);
                    if self.at_start {
                        self.lock_acquired();
                    }
                    return Ok(transaction);
                }
                Err(Error::Busy) if waited < patience => {}
                Err(Error::Busy) if self.at_start => self.locked_out(),
                Err(error) => return Err(error),
            }
            std::thread::sleep(match self.locked_out {
                true => RETRY_LOCKED_OUT,
                false if waited < RETRY_OFTEN => RETRY,
                false => RETRY_LONG,
            });
        }
    }

    /// Notes that the transaction has ended, committed or not.
    pub(crate) fn ended(&mut self, now: Duration) {
        let held = now.saturating_sub(self.taken_at);
        self.held = self.held.saturating_add(held).min(HELD_LIMIT);
        self.freed_at = now;
    }

    /// After holding the lock for 50 ms in total, sleeps once so that other programs can commit. Does nothing if no
    /// other program has the file open.
    #[expect(clippy::disallowed_methods, reason = "other programs commit during the pause")]
    pub(crate) fn yield_lock(&mut self, conn: &Connection, done: &WorkDone) {
        let began = done.now();
        if self.held < HELD_LIMIT || !self.is_shared(began) {
            return;
        }
        // Earlier commits do not count as use of this gap.
        let _noted = self.is_changed(conn, done);
        let mut now = began;
        let mut used_at = None;
        while now.saturating_sub(began) < GAP {
            std::thread::sleep(GAP_CHECK);
            now = done.now();
            if self.is_changed(conn, done) {
                used_at = Some(now);
            }
            if used_at.is_some_and(|at| now.saturating_sub(at) >= GAP_UNUSED) {
                break;
            }
        }
        (self.held, self.freed_at) = (Duration::ZERO, now);
    }

    /// Whether another program has committed since the last call. Counts such commits for the relay.
    fn is_changed(&mut self, conn: &Connection, done: &WorkDone) -> bool {
        let version = data_version(conn).ok();
        let before = std::mem::replace(&mut self.version, version);
        let is_changed = before.is_some() && before != version;
        if is_changed {
            done.foreign_commits.add();
        }
        is_changed
    }

    /// Whether another program has the file open.
    fn is_shared(&mut self, now: Duration) -> bool {
        match self.shared {
            Some((at, is_shared)) if now.saturating_sub(at) < SHARED_FOR => is_shared,
            _ => {
                if self.index_file.is_none() {
                    self.index_file = LockFile::open(&self.index).ok();
                }
                let is_shared = self.index_file.is_some_and(|f| f.is_held_by_another(OPEN_BYTE));
                self.shared = Some((now, is_shared));
                is_shared
            }
        }
    }

    /// Notes that the writer is locked out; logs the first time.
    pub(crate) fn locked_out(&mut self) {
        let was_locked_out = std::mem::replace(&mut self.locked_out, true);
        match self.at_start {
            _ if was_locked_out => {}
            true => tracing::warn!(
                "another program keeps the database locked; the start continues when the lock is released"
            ),
            false => tracing::warn!(
                "another program has kept the database locked for more than two seconds; new requests are \
                 answered 503 until the lock is released"
            ),
        }
    }

    /// Notes that the writer has the lock again; logs it if the writer was locked out.
    pub(crate) fn lock_acquired(&mut self) {
        if std::mem::take(&mut self.locked_out) {
            tracing::info!("the database is no longer locked by another program");
        }
    }
}

/// A number that changes with every commit of another connection.
pub(crate) fn data_version(conn: &Connection) -> Result<i64> {
    Ok(conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[expect(clippy::disallowed_methods, reason = "the test opens a database of another program")]
    fn open(directory: &tempfile::TempDir) -> Connection {
        let conn = Connection::open(directory.path().join("file.db")).unwrap();
        conn.busy_timeout(Duration::ZERO).unwrap();
        conn
    }

    fn database() -> (tempfile::TempDir, [Connection; 2]) {
        let directory = tempfile::tempdir().unwrap();
        let both = [0, 1].map(|_| open(&directory));
        for conn in &both {
            conn.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS t (n)")
                .unwrap();
        }
        (directory, both)
    }

    /// Whether a writer that holds the lock for `held` ms and then frees it for `free` ms must ever yield.
    fn is_ever_due(held: u32, free: u32) -> bool {
        let mut contention = WriteContention::new(None);
        let mut now = Duration::ZERO;
        (0..1000).any(|_| {
            now += free * MS;
            contention.held =
                contention.held.saturating_sub(now.saturating_sub(contention.freed_at));
            contention.taken_at = now;
            now += held * MS;
            contention.ended(now);
            contention.held >= HELD_LIMIT
        })
    }

    #[test]
    fn a_gap_is_due_where_the_lock_is_held_more_than_half_of_the_time() {
        assert!(is_ever_due(4, 0));
        assert!(is_ever_due(4, 3));
        assert!(!is_ever_due(4, 4));
        assert!(!is_ever_due(4, 16));
        assert!(is_ever_due(60, 60), "one long transaction is enough");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the other program has the lock for a while")]
    fn the_lock_is_waited_for_until_the_other_program_commits() {
        let (_directory, [ours, other]) = database();
        let mut contention = WriteContention::new(None);
        other.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES (1)").unwrap();
        std::thread::scope(|threads| {
            threads.spawn(move || {
                std::thread::sleep(30 * MS);
                other.execute_batch("COMMIT").unwrap();
            });
            contention.begin(&ours, &WorkDone::default()).unwrap().commit().unwrap();
        });
    }

    #[test]
    fn a_lock_that_is_held_too_long_is_busy_and_sooner_while_locked_out() {
        let (_directory, [ours, other]) = database();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut contention = WriteContention::new(None);
        let done = WorkDone::default();
        let mut waited = || {
            let asked = done.now();
            assert!(matches!(contention.begin(&ours, &done), Err(Error::Busy)));
            contention.locked_out();
            done.now().saturating_sub(asked)
        };
        assert!(waited() >= PATIENCE);
        assert!(waited() >= PATIENCE_LOCKED_OUT);
        other.execute_batch("ROLLBACK").unwrap();
        contention.begin(&ours, &done).unwrap().commit().unwrap();
    }

    #[test]
    fn the_lock_is_not_yielded_if_no_other_program_has_the_file_open() {
        let (directory, [ours, _same_process]) = database();
        let mut contention = WriteContention::new(directory.path().join("file.db").to_str());
        contention.held = HELD_LIMIT;
        contention.yield_lock(&ours, &WorkDone::default());
        assert_eq!(
            (contention.shared.map(|(_, is)| is), contention.held),
            (Some(false), HELD_LIMIT)
        );
    }
}
