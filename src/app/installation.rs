//! Which database belongs to this installation: a note with its id stands beside the master key. So a start does not take
//! the empty directory of a disk that is not mounted for a new installation.
//!
//! Where the key is in the data directory there is no note, because it would be missing together with the database.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use crate::app::data_directory::{DATABASE, DirectoryError};
use crate::app::error::Error;
use crate::config::Settings;
use crate::store::{self, meta};
use crate::sys::files::{self, directory_of, with_ending};
use crate::sys::user;

/// What the note's name adds to that of the key's file.
const ENDING: &str = ".database";

/// The path of the note; `None` if the key is in the data directory.
fn path(settings: &Settings) -> Option<PathBuf> {
    let key = settings.master_key_file();
    (!key.starts_with(settings.directory())).then(|| with_ending(&key, ENDING))
}

/// The note's path and the id in it.
fn noted(settings: &Settings) -> Result<Option<(PathBuf, String)>, DirectoryError> {
    let Some(note) = path(settings) else { return Ok(None) };
    match user::in_directory(directory_of(&note), || fs::read_to_string(&note)) {
        Ok(id) => Ok(Some((note, id.trim().to_owned()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(DirectoryError::File { path: note, source }),
    }
}

/// The id of the database; `None` if there is no database, or an older version made it.
pub fn id(settings: &Settings) -> Result<Option<String>, store::error::Error> {
    let path = settings.directory().join(DATABASE);
    if fs::metadata(&path).map_or(0, |found| found.len()) == 0 {
        return Ok(None);
    }
    meta::database_id(&store::read_only(&path)?.tx())
}

/// Fails if the noted database is missing, or another one is in its place. A damaged one is left to the start to report.
pub fn check(settings: &Settings) -> Result<(), Error> {
    let Some((note, noted)) = noted(settings)? else { return Ok(()) };
    match id(settings) {
        Ok(found) if found.as_deref() != Some(noted.as_str()) => {
            let path = settings.directory().join(DATABASE);
            let what = if path.exists() { "is another one" } else { "does not exist" };
            Err(Error::OtherDatabase { path, what, note, noted })
        }
        _ => Ok(()),
    }
}

/// Notes which database belongs to this installation; `None` removes the note. Returns the note's path if it
/// changed.
pub fn note(settings: &Settings, id: Option<&str>) -> Result<Option<PathBuf>, DirectoryError> {
    let Some(note) = path(settings) else { return Ok(None) };
    if noted(settings)?.map(|(_, noted)| noted).as_deref() == id {
        return Ok(None);
    }
    let written = match id {
        // It is no secret, and the service's user has to read what root wrote.
        Some(id) => files::write_private(&note, format!("{id}\n").as_bytes()).and_then(|()| {
            user::in_directory(directory_of(&note), || files::set_mode(&note, 0o644))
        }),
        None => user::in_directory(directory_of(&note), || fs::remove_file(&note)),
    };
    written.map_err(|source| DirectoryError::File { path: note.clone(), source })?;
    Ok(Some(note))
}
