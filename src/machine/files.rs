//! Files that something else writes.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat};
use rustix::io::Errno;

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

/// The names in a directory that are UTF-8, sorted.
///
/// # Errors
/// When it cannot be listed.
pub fn names(directory: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(directory)?;
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    Ok(names)
}

/// A file, and what it was when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Its bytes; empty where it is too large.
    pub bytes: Vec<u8>,
    /// Its size.
    pub size: u64,
}

/// Reads a regular file of `most` bytes at most; `None` where the name is of something else, such as a link,
/// or the file was changed meanwhile. Links are not followed: who may put names into a directory must not
/// reach with them what we may read.
///
/// # Errors
/// When it cannot be read.
pub fn read_regular(path: &Path, most: u64) -> io::Result<Option<Contents>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => fs::File::from(file),
        Err(Errno::LOOP | Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let before = file.metadata()?;
    if !before.is_file() {
        return Ok(None);
    }
    let size = before.len();
    if size > most {
        return Ok(Some(Contents { bytes: Vec::new(), size }));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    (&file).take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    let after = file.metadata()?;
    let read = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let is_whole = after.len() == read && after.modified()? == before.modified()?;
    Ok(is_whole.then_some(Contents { bytes, size }))
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
