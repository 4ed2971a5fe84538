//! Opening the database to a unix group, so that an ERP on the same machine can write into it.
//!
//! Whoever is in the group can read and change all of it: they are trusted like an operator. The key, the
//! token and the lock stay the service's own.

use std::fs::{self, Permissions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// Where the machine's own groups stand (group(5)).
const GROUPS: &str = "/etc/group";

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
        source: Error,
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
    let directory = database.parent().unwrap_or_else(|| Path::new("."));
    change(directory, Some(number), 0o2770)
        .map_err(|source| (directory.to_owned(), source))
        .and_then(|()| set(database, Some(number), 0o660))
        .map_err(|(path, source)| SharingError::Refused { path, group: name.to_owned(), source })
}

/// The database and its log files, where they are there.
fn set(database: &Path, group: Option<u32>, mode: u32) -> Result<(), (PathBuf, Error)> {
    for suffix in ["", "-wal", "-shm"] {
        let mut path = database.as_os_str().to_owned();
        path.push(suffix);
        let path = PathBuf::from(path);
        match change(&path, group, mode) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err((path, error)),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// Changes only what is not so yet: a service manager that has set it up already may refuse the rest.
fn change(path: &Path, group: Option<u32>, mode: u32) -> Result<(), Error> {
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
