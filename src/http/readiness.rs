//! Which sockets can be read or written now.
//!
//! Level-triggered, because then a request costs no system call to arm its socket again, and what was
//! not read yet is reported again. Not here: what to do about a ready socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use polling::{Event, Events, PollMode, Poller};

/// What a socket is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Input, or the other end gone.
    Read,
    /// Room for output, or the other end gone.
    Write,
    /// The other end gone, told once at most: a level-triggered hang-up could not be silenced.
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
        // SAFETY: the descriptor is valid here, being borrowed. `polling` asks that it be removed
        // before it is closed: `listener` owns each socket it adds and removes it before dropping it.
        // On epoll, should that be missed, the kernel forgets a closed descriptor by itself.
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

    /// Waits until a socket is ready, [`Readiness::wake`] is called, or `span` is over.
    pub(crate) fn wait(&self, events: &mut Events, span: Duration) -> io::Result<()> {
        events.clear();
        self.poller.wait(events, Some(span)).map(|_| ())
    }

    /// Ends the wait, or the next one, early.
    pub(crate) fn wake(&self) -> io::Result<()> {
        self.poller.notify()
    }
}
