//! The data directory: the database, the master key, the first token, and the lock that keeps other processes out.
//!
//! Files are created with mode 0600, a new directory with 0700; an existing directory keeps its mode. The database can
//! be shared with a unix group, so that an ERP on the same machine can write into it. The group's members are trusted
//! like operators. The key, the token and the lock are never shared.

use std::fmt::Display;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::base::build;
use crate::base::clock::Clock;
use crate::keys::file::KeyFileError;
use crate::sys::files::{self, directory_of, with_ending};
use crate::sys::user;

/// The file of the machine's groups (group(5)).
const GROUPS: &str = "/etc/group";
/// The database.
pub const DATABASE: &str = "oncebox.db";
/// The first admin token.
pub const TOKEN_FILE: &str = "admin.token";
/// The file that a running service locks.
pub const LOCK_FILE: &str = "oncebox.lock";
/// The file with the address that the running service listens on.
pub const ADDRESS_FILE: &str = "oncebox.address";
/// The file with the intake's address, if it has its own.
pub const INTAKE_FILE: &str = "oncebox.intake";

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// A file or directory cannot be used.
    #[error("{path}: {source}")]
    File {
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The database exists, but its key is missing.
    #[error(
        "{path} is missing, but there is a database beside it: put the master key back; without it \
         no secret in the database can be opened"
    )]
    KeyMissing {
        /// Where the key should be.
        path: PathBuf,
    },
    /// The program of the settings that writes the key has failed.
    #[error("keys.command: {program} did not write the master key: {why}")]
    KeyCommand {
        /// The program.
        program: String,
        /// What went wrong.
        why: String,
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

/// A data directory that this process has locked.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    /// Held open for its lock.
    lock: File,
}

impl Drop for DataDirectory {
    fn drop(&mut self) {
        // Closing it is not enough: until its exec, a process that was started at this moment has the file open, too.
        drop(self.lock.unlock());
    }
}

impl DataDirectory {
    /// Creates the directory if it is missing, and locks it. If this is root, the process continues as the directory's
    /// owner. Returns `Locked` if another process holds the lock.
    pub fn lock(path: &Path) -> Result<Self, DirectoryError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(file_error(path))?;
        user::become_owner_of(path).map_err(file_error(path))?;
        Ok(Self { path: path.to_owned(), lock: lock(&path.join(LOCK_FILE))? })
    }

    /// The path of the database, which may not exist yet.
    pub fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    /// Creates the database file as private if it is missing, and returns its path. SQLite gives its log the same mode.
    pub fn private_database(&self) -> Result<PathBuf, DirectoryError> {
        let path = self.database();
        files::private().append(true).open(&path).map(drop).map_err(file_error(&path))?;
        Ok(path)
    }

    /// Writes the first token into the directory.
    pub fn write_token(&self, token: &str) -> Result<(), DirectoryError> {
        self.write(TOKEN_FILE, token)
    }

    /// Writes the service's address into the directory, for the commands that call it.
    pub fn write_address(&self, address: SocketAddr) -> Result<(), DirectoryError> {
        self.write(ADDRESS_FILE, address)
    }

    /// Writes the intake's address into the directory, or removes it if the intake has none of its own.
    pub fn write_intake(&self, address: Option<SocketAddr>) -> Result<(), DirectoryError> {
        let Some(address) = address else {
            self.remove(INTAKE_FILE);
            return Ok(());
        };
        self.write(INTAKE_FILE, address)
    }

    /// Removes the addresses.
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
                tracing::warn!(%error, name, "the file with the service's address could not be removed");
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
        // The holder is only named in the message; an unreadable name changes nothing.
        let named = file.read_to_string(&mut holder).is_ok() && !holder.trim().is_empty();
        let holder = if named { holder.trim().to_owned() } else { "unknown".to_owned() };
        return Err(DirectoryError::Locked { path: path.to_owned(), holder });
    }
    // Only people read this line, so it has the machine's time even if another clock is injected.
    let process = std::process::id();
    let since = Clock::machine().wall();
    let version = build::VERSION;
    let process = format!("process {process}, version {version}, since {since}\n");
    file.set_len(0).and_then(|()| file.write_all(process.as_bytes())).map_err(file_error(path))?;
    Ok(file)
}

/// Why the database cannot be shared with a group.
#[derive(Debug, thiserror::Error)]
pub enum SharingError {
    /// The group does not exist.
    #[error(
        "database.group: there is no group {0:?} in {GROUPS}; create it (groupadd {0}), or give its number"
    )]
    NoSuchGroup(String),
    /// The file could not be shared.
    #[error(
        "database.group: {path} could not be shared with the group {group}: {source}; the service's user must \
         be in the group or root; under systemd, the unit must allow it (examples/shared-group.conf)"
    )]
    Refused {
        /// The file or directory.
        path: PathBuf,
        /// The group's name or number, as it was given.
        group: String,
        /// The cause.
        source: io::Error,
    },
}

/// Sets who may open the database. With a group: directory 2770, so that new files belong to the group, and files 0660.
/// With `None`, only the owner: files 0600, and the directory keeps its mode. SQLite gives later logs the mode of the
/// database.
pub fn share(database: &Path, group: Option<&str>) -> Result<(), SharingError> {
    let Some(name) = group else {
        return set(database, None, 0o600).map_err(|(path, source)| SharingError::Refused {
            path,
            group: "(none)".to_owned(),
            source,
        });
    };
    let number = number_of(name).ok_or_else(|| SharingError::NoSuchGroup(name.to_owned()))?;
    let directory = directory_of(database);
    files::set_access(directory, Some(number), 0o2770)
        .map_err(|source| (directory.to_owned(), source))
        .and_then(|()| set(database, Some(number), 0o660))
        .map_err(|(path, source)| SharingError::Refused { path, group: name.to_owned(), source })
}

/// Changes the database and its log files, if they exist.
fn set(database: &Path, group: Option<u32>, mode: u32) -> Result<(), (PathBuf, io::Error)> {
    for ending in ["", "-wal", "-shm"] {
        let path = with_ending(database, ending);
        match files::set_access(&path, group, mode) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err((path, error)),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// The number of a group: as given, or from [`GROUPS`]. Groups of a directory service must be given by number.
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

    #[test]
    fn it_is_free_again_though_another_process_still_has_the_file_open() {
        let dir = tempfile::tempdir().unwrap();
        let locked = DataDirectory::lock(dir.path()).unwrap();
        assert!(matches!(DataDirectory::lock(dir.path()), Err(DirectoryError::Locked { .. })));
        let inherited = locked.lock.try_clone().unwrap();
        drop(locked);
        drop(DataDirectory::lock(dir.path()).unwrap());
        drop(inherited);
    }
}
