//! Deleting the file of a month: claimed, done, then finished. One that failed, or was cut short by an end of the process,
//! is resumed: its claim stays until the file is gone, or a legal hold needs it.
//!
//! Claim and deletion are done by one who writes alone, as a new legal hold is: so a hold is in force before a month is
//! claimed, or answered after the month is gone.

use parking_lot::MutexGuard;
use serde_json::{Value, json};

use crate::archive::work::ArchiveWork;
use crate::archive::{AUDIT_DIRECTORY, Archive, Month};
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
    work: &ArchiveWork,
    archive: &Archive,
    month: &Month,
    because_of: &'static str,
) -> Result<bool> {
    let holds = work.env.store.read(legal_holds::all)?;
    if is_held(archive, &work.env.store, month)? {
        return Ok(false);
    }
    let at = work.env.clock.wall();
    let kind = EffectKind::ArchiveDelete;
    let by = NewAuditEvent::local(at, DEFAULT_TENANT, Actor::system(), kind.as_str());
    let new = NewEffect {
        kind,
        subject: month.to_string(),
        tenant: DEFAULT_TENANT.to_owned(),
        terms: json!({ "because_of": because_of }),
        asked_by: AskedBy::of(&by),
        key: None,
        claimed_at: work.env.clock.now(),
    };
    // A hold may have been made meanwhile.
    let check =
        move |tx: &WriteTx<'_>| Ok((legal_holds::all(tx)? == holds).then_some(()).ok_or(()));
    let alone = archive.write_alone();
    match work.claims.claim(new, check)? {
        Some(Ok(claim)) => {
            remove(work, archive, month, &alone)?;
            note(work, &claim).map(|()| true)
        }
        Some(Err(())) => Err(Error::Changed("the legal holds")),
        None => Err(Error::Changed("the month")),
    }
}

/// Resumes deletions that were claimed and left. A month that a legal hold needs by now stays.
/// Fails if a month cannot be deleted, after it did the others.
pub(super) fn resume(work: &ArchiveWork, archive: &Archive) -> Result<()> {
    let mut all = Ok(());
    for claim in work.claims.left(&[EffectKind::ArchiveDelete])? {
        // Files of audit events are resumed by their own mover.
        let Some(month) = Month::parse(&claim.effect.new.subject) else { continue };
        let done = resume_one(work, archive, &month, claim);
        all = all.and(done);
    }
    all
}

fn resume_one(work: &ArchiveWork, archive: &Archive, month: &Month, claim: Claim) -> Result<()> {
    let alone = archive.write_alone();
    if archive.path(month).exists() && is_held(archive, &work.env.store, month)? {
        return work.claims.end_cut_short(claim);
    }
    remove(work, archive, month, &alone)?;
    note(work, &claim)
}

fn remove(
    work: &ArchiveWork,
    archive: &Archive,
    month: &Month,
    alone: &MutexGuard<'_, ()>,
) -> Result<()> {
    archive.remove(month, alone).map_err(|error| work.env.store.file_error(error))?;
    tracing::warn!(%month, "a month of the archive was deleted");
    Ok(())
}

/// What a claim is about that deletes the file of audit events of a month.
pub(super) fn audit_subject(month: &Month) -> String {
    format!("{AUDIT_DIRECTORY}/{month}")
}

/// Stores that the month is gone: the audit event, the answer, and the end of the claim.
fn note(work: &ArchiveWork, claim: &Claim) -> Result<()> {
    let effect = claim.effect.clone();
    let claims = work.claims.clone();
    let at = work.env.clock.wall();
    work.env.store.writer().write(Queue::Upkeep, move |tx: &WriteTx<'_>| {
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
