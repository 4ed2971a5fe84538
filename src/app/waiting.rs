//! A start on a full disk waits for free space, because the service manager would only start the process again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::api::listeners::Waiting;
use crate::app::error::Error;
use crate::app::injected::Injected;
use crate::app::sockets::Sockets;
use crate::app::{Appliance, LISTENER_GRACE};
use crate::base::clock::Clock;
use crate::base::stop::Stop;
use crate::config::Settings;
use crate::http::server::{Server, Setup};
use crate::http::service::Limits;
use crate::store::error::Error as StoreError;
use crate::sys::disk::{Gauge, is_out_of_room};
use crate::sys::systemd::{Notifier, Passed};

/// How often the free space is checked.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// How much longer the service manager waits for the start after each check.
const EXTENSION: Duration = Duration::from_mins(1);
/// Bytes that a start needs at least.
const START_BYTES: u64 = 1 << 20;
/// The longest pause between two tries, for a start that needs more space than [`START_BYTES`].
const MAX_PAUSE: Duration = Duration::from_secs(30);

impl Appliance {
    /// Calls [`Appliance::start_on`] until the disk has room. While it is full, answers `/livez` with 200, `/readyz` with
    /// 503 and everything else with 507.
    pub fn start_when_there_is_room(
        passed: Vec<Passed>,
        settings: &Settings,
        notifier: &Notifier,
        before_answering: impl Fn(),
    ) -> Result<Self, Error> {
        let mut pause = POLL_EVERY;
        loop {
            let started = Self::start_on(
                duplicate(&passed)?,
                settings.clone(),
                Injected::default(),
                &before_answering,
            );
            let Err(error) = started else { return started };
            let Some(directory) = full_disk(settings.directory(), &error) else {
                return Err(error);
            };
            let shown = directory.display();
            let why = format!(
                "The disk of {shown} is full (df -h {shown}): the start waits until there is room."
            );
            tracing::error!(%error, "{why}");
            let sockets = Sockets::open(&settings.listen, duplicate(&passed)?)?.into_parts().1;
            let setup = Setup::new(Limits::default(), Clock::machine());
            let server = Server::start(sockets, setup, Arc::new(Waiting::new(why.clone())));
            let address = settings.listen.api;
            let server = server.map_err(|source| Error::Listen { address, source })?;
            wait(directory, pause, || notifier.extend_start(EXTENSION, &why));
            pause = pause.saturating_mul(2).min(MAX_PAUSE);
            server.stop(LISTENER_GRACE);
            tracing::info!("trying to start again");
        }
    }
}

/// Duplicates the sockets, because each try of the start closes its own.
fn duplicate(passed: &[Passed]) -> Result<Vec<Passed>, Error> {
    let copied = passed.iter().map(|Passed { name, socket }| {
        let address = socket.local_addr().unwrap_or_else(|_| ([0; 4], 0).into());
        let socket = socket.try_clone().map_err(|source| Error::Listen { address, source })?;
        Ok(Passed { name: name.clone(), socket })
    });
    copied.collect()
}

/// The nearest existing directory, if the start failed because its disk is full.
fn full_disk<'a>(directory: &'a Path, error: &Error) -> Option<&'a Path> {
    // The directory itself may be what could not be created.
    let existing = directory.ancestors().find(|path| path.exists()).unwrap_or(directory);
    let is_full = matches!(error, Error::Store(StoreError::Full))
        || (error.may_be_full_disk() && is_out_of_room(existing, &[]));
    is_full.then_some(existing)
}

/// Waits for at least `pause`, and until there is room.
fn wait(directory: &Path, pause: Duration, each_time: impl Fn()) {
    let stop = Stop::new();
    let gauge = Gauge::machine();
    let has_room = || {
        gauge.look(directory).is_ok_and(|space| space.free >= START_BYTES)
            && !is_out_of_room(directory, &[])
    };
    let mut waited = Duration::ZERO;
    while waited < pause || !has_room() {
        each_time();
        // This stop is never set: a signal ends a starting process at once.
        let _never_set = stop.wait(POLL_EVERY);
        waited = waited.saturating_add(POLL_EVERY);
    }
}
