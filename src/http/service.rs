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

/// The promise of one answer. Dropping it unsent answers 500.
pub struct Reply {
    deliver: Option<Box<dyn FnOnce(Response) + Send>>,
    abandoned: Option<Response>,
}

impl Reply {
    /// A reply that hands its answer to `deliver`; `abandoned` is sent when nobody answers.
    pub fn new(deliver: Box<dyn FnOnce(Response) + Send>, abandoned: Response) -> Self {
        Self { deliver: Some(deliver), abandoned: Some(abandoned) }
    }

    /// Sends the answer.
    pub fn send(mut self, response: Response) {
        if let Some(deliver) = self.deliver.take() {
            deliver(response);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let (Some(deliver), Some(response)) = (self.deliver.take(), self.abandoned.take()) {
            deliver(response);
        }
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply").field("open", &self.deliver.is_some()).finish_non_exhaustive()
    }
}
