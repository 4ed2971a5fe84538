//! What is answered while the start waits for room on the disk: that the process lives, and 507 to all work.

use crate::api::call::ok;
use crate::api::problem::Problem;
use crate::http::message::{Head, Request, Response};
use crate::http::service::{Reply, Service};
use serde_json::json;

/// Answers instead of the API.
#[derive(Debug)]
pub struct Waiting {
    why: String,
}

impl Waiting {
    /// Tells `/readyz` why it waits.
    pub fn new(why: String) -> Self {
        Self { why }
    }

    fn answer(&self, path: &str) -> Response {
        match path {
            "/livez" => ok(&json!({ "status": "ok" })),
            "/readyz" => Problem::not_ready(self.why.clone(), None).into(),
            _ => Problem::no_room().into(),
        }
    }
}

impl Service for Waiting {
    /// No body is read.
    fn body_limit(&self, head: &Head) -> Result<usize, Response> {
        Err(self.answer(&head.path))
    }

    fn call(&self, request: Request, reply: Reply) {
        reply.send(self.answer(&request.head.path));
    }

    fn refusal(&self, status: u16, detail: &str) -> Response {
        Problem::of_listener(status, detail).into()
    }
}
