//! Restores a backup: copies it beside the database, checks and prepares the copy, and only then gives it the
//! database's name. The old database is moved aside and never deleted.
//!
//! The months of the backup are prepared under such names as well, and come to their places with the database.
//!
//! The restore is decided when the prepared file gets the name `oncebox.db.restored-…`. If the process dies later,
//! [`finish`] completes the restore at the next start; if it dies earlier, the old database is unchanged.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::archive::Month;
use crate::backup::disk::{self, Partial};
use crate::backup::erasures::{self, Erasure};
use crate::backup::manifest::Manifest;
use crate::backup::months::{Beside, Change, MonthCopy, RESTORED};
use crate::backup::online::stamp;
use crate::backup::store::{self, Facts, RestoreChanges};
use crate::backup::{Error, Result, file_error, months};
use crate::base::clock::Timestamp;
use crate::base::faults::{Faults, Step};
use crate::model::audit::Actor;
use crate::model::in_doubt::Window;
use crate::store::error::Error as StoreError;
use crate::store::meta::Restored;
use crate::store::subjects;
use crate::sys::files::{PARTIAL, directory_of, sync_directory_of, with_ending};
use crate::sys::user;

/// Follows the database's name in the name of a database that was moved aside.
const ASIDE: &str = ".before-restore-";

/// What to restore, and where.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The backup.
    pub from: PathBuf,
    /// The database. The caller holds the lock of its directory.
    pub database: PathBuf,
    /// Whether an existing database may be moved aside.
    pub force: bool,
    /// Whether a file without a manifest is accepted, such as one that Litestream restored.
    pub without_manifest: bool,
    /// Whether the months of the backup are left out.
    pub without_months: bool,
    /// The id of the present master key; `None` if there is none.
    pub key_id: Option<String>,
    /// The ids of the retired keys beside it.
    pub retired: Vec<String>,
    /// The wall time.
    pub now: Timestamp,
    /// For how long incoming events are held as in doubt.
    pub window: Option<Window>,
    /// Who restores.
    pub who: Actor,
    /// Planned failures.
    pub faults: Faults,
}

/// The result of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// What the restore changed in the file.
    pub changes: RestoreChanges,
    /// When the backup was made; `None` for a file without a manifest.
    pub made_at: Option<Timestamp>,
    /// The new path of the old database, if there was one.
    pub aside: Option<PathBuf>,
    /// The months that belong to the database; `None` if the backup says nothing of them.
    pub months: Option<Vec<MonthCopy>>,
    /// The new paths of the months that were there and differ.
    pub months_aside: Vec<PathBuf>,
}

/// Restores a backup; on failure the database is unchanged.
pub fn run(plan: &Plan) -> Result<Done> {
    let Plan { from, database, now, .. } = plan;
    finish(database, &Faults::none())?;
    let there = fs::metadata(database).is_ok_and(|there| there.len() > 0);
    if there && !plan.force {
        return Err(Error::DatabaseThere(database.clone()));
    }
    let data = directory_of(database);
    let backups = directory_of(from);
    let log = with_ending(from, "-wal");
    let of = |file: &Path| user::in_directory(backups, || fs::metadata(file));
    if of(&log).is_ok_and(|log| log.len() > 0) {
        return Err(Error::NotAlone { path: from.clone(), log });
    }
    let bytes = of(from).map_err(file_error(from))?.len();
    let months = months_of(plan)?;
    let (differing, kept) = match &months {
        Some(copies) => (months::changes(data, backups, copies)?, Vec::new()),
        None => (Vec::new(), months::archived(data)?),
    };
    let months_aside = months_aside(plan, &differing)?;
    disk::room_for(data, bytes.saturating_add(months::bytes_of(&differing)))?;
    let stamp = stamp(*now);
    let ready = with_ending(database, &format!("{RESTORED}{stamp}"));
    // What is staged means nothing until the database is ready.
    let staged = months::stage(backups, &differing, &stamp);
    let prepared = staged.and_then(|()| prepare(plan, &ready, &kept));
    let (changes, made_at) = prepared.inspect_err(|_| {
        if !ready.exists() {
            drop(months::discard_staged(data));
        }
    })?;
    let aside = there.then(|| aside_of(database, &stamp));
    finish(database, &plan.faults)?;
    Ok(Done { changes, made_at, aside, months, months_aside })
}

/// The months that belong to the database; `None`: those beside it stay.
fn months_of(plan: &Plan) -> Result<Option<Vec<MonthCopy>>> {
    match Manifest::read_of(&plan.from) {
        Err(_) if plan.without_manifest => Ok(None),
        Ok(_) if plan.without_months => Ok(Some(Vec::new())),
        manifest => Ok(manifest?.months),
    }
}

