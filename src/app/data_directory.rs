//! The data directory: the database, the master key, the first token, and the lock that keeps a second
//! process out.
//!
//! Every file is made with mode 0600; a directory that has to be made gets 0700, one that is there keeps
//! its own. What the files mean is decided elsewhere.

use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::base::clock::Clock;
use crate::keys::file::KeyFileError;
use crate::sys::{files, user};

/// The database.
pub const DATABASE: &str = "oncebox.db";
/// The first admin token.
pub const TOKEN_FILE: &str = "admin.token";
/// What a running service locks.
pub const LOCK_FILE: &str = "oncebox.lock";
/// Where a running service says on which address it listens.
pub const ADDRESS_FILE: &str = "oncebox.address";
/// Where it says on which address the intake listens, if that has one of its own.
pub const INTAKE_FILE: &str = "oncebox.intake";

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// A file or directory.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The database is there and its key is not.
    #[error(
        "{path} is missing, but there is a database beside it: put the master key back; without it \
         no secret in the database can be opened"
    )]
    KeyMissing {
        /// Where the key should be.
        path: PathBuf,
    },
    /// The key's file cannot be used.
    #[error("{0}")]
    Key(#[from] KeyFileError),
    /// Another process serves this data directory.
    #[error("{path} is locked: another oncebox ({holder}) uses this data directory")]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// Who holds it.
        holder: String,
    },
}

/// A data directory that this process has to itself.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    /// Held open for its lock.
    _lock: File,
}

impl DataDirectory {
    /// Makes the directory where there is none, and keeps every other process out. Root works with the
    /// rights of the directory's owner from then on.
    ///
    /// # Errors
    /// `Locked` when another process serves it.
    pub fn lock(path: &Path) -> Result<Self, DirectoryError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(file_error(path))?;
        user::become_owner_of(path).map_err(file_error(path))?;
        Ok(Self { path: path.to_owned(), _lock: lock(&path.join(LOCK_FILE))? })
    }

    /// Where the database is, or will be.
    pub fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    /// Where the database is; its file is there and private when this returns. SQLite gives its log the
    /// same mode.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn private_database(&self) -> Result<PathBuf, DirectoryError> {
        let path = self.database();
        files::private().append(true).open(&path).map(drop).map_err(file_error(&path))?;
        Ok(path)
    }

    /// Writes the first token down, for the person who started the service.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_token(&self, token: &str) -> Result<(), DirectoryError> {
        write_private(&self.path.join(TOKEN_FILE), format!("{token}\n").as_bytes())
    }

    /// Writes down where the service listens, for the commands that look for it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_address(&self, address: SocketAddr) -> Result<(), DirectoryError> {
        write_private(&self.path.join(ADDRESS_FILE), format!("{address}\n").as_bytes())
    }

    /// Writes down where the intake listens, if that has an address of its own.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_intake(&self, address: Option<SocketAddr>) -> Result<(), DirectoryError> {
        let Some(address) = address else {
            self.remove(INTAKE_FILE);
            return Ok(());
        };
        write_private(&self.path.join(INTAKE_FILE), format!("{address}\n").as_bytes())
    }

    /// Removes what says where the service listens.
    pub fn remove_address(&self) {
        self.remove(ADDRESS_FILE);
        self.remove(INTAKE_FILE);
    }

    fn remove(&self, name: &str) {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!(%error, name, "a file that says where the service listens stays behind");
            }
            _ => (),
        }
    }
}

fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> DirectoryError {
    let path = path.to_owned();
    move |source| DirectoryError::File { path, source }
}

fn write_private(path: &Path, content: &[u8]) -> Result<(), DirectoryError> {
    files::write_private(path, content).map_err(file_error(path))
}

fn lock(path: &Path) -> Result<File, DirectoryError> {
    let mut file = files::private().read(true).write(true).open(path).map_err(file_error(path))?;
    if file.try_lock().is_err() {
        let mut holder = String::new();
        // The holder is only named for the person; an unreadable name changes nothing.
        let named = file.read_to_string(&mut holder).is_ok() && !holder.trim().is_empty();
        let holder = if named { holder.trim().to_owned() } else { "unknown".to_owned() };
        return Err(DirectoryError::Locked { path: path.to_owned(), holder });
    }
    // For a person alone, so it is the machine's time, whatever the product is told.
    let (process, since) = (std::process::id(), Clock::machine().wall());
    let version = env!("CARGO_PKG_VERSION");
    let process = format!("process {process}, version {version}, since {since}\n");
    file.set_len(0).and_then(|()| file.write_all(process.as_bytes())).map_err(file_error(path))?;
    Ok(file)
}
