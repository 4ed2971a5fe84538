//! Time, randomness, the HTTP client and the disk: the real ones, or those that a test injects.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::base::clock::Clock;
use crate::base::faults::Faults;
use crate::base::id::{self, Draw};
use crate::config::Delivery;
use crate::http::client::{
    self, Answer, Call, CallError, Client, ClientSettings, Sender, SetupError,
};
use crate::http::service::Limits;
use crate::http::trace::Trace;
use crate::http::tunnel::Proxy;
use crate::pipeline::source_marks::SourceMarks;
use crate::sys::disk::Gauge;
use crate::sys::host;

/// An Oncebox's connections to the outside. Tests inject their own.
#[derive(Clone)]
pub struct Injected {
    /// Time.
    pub clock: Clock,
    /// Randomness.
    pub draw: Arc<dyn Draw>,
    /// Sends requests; `None`: the real client.
    pub sender: Option<Arc<dyn Sender>>,
    /// Planned failures.
    pub faults: Faults,
    /// The listener's limits.
    pub limits: Limits,
    /// Measures the free space of the disk.
    pub gauge: Gauge,
    /// How far the sources are read, and how long a publish waits for them.
    pub source_marks: SourceMarks,
}

impl std::fmt::Debug for Injected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Injected").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl Default for Injected {
    /// The real ones, and no planned failures.
    fn default() -> Self {
        Self {
            clock: Clock::machine_with(host::is_clock_synchronised),
            draw: Arc::new(id::SystemDraw::new()),
            sender: None,
            faults: Faults::none(),
            limits: Limits::default(),
            gauge: Gauge::machine(),
            source_marks: SourceMarks::default(),
        }
    }
}

/// The HTTP client, which a reload may replace. A running request keeps its client.
#[derive(Debug)]
pub(super) struct ReplaceableClient(RwLock<Arc<Client>>);

impl ReplaceableClient {
    pub(super) fn new(client: Client) -> Self {
        Self(RwLock::new(Arc::new(client)))
    }

    /// Replaces the client for all later requests.
    pub(super) fn replace(&self, client: Client) {
        *self.0.write() = Arc::new(client);
    }
}

impl Sender for ReplaceableClient {
    fn send(&self, call: &Call<'_>) -> Result<Answer, CallError> {
        let client = Arc::clone(&self.0.read());
        client.send(call)
    }

    fn send_traced(&self, call: &Call<'_>, trace: &Trace) -> Result<Answer, CallError> {
        let client = Arc::clone(&self.0.read());
        client.send_traced(call, trace)
    }

    fn is_on_site(&self, host: &str) -> Option<bool> {
        self.0.read().is_on_site(host)
    }

    fn close_idle(&self) {
        self.0.read().close_idle();
    }

    fn has_line(&self, probe: &[SocketAddr]) -> bool {
        let client = Arc::clone(&self.0.read());
        client.has_line(probe)
    }
}

/// The forward proxy of the settings.
pub fn forward_proxy(delivery: &Delivery) -> Result<Option<Proxy>, SetupError> {
    let Some(rules) = delivery.forward_proxy() else { return Ok(None) };
    let user = delivery.proxy_user.as_deref();
    let proxy = Proxy::new(rules, user, delivery.proxy_password_file.as_deref());
    proxy.map(Some).map_err(SetupError::Proxy)
}

/// Makes a client from the settings.
pub(super) fn client(delivery: &Delivery) -> Result<Client, SetupError> {
    let ca_pem = delivery.ca_file.as_deref().map(client::read_ca_file).transpose()?;
    Client::new(ClientSettings {
        policy: delivery.policy(),
        ca_pem,
        connect_timeout: delivery.connect_timeout,
        idle_connections: usize::try_from(delivery.deliverers).unwrap_or(64),
        proxy: forward_proxy(delivery)?.map(Arc::new),
    })
}
