//! Erasures before anything is served: a database that was put back must not bring back what was erased.

use std::path::Path;

use crate::app::error::Error;
use crate::backup::erasures;
use crate::config::Settings;
use crate::store::writer::WriterLoop;

/// What was erased stays erased, whatever file stands there now: an erasure that was noted and cut off is
/// carried out, and one that is noted beside the backups alone.
pub(super) fn again(
    writer: &mut WriterLoop,
    database: &Path,
    settings: &Settings,
) -> Result<(), Error> {
    let mut noted = erasures::read(&erasures::beside(database))?;
    noted.extend(erasures::read(&erasures::within(&settings.backup_directory()))?);
    let erased = writer.erase_again(&noted)?;
    if erased > 0 {
        tracing::warn!(erased, "keys of subjects that were erased before are destroyed again");
    }
    Ok(())
}
