//! `oncebox backup`: copies the database, and verifies and lists the copies.
//!
//! It reads the files without the API, so it works whether the service runs or not.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};

use crate::app::data_directory::DATABASE;
use crate::backup::manifest::{ENDING, Manifest, Reason};
use crate::backup::months::MonthCopy;
use crate::backup::online::{self, Plan};
use crate::backup::retention::{self, BackupFile};
use crate::backup::store::{Facts, Progress};
use crate::backup::{Bytes, Error};
use crate::base::clock::Clock;
use crate::base::faults::Faults;
use crate::cli::noun::{Listing, LocalRows};
use crate::cli::prelude::*;
use crate::store::error::Error as StoreError;
use crate::sys::files::directory_of;
use crate::sys::host::stop_flag;
use crate::sys::user;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub(super) struct Backup {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[arg(help = "Destination: a directory, or the name of a new file")]
    dest: Option<PathBuf>,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Read backups completely and compare them with their manifests
    Verify {
        /// Backups, or directories of backups
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// List the backups in a directory, newest first
    List {
        /// Directory
        directory: PathBuf,
        #[command(flatten)]
        listing: Listing,
    },
}

const COLUMNS: Columns = Columns {
    columns: &[
        column("FILE", 0, "file"),
        column("MADE (UTC)", 0, "created_at"),
        column("REASON", 2, "reason"),
        column("SIZE", 1, "size"),
        column("MONTHS", 2, "months"),
        column("SCHEMA", 2, "schema_version"),
        column("MASTER KEY", 3, "master_key_id"),
    ],
    by: &[("size", size), ("months", month_cell)],
};

fn size(manifest: &Value) -> String {
    Bytes(manifest.get("bytes").and_then(Value::as_u64).unwrap_or(0)).to_string()
}

fn month_cell(manifest: &Value) -> String {
    let copies = manifest.get("months").cloned().map(serde_json::from_value::<Vec<MonthCopy>>);
    copies.and_then(Result::ok).map_or_else(String::new, |copies| months_of(&copies))
}

/// How many months there are, and their size.
pub(super) fn months_of(copies: &[MonthCopy]) -> String {
    let bytes = Bytes(copies.iter().map(|copy| copy.bytes).sum());
    match copies.len() {
        0 => "none".to_owned(),
        count => format!("{count} ({bytes})"),
    }
}

/// The exit code for a backup error.
pub(super) fn failure(error: Error) -> Failure {
    let code = match &error {
        Error::Exists(_) | Error::DatabaseThere(_) => exit::CONFLICT,
        Error::Busy(_) | Error::Store(StoreError::Busy) => exit::TEMPORARY,
        Error::NoMonth(..) => exit::NOT_FOUND,
        Error::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            exit::NOT_FOUND
        }
        Error::File { source, .. } | Error::Erasures { source, .. }
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            exit::NOT_PERMITTED
        }
        Error::Manifest { .. }
        | Error::Damaged { .. }
        | Error::NotAlone { .. }
        | Error::Store(StoreError::Damaged { .. }) => exit::BAD_INPUT,
        Error::Key { .. } => exit::BAD_CONFIGURATION,
        _ => exit::FAILED,
    };
    Failure::new(code, error)
}

impl Backup {
    pub(super) fn run(&self, global: &GlobalArgs) -> Result<(), Failure> {
        match (&self.verb, &self.dest) {
            (Some(Verb::Verify { files }), _) => verify(files),
            (Some(Verb::List { directory, listing }), _) => self.list(directory, listing),
            (None, Some(dest)) => self.take(global, dest),
            (None, None) => Err(Failure::usage("give a destination, or verify, or list")),
        }
    }

