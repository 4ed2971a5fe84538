//! The data directory: the database, the master key, the first token, and the lock that keeps a second
//! process out.
//!
//! Every file is made with mode 0600; a directory that has to be made gets 0700, one that is there keeps its own.
//! The database can be opened to a unix group, so that an ERP on the same machine can write into it: its members are
//! trusted like an operator. The key, the token and the lock stay the service's own.

use std::fmt::Display;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use crate::base::clock::Clock;
use crate::keys::file::KeyFileError;
use crate::sys::files::{self, directory_of, with_ending};
use crate::sys::user;

/// The machine's own groups (group(5)).
const GROUPS: &str = "/etc/group";
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
        source: io::Error,
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
        self.write(TOKEN_FILE, token)
    }

    /// Writes down where the service listens, for the commands that look for it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_address(&self, address: SocketAddr) -> Result<(), DirectoryError> {
        self.write(ADDRESS_FILE, address)
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
        self.write(INTAKE_FILE, address)
    }

    /// Removes what says where the service listens.
    pub fn remove_address(&self) {
        self.remove(ADDRESS_FILE);
        self.remove(INTAKE_FILE);
    }

    fn write(&self, name: &str, line: impl Display) -> Result<(), DirectoryError> {
        let path = self.path.join(name);
        files::write_private(&path, format!("{line}\n").as_bytes()).map_err(file_error(&path))
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

fn file_error(path: &Path) -> impl FnOnce(io::Error) -> DirectoryError {
    let path = path.to_owned();
    move |source| DirectoryError::File { path, source }
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

/// Why the database cannot be opened to a group.
#[derive(Debug, thiserror::Error)]
pub enum SharingError {
    /// The machine does not know it.
    #[error(
        "database.group: there is no group {0:?} in {GROUPS}; make it (groupadd {0}), or give its number"
    )]
    NoSuchGroup(String),
    /// The file could not be given to it.
    #[error(
        "database.group: {path} could not be opened to the group {group}: {source}; the service's user has \
         to be in the group, or to be root; under systemd its unit has to allow it (examples/shared-group.conf)"
    )]
    Refused {
        /// The file or directory.
        path: PathBuf,
        /// The group, as it was named.
        group: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Sets who may open the database: a group (directory 2770, so that what is made in it stays the group's;
/// files 0660), or with `None` its owner alone (files 0600; a directory that was there keeps its mode).
/// SQLite gives a log it makes later the mode of the database.
///
/// # Errors
/// When there is no such group, or the system refuses.
pub fn share(database: &Path, group: Option<&str>) -> Result<(), SharingError> {
    let Some(name) = group else {
        return set(database, None, 0o600).map_err(|(path, source)| SharingError::Refused {
            path,
            group: "of nobody".to_owned(),
            source,
        });
    };
    let number = number_of(name).ok_or_else(|| SharingError::NoSuchGroup(name.to_owned()))?;
    let directory = directory_of(database);
    change(directory, Some(number), 0o2770)
        .map_err(|source| (directory.to_owned(), source))
        .and_then(|()| set(database, Some(number), 0o660))
        .map_err(|(path, source)| SharingError::Refused { path, group: name.to_owned(), source })
}

/// The database and its log files, where they are there.
fn set(database: &Path, group: Option<u32>, mode: u32) -> Result<(), (PathBuf, io::Error)> {
    for ending in ["", "-wal", "-shm"] {
        let path = with_ending(database, ending);
        match change(&path, group, mode) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err((path, error)),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// Changes only what is not so yet: a service manager that has set it up already may refuse the rest.
fn change(path: &Path, group: Option<u32>, mode: u32) -> io::Result<()> {
    let there = fs::metadata(path)?;
    if let Some(group) = group.filter(|group| *group != there.gid()) {
        chown(path, None, Some(group))?;
    }
    if there.mode() & 0o7777 == mode {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// The number of a group: as given, or from the machine's own groups. Groups of a directory service are
/// given by number.
fn number_of(name: &str) -> Option<u32> {
    name.parse().ok().or_else(|| find(&fs::read_to_string(GROUPS).ok()?, name))
}

fn find(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1))??.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_its_whole_name() {
        let groups = "root:x:0:\nerpnext:x:1001:\nerp:x:1000:odoo,anna\n";
        assert_eq!(find(groups, "erp"), Some(1000));
        assert_eq!(find(groups, "er"), None);
        assert_eq!(number_of("4711"), Some(4711));
    }
}
