//! The unreliable line between two Onceboxes: forwards requests, loses some requests and answers, and is dead for a while
//! every few seconds.
//!
//! It runs in the parent process, which is never killed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::base::clock::Clock;
use crate::demo::chaos::{self, LineFault};
use crate::demo::site::{self, Error, Run, Site, loopback_client};
use crate::http::client::{Call, Client};
use crate::http::message::{Head, Method, Request, Response};
use crate::http::server::{self, Server, Setup};
use crate::http::service::{Limits, Reply, Service};

/// The path at which the second Oncebox receives webhooks from the first.
pub(super) const PATH: &str = "/in/finance";
/// The largest body that is forwarded.
const MAX_BODY_BYTES: usize = 64 * 1024;
/// Header fields that are not forwarded: they belong to one connection, or the client sets them.
const NOT_FORWARDED: [&str; 5] =
    ["host", "connection", "content-length", "transfer-encoding", "accept-encoding"];

/// The line. Dropping it stops it.
pub(super) struct LossyLine {
    _server: Server,
}

struct LineService {
    site: Site,
    client: Client,
    clock: Clock,
    started: Duration,
    /// How often each event was sent.
    seen: Mutex<HashMap<String, u32>>,
}

impl LossyLine {
    /// Starts the line.
    pub(super) fn start(site: &Site, clock: &Clock) -> Result<Self, Error> {
        let listener = server::bind(site.line).map_err(Error::about(site.line))?;
        let service = LineService {
            site: site.clone(),
            client: loopback_client()?,
            clock: clock.clone(),
            started: clock.monotonic(),
            seen: Mutex::default(),
        };
        let setup = Setup::new(Limits::default(), clock.clone());
        let server = Server::start(vec![listener], setup, Arc::new(service))
            .map_err(Error::about(site.line))?;
        Ok(Self { _server: server })
    }
}

impl Service for LineService {
    fn body_limit(&self, head: &Head) -> Result<usize, Response> {
        match (head.method, head.path.as_str()) {
            (Method::Post, PATH) => Ok(MAX_BODY_BYTES),
            _ => Err(Response::new(404)),
        }
    }

    fn call(&self, request: Request, reply: Reply) {
        let cut = self.cut(&request.head);
        if cut == Some(LineFault::Request) {
            return reply.send(Response::hang_up());
        }
        let answer = self.forward(&request);
        reply.send(match (answer, cut) {
            (Some(answer), None) => answer,
            (_, _) => Response::hang_up(),
        });
    }

    fn refusal(&self, status: u16, _detail: &str) -> Response {
        Response::new(status)
    }
}

impl LineService {
    fn cut(&self, head: &Head) -> Option<LineFault> {
        let Run { faults, seed, .. } = self.site.run;
        if !faults {
            return None;
        }
        let after = self.clock.monotonic().saturating_sub(self.started);
        if chaos::is_dead(seed, after) {
            return Some(LineFault::Request);
        }
        let id = head.headers.get("webhook-id").unwrap_or_default();
        let mut seen = self.seen.lock();
        let nth = seen.entry(id.to_owned()).or_default();
        *nth = nth.saturating_add(1);
        chaos::line_fault_of(seed, id, *nth)
    }

    /// Forwards a request. `None` if the second Oncebox does not answer.
    fn forward(&self, Request { head, body }: &Request) -> Option<Response> {
        let url = format!("http://{}{PATH}", self.site.downstream);
        let kept = head.headers.iter().filter(|(name, _)| !NOT_FORWARDED.contains(name));
        let headers: Vec<_> = kept
            .map(|(name, value)| (name.to_owned(), String::from_utf8_lossy(value).into_owned()))
            .collect();
        let call = Call {
            method: "POST",
            url: &url,
            headers: &headers,
            body,
            timeout: site::TIMEOUT,
            ..Call::default()
        };
        match self.client.call(&call) {
            Ok(answer) => Some(Response::with_body(answer.status, "application/json", answer.body)),
            Err(error) => {
                tracing::debug!(%error, "the second Oncebox could not be reached");
                None
            }
        }
    }
}
