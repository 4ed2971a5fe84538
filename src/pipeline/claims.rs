//! Claim, effect, finish: the one way to do something outside the file.
//!
//! A claim is a committed row with what later steps need and the `Idempotency-Key` of the request. Refusals happen at
//! the claim, never after the effect. The transaction that stores what came of the effect deletes the row. A row that no
//! thread of this process works on was left by a process that was killed, or by a transaction that failed: the chore of
//! [`Claims::left`] resumes or ends it.
//!
//! Not here: the table (`store::claimed_effects`). ARCHITECTURE.md lists all effects with where each is claimed.

use std::collections::BTreeSet;

use crate::keys::Keyring;
use crate::model::audit::Outcome;
use crate::model::audit::changes::Changes;
use crate::model::effect::EffectKind;
use crate::pipeline::prelude::*;
use crate::store::audit_events;
use crate::store::claimed_effects::{self, ClaimedEffect, NewEffect};
use crate::store::idempotency_keys::{self, SealedAnswer};

/// Why an effect that was cut short failed, in its audit event.
const CUT_SHORT: &str = "the service ended before it was done";

/// The kind and the subject of an effect.
type Named = (EffectKind, String);

/// Claims effects and knows which of them this process works on. Cheap to clone.
#[derive(Clone)]
pub struct Claims {
    env: Env,
    in_hand: Arc<Mutex<BTreeSet<Named>>>,
}

/// The right to claim one effect. While it exists, no other thread claims, resumes or ends that effect.
#[derive(Debug)]
pub struct Reserved {
    in_hand: Arc<Mutex<BTreeSet<Named>>>,
    named: Named,
}

impl Reserved {
    /// The kind of the effect.
    pub fn kind(&self) -> EffectKind {
        self.named.0
    }

    /// What the effect is done to.
    pub fn subject(&self) -> &str {
        &self.named.1
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.in_hand.lock().remove(&self.named);
    }
}

/// A claimed effect that one thread works on. Dropped before it is finished, it is left to upkeep.
#[derive(Debug)]
pub struct Claim {
    /// The row.
    pub effect: ClaimedEffect,
    reserved: Reserved,
}

impl Claim {
    /// A claimed effect and the right to work on it.
    pub fn of(effect: ClaimedEffect, reserved: Reserved) -> Self {
        Self { effect, reserved }
    }

    /// The kind of the effect.
    pub fn kind(&self) -> EffectKind {
        self.reserved.kind()
    }
}

impl Claims {
    /// No effect is in hand yet.
    pub fn new(env: Env) -> Self {
        Self { env, in_hand: Arc::default() }
    }

    /// Reserves an effect. `None`: another thread works on it.
    pub fn reserve(&self, kind: EffectKind, subject: &str) -> Option<Reserved> {
        let named = (kind, subject.to_owned());
        let is_free = self.in_hand.lock().insert(named.clone());
        is_free.then(|| Reserved { in_hand: Arc::clone(&self.in_hand), named })
    }

    /// Claims an effect without a request. `check` runs in the transaction; its error says why the effect is refused.
    /// `None`: an effect of this kind and subject is claimed by somebody else.
    pub fn claim<E: Send + 'static>(
        &self,
        new: NewEffect,
        mut check: impl FnMut(&WriteTx<'_>) -> Result<std::result::Result<(), E>> + Send + 'static,
    ) -> Result<Option<std::result::Result<Claim, E>>> {
        let Some(reserved) = self.reserve(new.kind, &new.subject) else { return Ok(None) };
        let claimed = self.env.store.writer().write(Queue::Upkeep, move |tx| {
            if let Err(refused) = check(tx)? {
                return Ok(Some(Err(refused)));
            }
            Ok(claimed_effects::claim(tx, &new)?.map(Ok))
        })?;
        Ok(claimed.map(|claimed| claimed.map(|effect| Claim::of(effect, reserved))))
    }

