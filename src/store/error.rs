//! What can go wrong with the file, in terms that decide what the caller does.
//!
//! `Busy`, `Full` and `Stopped` pass: answer 503 or 507 and let the sender come again. `Constraint`
//! means that the caller sent something the schema refuses. Everything else means that the file or the
//! machine is broken: log it where it is handled, answer 500.

use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::ErrorCode;
use rusqlite::ffi;

/// Why the store could not do something.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process has held the write lock for more than two seconds, or our queue is full.
    #[error("the database is busy; try again shortly")]
    Busy,
    /// A list looked for longer than a list may.
    #[error("the list took too long")]
    TooLong,
    /// The disk, a quota or a file size limit refused the write. Nothing of it was stored.
    #[error("there is no room to store it: free some disk space, then send it again")]
    Full,
    /// The system refused a write. The writer finds out whether there was no room (`Full`) or the disk is
    /// broken (`Fatal`).
    #[error("a write to the database failed: {0}")]
    WriteFailed(Arc<rusqlite::Error>),
    /// The service is stopping.
    #[error("the service is stopping")]
    Stopped,
    /// A CHECK, UNIQUE or foreign key of `schema.sql`.
    #[error("the database refuses it: {0}")]
    Constraint(String),
    /// A row was not in the state the statement expects, so nothing was changed.
    #[error("{0} is not in the state this needs")]
    Changed(&'static str),
    /// A stored value that our own code cannot have written.
    #[error("{column} holds {value:?}, which this version does not understand")]
    Unreadable {
        /// Table and column.
        column: &'static str,
        /// The stored value.
        value: String,
    },
    /// The file was written by a newer version.
    #[error(
        "{path} was made by {made_by} (schema {have}); this is oncebox {} (schema {know}): \
         install the newer oncebox, or restore the backup made before the upgrade",
        env!("CARGO_PKG_VERSION")
    )]
    TooNew {
        /// The file.
        path: PathBuf,
        /// The program and its version.
        made_by: String,
        /// The file's schema version.
        have: i64,
        /// The newest we know.
        know: i64,
    },
    /// The file was written by an older version and has not been brought up to date.
    #[error(
        "{path} has schema {have}, oncebox {} needs schema {want}: `oncebox migrate up` or \
         `oncebox serve` brings it up to date, after a backup",
        env!("CARGO_PKG_VERSION")
    )]
    TooOld {
        /// The file.
        path: PathBuf,
        /// The file's schema version.
        have: i64,
        /// The one that is needed.
        want: i64,
    },
    /// No step leads from the file's schema version to this program's.
    #[error(
        "{path} has schema {have}, which no released oncebox made: oncebox {} cannot upgrade it",
        env!("CARGO_PKG_VERSION")
    )]
    NoStep {
        /// The file.
        path: PathBuf,
        /// The file's schema version.
        have: i64,
    },
    /// A pragma that durability rests on did not take.
    #[error("{path}: PRAGMA {pragma} is {have}, but must be {want}")]
    Pragma {
        /// The file.
        path: PathBuf,
        /// Which.
        pragma: &'static str,
        /// What it is.
        have: String,
        /// What it must be.
        want: &'static str,
    },
    /// A sync or a write that failed although there was room: what is on the disk is unknown, so the process must end.
    #[error("the disk failed while writing: {0}")]
    Fatal(Arc<rusqlite::Error>),
    /// A stage's thread has panicked; the process must end, because nobody would do its work.
    #[error("the thread {0} failed; the log says where")]
    Panicked(String),
    /// Anything else SQLite says.
    #[error("database: {0}")]
    Sqlite(#[source] Arc<rusqlite::Error>),
    /// The schema could not be brought up to date; the file is what it was.
    #[error("the step to schema {step} failed: {source}")]
    Schema {
        /// Which step.
        step: i64,
        /// What SQLite said.
        source: Arc<rusqlite::Error>,
    },
    /// The file is damaged.
    #[error("{path} is damaged: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite found.
        what: String,
    },
    /// A directory or file beside the database.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: Arc<std::io::Error>,
    },
}

/// The result of everything in `store`.
pub type Result<T> = std::result::Result<T, Error>;

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        let rusqlite::Error::SqliteFailure(code, message) = &error else {
            return Self::Sqlite(Arc::new(error));
        };
        match (code.code, code.extended_code) {
            (ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked, _) => Self::Busy,
            (ErrorCode::OperationInterrupted, _) => Self::TooLong,
            (ErrorCode::DiskFull, _) => Self::Full,
            // A quota and a file size limit come as this, and so does a disk that is broken.
            (_, ffi::SQLITE_IOERR_WRITE | ffi::SQLITE_IOERR_SHMSIZE) => {
                Self::WriteFailed(Arc::new(error))
            }
            (ErrorCode::ConstraintViolation, _) => {
                Self::Constraint(message.clone().unwrap_or_else(|| code.to_string()))
            }
            _ => Self::Sqlite(Arc::new(error)),
        }
    }
}

impl Error {
    /// An error at COMMIT: an I/O error there leaves the disk in an unknown state.
    pub(crate) fn at_commit(error: rusqlite::Error) -> Self {
        match Self::from(error) {
            Self::Sqlite(cause)
                if cause.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) =>
            {
                Self::Fatal(cause)
            }
            other => other,
        }
    }

    /// What a broken disk looks like, for a planned failure.
    pub(crate) fn planned_write_failure() -> Self {
        rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_WRITE), None).into()
    }

    /// Tells a full disk from a broken one: a write that failed although there is room means a broken disk.
    pub(crate) fn told_apart(self, is_out_of_room: impl FnOnce() -> bool) -> Self {
        match self {
            Self::WriteFailed(_) if is_out_of_room() => Self::Full,
            Self::WriteFailed(cause) => Self::Fatal(cause),
            other => other,
        }
    }

    /// Whether the file is no whole database.
    pub fn is_damage(&self) -> bool {
        let code = match self {
            Self::Sqlite(source) => source.sqlite_error_code(),
            Self::Damaged { .. } => return true,
            _ => None,
        };
        matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
    }

    /// Whether the same job will fail again however often it is run: the rows do not allow it.
    pub fn is_lasting(&self) -> bool {
        matches!(self, Self::Changed(_) | Self::Constraint(_) | Self::Unreadable { .. })
    }

    /// Whether it is the file's or the machine's: work on any other row would meet it too.
    pub fn concerns_all(&self) -> bool {
        matches!(
            self,
            Self::Busy | Self::Full | Self::Stopped | Self::Fatal(_) | Self::WriteFailed(_)
        )
    }

    /// Whether the same request may succeed later without anybody changing it.
    pub fn passes(&self) -> bool {
        matches!(self, Self::Busy | Self::Full | Self::Stopped)
    }
}
