//! The writing end: takes jobs out of the queues, commits many in one transaction, and tells what came of them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Select, TryRecvError};
use rusqlite::Connection;

use crate::base::faults::{Faults, Stall, Step};
use crate::store::contention::WriteContention;
use crate::store::error::{Error, Result};
use crate::store::subscriptions;
use crate::store::tx::{Effects, ReadTx, Remembered, WriteTx};
use crate::store::work_done::WorkDone;
use crate::store::writer::room::LogRoom;
use crate::sys::disk::{self, Gauge};
use crate::sys::locks::LogIndex;
use crate::telemetry::heartbeat::BEAT;

/// Jobs of one transaction at most. Measured: more gains nothing and delays the first answer.
pub(super) const MAX_BATCH_JOBS: usize = 512;
/// Upkeep jobs of one transaction at most: they are long, and accepts wait behind them.
const MAX_BATCH_UPKEEP: usize = 4;

/// Which queue a job waits in; they are drained in this order. The queue says whether a job can be refused while
/// another program keeps the database locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Outcomes of our own attempts, which nobody would report again: they wait as long as it takes.
    Settle,
    /// New events, what people change, and consumers' reports: the caller is told to try again.
    Accept,
    /// Chores that can wait.
    Upkeep,
}

/// A job, whatever it returns.
pub(super) trait Job: Send {
    /// Which queue it came from, and when.
    fn handed_in(&self) -> (Queue, Duration);
    /// Runs it, perhaps not for the first time.
    fn run(&mut self, tx: &WriteTx<'_>) -> Result<()>;
    /// Hands its result on, once it is known what became of the transaction.
    fn done(self: Box<Self>, outcome: Result<()>);
}

/// A job as it waits.
pub(super) type BoxedJob = Box<dyn Job>;

/// A job put together from closures.
pub(super) struct Closure<T, R, D> {
    pub(super) handed_in: (Queue, Duration),
    pub(super) run: R,
    pub(super) done: D,
    pub(super) value: Option<T>,
}

impl<T, R, D> Job for Closure<T, R, D>
where
    T: Send,
    R: FnMut(&WriteTx<'_>) -> Result<T> + Send,
    D: FnOnce(Result<T>) + Send,
{
    fn handed_in(&self) -> (Queue, Duration) {
        self.handed_in
    }

    fn run(&mut self, tx: &WriteTx<'_>) -> Result<()> {
        self.value = None;
        self.value = Some((self.run)(tx)?);
        Ok(())
    }

    fn done(self: Box<Self>, outcome: Result<()>) {
        let Self { done, value, .. } = *self;
        done(outcome.and_then(|()| value.ok_or(Error::Stopped)));
    }
}

/// What becomes of jobs that came until the lock was had.
#[derive(Clone, Copy, Debug)]
enum Late {
    /// They are in the transaction: in the next one they might wait for another program once more.
    Taken,
    /// They wait: what is in hand is tried by itself.
    Left,
}

/// Told after each COMMIT. Must not block and must not write.
pub trait AfterCommit: Send + Sync {
    /// What was committed.
    fn committed(&self, effects: Effects);
    /// A write found no room; nothing of it was stored.
    fn full(&self);
    /// The disk failed while writing; the process must end.
    fn fatal(&self, error: &Error);
}

/// The writing end: owns the write connection.
pub struct WriterLoop {
    pub(super) conn: Connection,
    pub(super) faults: Faults,
    pub(super) remembered: Remembered,
    pub(super) settle: Receiver<BoxedJob>,
    pub(super) accept: Receiver<BoxedJob>,
    pub(super) upkeep: Receiver<BoxedJob>,
    pub(super) done: Arc<WorkDone>,
    /// The room that the log has and needs, as others see it.
    pub(super) room: Arc<LogRoom>,
    /// How the room on the disk is looked at.
    pub(super) gauge: Gauge,
    /// The index beside the log; `None` where it could not be opened.
    pub(super) index: Option<LogIndex>,
    /// Frames in the log when it was last copied.
    pub(super) tried_at: u64,
    /// The size of the log that SQLite was told.
    pub(super) kept_at: u64,
    /// Whether the write-ahead log is emptied by us.
    pub(super) checkpoints: bool,
    /// Whether a destroyed key may still stand in the write-ahead log.
    pub(super) log_owed: bool,
    /// How it gets on with other processes that write.
    pub(super) contention: WriteContention,
}

impl std::fmt::Debug for WriterLoop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriterLoop").finish_non_exhaustive()
    }
}

