//! The interface between the listener and the program that answers requests.

use std::time::Duration;

use crate::base::fair::Payer;
use crate::http::message::{Asked, Head, Request, Response};

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
    /// `took` is the time since the head was complete. Called under a lock, so it must not block.
    fn finish(&self, asked: &Asked, took: Duration, response: Response) -> Response {
        let (_, _) = (asked, took);
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
