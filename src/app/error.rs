//! The errors of starting and running an Oncebox.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::app::data_directory::{DirectoryError, SharingError};
use crate::backup::Error as BackupError;
use crate::http::client::SetupError;
use crate::pipeline::upkeep::master_key_rotation::RotationError;
use crate::store::error::Error as StoreError;

/// Why an Oncebox did not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database failed.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The data directory cannot be used.
    #[error("{0}")]
    Directory(#[from] DirectoryError),
    /// The database cannot be shared with its group.
    #[error("{0}")]
    Sharing(#[from] SharingError),
    /// The backup before an upgrade failed.
    #[error("{0}")]
    Backup(#[from] BackupError),
    /// The master key could not be rotated.
    #[error("{0}")]
    Rotation(#[from] RotationError),
    /// The client's CA certificates, or the proxy's password, cannot be used.
    #[error("{0}")]
    Client(#[from] SetupError),
    /// The key that encrypted the database's secrets is missing.
    #[error(
        "{path} needs the master key {want}, but the current one is {have}: provide the right key, \
         or give it as the previous one to encrypt everything again with {have}"
    )]
    OtherKey {
        /// The database.
        path: PathBuf,
        /// The current key's id.
        have: String,
        /// The missing key's id.
        want: String,
    },
    /// The database does not exist.
    #[error("{path} does not exist: no oncebox has run there; name its data directory with --data")]
    NoDatabase {
        /// Where the database should be.
        path: PathBuf,
    },
    /// The database of this installation is missing, or another one is in its place.
    #[error(
        "{path} {what}, but {note} says that this installation has the database {noted}: mount its disk, or restore a \
         backup (oncebox restore). To go on with what is there, or begin anew without its events: oncebox keys bind, or \
         oncebox keys bind --none"
    )]
    OtherDatabase {
        /// Where the database should be.
        path: PathBuf,
        /// What is wrong there.
        what: &'static str,
        /// The note beside the master key.
        note: PathBuf,
        /// The id in it.
        noted: String,
    },
    /// Every secret can be opened.
    #[error("the master key {0} opens every secret of the database: there is nothing to give up")]
    NothingLost(String),
    /// The tenant does not exist.
    #[error("there is no tenant named {0:?}")]
    NoTenant(String),
    /// The API can be reached from other machines, and there is no admin token.
    #[error(
        "the API would listen on {address}, which other machines can reach, but there is no valid admin token: \
         create one (oncebox token create --role admin), or set listen.api to a loopback address"
    )]
    Unguarded {
        /// The address that the API would listen on.
        address: SocketAddr,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
}

impl Error {
    /// Whether a full disk can be the cause: the error comes from a file and not from the settings.
    pub(super) fn may_be_full_disk(&self) -> bool {
        match self {
            Self::Directory(error) => !matches!(error, DirectoryError::Locked { .. }),
            Self::Store(error) => !error.is_damage(),
            Self::Sharing(_) | Self::Backup(_) | Self::Rotation(_) => true,
            _ => false,
        }
    }
}
