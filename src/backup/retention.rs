//! The backups in a directory: lists them, and removes old scheduled ones.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::backup::manifest::{ENDING, Manifest, Reason};
use crate::backup::{Result, disk, months};
use crate::base::clock::Timestamp;
use crate::sys::files::PARTIAL;

/// A backup and its manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupFile {
    /// Its file.
    pub path: PathBuf,
    /// Its manifest.
    pub manifest: Manifest,
}

/// The backups of a directory, newest first: every file with a manifest that names it. Their content is not checked;
/// see [`crate::backup::online::verify`].
pub fn list(directory: &Path) -> Result<Vec<BackupFile>> {
    let mut found = Vec::new();
    for name in disk::names(directory)? {
        let Some(backup) = name.strip_suffix(ENDING) else { continue };
        let path = directory.join(backup);
        if !path.is_file() {
            continue;
        }
        match Manifest::read_of(&path) {
            Ok(manifest) => found.push(BackupFile { path, manifest }),
            Err(error) => tracing::debug!(%error, "a manifest is ignored"),
        }
    }
    found.sort_by_key(|backup| Reverse(backup.manifest.created_at));
    Ok(found)
}

/// The newest backup of a directory.
#[cfg(any(test, feature = "internals"))]
pub fn newest(directory: &Path) -> Result<Option<BackupFile>> {
    Ok(list(directory)?.into_iter().next())
}

/// Removes all but the `keep` newest scheduled backups made up to `made`, and the leftovers of killed processes.
/// Backups made for other reasons stay. Returns the removed backups.
pub fn clear(directory: &Path, keep: usize, made: Timestamp) -> Result<Vec<PathBuf>> {
    // Backups dated later, by a clock that was ahead, are not counted: they must not displace the one just made.
    let ours = |backup: &BackupFile| {
        backup.manifest.reason == Reason::Scheduled && backup.manifest.created_at <= made
    };
    let mut removed = Vec::new();
    for backup in list(directory)?.into_iter().filter(ours).skip(keep) {
        // The manifest last: if the process dies in between, the loop below removes it next time.
        disk::remove(&backup.path)?;
        disk::remove(&Manifest::path_of(&backup.path))?;
        removed.push(backup.path);
    }
    for name in disk::names(directory)?.iter().filter(|name| name.starts_with("oncebox-")) {
        let of_nothing = name.strip_suffix(ENDING).is_some_and(|backup| {
            let backup_path = directory.join(backup);
            // A person may have moved away a backup made for another reason, and still need its manifest.
            let scheduled =
                || Manifest::read_of(&backup_path).is_ok_and(|of| of.reason == Reason::Scheduled);
            let partial = directory.join(format!("{backup}{PARTIAL}"));
            !backup_path.exists() && !disk::is_locked(&partial) && scheduled()
        });
        if of_nothing {
            disk::remove(&directory.join(name))?;
        }
        disk::clear_partial(directory, name)?;
    }
    clear_months(directory)?;
    Ok(removed)
}

/// Removes copies of months that no manifest names. While another backup is made, which may name them soon, all stay; so
/// they do if a manifest cannot be read.
pub(super) fn clear_months(directory: &Path) -> Result<()> {
    let mut named = BTreeSet::new();
    for name in disk::names(directory)? {
        if name.ends_with(PARTIAL) && disk::is_locked(&directory.join(&name)) {
            return Ok(());
        }
        let Some(backup) = name.strip_suffix(ENDING) else { continue };
        let Ok(manifest) = Manifest::read_of(&directory.join(backup)) else { return Ok(()) };
        named.extend(manifest.months.iter().flatten().map(|copy| copy.path(directory)));
    }
    months::clear(directory, &named)
}
