//! The one writer: jobs from three queues, many in a transaction, answered after COMMIT.
//!
//! A job is a closure over `&WriteTx` that has no effect but the database, so that it can be run again
//! when another job of its batch spoils the transaction. What a job brings about outside (an answer, a
//! doorbell) happens in `done` and in the [`Effects`], after COMMIT.
//!
//! Not here: threads (`flow` starts the one that calls [`WriterLoop::run`]).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Select, SendError, Sender, TryRecvError, bounded, unbounded};
use rusqlite::Connection;

use crate::clock::Timestamp;
use crate::faults::{Faults, Stall, Step};
use crate::machine::disk;
use crate::pulse::{BEAT, Pulse};
use crate::store::error::{Error, Result};
use crate::store::manners::Manners;
use crate::store::schema;
use crate::store::subjects::{self, KeyId};
use crate::store::subscriptions;
use crate::store::tx::{Effects, Remembered, WriteTx};
use crate::store::work_done::WorkDone;

/// Jobs of one transaction at most. Measured: more gains nothing and delays the first answer.
const BATCH_JOBS_MOST: usize = 512;
/// Upkeep jobs of one transaction at most: they are long, and accepts wait behind them.
const BATCH_UPKEEP_MOST: usize = 4;
/// Jobs that may wait in the accept queue, about. A handler that finds it full answers 503.
const ACCEPT_JOBS_MOST: usize = 8192;

/// Which queue a job waits in; they are drained in this order. Whoever hands one in says by it whether it can
/// be refused while another program keeps the database locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Outcomes of our own attempts, which nobody would bring again: they wait however long it takes.
    Settle,
    /// New events, what people change, and what consumers say: whoever asks is told to come again.
    Accept,
    /// Chores that can wait.
    Upkeep,
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

