//! Decides what each listening socket serves. The intake may have its own socket, so that a proxy can reach it but not
//! the API.

use std::time::Duration;

use crate::api::call::ok;
use crate::api::problem::Problem;
use crate::api::status::Health;
use crate::http::message::{Asked, Head, Request, Response};
use crate::http::service::{Reply, Service};
use crate::pipeline::confirmations::CONFIRM_PATH;

/// What a listening socket serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointRole {
    /// The intake and the API.
    Everything,
    /// The intake, confirm URLs, and `/livez` for health checks.
    Intake,
    /// Everything but the intake and confirm URLs, which have a socket of their own.
    Api,
}

impl EndpointRole {
    /// Whether a path is served.
    pub fn admits(self, path: &str) -> bool {
        let is_intake = path.starts_with("/in/") || path.starts_with(CONFIRM_PATH);
        match self {
            Self::Everything => true,
            Self::Intake => is_intake || path == "/livez",
            Self::Api => !is_intake,
        }
    }

    /// Whether it serves the API.
    pub fn has_api(self) -> bool {
        self != Self::Intake
    }
}

/// A service behind its listening sockets.
#[derive(Debug)]
pub struct Endpoints<S> {
    service: S,
    roles: Vec<EndpointRole>,
}

impl<S: Service> Endpoints<S> {
    /// The service, and the role of each of the server's sockets, in their order.
    pub fn new(service: S, roles: Vec<EndpointRole>) -> Self {
        Self { service, roles }
    }
}

impl<S: Service> Service for Endpoints<S> {
    fn body_limit(&self, head: &Head) -> Result<usize, Response> {
        let role = self.roles.get(head.door);
        if !role.is_some_and(|role| role.admits(&head.path)) {
            return Err(Problem::not_found("path").into());
        }
        self.service.body_limit(head)
    }

    fn call(&self, request: Request, reply: Reply) {
        self.service.call(request, reply);
    }

    fn refusal(&self, status: u16, detail: &str) -> Response {
        self.service.refusal(status, detail)
    }

    fn finish(&self, asked: &Asked, took: Duration, response: Response) -> Response {
        self.service.finish(asked, took, response)
    }
}

/// Answers instead of the API while the start waits for disk space: `/livez` succeeds, and all work gets 507.
#[derive(Debug)]
pub struct Waiting {
    why: String,
}

impl Waiting {
    /// `why` is the detail of `/readyz`.
    pub fn new(why: String) -> Self {
        Self { why }
    }

    fn answer(&self, path: &str) -> Response {
        match path {
            "/livez" => ok(&Health::OK),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_intake_and_the_api_share_no_path_but_livez() {
        for (path, intake, api) in [
            ("/in/stripe", true, false),
            ("/in/acme/stripe", true, false),
            ("/confirm/1-1-1-x", true, false),
            ("/v1/deliveries/1/confirm", false, true),
            ("/livez", true, true),
            ("/readyz", false, true),
            ("/v1/events", false, true),
            ("/", false, true),
            ("/in", false, true),
            ("/v1/../in/stripe", false, true),
        ] {
            assert_eq!(EndpointRole::Intake.admits(path), intake, "{path}");
            assert_eq!(EndpointRole::Api.admits(path), api, "{path}");
            assert!(EndpointRole::Everything.admits(path));
        }
    }
}