impl WriterLoop {
    /// Runs until `stop` is disconnected, then drains what waits and returns the connection's last words.
    pub fn run(mut self, stop: &Receiver<()>, observer: &Arc<dyn AfterCommit>) {
        let mut batch = Vec::with_capacity(MAX_BATCH_JOBS);
        self.contention.set_at_start(false);
        // Not before: its file is never closed, and a start may be tried many times.
        self.index = LogIndex::open(&self.beside("-shm")).ok();
        self.tend_log(false);
        loop {
            self.faults.stand(Stall::Writer);
            self.done.pulse.tick();
            // What a locked database has kept waiting is tried again at once, with what came since.
            let stopping = self.wait(stop, batch.is_empty());
            self.drain(&mut batch);
            if batch.is_empty() {
                self.empty_owed_log();
                self.tend_log(true);
                if stopping {
                    break;
                }
                continue;
            }
            self.done.begin(batch.iter().map(|job| job.handed_in().1).min().unwrap_or_default());
            let worked_off = self.commit_all(&mut batch, Late::Taken, observer);
            self.done.end();
            if let Err(fatal) = worked_off {
                observer.fatal(&fatal);
                // What is on the disk is unknown now: it is left for the next start to read.
                return self.refuse(&fatal, stop);
            }
            self.tend_log(false);
            if stopping {
                batch.drain(..).for_each(|job| job.done(Err(Error::Busy)));
            }
            self.contention.yield_lock(&self.conn, &self.done);
        }
        self.close();
    }

    /// Refuses what is handed in until `stop` is disconnected: nobody is left waiting for an answer.
    fn refuse(&mut self, fatal: &Error, stop: &Receiver<()>) {
        let mut batch = Vec::new();
        loop {
            let stopping = self.wait(stop, true);
            self.drain(&mut batch);
            if batch.is_empty() && stopping {
                return;
            }
            for job in batch.drain(..) {
                job.done(Err(fatal.clone()));
            }
        }
    }

    /// Until the loop is started it waits however long other programs keep the file locked, and says so.
    pub fn wait_for_others(&mut self) {
        self.contention.set_at_start(true);
    }

