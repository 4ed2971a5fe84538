//! The months beside a database, such as those of the archive: how a backup has them, and how they come back.
//!
//! A month that has not changed since an earlier backup in the same directory is not read again: the manifests name the
//! copy that is there. Database and months are copied as of one moment, so that each event is in one of them, or noted as
//! moving.
//!
//! Not here: which rows move (`archive`), and when copies are removed ([`super::retention`]).

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use crate::archive::Month;
use crate::backup::disk::{self, Partial};
use crate::backup::store::{Progress, Snapshot};
use crate::backup::{Error, Result, file_error};
use crate::base::words::words;
use crate::store::error::Error as StoreError;
use crate::sys::files::{directory_of, sync_directory_of, with_ending};

/// Follows the name of a file in the name of what replaces it and is not in place yet.
pub(super) const RESTORED: &str = ".restored-";
/// How often it is tried to read database and months as of one moment.
const MAX_TRIES: u32 = 1000;
/// A file that was written within so many nanoseconds may be written again without another time.
const SETTLED_NS: i64 = 2_000_000_000;
/// Bytes of SQLite's header.
const HEADER_BYTES: usize = 100;
/// Digits of the hash in the name of a copy.
const NAME_DIGITS: usize = 16;

words! {
    /// A directory beside the database that has a file for each month.
    pub enum Beside {
        /// Finished events.
        Archive = "archive",
        /// Audit events.
        Audit = "audit",
    }
}

/// A month of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonthCopy {
    /// Its directory.
    pub of: Beside,
    /// The month.
    pub month: Month,
    /// Bytes of the copy.
    pub bytes: u64,
    /// SHA-256 of the copy, in hex.
    pub sha256: String,
    /// The month's own file when it was copied; `None`: it had just been written.
    state: Option<FileStamp>,
}

/// Bytes of a file and its log, and when they were last written, in nanoseconds since 1970.
type FileStamp = (u64, i64);

impl MonthCopy {
    /// Where the copy is in a directory of backups.
    pub fn path(&self, backups: &Path) -> PathBuf {
        let hash = self.sha256.get(..NAME_DIGITS).unwrap_or_default();
        backups.join(self.of.as_str()).join(format!("{}.{hash}.db", self.month))
    }

    /// Where the month's own file is in a data directory.
    pub(super) fn place(&self, data: &Path) -> PathBuf {
        data.join(self.of.as_str()).join(self.month.file_name())
    }

    /// Whether its names lead nowhere else.
    pub(super) fn is_sound(&self) -> bool {
        let is_hex = self.sha256.len() == 64 && self.sha256.bytes().all(|b| b.is_ascii_hexdigit());
        is_hex && Month::parse(&self.month.to_string()).is_some()
    }

    /// Whether a month's own file was not written since.
    fn is_of(&self, file: &OnDisk) -> bool {
        (self.of, &self.month, self.state) == (file.of, &file.month, Some(file.state))
    }
}

/// How a month's own file is to its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// It has the same content.
    Same,
    /// It was written since.
    Written,
    /// It has another content, although it was not written since.
    Differs,
}

/// The file of a month.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OnDisk {
    of: Beside,
    month: Month,
    path: PathBuf,
    state: FileStamp,
}

/// The months beside a database.
fn on_disk(data: &Path) -> Result<Vec<OnDisk>> {
    let mut all = Vec::new();
    for (of, name) in names(data)? {
        let Some(month) = Month::of_file_name(&name) else { continue };
        let path = data.join(of.as_str()).join(name);
        // It may have been deleted meanwhile.
        let Some((bytes, at)) = state(&path)? else { continue };
        let log = state(&with_ending(&path, "-wal"))?.filter(|(bytes, _)| *bytes > 0);
        let state = log.map_or((bytes, at), |log| (bytes.saturating_add(log.0), at.max(log.1)));
        all.push(OnDisk { of, month, path, state });
    }
    Ok(all)
}

/// The names in the directories of months below a directory.
fn names(parent: &Path) -> Result<Vec<(Beside, String)>> {
    let mut all = Vec::new();
    for of in Beside::ALL {
        let directory = parent.join(of.as_str());
        if directory.exists() {
            all.extend(disk::names(&directory)?.into_iter().map(|name| (of, name)));
        }
    }
    Ok(all)
}

/// Bytes of a file, and when it was last written; `None` if it is missing.
pub(super) fn state(path: &Path) -> Result<Option<FileStamp>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file_error(path)(error)),
        Ok(file) => {
            let seconds = file.mtime().saturating_mul(1_000_000_000);
            Ok(Some((file.len(), seconds.saturating_add(file.mtime_nsec()))))
        }
    }
}

/// A database and the months beside it, as of one moment.
pub(super) struct Cut {
    /// The database.
    pub(super) database: Snapshot,
    /// Those without a snapshot have a copy.
    months: Vec<(OnDisk, Option<Snapshot>)>,
}

