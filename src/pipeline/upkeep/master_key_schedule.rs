//! The chore that rotates the master key by the clock, and goes on with a rotation that was left.
//!
//! A turn seals a bounded number of secrets again, so that the other chores go on meanwhile. Where the rotation stands is
//! in the rows: after an end of the process, the start finishes it.

use crate::base::clock::SureNow;
use crate::base::id;
use crate::model::audit::Actor;
use crate::model::escalation::{Class, NewEscalation};
use crate::model::name::DEFAULT_TENANT;
use crate::pipeline::prelude::*;
use crate::pipeline::upkeep::master_key_rotation::{
    self as rotation, Rotated, Rotation, RotationError, SUBJECT,
};
use crate::store::{audit_events, escalations, meta};

/// Transactions of one turn.
const STEPS: usize = 10;
/// How long after a failure the next try is made.
const RETRY_AFTER: Duration = Duration::from_mins(10);
/// How long where a person has to change the settings first.
const RETRY_AFTER_GIVEN: Duration = Duration::from_hours(24);
/// Rotates the master key.
pub struct MasterKeySchedule {
    store: Store,
    clock: Clock,
    settings: Live,
    rotation: Rotation,
    /// Secrets that the rotation under way has sealed again.
    sealed: u64,
    /// No try is made before; by the monotonic clock.
    again_at: Duration,
}

impl MasterKeySchedule {
    /// Nothing is under way.
    pub fn new((store, clock, settings): (Store, Clock, Live), rotation: Rotation) -> Self {
        Self { store, clock, settings, rotation, sealed: 0, again_at: Duration::ZERO }
    }

    /// Begins a rotation that is due, or takes the next steps of the one under way. While the clock may be wrong, none
    /// begins.
    pub fn look(&mut self) -> Result<()> {
        if self.clock.monotonic() < self.again_at {
            return Ok(());
        }
        let done = match self.clock.sure_now() {
            _ if self.rotation.is_left() => self.go_on(),
            Some(now) => self.begin(now),
            None => Ok(()),
        };
        let Err(error) = done else { return Ok(()) };
        let is_given = matches!(error, RotationError::Given(_));
        let wait = if is_given { RETRY_AFTER_GIVEN } else { RETRY_AFTER };
        self.again_at = self.clock.monotonic() + wait;
        tracing::error!(%error, "the master key could not be rotated; it is tried again");
        let (now, detail) = (self.clock.wall(), format!("the master key was not rotated: {error}"));
        self.store.writer().write(Queue::Upkeep, move |tx| {
            let (tenant, class) = (DEFAULT_TENANT.to_owned(), Class::CredentialRotation);
            let (id, detail) = (id::uuid7_of(now, &[class.as_str(), SUBJECT]), detail.clone());
            let new = NewEscalation { id, tenant, class, subject: SUBJECT.to_owned(), detail };
            escalations::raise(tx, &new, now).map(drop)
        })
    }

    fn begin(&self, now: SureNow) -> std::result::Result<(), RotationError> {
        let Some(every) = self.settings.get().keys.rotate_every else { return Ok(()) };
        let now = now.at();
        match self.store.read(meta::master_key_since)?.filter(|since| *since <= now) {
            Some(since) if now.since(since) < every => Ok(()),
            Some(_) => self.rotation.begin(),
            // A file of an older version does not say it, or the clock was ahead: the time runs from now on.
            None => {
                let note = move |tx: &WriteTx<'_>| meta::set_master_key_since(tx, now);
                Ok(self.store.writer().write(Queue::Upkeep, note)?)
            }
        }
    }

    fn go_on(&mut self) -> std::result::Result<(), RotationError> {
        for _ in 0..STEPS {
            let (keyring, draw) = (self.rotation.keyring().clone(), self.rotation.draw().clone());
            let step = move |tx: &WriteTx<'_>| rotation::reseal_some(tx, &keyring, &*draw, None);
            let moved = self.store.writer().write(Queue::Upkeep, step)?;
            if moved == 0 {
                return self.end();
            }
            self.sealed = self.sealed.saturating_add(u64::try_from(moved).unwrap_or(0));
        }
        Ok(())
    }

    fn end(&mut self) -> std::result::Result<(), RotationError> {
        let (keyring, draw) = (self.rotation.keyring().clone(), self.rotation.draw().clone());
        let (now, secrets) = (self.clock.wall(), self.sealed);
        self.store.writer().write(Queue::Upkeep, move |tx| {
            let from = meta::master_key_id(tx)?.unwrap_or_default();
            let done = Rotated { from, to: keyring.current().key_id(), secrets };
            rotation::name_current(tx, &keyring, &*draw, now)?;
            // A person's rotation may have named it meanwhile.
            if done.from == done.to {
                return Ok(());
            }
            let event = rotation::audit_event(now, Actor::system(), &done);
            audit_events::append(tx, &event).map(drop)
        })?;
        self.sealed = 0;
        self.rotation.ended();
        Ok(())
    }
}
