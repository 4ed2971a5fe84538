//! The line between two Onceboxes: it forwards what it is given, loses a request or an answer here and
//! there, and is dead for a while every few seconds.
//!
//! It runs in the parent, so that no kill hits it, and follows its plan whichever process is dead.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::base::clock::Clock;
use crate::demo::chaos::{self, Cut};
use crate::demo::error::Error;
use crate::demo::site::{self, Lap, Site, loopback_client};
use crate::http::client::{Call, Client};
use crate::http::limits::Limits;
use crate::http::message::{Head, Method, Request, Response};
use crate::http::server::{self, Server, Setup};
use crate::http::service::{Reply, Service};

/// Where the second Oncebox takes what the first one sends.
pub(super) const PATH: &str = "/in/finance";
/// The largest body that is forwarded.
const MAX_BODY_BYTES: usize = 64 * 1024;
/// Fields that belong to one connection, or that the client sets itself.
const OF_ONE_CONNECTION: [&str; 5] =
    ["host", "connection", "content-length", "transfer-encoding", "accept-encoding"];

/// The line; dropped, it is gone.
pub(super) struct Line {
    _server: Server,
}

struct Wire {
    site: Site,
    client: Client,
    clock: Clock,
    started: Duration,
    /// How often each event was sent.
    seen: Mutex<HashMap<String, u32>>,
}

impl Line {
    /// Lays it.
    pub(super) fn start(site: &Site, clock: &Clock) -> Result<Self, Error> {
        let listener = server::bind(site.line).map_err(Error::about(site.line))?;
        let wire = Wire {
            site: site.clone(),
            client: loopback_client()?,
            clock: clock.clone(),
            started: clock.monotonic(),
            seen: Mutex::default(),
        };
        let setup = Setup::new(Limits::default(), clock.clone());
        let server = Server::start(vec![listener], setup, Arc::new(wire))
            .map_err(Error::about(site.line))?;
        Ok(Self { _server: server })
    }
}

impl Service for Wire {
    fn body_limit(&self, head: &Head) -> Result<usize, Response> {
        match (head.method, head.path.as_str()) {
            (Method::Post, PATH) => Ok(MAX_BODY_BYTES),
            _ => Err(Response::new(404)),
        }
    }

    fn call(&self, request: Request, reply: Reply) {
        let cut = self.cut(&request.head);
        if cut == Some(Cut::Request) {
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

impl Wire {
    fn cut(&self, head: &Head) -> Option<Cut> {
        let Lap { faults, seed, .. } = self.site.lap;
        if !faults {
            return None;
        }
        let after = self.clock.monotonic().saturating_sub(self.started);
        if chaos::is_dead(seed, after) {
            return Some(Cut::Request);
        }
        let id = head.headers.get("webhook-id").unwrap_or_default();
        let mut seen = self.seen.lock();
        let nth = seen.entry(id.to_owned()).or_default();
        *nth = nth.saturating_add(1);
        chaos::cut_of(seed, id, *nth)
    }

    /// The answer of the second Oncebox; `None` where there is none.
    fn forward(&self, Request { head, body }: &Request) -> Option<Response> {
        let url = format!("http://{}{PATH}", self.site.downstream);
        let kept = head.headers.iter().filter(|(name, _)| !OF_ONE_CONNECTION.contains(name));
        let headers: Vec<_> = kept
            .map(|(name, value)| (name.to_owned(), String::from_utf8_lossy(value).into_owned()))
            .collect();
        let call =
            Call { method: "POST", url: &url, headers: &headers, body, timeout: site::TIMEOUT };
        match self.client.call(&call) {
            Ok(answer) => Some(Response::with_body(answer.status, "application/json", answer.body)),
            Err(error) => {
                tracing::debug!(%error, "the second Oncebox could not be reached");
                None
            }
        }
    }
}
