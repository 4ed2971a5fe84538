//! A running Oncebox: database, key, pipeline, API and listener, put together.
//!
//! `serve` runs one; a test may run several.

pub mod abandoning;
pub mod data_directory;
mod error;
mod first_token;
mod injected;
pub mod installation;
pub mod master_key;
pub mod offline;
mod opened_database;
mod sockets;
mod starting;
pub mod supervision;
mod waiting;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use zeroize::Zeroizing;

use crate::api::context::Api;
use crate::api::listeners::EndpointRole;
use crate::app::data_directory::DataDirectory;
use crate::app::injected::ReplaceableClient;
use crate::archive::mover::Mover;
use crate::base::stop::Stop;
use crate::config::{Change, Loaded, Settings};
use crate::http::server::Server;
use crate::jobs::runner::Runner;
use crate::pipeline::Pipeline;
use crate::sources::relays::Relaying;
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;
use crate::store::{Store, audit_events, runs};

pub use error::Error;
#[cfg(any(test, feature = "internals"))]
pub use injected::Injected;
pub use injected::forward_proxy;

/// How long running requests may take when the service stops.
const LISTENER_GRACE: Duration = Duration::from_secs(5);

/// A running Oncebox.
#[derive(Debug)]
pub struct Appliance {
    /// The listening addresses, the API's first.
    addresses: Vec<(EndpointRole, SocketAddr)>,
    api: Api,
    server: Server,
    flow: Pipeline,
    sources: Relaying,
    jobs: Runner,
    archive: Mover,
    boot: i64,
    stop: Stop,
    first_start: bool,
    clean_before: bool,
    data: DataDirectory,
    client: Arc<ReplaceableClient>,
}

impl Appliance {
    /// Starts everything: when this returns, requests are accepted and deliveries are made.
    #[cfg(any(test, feature = "internals"))]
    pub fn start(settings: Settings, injected: Injected) -> Result<Self, Error> {
        Self::start_on(Vec::new(), settings, injected, || ())
    }

    /// The API's address.
    pub fn address(&self) -> SocketAddr {
        let unknown = SocketAddr::from(([0; 4], 0));
        self.addresses.first().map_or(unknown, |(_, address)| *address)
    }

    /// The intake's address, which may be the API's.
    pub fn intake_address(&self) -> SocketAddr {
        self.own_intake().unwrap_or_else(|| self.address())
    }

    fn own_intake(&self) -> Option<SocketAddr> {
        let own = self.addresses.iter().find(|(serves, _)| *serves == EndpointRole::INTAKE);
        own.map(|(_, address)| *address)
    }

    /// The API, which the console asks in this process.
    #[cfg(any(test, feature = "internals"))]
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// The database.
    pub fn store(&self) -> &Store {
        &self.api.env.store
    }

    /// Set when the process has to end. Setting it stops nothing by itself.
    pub fn stop_signal(&self) -> &Stop {
        &self.stop
    }

    /// Whether this start created the first admin token.
    pub fn is_first_start(&self) -> bool {
        self.first_start
    }

    /// A code with which a browser makes the first admin; `None` if there is a user. An earlier code is void.
    pub fn first_code(&self) -> Option<Zeroizing<String>> {
        self.api.offer_first_code()
    }

    /// Whether the process before this one ended cleanly.
    pub fn was_clean_before(&self) -> bool {
        self.clean_before
    }

    /// Asks the writer, the dispatcher and the listener for a heartbeat.
    pub fn ask_heartbeat(&self) {
        self.api.env.store.writer().pulse().ask();
        self.flow.pulse().ask();
        self.flow.wake();
        self.server.ask_heartbeat();
    }

    /// The threads that have not answered with a heartbeat yet.
    pub fn missing_heartbeats(&self) -> Vec<&'static str> {
        [
            ("the writer", self.api.env.store.writer().pulse().has_answered()),
            ("the dispatcher", self.flow.pulse().has_answered()),
            ("the listener", self.server.has_heartbeat()),
        ]
        .into_iter()
        .filter_map(|(thread, answered)| (!answered).then_some(thread))
        .collect()
    }

    /// Why it is not ready, as `/readyz` would say; `None` if it is. Never blocks.
    pub fn not_ready(&self) -> Option<String> {
        self.api.not_ready()
    }

    /// Makes the dispatcher read the clock after a test moved it.
    #[cfg(any(test, feature = "internals"))]
    pub fn wake(&self) {
        self.flow.wake();
    }

    /// The current settings.
    #[cfg(any(test, feature = "internals"))]
    pub fn settings(&self) -> &crate::config::Live {
        &self.api.env.settings
    }

    /// Takes over where the settings in force come from.
    pub fn note_origins(&self, loaded: &Loaded) {
        self.api.env.settings.set_origins(loaded);
    }

    /// Applies new settings as far as possible without a restart, and returns what changed. After an error, the old
    /// settings stay in effect.
    pub fn reload(&self, fresh: &Settings) -> Result<Change, Error> {
        let change = self.api.env.settings.change_to(fresh);
        // Replaced even if no setting changed, because the content of the CA file may have.
        self.client.replace(injected::client(&change.settings.delivery)?);
        self.api.env.settings.set(change.settings.clone());
        self.flow.settings_changed();
        Ok(change)
    }

    /// Stops in order: running deliveries end while requests are still accepted, then requests end, then everything is
    /// written to disk. Returns the error that made the service end, if there was one.
    pub fn stop(mut self) -> Result<(), Error> {
        self.sources.stop();
        self.jobs.stop();
        self.archive.stop();
        self.flow.end_deliveries();
        self.flow.stop_waiting();
        self.server.stop(LISTENER_GRACE);
        self.data.remove_address();
        let boot = self.boot;
        let clock = self.api.env.clock.clone();
        let store = self.api.env.store.clone();
        let writer = store.writer().clone();
        Ok(self.flow.stop(move || {
            log_audit_head(&store);
            let run = move |tx: &WriteTx<'_>| runs::stop(tx, boot, clock.wall());
            if let Err(error) = writer.write(Queue::Upkeep, run) {
                tracing::warn!(%error, "the clean stop could not be recorded");
            }
        })?)
    }
}

/// Logs the head of the audit chain. The log is kept apart from the database, so a completely rewritten chain differs
/// from it.
fn log_audit_head(store: &Store) {
    match store.read(audit_events::head) {
        Ok(head) => tracing::info!(%head, "the last audit event"),
        Err(error) => tracing::warn!(%error, "the last audit event cannot be read"),
    }
}
