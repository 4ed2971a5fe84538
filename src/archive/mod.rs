//! The archive: finished events leave the database after a while, for the file of the month in which they finished.
//!
//! The files stand in `archive/` beside the database. A batch is copied, synced, read again and compared, and only then
//! deleted from the database, so that a crash at any point loses nothing. Until then the database notes which batch is
//! moved: after a crash its rows are taken out of the file of the month again.
//!
//! Audit events have files of their own in `audit/`, and always move: [`audit`].
//!
//! Not here: the schema, which is that of the database; guards, which stay.

pub mod audit;
pub mod expiry;
pub mod mover;
pub mod removal;
pub mod tables;
pub mod work;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs, io};

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use crate::base::clock::Timestamp;
use crate::base::words::words;
use crate::store::error::{Error, Result};
use crate::store::{Store, schema};
use crate::sys::files;

/// The directory of the files, beside the database.
pub const DIRECTORY: &str = "archive";
/// The directory of the files with audit events, beside the database.
pub const AUDIT_DIRECTORY: &str = "audit";

words! {
    /// Which table an event is in.
    pub enum ArchivedKind {
        /// `outbox`.
        Event = "event",
        /// `webhook_events`.
        WebhookEvent = "webhook_event",
    }
}

/// A month like `2026-11`: that of the events that finished in it.
///
/// ```
/// use oncebox::archive::Month;
/// let month = Month::parse("2026-11").unwrap();
/// assert_eq!(month.file_name(), "2026-11.db");
/// assert!(Month::parse("2026-13").is_none() && Month::parse("2026-1").is_none());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Month(String);

impl Month {
    /// Reads a month; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let (year, month) = text.split_once('-')?;
        let is_number = |text: &str, digits: usize| {
            text.len() == digits && text.bytes().all(|b| b.is_ascii_digit())
        };
        let is_month = is_number(year, 4) && is_number(month, 2) && ("01"..="12").contains(&month);
        is_month.then(|| Self(text.to_owned()))
    }

    /// The month of a time.
    ///
    /// ```
    /// use oncebox::{archive::Month, base::clock::Timestamp};
    /// let at = Timestamp::parse("2026-12-31T23:59:59Z").unwrap();
    /// let month = Month::at(at);
    /// assert_eq!((month.to_string(), month.end()), ("2026-12".to_owned(), Timestamp::parse("2027-01-01T00:00:00Z").unwrap()));
    /// ```
    pub fn at(at: Timestamp) -> Self {
        Self(at.to_string().chars().take(7).collect())
    }

    /// When it is over.
    pub fn end(&self) -> Timestamp {
        let (year, month) = self.0.split_once('-').unwrap_or_default();
        let year: u32 = year.parse().unwrap_or(0);
        let month: u32 = month.parse().unwrap_or(0);
        let (year, month) =
            if month >= 12 { (year.saturating_add(1), 1) } else { (year, month.saturating_add(1)) };
        Timestamp::parse(&format!("{year:04}-{month:02}-01T00:00:00Z")).unwrap_or_default()
    }

    /// The name of its file.
    pub fn file_name(&self) -> String {
        format!("{}.db", self.0)
    }

    /// Its name among the files that an SQL session has attached.
    pub fn schema(&self) -> String {
        format!("m{}", self.0.replace('-', "_"))
    }

    /// The month whose file has this name.
    pub fn of_file_name(name: &str) -> Option<Self> {
        Self::parse(name.strip_suffix(".db")?)
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Events that move together, all finished in one month.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Which table they are in.
    pub kind: ArchivedKind,
    /// The month they finished in.
    pub month: Month,
    /// Their numbers.
    pub seqs: Vec<i64>,
    /// Bytes of their bodies.
    pub bytes: u64,
}

impl Batch {
    /// Their numbers as JSON.
    pub fn json(&self) -> String {
        serde_json::to_string(&self.seqs).unwrap_or_default()
    }
}

/// How many rows a batch has, and their SHA-256.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Rows of all tables.
    pub rows: u64,
    /// Over tables and values.
    pub sha256: Vec<u8>,
}

/// The file of a month.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveFile {
    /// The month.
    pub month: Month,
    /// Where it is.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

/// The files of months in one directory. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Archive {
    directory: PathBuf,
    /// Files that are open to be read, the one used last at the end.
    open: Arc<Mutex<Vec<(Month, Store)>>>,
    /// The numbers of what a file has, while nothing is moved.
    numbers: Arc<Mutex<BTreeMap<Month, Numbers>>>,
    /// Who writes a file.
    writing: Arc<Mutex<()>>,
}

