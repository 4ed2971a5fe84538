//! The paths outside the data directory that a tenant may use: for sources, and for folders that events are written to.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::config::Settings;
use crate::model::name::DEFAULT_TENANT;
use crate::sys::files::with_ending;

/// A tenant's path with every link resolved, if the tenant may read or write there; else why not. `what`: the plural of
/// what the tenant has there.
///
/// The service opens files with its own rights, so a tenant must not reach other files with a path or a link. A link
/// can appear at any time: the caller opens only the returned path, and calls this again each time.
pub fn permitted(
    settings: &Settings,
    tenant: &str,
    path: &Path,
    what: &str,
) -> Result<PathBuf, String> {
    // The file itself may not exist yet; then only its directory is resolved.
    let real = |path: &Path| {
        let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
        path.canonicalize().ok().or_else(|| Some(parent?.join(path.file_name()?)))
    };
    let resolved = real(path).unwrap_or_else(|| path.to_owned());
    let own = real(settings.directory()).unwrap_or_else(|| settings.directory().to_owned());
    if resolved.starts_with(&own) || own.starts_with(&resolved) || is_linked(settings, &resolved) {
        return Err(format!(
            "{} is in the service's own data directory, contains it, or is a link to a file of it",
            path.display()
        ));
    }
    if tenant == DEFAULT_TENANT {
        return Ok(resolved);
    }
    let Some(all) = &settings.sources.tenants_directory else {
        return Err(format!(
            "the tenant {tenant} can have no {what}: set sources.tenants_directory in the settings; then \
             {what} are permitted in the subdirectory with the tenant's name"
        ));
    };
    let theirs = all.join(tenant);
    if real(&theirs).is_some_and(|theirs| resolved != theirs && resolved.starts_with(theirs)) {
        return Ok(resolved);
    }
    Err(format!("the {what} of the tenant {tenant} must be in {}", theirs.display()))
}

/// Whether a file, or what `SQLite` opens beside it, is a hard link to a file of the data directory or to a backup.
fn is_linked(settings: &Settings, path: &Path) -> bool {
    let linked = ["", "-wal", "-shm"].map(|ending| fs::metadata(with_ending(path, ending)));
    let linked = linked.into_iter().flatten().filter(|meta| meta.is_file() && meta.nlink() > 1);
    let linked: Vec<_> = linked.map(|meta| (meta.dev(), meta.ino())).collect();
    let is_same = |own: &fs::DirEntry| {
        own.metadata().is_ok_and(|own| linked.contains(&(own.dev(), own.ino())))
    };
    let own = [settings.directory().to_owned(), settings.backup_directory()];
    !linked.is_empty()
        && own.iter().flat_map(fs::read_dir).flatten().flatten().any(|own| is_same(&own))
}
