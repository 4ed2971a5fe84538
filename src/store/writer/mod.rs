//! The only writer: takes jobs from four queues, commits many in one transaction, and answers after COMMIT.
//!
//! A job is a closure over `&WriteTx`. It changes only the database, so that it can run again if another job of the
//! batch makes the transaction fail. Answers and wake-ups happen after COMMIT, in `done` and through
//! [`Effects`].
//!
//! `pipeline` starts the thread that calls [`WriterLoop::run`].

mod copy_tries;
mod log;
mod queues;
mod room;

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::bounded;
use rusqlite::Connection;
use rusqlite::hooks::Action;

use crate::base::faults::{Faults, Stall, Step};
use crate::store::contention::WriteContention;
use crate::store::fresh::Fresh;
use crate::store::prelude::*;
use crate::store::routes::SharedRoutes;
use crate::store::subscriptions;
use crate::store::tx::{Effects, WriterCache};
use crate::store::work_done::WorkDone;
use crate::sys::disk::{self, Gauge};
use crate::sys::locks::LogIndex;
use crate::telemetry::tally::{BEAT, Heartbeat};

use copy_tries::CopyTries;
use queues::{JobQueues, Refusal};
pub use room::LogRoom;

/// Accepts jobs for the writer. Cheap to clone.
#[derive(Clone)]
pub struct Writer {
    queues: Arc<JobQueues>,
    done: Arc<WorkDone>,
    room: Arc<LogRoom>,
    routes: Arc<SharedRoutes>,
    fresh: Arc<Fresh>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

impl Writer {
    /// Submits a job. The writer's thread calls `done` with its result after COMMIT; `done` must neither block nor
    /// write. If the accept queue is full, `done` gets `Busy` at once.
    pub fn submit<T, R, D>(&self, queue: Queue, run: R, done: D)
    where
        T: Send + 'static,
        R: FnMut(&WriteTx<'_>) -> Result<T> + Send + 'static,
        D: FnOnce(Result<T>) + Send + 'static,
    {
        let job: BoxedJob =
            Box::new(Closure { handed_in: (queue, self.done.now()), run, done, value: None });
        match self.queues.push(queue, job) {
            Ok(()) => {}
            Err(Refusal::Crowded(job)) => job.done(Err(Error::Busy)),
            Err(Refusal::Closed(job)) => job.done(Err(Error::Stopped)),
        }
    }

    /// Submits a job and waits for its COMMIT. For changes by people and for upkeep; handlers of events use
    /// [`Writer::submit`].
    pub fn write<T, R>(&self, queue: Queue, run: R) -> Result<T>
    where
        T: Send + 'static,
        R: FnMut(&WriteTx<'_>) -> Result<T> + Send + 'static,
    {
        let (tell, answer) = bounded(1);
        self.submit(queue, run, move |outcome| drop(tell.send(outcome)));
        answer.recv().unwrap_or(Err(Error::Stopped))
    }

    /// How many jobs wait in all queues.
    pub fn waiting(&self) -> usize {
        [Queue::Settle, Queue::Later, Queue::Accept, Queue::Upkeep]
            .map(|queue| self.waiting_in(queue))
            .iter()
            .sum()
    }

    /// How many jobs wait in one queue.
    pub fn waiting_in(&self, queue: Queue) -> usize {
        self.queues.len(queue)
    }

    /// Stores outcomes that wait for company, and waits for the COMMIT. Called before a person or a program reads, who
    /// would otherwise see a finished delivery as open. Costs nothing if none waits, and ends early if another program
    /// keeps the database locked.
    pub fn store_waiting(&self) {
        if self.queues.has_sleeping_company() {
            let nothing = |tx: &WriteTx<'_>| {
                tx.mark_unseen();
                Ok(())
            };
            // After a failure the reader sees what is stored.
            let _is_stored = self.write(Queue::Accept, nothing).is_ok();
        }
    }

    /// Lets the writer's thread end once its queues are empty.
    pub fn ask_to_stop(&self) {
        self.queues.ask_to_stop();
    }

    /// The terms of subscriptions, as they were last committed.
    pub fn routes(&self) -> &Arc<SharedRoutes> {
        &self.routes
    }

    /// The requests of new deliveries.
    pub fn fresh(&self) -> &Fresh {
        &self.fresh
    }

    /// The room that the write-ahead log has and needs.
    pub fn room(&self) -> &Arc<LogRoom> {
        &self.room
    }

    /// The heartbeat of the writer's thread.
    pub fn pulse(&self) -> &Heartbeat {
        &self.done.pulse
    }

    /// How long ago the oldest job of the current batch was submitted; zero if the writer is idle.
    pub fn lag(&self) -> Duration {
        self.done.lag()
    }

    /// The writer's metrics.
    pub fn done(&self) -> &WorkDone {
        &self.done
    }
}

pub(crate) fn pair(conn: Connection, faults: Faults) -> Result<(Writer, WriterLoop)> {
    // The settle queue is limited by the attempts in progress, the upkeep queue by the number of upkeep tasks.
    let queues = Arc::<JobQueues>::default();
    let contention = WriteContention::new(conn.path());
    let fresh = Arc::<Fresh>::default();
    let touched = Arc::clone(&fresh);
    let forget = move |_: Action, _: &str, table: &str, row: i64| {
        if table == "deliveries" {
            touched.touched(row);
        }
    };
    conn.update_hook(Some(forget))?;
    let page: u32 = conn.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    let writer_loop = WriterLoop {
        conn,
        page: u64::from(page),
        room: Arc::default(),
        gauge: Gauge::machine(),
        plenty_at: Cell::new(None),
        index: None,
        unlooked: 0,
        is_low: false,
        tries: CopyTries::default(),
        limited_to: 0,
        faults,
        cache: WriterCache { fresh: Arc::clone(&fresh), ..WriterCache::default() },
        queues: Arc::clone(&queues),
        idle_since: Duration::ZERO,
        done: Arc::default(),
        checkpoints: true,
        contention,
        others: 0,
    };
    let done = Arc::clone(&writer_loop.done);
    let room = Arc::clone(&writer_loop.room);
    let routes = Arc::clone(&writer_loop.cache.routes.shared);
    Ok((Writer { queues, done, room, routes, fresh }, writer_loop))
}

/// Maximum jobs per transaction. Measurements show that more jobs gain nothing and delay the first answer.
const MAX_BATCH_JOBS: usize = 512;
/// After how many jobs the log is looked at: that costs as much as a small transaction.
const LOOK_EVERY: usize = 16;
/// How long the writer waits after a batch for as many new events as that one had. Of few it waits longer: at 500 events a
/// second two or three then share a commit. Of many, others are on their way at once: with 32 connections a wait of 0.3 ms
/// instead of 0.1 took a tenth of the throughput.
const GATHER_FEW: Duration = Duration::from_millis(2);
const GATHER_MANY: Duration = Duration::from_micros(100);
const MANY_EVENTS: usize = 12;
/// How long an outcome waits for company at most. A commit of its own costs as many bytes as the event did. A kill
/// meanwhile repeats the request under its id.
const MAX_LATER: Duration = Duration::from_millis(250);
/// Maximum upkeep jobs per transaction: they are long, and new events wait for them.
const MAX_BATCH_UPKEEP: usize = 4;

/// The queue of a job. Queues are drained in this order. Only jobs of `Accept` and `Upkeep` are refused while another
/// program keeps the database locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Outcomes of our own attempts. Nobody would report them again, so they wait without a limit.
    Settle,
    /// Those for which nothing waits. They wait for company, as a commit of their own costs as much as an event's.
    Later,
    /// New events, changes by people and consumers' reports: the caller is told to try again.
    Accept,
    /// Upkeep that can wait.
    Upkeep,
}

/// A job with any result type.
trait Job: Send {
    /// The queue of the job, and when it was submitted.
    fn handed_in(&self) -> (Queue, Duration);
    /// Runs the job; may be called more than once.
    fn run(&mut self, tx: &WriteTx<'_>) -> Result<()>;
    /// Reports the result after the transaction was committed or rolled back.
    fn done(self: Box<Self>, outcome: Result<()>);
}

/// A waiting job.
type BoxedJob = Box<dyn Job>;

/// A job made of closures.
struct Closure<T, R, D> {
    handed_in: (Queue, Duration),
    run: R,
    done: D,
    value: Option<T>,
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

/// Whether a transaction includes jobs that arrive while the writer waits for the lock.
#[derive(Clone, Copy, Debug)]
enum NewJobs {
    /// Yes: in the next transaction they might have to wait for another program again.
    Included,
    /// No: the job runs alone.
    Excluded,
}

/// Called by the writer's thread. Must neither block nor write, but for `complete`.
pub trait AroundCommit: Send + Sync {
    /// The jobs of a transaction have run: what is left to write before COMMIT.
    fn complete(&self, tx: &WriteTx<'_>) -> Result<()>;
    /// A transaction was committed.
    fn committed(&self, effects: Effects);
    /// A write failed because there was no room; nothing was stored.
    fn full(&self);
    /// The disk failed while writing; the process must end.
    fn fatal(&self, error: &Error);
}

/// The writer's loop. Owns the write connection.
pub struct WriterLoop {
    conn: Connection,
    /// Bytes of a page in this file.
    page: u64,
    faults: Faults,
    cache: WriterCache,
    queues: Arc<JobQueues>,
    /// When the writer last had a job, or looked at the log because it had none.
    idle_since: Duration,
    done: Arc<WorkDone>,
    /// Limits and numbers of the log, shared with the disk watch.
    room: Arc<LogRoom>,
    /// Measures the free space of the disk.
    gauge: Gauge,
    /// When the disk was last found to have plenty of room; `None`: it had not.
    plenty_at: Cell<Option<Duration>>,
    /// The `-shm` file; `None` if it could not be opened.
    index: Option<LogIndex>,
    /// Jobs since the log was looked at, and whether the disk was low at the latest of them.
    unlooked: usize,
    is_low: bool,
    /// When copying the log is tried.
    tries: CopyTries,
    /// The checkpoint size for which `journal_size_limit` was last set.
    limited_to: u64,
    /// Whether the writer does checkpoints; if not, another program does.
    checkpoints: bool,
    /// The sharing of the write lock with other programs.
    contention: WriteContention,
    /// Their commits before the latest transaction.
    others: u64,
}

impl std::fmt::Debug for WriterLoop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriterLoop").finish_non_exhaustive()
    }
}

impl WriterLoop {
    /// Runs until [`Writer::ask_to_stop`], then runs the jobs that still wait and closes the file.
    pub fn run(mut self, observer: &Arc<dyn AroundCommit>) {
        // Whatever ends this thread: nobody waits for an answer that cannot come.
        let _closed = ClosesQueues(Arc::clone(&self.queues));
        let mut batch = Vec::with_capacity(MAX_BATCH_JOBS);
        let mut last = 0;
        self.contention.set_at_start(false);
        // Opened here and not earlier: its file is never closed, and a start may be tried many times.
        self.index = LogIndex::open(&self.beside("-shm")).ok();
        self.maintain_log(false);
        self.load_routes();
        // Commits of other programs are noticed from the first transaction on.
        self.cache.routes.note_foreign_commit();
        loop {
            self.faults.stand(Stall::Writer);
            self.done.pulse.tick();
            // A batch that is not empty waits for a locked database: it is tried again at once, with new jobs.
            if batch.is_empty() {
                self.queues.wait(MAX_LATER);
            }
            let is_stopping = self.queues.is_stopping();
            self.gather(last);
            self.queues.drain(&mut batch);
            let is_new = |job: &&BoxedJob| job.handed_in().0 == Queue::Accept;
            last = batch.iter().filter(is_new).count();
            if batch.is_empty() {
                self.rest(is_stopping);
                if is_stopping {
                    break;
                }
                continue;
            }
            self.idle_since = self.done.now();
            self.done.begin(batch.iter().map(|job| job.handed_in().1).min().unwrap_or_default());
            let finished = self.commit_all(&mut batch, NewJobs::Included, observer);
            self.done.end();
            if let Err(fatal) = finished {
                observer.fatal(&fatal);
                // The content of the disk is unknown now, so nothing more is written.
                return self.refuse(&fatal);
            }
            if self.unlooked >= LOOK_EVERY || self.may_be_long() {
                self.maintain_log(false);
            }
            if is_stopping {
                batch.drain(..).for_each(|job| job.done(Err(Error::Busy)));
            }
            self.contention.yield_lock(&self.conn, &self.done);
        }
        self.close();
    }

