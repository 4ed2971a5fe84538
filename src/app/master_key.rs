//! Finds the master key, and every older key that the database names.
//!
//! The first of these is used: the systemd credential `oncebox-master-key`, the variable `ONCEBOX_MASTER_KEY`, what the
//! program `keys.command` writes, the file `keys.master_key_file`. A key is created only in that file, and only if there is no database yet. An older key
//! comes from the credential `oncebox-master-key-previous`, the variable `ONCEBOX_MASTER_KEY_PREVIOUS`, the program, which
//! is asked for it by its id, or the file that is named by the key's id, beside the key file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use zeroize::Zeroizing;

use crate::api::auth::TokenHasher;
use crate::app::data_directory::{DATABASE, DataDirectory, DirectoryError};
use crate::app::error::Error;
use crate::base::clock::{Clock, Timestamp};
use crate::base::faults::Faults;
use crate::base::id::Draw;
use crate::base::secret::{KeyTextError, MasterKey, SecretBytes};
use crate::config::{CREDENTIALS, Settings, environment, own_variables};
use crate::keys::file::{self, KeyFileError};
use crate::keys::subject::Pseudonyms;
use crate::keys::{ConfirmTokens, Keyring};
use crate::model::audit::{Actor, ActorType};
use crate::model::effect::EffectKind;
use crate::pipeline::claims::{self, At, Sealing};
use crate::pipeline::upkeep::master_key_rotation::{
    self as rotation, Rotated, Rotation, RotationError,
};
use crate::store::claimed_effects::{self, ClaimedEffect};
use crate::store::error::Error as StoreError;
use crate::store::tx::WriteTx;
use crate::store::writer::WriterLoop;
use crate::store::{Store, audit_events, credentials, meta, read_only, subjects, tokens};
use crate::sys::command::{How, Program};
use crate::sys::files::is_missing;
use crate::sys::user;

/// The name of the systemd credential.
const CREDENTIAL: &str = "oncebox-master-key";
/// What provides a key that comes from a program.
const KEY_COMMAND: &str = "the program in keys.command";
/// The variable that names the older key which the program is asked for.
const KEY_ID_VARIABLE: &str = "ONCEBOX_KEY_ID";
/// How long the program may run.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of its output at most; a key has 66.
const MAX_COMMAND_OUTPUT: usize = 1024;
/// Characters of its error output that are shown.
const MAX_SHOWN: usize = 200;
/// The environment variable.
const VARIABLE: &str = "ONCEBOX_MASTER_KEY";
/// The derivation purpose of the pepper in old databases, which did not store it.
const PEPPER_PURPOSE: &str = "api tokens";

/// The origin of the current master key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterKeySource {
    /// The service manager.
    Credential,
    /// The environment.
    Variable,
    /// A program of the settings.
    Command,
    /// A file.
    File(PathBuf),
}

impl MasterKeySource {
    /// The file that a rotation writes, or the name of another source.
    fn file(&self) -> Result<PathBuf, &'static str> {
        match self {
            Self::Credential => Err("the systemd credential oncebox-master-key"),
            Self::Variable => Err("the variable ONCEBOX_MASTER_KEY"),
            Self::Command => Err(KEY_COMMAND),
            Self::File(path) => Ok(path.clone()),
        }
    }
}

/// The current key and its origin.
#[derive(Debug)]
pub struct LocatedKey {
    /// The key.
    pub key: MasterKey,
    /// Its origin.
    pub source: MasterKeySource,
}

/// Finds the current key, or creates it if there is no database yet. A key file that others can read is refused.
pub fn find_or_create(settings: &Settings, draw: &dyn Draw) -> Result<LocatedKey, DirectoryError> {
    if let Some(found) = find(settings)? {
        return Ok(found);
    }
    let path = settings.master_key_file();
    if settings.directory().join(DATABASE).exists() {
        return Err(DirectoryError::KeyMissing { path });
    }
    file::write(&path, &MasterKey::generate(draw))?;
    Ok(LocatedKey { key: file::read(&path)?, source: MasterKeySource::File(path) })
}

/// Finds the current key; `None` if there is none. A key file that others can read is refused.
pub fn find(settings: &Settings) -> Result<Option<LocatedKey>, DirectoryError> {
    if let Some((key, source)) = provided("")? {
        return Ok(Some(LocatedKey { key, source }));
    }
    if let Some(key) = written(settings, None)? {
        return Ok(Some(LocatedKey { key, source: MasterKeySource::Command }));
    }
    let path = settings.master_key_file();
    if is_missing(&path) {
        return Ok(None);
    }
    Ok(Some(LocatedKey { key: file::read(&path)?, source: MasterKeySource::File(path) }))
}

