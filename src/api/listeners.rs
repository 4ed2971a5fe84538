//! What is served on which listening socket: the intake may have one of its own, so that a proxy can
//! reach it and not the API.

use std::time::Duration;

use crate::api::Api;
use crate::api::problem::Problem;
use crate::http::message::{Asked, Head, Request, Response};
use crate::http::service::{Reply, Service};

/// What a listening socket serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointRole {
    /// The intake and the API.
    Everything,
    /// The intake, and `/livez` for whoever checks that it is there.
    Intake,
    /// Everything but the intake: where it has a socket of its own, what reaches the API's came the
    /// wrong way.
    Api,
}

impl EndpointRole {
    /// Whether a path is served.
    pub fn admits(self, path: &str) -> bool {
        let is_intake = path.starts_with("/in/");
        match self {
            Self::Everything => true,
            Self::Intake => is_intake || path == "/livez",
            Self::Api => !is_intake,
        }
    }

    /// Whether it opens more to its callers than the intake.
    pub fn has_api(self) -> bool {
        self != Self::Intake
    }
}

/// The API behind its listening sockets.
#[derive(Debug)]
pub struct Doors {
    api: Api,
    serves: Vec<EndpointRole>,
}

impl Doors {
    /// The API, and what each of the server's sockets serves, in their order.
    pub fn new(api: Api, serves: Vec<EndpointRole>) -> Self {
        Self { api, serves }
    }
}

impl Service for Doors {
    fn body_limit(&self, head: &Head) -> Result<usize, Response> {
        let serves = self.serves.get(head.door).copied();
        if !serves.is_some_and(|serves| serves.admits(&head.path)) {
            return Err(Problem::not_found("path").into());
        }
        self.api.body_limit(head)
    }

    fn call(&self, request: Request, reply: Reply) {
        Service::call(&self.api, request, reply);
    }

    fn refusal(&self, status: u16, detail: &str) -> Response {
        self.api.refusal(status, detail)
    }

    fn finish(&self, asked: &Asked, took: Duration, response: Response) -> Response {
        self.api.finish(asked, took, response)
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
