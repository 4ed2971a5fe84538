//! Upgrades the schema of an older file: a backup first, then all steps in one transaction.
//!
//! The caller of [`run`] holds the data directory's lock. If the process is killed, the file is either unchanged or
//! fully upgraded, and the next start continues from there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::backup::disk::{self, Partial};
use crate::backup::manifest::Reason;
use crate::backup::online::{self, Plan};
use crate::backup::store::{self, Facts, Progress};
use crate::backup::{Result, retention};
use crate::base::build;
use crate::base::clock::{Clock, Timestamp};
use crate::base::faults::Faults;
use crate::model::audit::Actor;
use crate::store::schema::{self, Steps};
use crate::sys::files::{directory_of, with_ending};

/// This program's own version.
const PROGRAM: &str = build::VERSION;

/// A completed upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgraded {
    /// The schema version before.
    pub from: i64,
    /// The backup made before.
    pub backup: PathBuf,
}

/// The result of an upgrade tried on a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rehearsal {
    /// The schema version of the file.
    pub from: i64,
    /// How long the steps took, without the copying.
    pub took: Duration,
    /// Differences of the upgraded schema from the expected one; empty if the upgrade is correct.
    pub differences: Vec<String>,
}

/// The schema version of a file; `None` if there is no file, or if it has none of our tables.
pub fn schema_version(database: &Path) -> Result<Option<i64>> {
    Ok(schema::schema_version(database)?)
}

/// Upgrades an older file, and records when and by whom in the audit. `None` if the file is up to date or missing. On
/// failure the file is unchanged.
pub fn run(
    database: &Path,
    steps: Steps,
    by: &(Timestamp, Actor),
    faults: &Faults,
    go_on: &mut dyn FnMut(Progress) -> bool,
) -> Result<Option<Upgraded>> {
    let Some(from) = schema_version(database)?.filter(|have| *have < steps.version()) else {
        return Ok(None);
    };
    // Fails before the backup if no step leads from this version, or if a table of an ERP is in the way.
    schema::check_names(database, steps, from)?;
    let backup = match made_before(database)? {
        Some(there) => there,
        None => back_up(database, by.0, faults, go_on)?,
    };
    schema::migrate(database, steps, by, faults)?;
    Ok(Some(Upgraded { from, backup }))
}

fn back_up(
    database: &Path,
    now: Timestamp,
    faults: &Faults,
    go_on: &mut dyn FnMut(Progress) -> bool,
) -> Result<PathBuf> {
    let name = format!("before-upgrade-{PROGRAM}-{}.db", online::stamp(now));
    let to = directory_of(database).join(name);
    let plan = Plan {
        database: database.to_owned(),
        to: to.clone(),
        reason: Reason::BeforeUpgrade,
        now,
        faults: faults.clone(),
    };
    online::take(&plan, go_on)?;
    Ok(to)
}

/// The backup that an earlier attempt made of the unchanged file, so that repeated attempts do not fill the disk. If
/// a service had run since, the numbers of `boots` would differ.
fn made_before(database: &Path) -> Result<Option<PathBuf>> {
    let Facts { schema_version, epoch, highest, .. } = store::identity(database)?;
    let found = retention::list(directory_of(database))?.into_iter().find(|backup| {
        let made = &backup.manifest;
        made.reason == Reason::BeforeUpgrade
            && (made.facts.schema_version, made.facts.epoch) == (schema_version, epoch)
            && made.facts.highest == highest
    });
    Ok(found.map(|backup| backup.path).filter(|path| online::verify(path).is_ok()))
}

/// Tries the upgrade on a copy beside the file, and removes the copy. The file may be in use.
pub fn rehearse(
    database: &Path,
    steps: Steps,
    clock: &Clock,
    go_on: &mut dyn FnMut(Progress) -> bool,
) -> Result<Rehearsal> {
    if let Some(from) = schema_version(database)? {
        schema::check_names(database, steps, from)?;
    }
    disk::room_for(directory_of(database), store::size(database)?)?;
    let copy = Partial::begin(&with_ending(database, ".rehearsal"))?;
    store::copy(database, copy.path(), go_on)?;
    let started = clock.monotonic();
    let by = (clock.wall(), Actor::system());
    let from = schema::migrate(copy.path(), steps, &by, &Faults::none())?;
    let took = clock.monotonic().saturating_sub(started);
    store::check(copy.path())?;
    let differences = store::schema_differences(copy.path())?;
    Ok(Rehearsal { from, took, differences })
}
