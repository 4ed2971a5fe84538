//! Looking a source over for a person, without copying anything: does it suit, and where does it end?

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::config::Settings;
use crate::model::health::{Check, Level};
use crate::model::tenant::DEFAULT;
use crate::sources::folder_reader::{odd, unnamed};
use crate::sources::folder_settings::{REASON_ENDING, is_candidate};
use crate::sources::table_settings::TableSettings;
use crate::sources::tables::foreign::{Foreign, ForeignError};
use crate::sources::{Settings as SourceSettings, Source};
use crate::sys::files::{self, Directory, Kind};

/// The last row there is.
pub fn last_row(settings: &Settings, tenant: &str, source: &SourceSettings) -> Result<i64, String> {
    let place = permitted(settings, tenant, source.path())?;
    let highest = |table: &TableSettings| -> Result<i64, ForeignError> {
        let mut foreign = Foreign::open(table)?;
        Ok(foreign.look(i64::MAX, 0, 0)?.found.highest)
    };
    match source.at(place) {
        SourceSettings::Sqlite(table) => highest(&table).map_err(|error| error.to_string()),
        SourceSettings::Drop(_) => Ok(0),
    }
}

/// Everything there is to say about it.
pub fn checks(settings: &Settings, source: &Source) -> Vec<Check> {
    let new = &source.new;
    let place = match permitted(settings, &new.tenant, new.settings.path()) {
        Ok(place) => place,
        Err(why) => return vec![check("path", Level::Fail, why)],
    };
    match new.settings.at(place) {
        SourceSettings::Sqlite(table) => of_table(&table, new.cursor),
        SourceSettings::Drop(folder) => of_folder(&folder.path),
    }
}

fn check(name: &'static str, level: Level, detail: impl Into<String>) -> Check {
    Check::new(name, level, Value::Null, detail)
}

fn of_folder(path: &Path) -> Vec<Check> {
    let opened = Directory::open(path).and_then(|folder| Ok((folder.names()?, folder)));
    let (names, folder) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let why = format!("{} cannot be listed: {error}", path.display());
            return vec![check("folder", Level::Fail, why)];
        }
    };
    let listed = &names.usable;
    let candidates = || listed.iter().filter(|name| is_candidate(name));
    let waiting = candidates().filter(|name| folder.kind(name) == Some(Kind::File)).count();
    let mut checks = vec![check("folder", Level::Ok, format!("{waiting} files wait in it"))];
    let odd = candidates().find_map(|name| Some((name, odd(folder.kind(name))?)));
    if let Some((name, why)) = odd {
        checks.push(check("odd", Level::Warn, format!("{name} {why}")));
    }
    if let Some(why) = unnamed(&names) {
        checks.push(check("name", Level::Warn, why));
    }
    // What was refused stands nowhere else: it waits for a person, however long.
    let refused = Directory::open(&path.join("rejected")).and_then(|rejected| rejected.names());
    let refused = refused.unwrap_or_default().usable;
    let refused = refused.iter().filter(|name| name.ends_with(REASON_ENDING)).count();
    if refused > 0 {
        let detail =
            format!("{refused} files lie in rejected with their reasons: mend or delete them");
        checks.push(check("rejected", Level::Warn, detail));
    }
    let before = checks.len();
    for place in [path.to_owned(), path.join("done"), path.join("rejected")] {
        let shown = place.display();
        if place.exists() && !files::may_write(&place) {
            let why = format!("{shown} cannot be written by the service, which moves files there");
            checks.push(check("writable", Level::Fail, why));
        }
    }
    if checks.len() == before {
        checks.push(check("writable", Level::Ok, "files can be moved to done and rejected"));
    }
    checks
}

fn of_table(table: &TableSettings, cursor: i64) -> Vec<Check> {
    let mut checks = vec![directory(&table.path)];
    let mut foreign = match Foreign::open(table) {
        Ok(foreign) => foreign,
        Err(error) => {
            checks.push(check("table", Level::Fail, error.to_string()));
            return checks;
        }
    };
    let fields: Vec<&str> = foreign.fields().iter().map(|field| field.as_str()).collect();
    let detail = format!("{} suits; fields: {}", table.table, fields.join(", "));
    checks.push(check("table", Level::Ok, detail));
    checks.push(match foreign.journal_mode().as_deref() {
        Ok("wal") => check("journal", Level::Ok, "wal: nobody waits for anybody"),
        Ok(mode) => check(
            "journal",
            Level::Warn,
            format!(
                "{mode}: while rows are read the ERP's commits wait, and the other way round. Better: \
                 PRAGMA journal_mode = WAL in the ERP's file"
            ),
        ),
        Err(error) => check("journal", Level::Fail, error.to_string()),
    });
    checks.push(match foreign.look(cursor, 1, 0) {
        Ok(look) => {
            let highest = look.found.highest;
            let level = if highest < cursor { Level::Warn } else { Level::Ok };
            check("rows", level, format!("the last id is {highest}, copied up to {cursor}"))
        }
        Err(error) => check("rows", Level::Fail, error.to_string()),
    });
    checks
}

/// `SQLite` keeps `-shm` and `-wal` beside the file. The first program that opens it makes them, so both sides need to
/// be able to.
fn directory(file: &Path) -> Check {
    let directory = file.parent().unwrap_or(file);
    let shown = directory.display();
    if !files::may_write(directory) {
        return check(
            "directory",
            Level::Fail,
            format!(
                "{shown} cannot be written by the service: SQLite makes the file's -shm and -wal \
                 there. Give the service the ERP's group (usermod -aG), and the directory the mode 2770"
            ),
        );
    }
    let set_group = std::fs::metadata(directory).is_ok_and(|meta| meta.mode() & 0o2000 != 0);
    let shared = std::fs::metadata(file).is_ok_and(|meta| meta.mode() & 0o060 == 0o060);
    if files::is_root() || (set_group && shared) {
        return check("directory", Level::Ok, format!("{shown} can be written"));
    }
    check(
        "directory",
        Level::Warn,
        format!(
            "{shown} can be written, but a -shm or -wal that the service makes first may be closed to \
             the ERP: let both be in one group, chmod g+s the directory and chmod 660 the file"
        ),
    )
}

/// Whether a tenant's source may lie there, and where that is once every link is followed. The service reads it
/// with its own rights: what is not the tenant's must not be reached by its name. A link can be put there at any
/// time: what is opened is the place that this returns, and it is asked again before each reading.
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