    fn take(&self, global: &GlobalArgs, dest: &Path) -> Result<(), Failure> {
        let settings = global.settings()?;
        let now = Clock::machine().wall();
        let to = online::destination(dest, now);
        let database = settings.directory().join(DATABASE);
        // In a directory of the service's user, root continues as that user: the backup is the user's, and no link there
        // leads it elsewhere.
        let directory = directory_of(&to);
        user::become_owner_of(directory).map_err(|source| {
            let path = directory.to_owned();
            failure(Error::File { path, source })
        })?;
        let plan = Plan { database, to, reason: Reason::Asked, now, faults: Faults::none() };
        let stopped = stop_flag().map_err(Failure::failed)?;
        let bar = bar()?;
        let taken = online::take(&plan, &mut |Progress { done, all }| {
            bar.set_length(all);
            bar.set_position(done);
            !stopped.load(Ordering::Relaxed)
        });
        bar.finish_and_clear();
        if stopped.load(Ordering::Relaxed) {
            return Err(Failure::failed("interrupted; the incomplete backup was removed"));
        }
        let manifest = taken.map_err(failure)?;
        if self.format.json {
            return out::json(&shown(&manifest)?);
        }
        let size = Bytes(manifest.bytes);
        let key = manifest.facts.master_key_id.as_deref();
        out::line(format_args!("{}: {size}, read back and verified", plan.to.display()))?;
        let months = months_of(&manifest.months.unwrap_or_default());
        out::line(format_args!("months of archive and audit: {months}"))?;
        out::note(format_args!(
            "The backup does not have the master key ({}): keep a copy of the key elsewhere.",
            key.unwrap_or("none yet")
        ));
        Ok(())
    }

    fn list(&self, directory: &Path, listing: &Listing) -> Result<(), Failure> {
        let kept = retention::list(directory).map_err(failure)?;
        let rows = kept.iter().map(|BackupFile { manifest, .. }| shown(manifest));
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        let rows = LocalRows { rows, id_field: "file", time_field: "created_at" };
        let what = format!("backups in {}", directory.display());
        listing.print(COLUMNS, &what, rows, self.format.json)
    }
}

/// A progress bar on a terminal; hidden elsewhere.
pub(super) fn bar() -> Result<ProgressBar, Failure> {
    if !std::io::stderr().is_terminal() {
        return Ok(ProgressBar::hidden());
    }
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {eta} left");
    Ok(ProgressBar::new(0).with_style(style.map_err(Failure::failed)?))
}

fn shown(manifest: &Manifest) -> Result<Value, Failure> {
    serde_json::to_value(manifest).map_err(Failure::failed)
}

fn verify(files: &[PathBuf]) -> Result<(), Failure> {
    let mut named = Vec::new();
    for file in files {
        if file.is_dir() {
            // All `.db` files, because the list leaves out a backup with a damaged manifest.
            let entries =
                std::fs::read_dir(file).map_err(|error| input::unreadable(file, &error))?;
            let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
            let mut found: Vec<PathBuf> = paths
                .filter(|path| path.extension().is_some_and(|ending| ending == "db"))
                .collect();
            found.sort();
            named.extend(found);
        } else if !file.to_string_lossy().ends_with(ENDING) {
            // A shell's `*` also names the manifests; each is read with its backup.
            named.push(file.clone());
        }
    }
    if named.is_empty() {
        return Err(Failure::new(exit::NOT_FOUND, "no backup found"));
    }
    let mut first = None;
    let mut read = BTreeSet::new();
    for file in &named {
        let verify = || Ok(online::verify_next(file, &mut read));
        match user::in_directory(directory_of(file), verify) {
            Err(error) => return Err(input::unreadable(file, &error)),
            Ok(Ok(manifest)) => {
                let Manifest { created_at, facts, months, .. } = manifest;
                let months = months_of(&months.unwrap_or_default());
                let Facts { schema_version, master_key_id, .. } = facts;
                let key = master_key_id.as_deref().unwrap_or("none");
                out::line(format_args!(
                    "{}: valid; made {created_at}, schema {schema_version}, master key {key}, months {months}",
                    file.display()
                ))?;
            }
            Ok(Err(error)) => {
                let failure = failure(error);
                out::note(&failure.message);
                first.get_or_insert(failure.code);
            }
        }
    }
    first.map_or(Ok(()), |code| Err(Failure::new(code, "some backups are not valid; see above")))
}