/// Describes where the current key is.
pub fn location(settings: &Settings) -> String {
    match provided("") {
        Ok(Some((_, source))) => source.file().err().unwrap_or_default().to_owned(),
        _ if !settings.keys.command.is_empty() => KEY_COMMAND.to_owned(),
        _ => settings.master_key_file().display().to_string(),
    }
}

/// A key from the service manager or the environment; `suffix` selects the previous one.
fn provided(suffix: &str) -> Result<Option<(MasterKey, MasterKeySource)>, DirectoryError> {
    if let Some(directory) = environment(CREDENTIALS) {
        let path = Path::new(&directory).join(format!("{CREDENTIAL}{suffix}"));
        if path.exists() {
            return Ok(Some((file::read_given(&path)?, MasterKeySource::Credential)));
        }
    }
    let name = format!("{VARIABLE}{}", suffix.replace('-', "_").to_ascii_uppercase());
    let Some(text) = environment(&name).map(Zeroizing::new) else { return Ok(None) };
    let wrong = |source: KeyTextError| KeyFileError::Key { path: PathBuf::from(&name), source };
    Ok(Some((MasterKey::from_text(&text).map_err(wrong)?, MasterKeySource::Variable)))
}

/// The key that the program in the settings writes; with `older`, the older key of that id. `None`: there is no program, or
/// it does not have the older key.
fn written(settings: &Settings, older: Option<&str>) -> Result<Option<MasterKey>, DirectoryError> {
    let argv = &settings.keys.command;
    if argv.is_empty() {
        return Ok(None);
    }
    let program = Program {
        argv: argv.iter().map(OsString::from).collect(),
        without: own_variables(),
        environment: older
            .map(|id| (KEY_ID_VARIABLE.to_owned(), id.to_owned()))
            .into_iter()
            .collect(),
        input: Vec::new(),
        timeout: COMMAND_TIMEOUT,
        output_most: MAX_COMMAND_OUTPUT,
    };
    let failed = |why: String| DirectoryError::KeyCommand {
        program: argv.first().cloned().unwrap_or_default(),
        why,
    };
    let ended = program.run(&Clock::machine()).map_err(|error| failed(error.to_string()))?;
    let stdout = Zeroizing::new(ended.stdout);
    if ended.how != How::Exited(0) {
        if older.is_some() {
            return Ok(None);
        }
        let said = String::from_utf8_lossy(&ended.stderr);
        let said: String =
            said.trim().chars().filter(|c| !c.is_control()).take(MAX_SHOWN).collect();
        return Err(failed(format!("{}: {said}", ended.how)));
    }
    let text =
        std::str::from_utf8(&stdout).map_err(|_why| failed("it wrote no text".to_owned()))?;
    let key = MasterKey::from_text(text).map_err(|error| failed(error.to_string()))?;
    Ok(Some(key).filter(|key| older.is_none_or(|id| key.key_id() == id)))
}

/// What the rest of the program needs of the keys.
pub struct Keys {
    /// Encrypts and decrypts.
    pub ring: Arc<Keyring>,
    /// Hashes tokens.
    pub hasher: Arc<TokenHasher>,
    /// Hashes the names of subjects.
    pub names: Pseudonyms,
    /// Makes the tokens of confirm URLs.
    pub confirm_tokens: ConfirmTokens,
    /// Rotates the master key.
    pub rotation: Rotation,
}

/// Loads all keys of a database with the current key.
pub fn unlock(
    writer: &mut WriterLoop,
    settings: &Settings,
    LocatedKey { key, source }: LocatedKey,
    draw: &Arc<dyn Draw>,
    now: Timestamp,
    faults: &Faults,
) -> Result<Keys, Error> {
    let ring = load(writer, settings, key, draw, now)?;
    let named = ring.current().key_id();
    let pepper = pepper(writer, &ring, &named, draw)?;
    if writer.read(|tx| meta::sealed(tx, meta::AUDIT_KEY))?.is_none() {
        writer.direct(|tx| seal_fresh(tx, &ring, meta::AUDIT_KEY, None, &**draw))?;
    }
    if !writer.read(|tx| claimed_effects::of_kind(tx, EffectKind::MasterKeyAbandon))?.is_empty() {
        tracing::warn!(
            "secrets were lost with a master key, and the list of them was not printed: oncebox keys abandon prints it \
             while the service is stopped"
        );
    }
    let hasher = Arc::new(TokenHasher::new(&pepper));
    let rotation =
        Rotation::new(Arc::clone(&ring), Arc::clone(draw), source.file(), faults.clone());
    let confirm_tokens = ConfirmTokens::new(&pepper);
    Ok(Keys { ring, hasher, names: Pseudonyms::new(&pepper), confirm_tokens, rotation })
}

