//! How the writer gets on with other processes that write the file: it takes the lock when they let go of it,
//! leaves them gaps, and says when it is kept out.
//!
//! SQLite has no queue for its write lock. Who wants it tries again and again, with growing pauses, so that
//! whoever takes it anew at once keeps everybody out for seconds. Why the numbers are what they are, and what
//! was measured: `docs/decisions/0009-plain-sql.md`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::machine::locks;
use crate::machine::watch::Watch;
use crate::store::error::{Error, Result};
use crate::store::work_done::WorkDone;

/// The writer gives way when it has had the lock for so much longer than it was free.
const DEBT: Duration = Duration::from_millis(50);
/// How long the gap is: longer than the pauses of SQLite's own busy handler in the first 100 ms of waiting (1, 2,
/// 5, 10, 15, 20, 25 ms), so that one of its tries comes while it lasts.
const GAP: Duration = Duration::from_millis(30);
/// The gap is over when others have committed in it and leave the lock alone for so long.
const GAP_UNUSED: Duration = Duration::from_millis(3);
/// How often the gap is looked at.
const LOOK: Duration = Duration::from_micros(500);
/// How long another process is reckoned with after it was seen.
const LATELY: Duration = Duration::from_secs(2);
/// How often it is looked for.
const LOOKED_FOR: Duration = Duration::from_millis(100);

/// How long the lock is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it is waited for once that was in vain.
const PATIENCE_LOCKED_OUT: Duration = Duration::from_millis(100);
/// How long between two tries at first, while nothing happens to the log.
const PAUSE: Duration = Duration::from_millis(1);
/// How many such tries there are. A transaction that takes longer is worth a processor: who misses its end waits
/// for a second one.
const PAUSES_MOST: u32 = 20;
/// The same where the log is not watched.
const PAUSE_UNTOLD: Duration = Duration::from_micros(20);
/// What the writer remembers of the others.
#[derive(Debug)]
pub(crate) struct Manners {
    /// The write-ahead log, and the index beside it on which everybody who has the file open keeps a lock.
    log: PathBuf,
    index: PathBuf,
    share: Share,
    /// The file's version when it was last asked; only others' commits change it.
    version: Option<i64>,
    /// When another process was last seen, and when it was last looked for.
    others_at: Option<Duration>,
    looked_at: Option<Duration>,
    /// Whether the lock could not be had.
    locked_out: bool,
    /// Made when the lock is waited for the first time.
    watch: Option<Watch>,
}

/// How much longer the writer had the lock than it was free.
#[derive(Debug, Default)]
struct Share {
    debt: Duration,
    taken_at: Duration,
    freed_at: Duration,
}

impl Share {
    fn took(&mut self, now: Duration) {
        self.debt = self.debt.saturating_sub(now.saturating_sub(self.freed_at));
        self.taken_at = now;
    }

    fn freed(&mut self, now: Duration) {
        self.debt = self.debt.saturating_add(now.saturating_sub(self.taken_at)).min(DEBT);
        self.freed_at = now;
    }

    fn is_due(&self) -> bool {
        self.debt >= DEBT
    }
}

impl Manners {
    /// Those of the writer of a file, which knows of nobody yet.
    pub(crate) fn new(file: Option<&str>) -> Self {
        let beside = |ending: &str| PathBuf::from(format!("{}{ending}", file.unwrap_or_default()));
        Self {
            log: beside("-wal"),
            index: beside("-shm"),
            share: Share::default(),
            version: None,
            others_at: None,
            looked_at: None,
            locked_out: false,
            watch: None,
        }
    }

