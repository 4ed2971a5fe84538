//! Rotates the master key: the data key of everything sealed is wrapped again by a new key, while the service runs.
//!
//! The order makes a crash at any point harmless. The rotation is claimed with the ids of both keys. The old key is saved
//! under its own id, then the new key takes its place. The rows follow in bounded transactions, and last the database
//! names the new key and the claim goes. Each sealed value names its key: a start loads every key that is named and
//! finishes the rotation, or ends it if the new key is not in its place. The old key's file stays: older backups need it.

use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use serde::Serialize;
use serde_json::{Value, json};

use crate::alerts::channel::Channel;
use crate::alerts::store as alerts;
use crate::base::faults::{Faults, Step};
use crate::base::secret::MasterKey;
use crate::keys::Keyring;
use crate::keys::file::{self, KeyFileError};
use crate::model::audit::changes::Changes;
use crate::model::audit::{Actor, NewAuditEvent};
use crate::model::effect::{AskedBy, EffectKind};
use crate::model::escalation::Class;
use crate::model::name::DEFAULT_TENANT;
use crate::pipeline::claims::{self, Answer, At, Sealing};
use crate::pipeline::prelude::*;
use crate::store::claimed_effects::{self, ClaimedEffect, NewEffect};
use crate::store::credentials::{self, Credential, context};
use crate::store::subjects::{self, SubjectKey};
use crate::store::{audit_events, escalations, meta};

/// What an escalation about it is about.
pub const SUBJECT: &str = "master_key";
/// Secrets that are sealed again in one transaction.
const MAX_ROWS: u32 = 100;

