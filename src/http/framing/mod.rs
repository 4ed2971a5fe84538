//! Frames requests from the bytes of one connection. Pure: no socket, no clock.
//!
//! The result does not depend on how the network splits the bytes. Not here: the grammar of a head (`head`) and deadlines
//! (`connection`).

mod body;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;

use crate::http::framing::body::Body;
use crate::http::head::{self, BodyLength, Parsed, Refusal, ReplyMode};
use crate::http::message::{Head, Request, Response};
use crate::http::service::Limits;

/// Completes a head, and returns the limit of its body, or the answer if the request is refused without its body.
pub(crate) type HeadCheck<'a> = dyn FnMut(&mut Head) -> Result<usize, Response> + 'a;

/// The result of framing the bytes so far.
#[derive(Debug)]
pub(crate) enum Frame {
    /// An incomplete request.
    Partial,
    /// The client waits for `100 Continue`. Returned once per request.
    Continue,
    /// A complete request; more bytes may follow.
    Complete(Request, ReplyMode),
    /// An answer to give without calling the service.
    Refused(Refused),
}

/// An answer that needs no handler.
#[derive(Debug)]
pub(crate) enum Refused {
    /// By the listener. The connection ends, because the start of the next request is unknown.
    ByListener(Refusal, ReplyMode),
    /// By the service, because of the head.
    ByService(Response, ReplyMode),
}

/// The part of a request that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    Nothing,
    Head,
    /// The body, of at most this many bytes.
    Body(usize),
}

/// The unfinished request of one connection.
#[derive(Debug, Default)]
pub(crate) struct Framer {
    /// Received bytes that are not used yet.
    rest: Vec<u8>,
    /// How much of `rest` was searched for the end of the head.
    searched: usize,
    body: Option<Box<Body>>,
}

impl Framer {
    /// Adds `fresh` bytes and frames a request. After every result but [`Frame::Partial`] it must be called again without
    /// bytes, because the rest may hold another request.
    pub(crate) fn advance(
        &mut self,
        fresh: &[u8],
        peer: SocketAddr,
        limits: &Limits,
        check: &mut HeadCheck<'_>,
    ) -> Frame {
        if self.rest.is_empty() {
            let (used, frame) = self.step(fresh, peer, limits, check);
            self.rest.extend_from_slice(fresh.get(used..).unwrap_or_default());
            return frame;
        }
        let mut held = std::mem::take(&mut self.rest);
        held.extend_from_slice(fresh);
        let (used, frame) = self.step(&held, peer, limits, check);
        // An idle connection keeps no buffer, because there may be ten thousand of them.
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

    /// Whether there are bytes after the last request.
    pub(crate) const fn has_rest(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Bytes of memory held.
    pub(crate) fn held(&self) -> usize {
        let body = self.body.as_ref().map_or(0, |body| body.held());
        self.rest.capacity().saturating_add(body)
    }

    /// Uses bytes from the beginning of `bytes`. Returns how many, and the result.
    fn step(
        &mut self,
        bytes: &[u8],
        peer: SocketAddr,
        limits: &Limits,
        check: &mut HeadCheck<'_>,
    ) -> (usize, Frame) {
        if let Some(mut body) = self.body.take() {
            return match body.fill(bytes) {
                Err(refusal) => refused(bytes, Refused::ByListener(refusal, body.mode().closing())),
                Ok((used, true)) => (used, complete(*body)),
                Ok((used, false)) => {
                    self.body = Some(body);
                    (used, Frame::Partial)
                }
            };
        }
        let skipped = empty_lines(bytes);
        self.searched = self.searched.saturating_sub(skipped);
        let bytes = bytes.get(skipped..).unwrap_or_default();
        let (used, frame) = self.head(bytes, peer, limits, check);
        (skipped.saturating_add(used), frame)
    }

    fn head(
        &mut self,
        bytes: &[u8],
        peer: SocketAddr,
        limits: &Limits,
        check: &mut HeadCheck<'_>,
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
            Err(refusal) => refused(bytes, Refused::ByListener(refusal, ReplyMode::CLOSE)),
            Ok((length, parsed)) => self.begin_body(parsed, length, bytes, check),
        }
    }

    /// Checks a parsed head of `length` bytes, and begins its body.
    fn begin_body(
        &mut self,
        mut parsed: Parsed,
        length: usize,
        bytes: &[u8],
        check: &mut HeadCheck<'_>,
    ) -> (usize, Frame) {
        let mode = parsed.mode;
        let limit = match check(&mut parsed.head) {
            Ok(limit) => limit,
            Err(response) if parsed.body_length == BodyLength::Fixed(0) => {
                return (length, Frame::Refused(Refused::ByService(response, mode)));
            }
            // The body is not read: reading it only to discard it would help an attacker.
            Err(response) => return refused(bytes, Refused::ByService(response, mode.closing())),
        };
        let expects = parsed.expects;
        let Some(mut body) = Body::new(parsed, limit) else {
            let refusal = Refusal::new(413, "the body is larger than allowed here");
            return refused(bytes, Refused::ByListener(refusal, mode.closing()));
        };
        let rest = bytes.get(length..).unwrap_or_default();
        match body.fill(rest) {
            Err(refusal) => refused(bytes, Refused::ByListener(refusal, mode.closing())),
            Ok((used, true)) => (length.saturating_add(used), complete(body)),
            Ok((used, false)) => {
                self.body = Some(Box::new(body));
                let frame =
                    if expects && rest.is_empty() { Frame::Continue } else { Frame::Partial };
                (length.saturating_add(used), frame)
            }
        }
    }
}

fn complete(body: Body) -> Frame {
    let (request, mode) = body.into_request();
    Frame::Complete(request, mode)
}

/// A refusal after which all received bytes are discarded.
fn refused(bytes: &[u8], refused: Refused) -> (usize, Frame) {
    (bytes.len(), Frame::Refused(refused))
}

/// The length of empty lines before a request line, which are ignored (RFC 9112, section 2.2).
fn empty_lines(bytes: &[u8]) -> usize {
    bytes.chunks_exact(2).take_while(|pair| *pair == b"\r\n").count().saturating_mul(2)
}
