//! Waits until another program changes a file or a directory (inotify).
//!
//! A hint and no more: a change may be told before it can be read, several may be told as one, and where the
//! system has no inotify to give, nothing is told at all. Who waits here therefore looks for itself each time
//! it comes back, and comes back after a while of its own choosing.
//!
//! Not here: what has changed. The caller reads the file or lists the directory.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use rustix::io::{Errno, read};

/// What counts as a change: a file was written, or something appeared under a name.
const CHANGES: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::MOVED_TO);
/// Bytes of one look at what happened; the longest event is 272.
const EVENTS_BYTES: usize = 4096;
/// Looks at what happened before the next wait: a file under constant change must not keep us here.
const MAX_LOOKS: usize = 16;

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
    /// A watch over nothing yet. Where the system gives no inotify (its limit of instances per user is
    /// reached, say) every wait is a sleep.
    ///
    /// ```
    /// use std::time::Duration;
    /// let watch = oncebox::sys::watch::Watch::new();
    /// assert!(!watch.wait(Duration::from_millis(1)));
    /// ```
    pub fn new() -> Self {
        Self { inotify: init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok() }
    }

    /// Watches a file or a directory (what is directly in it) as well; tells whether it is watched now. One
    /// that is watched already may be added again, which is how one that was replaced is found again.
    pub fn add(&self, path: &Path) -> bool {
        self.inotify.as_ref().is_some_and(|inotify| add_watch(inotify, path, CHANGES).is_ok())
    }

    /// Waits for a change, at most `most`; tells whether there was one. A change that happened since the
    /// last wait counts.
    pub fn wait(&self, most: Duration) -> bool {
        let timeout = Timespec::try_from(most).ok();
        let Some(inotify) = &self.inotify else {
            // Nothing to wait on: only the time passes.
            return poll(&mut [], timeout.as_ref()).is_ok_and(|_| false);
        };
        let mut waited = [PollFd::new(inotify, PollFlags::IN)];
        match poll(&mut waited, timeout.as_ref()) {
            Ok(ready) if ready > 0 => {
                drain(inotify);
                true
            }
            // Nothing came, or a signal did.
            _ => false,
        }
    }
}

/// Takes what has been told so far; what is told meanwhile ends the next wait.
fn drain(inotify: &OwnedFd) {
    let mut events = [0_u8; EVENTS_BYTES];
    for _ in 0..MAX_LOOKS {
        match read(inotify, &mut events) {
            Ok(0) => return,
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
    fn a_write_to_a_watched_file_ends_the_wait_and_is_told_once() {
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
        let _told_of_the_removal = watch.wait(SHORT);
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
