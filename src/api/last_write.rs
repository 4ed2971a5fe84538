//! Tests with a write whether the database can be written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::bounded;
use parking_lot::Mutex;

use crate::store::error::Result as StoreResult;
use crate::store::writer::Queue;
use crate::store::{Store, stats};

/// How long a write may take until the database counts as not writable.
const MAX_WRITE: Duration = Duration::from_secs(2);

/// Whether the database could be written, when it was last tried.
#[derive(Debug)]
pub(super) struct LastWrite {
    trying: Mutex<()>,
    outcome: Mutex<Result<(), String>>,
    /// Whether a write is in progress that no caller waits for.
    begun: AtomicBool,
}

impl Default for LastWrite {
    /// Writable, because the start has just written.
    fn default() -> Self {
        Self { trying: Mutex::new(()), outcome: Mutex::new(Ok(())), begun: AtomicBool::new(false) }
    }
}

impl LastWrite {
    /// Writes, and waits for two seconds at most. Only one caller at a time writes and blocks its thread; the others get
    /// the last outcome.
    pub(super) fn again(&self, store: &Store) -> Result<(), String> {
        if let Some(_trying) = self.trying.try_lock() {
            let (tell, answer) = bounded(1);
            let done = move |written| drop(tell.send(written));
            store.writer().submit(Queue::Accept, stats::probe, done);
            let written = match answer.recv_timeout(MAX_WRITE) {
                Ok(written) => written.map_err(|error| error.to_string()),
                Err(_late) => Err(format!("no answer within {} s", MAX_WRITE.as_secs())),
            };
            self.set(written);
        }
        self.last()
    }

    /// Starts a write, and returns the outcome of the one before without blocking. If a write hangs, the check of the
    /// writer's oldest job fails.
    pub(super) fn begin(this: &Arc<Self>, store: &Store) -> Result<(), String> {
        if !this.begun.swap(true, Ordering::AcqRel) {
            let tell = Arc::clone(this);
            let done = move |written: StoreResult<()>| {
                tell.set(written.map_err(|error| error.to_string()));
                tell.begun.store(false, Ordering::Release);
            };
            store.writer().submit(Queue::Accept, stats::probe, done);
        }
        this.last()
    }

    fn set(&self, written: Result<(), String>) {
        *self.outcome.lock() = written;
    }

    fn last(&self) -> Result<(), String> {
        self.outcome.lock().clone()
    }
}