/// Why the master key was not rotated.
#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    /// The key is not in a file that Oncebox writes.
    #[error(
        "the master key comes from {0}, which Oncebox does not write. Make a new key with \
         `oncebox keys new FILE`, put it there, configure the old one as the previous key, and restart"
    )]
    Given(&'static str),
    /// The key's file.
    #[error("{0}")]
    File(#[from] KeyFileError),
    /// The database.
    #[error("{0}")]
    Store(#[from] Error),
}

/// What a rotation needs. Cheap to clone.
#[derive(Clone)]
pub struct Rotation {
    keyring: Arc<Keyring>,
    draw: Arc<dyn Draw>,
    /// The file of the key, or what else provides it.
    place: std::result::Result<PathBuf, &'static str>,
    faults: Faults,
}

/// A rotation that was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rotated {
    /// The id of the old key.
    pub from: String,
    /// The id of the new key.
    pub to: String,
    /// Secrets that were sealed again.
    pub secrets: u64,
}

/// A new key that is not in its file yet.
#[derive(Debug)]
pub struct NextKey {
    from: Arc<MasterKey>,
    key: MasterKey,
    path: PathBuf,
}

impl NextKey {
    /// The terms of the claim: the ids of both keys.
    pub fn terms(&self) -> Value {
        json!({ "from": self.from.key_id(), "to": self.key.key_id() })
    }
}

impl Rotation {
    /// A rotation of the keys on this ring; `place` is the file of the current key, or what else provides it.
    pub fn new(
        keyring: Arc<Keyring>,
        draw: Arc<dyn Draw>,
        place: std::result::Result<PathBuf, &'static str>,
        faults: Faults,
    ) -> Self {
        Self { keyring, draw, place, faults }
    }

    /// Makes the next key, for a rotation that is about to be claimed: the claim names it. Nobody else claims a
    /// rotation until then.
    /// Fails if Oncebox does not write the key's file.
    pub fn prepare(&self) -> std::result::Result<NextKey, RotationError> {
        let path = self.place.clone().map_err(RotationError::Given)?;
        let key = MasterKey::generate(&*self.draw);
        Ok(NextKey { from: self.keyring.current(), key, path })
    }

    /// Puts the next key into the place of the current one. Nothing is sealed again yet. The caller has claimed the
    /// rotation. After a failure the current key is in its place.
    pub fn put(&self, next: NextKey) -> std::result::Result<(), KeyFileError> {
        let NextKey { from, key, path } = next;
        self.planned_fault(&path)?;
        file::write(&file::retired(&path, &from.key_id()), &from)?;
        self.planned_fault(&path)?;
        if let Err(error) = file::write(&path, &key) {
            // The name may have changed although the directory could not be synced: then the rotation goes on.
            let is_there = file::read(&path).is_ok_and(|found| found.key_id() == key.key_id());
            if !is_there {
                return Err(error);
            }
        }
        self.keyring.turn_to(key);
        Ok(())
    }

    fn planned_fault(&self, path: &Path) -> std::result::Result<(), KeyFileError> {
        if self.faults.hit(Step::KeyFile) {
            let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Err(KeyFileError::File { path: path.to_owned(), source });
        }
        Ok(())
    }

    /// The keys.
    pub fn keyring(&self) -> &Arc<Keyring> {
        &self.keyring
    }

    /// Randomness.
    pub fn draw(&self) -> &Arc<dyn Draw> {
        &self.draw
    }
}

/// The claim of a rotation that no call asks for.
pub fn claim_of(next: &NextKey, asked_by: &NewAuditEvent, now: Timestamp) -> NewEffect {
    NewEffect {
        kind: EffectKind::MasterKeyRotate,
        subject: SUBJECT.to_owned(),
        tenant: asked_by.tenant.clone(),
        terms: next.terms(),
        asked_by: AskedBy::of(asked_by),
        key: None,
        claimed_at: now,
    }
}

/// The audit event of a rotation that begins.
pub fn begun_by(at: Timestamp, actor: Actor) -> NewAuditEvent {
    NewAuditEvent::local(at, DEFAULT_TENANT, actor, EffectKind::MasterKeyRotate.as_str())
}

/// Finishes a claimed rotation after everything is sealed again: names the current key, audits, and keeps the answer to
/// the request.
pub fn finish(
    tx: &WriteTx<'_>,
    sealing: Sealing<'_>,
    effect: &ClaimedEffect,
    at: At,
) -> Result<Rotated> {
    let Sealing { keyring, draw } = sealing;
    name_current(tx, keyring, draw, at.wall)?;
    let secrets = sealed_by(tx, effect)?;
    let from = effect.term("from").to_owned();
    let done = Rotated { from, to: keyring.current().key_id(), secrets };
    let mut event = effect.new.asked_by.event(at.wall, &effect.new.tenant);
    event.origin.status = event.origin.method.map(|_| 200);
    audit_events::append(tx, &event.of(SUBJECT, &done.to, changes_of(&done)))?;
    let body = serde_json::to_vec(&done).unwrap_or_default();
    claims::finish(tx, sealing, effect, Answer { status: 200, body: &body }, at.now)?;
    Ok(done)
}

/// How many secrets a claimed rotation has sealed again.
pub fn sealed_by(tx: &WriteTx<'_>, effect: &ClaimedEffect) -> Result<u64> {
    let found = claimed_effects::find(tx, effect.new.kind, &effect.new.subject)?;
    Ok(found.map_or(effect.done, |found| found.done))
}

fn changes_of(Rotated { from, to, secrets }: &Rotated) -> Changes {
    Changes::between(&json!({ "id": from }), &json!({ "id": to })).and("secrets", *secrets)
}

/// The audit event of a rotation.
pub fn audit_event(at: Timestamp, actor: Actor, done: &Rotated) -> NewAuditEvent {
    begun_by(at, actor).of(SUBJECT, &done.to, changes_of(done))
}

/// A write that can be run again.
pub type Job = Box<dyn FnMut(&WriteTx<'_>) -> Result<usize> + Send>;

/// Seals again everything that is not sealed under the current key, in bounded transactions; returns how many. A claimed
/// rotation counts them.
/// Fails when the file cannot be written, or holds a secret that none of the keys opens.
pub fn reseal(
    keyring: &Arc<Keyring>,
    draw: &Arc<dyn Draw>,
    claimed: Option<i64>,
    mut write: impl FnMut(Job) -> Result<usize>,
) -> Result<u64> {
    let mut done = 0_u64;
    loop {
        let keyring = Arc::clone(keyring);
        let draw = Arc::clone(draw);
        let moved = write(Box::new(move |tx| reseal_step(tx, &keyring, &*draw, claimed)))?;
        if moved == 0 {
            return Ok(done);
        }
        done = done.saturating_add(u64::try_from(moved).unwrap_or(0));
    }
}

/// Seals a few again, and counts them for the claimed rotation; returns how many rows changed.
pub fn reseal_step(
    tx: &WriteTx<'_>,
    keyring: &Keyring,
    draw: &dyn Draw,
    claimed: Option<i64>,
) -> Result<usize> {
    let moved = reseal_some(tx, keyring, draw, None)?;
    if let Some(seq) = claimed.filter(|_| moved > 0) {
        claimed_effects::add_done(tx, seq, i64::try_from(moved).unwrap_or(0))?;
    }
    Ok(moved)
}

/// What was given up because no key opens it.
#[derive(Debug, Default)]
pub struct GivenUp {
    /// When (wall time).
    pub at: Timestamp,
    /// Secrets that were in force.
    pub secrets: Vec<Credential>,
    /// Alert channels, whose URL was sealed.
    pub channels: Vec<Channel>,
    /// Keys of subjects, which count as erased.
    pub subjects: u64,
}

/// Seals a few again. What none of the keys opens is an error, or is given up into `lost`; returns how many rows changed.
pub fn reseal_some(
    tx: &WriteTx<'_>,
    keyring: &Keyring,
    draw: &dyn Draw,
    mut lost: Option<&mut GivenUp>,
) -> Result<usize> {
    let current = keyring.current();
    let master = current.key_id();
    let anew = |column, name: &str, place: &str, sealed: &[u8]| {
        let value = |error| format!("{name}: {error}");
        let wrapped = keyring.rewrap(place, sealed, draw);
        wrapped.map_err(|error| Error::Unreadable { column, value: value(error) })
    };
    let is_lost =
        |sealed: &[u8]| MasterKey::id_in(sealed).is_none_or(|id| keyring.of(&id).is_none());
    let others = credentials::sealed_otherwise(tx, &master, MAX_ROWS)?;
    for (id, sealed) in &others {
        if let Some(lost) = lost.as_mut().filter(|_| is_lost(sealed)) {
            let nothing = current.seal(&context(id), b"", draw);
            lost.secrets.extend(credentials::give_up(tx, id, &nothing, &master)?);
            continue;
        }
        let sealed = anew("credentials.sealed", id, &context(id), sealed)?;
        credentials::reseal(tx, id, &sealed, &master)?;
    }
    let keys = subjects::sealed_otherwise(tx, &master, MAX_ROWS)?;
    for SubjectKey { key_id, sealed, .. } in &keys {
        let name = HEXLOWER.encode(key_id);
        let kept = sealed.as_deref().unwrap_or_default();
        if let Some(lost) = lost.as_mut().filter(|_| is_lost(kept)) {
            subjects::erase(tx, key_id, lost.at)?;
            lost.subjects += 1;
            continue;
        }
        let sealed = anew("subjects.sealed", &name, &subjects::context(key_id), kept)?;
        subjects::reseal(tx, key_id, &sealed, &master)?;
    }
    let urls = alerts::sealed_otherwise(tx, &master, MAX_ROWS)?;
    for (id, sealed) in &urls {
        if let Some(lost) = lost.as_mut().filter(|_| is_lost(sealed)) {
            alerts::reseal(tx, id, &current.seal(&alerts::context(id), b"", draw), &master)?;
            lost.channels.extend(alerts::live(tx)?.into_iter().filter(|channel| channel.id == *id));
            continue;
        }
        let sealed = anew("alert_channels.sealed", id, &alerts::context(id), sealed)?;
        alerts::reseal(tx, id, &sealed, &master)?;
    }
    Ok(others.len() + keys.len() + urls.len())
}

/// The last step: seals the keys in `meta` again, and names the current key in the database.
pub fn name_current(
    tx: &WriteTx<'_>,
    keyring: &Keyring,
    draw: &dyn Draw,
    now: Timestamp,
) -> Result<()> {
    let current = keyring.current();
    for name in meta::SEALED {
        if let Some(sealed) = meta::sealed(tx, name)? {
            let context = meta::context(name);
            let wrapped = keyring.rewrap(&context, &sealed, draw).map_err(unreadable_key)?;
            meta::set_sealed(tx, name, &wrapped)?;
        }
    }
    meta::set_master_key_id(tx, &current.key_id())?;
    meta::set_master_key_since(tx, now)?;
    escalations::resolve(tx, DEFAULT_TENANT, Class::CredentialRotation, SUBJECT, now)
}

/// The error if a key in `meta` cannot be opened.
pub fn unreadable_key(error: crate::base::secret::OpenError) -> Error {
    Error::Unreadable { column: "meta.value of a sealed key", value: error.to_string() }
}
