//! The file's write lock, where other processes take it as well: whether anybody else has the file open, and how
//! the lock is waited for.
//!
//! SQLite keeps its locks on bytes of the index beside the log (<https://sqlite.org/walformat.html>, "WAL Locks").
//! They are looked at and waited for here, never held: every transaction gets its lock from SQLite.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::machine::lock_queue::LockQueue;
use crate::machine::locks::LockFile;
use crate::machine::watch::Watch;

/// The byte that a writer locks.
const WRITE: u16 = 120;
/// The byte that everybody locks who has the file open and has read it ("dead man switch", `os_unix.c`).
const OPEN: u16 = 128;

/// Turns that may come in vain within one wait: then it is another lock that is in the way, of somebody who wants
/// the file for himself.
const TURNS_MOST: u32 = 3;
/// How long a turn is waited for until it is looked whether it was missed.
const LOOK: Duration = Duration::from_millis(50);
/// How long between two tries at first, while nothing happens to the log.
const PAUSE: Duration = Duration::from_millis(1);
/// How many such tries there are. A transaction that takes longer is worth a processor: who misses its end waits
/// for a second one.
const PAUSES_MOST: u32 = 20;
/// The same where the log is not watched.
const PAUSE_UNTOLD: Duration = Duration::from_micros(20);

/// The write lock of one file.
#[derive(Debug)]
pub(crate) struct WriteLock {
    /// The write-ahead log, and the index beside it.
    log: PathBuf,
    index: PathBuf,
    /// The index, once it was needed.
    locks: Option<LockFile>,
    queue: Queue,
    /// Made when the lock is waited for without a queue.
    watch: Option<Watch>,
}

/// The kernel's queue for the lock.
#[derive(Debug)]
enum Queue {
    /// Nobody was in the way so far.
    Unneeded,
    Open(LockQueue),
    /// This system has none.
    None,
}

/// What was tried within one wait.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    turns: u32,
    has_waited: bool,
    has_missed_turn: bool,
    pauses: Pauses,
}

impl Tries {
    /// Notes whether others have committed since this was last noted: if they have while a turn was waited for, the
    /// queue was too late.
    pub(crate) fn note(&mut self, is_changed: bool) {
        self.has_missed_turn |= is_changed && self.has_waited;
    }

    fn may_queue(&self) -> bool {
        self.turns < TURNS_MOST && !self.has_missed_turn
    }
}

impl WriteLock {
    /// That of a database file.
    pub(crate) fn new(file: Option<&str>) -> Self {
        let beside = |ending: &str| PathBuf::from(format!("{}{ending}", file.unwrap_or_default()));
        Self {
            log: beside("-wal"),
            index: beside("-shm"),
            locks: None,
            queue: Queue::Unneeded,
            watch: None,
        }
    }

    /// Whether another process has the file open.
    pub(crate) fn is_shared(&mut self) -> bool {
        self.locks().is_some_and(|locks| locks.is_held_by_another(OPEN))
    }

    /// Waits for a moment at which the lock may be had, at most so long and for 50 ms.
    pub(crate) fn wait(&mut self, tries: &mut Tries, at_most: Duration, may_hurry: bool) {
        tries.has_waited = true;
        if tries.may_queue()
            && let Some(queue) = self.queue()
        {
            match queue.wait(at_most.min(LOOK)) {
                Ok(came) => tries.turns = tries.turns.saturating_add(u32::from(came)),
                Err(error) => self.do_without(&error),
            }
            return;
        }
        let watch = self.watch.get_or_insert_with(Watch::new);
        tries.pauses.pause(watch, &self.log, may_hurry);
    }

    fn queue(&mut self) -> Option<&LockQueue> {
        if matches!(self.queue, Queue::Unneeded) {
            match self.locks().map(|locks| LockQueue::start(locks, WRITE)) {
                Some(Ok(queue)) => self.queue = Queue::Open(queue),
                Some(Err(error)) => self.do_without(&error),
                None => {}
            }
        }
        match &self.queue {
            Queue::Open(queue) => Some(queue),
            Queue::Unneeded | Queue::None => None,
        }
    }

    fn do_without(&mut self, error: &std::io::Error) {
        tracing::info!(
            %error,
            "another program writes the database, and its lock cannot be queued for here; it is tried for again \
             and again, which takes a processor while that program is busy"
        );
        self.queue = Queue::None;
    }

    /// The index. It is there as long as a connection is open.
    fn locks(&mut self) -> Option<LockFile> {
        if self.locks.is_none() {
            self.locks = LockFile::open(&self.index).ok();
        }
        self.locks
    }
}