    /// Effects of these kinds that were left: claimed, and no thread of this process works on them.
    pub fn left(&self, kinds: &[EffectKind]) -> Result<Vec<Claim>> {
        let all = self.env.store.read(claimed_effects::all)?;
        let asked = all.into_iter().filter(|effect| kinds.contains(&effect.new.kind));
        let free = asked.filter_map(|effect| {
            let reserved = self.reserve(effect.new.kind, &effect.new.subject)?;
            Some(Claim::of(effect, reserved))
        });
        let free: Vec<Claim> = free.collect();
        if free.is_empty() {
            return Ok(free);
        }
        // A thread may have finished one between the read and the reservation.
        let now = self.env.store.read(claimed_effects::all)?;
        let is_there = |claim: &Claim| now.iter().any(|effect| effect.seq == claim.effect.seq);
        Ok(free.into_iter().filter(is_there).collect())
    }

    /// Finishes an effect in the transaction of its result, and keeps the answer to its request.
    pub fn finish(
        &self,
        tx: &WriteTx<'_>,
        effect: &ClaimedEffect,
        answer: Answer<'_>,
    ) -> Result<()> {
        let sealing = Sealing { keyring: &self.env.keyring, draw: &*self.env.draw };
        finish(tx, sealing, effect, answer, self.env.clock.now())
    }

    /// Ends an effect that was not done: its claim goes, and the key of its request is free again.
    pub fn end(&self, claim: Claim) -> Result<()> {
        let now = self.env.clock.now();
        let Claim { effect, reserved } = claim;
        let end = move |tx: &WriteTx<'_>| claimed_effects::finish(tx, &effect, None, now);
        self.env.store.writer().write(Queue::Upkeep, end)?;
        // Only after the row is gone may another thread claim the same.
        drop(reserved);
        Ok(())
    }

    /// Ends an effect that an earlier process left, and audits the failure.
    pub fn end_cut_short(&self, claim: Claim) -> Result<()> {
        let at = At::of(&self.env.clock);
        let Claim { effect, reserved } = claim;
        let kind = effect.new.kind;
        tracing::warn!(%kind, subject = effect.new.subject, "an effect was cut short by the end of the process");
        let end = move |tx: &WriteTx<'_>| end_cut_short(tx, &effect, at);
        self.env.store.writer().write(Queue::Upkeep, end)?;
        drop(reserved);
        Ok(())
    }
}

/// Ends an effect that was cut short, in a transaction.
pub fn end_cut_short(tx: &WriteTx<'_>, effect: &ClaimedEffect, at: At) -> Result<()> {
    claimed_effects::finish(tx, effect, None, at.now)?;
    let NewEffect { tenant, subject, asked_by, .. } = &effect.new;
    let mut event = asked_by.event(at.wall, tenant);
    event.outcome = Outcome::Failure;
    let resource_type = event.resource_type.clone();
    let event = event.of(&resource_type, subject, Changes::none().and("problem", CUT_SHORT));
    audit_events::append(tx, &event).map(drop)
}

/// The answer to the request of an effect, as it is sent.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: &'a [u8],
}

/// The master keys and the randomness that seal.
#[derive(Clone, Copy)]
pub struct Sealing<'a> {
    /// The keys.
    pub keyring: &'a Keyring,
    /// Randomness.
    pub draw: &'a dyn Draw,
}

/// The time of a step, on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// Wall time, for records.
    pub wall: Timestamp,
    /// Schedule time, for keys that expire.
    pub now: Timestamp,
}

impl At {
    /// The time now.
    pub fn of(clock: &Clock) -> Self {
        Self { wall: clock.wall(), now: clock.now() }
    }
}

/// Finishes an effect in a transaction, and keeps the answer to its request.
pub fn finish(
    tx: &WriteTx<'_>,
    Sealing { keyring, draw }: Sealing<'_>,
    effect: &ClaimedEffect,
    Answer { status, body }: Answer<'_>,
    now: Timestamp,
) -> Result<()> {
    let Some(key) = &effect.new.key else { return claimed_effects::finish(tx, effect, None, now) };
    let context = idempotency_keys::context(&effect.new.tenant, &key.key);
    let sealed = keyring.current().seal(&context, body, draw);
    claimed_effects::finish(tx, effect, Some(SealedAnswer { status, body: &sealed }), now)
}
