//! Cuts the bytes of one connection into requests. Pure: no socket, no clock.
//!
//! Whatever the network splits, the outcome is the same. Not here: the grammar of a head (`head`) and
//! deadlines (`connection`).

mod body;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;

use crate::http::framing::body::Body;
use crate::http::head::{self, BodyLength, Parsed, Refusal, ReplyMode};
use crate::http::limits::Limits;
use crate::http::message::{Head, Request, Response};

/// Completes a head, and asks the service for the limit of its body or for the answer that makes
/// reading it needless.
pub(crate) type Gate<'a> = dyn FnMut(&mut Head) -> Result<usize, Response> + 'a;

/// What the bytes so far amount to.
#[derive(Debug)]
pub(crate) enum Frame {
    /// Less than a request.
    Partial,
    /// The client waits for `100 Continue`. Told once.
    Continue,
    /// A request; further bytes may wait.
    Whole(Request, ReplyMode),
    /// An answer to give without calling the service.
    Refused(Refused),
}

/// An answer that needs no handler.
#[derive(Debug)]
pub(crate) enum Refused {
    /// By the listener. The connection ends, since the start of the next request is unknown.
    Here(Refusal, ReplyMode),
    /// By the service, on the head alone.
    There(Response, ReplyMode),
}

/// What a connection is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    Nothing,
    Head,
    /// A body of at most that many bytes.
    Body(usize),
}

/// The unfinished request of one connection.
#[derive(Debug, Default)]
pub(crate) struct Framer {
    /// Bytes that came but could not be used yet.
    rest: Vec<u8>,
    /// How much of `rest` is known not to end a head.
    searched: usize,
    body: Option<Box<Body>>,
}

impl Framer {
    /// Takes in `fresh` bytes and looks for a request. To be called again with no bytes after every
    /// frame but [`Frame::Partial`], as there may be more in what was kept.
    pub(crate) fn advance(
        &mut self,
        fresh: &[u8],
        from: (SocketAddr, &Limits),
        gate: &mut Gate<'_>,
    ) -> Frame {
        if self.rest.is_empty() {
            let (used, frame) = self.step(fresh, from, gate);
            self.rest.extend_from_slice(fresh.get(used..).unwrap_or_default());
            return frame;
        }
        let mut held = std::mem::take(&mut self.rest);
        held.extend_from_slice(fresh);
        let (used, frame) = self.step(&held, from, gate);
        // An idle connection keeps no buffer: there may be ten thousand of them.
        if used < held.len() {
            held.drain(..used);
            self.rest = held;
        }
        frame
    }

    pub(crate) fn begun(&self) -> Begun {
        match &self.body {
            Some(body) => Begun::Body(body.expected()),
            None if self.rest.is_empty() => Begun::Nothing,
            None => Begun::Head,
        }
    }

    /// Whether bytes wait that came with the last request.
    pub(crate) const fn has_rest(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Bytes of memory held.
    pub(crate) fn held(&self) -> usize {
        let body = self.body.as_ref().map_or(0, |body| body.held());
        self.rest.capacity().saturating_add(body)
    }

    /// Uses a beginning of `bytes`; gives its length and what came of it.
    fn step(
        &mut self,
        bytes: &[u8],
        from: (SocketAddr, &Limits),
        gate: &mut Gate<'_>,
    ) -> (usize, Frame) {
        if let Some(mut body) = self.body.take() {
            return match body.fill(bytes) {
                Err(refusal) => refused(bytes, Refused::Here(refusal, body.mode().closing())),
                Ok((used, true)) => (used, whole(*body)),
                Ok((used, false)) => {
                    self.body = Some(body);
                    (used, Frame::Partial)
                }
            };
        }
        let skipped = empty_lines(bytes);
        self.searched = self.searched.saturating_sub(skipped);
        let bytes = bytes.get(skipped..).unwrap_or_default();
        let (used, frame) = self.head(bytes, from, gate);
        (skipped.saturating_add(used), frame)
    }

    fn head(
        &mut self,
        bytes: &[u8],
        (peer, limits): (SocketAddr, &Limits),
        gate: &mut Gate<'_>,
    ) -> (usize, Frame) {
        let window = bytes.get(..limits.head_bytes).unwrap_or(bytes);
        let searched = std::mem::take(&mut self.searched);
        let parsed = match head::end(window, searched) {
            Ok(None) if bytes.len() < limits.head_bytes => {
                self.searched = window.len();
                return (0, Frame::Partial);
            }
            Ok(None) => Err(Refusal::new(431, "the request head is too large")),
            Ok(Some(length)) => {
                let head = bytes.get(..length).unwrap_or_default();
                head::parse(head, peer, limits.head_fields).map(|parsed| (length, parsed))
            }
            Err(refusal) => Err(refusal),
        };
        match parsed {
            Err(refusal) => refused(bytes, Refused::Here(refusal, ReplyMode::CLOSE)),
            Ok((length, parsed)) => self.open(parsed, length, bytes, gate),
        }
    }

    /// The head is `length` bytes long and understood: may its body come in?
    fn open(
        &mut self,
        mut parsed: Parsed,
        length: usize,
        bytes: &[u8],
        gate: &mut Gate<'_>,
    ) -> (usize, Frame) {
        let mode = parsed.mode;
        let limit = match gate(&mut parsed.head) {
            Ok(limit) => limit,
            Err(response) if parsed.extent == BodyLength::Fixed(0) => {
                return (length, Frame::Refused(Refused::There(response, mode)));
            }
            // Reading a body only to throw it away would be the attack succeeding.
            Err(response) => return refused(bytes, Refused::There(response, mode.closing())),
        };
        let expects = parsed.expects;
        let Some(mut body) = Body::new(parsed, limit) else {
            let refusal = Refusal::new(413, "the body is larger than allowed here");
            return refused(bytes, Refused::Here(refusal, mode.closing()));
        };
        let rest = bytes.get(length..).unwrap_or_default();
        match body.fill(rest) {
            Err(refusal) => refused(bytes, Refused::Here(refusal, mode.closing())),
            Ok((used, true)) => (length.saturating_add(used), whole(body)),
            Ok((used, false)) => {
                self.body = Some(Box::new(body));
                let frame =
                    if expects && rest.is_empty() { Frame::Continue } else { Frame::Partial };
                (length.saturating_add(used), frame)
            }
        }
    }
}

fn whole(body: Body) -> Frame {
    let (request, mode) = body.whole();
    Frame::Whole(request, mode)
}

/// A refusal after which nothing of what came is looked at any more.
fn refused(bytes: &[u8], refused: Refused) -> (usize, Frame) {
    (bytes.len(), Frame::Refused(refused))
}

/// Empty lines before a request line, which are to be overlooked (RFC 9112, section 2.2).
fn empty_lines(bytes: &[u8]) -> usize {
    bytes.chunks_exact(2).take_while(|pair| *pair == b"\r\n").count().saturating_mul(2)
}
