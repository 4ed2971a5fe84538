//! Waits until another program changes a file or a directory (inotify).
//!
//! This is only a hint: a change may be reported before it can be read, several may be reported as one, and without
//! inotify none is reported. So the caller waits with a timeout, and reads the file or the directory each time.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use rustix::io::{Errno, read};

/// What counts as a change: a file was written, or an entry appeared in the directory.
const CHANGES: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::MOVED_TO);
/// Bytes of one read of events, which are zeroed each time; and of the longest event.
const EVENTS_BYTES: usize = 1024;
const EVENT_BYTES: usize = 272;
/// Reads of events after a wait at most, so that a file under constant change does not keep the thread here.
const MAX_READS: usize = 16;

/// Files and directories whose changes end a wait.
#[derive(Debug)]
pub struct Watch {
    /// `None`: there is no inotify, and a wait is a sleep.
    inotify: Option<OwnedFd>,
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

impl Watch {
    /// A watch without any files. If the system gives no inotify, for example because its limit of instances per
    /// user is reached, every wait is a sleep.
    ///
    /// ```
    /// use std::time::Duration;
    /// let watch = oncebox::sys::watch::Watch::new();
    /// assert!(!watch.wait(Duration::from_millis(1)));
    /// ```
    pub fn new() -> Self {
        Self { inotify: init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok() }
    }

    /// Adds a file or a directory (its direct entries); returns whether it is watched now. Add a path again after
    /// its file may have been replaced.
    pub fn add(&self, path: &Path) -> bool {
        self.inotify.as_ref().is_some_and(|inotify| add_watch(inotify, path, CHANGES).is_ok())
    }

    /// Waits for a change, at most `most`; returns whether there was one. A change since the last wait counts.
    pub fn wait(&self, most: Duration) -> bool {
        let timeout = Timespec::try_from(most).ok();
        let Some(inotify) = &self.inotify else {
            return poll(&mut [], timeout.as_ref()).is_ok_and(|_| false);
        };
        let mut waited = [PollFd::new(inotify, PollFlags::IN)];
        match poll(&mut waited, timeout.as_ref()) {
            Ok(ready) if ready > 0 => {
                drain(inotify);
                true
            }
            // The time is over, or a signal came.
            _ => false,
        }
    }
}

/// Reads the events reported so far; later ones end the next wait.
fn drain(inotify: &OwnedFd) {
    let mut events = [0_u8; EVENTS_BYTES];
    for _ in 0..MAX_READS {
        match read(inotify, &mut events) {
            // There was room for another event.
            Ok(length) if length.saturating_add(EVENT_BYTES) <= EVENTS_BYTES => return,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_nothing_more) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const LONG: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(1);

    #[test]
    fn a_write_to_a_watched_file_ends_the_wait_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        fs::write(&file, "a").unwrap();
        let watch = Watch::new();
        assert!(watch.add(&file));
        assert!(!watch.wait(SHORT));
        fs::write(&file, "b").unwrap();
        fs::write(&file, "c").unwrap();
        assert!(watch.wait(LONG));
        assert!(!watch.wait(SHORT));
    }

    #[test]
    fn a_file_that_appears_in_a_watched_directory_ends_the_wait() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir_in(dir.path().parent().unwrap()).unwrap();
        fs::write(elsewhere.path().join("new"), "all of it").unwrap();
        let watch = Watch::new();
        assert!(watch.add(dir.path()));
        fs::rename(elsewhere.path().join("new"), dir.path().join("new")).unwrap();
        assert!(watch.wait(LONG));
    }

    #[test]
    fn a_file_that_was_replaced_is_watched_again_once_it_is_added_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        fs::write(&file, "a").unwrap();
        let watch = Watch::new();
        assert!(watch.add(&file));
        fs::remove_file(&file).unwrap();
        assert!(!watch.add(&file));
        fs::write(&file, "b").unwrap();
        assert!(watch.add(&file));
        let _removal_reported = watch.wait(SHORT);
        fs::write(&file, "c").unwrap();
        assert!(watch.wait(LONG));
    }

    #[test]
    fn without_inotify_a_wait_is_a_sleep() {
        let watch = Watch { inotify: None };
        assert!(!watch.add(Path::new("/")));
        assert!(!watch.wait(SHORT));
    }
}
