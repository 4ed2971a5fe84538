//! How a stage's thread is started, and waited for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::store::error::{Error, Result};
use crate::store::writer::AroundCommit;

/// Starts a stage's thread. If the thread panics, the process ends: otherwise its work would silently stop.
#[expect(clippy::disallowed_methods, reason = "the stages' threads are started here")]
pub(super) fn spawn(
    name: &str,
    listener: &Arc<dyn AroundCommit>,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>> {
    let (listener, stage) = (Arc::clone(listener), name.to_owned());
    let guarded = move || {
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            listener.fatal(&Error::Panicked(stage));
        }
    };
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(guarded)
        .map_err(|source| Error::File { path: "a thread".into(), source: Arc::new(source) })
}

/// Starts threads for code outside the stages.
#[derive(Clone)]
pub struct Spawner(pub(super) Arc<dyn AroundCommit>);

impl std::fmt::Debug for Spawner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Spawner")
    }
}

impl Spawner {
    /// Starts a thread. If it panics, the process ends.
    pub fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
        spawn(name, &self.0, run)
    }
}

/// Waits for a thread's end.
pub fn join(thread: JoinHandle<()>) {
    let name = thread.thread().name().unwrap_or("?").to_owned();
    if thread.join().is_err() {
        tracing::error!(thread = name, "a thread panicked");
    }
}
