//! Bringing an older file up to date: a backup first, then all steps in one transaction.
//!
//! The caller of [`run`] holds the data directory's lock. Killed at any point, the file is either what it
//! was or up to date, and the next start goes on from there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::backup::disk::{self, Partial};
use crate::backup::manifest::Reason;
use crate::backup::online::{self, Plan};
use crate::backup::store::{self, Facts, Progress};
use crate::backup::{Result, retention};
use crate::base::clock::{Clock, Timestamp};
use crate::base::faults::Faults;
use crate::model::audit::Actor;
use crate::store::schema::{self, Steps};
use crate::sys::files::{directory_of, with_ending};

/// This program's own version.
const PROGRAM: &str = env!("CARGO_PKG_VERSION");

/// An upgrade that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgraded {
    /// The schema version the file had.
    pub from: i64,
    /// The backup of the file as it was.
    pub backup: PathBuf,
}

/// A try of an upgrade on a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rehearsal {
    /// The schema version the file has.
    pub from: i64,
    /// How long the steps took, without the copying.
    pub took: Duration,
    /// What the copy's schema is otherwise than it should be; nothing where all is well.
    pub differences: Vec<String>,
}

/// The schema version of a file; `None` where there is no file, or nothing of ours in it.
pub fn schema_version(database: &Path) -> Result<Option<i64>> {
    Ok(schema::schema_version(database)?)
}

/// Brings an older file up to date, and notes when and by whom in the audit; does nothing to one that is, or
/// that is not there yet.
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
    // A file that no step leads from needs no backup.
    drop(steps.after(database, from)?);
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

/// The backup that an earlier try made of the same file, so that a process that is killed again and again
/// does not fill the disk. No service has run between the tries: a start counts in `boots`.
fn made_before(database: &Path) -> Result<Option<PathBuf>> {
    let Facts { schema_version, epoch, highest, .. } = store::identity(database)?;
    let found = retention::list(directory_of(database))?.into_iter().find(|kept| {
        let made = &kept.manifest;
        made.reason == Reason::BeforeUpgrade
            && (made.facts.schema_version, made.facts.epoch) == (schema_version, epoch)
            && made.facts.highest == highest
    });
    Ok(found.map(|kept| kept.path).filter(|path| online::verify(path).is_ok()))
}

/// Tries the steps on a copy beside the file, and removes the copy. The file may be in use.
pub fn rehearse(
    database: &Path,
    steps: Steps,
    clock: &Clock,
    go_on: &mut dyn FnMut(Progress) -> bool,
) -> Result<Rehearsal> {
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