impl Cut {
    /// `known` are copies that are there; `None`: months are left out.
    /// Fails with `Busy` if the months are written all the time.
    pub(super) fn take(database: &Path, known: Option<&[MonthCopy]>) -> Result<Self> {
        for _ in 0..MAX_TRIES {
            if let Some(cut) = Self::attempt(database, known)? {
                return Ok(cut);
            }
        }
        Err(StoreError::Busy.into())
    }

    /// `None`: a month was written between the first look at it and the moment of the database. What came back from the
    /// archive then would be in neither.
    fn attempt(path: &Path, known: Option<&[MonthCopy]>) -> Result<Option<Self>> {
        let look = || known.map_or(Ok(Vec::new()), |_| on_disk(directory_of(path)));
        let mut months = Vec::new();
        for file in look()? {
            let is_known = known.into_iter().flatten().any(|copy| copy.is_of(&file));
            let snapshot = (!is_known).then(|| Snapshot::open(&file.path)).transpose()?;
            months.push((file, snapshot));
        }
        let database = Snapshot::open(path)?;
        database.begin()?;
        let mut is_one_moment = look()?.iter().eq(months.iter().map(|(file, _)| file));
        for snapshot in months.iter().filter_map(|(_, snapshot)| snapshot.as_ref()) {
            is_one_moment &= snapshot.begin()?;
        }
        Ok(is_one_moment.then_some(Self { database, months }))
    }

    /// Bytes of the months that will be copied.
    pub(super) fn bytes(&self) -> u64 {
        let new = self.months.iter().filter(|(_, snapshot)| snapshot.is_some());
        new.map(|(file, _)| file.state.0).sum()
    }

