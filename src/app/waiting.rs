//! A start that finds no room on the disk waits for it: an end would only be followed by the next start.

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
use crate::http::limits::Limits;
use crate::http::server::{Server, Setup};
use crate::store::error::Error as StoreError;
use crate::sys::disk::{Gauge, is_out_of_room};
use crate::sys::systemd::{Notifier, Passed};

/// How often it looks for room.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How much longer the service manager waits after each look.
const EXTENSION: Duration = Duration::from_mins(1);
/// Bytes that a start needs at least.
const START_BYTES: u64 = 1 << 20;
/// The longest pause between two tries of a start that needs more room than it can know.
const MAX_PAUSE: Duration = Duration::from_secs(30);

impl Appliance {
    /// Starts on sockets that the service manager has handed over. While the disk is full it answers `/livez`
    /// with 200, `/readyz` with 503 and everything else with 507, and tries again when there is room.
    /// `before_answering` is that of [`Appliance::start_on`].
    ///
    /// # Errors
    /// What is in the way, if it is not the room on the disk.
    pub fn start_when_there_is_room(
        passed: Vec<Passed>,
        settings: &Settings,
        notifier: &Notifier,
        before_answering: impl Fn(),
    ) -> Result<Self, Error> {
        let mut pause = LOOK_EVERY;
        loop {
            let started = Self::start_on(
                again(&passed)?,
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
                "The disk on which {shown} lies is full (df -h {shown}): the start waits until there is room."
            );
            tracing::error!(%error, "{why}");
            let sockets = Sockets::open(&settings.listen, again(&passed)?)?.into_parts().1;
            let setup = Setup::new(Limits::default(), Clock::machine());
            let server = Server::start(sockets, setup, Arc::new(Waiting::new(why.clone())));
            let address = settings.listen.api;
            let server = server.map_err(|source| Error::Listen { address, source })?;
            wait(directory, pause, || notifier.extend_start(EXTENSION, &why));
            pause = pause.saturating_mul(2).min(MAX_PAUSE);
            server.stop(LISTENER_GRACE);
            tracing::info!("the start is tried again");
        }
    }
}

/// The same sockets once more: each try of the start closes its own.
fn again(passed: &[Passed]) -> Result<Vec<Passed>, Error> {
    let copied = passed.iter().map(|Passed { name, socket }| {
        let address = socket.local_addr().unwrap_or_else(|_| ([0; 4], 0).into());
        let socket = socket.try_clone().map_err(|source| Error::Listen { address, source })?;
        Ok(Passed { name: name.clone(), socket })
    });
    copied.collect()
}

/// The part of a path that is there and lies on a full disk, where that is why the start failed.
fn full_disk<'a>(directory: &'a Path, error: &Error) -> Option<&'a Path> {
    // It may be what could not be made.
    let there = directory.ancestors().find(|place| place.exists()).unwrap_or(directory);
    let is_full = matches!(error, Error::Store(StoreError::Full))
        || (error.may_be_want_of_room() && is_out_of_room(there, &[]));
    is_full.then_some(there)
}

/// Waits for `pause` at least, and until there is room.
fn wait(directory: &Path, pause: Duration, each_time: impl Fn()) {
    let (stop, gauge) = (Stop::new(), Gauge::machine());
    let has_room = || {
        gauge.look(directory).is_ok_and(|space| space.free >= START_BYTES)
            && !is_out_of_room(directory, &[])
    };
    let mut waited = Duration::ZERO;
    while waited < pause || !has_room() {
        each_time();
        // Nobody asks for this stop: a signal ends a process that is still starting.
        let _never_asked = stop.wait(LOOK_EVERY);
        waited = waited.saturating_add(LOOK_EVERY);
    }
}
