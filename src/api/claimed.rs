//! Calls that do something outside the file: claimed with their `Idempotency-Key`, done, then finished.
//!
//! Every refusal happens at the claim, before the effect. See `pipeline::claims`.

use serde_json::Value;

use crate::api::audited::{Audited, Change, ChangeResult, carry_out, settled};
use crate::api::call::Call;
use crate::api::context::Api;
use crate::api::idempotency::ChangeKey;
use crate::api::problem::Problem;
use crate::model::effect::{AskedBy, EffectKind};
use crate::pipeline::claims::{Claim, Reserved};
use crate::store::claimed_effects::{self, NewEffect};
use crate::store::tx::{ReadTx, WriteTx};
use crate::store::writer::Queue;

/// Why a credential cannot be changed while a command makes its next version.
const ROTATING: &str =
    "A command that makes its next version runs at this moment: try again when it has ended.";

/// An effect that a call is about to claim.
pub(super) struct Wanted {
    /// The right to claim it, which no other thread has.
    pub(super) reserved: Reserved,
    /// What later steps need; never a secret.
    pub(super) terms: Value,
    /// Why another call is refused meanwhile.
    pub(super) busy: &'static str,
}

/// Reserves an effect for a call.
/// Fails with 409 and `busy` while another thread works on it.
pub(super) fn reserve(
    api: &Api,
    kind: EffectKind,
    subject: &str,
    busy: &'static str,
) -> Result<Reserved, Problem> {
    api.flow.claims.reserve(kind, subject).ok_or_else(|| Problem::conflict(busy))
}

/// Claims an effect, and the key of its request. `refuse` decides in the transaction whether it may be done.
pub(super) fn claim<R>(
    api: &Api,
    call: &Call,
    wanted: Wanted,
    mut refuse: R,
) -> Result<Claim, Problem>
where
    R: FnMut(&WriteTx<'_>) -> ChangeResult<()> + Send + 'static,
{
    let Wanted { reserved, terms, busy } = wanted;
    let key = ChangeKey::new(api, call);
    let new = NewEffect {
        kind: reserved.kind(),
        subject: reserved.subject().to_owned(),
        tenant: call.tenant.clone(),
        terms,
        asked_by: AskedBy::of(&call.event(api.env.clock.wall())),
        key: key.as_ref().map(ChangeKey::request),
        claimed_at: api.env.clock.now(),
    };
    let claimed = api.env.store.writer().write(Queue::Accept, move |tx: &WriteTx<'_>| {
        if let Some(Err(problem)) = key.as_ref().map(|key| key.check(tx)).transpose()? {
            return Ok(Err(problem));
        }
        if let Err(problem) = settled(refuse(tx))? {
            return Ok(Err(problem));
        }
        Ok(claimed_effects::claim(tx, &new)?.ok_or_else(|| Problem::conflict(busy)))
    })?;
    claimed.map(|effect| Claim::of(effect, reserved))
}

/// Finishes an effect: stores what came of it, with its audit event and the answer to its request.
pub(super) fn finish<R>(
    api: &Api,
    call: &Call,
    claim: &Claim,
    mut run: R,
) -> Result<Audited<Value>, Problem>
where
    R: FnMut(&WriteTx<'_>) -> ChangeResult + Send + 'static,
{
    let effect = Some(claim.effect.clone());
    let done = carry_out(api, call, effect, move |tx| Ok::<(Change, ()), _>((run(tx)?, ())))?;
    Ok(done.map(|(body, ())| body))
}

/// Ends an effect that was not done. The key of its request is free again.
pub(super) fn end(api: &Api, claim: Claim) {
    if let Err(error) = api.flow.claims.end(claim) {
        tracing::error!(%error, "an effect that failed could not be ended; upkeep ends it");
    }
}

/// Refuses a change of a credential while a command makes its next version.
pub(super) fn check_not_rotating(tx: &ReadTx<'_>, credential: &str) -> ChangeResult<()> {
    match claimed_effects::find(tx, EffectKind::CredentialRotate, credential)? {
        Some(_) => Err(Problem::conflict(ROTATING).into()),
        None => Ok(()),
    }
}
