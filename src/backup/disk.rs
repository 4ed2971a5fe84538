//! Files of backups: written under a temporary name and renamed when complete; free space; checksums.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use ring::digest::{Context, SHA256};

use crate::backup::{Bytes, Error, Result, file_error};
use crate::sys::disk::Gauge;
use crate::sys::files::{PARTIAL, directory_of, sync_directory_of, with_ending};
use crate::sys::user;

/// Bytes read at once.
const CHUNK_BYTES: usize = 1 << 20;
/// Space left free beside the written file, so that a service on the same disk can continue.
const ROOM_LEFT: u64 = 32 << 20;

/// A file that is being written under a temporary name. Dropped before it is finished, it is removed.
#[derive(Debug)]
pub struct Partial {
    path: PathBuf,
    /// Held open for its lock, which distinguishes a running writer from the leftover of a killed one.
    file: File,
    finished: bool,
}

impl Partial {
    /// Creates the temporary file for `path`. `Exists` if `path` exists, `Busy` if another process writes it.
    pub fn begin(path: &Path) -> Result<Self> {
        if fs::symlink_metadata(path).is_ok() {
            return Err(Error::Exists(path.to_owned()));
        }
        let partial = with_ending(path, PARTIAL);
        clear(&partial)?;
        let open =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&partial);
        let file = open.map_err(file_error(&partial))?;
        lock(&file, &partial)?;
        // SQLite would apply the journal of a killed process to the new file.
        for journal in ["-journal", "-wal", "-shm"] {
            remove(&with_ending(&partial, journal))?;
        }
        Ok(Self { path: partial, file, finished: false })
    }

    /// The temporary path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file itself.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Syncs the file, still under its temporary name.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(file_error(&self.path))
    }

    /// Renames it to its final name and syncs that as well. `Exists` if the name is taken by now.
    pub fn finish(mut self, path: &Path) -> Result<()> {
        self.sync()?;
        if fs::symlink_metadata(path).is_ok() {
            return Err(Error::Exists(path.to_owned()));
        }
        fs::rename(&self.path, path).map_err(file_error(path))?;
        self.finished = true;
        sync_directory_of(path).map_err(file_error(path))
    }

    /// Leaves the file behind, like a killed process.
    pub(crate) fn abandon(mut self) {
        self.finished = true;
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.finished
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "an incomplete file could not be removed");
        }
    }
}

/// Removes the leftover of a killed writer, unless a running one writes it. The leftover is never written to,
/// because it may be a link.
fn clear(partial: &Path) -> Result<()> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(partial);
    if let Ok(leftover) = opened {
        lock(&leftover, partial)?;
    }
    remove(partial)
}

/// Locks the file; `Busy` if a running writer holds the lock.
fn lock(file: &File, path: &Path) -> Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(Error::Busy(path.to_owned())),
        Err(TryLockError::Error(source)) => Err(file_error(path)(source)),
    }
}

/// Removes a file; it is no error if there is none.
pub fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(file_error(path)(error)),
        _ => Ok(()),
    }
}

/// Free bytes for an unprivileged user on the file system of a directory.
pub fn free(directory: &Path) -> Result<Bytes> {
    Ok(Bytes(Gauge::machine().look(directory).map_err(file_error(directory))?.free))
}

/// Checks that there is room for so many bytes and for a running service; `NoRoom` if not.
pub fn room_for(directory: &Path, bytes: u64) -> Result<()> {
    let free = free(directory)?;
    let needed = Bytes(bytes.saturating_add(ROOM_LEFT));
    if free >= needed {
        return Ok(());
    }
    Err(Error::NoRoom { directory: directory.to_owned(), free, needed })
}

/// The SHA-256 of a file, in hex; each chunk is also passed to `copy`.
pub fn sha256(path: &Path, mut copy: impl FnMut(&[u8]) -> std::io::Result<()>) -> Result<String> {
    let open = user::in_directory(directory_of(path), || File::open(path));
    let mut file = open.map_err(file_error(path))?;
    let mut context = Context::new(&SHA256);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = file.read(&mut chunk).map_err(file_error(path))?;
        let Some(bytes) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else {
            return Ok(HEXLOWER.encode(context.finish().as_ref()));
        };
        context.update(bytes);
        copy(bytes).map_err(file_error(path))?;
    }
}

/// The names in a directory, sorted.
pub fn names(directory: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(file_error(directory))? {
        let entry = entry.map_err(file_error(directory))?;
        names.extend(entry.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

/// Removes a file if its name says that a process was writing a copy, and that process was killed.
pub fn clear_partial(directory: &Path, name: &str) -> Result<()> {
    // SQLite's own files beside a copy end in `.partial-journal`, `.partial-wal` and `.partial-shm`.
    let beside = ["-journal", "-wal", "-shm"];
    let partial = beside.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    if partial.ends_with(PARTIAL) && !is_locked(&directory.join(partial)) {
        remove(&directory.join(name))?;
    }
    Ok(())
}

/// Whether a running process writes the file.
pub fn is_locked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock().is_err())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn an_unfinished_file_is_removed_and_an_existing_one_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        drop(Partial::begin(&path).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let write = |content: &[u8]| {
            let mut partial = Partial::begin(&path)?;
            partial.file().write_all(content).unwrap();
            partial.finish(&path)
        };
        write(b"first").unwrap();
        assert!(matches!(write(b"second"), Err(Error::Exists(_))));
        assert_eq!(fs::read(&path).unwrap(), b"first");
    }

    #[test]
    fn the_leftover_of_a_killed_writer_is_replaced_and_a_running_writer_is_not_disturbed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let mut dead = Partial::begin(&path).unwrap();
        dead.file().write_all(b"half").unwrap();
        assert!(matches!(Partial::begin(&path), Err(Error::Busy(_))));
        dead.abandon();
        let living = Partial::begin(&path).unwrap();
        assert_eq!(fs::metadata(living.path()).unwrap().len(), 0);
    }

    #[test]
    fn too_little_room_is_reported_with_both_numbers() {
        let refusal = room_for(Path::new("/"), 1 << 60).unwrap_err().to_string();
        assert!(refusal.contains("GiB") && refusal.contains("are needed"), "{refusal}");
    }
}
