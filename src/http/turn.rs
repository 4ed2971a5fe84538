//! What a connection does next: the transitions between the phases of a connection.
//!
//! Every function here runs under the lock of the one connection, never blocks, and leaves it in a
//! phase with a deadline. Not here: framing and encoding, which are pure.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;

use crate::http::answer::Outgoing;
use crate::http::connection::{Connection, Phase, State};
use crate::http::core::{BROKEN, Core};
use crate::http::framing::{Begun, Frame, Framer, Refused};
use crate::http::head::Manner;
use crate::http::limits::{LINGER_BYTES, LINGER_SPAN};
use crate::http::message::{Asked, Head, Request, Response};
use crate::http::readiness::Interest;
use crate::http::shares::Holding;

/// One thread's time with one connection.
pub(crate) struct Turn<'a> {
    pub(crate) connection: &'a Arc<Connection>,
    pub(crate) core: &'a Core,
    pub(crate) state: &'a mut State,
    pub(crate) now: Duration,
}

impl Turn<'_> {
    /// The socket is ready for something: what, the phase knows.
    pub(crate) fn ready(&mut self, scratch: &mut [u8]) {
        match self.state.phase {
            Phase::Reading => self.read(scratch),
            Phase::Sending => {
                self.flush();
                self.resume();
            }
            Phase::Draining { left } => self.drain(scratch, left),
            // The next request, or the end, before this one is answered: to be looked at afterwards.
            Phase::InHand => self.arm(Interest::Nothing),
            Phase::Closed => (),
        }
    }

    /// The service's answer to the request in hand.
    pub(crate) fn answer(&mut self, response: Response) {
        // Only a stop takes a request out of hand; then nobody waits for this.
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

    /// Looks at the deadline.
    pub(crate) fn overdue(&mut self) {
        let late = self.now >= self.state.deadline;
        match (self.state.phase, self.state.begun) {
            (Phase::Reading, Begun::Nothing) if late || self.is_left_by_stop() => self.close(),
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

    /// Whether a stop need not wait for this connection, which has no request begun.
    fn is_left_by_stop(&self) -> bool {
        self.core.stop.asked() && self.now >= self.state.fresh_until
    }

    /// Ends what the client has been slow to send or to take.
    pub(crate) fn make_room(&mut self) {
        match self.state.phase {
            Phase::Reading => self.refuse_for_room(Manner::CLOSE),
            Phase::Sending => {
                self.core.counters.timeouts.add();
                self.reset();
            }
            // Answered since it was chosen.
            Phase::InHand | Phase::Draining { .. } | Phase::Closed => (),
        }
    }

    /// Gives up the connection; the listener thread, which hears of the hang-up, removes it.
    pub(crate) fn close(&mut self) {
        self.state.phase = Phase::Closed;
        self.state.framer = Framer::default();
        self.state.outgoing = Outgoing::default();
        self.charge(Holding::default());
        // Both fail only where the other end has already done the same.
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
            Err(error) if later(&error) => (),
            Err(_) => self.close(),
        }
    }

    /// Frames what a client has sent beyond the request just answered, without waiting for more.
    fn resume(&mut self) {
        if self.state.phase == Phase::Reading && self.state.framer.has_rest() {
            self.frame(&[]);
        }
    }

    /// Cuts requests from the input, until one is in hand or the input is used up.
    fn frame(&mut self, mut fresh: &[u8]) {
        while self.state.phase == Phase::Reading {
            let (core, door) = (self.core, self.connection.door);
            let from = (self.connection.peer, &core.limits);
            let (now, State { framer, asked, client, .. }) = (self.now, &mut *self.state);
            let mut gate = |head: &mut Head| {
                head.door = door;
                core.introduce(head);
                *client = Some(head.client);
                *asked = Some((Asked::of(head), now));
                core.body_limit(head)
            };
            let fresh = std::mem::take(&mut fresh);
            match framer.advance(fresh, from, &mut gate) {
                Frame::Partial => return self.wait_for_more(),
                Frame::Continue => self.go_on(),
                Frame::Whole(request, manner) => self.hand_over(request, manner),
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

    /// Lets the client send its body. The socket has nothing else to send, so this fits into it.
    fn go_on(&mut self) {
        const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
        match (&self.connection.socket).write(CONTINUE) {
            Ok(length) if length == CONTINUE.len() => (),
            _ => self.close(),
        }
    }

    fn hand_over(&mut self, request: Request, manner: Manner) {
        let bytes = request.held().saturating_add(self.state.framer.held());
        let body = request.body.len();
        if !self.charge(Holding { bytes, body, in_hand: true, ..Holding::default() }) {
            return self.refuse_for_room(manner.closing());
        }
        self.state.manner = manner;
        self.state.fresh_until = Duration::ZERO;
        self.state.phase = Phase::InHand;
        if !self.core.jobs.call(Arc::clone(self.connection), request) {
            self.core.counters.overloaded.add();
            let busy = self.core.refusal(503, "too many requests wait to be handled");
            self.send(busy.header("retry-after", "1"));
        }
    }

    fn refuse(&mut self, refused: Refused) {
        let (response, manner) = match refused {
            Refused::There(response, manner) => (response, manner),
            Refused::Here(refusal, manner) => {
                self.core.counters.malformed.add();
                (self.core.refusal(refusal.status, refusal.detail), manner)
            }
        };
        self.state.manner = manner;
        self.send(response);
    }

    fn refuse_for_room(&mut self, manner: Manner) {
        self.core.counters.overloaded.add();
        self.state.framer = Framer::default();
        self.state.manner = manner;
        let full = self.core.refusal(503, "too much input is being held");
        self.send(full.header("retry-after", "1"));
    }

    fn time_out(&mut self, detail: &str) {
        self.core.counters.timeouts.add();
        self.state.framer = Framer::default();
        self.state.manner = Manner::CLOSE;
        self.send(self.core.refusal(408, detail));
    }

    fn send(&mut self, response: Response) {
        let asked = self.state.asked.take();
        let (asked, since) =
            asked.unwrap_or_else(|| (self.core.stranger(self.connection.peer), self.now));
        let took = self.now.saturating_sub(since);
        let response = self.core.finished(asked, took, response);
        let persist = self.state.manner.persist && !response.close && !self.core.stop.asked();
        self.state.manner.persist = persist;
        let date = (&self.core.date, self.core.clock.wall());
        self.state.outgoing = Outgoing::new(response, self.state.manner, persist, date);
        self.state.phase = Phase::Sending;
        self.state.since = self.now;
        self.state.deadline = self.now.saturating_add(self.core.limits.answer_timeout);
        self.flush();
    }

    fn flush(&mut self) {
        match self.state.outgoing.write_some(&self.connection.socket) {
            Ok(true) => self.settle(),
            Ok(false) => self.wait_for_room(),
            Err(error) if later(&error) => self.wait_for_room(),
            Err(_) => self.close(),
        }
    }

    /// The client is slow to take its answer.
    fn wait_for_room(&mut self) {
        let body = self.state.outgoing.held();
        let bytes = body.saturating_add(self.state.framer.held());
        // An answer is of our making, so it is not in the client's share: behind a proxy that is not trusted a
        // small request of somebody else would cut off a large answer.
        self.core.charge(&mut self.state.held, Holding { bytes, body, ..Holding::default() });
        self.arm(Interest::Write);
    }

    /// The answer is written: on to the next request, or to the end.
    fn settle(&mut self) {
        self.state.outgoing = Outgoing::default();
        self.state.begun = Begun::Nothing;
        self.state.client = None;
        if self.state.manner.persist {
            self.state.phase = Phase::Reading;
            self.state.deadline = self.now.saturating_add(self.core.limits.idle_timeout);
        } else {
            // Closed with input unread, the socket would send a reset, and that may overtake the
            // answer (RFC 9112, section 9.6).
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
            Err(error) if later(&error) => (),
            Ok(_) | Err(_) => self.close(),
        }
    }

    /// Ends the connection without leaving the rest of an answer to the kernel, which would try for
    /// minutes to send it to somebody who does not read.
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

    /// Says what is held now, the client apart; false if the service must not get it for want of room.
    fn charge(&mut self, new: Holding) -> bool {
        let peer = self.connection.peer.ip();
        let direct = || (!self.core.proxies.trusts(peer)).then_some(peer);
        let client = self.state.client.or_else(direct);
        self.core.charge(&mut self.state.held, Holding { client, ..new })
    }
}

/// Whether the socket may well do later what it does not do now.
fn later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
