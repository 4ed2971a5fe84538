//! Deleting the file of a month: claimed, done, then finished. One that was cut short by an end of the process is resumed.

use serde_json::{Value, json};

use crate::archive::parts::Parts;
use crate::archive::{Archive, Month};
use crate::base::clock::Timestamp;
use crate::model::audit::changes::Changes;
use crate::model::audit::{Actor, NewAuditEvent};
use crate::model::effect::{AskedBy, EffectKind};
use crate::model::name::DEFAULT_TENANT;
use crate::pipeline::claims::{Answer, Claim};
use crate::store::claimed_effects::NewEffect;
use crate::store::error::{Error, Result};
use crate::store::tx::{ReadTx, WriteTx};
use crate::store::writer::Queue;
use crate::store::{Store, audit_events, legal_holds};

/// The answer to a request that deletes a month: 204, without a body.
const DELETED: Answer<'static> = Answer { status: 204, body: b"null" };

/// Deletes a month because of a setting; `false` if a legal hold needs it.
/// Fails with `Changed` if the legal holds change meanwhile.
pub(super) fn delete(
    parts: &Parts,
    archive: &Archive,
    month: &Month,
    because_of: &'static str,
) -> Result<bool> {
    let holds = parts.store.read(legal_holds::all)?;
    if is_held(archive, &parts.store, month)? {
        return Ok(false);
    }
    let at = parts.clock.wall();
    let kind = EffectKind::ArchiveDelete;
    let by = NewAuditEvent::local(at, DEFAULT_TENANT, Actor::system(), kind.as_str());
    let new = NewEffect {
        kind,
        subject: month.to_string(),
        tenant: DEFAULT_TENANT.to_owned(),
        terms: json!({ "because_of": because_of }),
        asked_by: AskedBy::of(&by),
        key: None,
        claimed_at: parts.clock.now(),
    };
    // A hold may have been made meanwhile.
    let check =
        move |tx: &WriteTx<'_>| Ok((legal_holds::all(tx)? == holds).then_some(()).ok_or(()));
    match parts.claims.claim(new, check)? {
        Some(Ok(claim)) => finish(parts, archive, month, &claim).map(|()| true),
        Some(Err(())) => Err(Error::Changed("the legal holds")),
        None => Err(Error::Changed("the month")),
    }
}

/// Resumes deletions that were claimed and left. A month that a legal hold needs by now stays.
pub(super) fn resume(parts: &Parts, archive: &Archive) -> Result<()> {
    for claim in parts.claims.left(&[EffectKind::ArchiveDelete])? {
        let month = Month::parse(&claim.effect.new.subject);
        let there = month.filter(|month| archive.path(month).exists());
        match there {
            Some(month) if is_held(archive, &parts.store, &month)? => {
                parts.claims.end_cut_short(claim)?;
            }
            Some(month) => finish(parts, archive, &month, &claim)?,
            None => note(parts, &claim)?,
        }
    }
    Ok(())
}

fn finish(parts: &Parts, archive: &Archive, month: &Month, claim: &Claim) -> Result<()> {
    archive.remove(month).map_err(|error| parts.store.file_error(error))?;
    tracing::warn!(%month, terms = %claim.effect.new.terms, "a month of the archive was deleted");
    note(parts, claim)
}

/// Stores that the month is gone: the audit event, the answer, and the end of the claim.
fn note(parts: &Parts, claim: &Claim) -> Result<()> {
    let effect = claim.effect.clone();
    let claims = parts.claims.clone();
    let at = parts.clock.wall();
    parts.store.writer().write(Queue::Upkeep, move |tx: &WriteTx<'_>| {
        claims.finish(tx, &effect, DELETED)?;
        audit_events::append(tx, &event(&effect.new, at)).map(drop)
    })
}

fn event(new: &NewEffect, at: Timestamp) -> NewAuditEvent {
    let mut event = new.asked_by.event(at, &new.tenant);
    event.origin.status = event.origin.method.map(|_| DELETED.status);
    let no_terms = serde_json::Map::new();
    let terms = new.terms.as_object().unwrap_or(&no_terms);
    let with =
        |changes: Changes, (name, value): (&String, &Value)| changes.and(name, value.clone());
    event.of("archive", &new.subject, terms.iter().fold(Changes::none(), with))
}

/// Whether the month has an event that must be kept.
pub fn is_held(archive: &Archive, store: &Store, month: &Month) -> Result<bool> {
    let holds = store.read(legal_holds::all)?;
    if holds.is_empty() {
        return Ok(false);
    }
    let find = |tx: &ReadTx<'_>| {
        for hold in &holds {
            if legal_holds::is_in(tx, hold)? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    archive.read(month, store)?.read(find)
}
