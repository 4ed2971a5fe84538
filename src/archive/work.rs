//! The work of the thread `archive`: transactions that leave time for others, and duties with their due times.

use std::sync::Arc;
use std::time::Duration;

use crate::base::clock::SureNow;
use crate::base::faults::{Stall, Step};
use crate::base::stop::Stop;
use crate::env::Env;
use crate::model::duty::Duty;
use crate::pipeline::claims::Claims;
use crate::pipeline::upkeep::disk_watch::DiskWatch;
use crate::store::chores;
use crate::store::error::{Error, Result};
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;

/// The pause after a batch, and after each change of it, as a multiple of its time.
const PAUSE_TIMES: u32 = 9;
/// The longest pause after a batch.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The services that the work needs.
pub struct ArchiveWork {
    /// The environment.
    pub env: Env,
    /// Whether there is room.
    pub disk: Arc<DiskWatch>,
    /// Effects that were claimed.
    pub claims: Claims,
}

impl ArchiveWork {
    /// Runs a job of the thread in a transaction of its own, and pauses after it.
    pub(super) fn write_gently<T: Send + 'static>(
        &self,
        stop: &Stop,
        mut job: impl FnMut(&WriteTx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let timer = self.env.clock.clone();
        let (value, took) = self.env.store.writer().write(Queue::Upkeep, move |tx| {
            let began = timer.monotonic();
            Ok((job(tx)?, timer.monotonic().saturating_sub(began)))
        })?;
        pause(stop, took);
        Ok(value)
    }

    /// The time, if a duty is due. While the clock may be wrong, the age of a file is not known.
    pub(super) fn due(&self, duty: Duty) -> Result<Option<SureNow>> {
        let Some(now) = self.env.clock.sure_now() else { return Ok(None) };
        let is_due = self.env.store.read(|tx| chores::is_due(tx, duty, now))?;
        Ok(Some(now).filter(|_| is_due))
    }

    /// Records that a duty was done. Its time is that of the judgement, because a file that becomes old during the work waits for
    /// the next one.
    pub(super) fn done(&self, duty: Duty, judged_at: SureNow) -> Result<()> {
        let writer = self.env.store.writer();
        writer.write(Queue::Upkeep, move |tx| chores::done(tx, duty, judged_at))
    }

    pub(super) fn planned_fault(&self) -> Result<()> {
        self.env.faults.stand(Stall::Archive);
        if self.env.faults.hit(Step::Archive) { Err(Error::Full) } else { Ok(()) }
    }
}

/// Leaves the machine to others after work that took so long.
pub(super) fn pause(stop: &Stop, took: Duration) {
    stop.wait((took * PAUSE_TIMES).min(MAX_PAUSE));
}
