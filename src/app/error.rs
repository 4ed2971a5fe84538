//! Why an Oncebox did not start, or ended by itself.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::app::data_directory::{DirectoryError, SharingError};
use crate::backup::Error as BackupError;
use crate::http::client::SetupError;
use crate::pipeline::rotation::RotationError;
use crate::store::error::Error as StoreError;

/// Why an Oncebox did not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The data directory.
    #[error("{0}")]
    Directory(#[from] DirectoryError),
    /// The group the database is shared with.
    #[error("{0}")]
    Sharing(#[from] SharingError),
    /// The backup before an upgrade.
    #[error("{0}")]
    Backup(#[from] BackupError),
    /// The master key.
    #[error("{0}")]
    Rotation(#[from] RotationError),
    /// The client's roots.
    #[error("delivery.ca_file: {0}")]
    Client(#[from] SetupError),
    /// There is a database, and the key that sealed its secrets is not there.
    #[error(
        "{path} was made with the master key {want}, but the one in force is {have}: put the right key \
         there, or give it as the previous one, and everything is sealed anew under {have}"
    )]
    OtherKey {
        /// The database.
        path: PathBuf,
        /// The key that is there.
        have: String,
        /// The key that is needed.
        want: String,
    },
    /// There is nothing to work on.
    #[error("{path} does not exist: no oncebox has run there; name its data directory with --data")]
    NoDatabase {
        /// Where the database should be.
        path: PathBuf,
    },
    /// The tenant is not there.
    #[error("there is no tenant named {0:?}")]
    NoTenant(String),
    /// The API can be reached from other machines, and there is no admin token.
    #[error(
        "the API would listen on {address}, which others can reach, but there is no valid admin token: \
         make one (oncebox token create --role admin), or set listen.api to a loopback address"
    )]
    Unguarded {
        /// Where the API would listen.
        address: SocketAddr,
    },
    /// The listener.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Error {
    /// Whether a full disk can be the cause: the error came from a file, and not from the settings.
    pub(super) fn may_be_want_of_room(&self) -> bool {
        match self {
            Self::Directory(error) => !matches!(error, DirectoryError::Locked { .. }),
            Self::Store(error) => !error.is_damage(),
            Self::Sharing(_) | Self::Backup(_) | Self::Rotation(_) => true,
            _ => false,
        }
    }
}