    /// Copies the months beside the backup `to`, which was begun at `begun_ns` by the clock of the disk.
    pub(super) fn copy_months(
        self,
        to: &Path,
        begun_ns: i64,
        known: &[MonthCopy],
        go_on: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Vec<MonthCopy>> {
        // While it is open, its log grows.
        drop(self.database);
        let mut copies = Vec::new();
        for (file, snapshot) in self.months {
            match snapshot {
                Some(snapshot) => copies.push(copy_month(file, &snapshot, to, begun_ns, go_on)?),
                None => copies.extend(known.iter().find(|copy| copy.is_of(&file)).cloned()),
            }
        }
        Ok(copies)
    }
}

fn copy_month(
    OnDisk { of, month, state, .. }: OnDisk,
    snapshot: &Snapshot,
    to: &Path,
    begun_ns: i64,
    go_on: &mut dyn FnMut(Progress) -> bool,
) -> Result<MonthCopy> {
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let directory = make(directory_of(to), of)?;
    let mut partial = Partial::begin(&directory.join(format!("{name}.{month}")))?;
    // Never as a plain file: on closing that, Linux would drop the locks that SQLite has on it in this process.
    snapshot.copy(partial.path(), go_on)?;
    let sha256 = disk::sha256(partial.path(), |_| Ok(()))?;
    let bytes = partial.file().metadata().map_err(file_error(to))?.len();
    let state = Some(state).filter(|(_, at)| at.saturating_add(SETTLED_NS) < begun_ns);
    let copy = MonthCopy { of, month, bytes, sha256, state };
    let path = copy.path(directory_of(to));
    if path.exists() && disk::sha256(&path, |_| Ok(()))? != copy.sha256 {
        // It was damaged.
        disk::remove(&path)?;
    }
    match partial.finish(&path) {
        // The month is what it was, or what it is again.
        Err(Error::Exists(_)) => {}
        done => done?,
    }
    Ok(copy)
}

/// Makes a directory of months.
fn make(parent: &Path, of: Beside) -> Result<PathBuf> {
    let directory = parent.join(of.as_str());
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
    made.and_then(|()| sync_directory_of(&directory)).map_err(file_error(&directory))?;
    Ok(directory)
}

/// Reads the copies of a backup. Those in `read` were read before, for another one.
pub(super) fn verify(
    backups: &Path,
    copies: &[MonthCopy],
    read: &mut BTreeSet<PathBuf>,
) -> Result<()> {
    for copy in copies {
        let path = copy.path(backups);
        if read.insert(path.clone()) {
            check(&path, &disk::sha256(&path, |_| Ok(()))?, copy)?;
        }
    }
    Ok(())
}

/// How a month's own file is to its copy. The service must not run in this process.
pub fn compare(data: &Path, backups: &Path, copy: &MonthCopy) -> Result<Compared> {
    let place = copy.place(data);
    let from = copy.path(backups);
    let has_log = state(&with_ending(&place, "-wal"))?.is_some_and(|(bytes, _)| bytes > 0);
    if !has_log && content(&place)? == content(&from)? {
        return Ok(Compared::Same);
    }
    let is_written = !on_disk(data)?.iter().any(|file| copy.is_of(file));
    Ok(if has_log || is_written { Compared::Written } else { Compared::Differs })
}

/// The SHA-256 of a file without SQLite's header, whose counters differ in a copy.
fn content(path: &Path) -> Result<Vec<u8>> {
    let mut context = Context::new(&SHA256);
    let mut skipped = HEADER_BYTES;
    disk::sha256(path, |bytes| {
        context.update(bytes.get(skipped..).unwrap_or_default());
        skipped = skipped.saturating_sub(bytes.len());
        Ok(())
    })?;
    Ok(context.finish().as_ref().to_vec())
}

/// Removes copies in a directory of backups that are not in `named`, and what killed processes left.
pub(super) fn clear(backups: &Path, named: &BTreeSet<PathBuf>) -> Result<()> {
    for (of, name) in names(backups)? {
        let directory = backups.join(of.as_str());
        let parts = name.split_once('.');
        let is_copy = parts.is_some_and(|(month, hash)| {
            Month::parse(month).is_some() && hash.len() == NAME_DIGITS + ".db".len()
        });
        let path = directory.join(&name);
        if is_copy && !named.contains(&path) {
            disk::remove(&path)?;
        }
        disk::clear_partial(&directory, &name)?;
    }
    Ok(())
}

/// A month beside a database that is not that of a backup.
pub(super) struct Change {
    /// Its place.
    pub(super) path: PathBuf,
    /// What is put there; `None`: nothing.
    pub(super) copy: Option<MonthCopy>,
    /// Whether a file is there.
    pub(super) is_there: bool,
}

/// How the months beside a database differ from those of a backup.
pub(super) fn changes(data: &Path, backups: &Path, copies: &[MonthCopy]) -> Result<Vec<Change>> {
    let mut there: BTreeSet<PathBuf> = on_disk(data)?.into_iter().map(|file| file.path).collect();
    let mut changes = Vec::new();
    for copy in copies {
        let path = copy.place(data);
        let is_there = there.remove(&path);
        if !is_there || compare(data, backups, copy)? != Compared::Same {
            changes.push(Change { path, copy: Some(copy.clone()), is_there });
        }
    }
    changes.extend(there.into_iter().map(|path| Change { path, copy: None, is_there: true }));
    Ok(changes)
}

/// Bytes that changes copy.
pub(super) fn bytes_of(changes: &[Change]) -> u64 {
    changes.iter().filter_map(|change| Some(change.copy.as_ref()?.bytes)).sum()
}

/// Copies months of a backup beside the database, under names that wait for the end of the restore.
pub(super) fn stage(backups: &Path, changes: &[Change], stamp: &str) -> Result<()> {
    for Change { path, copy, .. } in changes {
        let staged = with_ending(path, &format!("{RESTORED}{stamp}"));
        let Some(copy) = copy else {
            // Empty: what is there is set aside, and nothing takes its place.
            Partial::begin(&staged)?.finish(&staged)?;
            continue;
        };
        make(directory_of(directory_of(path)), copy.of)?;
        let from = copy.path(backups);
        let mut partial = Partial::begin(&staged)?;
        let file = partial.file();
        check(&from, &disk::sha256(&from, |bytes| file.write_all(bytes))?, copy)?;
        partial.finish(&staged)?;
    }
    Ok(())
}

fn check(path: &Path, sha256: &str, copy: &MonthCopy) -> Result<()> {
    if sha256 == copy.sha256 {
        return Ok(());
    }
    let why = "its SHA-256 is not the one in the manifest".to_owned();
    Err(Error::Damaged { path: path.to_owned(), why })
}

/// Months that wait for the end of a restore: the place of each, the stamp of the restore, and where it is.
pub(super) fn staged(data: &Path) -> Result<Vec<(PathBuf, String, PathBuf)>> {
    let mut all = Vec::new();
    for (of, name) in names(data)? {
        let directory = data.join(of.as_str());
        let parts = name.split_once(RESTORED);
        if let Some((file, stamp)) = parts.filter(|(file, _)| Month::of_file_name(file).is_some()) {
            all.push((directory.join(file), stamp.to_owned(), directory.join(&name)));
        }
    }
    Ok(all)
}

/// Removes months of a restore that was not decided.
pub(super) fn discard_staged(data: &Path) -> Result<()> {
    staged(data)?.iter().try_for_each(|(_, _, path)| disk::remove(path))
}

/// The months of the archive beside a database.
pub(super) fn archived(data: &Path) -> Result<Vec<(Month, PathBuf)>> {
    let all = on_disk(data)?.into_iter().filter(|file| file.of == Beside::Archive);
    Ok(all.map(|file| (file.month, file.path)).collect())
}
