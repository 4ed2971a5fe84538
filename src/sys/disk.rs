//! Room on a disk, and what kind of file system it is.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::statvfs;
use rustix::process::{Resource, getrlimit};

/// A file that lies this close to the process's limit of file sizes cannot grow by what SQLite asks for.
const MAX_GROWTH: u64 = 64 * 1024;
/// Bytes written to see whether a write finds room.
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

/// How room is looked at. Real in the product, set by hand in tests.
#[derive(Clone)]
pub struct Gauge(Arc<Look>);

impl std::fmt::Debug for Gauge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gauge")
    }
}

impl Gauge {
    /// Asks the system.
    pub fn machine() -> Self {
        Self::new(space)
    }

    /// Asks something else.
    pub fn new(look: impl Fn(&Path) -> io::Result<Space> + Send + Sync + 'static) -> Self {
        Self(Arc::new(look))
    }

    /// The room where `path` lies.
    ///
    /// # Errors
    /// What the system says.
    pub fn look(&self, path: &Path) -> io::Result<Space> {
        (self.0)(path)
    }
}

/// The room of the file system on which `path` lies.
fn space(path: &Path) -> io::Result<Space> {
    let all = statvfs(path)?;
    let bytes = |blocks: u64| blocks.saturating_mul(all.f_frsize);
    Ok(Space { total: bytes(all.f_blocks), free: bytes(all.f_bavail) })
}

/// Whether a write to one of `files` can have failed for want of room rather than because the disk is
/// broken: the disk or a quota is full, or the file is as large as this process may make it.
///
/// SQLite tells a full disk by itself, but not the other two.
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

/// Writes a little and takes it away again.
fn trial(directory: &Path) -> io::Result<()> {
    let path = directory.join(format!("oncebox.trial.{}", std::process::id()));
    let open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    // Not synced: a file system says that it is full when it is written to, and a sync of one that is
    // broken may take its time.
    let written = open.and_then(|mut file| file.write_all(&vec![0; TRIAL_BYTES]));
    let removed = std::fs::remove_file(&path);
    written.and(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_has_no_more_room_than_its_size() {
        let dir = tempfile::tempdir().unwrap();
        let Space { total, free } = Gauge::machine().look(dir.path()).unwrap();
        assert!(total > 0 && free <= total, "{free} of {total}");
        assert!(Gauge::machine().look(&dir.path().join("nowhere")).is_err());
    }

    #[test]
    fn a_directory_with_room_is_not_out_of_it_and_keeps_nothing_of_the_trial() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_out_of_room(dir.path(), &[&dir.path().join("nowhere")]));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