    /// Begins a transaction, waiting for other processes as long as they may be waited for.
    ///
    /// # Errors
    /// `Busy` when they have the lock for longer.
    pub(crate) fn begin<'conn>(
        &mut self,
        conn: &'conn Connection,
        done: &WorkDone,
    ) -> Result<Transaction<'conn>> {
        let asked = done.now();
        let mut tries = Tries::default();
        loop {
            match Transaction::new_unchecked(conn, TransactionBehavior::Immediate) {
                Ok(transaction) => {
                    self.share.took(done.now());
                    return Ok(transaction);
                }
                Err(error) => match Error::from(error) {
                    Error::Busy if done.now().saturating_sub(asked) < self.patience() => {
                        self.others_at = Some(done.now());
                        let watch = self.watch.get_or_insert_with(Watch::new);
                        tries.pause(watch, &self.log, !self.locked_out);
                    }
                    error => return Err(error),
                },
            }
        }
    }

    /// The transaction has ended, one way or the other.
    pub(crate) fn ended(&mut self, now: Duration) {
        self.share.freed(now);
    }

    /// Pauses where others have the file open and the writer has kept them out for long.
    #[expect(clippy::disallowed_methods, reason = "the pause is what others get in by")]
    pub(crate) fn give_way(&mut self, conn: &Connection, done: &WorkDone) {
        let began = done.now();
        if !self.share.is_due() || !self.has_others(conn, began) {
            return;
        }
        // What they committed before does not count as use of this gap.
        let _committed_before = self.is_changed(conn);
        let (mut now, mut used_at) = (began, None);
        while now.saturating_sub(began) < GAP {
            std::thread::sleep(LOOK);
            now = done.now();
            if self.is_changed(conn) {
                (used_at, self.others_at) = (Some(now), Some(now));
            }
            if used_at.is_some_and(|at| now.saturating_sub(at) >= GAP_UNUSED) {
                break;
            }
        }
        self.share = Share { freed_at: now, ..Share::default() };
    }

    /// Whether another process has the file open, or has written it lately.
    fn has_others(&mut self, conn: &Connection, now: Duration) -> bool {
        if self.looked_at.is_none_or(|at| now.saturating_sub(at) >= LOOKED_FOR) {
            self.looked_at = Some(now);
            if self.is_changed(conn) || locks::held_by_another(&self.index) {
                self.others_at = Some(now);
            }
        }
        self.others_at.is_some_and(|at| now.saturating_sub(at) < LATELY)
    }

    /// Whether somebody else has committed since this was last asked.
    fn is_changed(&mut self, conn: &Connection) -> bool {
        let version = data_version(conn).ok();
        let before = std::mem::replace(&mut self.version, version);
        before.is_some() && before != version
    }

    /// Another process has held the lock for too long.
    pub(crate) fn locked_out(&mut self) {
        if !std::mem::replace(&mut self.locked_out, true) {
            tracing::warn!(
                "another program has kept the database locked for more than two seconds; what comes in is \
                 answered 503 until it lets go"
            );
        }
    }

    /// The lock could be had.
    pub(crate) fn got_in(&mut self) {
        if std::mem::take(&mut self.locked_out) {
            tracing::info!("the database is no longer locked by another program");
        }
    }

    /// How long to wait for the lock: who comes while it is known to be kept is told soon.
    fn patience(&self) -> Duration {
        if self.locked_out { PATIENCE_LOCKED_OUT } else { PATIENCE }
    }
}

/// How the next try of one wait is waited for.
///
/// Between two transactions of a program that makes no pause the lock is free for some 20 µs: who sleeps misses
/// that. So the pauses end when the log is written to, which is when the other is about to commit, or when it
/// takes long; but not once the writer is locked out, which may last for hours.
#[derive(Debug, Default)]
enum Tries {
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

impl Tries {
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
            Self::Eager => std::hint::spin_loop(),
            Self::Untold => std::thread::sleep(PAUSE_UNTOLD),
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

    /// Whether somebody who has the lock for `held` ms and leaves it for `free` ms ever gives way.
    fn gives_way(held: u32, free: u32) -> bool {
        let (mut share, mut now) = (Share::default(), Duration::ZERO);
        (0..1000).any(|_| {
            now += free * MS;
            share.took(now);
            now += held * MS;
            share.freed(now);
            share.is_due()
        })
    }

    #[test]
    fn a_writer_that_has_the_lock_more_than_half_of_the_time_gives_way() {
        assert!(gives_way(4, 0));
        assert!(gives_way(4, 3));
        assert!(!gives_way(4, 4));
        assert!(!gives_way(4, 16));
    }

    #[test]
    fn one_long_transaction_is_enough_and_a_long_rest_is_not_saved_up() {
        let mut share = Share::default();
        share.took(10_000 * MS);
        share.freed(10_060 * MS);
        assert!(share.is_due());
        share.took(10_070 * MS);
        assert!(!share.is_due());
    }
}
