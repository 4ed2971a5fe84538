//! What the writer is told about the disk, what it tells about its log, and whether a batch may be run while
//! the disk is nearly full.
//!
//! Not here: copying the log (`log`).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::sys::locks;

/// What the writer is told about the disk, and what it tells about its log. Shared with the disk watch.
#[derive(Debug)]
pub struct LogRoom {
    pub(super) floor: AtomicU64,
    pub(super) copied_at: AtomicU64,
    pub(super) to_empty: AtomicBool,
    pub(super) owed: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) reader: AtomicU32,
}

impl Default for LogRoom {
    fn default() -> Self {
        Self {
            floor: AtomicU64::new(0),
            copied_at: AtomicU64::new(16 << 20),
            to_empty: AtomicBool::new(false),
            owed: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            reader: AtomicU32::new(0),
        }
    }
}

impl LogRoom {
    /// Sets what holds from now on: `floor` bytes of the disk are left to the copying of the log, which is
    /// copied when it has `copied_at` bytes.
    pub fn set(&self, floor: u64, copied_at: u64) {
        self.floor.store(floor, Ordering::Relaxed);
        self.copied_at.store(copied_at, Ordering::Relaxed);
    }

    /// Has the log copied and cut to nothing within a second, whether or not anything is committed.
    pub fn ask_to_empty(&self) {
        self.to_empty.store(true, Ordering::Relaxed);
    }

    /// Bytes by which the file has yet to grow for what is in the log.
    pub fn owed(&self) -> u64 {
        self.owed.load(Ordering::Relaxed)
    }

    /// Bytes of the log that are not in the file yet.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The program that keeps the log from being copied by reading in a transaction; `None` while there is none.
    pub fn reader(&self) -> Option<String> {
        let process = self.reader.load(Ordering::Relaxed);
        (process != 0).then(|| locks::shown(process))
    }
}

/// A disk that is nearly full, before a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Near {
    pub(super) free: u64,
    pub(super) floor: u64,
    pub(super) owed: u64,
}

impl Near {
    /// Whether a batch may be run. Below half of the reserve each job has a transaction of its own, so that
    /// what finds no room is small.
    pub(super) fn admits(self, jobs: usize) -> bool {
        let floor = if jobs > 1 { self.floor.saturating_mul(4) } else { self.floor };
        self.free >= floor.saturating_add(self.owed)
    }
}
