//! Checks a source for a person, without copying anything: whether it can be read, and its last row.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::config::{self, Settings};
use crate::databases::database::Databases;
use crate::model::health::{Check, Level};
use crate::pipeline::receive::Receive;
use crate::sources::database_connection::{Connected, take};
use crate::sources::database_settings::{DatabaseSettings, Mode};
use crate::sources::database_state::Position;
use crate::sources::folder_reader::{unusable_name, why_not_read};
use crate::sources::folder_settings::{REASON_ENDING, is_candidate};
use crate::sources::http_client::{
    ListClient, ListReader, MAX_PAGE_BYTES, NoPage, TIMEOUT, WantedPage,
};
use crate::sources::http_round::ListRound;
use crate::sources::http_settings::HttpSettings;
use crate::sources::shared::SourceError;
use crate::sources::table_settings::TableSettings;
use crate::sources::tables::foreign::Foreign;
use crate::sources::tables::remote::RemoteTable;
use crate::sources::{Settings as SourceSettings, Source};
use crate::sys::files::{self, Directory, EntryKind};

/// The id of the last row.
pub fn last_row(settings: &Settings, tenant: &str, source: &SourceSettings) -> Result<i64, String> {
    let Some(path) = source.path() else { return Ok(0) };
    let path = permitted(settings, tenant, path)?;
    let SourceSettings::Sqlite(table) = source.at(path) else { return Ok(0) };
    let read = Foreign::open(&table).and_then(|mut foreign| foreign.read(i64::MAX, 0, 0));
    Ok(read.map_err(|error| error.why)?.table.highest)
}

/// All checks of a source.
pub fn checks(settings: &Settings, databases: &Databases, source: &Source) -> Vec<Check> {
    let new = &source.new;
    if let SourceSettings::Database(database) = &new.settings {
        return of_database(databases, &new.tenant, database);
    }
    let Some(path) = new.settings.path() else { return Vec::new() };
    let path = match permitted(settings, &new.tenant, path) {
        Ok(path) => path,
        Err(why) => return vec![check("path", Level::Fail, why)],
    };
    match new.settings.at(path) {
        SourceSettings::Sqlite(table) => of_table(&table, new.cursor),
        SourceSettings::Drop(folder) => of_folder(&folder.path),
        SourceSettings::Database(_) | SourceSettings::Http(_) => Vec::new(),
    }
}

/// The position after all transactions that have ended.
pub fn position_now(
    databases: &Databases,
    tenant: &str,
    settings: &DatabaseSettings,
) -> Result<Position, String> {
    if settings.mode != Mode::Xid8 {
        return Err(
            "from is only for sqlite and for the mode xid8: to leave out what is in the table, set taken_at of those rows \
             before the source is added."
                .to_owned(),
        );
    }
    let now = || {
        let Connected { product, mut lease } = take(databases, tenant, settings)?;
        RemoteTable::learn(&mut lease, product, settings)?.system(&mut lease)
    };
    let system = now()
        .map_err(|error: SourceError| format!("The database cannot be read: {}.", error.why))?;
    Ok(Position::before(&system))
}

/// All checks of a source that reads a list. Its first page is asked for.
pub fn of_list(
    lists: &ListClient,
    receive: &Receive,
    source: &Source,
    settings: &HttpSettings,
) -> Vec<Check> {
    let terms = match settings.terms() {
        Ok(terms) => terms,
        Err(why) => return vec![check("settings", Level::Fail, why)],
    };
    let mut checks = Vec::new();
    if let Some(name) = &settings.provider {
        checks.push(match receive.provider(&source.new.tenant, name.as_str()) {
            Ok(Some(_)) => check("provider", Level::Ok, format!("items are webhooks of {name}")),
            Ok(None) => {
                let detail = format!("there is no provider {name}: oncebox provider create {name}");
                check("provider", Level::Fail, detail)
            }
            Err(error) => check("provider", Level::Fail, error.to_string()),
        });
    }
    let now = lists.env.clock.wall();
    let round = ListRound::begin(source.new.cursor, settings.overlap(), now, None);
    let request = terms.request(None, round.since());
    let _share = lists.env.budget.take_own(MAX_PAGE_BYTES.saturating_mul(2));
    let wanted = WantedPage {
        reader: ListReader::source(source),
        terms: &terms,
        request: &request,
        most: MAX_PAGE_BYTES,
        timeout: TIMEOUT,
    };
    let page = match lists.fetch(&wanted, &mut Vec::new()) {
        Ok(page) => page,
        Err(error) => {
            // It waits, and nothing is wrong yet.
            let waits = matches!(error, NoPage::NoCredential(_));
            let level = if waits { Level::Warn } else { Level::Fail };
            checks.push(check("list", level, error.to_text()));
            return checks;
        }
    };
    checks.push(match terms.read(page.answered(None)) {
        Ok(page) => {
            let more =
                if page.next.is_some() { "there are more pages" } else { "it is the only page" };
            let count = page.items.len();
            check("list", Level::Ok, format!("{} answers {count} items; {more}", request.url))
        }
        Err(why) => check("list", Level::Fail, why),
    });
    checks
}

