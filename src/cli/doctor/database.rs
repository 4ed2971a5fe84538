//! The database: whether it is whole, what waits in it, its log, its key, and its backups.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};

use crate::app::{installation, master_key};
use crate::archive::{Archive, DIRECTORY};
use crate::backup::manifest;
use crate::cli::doctor::{Finding, Installation, fail, ok, warn};
use crate::model::disk::Budget;
use crate::model::health::{self, bytes};
use crate::store::schema;
use crate::store::stats::{self, Findings};
use crate::sys::disk::Gauge;
use crate::sys::{files, host, locks, user};

/// A log this many times as long as it should be is not emptied as it should be.
const LOG_TIMES: u64 = 4;

pub(super) fn look(here: &Installation) -> Vec<Finding> {
    let path = here.database();
    if let Err(error) = installation::check(&here.settings) {
        return vec![fail("database", error.to_string()), backup(here)];
    }
    if !path.exists() {
        let none = warn("database", "there is none yet: the first start makes it");
        return vec![none, backup(here)];
    }
    let mut findings = match stats::inspect(&path, here.deep) {
        Ok(found) => whole(here, &path, &found),
        Err(error) => {
            let detail = format!("{} cannot be read: {error}: restore a backup", path.display());
            vec![fail("integrity", detail)]
        }
    };
    findings.push(log(here, &path));
    findings.push(others(&path));
    findings.push(archive(here));
    findings.push(backup(here));
    findings
}

/// The months, and what is in them.
fn archive(here: &Installation) -> Finding {
    match Archive::of(here.settings.directory(), DIRECTORY).files() {
        Ok(files) => {
            let size = files.iter().map(|file| file.bytes).sum();
            ok(
                "archive",
                format!("{} months, {}: oncebox archive verify", files.len(), bytes(size)),
            )
        }
        Err(error) => fail("archive", format!("its files cannot be listed: {error}")),
    }
}

fn whole(here: &Installation, path: &Path, found: &Findings) -> Vec<Finding> {
    let integrity = match found.damage.first() {
        None => ok("integrity", if here.deep { "whole, indexes too" } else { "whole" }),
        Some(first) => {
            let detail = format!("{} is damaged ({first}): restore a backup", path.display());
            fail("integrity", detail)
        }
    };
    let references = match found.orphans {
        0 => ok("references", "every row refers to rows that are there"),
        orphans => fail("references", format!("{orphans} rows refer to rows that are not there")),
    };
    let journal = match found.journal_mode.as_str() {
        "wal" => ok("journal", "write-ahead log"),
        other => {
            fail("journal", format!("is {other}; somebody changed it: PRAGMA journal_mode=WAL"))
        }
    };
    let have = found.version;
    let known = found.version_known;
    let version = match have.cmp(&known) {
        Ordering::Greater => {
            let detail =
                format!("version {have}, this oncebox knows up to {known}: install the newer one");
            fail("schema", detail)
        }
        Ordering::Less => {
            let detail = format!("version {have}; the next start makes it {known}, after a backup");
            warn("schema", detail)
        }
        Ordering::Equal => ok("schema", format!("version {have}")),
    };
    let now = here.clock.wall();
    let attention = &found.attention;
    let overdue = attention.oldest_due_at.filter(|due| *due <= now).map(|due| now.since(due));
    let mut all = vec![integrity, references, journal, version];
    all.extend(sealed_by(here, found));
    all.extend(found.pii_stated.map(|is_stated| health::personal_data(is_stated).into()));
    all.push(health::due(overdue).into());
    all.push(health::dead_letters(attention.dead_letters).into());
    all.push(health::quarantined(attention.quarantined).into());
    all.push(health::subscriptions(&attention.holds).into());
    all.push(health::in_doubt(attention.window, attention.in_doubt, now).into());
    all.push(health::duties(&attention.chores, now).into());
    all
}

/// Whether the present key sealed the secrets.
fn sealed_by(here: &Installation, found: &Findings) -> Option<Finding> {
    let want = found.key_id.as_ref()?;
    let have = master_key::find(&here.settings).ok()??.key.key_id();
    Some(if *want == have {
        ok("key_matches", "the key opens the secrets of this database")
    } else {
        let detail = format!("the secrets were sealed with key {want}, the key there is {have}");
        fail("key_matches", format!("{detail}: put the right one there"))
    })
}

fn log(here: &Installation, path: &Path) -> Finding {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    let size = std::fs::metadata(PathBuf::from(name)).map_or(0, |meta| meta.len());
    if here.fix && !here.served && size > 0 {
        return match schema::empty_log(path) {
            Ok(()) => {
                let fixed = Some(format!("emptied {} into the database", bytes(size)));
                Finding { fixed, ..ok("log", "empty") }
            }
            Err(error) => warn("log", format!("could not be emptied: {error}")),
        };
    }
    let total = Gauge::machine().look(here.settings.directory()).map_or(u64::MAX, |at| at.total);
    if size < Budget::log_of(total).saturating_mul(LOG_TIMES) {
        return ok("log", bytes(size));
    }
    let readers = readers(path);
    let detail = if readers.is_empty() {
        format!("{}, and no other program reads it: start the service, or --fix", bytes(size))
    } else {
        format!("{}, because {} reads it: end that transaction", bytes(size), readers.join(", "))
    };
    warn("log", detail)
}

/// The other programs that read the database in a transaction now.
fn readers(path: &Path) -> Vec<String> {
    let mut index = path.as_os_str().to_owned();
    index.push("-shm");
    let own = std::env::current_exe().unwrap_or_default();
    let others = |id: &u32| {
        std::fs::read_link(format!("/proc/{id}/exe")).map_or(true, |program| program != own)
    };
    let found = locks::readers(Path::new(&index));
    as_started(|| found.into_iter().filter(others).map(locks::shown).collect())
}

/// Looks at other users' processes, which root may do.
fn as_started(look: impl FnOnce() -> Vec<String>) -> Vec<String> {
    user::in_directory(Path::new("/"), || Ok(look())).unwrap_or_default()
}

/// A program with an SQLite before 3.51.3 that writes the file can meet SQLite's WAL-reset fault, and
/// which SQLite a program brings cannot be seen from outside.
fn others(path: &Path) -> Finding {
    let own = std::env::current_exe().unwrap_or_default();
    let shown = |(id, program): (u32, PathBuf)| {
        let library = host::sqlite_library(id);
        let by = library.map_or_else(
            || "no SQLite library, so one that is built in".to_owned(),
            |library| library.display().to_string(),
        );
        format!("{} (process {id}, with {by})", program.display())
    };
    let is_foreign = |(_, program): &(u32, PathBuf)| *program != own;
    let foreign: Vec<String> =
        as_started(|| host::holders(path).into_iter().filter(is_foreign).map(shown).collect());
    if foreign.is_empty() {
        return ok("other_programs", "no other program has it open, as far as this user sees");
    }
    let detail = format!(
        "{} has it open: if its SQLite is older than 3.51.3 (sqlite_version()), it must set PRAGMA \
         wal_autocheckpoint=0",
        foreign.join(", ")
    );
    warn("other_programs", detail)
}

fn backup(here: &Installation) -> Finding {
    let settings = &here.settings;
    let now = here.clock.wall();
    let newest = files::newest_until(&settings.backup_directory(), manifest::ENDING, now);
    let age = newest.map(|at| now.since(at));
    if settings.backup.every.is_none() && age.is_none() {
        return warn("backup", "there is none, and none is made by the clock: set backup.every");
    }
    health::backup(settings.backup.every, age).into()
}
