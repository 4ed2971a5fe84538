//! Locks on single bytes of a file: whether another process holds one. No lock is taken here.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::path::Path;

/// A file whose bytes' locks are looked at.
///
/// It is never closed: a process that closes a file, however often it has it open, gives up every lock that it
/// holds on it (fcntl(2)), SQLite's with them. Who opens one keeps it for as long as the process lasts.
#[derive(Clone, Copy, Debug)]
pub struct LockFile {
    file: BorrowedFd<'static>,
}

impl LockFile {
    /// Opens a file that is there.
    ///
    /// ```
    /// let file = tempfile::NamedTempFile::new()?;
    /// let locks = oncebox::sys::locks::LockFile::open(file.path())?;
    /// assert!(!locks.is_held_by_another(0));
    /// # Ok::<_, std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// What the system says.
    #[expect(unsafe_code, reason = "a descriptor that is never closed is lent for ever")]
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?.into_raw_fd();
        // SAFETY: it is open, and nobody owns it any more, so that nobody closes it.
        Ok(Self { file: unsafe { BorrowedFd::borrow_raw(file) } })
    }

    /// Whether another process holds a lock on a byte, or an open file in this one does, this one among them.
    pub fn is_held_by_another(self, byte: u16) -> bool {
        let mut lock = flock(libc::F_WRLCK, byte);
        // What stands in the way of that lock is written over it; `F_UNLCK`: nothing.
        self.call(libc::F_GETLK, &mut lock).is_ok() && i32::from(lock.l_type) != libc::F_UNLCK
    }

    #[expect(unsafe_code, reason = "no safe binding locks single bytes")]
    fn call(self, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
        // SAFETY: the descriptor is open for ever, and the commands read and write one `flock`, no more.
        let answer =
            unsafe { libc::fcntl(self.file.as_raw_fd(), command, std::ptr::from_mut(lock)) };
        if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn flock(kind: libc::c_int, byte: u16) -> libc::flock {
    // The kinds and SEEK_SET are 0 to 2.
    let short = |number| libc::c_short::try_from(number).unwrap_or_default();
    let (l_type, l_whence) = (short(kind), short(libc::SEEK_SET));
    libc::flock { l_type, l_whence, l_start: byte.into(), l_len: 1, l_pid: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_held_while_another_open_file_has_its_lock() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let [ours, theirs] = [0, 1].map(|_| LockFile::open(file.path()).unwrap());
        theirs.call(libc::F_OFD_SETLK, &mut flock(libc::F_WRLCK, 7)).unwrap();
        assert!(ours.is_held_by_another(7));
        assert!(!ours.is_held_by_another(8));
        theirs.call(libc::F_OFD_SETLK, &mut flock(libc::F_UNLCK, 7)).unwrap();
        assert!(!ours.is_held_by_another(7));
    }

    #[test]
    fn a_lock_of_this_process_is_not_anothers() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let locks = LockFile::open(file.path()).unwrap();
        // As SQLite does it: a lock that belongs to the process.
        locks.call(libc::F_SETLK, &mut flock(libc::F_WRLCK, 7)).unwrap();
        assert!(!locks.is_held_by_another(7));
    }

    #[test]
    fn a_file_that_is_not_there_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        assert!(LockFile::open(&directory.path().join("none")).is_err());
    }
}