fn of_database(databases: &Databases, tenant: &str, settings: &DatabaseSettings) -> Vec<Check> {
    let Connected { product, mut lease } = match take(databases, tenant, settings) {
        Ok(connected) => connected,
        Err(error) => return vec![check("database", Level::Fail, error.why)],
    };
    let mut checks = vec![check(
        "database",
        Level::Ok,
        format!("{} answers; it is {product}", settings.database),
    )];
    let table = match RemoteTable::learn(&mut lease, product, settings) {
        Ok(table) => table,
        Err(error) => {
            checks.push(check("table", Level::Fail, error.why));
            return checks;
        }
    };
    let fields: Vec<&str> = table.fields().iter().map(|field| field.as_str()).collect();
    let detail = format!("{}; fields: {}", settings.table, fields.join(", "));
    checks.push(check("table", Level::Ok, detail));
    checks.push(match table.missing_grants(&mut lease) {
        Ok(missing) if missing.is_empty() => {
            check("grants", Level::Ok, format!("enough for the mode {}", settings.mode))
        }
        Ok(missing) => {
            let lines = missing.join(" ");
            check(
                "grants",
                Level::Fail,
                format!("rights are missing; run in the database: {lines}"),
            )
        }
        Err(error) => check("grants", Level::Fail, error.why),
    });
    checks
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
    let waiting = candidates().filter(|name| folder.kind(name) == Some(EntryKind::File)).count();
    let mut checks = vec![check("folder", Level::Ok, format!("{waiting} files wait in it"))];
    let unread = candidates().find_map(|name| Some((name, why_not_read(folder.kind(name))?)));
    if let Some((name, why)) = unread {
        checks.push(check("odd", Level::Warn, format!("{name} {why}")));
    }
    if let Some(why) = unusable_name(&names) {
        checks.push(check("name", Level::Warn, why));
    }
    // Refused files exist nowhere else, so they stay until a person handles them.
    let refused = Directory::open(&path.join("rejected")).and_then(|rejected| rejected.names());
    let refused = refused.unwrap_or_default().usable;
    let refused = refused.iter().filter(|name| name.ends_with(REASON_ENDING)).count();
    if refused > 0 {
        let detail =
            format!("{refused} files are in rejected with their reasons: correct or delete them");
        checks.push(check("rejected", Level::Warn, detail));
    }
    let before = checks.len();
    for directory in [path.to_owned(), path.join("done"), path.join("rejected")] {
        let shown = directory.display();
        if directory.exists() && !files::may_write(&directory) {
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
            checks.push(check("table", Level::Fail, error.why));
            return checks;
        }
    };
    let fields: Vec<&str> = foreign.fields().iter().map(|field| field.as_str()).collect();
    let detail = format!("{} can be read; fields: {}", table.table, fields.join(", "));
    checks.push(check("table", Level::Ok, detail));
    checks.push(match foreign.journal_mode().as_deref() {
        Ok("wal") => {
            check("journal", Level::Ok, "wal: readers and writers do not wait for each other")
        }
        Ok(mode) => check(
            "journal",
            Level::Warn,
            format!(
                "{mode}: reading rows and the ERP's commits wait for each other. Better: \
                 PRAGMA journal_mode = WAL in the ERP's file"
            ),
        ),
        Err(error) => check("journal", Level::Fail, error.why.as_str()),
    });
    checks.push(match foreign.read(cursor, 1, 0) {
        Ok(batch) => {
            let highest = batch.table.highest;
            let level = if highest < cursor { Level::Warn } else { Level::Ok };
            check("rows", level, format!("the last id is {highest}, copied up to {cursor}"))
        }
        Err(error) => check("rows", Level::Fail, error.why),
    });
    checks
}

/// Checks that both programs can write the file's directory: `SQLite` creates `-shm` and `-wal` there, and the program
/// that opens the file first creates them.
fn directory(file: &Path) -> Check {
    let directory = file.parent().unwrap_or(file);
    let shown = directory.display();
    if !files::may_write(directory) {
        return check(
            "directory",
            Level::Fail,
            format!(
                "{shown} cannot be written by the service: SQLite creates the file's -shm and -wal \
                 there. Give the service the ERP's group (usermod -aG), and the directory the mode 2770"
            ),
        );
    }
    let set_group = fs::metadata(directory).is_ok_and(|meta| meta.mode() & 0o2000 != 0);
    let shared = fs::metadata(file).is_ok_and(|meta| meta.mode() & 0o060 == 0o060);
    if files::is_root() || (set_group && shared) {
        return check("directory", Level::Ok, format!("{shown} can be written"));
    }
    check(
        "directory",
        Level::Warn,
        format!(
            "{shown} can be written, but the ERP may be unable to open a -shm or -wal that the service creates \
             first: put both in one group, chmod g+s the directory and chmod 660 the file"
        ),
    )
}

/// The path of a tenant's source with every link resolved, if the tenant may have a source there; else why not.
///
/// A link can appear at any time: the caller opens only the returned path, and calls this again before each read.
pub fn permitted(settings: &Settings, tenant: &str, path: &Path) -> Result<PathBuf, String> {
    config::permitted(settings, tenant, path, "sources")
}
