//! The list of destroyed keys, beside the database and beside its backups: erased data stays erased when an older
//! backup is restored.
//!
//! A line contains a key's id, which is a random number, and when the key was destroyed. The line is synced before
//! the key is destroyed in the database. If the process dies in between, the next start destroys the key. In the
//! other order a restore could bring the key back.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;

use crate::backup::{Error, Result, file_error};
use crate::base::clock::Timestamp;
use crate::store::subjects::KeyId;
use crate::sys::files::{self, directory_of, sync_directory_of, with_ending};
use crate::sys::user;

/// The name of the list in a directory of backups.
const NAME: &str = "oncebox.db.erasures";

/// A key's id, and when the key was destroyed.
pub type Erasure = (KeyId, Timestamp);

/// The path of a database's list.
pub fn beside(database: &Path) -> PathBuf {
    with_ending(database, ".erasures")
}

/// The path of the list in a directory of backups.
pub fn within(directory: &Path) -> PathBuf {
    directory.join(NAME)
}

/// The erasures in a list; empty if there is no list. An incomplete line is ignored.
pub fn read(list: &Path) -> Result<Vec<Erasure>> {
    let text = match user::in_directory(directory_of(list), || fs::read(list)) {
        // The directory of backups may be a file instead; then there is no list either.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        other => other.map_err(|source| Error::Erasures { path: list.to_owned(), source })?,
    };
    Ok(String::from_utf8_lossy(&text).lines().filter_map(erasure).collect())
}

fn erasure(line: &str) -> Option<Erasure> {
    let (id, at) = line.split_once(' ')?;
    let id = HEXLOWER.decode(id.as_bytes()).ok()?;
    Some((KeyId::try_from(id).ok()?, Timestamp::parse(at)?))
}

/// Adds erasures that the list does not contain yet, and syncs it.
pub fn note(list: &Path, erasures: &[Erasure]) -> Result<()> {
    let known = read(list)?;
    let is_new = |(id, _): &&Erasure| known.iter().all(|(other, _)| other != id);
    let line = |(id, at): &Erasure| format!("{} {at}\n", HEXLOWER.encode(id));
    let mut lines: String = erasures.iter().filter(is_new).map(line).collect();
    if lines.is_empty() {
        return Ok(());
    }
    // An incomplete line of a killed process must not run into the next one.
    let is_complete =
        fs::read(list).map_or(true, |text| text.last().is_none_or(|last| *last == b'\n'));
    if !is_complete {
        lines.insert(0, '\n');
    }
    let append = || {
        let mut file = files::private().append(true).open(list)?;
        file.write_all(lines.as_bytes())?;
        file.sync_all()?;
        sync_directory_of(list)
    };
    append().map_err(file_error(list))
}

/// Adds erasures to the list of the database and, if its directory of backups exists, to the list there.
pub fn note_everywhere(database: &Path, backups: &Path, erasures: &[Erasure]) -> Result<()> {
    note(&beside(database), erasures)?;
    if backups.is_dir() { note(&within(backups), erasures) } else { Ok(()) }
}

/// Copies the erasures of a database to the list beside its backup.
pub fn carry(database: &Path, backup: &Path) -> Result<()> {
    note(&within(directory_of(backup)), &read(&beside(database))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_each_key_once_and_survives_an_incomplete_line() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let list = within(dir.path());
        assert_eq!(read(&list).unwrap(), []);
        let at = Timestamp::from_secs(1_769_860_800);
        note(&list, &[([1; 16], at), ([2; 16], at)]).unwrap();
        note(&list, &[([2; 16], at)]).unwrap();
        assert_eq!(read(&list).unwrap(), [([1; 16], at), ([2; 16], at)]);
        assert_eq!(fs::metadata(&list).unwrap().permissions().mode() & 0o777, 0o600);
        let text = fs::read(&list).unwrap();
        fs::write(&list, &text[..text.len() - 9]).unwrap();
        note(&list, &[([3; 16], at)]).unwrap();
        assert_eq!(read(&list).unwrap(), [([1; 16], at), ([3; 16], at)]);
    }
}
