//! The data directory: who may open what, the master key, and the file system below.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::app::data_directory::{ADDRESS_FILE, DATABASE, TOKEN_FILE};
use crate::cli::doctor::{Finding, Installation, fail, ok, warn};
use crate::keys::file::{self, KeyFileError};
use crate::model::disk::{Budget, Room};
use crate::model::health;
use crate::sys::disk::Gauge;
use crate::sys::host::{self, Access};
use crate::sys::{files, user};

pub(super) fn look(here: &Installation) -> Vec<Finding> {
    let directory = here.settings.directory();
    if !directory.is_dir() {
        return vec![missing(here, directory)];
    }
    let shared = here.settings.database.group.is_some();
    let (directory_mode, file_mode) = if shared { (0o2770, 0o660) } else { (0o700, 0o600) };
    let mut findings = vec![mode(here, "directory", directory, directory_mode)];
    let database = directory.join(DATABASE);
    for (name, path, allowed) in
        [("database_mode", database, file_mode), ("token_mode", directory.join(TOKEN_FILE), 0o600)]
    {
        if path.exists() {
            findings.push(mode(here, name, &path, allowed));
        }
    }
    findings.push(key(here));
    findings.push(file_system(directory));
    findings.push(room(here, directory));
    findings.extend(address(here, directory));
    findings
}

fn missing(here: &Installation, directory: &Path) -> Finding {
    let made = here.fix.then(|| {
        let made = fs::DirBuilder::new().recursive(true).create(directory);
        made.and_then(|()| fs::set_permissions(directory, Permissions::from_mode(0o700)))
    });
    match made {
        Some(Ok(())) => Finding {
            fixed: Some(format!("made {}", directory.display())),
            ..ok("directory", "there is one now")
        },
        Some(Err(error)) => fail("directory", format!("{}: {error}", directory.display())),
        None => {
            let detail = format!("{} is missing: start the service, or --fix", directory.display());
            fail("directory", detail)
        }
    }
}

/// A mode that lets more in than it should.
fn mode(here: &Installation, name: &'static str, path: &Path, allowed: u32) -> Finding {
    let Some(Access { mode, owner }) = host::access(path) else {
        return fail(name, format!("{} cannot be looked at", path.display()));
    };
    let shown = format!("{} has mode {mode:03o}, owner {owner}", path.display());
    if (mode & 0o777) | allowed == allowed {
        return ok(name, shown);
    }
    if here.fix && files::set_mode(path, allowed).is_ok() {
        let fixed = Some(format!("mode {mode:03o} to {allowed:03o}"));
        return Finding { fixed, ..ok(name, format!("{} is closed to others", path.display())) };
    }
    // Others who may only look into the directory see names; the files in it are closed to them.
    let harmless = path.is_dir() && mode & 0o022 & !allowed == 0;
    let verdict = if harmless { warn } else { fail };
    verdict(
        name,
        format!("{shown}: others get in: chmod {allowed:03o} {}, or --fix", path.display()),
    )
}

fn key(here: &Installation) -> Finding {
    if !here.settings.keys.command.is_empty() {
        return ok("key", "the program in keys.command gives it");
    }
    let path = here.settings.master_key_file();
    let found = user::in_directory(files::directory_of(&path), || Ok(host::access(&path)));
    let found = found.unwrap_or_default();
    if found.is_none() && !path.exists() {
        let database = here.database();
        if database.exists() {
            let detail = format!(
                "{} is missing: put it back, or name the one there is (keys.master_key_file); without it no \
                 secret opens",
                path.display()
            );
            return warn("key", detail);
        }
        return ok("key", "none yet: the first start makes it");
    }
    if let Some(Access { mode, .. }) = found
        && mode & 0o077 != 0
    {
        return self::mode(here, "key", &path, 0o600);
    }
    match file::read(&path) {
        Ok(key) => ok("key", format!("{} can be read: key {}", path.display(), key.key_id())),
        // A key that does not lie in the service's directory is handed to it by its unit, as a credential.
        Err(KeyFileError::File { path, source })
            if source.kind() == ErrorKind::PermissionDenied
                && user::starter() != 0
                && !path.starts_with(here.settings.directory()) =>
        {
            let path = path.display();
            ok("key", format!("{path} is closed to this user, as it should be; root can check it"))
        }
        Err(error) => fail("key", error.to_string()),
    }
}

fn file_system(directory: &Path) -> Finding {
    match host::network_file_system(directory) {
        Ok(None) => ok("file_system", "lies on this machine"),
        Ok(Some(kind)) => {
            let detail = format!(
                "lies on {kind}: SQLite cannot rely on its locks there; move it to a disk of this machine"
            );
            fail("file_system", detail)
        }
        Err(error) => warn("file_system", format!("cannot be looked at: {error}")),
    }
}

fn room(here: &Installation, directory: &Path) -> Finding {
    let budget = Budget { reserve: here.settings.disk.reserve };
    let space = Gauge::machine().look(directory).ok();
    let room = space.map_or(Room::Enough, |space| budget.judge(Room::Enough, space));
    health::disk(room, space, budget.reserve_of(space.map_or(0, |space| space.total))).into()
}

/// An address that a killed service left behind sends the commands astray.
fn address(here: &Installation, directory: &Path) -> Option<Finding> {
    let path = directory.join(ADDRESS_FILE);
    if here.served || !path.exists() {
        return None;
    }
    if here.fix && fs::remove_file(&path).is_ok() {
        let fixed = Some(format!("removed {}", path.display()));
        return Some(Finding { fixed, ..ok("address", "no stale address") });
    }
    let detail = format!("{} is left over from a service that was killed: --fix", path.display());
    Some(warn("address", detail))
}
