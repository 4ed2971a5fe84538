//! SQLite's locks on single bytes of its files: whether another process holds one. This module takes no lock.

use std::fs::OpenOptions;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};

/// The bytes that readers lock; each reader holds one of them during its transaction.
const READ_LOCKS: RangeInclusive<u16> = 123..=127;
/// Bytes of the index for each [`FRAMES`] frames of the log.
const REGION: u64 = 32 * 1024;
/// Frames of the log that one region describes.
const FRAMES: u64 = 4096;
/// Regions allocated beyond the region in use: 64 MiB of log with pages of 2 KiB, which a transaction writes at most.
const REGIONS_AHEAD: u64 = 8;

/// A file whose byte locks are inspected.
///
/// It is never closed: when a process closes any descriptor of a file, it loses all its locks on that file
/// (fcntl(2)), SQLite's too. So open one for the life of the process, not for a single query.
#[derive(Clone, Copy, Debug)]
pub struct LockFile {
    file: BorrowedFd<'static>,
}

impl LockFile {
    /// Opens an existing file.
    ///
    /// ```
    /// let file = tempfile::NamedTempFile::new()?;
    /// let locks = oncebox::sys::locks::LockFile::open(file.path())?;
    /// assert!(!locks.is_held_by_another(0));
    /// # Ok::<_, std::io::Error>(())
    /// ```
    #[expect(unsafe_code, reason = "a descriptor that is never closed is borrowed for ever")]
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?.into_raw_fd();
        // SAFETY: it is open, and nothing owns it any more, so nothing closes it.
        Ok(Self { file: unsafe { BorrowedFd::borrow_raw(file) } })
    }

    /// Whether a lock on a byte is held by another process, or by an open file description (`F_OFD_SETLK`).
    pub fn is_held_by_another(self, byte: u16) -> bool {
        self.holder(byte..=byte).is_some()
    }

    /// The process that holds a lock on one of these bytes; zero or less if the system does not name it.
    fn holder(self, bytes: RangeInclusive<u16>) -> Option<libc::pid_t> {
        let mut lock = flock(libc::F_WRLCK, bytes);
        // The call overwrites `lock` with the conflicting lock, or sets `F_UNLCK` if there is none.
        let asked = self.call(libc::F_GETLK, &mut lock);
        (asked.is_ok() && i32::from(lock.l_type) != libc::F_UNLCK).then_some(lock.l_pid)
    }

    #[expect(unsafe_code, reason = "no safe binding locks single bytes")]
    fn call(self, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
        // SAFETY: the descriptor is never closed, and the commands read and write exactly one `flock`.
        let answer =
            unsafe { libc::fcntl(self.file.as_raw_fd(), command, std::ptr::from_mut(lock)) };
        if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn flock(kind: libc::c_int, bytes: RangeInclusive<u16>) -> libc::flock {
    // The kinds and SEEK_SET are 0 to 2.
    let short = |number| libc::c_short::try_from(number).unwrap_or_default();
    let l_type = short(kind);
    let l_whence = short(libc::SEEK_SET);
    // The width of an offset differs between machines.
    let l_start = libc::off_t::from(*bytes.start());
    let l_len = libc::off_t::from(*bytes.end()).saturating_sub(l_start).saturating_add(1);
    libc::flock { l_type, l_whence, l_start, l_len, l_pid: 0 }
}

/// The index of SQLite's write-ahead log (`-shm`): allocates its disk blocks in advance, and finds other readers of
/// the log.
///
/// The index is mapped into memory. On a full disk, a store into a page without a block ends the process with
/// SIGBUS. SQLite's locks are byte ranges of this file (<https://sqlite.org/walformat.html>, "WAL Locks").
#[derive(Debug)]
pub struct LogIndex {
    file: LockFile,
    allocated: u64,
}

impl LogIndex {
    /// Opens the index, which a connection of this process has created.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: LockFile::open(path)?, allocated: 0 })
    }

    /// Allocates blocks for a log of so many frames and the next 64 MiB at least, unless that was done before. SQLite accepts
    /// a longer file, and truncates it when it opens it first. If there is no room, or the file system cannot
    /// allocate ahead, this fails and SQLite extends the file itself.
    pub fn allocate(&mut self, frames: u64) -> io::Result<()> {
        let bytes = (frames / FRAMES).saturating_add(1 + REGIONS_AHEAD).saturating_mul(REGION);
        if bytes > self.allocated {
            fallocate(self.file.file, FallocateFlags::empty(), 0, bytes)?;
            self.allocated = bytes;
        }
        Ok(())
    }

    /// Another process that has a read transaction open, if any.
    pub fn reader(&self) -> Option<u32> {
        self.file.holder(READ_LOCKS).and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0)
    }
}

