//! Files that something else writes.

use std::fs;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::clock::Timestamp;

/// When the newest file of that ending in a directory was last written; `None` where there is none.
pub fn newest(directory: &Path, ending: &str) -> Option<Timestamp> {
    let entries = fs::read_dir(directory).ok()?.flatten();
    let times = entries
        .filter(|entry| entry.file_name().to_string_lossy().ends_with(ending))
        .filter_map(|entry| entry.metadata().ok()?.modified().ok())
        .map(Timestamp::from);
    times.max()
}

/// Whether this process may make files in a directory.
pub fn may_write(directory: &Path) -> bool {
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    accessat(CWD, directory, wanted, AtFlags::EACCESS).is_ok()
}

/// Whether this process may do everything.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
