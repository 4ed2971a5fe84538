//! The backups in a directory: which there are, which is the newest, and which of our own are too many.

use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};

use crate::backup::disk;
use crate::backup::manifest::{ENDING, Manifest, Reason};
use crate::backup::{Result, file_error};
use crate::base::clock::Timestamp;
use crate::sys::files::PARTIAL;

/// A backup and its manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupFile {
    /// Its file.
    pub path: PathBuf,
    /// What its manifest says.
    pub manifest: Manifest,
}

/// The backups of a directory, newest first: every file with a manifest that names it. Not read through;
/// see [`crate::backup::online::verify`].
pub fn list(directory: &Path) -> Result<Vec<BackupFile>> {
    let mut found = Vec::new();
    for name in names(directory)? {
        let Some(backup) = name.strip_suffix(ENDING) else { continue };
        let path = directory.join(backup);
        if !path.is_file() {
            continue;
        }
        match Manifest::read_of(&path) {
            Ok(manifest) => found.push(BackupFile { path, manifest }),
            Err(error) => tracing::debug!(%error, "a manifest is passed over"),
        }
    }
    found.sort_by_key(|kept| Reverse(kept.manifest.created_at));
    Ok(found)
}

/// The newest backup of a directory.
#[cfg(any(test, feature = "internals"))]
pub fn newest(directory: &Path) -> Result<Option<BackupFile>> {
    Ok(list(directory)?.into_iter().next())
}

/// Removes the scheduled backups beyond the `keep` newest that are not younger than `made`, and what killed processes left of others.
/// Nothing but what the schedule itself made is touched. Returns what was removed.
pub fn clear(directory: &Path, keep: usize, made: Timestamp) -> Result<Vec<PathBuf>> {
    // Those of a clock that was ahead stay as well, so that they do not push out the one just made.
    let ours = |kept: &BackupFile| {
        kept.manifest.reason == Reason::Scheduled && kept.manifest.created_at <= made
    };
    let mut removed = Vec::new();
    for kept in list(directory)?.into_iter().filter(ours).skip(keep) {
        // The manifest last: without its backup it is found again below.
        disk::remove(&kept.path)?;
        disk::remove(&Manifest::path_of(&kept.path))?;
        removed.push(kept.path);
    }
    for name in names(directory)?.iter().filter(|name| name.starts_with("oncebox-")) {
        let path = directory.join(name);
        let of_nothing = name.strip_suffix(ENDING).is_some_and(|backup| {
            let backup_path = directory.join(backup);
            // Somebody else's may have been moved away, and still be looked after.
            let scheduled =
                || Manifest::read_of(&backup_path).is_ok_and(|of| of.reason == Reason::Scheduled);
            !backup_path.exists() && !is_written(directory, backup) && scheduled()
        });
        // SQLite's journal of a copy ends in `.partial-journal`.
        let partial = name.strip_suffix("-journal").unwrap_or(name);
        let is_left_over = partial.ends_with(PARTIAL) && !is_locked(&directory.join(partial));
        if of_nothing || is_left_over {
            disk::remove(&path)?;
        }
    }
    Ok(removed)
}

fn is_written(directory: &Path, backup: &str) -> bool {
    is_locked(&directory.join(format!("{backup}{PARTIAL}")))
}

/// Whether a living process writes it.
fn is_locked(path: &Path) -> bool {
    fs::File::open(path).is_ok_and(|file| file.try_lock().is_err())
}

fn names(directory: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(file_error(directory))? {
        let entry = entry.map_err(file_error(directory))?;
        names.extend(entry.file_name().into_string());
    }
    names.sort();
    Ok(names)
}
