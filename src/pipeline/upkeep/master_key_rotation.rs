//! Rotates the master key: everything sealed is sealed again under a new key, while the service runs.
//!
//! The order makes a crash at any point harmless. The old key is saved under its own id, then the new key takes its
//! place. The rows follow in bounded transactions, and last the database names the new key. Each sealed value names its
//! key: a start loads every key that is named and continues the rotation. The old key's file stays: older backups need
//! it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use data_encoding::HEXLOWER;
use serde_json::json;

use crate::alerts::channel::Channel;
use crate::alerts::store as alerts;
use crate::base::faults::{Faults, Step};
use crate::base::secret::MasterKey;
use crate::keys::Keyring;
use crate::keys::file::{self, KeyFileError};
use crate::model::audit::changes::Changes;
use crate::model::audit::{Actor, NewAuditEvent};
use crate::model::escalation::Class;
use crate::model::name::DEFAULT_TENANT;
use crate::pipeline::prelude::*;
use crate::store::credentials::{self, Credential, context};
use crate::store::subjects::{self, SubjectKey};
use crate::store::{escalations, meta};

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
    turn: Arc<Mutex<()>>,
    /// A rotation has begun, and whoever began it does not go on with it.
    is_left: Arc<AtomicBool>,
}

/// A rotation that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotated {
    /// The id of the old key.
    pub from: String,
    /// The id of the new key.
    pub to: String,
    /// Secrets that were sealed again.
    pub secrets: u64,
}

impl Rotation {
    /// A rotation of the keys on this ring; `place` is the file of the current key, or what else provides it.
    pub fn new(
        keyring: Arc<Keyring>,
        draw: Arc<dyn Draw>,
        place: std::result::Result<PathBuf, &'static str>,
        faults: Faults,
    ) -> Self {
        Self { keyring, draw, place, faults, turn: Arc::default(), is_left: Arc::default() }
    }

    /// Replaces the current key by a new one and seals everything again; `write` runs a job in a transaction of its
    /// own. The caller runs the last transaction: [`name_current`]. After a failure the finished steps stay, and every
    /// secret still opens.
    pub fn run<W>(&self, write: W) -> std::result::Result<Rotated, RotationError>
    where
        W: FnMut(Job) -> Result<usize>,
    {
        let _turn = self.turn.lock();
        let (from, to) = self.turn_key()?;
        let secrets = reseal(&self.keyring, &self.draw, write).inspect_err(|_| self.leave())?;
        Ok(Rotated { from, to, secrets })
    }

    /// Puts a new key into the place of the current one; returns the ids of both. Nothing is sealed again yet.
    fn turn_key(&self) -> std::result::Result<(String, String), RotationError> {
        let path = self.place.as_ref().map_err(|given| RotationError::Given(given))?;
        let (old, new) = (self.keyring.current(), MasterKey::generate(&*self.draw));
        self.planned_fault(path)?;
        file::write(&file::retired(path, &old.key_id()), &old)?;
        self.planned_fault(path)?;
        file::write(path, &new)?;
        let to = new.key_id();
        self.keyring.turn_to(new);
        Ok((old.key_id(), to))
    }

    /// Begins a rotation that upkeep goes on with, unless one is under way.
    pub fn begin(&self) -> std::result::Result<(), RotationError> {
        let Some(_turn) = self.turn.try_lock() else { return Ok(()) };
        self.turn_key()?;
        self.leave();
        Ok(())
    }

    /// Whether a rotation has begun that upkeep has to go on with.
    pub fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Acquire)
    }

    /// The rotation that was left has ended.
    pub fn ended(&self) {
        self.is_left.store(false, Ordering::Release);
    }

    /// Leaves a rotation that has begun to upkeep.
    pub fn leave(&self) {
        self.is_left.store(true, Ordering::Release);
    }

    fn planned_fault(&self, path: &std::path::Path) -> std::result::Result<(), KeyFileError> {
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

/// The audit event of a rotation.
pub fn audit_event(at: Timestamp, actor: Actor, done: &Rotated) -> NewAuditEvent {
    let Rotated { from, to, secrets } = done;
    let changes = Changes::between(&json!({ "id": from }), &json!({ "id": to }));
    let changes = changes.and("secrets", *secrets);
    NewAuditEvent::local(at, DEFAULT_TENANT, actor, "master_key.rotate").of(
        "master_key",
        to,
        changes,
    )
}

/// A write that can be run again.
pub type Job = Box<dyn FnMut(&WriteTx<'_>) -> Result<usize> + Send>;

/// Seals again everything that is not sealed under the current key, in bounded transactions; returns how many.
/// Fails when the file cannot be written, or holds a secret that none of the keys opens.
pub fn reseal(
    keyring: &Arc<Keyring>,
    draw: &Arc<dyn Draw>,
    mut write: impl FnMut(Job) -> Result<usize>,
) -> Result<u64> {
    let mut done = 0_u64;
    loop {
        let (keyring, draw) = (Arc::clone(keyring), Arc::clone(draw));
        let moved = write(Box::new(move |tx| reseal_some(tx, &keyring, &*draw, None)))?;
        if moved == 0 {
            return Ok(done);
        }
        done = done.saturating_add(u64::try_from(moved).unwrap_or(0));
    }
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
        let plain = keyring.open(place, sealed);
        let plain = plain.map_err(|error| Error::Unreadable { column, value: value(error) })?;
        Ok::<_, Error>(current.seal(place, plain.expose(), draw))
    };
    let is_lost =
        |sealed: &[u8]| MasterKey::id_in(sealed).is_none_or(|id| keyring.of(&id).is_none());
    let others = credentials::sealed_otherwise(tx, &master, MAX_ROWS)?;
    for (id, sealed) in &others {
        if let Some(lost) = lost.as_mut().filter(|_| is_lost(sealed)) {
            let nothing = current.seal(&context(id), b"", draw);
            lost.secrets.extend(credentials::give_up(tx, id, (&nothing, &master))?);
            continue;
        }
        let sealed = anew("credentials.sealed", id, &context(id), sealed)?;
        credentials::reseal(tx, id, &sealed, &master)?;
    }
    let keys = subjects::sealed_otherwise(tx, &master, MAX_ROWS)?;
    for SubjectKey { key_id, sealed, .. } in &keys {
        let (name, kept) = (HEXLOWER.encode(key_id), sealed.as_deref().unwrap_or_default());
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
            let plain = keyring.open(&context, &sealed).map_err(unreadable_key)?;
            meta::set_sealed(tx, name, &current.seal(&context, plain.expose(), draw))?;
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
