//! Backups of the running service: when somebody asks, and scheduled: makes one when the newest is old enough, then removes the oldest ones. `pipeline` gives it a
//! thread of its own, because a copy can take minutes.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::backup::manifest::{Manifest, Reason};
use crate::backup::online::{self, Plan};
use crate::backup::{Bytes, Error, Result, file_error, retention};
use crate::base::clock::{Clock, Timestamp};
use crate::base::faults::Faults;
use crate::base::stop::Stop;
use crate::store::error::Error as StoreError;
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;
use crate::store::{Store, meta};

/// How often to check whether a backup is due.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// The pause after a failed backup, unless the next is due earlier.
const RETRY_AFTER: Duration = Duration::from_mins(10);

/// Makes and lists backups in one directory. Clones share whether one is being made.
#[derive(Clone, Debug)]
pub struct Backups {
    /// The file.
    pub store: Store,
    /// Time.
    pub clock: Clock,
    /// The directory of the backups; created if it is missing.
    pub directory: PathBuf,
    /// How many scheduled backups are kept.
    pub keep: usize,
    /// Abandons a copy that somebody asked for.
    pub stop: Stop,
    /// Whether one is being made.
    pub running: Arc<AtomicBool>,
}

/// While this exists, no other backup begins.
#[derive(Debug)]
pub struct Running(Arc<AtomicBool>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Backups {
    /// Begins a backup; `None` while another one is being made.
    pub fn begin(&self) -> Option<Running> {
        let was_running = self.running.swap(true, Ordering::AcqRel);
        (!was_running).then(|| Running(Arc::clone(&self.running)))
    }

    /// The backups that are there, the newest first.
    pub fn list(&self) -> Vec<retention::BackupFile> {
        // The directory is made with the first backup.
        retention::list(&self.directory).unwrap_or_default()
    }

    /// Takes a backup, and only then removes old ones. The caller has begun it.
    pub fn take(&self, reason: Reason, stop: &Stop) -> Result<(PathBuf, Manifest)> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.directory);
        made.map_err(file_error(&self.directory))?;
        let now = self.clock.wall();
        let plan = Plan {
            database: self.store.path().to_owned(),
            to: online::destination(&self.directory, now),
            reason,
            now,
            faults: Faults::none(),
        };
        let manifest = online::take(&plan, &mut |_| !stop.asked())?;
        for removed in retention::clear(&self.directory, self.keep, manifest.created_at)? {
            tracing::info!(path = %removed.display(), "an old backup was removed");
        }
        Ok((plan.to, manifest))
    }
}

/// The scheduled backups.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Makes them.
    pub backups: Backups,
    /// The interval.
    pub every: Duration,
}

impl Schedule {
    /// Makes backups until a stop is asked for. A copy under way is then abandoned, and leaves nothing that counts as
    /// a backup.
    pub fn run(&self, stop: &Stop) {
        let clock = &self.backups.clock;
        let mut next = clock.monotonic().saturating_add(self.left());
        while !stop.wait(CHECK_EVERY) {
            if clock.monotonic() < next {
                continue;
            }
            let Some(running) = self.backups.begin() else { continue };
            let taken = self.backups.take(Reason::Scheduled, stop);
            drop(running);
            if stop.asked() {
                return;
            }
            let wait = if taken.is_ok() { self.every } else { self.every.min(RETRY_AFTER) };
            next = clock.monotonic().saturating_add(wait);
            self.report(taken.map(|(_, manifest)| manifest));
        }
    }

    /// The time until the next backup is due. One dated in the future, by a clock that was wrong, does not count: nobody
    /// knows when it was made.
    fn left(&self) -> Duration {
        let now = self.backups.clock.wall();
        let counts = |backup: &retention::BackupFile| {
            backup.manifest.reason == Reason::Scheduled && backup.manifest.created_at <= now
        };
        self.backups.list().into_iter().find(counts).map_or(Duration::ZERO, |newest| {
            self.every.saturating_sub(now.since(newest.manifest.created_at))
        })
    }

    /// Logs the outcome, and stores a failure in the database for the health checks.
    fn report(&self, taken: Result<Manifest>) {
        let failure = match taken {
            Ok(Manifest { file, bytes, .. }) => {
                tracing::info!(file, size = %Bytes(bytes), "a backup was made");
                None
            }
            // The service stops; this is no failure.
            Err(Error::Store(StoreError::Stopped)) => return,
            Err(error) => {
                tracing::error!(%error, "a backup could not be made; it is retried");
                Some((self.backups.clock.wall(), error.to_string()))
            }
        };
        if let Err(error) = self.note(failure) {
            tracing::warn!(%error, "the outcome of a backup could not be stored");
        }
    }

    fn note(&self, failure: Option<(Timestamp, String)>) -> Result<()> {
        let noted = self.backups.store.read(meta::backup_failure)?;
        if failure.is_none() && noted.is_none() {
            return Ok(());
        }
        let run = move |tx: &WriteTx<'_>| meta::set_backup_failure(tx, failure.as_ref());
        Ok(self.backups.store.writer().write(Queue::Upkeep, run)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_backup_is_made_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _writer) = Store::open(&dir.path().join("oncebox.db"), Faults::none()).unwrap();
        let backups = Backups {
            store,
            clock: Clock::machine(),
            directory: dir.path().join("backups"),
            keep: 1,
            stop: Stop::new(),
            running: Arc::default(),
        };
        let other = backups.clone();
        let running = backups.begin().unwrap();
        assert!(other.begin().is_none());
        drop(running);
        assert!(other.begin().is_some());
        assert!(backups.begin().is_some());
    }
}