/// The new paths of the months that are there and differ. Without force, they are an error.
fn months_aside(plan: &Plan, changed: &[Change]) -> Result<Vec<PathBuf>> {
    let there = || changed.iter().filter(|change| change.is_there);
    match there().next() {
        Some(first) if !plan.force => Err(Error::DatabaseThere(first.path.clone())),
        _ => Ok(there().map(|change| aside_of(&change.path, &stamp(plan.now))).collect()),
    }
}

/// Brings one month of the archive back beside its database; returns the new path of the file that was there. `None`: the
/// month is there already.
pub fn month(plan: &Plan, month: &Month) -> Result<Option<Vec<PathBuf>>> {
    let Plan { from, database, now, .. } = plan;
    finish(database, &Faults::none())?;
    fs::metadata(database).map_err(file_error(database))?;
    let data = directory_of(database);
    let backups = directory_of(from);
    let stamp = stamp(*now);
    let mut copies = Manifest::read_of(from)?.months.unwrap_or_default();
    copies.retain(|copy| copy.of == Beside::Archive && copy.month == *month);
    let copy = copies.first().ok_or_else(|| Error::NoMonth(from.clone(), month.to_string()))?;
    let mut changed = months::changes(data, backups, &copies)?;
    changed.retain(|change| change.copy.is_some());
    let aside = months_aside(plan, &changed)?;
    disk::room_for(data, months::bytes_of(&changed))?;
    months::stage(backups, &changed, &stamp)?;
    store::note_months(database, &[(month.clone(), copy.path(backups))], *now, Some(&plan.who))?;
    put_months(data, &stamp, &Faults::none())?;
    Ok((!changed.is_empty()).then_some(aside))
}

/// Copies the backup, checks and prepares the copy, and gives it the name that decides the restore. `kept` are the months
/// that stay beside it.
fn prepare(
    plan: &Plan,
    ready: &Path,
    kept: &[(Month, PathBuf)],
) -> Result<(RestoreChanges, Option<Timestamp>)> {
    let Plan { from, faults, .. } = plan;
    let erased = erased_since(plan)?;
    let mut copy = Partial::begin(ready)?;
    let manifest = copy_of(plan, &mut copy)?;
    let facts = store::check(copy.path()).map_err(|error| of_backup(from, error))?;
    let key_id = check_key(plan, &facts)?;
    if faults.hit(Step::Restore) {
        copy.abandon();
        return Err(StoreError::Stopped.into());
    }
    let made_at = manifest.map(|manifest| manifest.created_at);
    let name = from.file_name().unwrap_or_default().to_string_lossy();
    let made = made_at.map_or_else(|| "an unknown time".to_owned(), |at| at.to_string());
    let restored = Restored { at: plan.now, from: format!("{name} of {made}") };
    let changes =
        store::prepare_restored(copy.path(), &restored, plan.window, &key_id, &plan.who, &erased)?;
    store::note_months(copy.path(), kept, plan.now, None)?;
    erasures::note(&erasures::beside(&plan.database), &erased)?;
    // Only this one file is put in place, so its log must be empty.
    let log = with_ending(copy.path(), "-wal");
    if fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
        let why = "its log could not be written into the file: the disk may be full".to_owned();
        return Err(Error::Damaged { path: copy.path().to_owned(), why });
    }
    if faults.hit(Step::Restore) {
        copy.abandon();
        return Err(StoreError::Stopped.into());
    }
    copy.finish(ready)?;
    Ok((changes, made_at))
}

/// Erasures since the backup, from the lists beside the database and the backup, and from the old database.
///
/// An unreadable list is an error, because erased data would come back. An unreadable database is only logged, because
/// such a database is a reason for a restore.
fn erased_since(plan: &Plan) -> Result<Vec<Erasure>> {
    let lists = [
        erasures::beside(&plan.database),
        erasures::within(directory_of(&plan.from)),
        erasures::beside(&plan.from),
    ];
    let mut all = Vec::new();
    for list in &lists {
        all.extend(erasures::read(list)?);
    }
    if fs::metadata(&plan.database).is_ok_and(|there| there.len() > 0) {
        match subjects::erased_in(&plan.database) {
            Ok(found) => all.extend(found),
            Err(error) => tracing::warn!(%error, "the old database cannot be read"),
        }
    }
    all.sort_unstable_by_key(|(id, _)| *id);
    all.dedup_by_key(|(id, _)| *id);
    Ok(all)
}

