//! One connection: its socket, and the state every thread may find it in.
//!
//! The listener thread reads, a handler writes; the lock makes it one at a time. Not here: what
//! happens in a state (`turn`), and which connections there are (`table`).

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::http::answer::Outgoing;
use crate::http::core::Core;
use crate::http::framing::{Begun, Framer};
use crate::http::head::Manner;
use crate::http::limits::FRESH_SPAN;
use crate::http::message::{Asked, Response};
use crate::http::readiness::Interest;
use crate::http::shares::{Holding, Share};
use crate::http::turn::Turn;

/// A client at the other end of a socket.
pub(crate) struct Connection {
    /// Its place in the table, and its name for `readiness`.
    pub(crate) key: usize,
    /// The listening socket it came to.
    pub(crate) door: usize,
    pub(crate) peer: SocketAddr,
    pub(crate) socket: TcpStream,
    state: Mutex<State>,
}

/// What the connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waits for a request, or for the rest of one. Left with the request complete or refused.
    Reading,
    /// A request is with the service. Left when its answer comes, and only then.
    InHand,
    /// An answer did not fit into the socket. Left when it is all written.
    Sending,
    /// The last answer is written; input is read and thrown away, at most that many bytes more.
    Draining { left: usize },
    /// Final. The listener thread removes it.
    Closed,
}

/// The part of a connection that changes.
pub(crate) struct State {
    pub(crate) phase: Phase,
    pub(crate) framer: Framer,
    /// What the deadline was set for while reading.
    pub(crate) begun: Begun,
    pub(crate) deadline: Duration,
    /// Until when its first request is taken to be on its way.
    pub(crate) fresh_until: Duration,
    /// What the socket is watched for.
    pub(crate) armed: Interest,
    /// Since when the request has been sent, or its answer been taken.
    pub(crate) since: Duration,
    /// What this connection is counted with.
    pub(crate) held: Holding,
    /// Who sends the request, once its head is there.
    pub(crate) client: Option<IpAddr>,
    /// The current request and when its head was there; none while it cannot be read.
    pub(crate) asked: Option<(Asked, Duration)>,
    /// How the current request is to be answered.
    pub(crate) manner: Manner,
    pub(crate) outgoing: Outgoing,
}

/// What the listener thread has to know after it looked at a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// A request is begun or not answered yet.
    Busy,
    /// Nothing would be lost.
    Quiet,
    /// To be removed.
    Closed,
}

impl Connection {
    /// A connection that has just come, through a listening socket and from an address; it is given
    /// `patience` until its first request has to begin.
    pub(crate) fn new(
        key: usize,
        (door, peer): (usize, SocketAddr),
        socket: TcpStream,
        (now, patience): (Duration, Duration),
    ) -> Self {
        let state = State {
            phase: Phase::Reading,
            framer: Framer::default(),
            begun: Begun::Nothing,
            deadline: now.saturating_add(patience),
            fresh_until: now.saturating_add(FRESH_SPAN),
            armed: Interest::Read,
            since: now,
            held: Holding::default(),
            client: None,
            asked: None,
            manner: Manner::CLOSE,
            outgoing: Outgoing::default(),
        };
        Self { key, door, peer, socket, state: Mutex::new(state) }
    }

    /// The socket can be read or written, or the other end is gone.
    pub(crate) fn ready(
        self: &Arc<Self>,
        core: &Core,
        now: Duration,
        scratch: &mut [u8],
    ) -> Standing {
        self.turn(core, now, |turn| turn.ready(scratch))
    }

    /// Time has passed.
    pub(crate) fn overdue(self: &Arc<Self>, core: &Core, now: Duration) -> Standing {
        self.turn(core, now, |turn| {
            turn.overdue();
        })
    }

    /// The service has answered the request in hand.
    pub(crate) fn answer(self: &Arc<Self>, core: &Core, response: Response) {
        self.turn(core, core.now(), |turn| turn.answer(response));
    }

    /// Whether it may be closed to make room for another connection; which of two goes first is the order
    /// of what this gives. Idle ones come first, each with its deadline, which comes sooner the longer it
    /// has been idle. Then those follow whose client is slow, each with the time since when.
    pub(crate) fn spare(&self, now: Duration) -> Option<(bool, Duration)> {
        let state = self.state.lock();
        match (state.phase, state.begun) {
            (Phase::InHand | Phase::Closed, _) => None,
            (Phase::Reading, Begun::Nothing) => {
                (now >= state.fresh_until).then_some((false, state.deadline))
            }
            _ => (now >= state.since.saturating_add(FRESH_SPAN)).then_some((true, state.since)),
        }
    }

    /// Since when its client has been sending the request or taking the answer, if ending that would give
    /// memory back to a share.
    pub(crate) fn holds(&self, share: Share) -> Option<Duration> {
        let state = self.state.lock();
        (state.held.can_end() && state.held.is_in(share)).then_some(state.since)
    }

    /// Its memory is needed.
    pub(crate) fn make_room(self: &Arc<Self>, core: &Core, now: Duration) -> Standing {
        self.turn(core, now, |turn| {
            turn.make_room();
        })
    }

    /// Whether the other end has closed, or will at least send nothing more. What it may have sent is left
    /// where it is.
    pub(crate) fn is_left(&self) -> bool {
        match self.socket.peek(&mut [0]) {
            Ok(length) => length == 0,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    /// The server ends.
    pub(crate) fn close(self: &Arc<Self>, core: &Core, now: Duration) -> Standing {
        self.turn(core, now, |turn| {
            turn.close();
        })
    }

    fn turn(
        self: &Arc<Self>,
        core: &Core,
        now: Duration,
        act: impl FnOnce(&mut Turn<'_>),
    ) -> Standing {
        let mut state = self.state.lock();
        act(&mut Turn { connection: self, core, state: &mut state, now });
        match state.phase {
            Phase::Closed => Standing::Closed,
            Phase::Draining { .. } => Standing::Quiet,
            Phase::Reading if state.begun == Begun::Nothing && now >= state.fresh_until => {
                Standing::Quiet
            }
            Phase::Reading | Phase::InHand | Phase::Sending => Standing::Busy,
        }
    }
}
