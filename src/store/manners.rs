//! How the writer gets on with other processes that write the file: it takes the lock when they let go of it,
//! leaves them gaps, and says when it is kept out.
//!
//! SQLite has no queue for its write lock. Who wants it tries again and again, with growing pauses, so that
//! whoever takes it anew at once keeps everybody out for seconds. Why the numbers are what they are, and what
//! was measured: `docs/decisions/0009-plain-sql.md`.

use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::store::error::{Error, Result};
use crate::store::work_done::WorkDone;
use crate::store::write_lock::{Tries, WriteLock};

/// The writer gives way when it has had the lock for so much longer than it was free, where others only have the
/// file open.
const DEBT: Duration = Duration::from_millis(50);
/// The same where they write.
const DEBT_TO_WRITERS: Duration = Duration::from_millis(30);
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

/// What the writer remembers of the others.
#[derive(Debug)]
pub(crate) struct Manners {
    lock: WriteLock,
    share: Share,
    /// The file's version when it was last asked; only others' commits change it.
    version: Option<i64>,
    /// When another process was last seen to have the file open, or to write it, and when it was last looked for.
    open_at: Option<Duration>,
    wrote_at: Option<Duration>,
    looked_at: Option<Duration>,
    /// Whether nobody is served yet.
    at_start: bool,
    /// Whether the lock could not be had.
    locked_out: bool,
}

/// What other processes do with the file.
#[derive(Clone, Copy, Debug)]
enum Others {
    Write,
    HaveItOpen,
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

    fn is_due(&self, others: Others) -> bool {
        self.debt
            >= match others {
                Others::Write => DEBT_TO_WRITERS,
                Others::HaveItOpen => DEBT,
            }
    }
}

impl Manners {
    /// Those of the writer of a file, which knows of nobody yet.
    pub(crate) fn new(file: Option<&str>) -> Self {
        Self {
            lock: WriteLock::new(file),
            share: Share::default(),
            version: None,
            open_at: None,
            wrote_at: None,
            looked_at: None,
            at_start: false,
            locked_out: false,
        }
    }

    /// The same, before anybody is served: it waits however long others keep the lock, and says so.
    pub(crate) fn patient(file: Option<&str>) -> Self {
        Self { at_start: true, ..Self::new(file) }
    }

    /// Whether nobody is served yet.
    pub(crate) fn set_at_start(&mut self, at_start: bool) {
        self.at_start = at_start;
    }

    /// Begins a transaction, waiting for other processes as long as they may be waited for: before anybody is
    /// served, who could be told to come again, that is for ever.
    ///
    /// # Errors
    /// `Busy` when they have the lock for longer.
    pub(crate) fn begin<'conn>(
        &mut self,
        conn: &'conn Connection,
        done: &WorkDone,
    ) -> Result<Transaction<'conn>> {
        let mut asked = done.now();
        let mut tries = Tries::default();
        let patience = self.patience();
        loop {
            let error = match Transaction::new_unchecked(conn, TransactionBehavior::Immediate) {
                Ok(transaction) => {
                    self.share.took(done.now());
                    if self.at_start {
                        self.got_in();
                    }
                    return Ok(transaction);
                }
                Err(error) => Error::from(error),
            };
            let now = done.now();
            let left = patience.saturating_sub(now.saturating_sub(asked));
            match error {
                Error::Busy if left > Duration::ZERO => {
                    tries.note(self.is_changed(conn));
                    self.wrote_at = Some(now);
                    self.lock.wait(&mut tries, left, !self.locked_out);
                }
                Error::Busy if self.at_start => {
                    self.locked_out();
                    (asked, tries) = (now, Tries::default());
                }
                error => return Err(error),
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
        // They are only looked for where they may be due a gap.
        let others = self.share.is_due(Others::Write).then(|| self.others(conn, began)).flatten();
        if !others.is_some_and(|others| self.share.is_due(others)) {
            return;
        }
        // What they committed before does not count as use of this gap.
        let _committed_before = self.is_changed(conn);
        let (mut now, mut used_at) = (began, None);
        while now.saturating_sub(began) < GAP {
            std::thread::sleep(LOOK);
            now = done.now();
            if self.is_changed(conn) {
                (used_at, self.wrote_at) = (Some(now), Some(now));
            }
            if used_at.is_some_and(|at| now.saturating_sub(at) >= GAP_UNUSED) {
                break;
            }
        }
        self.share = Share { freed_at: now, ..Share::default() };
    }

    /// What others have done lately.
    fn others(&mut self, conn: &Connection, now: Duration) -> Option<Others> {
        let is_lately = |at: Duration| now.saturating_sub(at) < LATELY;
        if self.looked_at.is_none_or(|at| now.saturating_sub(at) >= LOOKED_FOR) {
            self.looked_at = Some(now);
            if self.is_changed(conn) {
                self.wrote_at = Some(now);
            }
            if self.lock.is_shared() {
                self.open_at = Some(now);
            }
        }
        match (self.wrote_at, self.open_at) {
            (Some(at), _) if is_lately(at) => Some(Others::Write),
            (_, Some(at)) if is_lately(at) => Some(Others::HaveItOpen),
            _ => None,
        }
    }

    /// Whether somebody else has committed since this was last asked.
    fn is_changed(&mut self, conn: &Connection) -> bool {
        let version = data_version(conn).ok();
        let before = std::mem::replace(&mut self.version, version);
        before.is_some() && before != version
    }

    /// Another process has held the lock for too long.
    pub(crate) fn locked_out(&mut self) {
        let was_locked_out = std::mem::replace(&mut self.locked_out, true);
        match self.at_start {
            _ if was_locked_out => {}
            true => tracing::warn!(
                "another program keeps the database locked; the start goes on when it lets go"
            ),
            false => tracing::warn!(
                "another program has kept the database locked for more than two seconds; what comes in is \
                 answered 503 until it lets go"
            ),
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

/// A number that changes with every commit of another connection.
pub(crate) fn data_version(conn: &Connection) -> Result<i64> {
    Ok(conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Whether somebody who has the lock for `held` ms and leaves it for `free` ms ever gives way.
    fn gives_way(others: Others, held: u32, free: u32) -> bool {
        let (mut share, mut now) = (Share::default(), Duration::ZERO);
        (0..1000).any(|_| {
            now += free * MS;
            share.took(now);
            now += held * MS;
            share.freed(now);
            share.is_due(others)
        })
    }

    #[test]
    fn a_writer_that_has_the_lock_more_than_half_of_the_time_gives_way() {
        for others in [Others::Write, Others::HaveItOpen] {
            assert!(gives_way(others, 4, 0));
            assert!(gives_way(others, 4, 3));
            assert!(!gives_way(others, 4, 4));
            assert!(!gives_way(others, 4, 16));
        }
    }

    #[test]
    fn writers_are_given_way_to_sooner() {
        let mut share = Share::default();
        share.took(10_000 * MS);
        share.freed(10_030 * MS);
        assert!(share.is_due(Others::Write));
        assert!(!share.is_due(Others::HaveItOpen));
    }

    #[test]
    fn one_long_transaction_is_enough_and_a_long_rest_is_not_saved_up() {
        let mut share = Share::default();
        share.took(10_000 * MS);
        share.freed(10_060 * MS);
        assert!(share.is_due(Others::HaveItOpen));
        share.took(10_090 * MS);
        assert!(!share.is_due(Others::Write));
    }
}
