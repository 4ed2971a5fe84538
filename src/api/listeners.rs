//! Decides what each listening socket serves. The intake and the console may have sockets of their own, so that a proxy
//! can reach them but not the API.

use std::time::Duration;

use crate::api::call::ok;
use crate::api::problem::Problem;
use crate::api::status::Health;
use crate::base::fair::Payer;
use crate::http::message::{Asked, Head, Request, Response};
use crate::http::service::{Reply, Service};
use crate::pipeline::confirmations::CONFIRM_PATH;

/// What a listening socket serves. `/livez` is for health checks, and every socket has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointRole {
    /// Webhooks, and confirm URLs.
    pub intake: bool,
    /// The API and all that is not named here.
    pub api: bool,
    /// The console.
    pub console: bool,
}

impl EndpointRole {
    /// All of it.
    pub const EVERYTHING: Self = Self { intake: true, api: true, console: true };
    /// Only the intake.
    pub const INTAKE: Self = Self { intake: true, api: false, console: false };
    /// Only the console.
    pub const CONSOLE: Self = Self { intake: false, api: false, console: true };

    /// Whether a path is served.
    pub fn admits(self, path: &str) -> bool {
        if path.starts_with("/in/") || path.starts_with(CONFIRM_PATH) {
            self.intake
        } else if path == "/console" || path.starts_with("/console/") {
            self.console
        } else {
            self.api || path == "/livez"
        }
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

    fn payer(&self, head: &Head) -> Payer {
        self.service.payer(head)
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
    fn sockets_of_their_own_share_no_path_but_livez() {
        let rest = EndpointRole { intake: false, api: true, console: false };
        for (path, intake, api, console) in [
            ("/in/stripe", true, false, false),
            ("/in/acme/stripe", true, false, false),
            ("/confirm/1-1-1-x", true, false, false),
            ("/v1/deliveries/1/confirm", false, true, false),
            ("/livez", true, true, true),
            ("/readyz", false, true, false),
            ("/v1/events", false, true, false),
            ("/", false, true, false),
            ("/in", false, true, false),
            ("/v1/../in/stripe", false, true, false),
            ("/console", false, false, true),
            ("/console/events", false, false, true),
            ("/consoles", false, true, false),
        ] {
            assert_eq!(EndpointRole::INTAKE.admits(path), intake, "{path}");
            assert_eq!(rest.admits(path), api, "{path}");
            assert_eq!(EndpointRole::CONSOLE.admits(path), console, "{path}");
            assert!(EndpointRole::EVERYTHING.admits(path));
        }
    }
}
