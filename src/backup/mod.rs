//! Backups: making, listing and restoring them, and the one before an upgrade.
//!
//! Works on files, beside or instead of a running service: a backup only reads, the caller of a
//! restore or an upgrade holds the lock of the data directory. All SQL is in [`store`].

pub mod disk;
pub mod erasures;
pub mod manifest;
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
    /// The database or a copy of it.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// A file or directory.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The list of what was erased.
    #[error(
        "the list of erasures {path} is there and cannot be read: {source}. Without it, what was erased could \
         come back"
    )]
    Erasures {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Something is there already.
    #[error(
        "{0} is there already and is not overwritten: name a directory, in which each backup gets a name with its \
         time, or a file that is not there"
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
        /// Where.
        directory: PathBuf,
        /// How much there is.
        free: Bytes,
        /// How much is needed.
        needed: Bytes,
    },
    /// The manifest that belongs to a backup is not there or cannot be read.
    #[error("{path}: {why}")]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// There is a database where a backup is to be put back.
    #[error(
        "{0} is there: --force moves it aside (it is not deleted) and puts the backup in its place"
    )]
    DatabaseThere(PathBuf),
    /// A write-ahead log lies beside what should be one whole file.
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
    /// The key that sealed the secrets of a backup is not there.
    #[error(
        "the secrets in this backup were sealed with the master key {need}, and the key here is {have}: \
         put that key beside it as FILE.{need} and keep the one that is there; each is the only one of its kind"
    )]
    Key {
        /// The id of the key that is needed.
        need: String,
        /// The id of the key that is there.
        have: String,
    },
    /// A backup is not what its manifest says.
    #[error("{path} is damaged: {why}; use another backup")]
    Damaged {
        /// The backup.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// The result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

/// A number of bytes, as a person reads it.
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
