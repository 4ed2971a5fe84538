//! Scheduled backups: one when the newest is old enough; then the oldest beyond the number that is kept are
//! removed. `flow` gives it a thread of its own, because a copy can take minutes.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
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

/// How often it is looked whether one is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After a backup that failed the next try is made so much later, or when the next is due.
const TRY_AGAIN: Duration = Duration::from_mins(10);

/// The scheduled backups.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The file.
    pub store: Store,
    /// Time.
    pub clock: Clock,
    /// Where they are written; made where it is missing.
    pub directory: PathBuf,
    /// How often.
    pub every: Duration,
    /// How many are kept.
    pub keep: usize,
}

impl Schedule {
    /// Looks once a second until a stop is asked for. A copy that is under way is given up then, and
    /// leaves nothing that passes for a backup.
    pub fn run(&self, stop: &Stop) {
        let mut next = self.clock.now().plus(self.left());
        while !stop.wait(LOOK_EVERY) {
            if self.clock.now() < next {
                continue;
            }
            let taken = self.take(stop);
            if stop.asked() {
                return;
            }
            let wait = if taken.is_ok() { self.every } else { self.every.min(TRY_AGAIN) };
            next = self.clock.now().plus(wait);
            self.tell(taken);
        }
    }

    /// How long the newest of ours stays new enough. One that is from the future was made by a clock that
    /// was wrong, and counts as made now.
    fn left(&self) -> Duration {
        let there = retention::list(&self.directory).unwrap_or_default();
        let ours = |kept: &retention::BackupFile| kept.manifest.reason == Reason::Scheduled;
        there.into_iter().find(ours).map_or(Duration::ZERO, |newest| {
            self.every.saturating_sub(self.clock.wall().since(newest.manifest.created_at))
        })
    }

    /// Takes one, and only then removes what is too many.
    fn take(&self, stop: &Stop) -> Result<Manifest> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.directory);
        made.map_err(file_error(&self.directory))?;
        let now = self.clock.wall();
        let plan = Plan {
            database: self.store.path().to_owned(),
            to: online::destination(&self.directory, now),
            reason: Reason::Scheduled,
            now,
            faults: Faults::none(),
        };
        let manifest = online::take(&plan, &mut |_| !stop.asked())?;
        for removed in retention::clear(&self.directory, self.keep, manifest.created_at)? {
            tracing::info!(path = %removed.display(), "an old backup was removed");
        }
        Ok(manifest)
    }

    /// Logs it, and notes a failure in the file, where the health checks find it.
    fn tell(&self, taken: Result<Manifest>) {
        let failure = match taken {
            Ok(Manifest { file, bytes, .. }) => {
                tracing::info!(file, size = %Bytes(bytes), "a backup was made");
                None
            }
            // It came to an end by itself meanwhile; the next is due soon.
            Err(Error::Store(StoreError::Stopped)) => return,
            Err(error) => {
                tracing::error!(%error, "a backup could not be made; it is tried again");
                Some((self.clock.wall(), error.to_string()))
            }
        };
        if let Err(error) = self.note(failure) {
            tracing::warn!(%error, "the outcome of a backup could not be noted");
        }
    }

    fn note(&self, failure: Option<(Timestamp, String)>) -> Result<()> {
        let noted = self.store.read(meta::backup_failure)?;
        if failure.is_none() && noted.is_none() {
            return Ok(());
        }
        let run = move |tx: &WriteTx<'_>| meta::set_backup_failure(tx, failure.as_ref());
        Ok(self.store.writer().write(Queue::Upkeep, run)?)
    }
}
