//! The only writer: takes jobs from three queues, commits many in one transaction, and answers after COMMIT.
//!
//! A job is a closure over `&WriteTx`. It changes only the database, so that it can run again if another job of the
//! batch makes the transaction fail. Answers and wake-ups happen after COMMIT, in `done` and through
//! [`Effects`](crate::store::tx::Effects).
//!
//! `pipeline` starts the thread that calls [`WriterLoop::run`].

mod log;
mod room;
mod working;

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{SendError, Sender, bounded, unbounded};
use rusqlite::Connection;

use crate::base::faults::Faults;
use crate::store::contention::WriteContention;
use crate::store::error::{Error, Result};
use crate::store::tx::{WriteTx, WriterCache};
use crate::store::work_done::WorkDone;
use crate::store::writer::working::{BoxedJob, Closure};
use crate::sys::disk::Gauge;
use crate::telemetry::heartbeat::Heartbeat;

pub use room::LogRoom;
pub use working::{AfterCommit, Queue, WriterLoop};

/// Jobs that may wait in the accept queue, approximately. If it is full, handlers answer 503.
const MAX_ACCEPT_JOBS: usize = 8192;

/// Accepts jobs for the writer. Cheap to clone.
#[derive(Clone)]
pub struct Writer {
    settle: Sender<BoxedJob>,
    accept: Sender<BoxedJob>,
    upkeep: Sender<BoxedJob>,
    done: Arc<WorkDone>,
    room: Arc<LogRoom>,
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
        let refused = match queue {
            Queue::Settle => self.settle.send(job),
            Queue::Upkeep => self.upkeep.send(job),
            Queue::Accept if self.accept.len() >= MAX_ACCEPT_JOBS => {
                return job.done(Err(Error::Busy));
            }
            Queue::Accept => self.accept.send(job),
        };
        if let Err(SendError(job)) = refused {
            job.done(Err(Error::Stopped));
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
        [Queue::Settle, Queue::Accept, Queue::Upkeep]
            .map(|queue| self.waiting_in(queue))
            .iter()
            .sum()
    }

    /// How many jobs wait in one queue.
    pub fn waiting_in(&self, queue: Queue) -> usize {
        match queue {
            Queue::Settle => self.settle.len(),
            Queue::Accept => self.accept.len(),
            Queue::Upkeep => self.upkeep.len(),
        }
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

pub(crate) fn pair(conn: Connection, faults: Faults) -> (Writer, WriterLoop) {
    // Bounded channels would keep their jobs when the writer ends, and callers would wait forever. The settle queue is
    // limited by the attempts in progress, the upkeep queue by the number of upkeep tasks.
    let (settle, settle_jobs) = unbounded();
    let (accept, accept_jobs) = unbounded();
    let (upkeep, upkeep_jobs) = unbounded();
    let contention = WriteContention::new(conn.path());
    let writer_loop = WriterLoop {
        conn,
        room: Arc::default(),
        gauge: Gauge::machine(),
        index: None,
        tried_at: 0,
        limited_to: 0,
        faults,
        cache: WriterCache::default(),
        settle: settle_jobs,
        accept: accept_jobs,
        upkeep: upkeep_jobs,
        done: Arc::default(),
        checkpoints: true,
        must_empty_log: false,
        contention,
    };
    let (done, room) = (Arc::clone(&writer_loop.done), Arc::clone(&writer_loop.room));
    (Writer { settle, accept, upkeep, done, room }, writer_loop)
}
