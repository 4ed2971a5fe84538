//! Work on files with a time limit. A call to a dead network share cannot be interrupted, so it runs on a thread of its
//! own, which is left behind when its time is over.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, bounded};
use parking_lot::Mutex;

/// Runs work on threads, by folder.
#[derive(Debug, Default)]
pub struct Patience(Arc<Mutex<Threads>>);

/// Threads by number.
#[derive(Debug, Default)]
struct Threads {
    last: u64,
    working: BTreeSet<u64>,
    /// Those whose time was over, by folder.
    left_behind: BTreeMap<PathBuf, BTreeSet<u64>>,
}

/// Why there is no result.
#[derive(Debug)]
pub enum Stuck {
    /// The work has not ended in time.
    Late,
    /// Earlier work in the same folder has not ended, so this was not begun.
    Before,
    /// No thread could be started, or it panicked.
    NoThread(io::Error),
}

/// Notes the end of a thread when it is dropped, after a panic as well.
struct Working {
    threads: Arc<Mutex<Threads>>,
    number: u64,
    folder: PathBuf,
}

impl Drop for Working {
    fn drop(&mut self) {
        let mut threads = self.threads.lock();
        threads.working.remove(&self.number);
        if let Some(left) = threads.left_behind.get_mut(&self.folder) {
            left.remove(&self.number);
            if left.is_empty() {
                threads.left_behind.remove(&self.folder);
            }
        }
    }
}

impl Patience {
    /// Runs work that belongs to a folder, and waits for it up to `limit`.
    pub fn run<T: Send + 'static>(
        &self,
        folder: &Path,
        limit: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Stuck> {
        let working = self.begin(folder)?;
        let number = working.number;
        let (done, result) = bounded(1);
        let run = move || {
            let _ends = working;
            drop(done.send(work()));
        };
        start(run).map_err(Stuck::NoThread)?;
        match result.recv_timeout(limit) {
            Ok(result) => Ok(result),
            Err(RecvTimeoutError::Timeout) if self.leave_behind(folder, number) => Err(Stuck::Late),
            // It ended at this moment, or panicked.
            Err(_) => {
                let panicked = |_| Stuck::NoThread(io::Error::other("it panicked"));
                result.try_recv().map_err(panicked)
            }
        }
    }

    fn begin(&self, folder: &Path) -> Result<Working, Stuck> {
        let mut threads = self.0.lock();
        if threads.left_behind.contains_key(folder) {
            return Err(Stuck::Before);
        }
        threads.last = threads.last.wrapping_add(1);
        let number = threads.last;
        threads.working.insert(number);
        Ok(Working { threads: Arc::clone(&self.0), number, folder: folder.to_owned() })
    }

    /// Leaves a thread behind; false if it has ended.
    fn leave_behind(&self, folder: &Path, number: u64) -> bool {
        let mut threads = self.0.lock();
        let is_working = threads.working.contains(&number);
        if is_working {
            threads.left_behind.entry(folder.to_owned()).or_default().insert(number);
        }
        is_working
    }
}

/// Starts a thread. Its handle is dropped: one that is left behind ends by itself, or with the process.
#[expect(
    clippy::disallowed_methods,
    reason = "nobody can wait for a thread that a dead share holds"
)]
fn start(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("folder".to_owned()).spawn(run).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn work_that_hangs_is_left_behind_and_its_folder_waits_for_it() {
        let patience = Patience::default();
        let (go_on, wait) = bounded::<()>(0);
        let hung = Path::new("/hung");
        let late = patience.run(hung, Duration::from_millis(5), move || wait.recv());
        assert!(matches!(late, Err(Stuck::Late)), "{late:?}");
        for _ in 0..3 {
            let before = patience.run(hung, LONG, || 1);
            assert!(matches!(before, Err(Stuck::Before)), "{before:?}");
        }
        assert_eq!(patience.run(Path::new("/other"), LONG, || 2).unwrap(), 2);
        drop(go_on);
        let ended = (0..).find_map(|_| {
            thread::yield_now();
            patience.run(hung, LONG, || 3).ok()
        });
        assert_eq!(ended, Some(3));
    }

    #[test]
    fn work_that_panics_leaves_nothing_behind() {
        let patience = Patience::default();
        let folder = Path::new("/a");
        let panicked = patience.run(folder, LONG, || assert!(folder_is_there(), "on purpose"));
        assert!(matches!(panicked, Err(Stuck::NoThread(_))), "{panicked:?}");
        assert_eq!(patience.run(folder, LONG, || 4).unwrap(), 4);
    }

    fn folder_is_there() -> bool {
        Path::new("/a-folder-that-is-not-there").exists()
    }
}