    /// Reads on the spot, before the loop is started; others who write are not waited for.
    pub fn read<T>(&self, read: impl FnOnce(&ReadTx<'_>) -> Result<T>) -> Result<T> {
        read(&ReadTx::new(&self.conn))
    }

    /// Runs one transaction on the spot, before the loop is started.
    pub fn direct<T>(&mut self, run: impl FnOnce(&WriteTx<'_>) -> Result<T>) -> Result<T> {
        let transaction = self.contention.begin(&self.conn, &self.done)?;
        let tx = WriteTx::new(&transaction, &self.remembered);
        let value = run(&tx)?;
        drop(tx);
        transaction.commit().map_err(Error::at_commit)?;
        Ok(value)
    }

    /// Waits until a job or the stop signal is there, or a beat is over, if there is nothing to do; tells
    /// whether it is to stop.
    fn wait(&self, stop: &Receiver<()>, idle: bool) -> bool {
        if idle {
            self.wait_for_work(stop);
        }
        matches!(stop.try_recv(), Err(TryRecvError::Disconnected))
    }

    fn wait_for_work(&self, stop: &Receiver<()>) {
        let mut select = Select::new();
        let _ = select.recv(&self.settle);
        let _ = select.recv(&self.accept);
        let _ = select.recv(&self.upkeep);
        let _ = select.recv(stop);
        // The caller looks into every queue.
        let _is_ready = select.ready_timeout(BEAT).is_ok();
    }

    /// Fills a batch up from the queues.
    fn drain(&self, batch: &mut Vec<BoxedJob>) {
        let is_upkeep = |job: &&BoxedJob| job.handed_in().0 == Queue::Upkeep;
        let upkeep_most = MAX_BATCH_UPKEEP.saturating_sub(batch.iter().filter(is_upkeep).count());
        for (queue, most) in [
            (&self.settle, MAX_BATCH_JOBS),
            (&self.accept, MAX_BATCH_JOBS),
            (&self.upkeep, upkeep_most),
        ] {
            let room = MAX_BATCH_JOBS.saturating_sub(batch.len()).min(most);
            batch.extend(queue.try_iter().take(room));
        }
    }

    /// Commits a batch in one transaction; if anything in it fails, job by job. What is left in it waits for
    /// another process to let go of the database.
    /// Fails only when the disk failed.
    fn commit_all(
        &mut self,
        batch: &mut Vec<BoxedJob>,
        late: Late,
        observer: &Arc<dyn AfterCommit>,
    ) -> Result<()> {
        let began = self.done.now();
        let committed = self.commit(batch, late);
        if committed.is_err() {
            self.done.failures.add();
        }
        match committed {
            Ok(effects) => {
                let accepted = batch.iter().map(|job| job.handed_in());
                let accepted = accepted.filter(|(queue, _)| *queue == Queue::Accept);
                self.done.committed(began, batch.len(), accepted.map(|(_, at)| at));
                self.log_owed |= effects.subjects_erased;
                observer.committed(effects);
                self.empty_owed_log();
                self.contention.got_in();
                for job in batch.drain(..) {
                    job.done(Ok(()));
                }
                return Ok(());
            }
            Err(fatal @ Error::Fatal(_)) => {
                for job in batch.drain(..) {
                    job.done(Err(fatal.clone()));
                }
                return Err(fatal);
            }
            Err(Error::Busy) => {
                self.contention.locked_out();
                // What is kept may leave no room to take up what waits.
                for queue in [&self.accept, &self.upkeep] {
                    batch.extend(queue.try_iter().take(queue.len()));
                }
                *batch = refuse_new(batch);
                return Ok(());
            }
            Err(error) if batch.len() == 1 => {
                if matches!(error, Error::Full) {
                    observer.full();
                }
                for job in batch.drain(..) {
                    job.done(Err(error.clone()));
                }
                return Ok(());
            }
            Err(error) => tracing::debug!(%error, jobs = batch.len(), "batch is run job by job"),
        }
        let (mut fatal, mut kept) = (None, Vec::new());
        for job in batch.drain(..) {
            if let Some(error) = &fatal {
                job.done(Err(Error::clone(error)));
                continue;
            }
            let mut single = vec![job];
            fatal = self.commit_all(&mut single, Late::Left, observer).err();
            kept.append(&mut single);
        }
        batch.append(&mut kept);
        fatal.map_or(Ok(()), Err)
    }

    fn commit(&mut self, batch: &mut Vec<BoxedJob>, late: Late) -> Result<Effects> {
        let committed = self.transact(batch, late);
        committed.map_err(|error| error.told_apart(|| self.is_out_of_room()))
    }

    fn transact(&mut self, batch: &mut Vec<BoxedJob>, late: Late) -> Result<Effects> {
        let near = self.near();
        let transaction = self.contention.begin(&self.conn, &self.done)?;
        if matches!(late, Late::Taken) {
            self.drain(batch);
        }
        let tx = WriteTx::new(&transaction, &self.remembered);
        let admitted = near.is_none_or(|near| near.admits(batch.len()));
        let is_refused = !admitted || self.faults.hit(Step::Write);
        let outcome = if is_refused { Err(Error::Full) } else { Ok(()) };
        let outcome = outcome
            .and_then(|()| batch.iter_mut().try_for_each(|job| job.run(&tx)))
            .and_then(|()| subscriptions::store_attempts(&tx))
            .and_then(|()| self.leaves_room(near, batch.len()));
        let effects = tx.into_effects();
        let committed = match outcome {
            Ok(()) if self.faults.hit(Step::Commit) => Err(Error::Full),
            Ok(()) if self.faults.hit(Step::BreakDisk) => Err(Error::planned_write_failure()),
            Ok(()) => transaction.commit().map_err(Error::at_commit),
            // Dropping the transaction rolls it back, where SQLite has not done so itself.
            Err(error) => {
                drop(transaction);
                Err(error)
            }
        };
        self.contention.ended(self.done.now());
        if committed.is_err() {
            self.remembered.forget();
        }
        committed.map(|()| effects)
    }

    /// Whether a write that failed found no room: the disk may be broken just as well.
    fn is_out_of_room(&self) -> bool {
        let Some(path) = self.conn.path().map(Path::new) else { return false };
        let directory = path.parent().unwrap_or_else(|| Path::new("."));
        disk::is_out_of_room(directory, &[path, &self.beside("-wal"), &self.beside("-shm")])
    }
}

/// Answers what can come again, because another process holds the database; returns the outcomes of
/// attempts, which have to be stored.
fn refuse_new(batch: &mut Vec<BoxedJob>) -> Vec<BoxedJob> {
    let is_kept = |job: &BoxedJob| job.handed_in().0 == Queue::Settle;
    let (kept, refused): (Vec<_>, Vec<_>) = batch.drain(..).partition(is_kept);
    for job in refused {
        job.done(Err(Error::Busy));
    }
    kept
}
