//! Takes a backup: copies the file while it is in use, checks and syncs the copy, and only then gives it its name.
//!
//! A process killed meanwhile leaves a file that ends in `.partial`, or a manifest without its backup. Neither counts
//! as a backup, and the next backup replaces or removes it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::backup::disk::{self, Partial};
use crate::backup::manifest::{FORMAT, Manifest, Reason};
use crate::backup::months::{Cut, MonthCopy};
use crate::backup::store::{self, Facts, Progress};
use crate::backup::{Error, Result, erasures, file_error, months, retention};
use crate::base::build;
use crate::base::clock::Timestamp;
use crate::base::faults::{Faults, Step};
use crate::store::error::Error as StoreError;
use crate::sys::files::{self, directory_of};

/// What to back up, and where.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The database.
    pub database: PathBuf,
    /// The backup's file.
    pub to: PathBuf,
    /// Why it is made.
    pub reason: Reason,
    /// The wall time.
    pub now: Timestamp,
    /// Planned failures.
    pub faults: Faults,
}

/// The file of a backup: `named` itself or, if that is a directory, a file in it with the time in its name.
///
/// ```
/// use oncebox::{base::clock::Timestamp, backup::online};
/// let at = Timestamp::from_secs(1_769_860_800);
/// let file = online::destination("/tmp".as_ref(), at);
/// assert_eq!(file, std::path::Path::new("/tmp/oncebox-20260131T120000Z.db"));
/// assert_eq!(online::destination("/tmp/x.db".as_ref(), at), std::path::Path::new("/tmp/x.db"));
/// ```
pub fn destination(named: &Path, now: Timestamp) -> PathBuf {
    if named.is_dir() { named.join(format!("oncebox-{}.db", stamp(now))) } else { named.to_owned() }
}

/// A time in the form for file names.
pub fn stamp(at: Timestamp) -> String {
    let text = at.to_string();
    let seconds = text.split('.').next().unwrap_or(&text);
    format!("{}Z", seconds.replace(['-', ':'], ""))
}

/// Takes a backup; `go_on` is asked after each MiB. On success the backup and its manifest are synced and the copy
/// has been checked; on failure nothing is left behind.
pub fn take(plan: &Plan, go_on: &mut dyn FnMut(Progress) -> bool) -> Result<Manifest> {
    let Plan { database, to, reason, now, faults } = plan;
    let directory = directory_of(to);
    fs::metadata(database).map_err(file_error(database))?;
    let partial = Partial::begin(to)?;
    let begun_ns = months::state(partial.path())?.map_or(0, |(_, at)| at);
    // An upgrade leaves the months as they are.
    let known = known_months(directory)?;
    let with_months = *reason != Reason::BeforeUpgrade;
    let cut = Cut::take(database, with_months.then_some(&known))?;
    disk::room_for(directory, store::size(database)?.saturating_add(cut.bytes()))?;
    let died = |partial: Partial| {
        partial.abandon();
        Err(Error::Store(StoreError::Stopped))
    };
    cut.database.copy(partial.path(), go_on)?;
    if faults.hit(Step::Backup) {
        return died(partial);
    }
    let copies = cut.copy_months(to, begun_ns, &known, go_on)?;
    if faults.hit(Step::Backup) {
        return died(partial);
    }
    partial.sync()?;
    let facts = store::check(partial.path())?;
    let mut manifest = describe(partial.path(), to, *reason, *now, facts)?;
    manifest.months = with_months.then_some(copies);
    let manifest_path = Manifest::path_of(to);
    // Replaces a manifest that a killed process left.
    let text = manifest.to_text(&manifest_path)?;
    files::write_private(&manifest_path, text.as_bytes()).map_err(file_error(&manifest_path))?;
    erasures::carry(database, to)?;
    if faults.hit(Step::Backup) {
        return died(partial);
    }
    if let Err(error) = partial.finish(to) {
        disk::remove(&manifest_path)?;
        return Err(error);
    }
    if let Err(error) = retention::clear_months(directory) {
        tracing::warn!(%error, "copies of months that no backup needs could not be removed");
    }
    Ok(manifest)
}

/// The copies of months that backups in a directory have.
fn known_months(directory: &Path) -> Result<Vec<MonthCopy>> {
    let all = retention::list(directory)?.into_iter().filter_map(|backup| backup.manifest.months);
    let is_there = |copy: &MonthCopy| {
        fs::metadata(copy.path(directory)).is_ok_and(|file| file.len() == copy.bytes)
    };
    Ok(all.flatten().filter(is_there).collect())
}

fn describe(
    copy: &Path,
    to: &Path,
    reason: Reason,
    created_at: Timestamp,
    facts: Facts,
) -> Result<Manifest> {
    let name = to.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Error::Manifest {
        path: to.to_owned(),
        why: "the name of a backup must be UTF-8".to_owned(),
    })?;
    let bytes = fs::metadata(copy).map_err(file_error(copy))?.len();
    let sha256 = disk::sha256(copy, |_| Ok(()))?;
    let file = name.to_owned();
    let version = build::VERSION.to_owned();
    let format = FORMAT;
    let months = None;
    Ok(Manifest { format, file, created_at, reason, version, facts, bytes, sha256, months })
}

