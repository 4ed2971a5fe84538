//! What waits for a handler thread: complete requests, and answers made elsewhere.
//!
//! Two queues behind one lock rather than two channels, because a handler must take an answer before
//! a request and yet sleep on both. Not here: what a handler does with them.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::http::connection::Connection;
use crate::http::message::{Request, Response};

/// One thing for a handler to do.
pub(crate) enum Job {
    /// Call the service.
    Call(Arc<Connection>, Request),
    /// Encode and write an answer that was made on another thread.
    Answer(Arc<Connection>, Response),
}

/// The queues of one server.
pub(crate) struct Jobs {
    queues: Mutex<Queues>,
    filled: Condvar,
    pending: usize,
}

#[derive(Default)]
struct Queues {
    calls: VecDeque<(Arc<Connection>, Request)>,
    /// Not bounded by a number of its own, because whoever sends an answer must never wait: it holds
    /// at most one answer for each open connection, and those are bounded.
    answers: VecDeque<(Arc<Connection>, Response)>,
    /// Handlers that sleep, one that was rung for but is not up yet included.
    asleep: usize,
    /// Whether one was rung for and is not up yet. Ringing is a system call for whoever brings a job,
    /// so only one ring is under way; who comes up rings for the next if there is more to do.
    rung: bool,
    closed: bool,
}

impl Queues {
    fn pop(&mut self) -> Option<Job> {
        let answer = self.answers.pop_front();
        let answer = answer.map(|(connection, response)| Job::Answer(connection, response));
        answer.or_else(|| {
            self.calls.pop_front().map(|(connection, request)| Job::Call(connection, request))
        })
    }

    fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.calls.is_empty()
    }
}

impl Jobs {
    pub(crate) fn new(pending: usize) -> Self {
        Self { queues: Mutex::default(), filled: Condvar::new(), pending }
    }

    /// Queues a request; false if there are too many.
    pub(crate) fn call(&self, connection: Arc<Connection>, request: Request) -> bool {
        let mut queues = self.lock();
        if queues.closed || queues.calls.len() >= self.pending {
            return false;
        }
        queues.calls.push_back((connection, request));
        self.ring(queues);
        true
    }

    /// Queues an answer. Once closed it is dropped: its connection is closed too.
    pub(crate) fn answer(&self, connection: Arc<Connection>, response: Response) {
        let mut queues = self.lock();
        if !queues.closed {
            queues.answers.push_back((connection, response));
            self.ring(queues);
        }
    }

    /// Waits for something to do; `None` once closed.
    pub(crate) fn take(&self) -> Option<Job> {
        let mut queues = self.lock();
        loop {
            if queues.closed {
                return None;
            }
            if let Some(job) = queues.pop() {
                if !queues.is_empty() {
                    self.ring(queues);
                }
                return Some(job);
            }
            queues.asleep = queues.asleep.saturating_add(1);
            self.filled.wait(&mut queues);
            queues.asleep = queues.asleep.saturating_sub(1);
            queues.rung = false;
        }
    }

    /// Ends the handlers, and drops what still waits.
    pub(crate) fn close(&self) {
        let mut queues = self.lock();
        queues.closed = true;
        let dropped = (std::mem::take(&mut queues.calls), std::mem::take(&mut queues.answers));
        drop(queues);
        drop(dropped);
        self.filled.notify_all();
    }

    /// Wakes one sleeper, once the lock is free for it. A spurious wake-up costs a ring for nobody.
    fn ring(&self, mut queues: MutexGuard<'_, Queues>) {
        let needed = queues.asleep > 0 && !queues.rung;
        queues.rung |= needed;
        drop(queues);
        if needed {
            self.filled.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock()
    }
}
