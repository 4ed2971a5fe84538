//! The sink: answers each request with 200 at once, and counts.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::clock::Clock;
use crate::demo::site::Error;
use crate::http::message::{Head, Request, Response};
use crate::http::server::{self, Server, Setup};
use crate::http::service::{Limits, Reply, Service};

/// Largest body.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// A receiver on loopback, in this process.
pub(super) struct Sink {
    address: SocketAddr,
    counter: Arc<Counter>,
    /// Stops when it is dropped.
    _server: Server,
}

impl Sink {
    pub(super) fn start(clock: &Clock) -> Result<Self, Error> {
        let failed = || Error::about("the sink on 127.0.0.1");
        let listener = server::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let listener = listener.map_err(failed())?;
        let address = listener.local_addr().map_err(failed())?;
        let counter = Arc::new(Counter::default());
        let setup = Setup::new(Limits::default(), clock.clone());
        let service = Arc::<Counter>::clone(&counter);
        let server = Server::start(vec![listener], setup, service).map_err(failed())?;
        Ok(Self { address, counter, _server: server })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Requests since the last reset.
    pub(super) fn count(&self) -> u64 {
        self.counter.0.load(Ordering::Relaxed)
    }

    pub(super) fn reset(&self) {
        self.counter.0.store(0, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Counter(AtomicU64);

impl Service for Counter {
    fn body_limit(&self, _head: &Head) -> Result<usize, Response> {
        Ok(MAX_BODY_BYTES)
    }

    fn call(&self, _request: Request, reply: Reply) {
        self.0.fetch_add(1, Ordering::Relaxed);
        reply.send(Response::new(200));
    }

    fn refusal(&self, status: u16, _detail: &str) -> Response {
        Response::new(status)
    }
}