/// The lowest and the highest number of what a file has: of events, webhook events and deliveries.
pub type Numbers = [(i64, i64); 3];

/// Files that are open to be read.
const MAX_OPEN: usize = 24;

/// What is not there need not be deleted.
fn gone(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

impl Archive {
    /// The files in a directory of a data directory, which need not exist.
    pub fn of(data: &Path, directory: &str) -> Self {
        Self {
            directory: data.join(directory),
            open: Arc::default(),
            numbers: Arc::default(),
            writing: Arc::default(),
        }
    }

    /// Nobody else writes a file until this is dropped.
    pub fn write_alone(&self) -> MutexGuard<'_, ()> {
        self.writing.lock()
    }

    /// The months that have a file, the latest first.
    pub fn months(&self) -> io::Result<Vec<Month>> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut months = Vec::new();
        for entry in entries {
            months.extend(entry?.file_name().to_str().and_then(Month::of_file_name));
        }
        months.sort_unstable_by(|a, b| b.cmp(a));
        Ok(months)
    }

    /// The files, the latest month first.
    pub fn files(&self) -> io::Result<Vec<ArchiveFile>> {
        let of = |month: Month| {
            let path = self.path(&month);
            let bytes = fs::metadata(&path)?.len();
            Ok(ArchiveFile { month, path, bytes })
        };
        self.months()?.into_iter().map(of).collect()
    }

    /// Deletes the file of a month for good. A file that is gone already is no error: an earlier try may have failed after
    /// it deleted the file and before the directory was synced. `_alone` is from [`Archive::write_alone`].
    pub(crate) fn remove(&self, month: &Month, _alone: &MutexGuard<'_, ()>) -> io::Result<()> {
        let path = self.path(month);
        let log = files::with_ending(&path, "-wal");
        let index = files::with_ending(&path, "-shm");
        for file in [&log, &index, &path] {
            gone(fs::remove_file(file))?;
        }
        // Who reads it reads on; nobody begins.
        self.open.lock().retain(|(open, _)| open != month);
        self.note_change(month);
        gone(files::sync_directory_of(&path))
    }

    /// Lets those open the file of a month who may open the database: an ERP of its group makes reports over both.
    fn share(&self, month: &Month, database: &Path) -> io::Result<()> {
        let of = fs::metadata(database)?;
        let is_shared = of.mode() & 0o060 != 0;
        if is_shared {
            let of = fs::metadata(files::directory_of(database))?;
            files::set_access(&self.directory, Some(of.gid()), of.mode() & 0o7777)?;
        }
        files::set_access(&self.path(month), is_shared.then(|| of.gid()), of.mode() & 0o7777)
    }

    /// The directory of the files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file of a month.
    pub fn path(&self, month: &Month) -> PathBuf {
        self.directory.join(month.file_name())
    }

    /// Opens the file of a month to be read. `of` is the database.
    /// Fails if it cannot be opened.
    pub fn read(&self, month: &Month, of: &Store) -> Result<Store> {
        let mut open = self.open.lock();
        let found = open.iter().position(|(known, _)| known == month).map(|n| open.remove(n).1);
        let store = if let Some(store) = found {
            store
        } else {
            let path = self.path(month);
            // One that could not be upgraded is not read.
            let have = schema::schema_version(&path)?.unwrap_or(0);
            if have != schema::VERSION {
                return Err(Error::TooOld { path, have, want: schema::VERSION });
            }
            of.over(&path)?
        };
        if open.len() >= MAX_OPEN {
            open.remove(0);
        }
        open.push((month.clone(), store.clone()));
        Ok(store)
    }

    /// The numbers of what the file of a month has.
    /// Fails if it cannot be read.
    pub fn numbers(&self, month: &Month, of: &Store) -> Result<Numbers> {
        // Held while they are read, so that what changes meanwhile is read again.
        let mut known = self.numbers.lock();
        if let Some(found) = known.get(month) {
            return Ok(*found);
        }
        let found = self.read(month, of)?.read(tables::month_file::numbers)?;
        known.insert(month.clone(), found);
        Ok(found)
    }

    /// Notes that the file of a month has changed.
    fn note_change(&self, month: &Month) {
        self.numbers.lock().remove(month);
    }
}
