//! One connection: its socket, its phase, and every transition between phases; and the queue of jobs for the handlers.
//!
//! The listener thread reads, and a handler writes; a lock lets only one of them in. Not here: framing (`framing`),
//! encoding (`answer`), and the table of open connections (`listener`).

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use socket2::SockRef;

use crate::base::fair::{Fair, FairQueue, Payer};
use crate::http::answer::{Outgoing, Written};
use crate::http::core::{BROKEN, Core};
use crate::http::framing::{Begun, Frame, Framer, Refused};
use crate::http::head::ReplyMode;
use crate::http::message::{Asked, Head, Request, Response};
use crate::http::readiness::Interest;
use crate::http::service::{FRESH_SPAN, LINGER_BYTES, LINGER_SPAN};
use crate::http::shares::{Holding, Share};

/// An open connection.
pub(crate) struct Connection {
    /// Its key for `readiness`: the number of listening sockets plus its slot in the table.
    pub(crate) key: usize,
    /// Index of the listening socket that it came to.
    pub(crate) door: usize,
    pub(crate) peer: SocketAddr,
    pub(crate) socket: TcpStream,
    /// The queue for complete requests.
    jobs: Arc<Jobs>,
    state: Mutex<ConnectionProgress>,
}

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waits for a request or the rest of one. Ends when the request is complete or refused.
    Reading,
    /// The service has a request. Ends only with its answer.
    InHand,
    /// An answer did not fit into the socket. Ends when all of it is written.
    Sending,
    /// The last answer is written. Input is discarded, at most `left` bytes more.
    Draining { left: usize },
    /// Final. The listener thread removes it.
    Closed,
}

/// The mutable part of a connection.
struct ConnectionProgress {
    phase: Phase,
    framer: Framer,
    /// The part of a request that the deadline is for, while reading.
    begun: Begun,
    deadline: Duration,
    /// Until then its first request is assumed to be on the way.
    fresh_until: Duration,
    /// What the socket is watched for.
    armed: Interest,
    /// When the client began to send the request or to receive the answer.
    since: Duration,
    /// The memory that this connection is counted with.
    held: Holding,
    /// The request's client, once its head is complete.
    client: Option<IpAddr>,
    /// The current request, and when its head was complete; `None` before that.
    asked: Option<(Asked, Duration)>,
    /// How to answer the current request.
    mode: ReplyMode,
    outgoing: Outgoing,
}

/// The state of a connection for the listener thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    /// A request has begun and is not answered yet.
    Busy,
    /// It can be closed without loss.
    Idle,
    /// To be removed.
    Closed,
}

/// An accepted socket: where it came in, and from whom.
pub(crate) struct Accepted {
    pub(crate) socket: TcpStream,
    /// The index of the listening socket.
    pub(crate) door: usize,
    pub(crate) peer: SocketAddr,
}

impl Connection {
    /// A new connection. Its first request must begin within `patience`.
    pub(crate) fn new(
        key: usize,
        accepted: Accepted,
        now: Duration,
        patience: Duration,
        jobs: Arc<Jobs>,
    ) -> Self {
        let Accepted { socket, door, peer } = accepted;
        let state = ConnectionProgress {
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
            mode: ReplyMode::CLOSE,
            outgoing: Outgoing::default(),
        };
        Self { key, door, peer, socket, jobs, state: Mutex::new(state) }
    }

    /// The rank for being closed to make room for another connection, lowest first; `None`: it must stay. Idle connections
    /// come first, the longest idle first, then those whose client has been slow for longest.
    pub(crate) fn eviction_rank(&self, now: Duration) -> Option<(bool, Duration)> {
        let state = self.state.lock();
        match (state.phase, state.begun) {
            (Phase::InHand | Phase::Closed, _) => None,
            (Phase::Reading, Begun::Nothing) => {
                (now >= state.fresh_until).then_some((false, state.deadline))
            }
            _ => (now >= state.since.saturating_add(FRESH_SPAN)).then_some((true, state.since)),
        }
    }

    /// When its client began to send or receive, if ending that would give memory back to the share.
    pub(crate) fn evictable_since(&self, share: Share) -> Option<Duration> {
        let state = self.state.lock();
        (state.held.can_end() && state.held.is_in(share)).then_some(state.since)
    }

