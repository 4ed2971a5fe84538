//! Room for the write-ahead log: limits and numbers shared with the disk watch, and whether a batch may run while the
//! disk is nearly full. `log` copies the log.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::sys::locks;

/// Limits that the disk watch sets for the writer, and numbers about the log that the writer reports.
#[derive(Debug)]
pub struct LogRoom {
    pub(super) floor: AtomicU64,
    pub(super) checkpoint_at: AtomicU64,
    pub(super) to_empty: AtomicBool,
    pub(super) growth: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) reader: AtomicU32,
}

impl Default for LogRoom {
    fn default() -> Self {
        Self {
            floor: AtomicU64::new(0),
            checkpoint_at: AtomicU64::new(16 << 20),
            to_empty: AtomicBool::new(false),
            growth: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            reader: AtomicU32::new(0),
        }
    }
}

impl LogRoom {
    /// Sets the limits: `floor` bytes of the disk stay free for copying the log, and the log is copied when it has
    /// `checkpoint_at` bytes.
    pub fn set(&self, floor: u64, checkpoint_at: u64) {
        self.floor.store(floor, Ordering::Relaxed);
        self.checkpoint_at.store(checkpoint_at, Ordering::Relaxed);
    }

    /// Requests that the log is copied and emptied within a second, even without a commit.
    pub fn ask_to_empty(&self) {
        self.to_empty.store(true, Ordering::Relaxed);
    }

    /// Bytes by which the file will grow when the log is copied.
    pub fn growth(&self) -> u64 {
        self.growth.load(Ordering::Relaxed)
    }

    /// Bytes of the log that are not in the file yet.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The program whose read transaction blocks the copying of the log; `None` if there is none.
    pub fn reader(&self) -> Option<String> {
        let process = self.reader.load(Ordering::Relaxed);
        (process != 0).then(|| locks::shown(process))
    }
}

/// The room on a disk that is nearly full, before a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct LowDisk {
    pub(super) free: u64,
    pub(super) floor: u64,
    pub(super) growth: u64,
}

impl LowDisk {
    /// Whether a batch may run. If little room is left, each job needs its own transaction, so that a lack of
    /// room undoes only one job.
    pub(super) fn admits(self, jobs: usize) -> bool {
        let floor = if jobs > 1 { self.floor.saturating_mul(4) } else { self.floor };
        self.free >= floor.saturating_add(self.growth)
    }
}
