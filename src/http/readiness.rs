//! Watches which sockets can be read or written.
//!
//! Level-triggered: a socket need not be armed again for each request, and unread input is reported again.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use polling::{Event, Events, PollMode, Poller};

/// What a socket is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Input, or a hang-up.
    Read,
    /// Room for output, or a hang-up.
    Write,
    /// A hang-up, reported only once, because a level-triggered one would be reported for ever.
    Nothing,
}

/// The set of watched sockets. May be changed from any thread.
pub(crate) struct Readiness {
    poller: Poller,
}

impl Readiness {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { poller: Poller::new()? })
    }

    /// Starts to watch a socket for input. The caller removes it before closing it.
    #[expect(unsafe_code, reason = "polling leaves it to its caller to remove a closed socket")]
    pub(crate) fn add(&self, socket: &(impl AsRawFd + AsFd), key: usize) -> io::Result<()> {
        // SAFETY: the descriptor is borrowed, so it is valid here. `polling` requires that it is removed before it is
        // closed: `listener` owns each socket that it adds, and removes it before dropping it. If that were missed,
        // epoll itself drops a closed descriptor.
        unsafe { self.poller.add_with_mode(socket, Event::readable(key), PollMode::Level) }
    }

    /// Changes what a socket is watched for.
    pub(crate) fn set(&self, socket: impl AsFd, key: usize, interest: Interest) -> io::Result<()> {
        let (event, mode) = match interest {
            Interest::Read => (Event::readable(key), PollMode::Level),
            Interest::Write => (Event::writable(key), PollMode::Level),
            Interest::Nothing => (Event::none(key), PollMode::Oneshot),
        };
        self.poller.modify_with_mode(socket, event, mode)
    }

    /// Stops watching a socket.
    pub(crate) fn remove(&self, socket: impl AsFd) -> io::Result<()> {
        self.poller.delete(socket)
    }

    /// Waits until a socket is ready, [`Readiness::wake`] is called, or `span` has passed.
    pub(crate) fn wait(&self, events: &mut Events, span: Duration) -> io::Result<()> {
        events.clear();
        self.poller.wait(events, Some(span)).map(|_| ())
    }

    /// Ends the wait, or the next one, early.
    pub(crate) fn wake(&self) -> io::Result<()> {
        self.poller.notify()
    }
}
