//! How the writer gets on with other processes that write the file: it leaves them gaps, and says when it is
//! kept out.
//!
//! SQLite has no queue for its write lock. Who wants it looks again and again, with growing pauses, and a
//! writer that takes it anew at once keeps everybody out for seconds.

use std::time::Duration;

use rusqlite::Connection;

use crate::store::error::Result;

/// After so long without a pause others get a gap.
const STRETCH: Duration = Duration::from_millis(50);
/// How long the gap is, unless somebody commits in it: longer than the pauses of SQLite's own busy handler in
/// the first 100 ms of waiting (1, 2, 5, 10, 15, 20, 25 ms), so that one of its tries comes while it lasts.
const GAP: Duration = Duration::from_millis(30);
/// How often the gap is looked at.
const LOOK: Duration = Duration::from_micros(500);
/// A pause of the writer's own that is long enough to be one.
const PAUSE: Duration = Duration::from_millis(1);
/// How long another writer is reckoned with after a commit of its own.
const LATELY: Duration = Duration::from_secs(2);

/// How long the lock is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it is waited for once that was in vain.
const PATIENCE_LOCKED_OUT: Duration = Duration::from_millis(100);

/// What the writer remembers of the others.
#[derive(Debug, Default)]
pub(crate) struct Manners {
    /// When the writer last paused.
    rested_at: Duration,
    /// The file's version when it was last asked; only others' commits change it.
    version: Option<i64>,
    /// When another process was last seen to have committed.
    others_at: Option<Duration>,
    /// Whether the lock could not be had.
    locked_out: bool,
}

impl Manners {
    /// The writer has waited for work.
    pub(crate) fn waited(&mut self, began: Duration, ended: Duration) {
        if ended.saturating_sub(began) >= PAUSE {
            self.rested_at = ended;
        }
    }

    /// Pauses where others write and the writer has not paused for long.
    #[expect(clippy::disallowed_methods, reason = "the pause is what others get in by")]
    pub(crate) fn give_way(&mut self, conn: &Connection, now: Duration) {
        if now.saturating_sub(self.rested_at) < STRETCH {
            return;
        }
        let version = data_version(conn).ok();
        if self.version.is_some() && version != self.version {
            self.others_at = Some(now);
        }
        self.version = version;
        if self.others_at.is_some_and(|at| now.saturating_sub(at) < LATELY) {
            let looks = GAP.as_micros().checked_div(LOOK.as_micros()).unwrap_or(0);
            for _ in 0..looks {
                std::thread::sleep(LOOK);
                if data_version(conn).ok() != self.version {
                    break;
                }
            }
        }
        self.rested_at = now;
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
    pub(crate) fn patience(&self) -> Duration {
        if self.locked_out { PATIENCE_LOCKED_OUT } else { PATIENCE }
    }
}

/// A number that changes with every commit of another connection.
pub(crate) fn data_version(conn: &Connection) -> Result<i64> {
    Ok(conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?)
}