/// Checks that a backup matches its manifest: complete, unchanged and readable.
pub fn verify(backup: &Path) -> Result<Manifest> {
    verify_next(backup, &mut BTreeSet::new())
}

/// As [`verify`], of one of several backups; `read` are the copies of months that were read for an earlier one.
pub fn verify_next(backup: &Path, read: &mut BTreeSet<PathBuf>) -> Result<Manifest> {
    let manifest = Manifest::read_of(backup)?;
    let bytes = fs::metadata(backup).map_err(file_error(backup))?.len();
    let damaged = |why: String| Error::Damaged { path: backup.to_owned(), why };
    if bytes != manifest.bytes {
        return Err(damaged(format!("it has {bytes} bytes, its manifest says {}", manifest.bytes)));
    }
    if disk::sha256(backup, |_| Ok(()))? != manifest.sha256 {
        return Err(damaged("its SHA-256 is not the one in its manifest".to_owned()));
    }
    let facts = store::check(backup)?;
    if facts.rows != manifest.facts.rows {
        return Err(damaged("it does not contain the rows in its manifest".to_owned()));
    }
    months::verify(directory_of(backup), manifest.months.as_deref().unwrap_or_default(), read)?;
    Ok(manifest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    fn plan(dir: &Path, faults: Faults) -> Plan {
        let database = dir.join("oncebox.db");
        let (to, now) = (dir.join("b.db"), Timestamp::from_secs(1_769_860_800));
        Plan { database, to, reason: Reason::Asked, now, faults }
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names.retain(|name| name.starts_with('b'));
        names
    }

    #[test]
    fn a_backup_is_one_private_file_with_its_manifest_and_needs_no_log() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let plan = plan(dir.path(), Faults::none());
        let _open = Store::open(&plan.database, Faults::none()).unwrap();
        let manifest = take(&plan, &mut |_| true).unwrap();
        assert_eq!(names(dir.path()), ["b.db", "b.db.manifest.json"]);
        assert_eq!(fs::metadata(&plan.to).unwrap().permissions().mode() & 0o777, 0o600);
        // Bytes 18 and 19 of the header: 1 is a rollback journal, 2 a write-ahead log.
        assert_eq!(fs::read(&plan.to).unwrap()[18..20], [1, 1]);
        assert_eq!(verify(&plan.to).unwrap(), manifest);
        assert_eq!(manifest.facts.rows["tenants"], 1);
        assert!(matches!(take(&plan, &mut |_| true), Err(Error::Exists(_))));
        assert_eq!(names(dir.path()), ["b.db", "b.db.manifest.json"]);
    }

    #[test]
    fn a_stopped_backup_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let plan = plan(dir.path(), Faults::none());
        let _open = Store::open(&plan.database, Faults::none()).unwrap();
        assert!(take(&plan, &mut |_| false).is_err());
        assert_eq!(names(dir.path()), [""; 0]);
    }

    #[test]
    fn a_killed_process_leaves_nothing_that_counts_as_a_backup_or_stops_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let _open = Store::open(&dir.path().join("oncebox.db"), Faults::none()).unwrap();
        // A program that another test starts meanwhile inherits the partial file and its lock for a moment.
        let take = |plan: &Plan| {
            (0..).find_map(|_| match take(plan, &mut |_| true) {
                Err(Error::Busy(_)) => {
                    std::thread::yield_now();
                    None
                }
                taken => Some(taken),
            })
        };
        for nth in 1..=2 {
            let plan = plan(dir.path(), Faults::at(Step::Backup, nth));
            take(&plan).unwrap().unwrap_err();
            assert!(!plan.to.exists());
            assert!(names(dir.path()).contains(&"b.db.partial".to_owned()));
        }
        let plan = plan(dir.path(), Faults::none());
        take(&plan).unwrap().unwrap();
        assert_eq!(names(dir.path()), ["b.db", "b.db.manifest.json"]);
    }

    #[test]
    fn a_changed_backup_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let plan = plan(dir.path(), Faults::none());
        let _open = Store::open(&plan.database, Faults::none()).unwrap();
        take(&plan, &mut |_| true).unwrap();
        let mut bytes = fs::read(&plan.to).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&plan.to, &bytes).unwrap();
        assert!(verify(&plan.to).unwrap_err().to_string().contains("SHA-256"));
        fs::write(&plan.to, &bytes[..last]).unwrap();
        assert!(verify(&plan.to).unwrap_err().to_string().contains("bytes"));
        fs::remove_file(Manifest::path_of(&plan.to)).unwrap();
        assert!(verify(&plan.to).unwrap_err().to_string().contains("without its manifest"));
    }
}
