//! Many sockets on one thread.

use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use polling::{Event, Events, PollMode, Poller};

/// A socket and what came in on it and is not used up.
pub(crate) struct Line {
    pub(crate) socket: TcpStream,
    pub(crate) input: Vec<u8>,
}

/// The sockets.
pub(crate) struct Lines {
    poller: Poller,
    events: Events,
    pub(crate) open: HashMap<usize, Line>,
    next: usize,
    scratch: Vec<u8>,
}

/// The key of a listening socket.
pub(crate) const DOOR: usize = 0;

impl Lines {
    pub(crate) fn new() -> Self {
        Self {
            poller: Poller::new().unwrap(),
            events: Events::new(),
            open: HashMap::new(),
            next: DOOR + 1,
            scratch: vec![0; 64 * 1024],
        }
    }

    #[allow(unsafe_code, reason = "polling leaves it to its caller to remove a closed socket")]
    pub(crate) fn watch(&self, socket: &(impl AsRawFd + AsFd), key: usize) {
        // SAFETY: every socket lives in `open` (or, the door, as long as this) and is removed from
        // the poller in `drop_line` before it is closed.
        unsafe { self.poller.add_with_mode(socket, Event::readable(key), PollMode::Level) }
            .unwrap();
    }

    /// Watches a connection; returns its key.
    pub(crate) fn add(&mut self, socket: TcpStream) -> usize {
        socket.set_nodelay(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        let key = self.next;
        self.next += 1;
        self.watch(&socket, key);
        self.open.insert(key, Line { socket, input: Vec::with_capacity(4096) });
        key
    }

    /// Takes everybody who waits at the door.
    pub(crate) fn accept(&mut self, door: &TcpListener) {
        while let Ok((socket, _)) = door.accept() {
            self.add(socket);
        }
    }

    /// The keys that have something, after at most `span`.
    pub(crate) fn wait(&mut self, span: Option<Duration>) -> Vec<usize> {
        self.events.clear();
        match self.poller.wait(&mut self.events, span) {
            Err(error) if error.kind() != ErrorKind::Interrupted => panic!("epoll: {error}"),
            _ => self.events.iter().map(|event| event.key).collect(),
        }
    }

    /// Reads what is there; false once the other end has closed.
    pub(crate) fn read(&mut self, key: usize) -> bool {
        let Some(line) = self.open.get_mut(&key) else { return false };
        match line.socket.read(&mut self.scratch) {
            Ok(0) => false,
            Ok(length) => {
                line.input.extend_from_slice(&self.scratch[..length]);
                true
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }

    pub(crate) fn drop_line(&mut self, key: usize) {
        if let Some(line) = self.open.remove(&key) {
            self.poller.delete(&line.socket).unwrap();
        }
    }
}