/// How the next try is waited for where there is no queue.
///
/// Between two transactions of a program that makes no pause the lock is free for some 20 µs: who sleeps misses
/// that. So the pauses end when the log is written to, which is when the other is about to commit, or when it
/// takes long; but not once the writer is locked out, which may last for hours.
#[derive(Debug, Default)]
enum Pauses {
    /// There was none yet.
    #[default]
    First,
    /// Until the log is written to, so often.
    Told(u32),
    /// Not at all: there is a processor to spare.
    Eager,
    /// Nobody tells, or there is only one processor, which the other needs.
    Untold,
}

impl Pauses {
    #[expect(clippy::disallowed_methods, reason = "the pause between two tries")]
    fn pause(&mut self, watch: &Watch, log: &Path, may_hurry: bool) {
        match self {
            Self::First => {
                let can_spare = std::thread::available_parallelism().is_ok_and(|n| n.get() > 1);
                *self = if can_spare && watch.add(log) { Self::Told(0) } else { Self::Untold };
            }
            Self::Told(pauses) => {
                *pauses = pauses.saturating_add(1);
                let is_near = watch.wait(PAUSE) || *pauses >= PAUSES_MOST;
                if may_hurry && is_near {
                    *self = Self::Eager;
                }
            }
            Self::Eager if may_hurry => std::hint::spin_loop(),
            Self::Eager => std::thread::sleep(PAUSE),
            Self::Untold => std::thread::sleep(if may_hurry { PAUSE_UNTOLD } else { PAUSE }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::{Connection, ErrorCode};

    const LONG: Duration = Duration::from_secs(20);

    #[expect(clippy::disallowed_methods, reason = "it is not our database")]
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

    /// Begins a transaction as the writer does; gives the number of tries that failed.
    fn begin(conn: &Connection, lock: &mut WriteLock) -> u32 {
        let (mut tries, mut failed) = (Tries::default(), 0);
        while let Err(error) = conn.execute_batch("BEGIN IMMEDIATE") {
            assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy), "{error}");
            lock.wait(&mut tries, LONG, true);
            failed += 1;
        }
        failed
    }

    /// Begins while another has the lock, who is done a moment later.
    fn begin_beside(other: Connection, ours: &Connection, lock: &mut WriteLock) -> u32 {
        other.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES (1)").unwrap();
        std::thread::scope(|threads| {
            threads.spawn(move || {
                Watch::new().wait(Duration::from_millis(30));
                other.execute_batch("COMMIT").unwrap();
            });
            begin(ours, lock)
        })
    }

    #[test]
    fn the_lock_is_had_at_the_end_of_the_others_transaction() {
        let (directory, [ours, other]) = database();
        let mut lock = WriteLock::new(directory.path().join("file.db").to_str());
        assert!(begin_beside(other, &ours, &mut lock) > 0);
        assert!(!matches!(lock.queue, Queue::Unneeded));
    }

    #[test]
    fn who_has_missed_a_turn_tries_for_the_lock_himself() {
        let (directory, [ours, other]) = database();
        let mut lock = WriteLock::new(directory.path().join("file.db").to_str());
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut tries = Tries::default();
        // What others did before does not count.
        tries.note(true);
        lock.wait(&mut tries, Duration::ZERO, true);
        assert!(tries.may_queue());
        tries.note(false);
        assert!(tries.may_queue());
        tries.note(true);
        assert!(!tries.may_queue());
        lock.wait(&mut tries, LONG, true);
        assert!(
            ours.execute_batch("BEGIN IMMEDIATE").is_err(),
            "it came back though nobody let go"
        );
    }

    #[test]
    fn without_a_queue_it_is_had_by_trying() {
        let (directory, [ours, other]) = database();
        let mut lock = WriteLock::new(directory.path().join("file.db").to_str());
        lock.queue = Queue::None;
        assert!(begin_beside(other, &ours, &mut lock) > 0);
        assert!(matches!(lock.queue, Queue::None));
    }

    #[test]
    fn who_wants_the_file_for_himself_is_waited_for_too() {
        let (directory, both) = database();
        drop(both);
        let [ours, other] = [0, 1].map(|_| open(&directory));
        let mut lock = WriteLock::new(directory.path().join("file.db").to_str());
        other.execute_batch("PRAGMA locking_mode = EXCLUSIVE").unwrap();
        assert!(begin_beside(other, &ours, &mut lock) > 0);
        assert!(!lock.is_shared(), "this process alone has it open");
    }
}
