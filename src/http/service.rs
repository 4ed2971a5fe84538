//! What the listener asks of the program behind it.

use std::time::Duration;

use crate::http::message::{Asked, Head, Request, Response};

/// Answers requests. Called on handler threads, many at once.
pub trait Service: Send + Sync + 'static {
    /// Asked once per request, when the head is complete and before a byte of the body is read.
    ///
    /// # Errors
    /// The answer to give at once instead of reading the body (404, 405, 413 …).
    fn body_limit(&self, head: &Head) -> Result<usize, Response>;

    /// Answers one request, now or later: `reply` may be kept and sent from any thread.
    fn call(&self, request: Request, reply: Reply);

    /// The answer the listener itself gives, in the program's own error format.
    fn refusal(&self, status: u16, detail: &str) -> Response;

    /// Every answer passes here once, the listener's own too, before it is written: to be completed and
    /// noted. `took` is the time since the head was there. Called under a lock: must not block.
    fn finish(&self, asked: &Asked, took: Duration, response: Response) -> Response {
        let (_, _) = (asked, took);
        response
    }
}

/// The way back to the client.
pub(crate) trait WayBack: Send {
    /// Takes the answer there.
    fn deliver(self: Box<Self>, response: Response);
    /// Whether the client has hung up, or will at least send nothing more.
    fn is_left(&self) -> bool;
}

/// The promise of one answer. Dropping it unsent answers 500.
pub struct Reply {
    way_back: Option<Box<dyn WayBack>>,
    abandoned: Option<Response>,
}

impl Reply {
    /// A reply that goes that way; `abandoned` is sent when nobody answers.
    pub(crate) fn new(way_back: Box<dyn WayBack>, abandoned: Response) -> Self {
        Self { way_back: Some(way_back), abandoned: Some(abandoned) }
    }

    /// Whether the client has hung up, or will at least send nothing more: not worth beginning anything
    /// that it would have to end. Asks the system, so that it is not for every request.
    pub fn is_left(&self) -> bool {
        self.way_back.as_ref().is_none_or(|way_back| way_back.is_left())
    }

    /// Sends the answer.
    pub fn send(mut self, response: Response) {
        if let Some(way_back) = self.way_back.take() {
            way_back.deliver(response);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let (Some(way_back), Some(response)) = (self.way_back.take(), self.abandoned.take()) {
            way_back.deliver(response);
        }
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply").field("open", &self.way_back.is_some()).finish_non_exhaustive()
    }
}
