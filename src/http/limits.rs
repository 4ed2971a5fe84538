//! How much the listener takes on before it says no.
//!
//! Not here: the limit of a body, which the service decides per request once it knows the head.

use std::time::Duration;

/// A sender may be this slow without being cut off, in bytes a second: 25 MiB still pass.
const BODY_PACE: u64 = 32 * 1024;

/// However long the body, it must be there after this time.
const MAX_BODY_SPAN: Duration = Duration::from_mins(5);

/// A body up to this size is small: large ones leave it a quarter of the memory.
pub(crate) const SMALL_BODY: usize = 64 * 1024;

/// A connection this young is not closed by a stop before its first request: that is on its way.
pub(crate) const FRESH_SPAN: Duration = Duration::from_secs(1);

/// How long a closed connection is read on, so that its client sees the last answer and not a reset.
pub(crate) const LINGER_SPAN: Duration = Duration::from_secs(2);

/// How many bytes are read on meanwhile: more than the largest body any route takes, because many
/// clients send all of a refused body before they look at the answer.
pub(crate) const LINGER_BYTES: usize = 32 * 1024 * 1024;

/// The limits of one server. All of them hold for all its listening sockets together.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections. For one more, those that have been idle longest are closed. Where none is idle,
    /// those go whose client has been sending a request or taking an answer for longest, and for over a
    /// second. Where there are none of these either, the new one is closed at once.
    pub connections: usize,
    /// Open connections from one IPv4 address or one IPv6 /64, loopback too. A trusted proxy may have any
    /// number. Each client behind it may have this many requests; for one more, the requests that have
    /// been sent for longest are answered 503.
    pub connections_per_address: usize,
    /// Bytes of request line and header fields; more is answered 431.
    pub head_bytes: usize,
    /// Header fields, at most 128; more is answered 431.
    pub head_fields: usize,
    /// Bytes of requests and answers held over all connections. One client gets an eighth, or one request
    /// however large; a client is an IPv4 address or an IPv6 /64, behind a trusted proxy the forwarded
    /// one. Bodies over 64 KiB (by declared length; a chunked one by its limit) get three quarters. Beyond
    /// any of these, the requests that have been sent for longest are answered 503 until there is room
    /// again, and answers that have been taken for longest are cut off.
    pub buffered_bytes: usize,
    /// From the first byte of a head to its last; then 408.
    pub head_timeout: Duration,
    /// From the end of the head to the end of the body, plus one second for each 32 KiB of
    /// declared length, at most 300 s in all; then 408. A chunked body counts as its limit.
    pub body_timeout: Duration,
    /// How long a connection may stay open with no request begun; then it is closed in silence.
    pub idle_timeout: Duration,
    /// From the first byte of an answer to its last; then the connection is reset.
    pub answer_timeout: Duration,
    /// Threads that call the service and write answers; at least one.
    pub handlers: usize,
    /// Complete requests that wait for a handler; one more is answered 503 with `retry-after: 1`.
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
    /// How long a body of that many bytes may take.
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
