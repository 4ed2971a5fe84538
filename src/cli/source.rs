//! `oncebox source`: the database tables and folders that events are read from.
//!
//! Not here: the validation of settings, which the API does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::cli::exit::{self, Failure};
use crate::cli::input::{is_packaged, millis, object, pair};
use crate::cli::noun::{self, DeleteArgs, Listing, NameArg, Noun, Verbs};
use crate::cli::out;
use crate::cli::remote::{ConnectArgs, Remote};
use crate::cli::shared::Shared;
use crate::cli::show::Cell::{By, Instant, Minute, Text};
use crate::cli::show::text;

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Sources with their cursors and errors
    List(Listing),
    /// Add a source and start reading it
    Add(Box<Add>),
    /// One source
    Show(NameArg),
    /// Check whether a source can be read and is set up correctly; nothing is copied
    Test(NameArg),
    /// Print the SQL for an ERP: the outbox table, its index, its grants and an example trigger
    Ddl(Ddl),
    /// Delete a source; its events stay
    #[command(visible_alias = "delete")]
    Remove(DeleteArgs),
    /// Stop reading a source until it is resumed
    Pause(NameArg),
    /// Continue reading where it stopped
    Resume(NameArg),
    /// Set the position to read from, after its file was replaced or restored
    Reset {
        /// Its name
        name: String,
        #[command(flatten)]
        to: ResetPosition,
    },
}

