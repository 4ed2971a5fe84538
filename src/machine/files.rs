//! Files that something else writes.

use std::fs;
use std::path::Path;

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
