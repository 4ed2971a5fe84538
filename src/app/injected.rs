//! Time, randomness, the HTTP client and the disk: the real ones, or what a test injects.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::base::clock::Clock;
use crate::base::faults::Faults;
use crate::base::id::{self, Draw};
use crate::config::Delivery;
use crate::http::client::{
    self, Answer, Call, CallError, Client, ClientSettings, Sender, SetupError,
};
use crate::http::limits::Limits;
use crate::sys::disk::Gauge;

/// What the outside is to an Oncebox: the real thing, unless a test says otherwise.
#[derive(Clone)]
pub struct Injected {
    /// Time.
    pub clock: Clock,
    /// Randomness.
    pub draw: Arc<dyn Draw>,
    /// What sends requests; `None`: the real client.
    pub sender: Option<Arc<dyn Sender>>,
    /// Planned failures.
    pub faults: Faults,
    /// The listener's limits.
    pub limits: Limits,
    /// How room on the disk is looked at.
    pub gauge: Gauge,
}

impl std::fmt::Debug for Injected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Injected").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl Default for Injected {
    /// The machine's clock and randomness, the real client, and no planned failures.
    fn default() -> Self {
        Self {
            clock: Clock::machine(),
            draw: Arc::new(id::SystemDraw::new()),
            sender: None,
            faults: Faults::none(),
            limits: Limits::default(),
            gauge: Gauge::machine(),
        }
    }
}

/// The HTTP client, which a reload may replace. A request that has begun keeps the one it began with.
#[derive(Debug)]
pub(super) struct ReplaceableClient(RwLock<Arc<Client>>);

impl ReplaceableClient {
    pub(super) fn new(client: Client) -> Self {
        Self(RwLock::new(Arc::new(client)))
    }

    /// Uses another client from the next request on.
    pub(super) fn replace(&self, client: Client) {
        *self.0.write() = Arc::new(client);
    }
}

impl Sender for ReplaceableClient {
    fn send(&self, call: &Call<'_>) -> Result<Answer, CallError> {
        let client = Arc::clone(&self.0.read());
        client.send(call)
    }
}

/// A client by the settings.
pub(super) fn client(delivery: &Delivery) -> Result<Client, SetupError> {
    let ca_pem = delivery.ca_file.as_deref().map(client::read_ca_file).transpose()?;
    Client::new(ClientSettings {
        policy: delivery.policy(),
        ca_pem,
        connect_timeout: delivery.connect_timeout,
        idle_connections: usize::try_from(delivery.deliverers).unwrap_or(64),
    })
}
