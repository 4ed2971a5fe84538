//! Free space on a disk, and whether a write failed for lack of it.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::statvfs;
use rustix::process::{Resource, getrlimit};

/// A file closer than this to the process's file size limit (`RLIMIT_FSIZE`) cannot grow by what SQLite asks for.
const MAX_GROWTH: u64 = 64 * 1024;
/// Bytes of the trial write.
const TRIAL_BYTES: usize = 32 * 1024;

/// A file system's size and what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes in all.
    pub total: u64,
    /// Bytes that a user without privileges may still take.
    pub free: u64,
}

type Look = dyn Fn(&Path) -> io::Result<Space> + Send + Sync;

/// Measures free space. Real in the product, set by hand in tests.
#[derive(Clone)]
pub struct Gauge(Arc<Look>);

impl std::fmt::Debug for Gauge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gauge")
    }
}

impl Gauge {
    /// Asks the operating system.
    pub fn machine() -> Self {
        Self::new(space)
    }

    /// Asks a function, such as a test's.
    pub fn new(look: impl Fn(&Path) -> io::Result<Space> + Send + Sync + 'static) -> Self {
        Self(Arc::new(look))
    }

    /// The size and free space of the file system that holds `path`.
    pub fn look(&self, path: &Path) -> io::Result<Space> {
        (self.0)(path)
    }
}

fn space(path: &Path) -> io::Result<Space> {
    let all = statvfs(path)?;
    let bytes = |blocks: u64| blocks.saturating_mul(all.f_frsize);
    Ok(Space { total: bytes(all.f_blocks), free: bytes(all.f_bavail) })
}

/// Whether a failed write to one of `files` can mean lack of space rather than a broken disk: the disk or a
/// quota is full, or the file has reached the size limit of this process.
///
/// SQLite itself reports only a full disk, not the other two.
pub fn is_out_of_room(directory: &Path, files: &[&Path]) -> bool {
    let limit = getrlimit(Resource::Fsize).current;
    let sizes = files.iter().filter_map(|file| std::fs::metadata(file).ok()).map(|meta| meta.len());
    let at_limit = |size: u64| limit.is_some_and(|most| size.saturating_add(MAX_GROWTH) > most);
    sizes.into_iter().any(at_limit) || trial(directory).is_err_and(|error| is_no_room(&error))
}

/// Whether the system refused a write because there is no room.
fn is_no_room(error: &io::Error) -> bool {
    use ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// Writes a small file and removes it.
fn trial(directory: &Path) -> io::Result<()> {
    let path = directory.join(format!("oncebox.trial.{}", std::process::id()));
    let open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    // Not synced: a full file system already fails the write, and a sync on a broken disk may hang.
    let written = open.and_then(|mut file| file.write_all(&vec![0; TRIAL_BYTES]));
    let removed = std::fs::remove_file(&path);
    written.and(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_has_no_more_free_space_than_its_size() {
        let dir = tempfile::tempdir().unwrap();
        let Space { total, free } = Gauge::machine().look(dir.path()).unwrap();
        assert!(total > 0 && free <= total, "{free} of {total}");
        assert!(Gauge::machine().look(&dir.path().join("nowhere")).is_err());
    }

    #[test]
    fn a_directory_with_room_is_not_out_of_room_and_the_trial_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_out_of_room(dir.path(), &[&dir.path().join("nowhere")]));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