/// Loads every key that the database names. If the database names another current key, or secrets are still encrypted
/// with an older one, finishes the rotation. Returns [`Error::OtherKey`] if a key cannot be found.
pub fn load(
    writer: &mut WriterLoop,
    settings: &Settings,
    key: MasterKey,
    draw: &Arc<dyn Draw>,
    now: Timestamp,
) -> Result<Arc<Keyring>, Error> {
    let current = key.key_id();
    let ring = Arc::new(Keyring::new(key));
    let Some(named) = writer.read(meta::master_key_id)? else {
        writer.direct(|tx| {
            meta::set_master_key_id(tx, &current)?;
            meta::set_master_key_since(tx, now)
        })?;
        return Ok(ring);
    };
    if let Some(want) = add_older(writer, settings, &ring)?.into_iter().next() {
        let path = settings.directory().join(DATABASE);
        return Err(Error::OtherKey { path, have: current, want });
    }
    // An old database's pepper is derived from the old key, so it is stored before that key goes.
    pepper(writer, &ring, &named, draw)?;
    let claimed = rotation_claimed(writer, &current, now)?;
    let seq = claimed.as_ref().map(|effect| effect.seq);
    let secrets = match rotation::reseal(&ring, draw, seq, |mut job| writer.direct(|tx| job(tx))) {
        // A damaged value must not keep the service from starting: every key that the others need is on the ring.
        Err(StoreError::Unreadable { column, value }) => {
            tracing::error!(
                column,
                value,
                "a secret cannot be opened; the rotation of the master key goes on at the next start"
            );
            return Ok(ring);
        }
        secrets => secrets?,
    };
    if let Some(effect) = claimed {
        let sealing = Sealing { keyring: &ring, draw: &**draw };
        let at = At { wall: now, now };
        let Rotated { from, to, secrets } =
            writer.direct(|tx| rotation::finish(tx, sealing, &effect, at))?;
        tracing::info!(
            from,
            to,
            secrets,
            "a rotation of the master key that was cut short is finished"
        );
    } else if secrets > 0 || named != current {
        tracing::info!(from = named, to = current, secrets, "the master key was rotated");
        let done = Rotated { from: named, to: current, secrets };
        let event = rotation::audit_event(now, Actor::system(), &done);
        writer.direct(|tx| {
            rotation::name_current(tx, &ring, &**draw, now)?;
            audit_events::append(tx, &event)
        })?;
    }
    Ok(ring)
}

/// The rotation that an earlier process claimed and did not finish. If its new key is not in the key's place, nothing was
/// done yet, and the claim is ended.
fn rotation_claimed(
    writer: &mut WriterLoop,
    current: &str,
    now: Timestamp,
) -> Result<Option<ClaimedEffect>, Error> {
    let kind = EffectKind::MasterKeyRotate;
    let claimed = writer.read(|tx| claimed_effects::find(tx, kind, rotation::SUBJECT))?;
    let Some(effect) = claimed else { return Ok(None) };
    if effect.term("to") == current {
        return Ok(Some(effect));
    }
    writer.direct(|tx| claims::end_cut_short(tx, &effect, At { wall: now, now }))?;
    Ok(None)
}

/// Adds every older key that the database names to the ring. Returns the ids of those that cannot be found.
pub fn add_older(
    writer: &mut WriterLoop,
    settings: &Settings,
    ring: &Keyring,
) -> Result<Vec<String>, Error> {
    let mut needed = writer.read(credentials::count_by_key)?;
    needed.extend(writer.read(subjects::count_by_key)?);
    let mut others = vec![writer.read(meta::master_key_id)?];
    for name in meta::SEALED {
        let sealed = writer.read(|tx| meta::sealed(tx, name))?;
        others.push(sealed.as_deref().and_then(MasterKey::id_in));
    }
    let mut missing = Vec::new();
    for id in needed.into_iter().map(|(id, _secrets)| id).chain(others.into_iter().flatten()) {
        if ring.of(&id).is_some() || missing.contains(&id) {
            continue;
        }
        match previous(settings, &id)? {
            Some(key) => ring.add(key),
            None => missing.push(id),
        }
    }
    Ok(missing)
}

/// An older key, by its id.
fn previous(settings: &Settings, want: &str) -> Result<Option<MasterKey>, DirectoryError> {
    let beside = file::retired(&settings.master_key_file(), want);
    let mut found = provided("-previous")?.map(|(key, _)| key);
    if found.as_ref().is_none_or(|key| key.key_id() != want) && beside.exists() {
        found = Some(file::read(&beside)?);
    }
    if found.as_ref().is_none_or(|key| key.key_id() != want) {
        found = written(settings, Some(want))?;
    }
    Ok(found.filter(|key| key.key_id() == want))
}

