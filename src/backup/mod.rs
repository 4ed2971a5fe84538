//! Making, listing and restoring backups, and upgrading the schema with a backup first.
//!
//! A backup only reads, so it can run beside the service. The caller of a restore or an upgrade holds the lock of
//! the data directory. All SQL is in [`store`].

pub mod disk;
pub mod erasures;
pub mod manifest;
pub mod months;
pub mod online;
pub mod restore;
pub mod retention;
pub mod schedule;
pub mod store;
pub mod upgrade;

use std::path::{Path, PathBuf};

use crate::store::error::Error as StoreError;

/// Why a backup, a restore or an upgrade was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database or a copy of it cannot be read or written.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// A file or directory cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The list of erasures cannot be read.
    #[error(
        "the list of erasures {path} exists but cannot be read: {source}. Without it, erased data could come back"
    )]
    Erasures {
        /// The list.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The target exists.
    #[error(
        "{0} is there already and is not overwritten: name a directory, in which each backup gets a name with its \
         time, or a new file"
    )]
    Exists(PathBuf),
    /// Another process is writing the same file.
    #[error("{0} is being written by another process")]
    Busy(PathBuf),
    /// There is too little room.
    #[error(
        "{directory} has {free} free, {needed} are needed: free some room there, or name another directory"
    )]
    NoRoom {
        /// The directory.
        directory: PathBuf,
        /// Free space.
        free: Bytes,
        /// Needed space.
        needed: Bytes,
    },
    /// The manifest of a backup is missing or cannot be read.
    #[error("{path}: {why}")]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// Why it cannot be used.
        why: String,
    },
    /// The database to restore to exists.
    #[error(
        "{0} is there: --force moves it aside (it is not deleted) and puts the backup in its place"
    )]
    DatabaseThere(PathBuf),
    /// The backup has no such month.
    #[error("{0} has no archive of {1}")]
    NoMonth(PathBuf, String),
    /// The file to restore from has a write-ahead log.
    #[error(
        "{log} lies beside {path}: this is a copied database, not a backup; its latest changes are in the \
         log and would be lost"
    )]
    NotAlone {
        /// The file.
        path: PathBuf,
        /// The log.
        log: PathBuf,
    },
    /// The key that sealed the secrets of a backup is missing.
    #[error(
        "the secrets in this backup were sealed with the master key {need}, and the key here is {have}: \
         put the key {need} beside the key file as FILE.{need}, and keep both, because neither can be replaced"
    )]
    Key {
        /// The id of the needed key.
        need: String,
        /// The id of the present key.
        have: String,
    },
    /// A backup does not match its manifest, or is not a readable database.
    #[error("{path} is damaged: {why}; use another backup")]
    Damaged {
        /// The backup.
        path: PathBuf,
        /// What is damaged.
        why: String,
    },
}

/// A result of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// A number of bytes that is shown in a readable unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl std::fmt::Display for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
            let tenths = (u128::from(self.0) * 10) >> shift;
            if tenths >= 10 {
                return write!(f, "{}.{} {unit}", tenths / 10, tenths % 10);
            }
        }
        write!(f, "{} bytes", self.0)
    }
}

fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_the_unit_that_fits() {
        assert_eq!(Bytes(0).to_string(), "0 bytes");
        assert_eq!(Bytes(1536).to_string(), "1.5 KiB");
        assert_eq!(Bytes(200 << 20).to_string(), "200.0 MiB");
    }
}
