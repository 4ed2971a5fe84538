//! How far the sources are read, so that a publish can wait for rows that were committed before it.
//!
//! A row of an ERP's file is read a moment after its commit. Without this wait an event that is published in that moment
//! goes ahead of the row in their common lane. Only files that changed since their last read are waited for, and only
//! where order is asked for.
//!
//! Not here: reading sources (`sources::relay`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::sys::files::{Stamp, stamps};

/// How long a publish waits at most. A source that takes longer is not waited for until it is read to its end again.
const MOST_WAIT: Duration = Duration::from_millis(50);

/// How far each source is read. A source that cannot be read now is missing.
#[derive(Clone, Debug)]
pub struct SourceMarks(Arc<Marks>);

#[derive(Debug)]
struct Marks {
    most_wait: Duration,
    sources: Mutex<BTreeMap<i64, Mark>>,
    read: Condvar,
}

/// How far a source is read.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Its tenant.
    pub tenant: String,
    /// The files that change when there is something to read.
    pub files: Arc<[PathBuf]>,
    /// Their stamps before it was read to its end; `None`: it must be read again to know whether anything is new.
    pub seen: Option<Vec<Option<Stamp>>>,
    /// The number of its latest read.
    pub begun: u64,
    /// The number of the latest read that came to its end.
    pub done: u64,
}

impl Default for SourceMarks {
    fn default() -> Self {
        Self::new(MOST_WAIT)
    }
}

impl SourceMarks {
    /// Marks for which a publish waits so long at most.
    pub fn new(most_wait: Duration) -> Self {
        Self(Arc::new(Marks { most_wait, sources: Mutex::default(), read: Condvar::new() }))
    }

    /// How long a publish waits at most.
    pub fn most_wait(&self) -> Duration {
        self.0.most_wait
    }

    /// A read begins.
    pub fn begin(&self, source: i64, number: u64) {
        if let Some(mark) = self.0.sources.lock().get_mut(&source) {
            (mark.begun, mark.seen) = (number, None);
        }
    }

    /// A read came to its end.
    pub fn done(&self, source: i64, mark: Mark) {
        self.0.sources.lock().insert(source, mark);
        self.0.read.notify_all();
    }

    /// The source cannot be read now: nobody waits for it.
    pub fn forget(&self, source: i64) {
        self.0.sources.lock().remove(&source);
        self.0.read.notify_all();
    }

    /// Waits until the sources of a tenant, or of all, are read that have changed. `is_ordered` says whether order is
    /// asked for at all.
    pub fn wait(&self, tenant: Option<&str>, is_ordered: impl FnOnce() -> bool) {
        let is_meant = |mark: &&Mark| tenant.is_none_or(|tenant| tenant == mark.tenant);
        let marks: Vec<(i64, Mark)> = {
            let sources = self.0.sources.lock();
            let meant = sources.iter().filter(|(_, mark)| is_meant(mark));
            meant.map(|(source, mark)| (*source, mark.clone())).collect()
        };
        // Outside the lock: a file system may be slow.
        let is_changed =
            |mark: &Mark| mark.seen.as_ref().is_none_or(|seen| *seen != stamps(&mark.files));
        let mut late = marks.into_iter().filter(|(_, mark)| is_changed(mark)).peekable();
        if late.peek().is_none() || !is_ordered() {
            return;
        }
        // The read under way may have begun before the commit, so the one after it counts.
        let late: Vec<(i64, u64)> = late.map(|(source, mark)| (source, mark.begun)).collect();
        let is_late = |sources: &BTreeMap<i64, Mark>, (source, begun): &(i64, u64)| {
            sources.get(source).is_some_and(|mark| mark.done <= *begun)
        };
        let mut sources = self.0.sources.lock();
        let waits =
            |sources: &mut BTreeMap<i64, Mark>| late.iter().any(|one| is_late(sources, one));
        if self.0.read.wait_while_for(&mut sources, waits, self.0.most_wait).timed_out() {
            for one in &late {
                if is_late(&sources, one) {
                    sources.remove(&one.0);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(files: &[PathBuf], number: u64) -> Mark {
        Mark {
            tenant: "default".to_owned(),
            files: files.into(),
            seen: Some(stamps(files)),
            begun: number,
            done: number,
        }
    }

    #[test]
    fn only_a_changed_file_is_waited_for_and_only_once_if_it_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("erp.db");
        std::fs::write(&file, "a").unwrap();
        let files = [file.clone()];
        let marks = SourceMarks::default();
        let asks = |tenant| {
            let mut asked = false;
            marks.wait(tenant, || {
                asked = true;
                true
            });
            asked
        };
        assert!(!asks(None), "there is no source");
        marks.done(1, mark(&files, 1));
        assert!(!asks(None), "nothing has changed");
        std::fs::write(&file, "longer").unwrap();
        assert!(!asks(Some("other")), "it is of another tenant");
        assert!(asks(Some("default")));
        assert!(!asks(None), "it was waited for in vain");
        marks.done(1, mark(&files, 2));
        marks.begin(1, 3);
        assert!(asks(None), "it is being read");
    }

    #[test]
    fn the_wait_ends_with_a_read_that_began_later() {
        let marks = SourceMarks::default();
        marks.done(1, Mark { seen: None, ..mark(&[], 1) });
        std::thread::scope(|scope| {
            scope.spawn(|| marks.wait(None, || true));
            marks.begin(1, 2);
            marks.done(1, mark(&[], 2));
        });
        assert!(marks.0.sources.lock().contains_key(&1), "the wait was not in vain");
    }
}
