//! The interface between the listener and the program that answers requests, and the listener's limits.
//!
//! The limit of a body is decided by the service for each request.

use std::time::Duration;

use crate::base::fair::Payer;
use crate::http::message::{Asked, Head, Request, Response};

/// The slowest accepted rate of a body, in bytes a second.
const BODY_PACE: u64 = 32 * 1024;

/// The longest time for a body of any size.
const MAX_BODY_SPAN: Duration = Duration::from_mins(5);

/// Largest body that counts as small. Large bodies leave a quarter of the memory to small ones.
pub(crate) const SMALL_BODY: usize = 64 * 1024;

/// A stop does not close a connection younger than this, because its first request may be on the way.
pub(crate) const FRESH_SPAN: Duration = Duration::from_secs(1);

/// How long input is still read after the last answer, so that the client gets the answer and not a reset.
pub(crate) const LINGER_SPAN: Duration = Duration::from_secs(2);

/// How many bytes are read meanwhile: more than the largest body of any route, because many clients send a refused body
/// completely before they read the answer.
pub(crate) const LINGER_BYTES: usize = 32 * 1024 * 1024;

/// Answers requests. Called on handler threads, many at once.
pub trait Service: Send + Sync + 'static {
    /// The limit of a request's body. Called once per request, before the body is read. An error is the answer to give
    /// without reading the body (404, 405, 413 …).
    fn body_limit(&self, head: &Head) -> Result<usize, Response>;

    /// Who is charged for a request. Called once, when its body is complete.
    fn payer(&self, head: &Head) -> Payer {
        let _ = head;
        Payer::Anonymous
    }

    /// Answers one request, now or later: `reply` may be kept and sent from any thread.
    fn call(&self, request: Request, reply: Reply);

    /// An answer of the listener itself, in the program's error format.
    fn refusal(&self, status: u16, detail: &str) -> Response;

    /// Completes and logs an answer. Called once for every answer, the listener's own included, before it is written.
    /// `_took` is the time since the head was complete. Called under a lock, so it must not block.
    fn finish(&self, _asked: &Asked, _took: Duration, response: Response) -> Response {
        response
    }
}

/// The way an answer takes back to its connection.
pub(crate) trait ResponseHandle: Send {
    /// Delivers the answer.
    fn deliver(self: Box<Self>, response: Response);
    /// Whether the client has closed its side of the connection.
    fn is_left(&self) -> bool;
}

/// Sends the answer to one request. Dropping it unsent answers 500.
pub struct Reply {
    channel: Option<Box<dyn ResponseHandle>>,
    unanswered: Option<Response>,
}

impl Reply {
    /// `unanswered` is delivered if the reply is dropped.
    pub(crate) fn new(channel: Box<dyn ResponseHandle>, unanswered: Response) -> Self {
        Self { channel: Some(channel), unanswered: Some(unanswered) }
    }

    /// Whether the client has closed its side of the connection, so that long work for it is not worth starting. Costs
    /// a system call.
    pub fn is_left(&self) -> bool {
        self.channel.as_ref().is_none_or(|channel| channel.is_left())
    }

    /// Sends the answer.
    pub fn send(mut self, response: Response) {
        if let Some(channel) = self.channel.take() {
            channel.deliver(response);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let (Some(channel), Some(response)) = (self.channel.take(), self.unanswered.take()) {
            channel.deliver(response);
        }
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply").field("open", &self.channel.is_some()).finish_non_exhaustive()
    }
}

/// The limits of one server, for all its listening sockets together.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections. To make room for a new one, the connections that were idle longest are closed; if none is
    /// idle, those whose client has been sending or receiving for longest, and for over a second. Otherwise the new
    /// one is closed at once.
    pub connections: usize,
    /// Open connections from one IPv4 address or IPv6 /64, loopback included. A trusted proxy may have any number, but
    /// each client behind it only this many requests. Beyond that, the requests that have been sent for longest are
    /// answered 503.
    pub connections_per_address: usize,
    /// Bytes of request line and header fields; more is answered 431.
    pub head_bytes: usize,
    /// Header fields, at most 128; more is answered 431.
    pub head_fields: usize,
    /// Bytes of requests and answers in memory, over all connections. One client (an IPv4 address or IPv6 /64, behind a
    /// trusted proxy the forwarded one) gets an eighth, or one request of any size. Bodies over 64 KiB (by declared
    /// length, or by the limit of a chunked body) get three quarters. Beyond any of these shares, the requests that have
    /// been sent for longest are answered 503, and the answers that have been received for longest are cut off, until
    /// there is room again.
    pub buffered_bytes: usize,
    /// Time from the first byte of a head to its last; then 408.
    pub head_timeout: Duration,
    /// Time for the body after the head, plus one second for each 32 KiB of declared length, at most 300 s in all; then
    /// 408. A chunked body counts as its limit.
    pub body_timeout: Duration,
    /// How long a connection may stay idle; then it is closed.
    pub idle_timeout: Duration,
    /// Time from the first byte of an answer to its last; then the connection is reset.
    pub answer_timeout: Duration,
    /// Threads that call the service and write answers; at least one.
    pub handlers: usize,
    /// Complete requests that may wait for a handler. Beyond that, 503 with `retry-after: 1`.
    pub pending: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            connections_per_address: 1_000,
            head_bytes: 16 * 1024,
            head_fields: 64,
            buffered_bytes: 128 * 1024 * 1024,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            answer_timeout: Duration::from_mins(1),
            handlers: 4,
            pending: 1024,
        }
    }
}

impl Limits {
    /// How long a body of this size may take.
    pub(crate) fn body_span(&self, bytes: usize) -> Duration {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let extra = Duration::from_millis(bytes.saturating_mul(1000).div_euclid(BODY_PACE));
        let cap = MAX_BODY_SPAN.max(self.body_timeout);
        self.body_timeout.saturating_add(extra).min(cap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_body_gets_more_time_but_not_for_ever() {
        let limits = Limits::default();
        assert_eq!(limits.body_span(0), Duration::from_secs(30));
        assert_eq!(limits.body_span(1024 * 1024), Duration::from_secs(62));
        assert_eq!(limits.body_span(usize::MAX), Duration::from_mins(5));
    }
}
