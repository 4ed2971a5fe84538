//! Errors of the store, grouped by what the caller must do.
//!
//! `Busy`, `Full` and `Stopped` are temporary: answer 503 or 507, and the sender tries again. `Constraint`
//! means that the schema refuses what the caller sent. Most others mean that the file or the
//! machine is broken: log the error and answer 500.

use crate::base::build;
use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::{ErrorCode, ffi};

/// An error of the store.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process has held the write lock for more than two seconds, or our queue is full.
    #[error("the database is busy; try again shortly")]
    Busy,
    /// A list exceeded its time limit.
    #[error("the list took too long")]
    TooLong,
    /// The disk, a quota or a file size limit refused the write. Nothing was stored.
    #[error("there is no room to store it: free some disk space, then send it again")]
    Full,
    /// The system refused a write. The writer turns this into `Full` (no room) or `Fatal` (the disk is broken).
    #[error("a write to the database failed: {0}")]
    WriteFailed(Arc<rusqlite::Error>),
    /// The service is stopping.
    #[error("the service is stopping")]
    Stopped,
    /// A CHECK, UNIQUE or foreign key of `schema.sql` is violated.
    #[error("the database refuses it: {0}")]
    Constraint(String),
    /// The tenant would have more than it may.
    #[error(
        "the tenant would have {have} {what}, and may have {most}: delete what it does not need, or raise \
         tenants.{setting}"
    )]
    OverLimit {
        /// Of what.
        what: &'static str,
        /// What it would have.
        have: u64,
        /// What it may have.
        most: u32,
        /// The setting in `[tenants]`.
        setting: &'static str,
    },
    /// A row was not in the state the statement expects, so nothing was changed.
    #[error("{0} is not in the required state")]
    Changed(&'static str),
    /// A stored value that this version cannot parse.
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
        build::VERSION
    )]
    TooNew {
        /// The file.
        path: PathBuf,
        /// The program and its version.
        made_by: String,
        /// The file's schema version.
        have: i64,
        /// The newest version this program knows.
        know: i64,
    },
    /// The file was written by an older version and has not been brought up to date.
    #[error(
        "{path} has schema {have}, oncebox {} needs schema {want}: `oncebox migrate up` or \
         `oncebox serve` brings it up to date, after a backup",
        build::VERSION
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
        build::VERSION
    )]
    NoStep {
        /// The file.
        path: PathBuf,
        /// The file's schema version.
        have: i64,
    },
    /// The file has a table, a view or an index of somebody else under a name that the schema needs.
    #[error(
        "{path} has something of another program named {name}, a name that oncebox needs. Nothing was changed. Rename your \
         table (ALTER TABLE {name} RENAME TO my_{name}), or the view or index, and start again"
    )]
    NameTaken {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// SQLite did not accept a pragma that durability depends on.
    #[error("{path}: PRAGMA {pragma} is {have}, but must be {want}")]
    Pragma {
        /// The file.
        path: PathBuf,
        /// The name of the pragma.
        pragma: &'static str,
        /// The actual value.
        have: String,
        /// The required value.
        want: &'static str,
    },
    /// A sync or a write failed although there was room. The content of the disk is unknown, so the process must end.
    #[error("the disk failed while writing: {0}")]
    Fatal(Arc<rusqlite::Error>),
    /// A stage's thread has panicked; the process must end, because nothing else does its work.
    #[error("the thread {0} failed; the log says where")]
    Panicked(String),
    /// Any other error of SQLite.
    #[error("database: {0}")]
    Sqlite(#[source] Arc<rusqlite::Error>),
    /// A step of the schema upgrade failed; the file is unchanged.
    #[error("the step to schema {step} failed: {source}")]
    Schema {
        /// The schema version that the step leads to.
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
    /// An I/O error of the file, its directory or a file next to it.
    #[error("{path}: {source}")]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: Arc<std::io::Error>,
    },
}

/// A stored text that this version cannot parse. It becomes [`Error::Unreadable`].
#[derive(Debug, thiserror::Error)]
#[error("{0:?}, which this version does not understand")]
pub(crate) struct Unknown(pub(crate) String);

/// A result, usually with the store's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        if let rusqlite::Error::FromSqlConversionFailure(_, _, cause) = &error
            && let Some(Unknown(value)) = cause.downcast_ref()
        {
            return Self::Unreadable { column: "a column", value: value.clone() };
        }
        let rusqlite::Error::SqliteFailure(code, message) = &error else {
            return Self::Sqlite(Arc::new(error));
        };
        match (code.code, code.extended_code) {
            (ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked, _) => Self::Busy,
            (ErrorCode::OperationInterrupted, _) => Self::TooLong,
            (ErrorCode::DiskFull, _) => Self::Full,
            // SQLite reports this for a quota, for a file size limit and for a broken disk.
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
    /// Converts an error at COMMIT. An I/O error there is fatal, because the content of the disk is unknown.
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

    /// The error of a broken disk, for fault injection.
    pub(crate) fn planned_write_failure() -> Self {
        rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_WRITE), None).into()
    }

    /// Turns a failed write into `Full`, or into `Fatal` if there is room: then the disk is broken.
    pub(crate) fn full_or_fatal(self, is_out_of_room: impl FnOnce() -> bool) -> Self {
        match self {
            Self::WriteFailed(_) if is_out_of_room() => Self::Full,
            Self::WriteFailed(cause) => Self::Fatal(cause),
            other => other,
        }
    }

    /// Whether the file is damaged or not a database.
    pub fn is_damage(&self) -> bool {
        let code = match self {
            Self::Sqlite(source) => source.sqlite_error_code(),
            Self::Damaged { .. } => return true,
            _ => None,
        };
        matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
    }

    /// Whether the job fails again however often it is run, because the rows do not allow it.
    pub fn is_lasting(&self) -> bool {
        matches!(self, Self::Changed(_) | Self::Constraint(_) | Self::Unreadable { .. })
    }

    /// Whether the cause is the file or the machine, so that work on any other row fails too.
    pub fn concerns_all(&self) -> bool {
        matches!(
            self,
            Self::Busy | Self::Full | Self::Stopped | Self::Fatal(_) | Self::WriteFailed(_)
        )
    }

    /// Whether the error is temporary, so that the same request may succeed later.
    pub fn passes(&self) -> bool {
        matches!(self, Self::Busy | Self::Full | Self::Stopped)
    }

    /// Whether the error refuses what was asked for, and says nothing of the file or the machine: what the request has
    /// written is undone, and everything else of its transaction stays.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::OverLimit { .. } | Self::Constraint(_) | Self::Changed(_))
    }
}