#[derive(Debug, Args, Serialize)]
pub(super) struct Add {
    /// 1 to 63 characters of a-z, 0-9 and -; also the `source_system` of its events
    #[serde(skip)]
    name: String,
    #[command(flatten)]
    #[serde(skip)]
    location: Location,
    /// The table [default: outbox]
    #[arg(long, value_name = "TABLE", requires = "sqlite")]
    table: Option<String>,
    /// Its column that is INTEGER PRIMARY KEY AUTOINCREMENT [default: id]
    #[arg(long, value_name = "COLUMN", requires = "sqlite")]
    id: Option<String>,
    /// A column whose name differs from its field: `event_type=kind`
    #[arg(long = "column", value_name = "FIELD=COLUMN", value_parser = pair, requires = "sqlite")]
    #[serde(serialize_with = "as_map")]
    columns: Vec<(String, String)>,
    /// The format of the folder's files [default: by their ending]
    #[arg(long, value_parser = ["auto", "json", "ndjson", "csv", "xml"], requires = "drop")]
    format: Option<String>,
    /// How a file is known to be complete: renamed from .tmp, a .done file beside it, or it no longer changes
    #[arg(long, value_parser = ["rename", "done", "stable"], requires = "drop")]
    writer: Option<String>,
    /// A column, member or path of elements whose name differs from its field: `event_type=Kind`
    #[arg(long = "field", value_name = "FIELD=NAME", value_parser = pair, requires = "drop")]
    #[serde(serialize_with = "as_map")]
    fields: Vec<(String, String)>,
    /// For XML: the path of the elements that are rows: Orders/Order
    #[arg(long, value_name = "PATH", requires = "drop")]
    row: Option<String>,
    /// For CSV: the separator [default: ,]
    #[arg(long, value_name = "CHAR", requires = "drop")]
    delimiter: Option<char>,
    /// Days that files stay in the folder done; 0: for ever [default: 30]
    #[arg(long, value_name = "DAYS", requires = "drop")]
    done_days: Option<u32>,
    /// Default value of a field that a row does not have: `event_type=invoice.created`
    #[arg(long = "default", value_name = "FIELD=VALUE", value_parser = pair)]
    #[serde(serialize_with = "as_map")]
    defaults: Vec<(String, String)>,
    /// Where reading begins: at the first existing row (start), or after the last (now)
    #[arg(long, default_value = "start", value_parser = ["start", "now"], requires = "sqlite")]
    #[serde(skip)]
    from: String,
    /// Escalate when no event came for this long, such as 24h
    #[arg(long = "silent-after", value_name = "SPAN", value_parser = millis)]
    #[serde(skip)]
    silent_after_ms: Option<u64>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Location {
    /// The ERP's SQLite file; Oncebox only reads it
    #[arg(long, value_name = "FILE")]
    sqlite: Option<PathBuf>,
    /// A folder that receives files: JSON, NDJSON, CSV or XML
    #[arg(long, value_name = "DIR")]
    drop: Option<PathBuf>,
    /// Kind and settings as JSON, as the API takes them: `{"kind":"sqlite","settings":{…}}`
    #[arg(long, value_name = "JSON")]
    settings: Option<String>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct ResetPosition {
    /// After the row with this id
    #[arg(long, value_name = "ID")]
    cursor: Option<u64>,
    /// From the first existing row; events with a known key are not stored again
    #[arg(long)]
    from_start: bool,
    /// Only rows that are added from now on
    #[arg(long)]
    from_now: bool,
}

/// Arguments of `source ddl`.
#[derive(Debug, Args)]
pub(super) struct Ddl {
    /// The ERP's database. This version reads only sqlite; the others are for a later ODBC source
    #[arg(value_enum)]
    database: Database,
    /// Name of the table
    #[arg(long, default_value = "outbox", value_name = "TABLE", value_parser = identifier)]
    table: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Database {
    Sqlite,
    Postgresql,
    Mariadb,
    Sqlserver,
}

const SOURCES: Noun = Noun {
    path: "/v1/sources",
    one: "Source",
    many: "sources",
    time: Some("created_at"),
    columns: &[
        ("NAME", 0, Text("name")),
        ("KIND", 2, Text("kind")),
        ("STATE", 1, By(state)),
        ("CURSOR", 3, Text("cursor")),
        ("LAG", 1, Text("lag")),
        ("EVENTS", 2, Text("event_count")),
        ("LAST EVENT (UTC)", 2, Minute("last_event_at")),
        ("ERROR", 1, By(error)),
    ],
    fields: &[
        ("kind", Text("kind")),
        ("settings", Text("settings")),
        ("state", By(state)),
        ("error", By(error)),
        ("since", Instant("failing_since")),
        ("cursor", Text("cursor")),
        ("lag", By(lag)),
        ("events", Text("event_count")),
        ("last event", Instant("last_event_at")),
        ("last read", Instant("last_read_at")),
        ("silent after", By(silent_after)),
        ("created", Instant("created_at")),
    ],
};

impl Verbs for Verb {
    fn run(&self, connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
        if let Self::Ddl(ddl) = self {
            return ddl.print();
        }
        let remote = connect.open(shared)?;
        match self {
            Self::List(listing) => SOURCES.list(&remote, listing, &()),
            Self::Add(add) => add.run(&remote),
            Self::Show(NameArg { name }) => SOURCES.show(&remote, name),
            Self::Test(NameArg { name }) => test(&remote, name),
            Self::Ddl(ddl) => ddl.print(),
            Self::Remove(args) => SOURCES.delete(&remote, args, "; its events stay"),
            Self::Pause(NameArg { name }) => SOURCES.act(&remote, name, "pause", None),
            Self::Resume(NameArg { name }) => SOURCES.act(&remote, name, "resume", None),
            Self::Reset { name, to } => {
                let body = match to.cursor {
                    Some(cursor) => json!({ "cursor": cursor }),
                    None => json!({ "from": if to.from_start { "start" } else { "now" } }),
                };
                SOURCES.act(&remote, name, "reset", Some(&body))
            }
        }
    }
}

impl Add {
    fn run(&self, remote: &Remote) -> Result<(), Failure> {
        let name = &self.name;
        let made = remote.post(SOURCES.path, Some(&self.body()?)).map_err(|failure| {
            if failure.code != exit::CONFLICT {
                return failure;
            }
            failure.and(format_args!(
                "See oncebox source show {name}. To change its settings, use oncebox apply, which keeps the cursor; \
                 or oncebox source remove {name}, and add it again."
            ))
        })?;
        SOURCES.print(remote, &made)?;
        if remote.json() {
            return Ok(());
        }
        test(remote, name).map_err(|failure| {
            failure.and(format_args!(
                "The source was added, and is read once the error is repaired. To start over: oncebox source \
                 remove {name}, and add it again."
            ))
        })
    }

    fn body(&self) -> Result<Value, Failure> {
        let Location { sqlite, drop, settings } = &self.location;
        let mut body = if let Some(given) = settings {
            object("--settings", given)?
        } else {
            let mut settings = noun::body(self);
            if let Some(path) = sqlite.as_ref().or(drop.as_ref()) {
                settings.insert("path".to_owned(), absolute(path)?.into());
            }
            let from = sqlite.as_ref().map(|_file| &self.from);
            let kind = if from.is_some() { "sqlite" } else { "drop" };
            noun::body(&json!({ "kind": kind, "settings": settings, "from": from }))
        };
        body.insert("name".to_owned(), self.name.as_str().into());
        body.extend(self.silent_after_ms.map(|ms| ("silent_after_ms".to_owned(), ms.into())));
        Ok(Value::Object(body))
    }
}

impl Ddl {
    fn print(&self) -> Result<(), Failure> {
        let text = match self.database {
            Database::Sqlite => include_str!("ddl/sqlite.sql"),
            Database::Postgresql => include_str!("ddl/postgresql.sql"),
            Database::Mariadb => include_str!("ddl/mariadb.sql"),
            Database::Sqlserver => include_str!("ddl/sqlserver.sql"),
        };
        out::bytes(text.replace("{table}", &self.table).as_bytes())
    }
}

/// Accepts a name that needs no quotes in any database.
fn identifier(text: &str) -> Result<String, String> {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if starts && plain && text.len() <= 63 {
        return Ok(text.to_owned());
    }
    Err("use up to 63 letters, digits and _, beginning with a letter".to_owned())
}

fn as_map<S: Serializer>(pairs: &[(String, String)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

/// Makes a path absolute, because the service may run in another directory.
fn absolute(path: &Path) -> Result<String, Failure> {
    let shown = path.display();
    let absolute =
        std::path::absolute(path).map_err(|error| Failure::input(format!("{shown}: {error}")))?;
    let text = absolute.into_os_string().into_string();
    text.map_err(|_bytes| Failure::input(format!("{shown}: the path must be UTF-8")))
}

/// Prints the checks of a source; fails if one of them fails.
fn test(remote: &Remote, name: &str) -> Result<(), Failure> {
    let found = remote.get(&format!("{}/test", SOURCES.at(name)))?;
    if remote.json() {
        out::json(&found)?;
    } else {
        for check in found.get("checks").and_then(Value::as_array).into_iter().flatten() {
            let (state, name) = (text(check, "state"), text(check, "name"));
            out::line(format_args!("  {state:<4}  {name:<9}  {}", text(check, "detail")))?;
        }
    }
    if found.get("ok").and_then(Value::as_bool) == Some(true) {
        return Ok(());
    }
    let failure = Failure::failed(format!("{name} cannot be read"));
    let source = remote.get(&SOURCES.at(name))?;
    let path = source.get("settings").map(|settings| text(settings, "path")).unwrap_or_default();
    let path = Path::new(&path);
    if path.starts_with(remote.settings().directory()) || !is_packaged(remote.settings()) {
        return Err(failure);
    }
    let lines = unit_lines(path, text(&source, "kind") == "drop");
    Err(failure.and(format_args!(
        "The systemd unit may block this path. To allow it: systemctl edit oncebox, with these lines:\n\n\
         {lines}\n\nThen: systemctl restart oncebox. The user oncebox also needs permission for the file."
    )))
}

/// The lines of a unit drop-in that allow a folder, or the folder of a file: SQLite creates files beside its file.
fn unit_lines(path: &Path, is_folder: bool) -> String {
    let folder = if is_folder { Some(path) } else { path.parent() };
    let folder = folder.unwrap_or(path).display();
    // ReadWritePaths= does not open a path that ProtectHome= hides.
    let hidden = ["/home", "/root", "/run/user"].iter().any(|home| path.starts_with(home));
    let open = if hidden { "ProtectHome=tmpfs\nBindPaths" } else { "ReadWritePaths" };
    let shared = if is_folder { "" } else { "\nUMask=0007" };
    format!("[Service]\n{open}=-{folder}{shared}")
}

fn state(source: &Value) -> String {
    let state = text(source, "state");
    if text(source, "last_error").is_empty() { state } else { format!("{state}, failing") }
}

/// The lag; an unknown lag is not shown as 0.
fn lag(source: &Value) -> String {
    let lag = text(source, "lag");
    if lag.is_empty() { "unknown while it is not read".to_owned() } else { lag }
}

fn error(source: &Value) -> String {
    let error = text(source, "last_error");
    match text(source, "waits_for") {
        waits if error.is_empty() && !waits.is_empty() => format!("waits for {waits}"),
        _ => error,
    }
}

fn silent_after(source: &Value) -> String {
    let ms = source.get("silent_after_ms").and_then(Value::as_u64);
    let span = ms.map(|ms| humantime::format_duration(Duration::from_millis(ms)).to_string());
    span.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_lines_allow_the_folder() {
        let is = |path: &str, is_folder, lines: &str| {
            assert_eq!(unit_lines(Path::new(path), is_folder), format!("[Service]\n{lines}"));
        };
        is("/srv/erp/out", true, "ReadWritePaths=-/srv/erp/out");
        is("/home/erp/out", true, "ProtectHome=tmpfs\nBindPaths=-/home/erp/out");
        is("/srv/erp/erp.db", false, "ReadWritePaths=-/srv/erp\nUMask=0007");
    }
}
