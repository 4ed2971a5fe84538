//! Where a tenant's source may lie.

use std::path::{Path, PathBuf};

use crate::config::Settings;
use crate::model::tenant::DEFAULT;

/// Whether a tenant's source may lie there, and where that is once every link is followed. The service reads it
/// with its own rights: what is not the tenant's must not be reached by its name. A link can be put there at any
/// time: what is opened is the place that this returns, and it is asked again before each reading.
///
/// # Errors
/// Why not, as a sentence without its full stop.
pub fn permitted(settings: &Settings, tenant: &str, path: &Path) -> Result<PathBuf, String> {
    // The place itself may not be there yet; what leads to it is looked at as it is.
    let real = |path: &Path| {
        let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
        path.canonicalize().ok().or_else(|| Some(parent?.join(path.file_name()?)))
    };
    let place = real(path).unwrap_or_else(|| path.to_owned());
    let own = real(settings.directory()).unwrap_or_else(|| settings.directory().to_owned());
    if place.starts_with(&own) || own.starts_with(&place) {
        return Err(format!(
            "{} is in the service's own data directory, or holds it",
            path.display()
        ));
    }
    if tenant == DEFAULT {
        return Ok(place);
    }
    let Some(all) = &settings.sources.tenants_directory else {
        return Err(format!(
            "the tenant {tenant} can have no sources: set sources.tenants_directory in the settings, and \
             they may lie in the directory of its name there"
        ));
    };
    let theirs = all.join(tenant);
    if real(&theirs).is_some_and(|theirs| place != theirs && place.starts_with(theirs)) {
        return Ok(place);
    }
    Err(format!("the sources of the tenant {tenant} have to lie in {}", theirs.display()))
}