    /// Refuses new jobs until a stop is asked for, so that no caller waits forever.
    fn refuse(&mut self, fatal: &Error) {
        let mut batch = Vec::new();
        loop {
            self.queues.wait(MAX_LATER);
            let is_stopping = self.queues.is_stopping();
            self.queues.drain(&mut batch);
            if batch.is_empty() && is_stopping {
                return;
            }
            for job in batch.drain(..) {
                job.done(Err(fatal.clone()));
            }
        }
    }

    /// Looks at the log once a heartbeat interval while there is no job, and before the end.
    fn rest(&mut self, is_stopping: bool) {
        let now = self.done.now();
        if is_stopping || now.saturating_sub(self.idle_since) >= BEAT {
            self.idle_since = now;
            self.maintain_log(true);
        }
    }

    /// Lets transactions wait for other programs' locks without a limit, until the loop starts.
    pub fn wait_for_others(&mut self) {
        self.contention.set_at_start(true);
    }

    /// Reads directly, before the loop is started. Does not wait for other programs.
    pub fn read<T>(&self, read: impl FnOnce(&ReadTx<'_>) -> Result<T>) -> Result<T> {
        read(&ReadTx::new(&self.conn))
    }

    /// Runs one transaction directly, before the loop is started.
    pub fn direct<T>(&mut self, run: impl FnOnce(&WriteTx<'_>) -> Result<T>) -> Result<T> {
        let transaction = self.contention.begin(&self.conn, &self.done)?;
        let tx = WriteTx::new(&transaction, &self.cache);
        let value = run(&tx);
        drop(tx);
        let done = value.and_then(|value| {
            transaction.commit().map_err(Error::at_commit)?;
            Ok(value)
        });
        match &done {
            Ok(_) => self.cache.routes.commit(),
            Err(_) => self.cache.roll_back(),
        }
        done
    }

    /// Parses the terms of all subscriptions at the start, so that no transaction has to. Later, after a transaction was
    /// rolled back, only those that another program has changed.
    fn load_routes(&self) {
        let routes = &self.cache.routes;
        let tx = ReadTx::new(&self.conn);
        let parsed = if !routes.is_loaded() {
            subscriptions::live_routes(&tx).map(|found| {
                let parsed = found.len();
                routes.load(found);
                parsed
            })
        } else if routes.must_compare() {
            subscriptions::compare_routes(&tx, routes)
        } else {
            return;
        };
        match parsed {
            Ok(parsed) => {
                routes.shared.parsed_at_loads.add_many(u64::try_from(parsed).unwrap_or(u64::MAX));
                routes.commit();
            }
            // The next transaction tries again.
            Err(error) => {
                routes.roll_back(0);
                tracing::warn!(%error, "the subscriptions cannot be read yet");
            }
        }
    }

    /// Waits a moment for as many new events as the last batch had: whoever sent those may send again.
    fn gather(&self, last: usize) {
        match last {
            0 | 1 => {}
            2..MANY_EVENTS => self.queues.gather(last, GATHER_FEW),
            _ => self.queues.gather(last, GATHER_MANY),
        }
    }

    /// Commits a batch in one transaction, or each job in its own if that fails. Jobs that remain in the batch wait for
    /// another program to release the lock.
    /// Fails only if the disk failed.
    fn commit_all(
        &mut self,
        batch: &mut Vec<BoxedJob>,
        new_jobs: NewJobs,
        observer: &Arc<dyn AroundCommit>,
    ) -> Result<()> {
        let began = self.done.now();
        let committed = self.commit(batch, new_jobs, &**observer);
        if committed.is_err() {
            self.done.failures.add();
        }
        match committed {
            Ok(effects) => {
                let accepted = batch.iter().map(|job| job.handed_in());
                let accepted = accepted.filter(|(queue, _)| *queue == Queue::Accept);
                self.done.committed(began, batch.len(), accepted.map(|(_, at)| at));
                if effects.unseen_jobs < batch.len() {
                    self.done.changes.add();
                }
                let has_erased = effects.subjects_erased;
                observer.committed(effects);
                if has_erased {
                    self.empty_log_of_keys();
                }
                self.contention.lock_acquired();
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
                // The kept jobs may fill the batch, so that waiting jobs would never be taken and refused.
                self.queues.drain_refusable(batch);
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
        let mut fatal = None;
        let mut kept = Vec::new();
        for job in batch.drain(..) {
            if let Some(error) = &fatal {
                job.done(Err(Error::clone(error)));
                continue;
            }
            let mut single = vec![job];
            fatal = self.commit_all(&mut single, NewJobs::Excluded, observer).err();
            kept.append(&mut single);
        }
        batch.append(&mut kept);
        fatal.map_or(Ok(()), Err)
    }

    fn commit(
        &mut self,
        batch: &mut Vec<BoxedJob>,
        new_jobs: NewJobs,
        observer: &dyn AroundCommit,
    ) -> Result<Effects> {
        let committed = self.transact(batch, new_jobs, observer);
        committed.map_err(|error| error.full_or_fatal(|| self.is_out_of_room()))
    }

    fn transact(
        &mut self,
        batch: &mut Vec<BoxedJob>,
        new_jobs: NewJobs,
        observer: &dyn AroundCommit,
    ) -> Result<Effects> {
        let low_disk = self.low_disk();
        self.is_low = low_disk.is_some();
        self.load_routes();
        let transaction = self.contention.begin(&self.conn, &self.done)?;
        let others = self.done.foreign_commits.get();
        if std::mem::replace(&mut self.others, others) != others {
            self.cache.fresh.clear();
            self.cache.routes.note_foreign_commit();
        }
        if matches!(new_jobs, NewJobs::Included) {
            self.queues.drain(batch);
        }
        self.unlooked = self.unlooked.saturating_add(batch.len());
        let tx = WriteTx::new(&transaction, &self.cache);
        let admitted = low_disk.is_none_or(|disk| disk.admits(batch.len()));
        let is_refused = !admitted || self.faults.hit(Step::Write);
        let outcome = if is_refused { Err(Error::Full) } else { Ok(()) };
        let outcome = outcome
            .and_then(|()| batch.iter_mut().try_for_each(|job| job.run(&tx)))
            .and_then(|()| observer.complete(&tx))
            .and_then(|()| subscriptions::store_attempts(&tx))
            .and_then(|()| self.leaves_room(low_disk, batch.len()));
        let effects = tx.into_effects();
        let committed = match outcome {
            Ok(()) if self.faults.hit(Step::Commit) => Err(Error::Full),
            Ok(()) if self.faults.hit(Step::BreakDisk) => Err(Error::planned_write_failure()),
            Ok(()) => transaction.commit().map_err(Error::at_commit),
            // Dropping the transaction rolls it back, if SQLite has not done so already.
            Err(error) => {
                drop(transaction);
                Err(error)
            }
        };
        self.contention.ended(self.done.now());
        match &committed {
            Ok(()) => self.cache.routes.commit(),
            Err(_) => self.cache.roll_back(),
        }
        committed.map(|()| effects)
    }

    /// Whether a write failed because there is no room, and not because the disk is broken.
    fn is_out_of_room(&self) -> bool {
        let Some(path) = self.conn.path().map(Path::new) else { return false };
        let directory = path.parent().unwrap_or_else(|| Path::new("."));
        disk::is_out_of_room(directory, &[path, &self.beside("-wal"), &self.beside("-shm")])
    }
}

/// Closes the queues when it is dropped.
struct ClosesQueues(Arc<JobQueues>);

impl Drop for ClosesQueues {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Answers jobs with `Busy`, because another program keeps the database locked. Returns the outcomes of attempts, which
/// must be stored.
fn refuse_new(batch: &mut Vec<BoxedJob>) -> Vec<BoxedJob> {
    let is_kept = |job: &BoxedJob| matches!(job.handed_in().0, Queue::Settle | Queue::Later);
    let (kept, refused): (Vec<_>, Vec<_>) = batch.drain(..).partition(is_kept);
    for job in refused {
        job.done(Err(Error::Busy));
    }
    kept
}
