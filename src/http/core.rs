//! What all threads of a server share: its setup, its counters, and its calls to the service.
//!
//! Not here: the connections, which the listener thread owns.

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::fair::Payer;
use crate::base::faults::Faults;
use crate::base::id::{self, Draw, SystemDraw};
use crate::base::stop::Stop;
use crate::http::answer::DateLine;
use crate::http::message::{Asked, Head, Response};
use crate::http::proxies::Proxies;
use crate::http::readiness::Readiness;
use crate::http::service::{Limits, Service};
use crate::http::shares::{Holding, Shares};
use crate::telemetry::tally::{Counter, Heartbeat};

/// The shared part of a server.
pub(crate) struct Core {
    pub(crate) limits: Limits,
    pub(crate) proxies: Proxies,
    pub(crate) service: Arc<dyn Service>,
    pub(crate) readiness: Readiness,
    pub(crate) counters: Counters,
    pub(crate) date: DateLine,
    /// The injected clock: for the `date` field and for request ids.
    pub(crate) clock: Clock,
    draw: Arc<dyn Draw>,
    /// The machine's clock, for deadlines: connections run in real time, even if another clock is injected.
    machine: Clock,
    pub(crate) stop: Stop,
    pub(crate) pulse: Heartbeat,
    pub(crate) faults: Faults,
    grace_ms: AtomicU64,
    pub(crate) shares: Shares,
}

impl Core {
    pub(crate) fn new(setup: Setup, service: Arc<dyn Service>) -> io::Result<Self> {
        let Setup { limits, proxies, clock, draw, faults } = setup;
        Ok(Self {
            proxies,
            draw,
            faults,
            pulse: Heartbeat::default(),
            shares: Shares::new(&limits),
            limits,
            service,
            readiness: Readiness::new()?,
            counters: Counters::default(),
            date: DateLine::default(),
            clock,
            machine: Clock::machine(),
            stop: Stop::new(),
            grace_ms: AtomicU64::new(0),
        })
    }

    /// The time for deadlines.
    pub(crate) fn now(&self) -> Duration {
        self.machine.monotonic()
    }

    /// Asks all threads to end, the listener within `grace`.
    pub(crate) fn ask_stop(&self, grace: Duration) {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.grace_ms.store(grace_ms, Ordering::Release);
        self.stop.ask();
        self.wake();
    }

    /// Wakes the listener thread.
    pub(crate) fn wake(&self) {
        if let Err(error) = self.readiness.wake() {
            tracing::error!(%error, "the listener could not be woken");
        }
    }

    /// How long a stop may take.
    pub(crate) fn grace(&self) -> Duration {
        Duration::from_millis(self.grace_ms.load(Ordering::Acquire))
    }

    /// Replaces the memory that a connection is counted with. False if there is no room to give the request to the
    /// service. All memory of the listener is counted here.
    pub(crate) fn charge(&self, held: &mut Holding, new: Holding) -> bool {
        *held == new || self.shares.replace(std::mem::replace(held, new), new)
    }

    pub(crate) fn stats(&self) -> Stats {
        self.counters.read(self.shares.bytes())
    }

    /// Fills in the client's address and the request id.
    pub(crate) fn identify(&self, head: &mut Head) {
        head.client = self.proxies.client(head.peer, &head.headers);
        let given = self.proxies.request_id(head.peer, &head.headers).map(str::to_owned);
        head.request_id = given.unwrap_or_else(|| self.request_id());
    }

    /// What is remembered of a request that could not be read.
    pub(crate) fn unreadable(&self, peer: SocketAddr) -> Asked {
        let client = peer.ip().to_canonical();
        Asked { request_id: self.request_id(), client, target: None }
    }

    fn request_id(&self) -> String {
        id::uuid7(self.clock.wall(), &*self.draw)
    }