/// The pepper for the hashes of tokens and names, stored encrypted in the database. An old database without one gets the
/// pepper that was derived from its key, so that its tokens stay valid.
fn pepper(
    writer: &mut WriterLoop,
    ring: &Keyring,
    named: &str,
    draw: &Arc<dyn Draw>,
) -> Result<SecretBytes, Error> {
    let name = meta::TOKEN_PEPPER;
    if let Some(sealed) = writer.read(|tx| meta::sealed(tx, name))? {
        return Ok(ring.open(&meta::context(name), &sealed).map_err(rotation::unreadable_key)?);
    }
    Ok(writer.direct(|tx| {
        let old = ring.of(named).filter(|_| tokens::any(tx).unwrap_or(true));
        seal_fresh(tx, ring, name, old, &**draw)
    })?)
}

/// Makes a key that is kept sealed in `meta`: a random one, or one that is derived from an older master key.
pub(super) fn seal_fresh(
    tx: &WriteTx<'_>,
    ring: &Keyring,
    name: &str,
    old: Option<Arc<MasterKey>>,
    draw: &dyn Draw,
) -> crate::store::error::Result<SecretBytes> {
    let mut fresh = Zeroizing::new([0_u8; 32]);
    match old {
        Some(key) => fresh.copy_from_slice(&key.derive(PEPPER_PURPOSE)),
        None => draw.fill(fresh.as_mut_slice()),
    }
    let sealed = ring.current().seal(&meta::context(name), fresh.as_slice(), draw);
    meta::set_sealed(tx, name, &sealed)?;
    Ok(SecretBytes::new(fresh.to_vec()))
}

/// The key that signs exports of audit events; `None` if the service has not started since it has one.
/// Fails if it cannot be opened with a master key that is found here.
pub fn audit_key(settings: &Settings) -> Result<Option<SecretBytes>, Error> {
    let path = settings.directory().join(DATABASE);
    let reader = read_only(&path)?;
    let Some(sealed) = meta::sealed(&reader.tx(), meta::AUDIT_KEY)? else { return Ok(None) };
    let want = MasterKey::id_in(&sealed).unwrap_or_default();
    let current = find(settings)?.map(|found| found.key);
    let have = current.as_ref().map_or_else(|| "none".to_owned(), MasterKey::key_id);
    let key = match current.filter(|key| key.key_id() == want) {
        Some(key) => key,
        None => previous(settings, &want)?.ok_or(Error::OtherKey { path, have, want })?,
    };
    let opened = key.open(&meta::context(meta::AUDIT_KEY), &sealed);
    Ok(Some(opened.map_err(rotation::unreadable_key)?))
}

/// Rotates the key while no service runs; returns `Locked` if one does.
pub fn rotate_offline(
    settings: &Settings,
    clock: &Clock,
    draw: Arc<dyn Draw>,
) -> Result<Rotated, Error> {
    let _data = DataDirectory::lock(settings.directory())?;
    let LocatedKey { key, source } = find_or_create(settings, &*draw)?;
    let database = settings.directory().join(DATABASE);
    let (_store, mut writer) = Store::open(&database, Faults::none())?;
    let ring = load(&mut writer, settings, key, &draw, clock.wall())?;
    let rotation =
        Rotation::new(Arc::clone(&ring), Arc::clone(&draw), source.file(), Faults::none());
    let next = rotation.prepare()?;
    let now = clock.wall();
    let new = rotation::claim_of(&next, &rotation::begun_by(now, local_user()), now);
    let effect = writer.direct(|tx| claimed_effects::claim(tx, &new))?;
    // Loading the keys has finished or ended every other one.
    let effect = effect.ok_or(StoreError::Changed("the rotation of the master key"))?;
    if let Err(error) = rotation.put(next) {
        writer.direct(|tx| claimed_effects::finish(tx, &effect, None, now))?;
        return Err(RotationError::from(error).into());
    }
    let seq = Some(effect.seq);
    rotation::reseal(&ring, &draw, seq, |mut job| writer.direct(|tx| job(tx)))?;
    let sealing = Sealing { keyring: &ring, draw: &*draw };
    Ok(writer.direct(|tx| rotation::finish(tx, sealing, &effect, At::of(clock)))?)
}

/// The user who runs this program, for the audit events of commands that change the database directly.
pub fn local_user() -> Actor {
    Actor { kind: ActorType::Cli, id: user::starter().to_string(), display: user::name() }
}
