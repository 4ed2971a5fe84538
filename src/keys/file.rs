//! Key files: private, and named after their key id once they are retired by a rotation.
//!
//! Not here: which file holds the key in force (`app::master_key`).

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::base::secret::{KeyTextError, MasterKey};
use crate::sys::files::{self, directory_of, with_ending};
use crate::sys::user;

/// Why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file or its directory cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The key file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// It does not contain a valid key.
    #[error("{path}: {source}")]
    Key {
        /// The key file.
        path: PathBuf,
        /// Why the text is not a key.
        source: KeyTextError,
    },
    /// Other users can read it.
    #[error(
        "{path} has mode {mode:03o}: others could read the master key; set it to 600 (chmod 600 {path})"
    )]
    Mode {
        /// The key file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It belongs to another user.
    #[error(
        "{path} belongs to user {owner}, who could read and change the master key; it must belong to root or to \
         user {we}, as whom this runs (chown {we} {path})"
    )]
    Owner {
        /// The key file.
        path: PathBuf,
        /// Its owner's user id.
        owner: u32,
        /// Our user id.
        we: u32,
    },
}

/// Reads a key file. Refuses one that others than its owner can read, or that belongs to another user than us or root.
pub fn read(path: &Path) -> Result<MasterKey, KeyFileError> {
    let meta = user::in_directory(directory_of(path), || fs::metadata(path));
    let meta = meta.map_err(file_error(path))?;
    let mode = meta.permissions().mode() & 0o777;
    if mode & 0o177 != 0 {
        return Err(KeyFileError::Mode { path: path.to_owned(), mode });
    }
    let owner = meta.uid();
    let we = user::id();
    // Root may run a command for a service whose user owns the key and its directory.
    let service = fs::metadata(directory_of(path)).map_or(0, |directory| directory.uid());
    if owner != we && owner != 0 && !(we == 0 && owner == service) {
        return Err(KeyFileError::Owner { path: path.to_owned(), owner, we });
    }
    read_given(path)
}

/// Reads a key file of any mode and owner, for files that the service manager protects.
pub fn read_given(path: &Path) -> Result<MasterKey, KeyFileError> {
    let text = user::in_directory(directory_of(path), || files::read_text(path));
    let text = Zeroizing::new(text.map_err(file_error(path))?);
    MasterKey::from_text(&text)
        .map_err(|source| KeyFileError::Key { path: path.to_owned(), source })
}

/// Writes a key file.
pub fn write(path: &Path, key: &MasterKey) -> Result<(), KeyFileError> {
    files::write_private(path, key.to_text().as_bytes()).map_err(file_error(path))
}

/// The path of a retired key: beside the key file, with its key id as ending. With it, a database that was sealed
/// under it, such as an older backup, still opens.
pub fn retired(path: &Path, key_id: &str) -> PathBuf {
    with_ending(path, &format!(".{key_id}"))
}

/// The ids of the retired keys beside a key file; see [`retired`].
pub fn retired_ids(path: &Path) -> Vec<String> {
    let directory = directory_of(path);
    let there = user::in_directory(directory, || fs::read_dir(directory));
    let (Some(name), Ok(there)) = (path.file_name(), there) else { return Vec::new() };
    let begins = format!("{}.", name.to_string_lossy());
    let names = there.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let ids = names.filter_map(|name| name.strip_prefix(&begins).map(str::to_owned));
    ids.filter(|id| read(&retired(path, id)).is_ok_and(|key| key.key_id() == *id)).collect()
}

fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> KeyFileError {
    let path = path.to_owned();
    move |source| KeyFileError::File { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::SystemDraw;

    #[test]
    fn a_key_file_that_others_can_read_or_anybody_can_run_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master.key");
        let key = MasterKey::generate(&SystemDraw::new());
        write(&path, &key).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for (mode, good) in [
            (0o600, true),
            (0o400, true),
            (0o640, false),
            (0o604, false),
            (0o660, false),
            (0o700, false),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            match read(&path) {
                Ok(read) => assert!(good && read.key_id() == key.key_id(), "{mode:o}"),
                Err(error) => assert!(!good && error.to_string().contains("chmod 600"), "{error}"),
            }
        }
    }

    #[test]
    fn a_retired_key_stands_beside_its_successor() {
        assert_eq!(retired(Path::new("/a/master.key"), "0f"), Path::new("/a/master.key.0f"));
    }
}
