//! The one writer: jobs from three queues, many in a transaction, answered after COMMIT.
//!
//! A job is a closure over `&WriteTx` that has no effect but the database, so that it can be run again
//! when another job of its batch spoils the transaction. What a job brings about outside (an answer, a
//! doorbell) happens in `done` and in the [`Effects`](crate::store::tx::Effects), after COMMIT.
//!
//! Not here: threads (`pipeline` starts the one that calls [`WriterLoop::run`]).

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
use crate::store::tx::{Remembered, WriteTx};
use crate::store::work_done::WorkDone;
use crate::store::writer::working::{BoxedJob, Closure};
use crate::sys::disk::Gauge;
use crate::telemetry::heartbeat::Heartbeat;

pub use room::LogRoom;
pub use working::{AfterCommit, Queue, WriterLoop};

/// Jobs that may wait in the accept queue, about. A handler that finds it full answers 503.
const MAX_ACCEPT_JOBS: usize = 8192;

/// Where jobs are handed in. Cheap to clone.
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
            Queue::Accept if self.accept.len() >= MAX_ACCEPT_JOBS => {
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
    pub fn write<T, R>(&self, queue: Queue, run: R) -> Result<T>
    where
        T: Send + 'static,
        R: FnMut(&WriteTx<'_>) -> Result<T> + Send + 'static,
    {
        let (tell, answer) = bounded(1);
        self.submit(queue, run, move |outcome| drop(tell.send(outcome)));
        answer.recv().unwrap_or(Err(Error::Stopped))
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

    /// The room that the write-ahead log has and needs.
    pub fn room(&self) -> &Arc<LogRoom> {
        &self.room
    }

    /// The writing thread's sign of life.
    pub fn pulse(&self) -> &Heartbeat {
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

pub(crate) fn pair(conn: Connection, faults: Faults) -> (Writer, WriterLoop) {
    // Not bounded channels: those keep their jobs when the writer ends, and callers would wait for ever. Settlements are bounded by what is in hand, chores by the number of chores.
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
        kept_at: 0,
        faults,
        remembered: Remembered::default(),
        settle: settle_jobs,
        accept: accept_jobs,
        upkeep: upkeep_jobs,
        done: Arc::default(),
        checkpoints: true,
        log_owed: false,
        contention,
    };
    let (done, room) = (Arc::clone(&writer_loop.done), Arc::clone(&writer_loop.room));
    (Writer { settle, accept, upkeep, done, room }, writer_loop)
}