    /// Lets the service complete and log an answer, and adds the request id.
    pub(crate) fn finished(&self, asked: Asked, took: Duration, response: Response) -> Response {
        let response = self.caught(|| self.service.finish(&asked, took, response));
        let response = response.unwrap_or_else(|| Response::new(500));
        response.header("x-request-id", asked.request_id)
    }

    /// An answer of the listener, in the service's error format.
    pub(crate) fn refusal(&self, status: u16, detail: &str) -> Response {
        self.caught(|| self.service.refusal(status, detail))
            .unwrap_or_else(|| Response::new(status))
    }

    /// The service's limit for a body, or its refusal.
    pub(crate) fn body_limit(&self, head: &Head) -> Result<usize, Response> {
        let limit = self.caught(|| self.service.body_limit(head));
        limit.unwrap_or_else(|| Err(self.refusal(500, BROKEN)))
    }

    /// Who is charged for a request.
    pub(crate) fn payer(&self, head: &Head) -> Payer {
        self.caught(|| self.service.payer(head)).unwrap_or_default()
    }

    /// Calls the service. A panic in it is caught, logged and counted.
    pub(crate) fn caught<T>(&self, call: impl FnOnce() -> T) -> Option<T> {
        let caught = catch_unwind(AssertUnwindSafe(call));
        caught.map_err(|cause| self.count_panic(cause.as_ref())).ok()
    }

    fn count_panic(&self, cause: &(dyn Any + Send)) {
        let literal = cause.downcast_ref::<&str>().copied();
        let text = literal.or_else(|| cause.downcast_ref::<String>().map(String::as_str));
        self.counters.panics.add();
        tracing::error!(panic = text.unwrap_or("?"), "the service panicked; answered 500");
    }
}

/// The detail of a 500.
pub(crate) const BROKEN: &str =
    "the request could not be handled because of an error in this program";

/// A server's setup, apart from its service.
#[derive(Clone)]
pub struct Setup {
    /// Its limits.
    pub limits: Limits,
    /// The trusted proxies.
    pub proxies: Proxies,
    /// For the `date` field and for request ids. Deadlines use real time.
    pub clock: Clock,
    /// Randomness for request ids.
    pub draw: Arc<dyn Draw>,
    /// Planned failures.
    pub faults: Faults,
}

impl Setup {
    /// A setup with no proxies, the system's randomness, and no planned failures.
    pub fn new(limits: Limits, clock: Clock) -> Self {
        let proxies = Proxies::default();
        let draw = Arc::new(SystemDraw::new());
        Self { limits, proxies, clock, draw, faults: Faults::none() }
    }
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Makes [`Stats`] and [`Counters`] from one list.
macro_rules! counters {
    ($($(#[$about:meta])* $name:ident,)*) => {
        /// A reading of all counters. Only `connections`, `busy` and `buffered_bytes` can decrease.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            /// Bytes of requests and answers held now.
            pub buffered_bytes: u64,
            $($(#[$about])* pub $name: u64,)*
        }

        /// The counters behind [`Stats`], each with the meaning given there.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        impl Counters {
            fn read(&self, buffered_bytes: usize) -> Stats {
                let buffered_bytes = u64::try_from(buffered_bytes).unwrap_or(u64::MAX);
                Stats { buffered_bytes, $($name: self.$name.get(),)* }
            }
        }
    };
}

counters! {
    /// Connections open now.
    connections,
    /// Connections accepted, including those closed at once because of a limit.
    accepted,
    /// Connections closed at once because of a limit on connections.
    refused,
    /// Of these, those from an address with too many connections.
    refused_for_address,
    /// Connections with an unfinished request, as of the last sweep.
    busy,
    /// How often accepting paused because the system had no more sockets.
    accept_pauses,
    /// Complete requests handed to the service.
    requests,
    /// Requests refused by the listener itself: malformed, too large, not implemented.
    malformed,
    /// Requests answered 503 because the queue, the buffers or a share were full.
    overloaded,
    /// Connections ended because the client was too slow, without idle ones.
    timeouts,
    /// Panics caught inside the service.
    panics,
}