/// The processes that have a read transaction open on the log of this index, as far as `/proc/locks` shows them.
///
/// ```
/// let file = tempfile::NamedTempFile::new()?;
/// assert!(oncebox::sys::locks::readers(file.path()).is_empty());
/// # Ok::<_, std::io::Error>(())
/// ```
pub fn readers(index: &Path) -> Vec<u32> {
    let Ok(file) = std::fs::metadata(index) else { return Vec::new() };
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let mut found: Vec<u32> = locks.lines().filter_map(|line| reader(line, file.ino())).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The process in a line of `/proc/locks` (proc(5)), if the line is a reader's lock on this file.
fn reader(line: &str, inode: u64) -> Option<u32> {
    let mut fields = line.split_whitespace().skip(4);
    let process = fields.next()?;
    let file = fields.next()?;
    let first: u16 = fields.next()?.parse().ok()?;
    let is_ours = file.rsplit(':').next()?.parse() == Ok(inode) && READ_LOCKS.contains(&first);
    process.parse().ok().filter(|_| is_ours)
}

/// A process as text for people: its program and its id.
pub fn shown(process: u32) -> String {
    // The service may not be allowed to see another user's program.
    let program = std::fs::read_to_string(format!("/proc/{process}/comm"));
    program.map_or_else(
        |_| format!("process {process}"),
        |program| format!("{} (process {process})", program.trim()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_held_while_another_open_file_has_its_lock() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let [ours, theirs] = [0, 1].map(|_| LockFile::open(file.path()).unwrap());
        theirs.call(libc::F_OFD_SETLK, &mut flock(libc::F_WRLCK, 7..=7)).unwrap();
        assert!(ours.is_held_by_another(7));
        assert!(!ours.is_held_by_another(8));
        theirs.call(libc::F_OFD_SETLK, &mut flock(libc::F_UNLCK, 7..=7)).unwrap();
        assert!(!ours.is_held_by_another(7));
    }

    #[test]
    fn a_lock_of_this_process_is_not_reported() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let locks = LockFile::open(file.path()).unwrap();
        // Like SQLite's: a lock that belongs to the process.
        locks.call(libc::F_SETLK, &mut flock(libc::F_WRLCK, 7..=7)).unwrap();
        assert!(!locks.is_held_by_another(7));
    }

    #[test]
    fn a_missing_file_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        assert!(LockFile::open(&directory.path().join("none")).is_err());
    }

    #[test]
    fn blocks_are_allocated_ahead_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut index = LogIndex::open(file.path()).unwrap();
        let blocks = |file: &tempfile::NamedTempFile| file.as_file().metadata().unwrap().blocks();
        index.allocate(1).unwrap();
        assert!(blocks(&file) * 512 >= 9 * REGION, "a transaction of 64 MiB in pages of 2 KiB");
        let before = file.as_file().metadata().unwrap().len();
        index.allocate(4095).unwrap();
        assert_eq!(file.as_file().metadata().unwrap().len(), before);
        index.allocate(4096).unwrap();
        assert_eq!(file.as_file().metadata().unwrap().len(), before + REGION);
        assert_eq!(index.reader(), None);
    }

    #[test]
    fn a_readers_lock_is_recognised() {
        let lock = "7: POSIX  ADVISORY  READ  4071 00:2f:815 124 124";
        assert_eq!(reader(lock, 815), Some(4071));
        assert_eq!(reader(lock, 816), None);
        assert_eq!(reader("7: POSIX  ADVISORY  READ  4071 00:2f:815 128 128", 815), None);
        assert_eq!(reader("7: OFDLCK ADVISORY  READ  -1 00:2f:815 124 124", 815), None);
        assert_eq!(reader("7: -> POSIX", 815), None);
        assert_eq!(shown(u32::MAX), "process 4294967295");
    }
}