    /// Whether the client has closed its side of the connection. Unread input stays unread.
    pub(crate) fn is_left(&self) -> bool {
        match self.socket.peek(&mut [0]) {
            Ok(length) => length == 0,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    /// Locks the connection, runs `act` on it, and returns its state afterwards.
    pub(crate) fn with(
        self: &Arc<Self>,
        core: &Core,
        now: Duration,
        act: impl FnOnce(&mut Locked<'_>),
    ) -> ConnectionState {
        let mut state = self.state.lock();
        act(&mut Locked { connection: self, core, state: &mut state, now });
        match state.phase {
            Phase::Closed => ConnectionState::Closed,
            Phase::Draining { .. } => ConnectionState::Idle,
            Phase::Reading if state.begun == Begun::Nothing && now >= state.fresh_until => {
                ConnectionState::Idle
            }
            Phase::Reading | Phase::InHand | Phase::Sending => ConnectionState::Busy,
        }
    }
}

/// A locked connection. Its functions never block, and leave the connection in a phase with a deadline.
pub(crate) struct Locked<'a> {
    connection: &'a Arc<Connection>,
    core: &'a Core,
    state: &'a mut ConnectionProgress,
    now: Duration,
}

impl Locked<'_> {
    /// Reads or writes the ready socket.
    pub(crate) fn ready(&mut self, scratch: &mut [u8]) {
        match self.state.phase {
            Phase::Reading => self.read(scratch),
            Phase::Sending => {
                self.flush();
                self.resume();
            }
            Phase::Draining { left } => self.drain(scratch, left),
            // The next request or a hang-up came before this request was answered: it is handled after the answer.
            Phase::InHand => self.arm(Interest::Nothing),
            Phase::Closed => (),
        }
    }

    /// Sends the service's answer.
    pub(crate) fn answer(&mut self, response: Response) {
        // In any other phase, the connection was closed by a stop.
        if self.state.phase == Phase::InHand {
            if response.is_hang_up() {
                return self.close();
            }
            let final_answer = (200..=599).contains(&response.status);
            let response = if final_answer { response } else { self.core.refusal(500, BROKEN) };
            self.send(response);
            self.resume();
        }
    }

    /// Ends what has passed its deadline.
    pub(crate) fn check_deadline(&mut self) {
        let late = self.now >= self.state.deadline;
        match (self.state.phase, self.state.begun) {
            (Phase::Reading, Begun::Nothing) if late || self.is_closed_by_stop() => self.close(),
            (Phase::Reading, Begun::Head) if late => {
                self.time_out("the head took too long to come");
            }
            (Phase::Reading, Begun::Body(_)) if late => {
                self.time_out("the body took too long to come");
            }
            (Phase::Sending, _) if late => {
                self.core.counters.timeouts.add();
                self.reset();
            }
            (Phase::Draining { .. }, _) if late => self.close(),
            _ => (),
        }
    }

    /// Whether a stop closes this idle connection.
    fn is_closed_by_stop(&self) -> bool {
        self.core.stop.asked() && self.now >= self.state.fresh_until
    }

    /// Ends a slow request or answer.
    pub(crate) fn make_room(&mut self) {
        match self.state.phase {
            Phase::Reading => self.refuse_for_room(ReplyMode::CLOSE),
            Phase::Sending => {
                self.core.counters.timeouts.add();
                self.reset();
            }
            // It was answered since it was selected.
            Phase::InHand | Phase::Draining { .. } | Phase::Closed => (),
        }
    }

    /// Closes the connection. The listener thread is notified of the hang-up and removes it.
    pub(crate) fn close(&mut self) {
        self.state.phase = Phase::Closed;
        self.state.framer = Framer::default();
        self.state.outgoing = Outgoing::default();
        self.charge(Holding::default());
        // Both fail only if the client has already closed the connection.
        drop(self.connection.socket.shutdown(Shutdown::Both));
        if self.state.armed != Interest::Read {
            let key = self.connection.key;
            drop(self.core.readiness.set(&self.connection.socket, key, Interest::Read));
        }
    }

    fn read(&mut self, scratch: &mut [u8]) {
        match (&self.connection.socket).read(scratch) {
            Ok(0) => self.close(),
            Ok(length) => self.frame(scratch.get(..length).unwrap_or_default()),
            Err(error) if is_temporary(&error) => (),
            Err(_) => self.close(),
        }
    }

    /// Frames the input that came after the answered request.
    fn resume(&mut self) {
        if self.state.phase == Phase::Reading && self.state.framer.has_rest() {
            self.frame(&[]);
        }
    }

    /// Frames requests from the input, until the service has one or the input is used up.
    fn frame(&mut self, mut fresh: &[u8]) {
        while self.state.phase == Phase::Reading {
            let core = self.core;
            let door = self.connection.door;
            let peer = self.connection.peer;
            let now = self.now;
            let ConnectionProgress { framer, asked, client, .. } = &mut *self.state;
            let mut check = |head: &mut Head| {
                head.door = door;
                core.identify(head);
                *client = Some(head.client);
                *asked = Some((Asked::of(head), now));
                core.body_limit(head)
            };
            let fresh = std::mem::take(&mut fresh);
            match framer.advance(fresh, peer, &core.limits, &mut check) {
                Frame::Partial => return self.wait_for_more(),
                Frame::Continue => self.send_continue(),
                Frame::Complete(request, mode) => self.hand_over(request, mode),
                Frame::Refused(refused) => self.refuse(refused),
            }
        }
    }

    fn wait_for_more(&mut self) {
        let begun = self.state.framer.begun();
        let body = if let Begun::Body(bytes) = begun { bytes } else { 0 };
        self.charge(Holding { bytes: self.state.framer.held(), body, ..Holding::default() });
        if begun != self.state.begun {
            if self.state.begun == Begun::Nothing {
                self.state.since = self.now;
            }
            self.state.begun = begun;
            let limits = &self.core.limits;
            let span = match begun {
                Begun::Nothing => limits.idle_timeout,
                Begun::Head => limits.head_timeout,
                Begun::Body(bytes) => limits.body_span(bytes),
            };
            self.state.deadline = self.now.saturating_add(span);
        }
    }

    /// Tells the client to send its body. The socket has nothing else to send, so this fits into its buffer.
    fn send_continue(&mut self) {
        const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
        match (&self.connection.socket).write(CONTINUE) {
            Ok(length) if length == CONTINUE.len() => (),
            _ => self.close(),
        }
    }

    fn hand_over(&mut self, request: Request, mode: ReplyMode) {
        let payer = self.core.payer(&request.head);
        let bytes = request.held().saturating_add(self.state.framer.held());
        let body = request.body.len();
        if !self.charge(Holding { bytes, body, in_hand: true, ..Holding::default() }) {
            return self.refuse_for_room(mode.closing());
        }
        self.state.mode = mode;
        self.state.fresh_until = Duration::ZERO;
        self.state.phase = Phase::InHand;
        if !self.connection.jobs.call(&payer, Arc::clone(self.connection), request) {
            self.core.counters.overloaded.add();
            let busy = self.core.refusal(503, "too many requests wait to be handled");
            self.send(busy.header("retry-after", "1"));
        }
    }

    fn refuse(&mut self, refused: Refused) {
        let (response, mode) = match refused {
            Refused::ByService(response, mode) => (response, mode),
            Refused::ByListener(refusal, mode) => {
                self.core.counters.malformed.add();
                (self.core.refusal(refusal.status, refusal.detail), mode)
            }
        };
        self.state.mode = mode;
        self.send(response);
    }

    fn refuse_for_room(&mut self, mode: ReplyMode) {
        self.core.counters.overloaded.add();
        self.state.framer = Framer::default();
        self.state.mode = mode;
        let full = self.core.refusal(503, "too much input is being held");
        self.send(full.header("retry-after", "1"));
    }

    fn time_out(&mut self, detail: &str) {
        self.core.counters.timeouts.add();
        self.state.framer = Framer::default();
        self.state.mode = ReplyMode::CLOSE;
        self.send(self.core.refusal(408, detail));
    }

    fn send(&mut self, response: Response) {
        let asked = self.state.asked.take();
        let (asked, since) =
            asked.unwrap_or_else(|| (self.core.unreadable(self.connection.peer), self.now));
        let took = self.now.saturating_sub(since);
        let response = self.core.finished(asked, took, response);
        let persist = self.state.mode.persist && !response.close && !self.core.stop.asked();
        self.state.mode.persist = persist;
        let mode = self.state.mode;
        let now = self.core.clock.wall();
        self.state.outgoing = Outgoing::new(response, mode, persist, &self.core.date, now);
        self.state.phase = Phase::Sending;
        self.state.since = self.now;
        self.state.deadline = self.now.saturating_add(self.core.limits.answer_timeout);
        self.flush();
    }

    fn flush(&mut self) {
        match self.state.outgoing.write_some(&self.connection.socket) {
            Ok(Written::All) => self.answer_written(),
            Ok(Written::Some) => self.wait_until_writable(),
            Ok(Written::Part) => {
                // It gets on, so it is not the slowest.
                self.state.since = self.now;
                self.state.deadline = self.now.saturating_add(self.core.limits.answer_timeout);
                self.wait_until_writable();
            }
            Err(error) if is_temporary(&error) => self.wait_until_writable(),
            Err(_) => self.close(),
        }
    }

    /// Counts the rest of the answer, and waits until the client reads on.
    fn wait_until_writable(&mut self) {
        let body = self.state.outgoing.held();
        let bytes = body.saturating_add(self.state.framer.held());
        // An answer does not count in the client's share: behind a proxy that is not trusted, another client's small
        // request would otherwise cut off a large answer.
        self.core.charge(&mut self.state.held, Holding { bytes, body, ..Holding::default() });
        self.arm(Interest::Write);
    }

    /// Goes on with the next request, or ends the connection.
    fn answer_written(&mut self) {
        self.state.outgoing = Outgoing::default();
        self.state.begun = Begun::Nothing;
        self.state.client = None;
        if self.state.mode.persist {
            self.state.phase = Phase::Reading;
            self.state.deadline = self.now.saturating_add(self.core.limits.idle_timeout);
        } else {
            // A socket that is closed with unread input sends a reset, which may arrive before the answer
            // (RFC 9112, section 9.6).
            self.state.framer = Framer::default();
            self.state.phase = Phase::Draining { left: LINGER_BYTES };
            self.state.deadline = self.now.saturating_add(LINGER_SPAN);
            if self.connection.socket.shutdown(Shutdown::Write).is_err() {
                return self.close();
            }
        }
        self.charge(Holding { bytes: self.state.framer.held(), ..Holding::default() });
        self.arm(Interest::Read);
    }

    fn drain(&mut self, scratch: &mut [u8], left: usize) {
        match (&self.connection.socket).read(scratch) {
            Ok(length) if length > 0 && length < left => {
                self.state.phase = Phase::Draining { left: left.saturating_sub(length) };
            }
            Err(error) if is_temporary(&error) => (),
            Ok(_) | Err(_) => self.close(),
        }
    }

    /// Closes the connection and discards the rest of the answer. Otherwise the kernel would try for minutes to send it to
    /// a client that does not read.
    fn reset(&mut self) {
        drop(SockRef::from(&self.connection.socket).set_linger(Some(Duration::ZERO)));
        self.close();
    }

    fn arm(&mut self, interest: Interest) {
        if self.state.armed == interest || self.state.phase == Phase::Closed {
            return;
        }
        let Connection { key, socket, .. } = self.connection.as_ref();
        match self.core.readiness.set(socket, *key, interest) {
            Ok(()) => self.state.armed = interest,
            Err(error) => {
                tracing::warn!(%error, "a connection was closed because it could not be watched");
                self.close();
            }
        }
    }

    /// Counts the memory held now. False if there is no room to give the request to the service.
    fn charge(&mut self, new: Holding) -> bool {
        let peer = self.connection.peer.ip();
        let direct = || (!self.core.proxies.trusts(peer)).then_some(peer);
        let client = self.state.client.or_else(direct);
        self.core.charge(&mut self.state.held, Holding { client, ..new })
    }
}

/// Whether the socket may succeed later.
fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// A job for a handler.
pub(crate) enum Job {
    /// Call the service. The payer's place is given back with the next [`Jobs::take`].
    Call(Payer, Arc<Connection>, Request),
    /// Encode and write an answer from another thread.
    Answer(Arc<Connection>, Response),
}

/// The queues of jobs of one server.
pub(crate) struct Jobs {
    queues: Mutex<Queues>,
    filled: Condvar,
}

/// A payer may take a handler while it has fewer than this many times the free ones: of four, one is kept for others.
const HANDLERS_TIMES: usize = 3;

struct Queues {
    calls: FairQueue<(Arc<Connection>, Request)>,
    /// Not bounded: there is at most one answer per open connection, and a thread that sends an answer must not wait.
    answers: VecDeque<(Arc<Connection>, Response)>,
    /// Sleeping handlers, including one that was notified and does not run yet.
    asleep: usize,
    /// Whether a handler was notified and does not run yet. A notification is a system call, so only one is pending; the
    /// handler that wakes notifies the next one if there are more jobs.
    is_waking: bool,
    closed: bool,
}

impl Queues {
    fn pop(&mut self) -> Option<Job> {
        let answer = self.answers.pop_front();
        let answer = answer.map(|(connection, response)| Job::Answer(connection, response));
        answer.or_else(|| {
            let begun = self.calls.begin();
            begun.map(|(payer, (connection, request))| Job::Call(payer, connection, request))
        })
    }

