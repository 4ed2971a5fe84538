//! The line to the outside, which other settings may replace while requests are under way.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::config::Delivery;
use crate::http::client::{self, Answer, Call, CallError, Client, ClientSettings, SetupError};
use crate::pipeline::deliver::Sender;

/// The client in use. A request that has begun keeps the one it began with.
#[derive(Debug)]
pub(super) struct Line(RwLock<Arc<Client>>);

impl Line {
    pub(super) fn new(client: Client) -> Self {
        Self(RwLock::new(Arc::new(client)))
    }

    /// Lets the next request go out over another client.
    pub(super) fn replace(&self, client: Client) {
        *self.0.write() = Arc::new(client);
    }
}

impl Sender for Line {
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