trait Job: Send {
    /// Which queue it came from, and when.
    fn handed_in(&self) -> (Queue, Duration);
    fn run(&mut self, tx: &WriteTx<'_>) -> Result<()>;
    fn done(self: Box<Self>, outcome: Result<()>);
}

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

type BoxedJob = Box<dyn Job>;

/// Where jobs are handed in. Cheap to clone.
#[derive(Clone)]
pub struct Writer {
    settle: Sender<BoxedJob>,
    accept: Sender<BoxedJob>,
    upkeep: Sender<BoxedJob>,
    done: Arc<WorkDone>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

impl Writer {
    /// Hands in a job; `done` is called with its result after COMMIT, on the writer's thread, and must
    /// neither block nor write. A full accept queue is answered at once with `Busy`.
    pub fn submit<T, R, D>(&self, queue: Queue, run: R, done: D)
    where
        T: Send + 'static,
        R: FnMut(&WriteTx<'_>) -> Result<T> + Send + 'static,
        D: FnOnce(Result<T>) + Send + 'static,
    {
        let job: BoxedJob =
            Box::new(Closure { handed_in: (queue, self.done.now()), run, done, value: None });
        let refused = match queue {
            Queue::Settle => self.settle.send(job),
            Queue::Upkeep => self.upkeep.send(job),
            Queue::Accept if self.accept.len() >= ACCEPT_JOBS_MOST => {
                return job.done(Err(Error::Busy));
            }
            Queue::Accept => self.accept.send(job),
        };
        if let Err(SendError(job)) = refused {
            job.done(Err(Error::Stopped));
        }
    }

    /// Hands in a job and waits for its COMMIT. For people's changes and chores; a handler of events
    /// uses [`Writer::submit`].
    ///
    /// # Errors
    /// What the job returns, or what the commit came to.
    pub fn write<T, R>(&self, queue: Queue, run: R) -> Result<T>
    where
        T: Send + 'static,
        R: FnMut(&WriteTx<'_>) -> Result<T> + Send + 'static,
    {
        let (tell, told) = bounded(1);
        self.submit(queue, run, move |outcome| drop(tell.send(outcome)));
        told.recv().unwrap_or(Err(Error::Stopped))
    }

    /// Jobs that wait, over all queues.
    pub fn waiting(&self) -> usize {
        [Queue::Settle, Queue::Accept, Queue::Upkeep]
            .map(|queue| self.waiting_in(queue))
            .iter()
            .sum()
    }

    /// Jobs that wait in one queue.
    pub fn waiting_in(&self, queue: Queue) -> usize {
        match queue {
            Queue::Settle => self.settle.len(),
            Queue::Accept => self.accept.len(),
            Queue::Upkeep => self.upkeep.len(),
        }
    }

    /// The writing thread's sign of life.
    pub fn pulse(&self) -> &Pulse {
        &self.done.pulse
    }

    /// How long ago the oldest job in hand was handed in; nothing when the writer is idle.
    pub fn lag(&self) -> Duration {
        self.done.lag()
    }

    /// What it has done so far.
    pub fn done(&self) -> &WorkDone {
        &self.done
    }
}

/// The writing end: owns the write connection.
pub struct WriterLoop {
    conn: Connection,
    faults: Faults,
    remembered: Remembered,
    settle: Receiver<BoxedJob>,
    accept: Receiver<BoxedJob>,
    upkeep: Receiver<BoxedJob>,
    done: Arc<WorkDone>,
    /// Whether the write-ahead log is emptied by us.
    checkpoints: bool,
    /// Whether a destroyed key may still stand in the write-ahead log.
    log_owed: bool,
    /// How it gets on with other processes that write.
    manners: Manners,
}

impl std::fmt::Debug for WriterLoop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriterLoop").finish_non_exhaustive()
    }
}

pub(crate) fn pair(conn: Connection, faults: Faults) -> (Writer, WriterLoop) {
    // Not bounded ones: those keep what is in them when the writer goes, and whoever waits for it waits
    // for ever. Settlements are bounded by what is in hand, chores by the number of chores.
    let (settle, settle_jobs) = unbounded();
    let (accept, accept_jobs) = unbounded();
    let (upkeep, upkeep_jobs) = unbounded();
    let manners = Manners::new(conn.path());
    let writer_loop = WriterLoop {
        conn,
        faults,
        remembered: Remembered::default(),
        settle: settle_jobs,
        accept: accept_jobs,
        upkeep: upkeep_jobs,
        done: Arc::default(),
        checkpoints: true,
        log_owed: false,
        manners,
    };
    let done = Arc::clone(&writer_loop.done);
    (Writer { settle, accept, upkeep, done }, writer_loop)
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

impl WriterLoop {
    /// Runs until `stop` is disconnected, then drains what waits and returns the connection's last words.
    pub fn run(mut self, stop: &Receiver<()>, observer: &Arc<dyn AfterCommit>) {
        let mut batch = Vec::with_capacity(BATCH_JOBS_MOST);
        loop {
            self.faults.stand(Stall::Writer);
            self.done.pulse.beat();
            // What a locked database has kept waiting is tried again at once, with what came since.
            let stopping = self.wait(stop, batch.is_empty());
            self.drain(&mut batch);
            if batch.is_empty() {
                self.empty_owed_log();
                if stopping {
                    break;
                }
                continue;
            }
            self.done.begin(batch.iter().map(|job| job.handed_in().1).min().unwrap_or_default());
            let worked_off = self.commit_all(&mut batch, observer);
            self.done.end();
            if let Err(fatal) = worked_off {
                observer.fatal(&fatal);
                // What is on the disk is unknown now: it is left for the next start to read.
                return self.refuse(&fatal, stop);
            }
            if stopping {
                batch.drain(..).for_each(|job| job.done(Err(Error::Busy)));
            }
            self.manners.give_way(&self.conn, &self.done);
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

    /// Runs one transaction on the spot, before the loop is started.
    ///
    /// # Errors
    /// What the job returns, or what the commit came to.
    pub fn direct<T>(&mut self, run: impl FnOnce(&WriteTx<'_>) -> Result<T>) -> Result<T> {
        let transaction = self.manners.begin(&self.conn, &self.done)?;
        let tx = WriteTx::new(&transaction, &self.remembered);
        let value = run(&tx)?;
        drop(tx);
        transaction.commit().map_err(Error::at_commit)?;
        Ok(value)
    }

    /// Leaves the write-ahead log to another program, which copies it before it empties it.
    ///
    /// # Errors
    /// When the connection cannot be told.
    pub fn leave_checkpoints(&mut self) -> Result<()> {
        self.checkpoints = false;
        Ok(self.conn.pragma_update(None, "wal_autocheckpoint", 0)?)
    }

    /// Ends it without ever having run the loop: what was done is in the one file.
    pub(crate) fn finish(self) {
        self.close();
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
        // What is ready is looked for by whoever takes it.
        let _is_ready = select.ready_timeout(BEAT).is_ok();
    }

    fn drain(&self, batch: &mut Vec<BoxedJob>) {
        for (queue, most) in [
            (&self.settle, BATCH_JOBS_MOST),
            (&self.accept, BATCH_JOBS_MOST),
            (&self.upkeep, BATCH_UPKEEP_MOST),
        ] {
            let room = BATCH_JOBS_MOST.saturating_sub(batch.len()).min(most);
            batch.extend(queue.try_iter().take(room));
        }
    }

    /// Commits a batch in one transaction; if anything in it fails, job by job. What is left in it waits for
    /// another process to let go of the database.
    ///
    /// # Errors
    /// Only when the disk failed.
    fn commit_all(
        &mut self,
        batch: &mut Vec<BoxedJob>,
        observer: &Arc<dyn AfterCommit>,
    ) -> Result<()> {
        let began = self.done.now();
        let committed = self.commit(batch);
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
                self.manners.got_in();
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
                self.manners.locked_out();
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
            fatal = self.commit_all(&mut single, observer).err();
            kept.append(&mut single);
        }
        batch.append(&mut kept);
        fatal.map_or(Ok(()), Err)
    }

    fn commit(&mut self, batch: &mut [BoxedJob]) -> Result<Effects> {
        let committed = self.transact(batch);
        committed.map_err(|error| error.told_apart(|| self.is_out_of_room()))
    }

    fn transact(&mut self, batch: &mut [BoxedJob]) -> Result<Effects> {
        let transaction = self.manners.begin(&self.conn, &self.done)?;
        let tx = WriteTx::new(&transaction, &self.remembered);
        let outcome = if self.faults.hit(Step::Write) { Err(Error::Full) } else { Ok(()) };
        let outcome = outcome
            .and_then(|()| batch.iter_mut().try_for_each(|job| job.run(&tx)))
            .and_then(|()| subscriptions::store_standings(&tx));
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
        self.manners.ended(self.done.now());
        if committed.is_err() {
            self.remembered.forget();
        }
        committed.map(|()| effects)
    }

    /// Whether a write that failed found no room: the disk may be broken just as well.
    fn is_out_of_room(&self) -> bool {
        let Some(path) = self.conn.path().map(Path::new) else { return false };
        let beside = |ending: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(ending);
            PathBuf::from(name)
        };
        let directory = path.parent().unwrap_or_else(|| Path::new("."));
        disk::is_out_of_room(directory, &[path, &beside("-wal"), &beside("-shm")])
    }

    /// Empties the write-ahead log where a destroyed key may stand in it. A reader that stands in the way is
    /// waited for in the next turn.
    fn empty_owed_log(&mut self) {
        if !self.log_owed {
            return;
        }
        if !self.checkpoints {
            tracing::warn!(
                "a destroyed key stays in the write-ahead log until whoever copies it empties it"
            );
            self.log_owed = false;
            return;
        }
        match schema::empty_log(&self.conn) {
            Ok(0) => self.log_owed = false,
            Ok(_) => tracing::debug!("the write-ahead log is read; it is emptied in a moment"),
            Err(error) => tracing::warn!(%error, "the write-ahead log could not be emptied yet"),
        }
    }

    /// Destroys keys that were destroyed before, in a database that was put back; tells how many there were.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn erase_again(&mut self, erasures: &[(KeyId, Timestamp)]) -> Result<u64> {
        let mut erased = 0_u64;
        for some in erasures.chunks(BATCH_JOBS_MOST) {
            erased += self.direct(|tx| {
                let gone = some.iter().map(|(id, at)| Ok(u64::from(subjects::erase(tx, id, *at)?)));
                gone.sum::<Result<u64>>()
            })?;
        }
        // Destroyed by a run that was killed before it could empty the log, none of them is there any more.
        self.log_owed = !erasures.is_empty();
        self.empty_owed_log();
        Ok(erased)
    }

    /// Empties the write-ahead log into the file, so that what is left behind is one file.
    fn close(self) {
        // Whoever empties it instead has the file open, so that our closing it empties nothing.
        if !self.checkpoints {
            return;
        }
        if let Err(error) = schema::empty_log(&self.conn) {
            tracing::warn!(%error, "the write-ahead log could not be emptied; it is read at the next start");
        }
    }
}