    fn has_more(&self) -> bool {
        !self.answers.is_empty() || self.calls.can_begin()
    }
}

impl Jobs {
    /// For so many handlers and waiting requests.
    pub(crate) fn new(handlers: usize, pending: usize) -> Self {
        let queues = Queues {
            calls: FairQueue::new(Fair::new(handlers, HANDLERS_TIMES), pending),
            answers: VecDeque::new(),
            asleep: 0,
            is_waking: false,
            closed: false,
        };
        Self { queues: Mutex::new(queues), filled: Condvar::new() }
    }

    /// Queues a request; false if there are too many of its payer, or of all.
    fn call(&self, payer: &Payer, connection: Arc<Connection>, request: Request) -> bool {
        let mut queues = self.lock();
        let is_queued = !queues.closed && queues.calls.push(payer, (connection, request)).is_ok();
        if is_queued && queues.calls.can_begin() {
            self.wake_one(queues);
        }
        is_queued
    }

    /// Queues an answer. After [`Jobs::close`] it is dropped, because its connection is closed too.
    pub(crate) fn answer(&self, connection: Arc<Connection>, response: Response) {
        let mut queues = self.lock();
        if !queues.closed {
            queues.answers.push_back((connection, response));
            self.wake_one(queues);
        }
    }

    /// Waits for a job; `None` after [`Jobs::close`]. The handler has ended a call of the payer `ended`.
    pub(crate) fn take(&self, ended: Option<&Payer>) -> Option<Job> {
        let mut queues = self.lock();
        if let Some(payer) = ended {
            queues.calls.end(payer);
        }
        loop {
            if queues.closed {
                return None;
            }
            if let Some(job) = queues.pop() {
                if queues.has_more() {
                    self.wake_one(queues);
                }
                return Some(job);
            }
            queues.asleep = queues.asleep.saturating_add(1);
            self.filled.wait(&mut queues);
            queues.asleep = queues.asleep.saturating_sub(1);
            queues.is_waking = false;
        }
    }

    /// Ends the handlers, and drops all queued jobs.
    pub(crate) fn close(&self) {
        let mut queues = self.lock();
        queues.closed = true;
        let dropped = (queues.calls.drain(), std::mem::take(&mut queues.answers));
        drop(queues);
        drop(dropped);
        self.filled.notify_all();
    }

    /// Releases the lock and wakes one sleeping handler, unless one is already waking.
    fn wake_one(&self, mut queues: MutexGuard<'_, Queues>) {
        let needed = queues.asleep > 0 && !queues.is_waking;
        queues.is_waking |= needed;
        drop(queues);
        if needed {
            self.filled.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock()
    }
}
