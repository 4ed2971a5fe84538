//! Table `claimed_effects`: effects outside this file that were claimed and are not finished.
//!
//! A claim is committed before its effect, with the `Idempotency-Key` of its request. The transaction that stores what
//! came of the effect deletes the claim and keeps the answer.

use serde_json::Value;

use crate::model::effect::{AskedBy, EffectKind};
use crate::store::column::{Count, Json, to_json, words};
use crate::store::idempotency_keys::{self, Idempotency, SealedAnswer};
use crate::store::prelude::*;

words! {
    EffectKind;
}

/// An effect to claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEffect {
    /// Its kind.
    pub kind: EffectKind,
    /// What it is done to, such as the id of a credential.
    pub subject: String,
    /// The tenant of the request.
    pub tenant: String,
    /// What later steps need; never a secret.
    pub terms: Value,
    /// Who asked for it.
    pub asked_by: AskedBy,
    /// The `Idempotency-Key` of the request.
    pub key: Option<Idempotency>,
    /// When it is claimed.
    pub claimed_at: Timestamp,
}

/// A claimed effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedEffect {
    /// Its number.
    pub seq: i64,
    /// What was claimed.
    pub new: NewEffect,
    /// Rows that it has changed so far.
    pub done: u64,
}

impl ClaimedEffect {
    /// A text of its terms; empty if there is none.
    pub fn term(&self, name: &str) -> &str {
        self.new.terms.get(name).and_then(Value::as_str).unwrap_or_default()
    }
}

columns! {
    fn claimed_effect() -> ClaimedEffect = "claimed_effects" [
        seq, kind, subject, tenant, terms as Json(terms), asked_by as Json(asked_by), request_key, request_hash,
        done as Count(done), claimed_at
    ] {
        seq, done,
        new: NewEffect { kind, subject, tenant, terms, asked_by, key: joined(request_key, request_hash), claimed_at }
    }
    /// All claimed effects, the oldest first. There are few: one of a kind for each subject.
    pub fn all() -> Vec = "ORDER BY seq";
    /// Those of one kind, the oldest first.
    pub fn of_kind(kind: EffectKind) -> Vec = "WHERE kind = ?1 ORDER BY seq";
    /// The one of this kind for a subject.
    pub fn find(kind: EffectKind, subject: &str) -> Option = "WHERE kind = ?1 AND subject = ?2";
}

changes! {
    /// Counts rows that an effect has changed, in the transaction that changes them.
    pub fn add_done(seq: i64, more: i64) of "a claimed effect" =
        "UPDATE claimed_effects SET done = done + ?2 WHERE seq = ?1";

    /// Renames the resource of an effect, so that another effect can be claimed for the earlier name.
    pub fn rename(seq: i64, subject: &str) of "a claimed effect" =
        "UPDATE claimed_effects SET subject = ?2 WHERE seq = ?1";

    fn delete(seq: i64) of "a claimed effect" = "DELETE FROM claimed_effects WHERE seq = ?1";
}

fn joined(key: Option<String>, request_hash: Option<Vec<u8>>) -> Option<Idempotency> {
    Some(Idempotency { key: key?, request_hash: request_hash? })
}

/// Claims an effect, and the key of its request. `None`: one of its kind is claimed for its subject. The caller has
/// checked the key.
pub fn claim(tx: &WriteTx<'_>, new: &NewEffect) -> Result<Option<ClaimedEffect>> {
    if find(tx, new.kind, &new.subject)?.is_some() {
        return Ok(None);
    }
    let request_key = new.key.as_ref().map(|key| key.key.as_str());
    let request_hash = new.key.as_ref().map(|key| key.request_hash.as_slice());
    let terms = to_json("claimed_effects.terms", &new.terms)?;
    let asked_by = to_json("claimed_effects.asked_by", &new.asked_by)?;
    insert!(tx, "claimed_effects" of new {
        kind, subject, tenant, terms: terms, asked_by: asked_by, request_key: request_key,
        request_hash: request_hash, claimed_at
    })?;
    if let Some(key) = &new.key {
        idempotency_keys::begin_change(tx, &new.tenant, key, new.claimed_at)?;
    }
    find(tx, new.kind, &new.subject)
}

/// Finishes an effect: deletes its claim, and keeps the answer under the key of its request. Without an answer the key
/// is free again, so that a repeated request does it anew.
/// Fails with `Changed` if somebody else has finished it.
pub fn finish(
    tx: &WriteTx<'_>,
    effect: &ClaimedEffect,
    answer: Option<SealedAnswer<'_>>,
    now: Timestamp,
) -> Result<()> {
    delete(tx, effect.seq)?;
    let Some(key) = &effect.new.key else { return Ok(()) };
    let tenant = &effect.new.tenant;
    match answer {
        Some(answer) => idempotency_keys::keep(tx, tenant, key, answer, now),
        None => idempotency_keys::release(tx, tenant, &key.key),
    }
}