/// Copies the backup and compares the copied bytes with the manifest in one pass.
fn copy_of(plan: &Plan, copy: &mut Partial) -> Result<Option<Manifest>> {
    let from = &plan.from;
    let manifest = match Manifest::read_of(from) {
        Ok(manifest) => Some(manifest),
        Err(_) if plan.without_manifest => None,
        Err(error) => return Err(error),
    };
    let file = copy.file();
    let sha256 = disk::sha256(from, |bytes| file.write_all(bytes))?;
    copy.sync()?;
    if manifest.as_ref().is_some_and(|manifest| manifest.sha256 != sha256) {
        let why = "its SHA-256 is not the one in its manifest".to_owned();
        return Err(Error::Damaged { path: from.clone(), why });
    }
    Ok(manifest)
}

/// Reports damage of the copy as damage of the backup.
fn of_backup(from: &Path, error: StoreError) -> Error {
    match error {
        StoreError::Damaged { what, .. } => Error::Damaged { path: from.to_owned(), why: what },
        other => other.into(),
    }
}

/// Checks that the key that sealed the secrets is present; returns its id.
fn check_key(plan: &Plan, facts: &Facts) -> Result<String> {
    let need = facts.master_key_id.clone();
    match (need, plan.key_id.clone()) {
        (Some(need), Some(have)) if need == have || plan.retired.contains(&need) => Ok(need),
        (None, Some(have)) => Ok(have),
        (need, have) => Err(Error::Key {
            need: need.unwrap_or_else(|| "any".to_owned()),
            have: have.unwrap_or_else(|| "none".to_owned()),
        }),
    }
}

fn aside_of(database: &Path, stamp: &str) -> PathBuf {
    with_ending(database, &format!("{ASIDE}{stamp}"))
}

/// Completes a decided restore: moves the old database aside and the prepared file to its place. Returns `false` if
/// there is none. After a failure it can be called again.
pub fn finish(database: &Path, faults: &Faults) -> Result<bool> {
    let data = directory_of(database);
    let Some((ready, stamp)) = decided(database)? else {
        months::discard_staged(data)?;
        return Ok(false);
    };
    put_months(data, &stamp, faults)?;
    put(database, &ready, &stamp, faults)?;
    Ok(true)
}

fn put_months(data: &Path, stamp: &str, faults: &Faults) -> Result<()> {
    let mut staged = months::staged(data)?;
    staged.retain(|(_, of, _)| of == stamp);
    staged.iter().try_for_each(|(place, _, ready)| put(place, ready, stamp, faults))
}

/// Moves what is at `path` aside and the prepared file to its place. An empty one leaves no file there. After a failure it
/// can be called again.
fn put(path: &Path, ready: &Path, stamp: &str, faults: &Faults) -> Result<()> {
    let aside = aside_of(path, stamp);
    // The log is moved too: SQLite would apply a log left there to the restored database.
    for ending in ["", "-wal"] {
        step(faults)?;
        let from = with_ending(path, ending);
        let to = with_ending(&aside, ending);
        if from.exists() && !to.exists() {
            fs::rename(&from, &to).map_err(file_error(&from))?;
        }
    }
    step(faults)?;
    disk::remove(&with_ending(path, "-shm"))?;
    sync_directory_of(path).map_err(file_error(path))?;
    step(faults)?;
    if fs::metadata(ready).is_ok_and(|ready| ready.len() == 0) {
        disk::remove(ready)?;
    } else {
        fs::rename(ready, path).map_err(file_error(ready))?;
    }
    sync_directory_of(path).map_err(file_error(path))?;
    step(faults)
}

/// A point at which a test can end the process.
fn step(faults: &Faults) -> Result<()> {
    if faults.hit(Step::Restore) { Err(StoreError::Stopped.into()) } else { Ok(()) }
}

/// The prepared file of a decided restore, and its stamp. Removes the files of restores that died before they were
/// decided: the caller holds the directory's lock, so no other process writes them.
fn decided(database: &Path) -> Result<Option<(PathBuf, String)>> {
    let directory = directory_of(database);
    let name = database.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!("{name}{RESTORED}");
    let mut found = None;
    for entry in fs::read_dir(directory).map_err(file_error(directory))? {
        let path = entry.map_err(file_error(directory))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match name.strip_prefix(&prefix) {
            Some(stamp) if stamp.contains(PARTIAL) => disk::remove(&path)?,
            Some(stamp) => found = Some((path, stamp.to_owned())),
            None => {}
        }
    }
    Ok(found)
}
