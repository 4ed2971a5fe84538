//! What the listener has counted since it started.
//!
//! Not here: names and labels of metrics, which belong to who publishes them.

use crate::telemetry::tally::Counter;

/// A reading of all counters. Only `connections`, `busy` and `buffered_bytes` go down again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Connections open now.
    pub connections: u64,
    /// Bytes of requests and answers held now.
    pub buffered_bytes: u64,
    /// Connections accepted, those closed at once for a cap included.
    pub accepted: u64,
    /// Connections closed at once because a cap on connections was reached.
    pub refused: u64,
    /// Of these, those that came from an address with too many.
    pub refused_for_address: u64,
    /// Connections with a request begun or in hand, as of the last look at deadlines.
    pub busy: u64,
    /// Times accepting paused because the system would not give a socket.
    pub accept_pauses: u64,
    /// Complete requests handed to the service.
    pub requests: u64,
    /// Requests refused by the listener itself: malformed, too large, not implemented.
    pub malformed: u64,
    /// Requests answered 503 because the queue, the buffers or a share of them were full.
    pub overloaded: u64,
    /// Connections ended because the other end was too slow; idle ones are not counted.
    pub timeouts: u64,
    /// Panics caught inside the service.
    pub panics: u64,
}

/// The counters behind [`Stats`], each with the meaning given there.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: Counter,
    pub(crate) accepted: Counter,
    pub(crate) refused: Counter,
    pub(crate) refused_for_address: Counter,
    pub(crate) busy: Counter,
    pub(crate) accept_pauses: Counter,
    pub(crate) requests: Counter,
    pub(crate) malformed: Counter,
    pub(crate) overloaded: Counter,
    pub(crate) timeouts: Counter,
    pub(crate) panics: Counter,
}

impl Counters {
    pub(crate) fn read(&self, buffered_bytes: usize) -> Stats {
        Stats {
            connections: self.connections.get(),
            buffered_bytes: u64::try_from(buffered_bytes).unwrap_or(u64::MAX),
            accepted: self.accepted.get(),
            refused: self.refused.get(),
            refused_for_address: self.refused_for_address.get(),
            busy: self.busy.get(),
            accept_pauses: self.accept_pauses.get(),
            requests: self.requests.get(),
            malformed: self.malformed.get(),
            overloaded: self.overloaded.get(),
            timeouts: self.timeouts.get(),
            panics: self.panics.get(),
        }
    }
}
