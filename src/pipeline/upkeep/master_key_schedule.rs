//! The chore that rotates the master key by the clock, and goes on with a rotation that was left.
//!
//! A turn seals a bounded number of secrets again, so that the other chores go on meanwhile. The claimed row and the
//! sealed values say how far the rotation is: after an end of the process, the start finishes it.

use std::convert::Infallible;

use crate::base::clock::SureNow;
use crate::base::id;
use crate::model::audit::Actor;
use crate::model::escalation::{Class, NewEscalation};
use crate::model::name::DEFAULT_TENANT;
use crate::pipeline::claims::{At, Claim, Claims, Sealing};
use crate::pipeline::prelude::*;
use crate::pipeline::upkeep::master_key_rotation::{
    self as rotation, Rotation, RotationError, SUBJECT,
};
use crate::store::{escalations, meta};

/// Transactions of one turn.
const STEPS: usize = 10;
/// How long after a failure the next try is made.
const RETRY_AFTER: Duration = Duration::from_mins(10);
/// How long where a person has to change the settings first.
const RETRY_AFTER_GIVEN: Duration = Duration::from_hours(24);
/// Rotates the master key.
pub struct MasterKeySchedule {
    env: Env,
    rotation: Rotation,
    claims: Claims,
    /// The rotation under way.
    under_way: Option<Claim>,
    /// No try is made before; by the monotonic clock.
    again_at: Duration,
}

impl MasterKeySchedule {
    /// Nothing is under way.
    pub fn new(env: Env, rotation: Rotation, claims: Claims) -> Self {
        Self { env, rotation, claims, under_way: None, again_at: Duration::ZERO }
    }

    /// Takes over a rotation that was claimed and left: it goes on with the next look.
    pub fn take(&mut self, claim: Claim) {
        self.under_way = Some(claim);
    }

    /// Begins a rotation that is due, or takes the next steps of the one under way. While the clock may be wrong, none
    /// begins.
    pub fn look(&mut self) -> Result<()> {
        if self.env.clock.monotonic() < self.again_at {
            return Ok(());
        }
        let done = match (self.under_way.take(), self.env.clock.sure_now()) {
            (Some(claim), _) => self.go_on(claim),
            (None, Some(now)) => self.begin(now),
            (None, None) => Ok(()),
        };
        let Err(error) = done else { return Ok(()) };
        let is_given = matches!(error, RotationError::Given(_));
        let wait = if is_given { RETRY_AFTER_GIVEN } else { RETRY_AFTER };
        self.again_at = self.env.clock.monotonic() + wait;
        tracing::error!(%error, "the master key could not be rotated; it is tried again");
        let now = self.env.clock.wall();
        let detail = format!("the master key was not rotated: {error}");
        self.env.store.writer().write(Queue::Upkeep, move |tx| {
            let tenant = DEFAULT_TENANT.to_owned();
            let class = Class::CredentialRotation;
            let id = id::uuid7_of(now, &[class.as_str(), SUBJECT]);
            let detail = detail.clone();
            let new = NewEscalation { id, tenant, class, subject: SUBJECT.to_owned(), detail };
            escalations::raise(tx, &new, now).map(drop)
        })
    }

    fn begin(&mut self, now: SureNow) -> std::result::Result<(), RotationError> {
        let Some(every) = self.env.settings.get().keys.rotate_every else { return Ok(()) };
        let now = now.at();
        match self.env.store.read(meta::master_key_since)?.filter(|since| *since <= now) {
            Some(since) if now.since(since) < every => Ok(()),
            Some(_) => self.claim_and_put(now),
            // A file of an older version does not say it, or the clock was ahead: the time runs from now on.
            None => {
                let note = move |tx: &WriteTx<'_>| meta::set_master_key_since(tx, now);
                Ok(self.env.store.writer().write(Queue::Upkeep, note)?)
            }
        }
    }

    /// Claims a rotation and puts the new key into its place, unless one is under way.
    fn claim_and_put(&mut self, at: Timestamp) -> std::result::Result<(), RotationError> {
        let next = self.rotation.prepare()?;
        let asked_by = rotation::begun_by(at, Actor::system());
        let new = rotation::claim_of(&next, &asked_by, self.env.clock.now());
        let claimed = self.claims.claim(new, |_tx| Ok(Ok::<(), Infallible>(())))?;
        let Some(Ok(claim)) = claimed else { return Ok(()) };
        if let Err(error) = self.rotation.put(next) {
            self.claims.end(claim)?;
            return Err(error.into());
        }
        self.under_way = Some(claim);
        Ok(())
    }

    /// Takes the next steps of a rotation. After an error it goes on with a later look.
    fn go_on(&mut self, claim: Claim) -> std::result::Result<(), RotationError> {
        if self.rotation.keyring().current().key_id() != claim.effect.term("to") {
            // The key's file could not be written, and neither could the end of the claim.
            return Ok(self.claims.end_cut_short(claim)?);
        }
        let ended = self.steps(&claim);
        if !matches!(ended, Ok(true)) {
            self.under_way = Some(claim);
        }
        Ok(ended.map(drop)?)
    }

    /// Seals a bounded number of secrets again; returns whether the rotation is finished.
    fn steps(&self, claim: &Claim) -> Result<bool> {
        let seq = Some(claim.effect.seq);
        for _ in 0..STEPS {
            let keyring = Arc::clone(self.rotation.keyring());
            let draw = Arc::clone(self.rotation.draw());
            let step = move |tx: &WriteTx<'_>| rotation::reseal_step(tx, &keyring, &*draw, seq);
            if self.env.store.writer().write(Queue::Upkeep, step)? == 0 {
                return self.finish(claim).map(|()| true);
            }
        }
        Ok(false)
    }

    fn finish(&self, claim: &Claim) -> Result<()> {
        let keyring = Arc::clone(self.rotation.keyring());
        let draw = Arc::clone(self.rotation.draw());
        let at = At::of(&self.env.clock);
        let effect = claim.effect.clone();
        self.env.store.writer().write(Queue::Upkeep, move |tx| {
            let sealing = Sealing { keyring: &keyring, draw: &*draw };
            rotation::finish(tx, sealing, &effect, at).map(drop)
        })
    }
}
