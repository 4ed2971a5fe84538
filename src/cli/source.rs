//! `oncebox source`: where events are read from besides the API.
//!
//! Not here: what a source may be set to, which the API decides; what its tables look like in SQL is in
//! [`super::ddl`].

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use crate::cli::ddl::Ddl;
use crate::cli::input::is_packaged;
use crate::cli::listing::{List, Paging};
use crate::cli::remote::{ConnectArgs, Remote, plain};
use crate::cli::show::{self, Column, instant, minute, text};
use crate::cli::{Failure, Shared, exit, out};

/// Where events are read from besides the API
#[derive(Debug, Args)]
pub(super) struct Sources {
    #[command(flatten)]
    reach: ConnectArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Sources, how far they were read, and what stands in their way
    List {
        #[command(flatten)]
        paging: Paging,
    },
    /// Add a source; it is read from then on
    Add(Box<Add>),
    /// One source
    Show {
        /// The source's name
        name: String,
    },
    /// Look whether a source can be read and suits; nothing is copied
    Test {
        /// The source's name
        name: String,
    },
    /// Print the table that an ERP needs, with its index, its grants and an example of a trigger
    Ddl(Ddl),
    /// Read it no more; what came from it stays
    Remove {
        /// The source's name
        name: String,
    },
    /// Let what is there wait
    Pause {
        /// The source's name
        name: String,
    },
    /// Go on where it stands
    Resume {
        /// The source's name
        name: String,
    },
    /// Set where it is read from, after its file was replaced or restored
    Reset(Reset),
}

#[derive(Debug, Args)]
struct Add {
    /// 1 to 63 characters of a-z, 0-9 and -; also the `source_system` of its events
    name: String,
    #[command(flatten)]
    place: Place,
    /// The table [default: outbox]
    #[arg(long, value_name = "TABLE", requires = "sqlite")]
    table: Option<String>,
    /// Its column that is INTEGER PRIMARY KEY AUTOINCREMENT [default: id]
    #[arg(long, value_name = "COLUMN", requires = "sqlite")]
    id: Option<String>,
    /// A column that is named otherwise than its field: `event_type=kind`
    #[arg(long = "column", value_name = "FIELD=COLUMN", value_parser = pair, requires = "sqlite")]
    columns: Vec<(String, String)>,
    /// What the files of the folder are [default: by their ending]
    #[arg(long, value_parser = ["auto", "json", "ndjson", "csv", "xml"], requires = "drop")]
    format: Option<String>,
    /// How their writer shows that one is whole: renamed from .tmp, a .done beside it, or it stands still
    #[arg(long, value_parser = ["rename", "done", "stable"], requires = "drop")]
    writer: Option<String>,
    /// A column, member or path of elements named otherwise than its field: `event_type=Kind`
    #[arg(long = "field", value_name = "FIELD=NAME", value_parser = pair, requires = "drop")]
    fields: Vec<(String, String)>,
    /// For XML: the path of the element that is a row: Orders/Order
    #[arg(long, value_name = "PATH", requires = "drop")]
    row: Option<String>,
    /// For CSV: what stands between two values [default: ,]
    #[arg(long, value_name = "CHAR", requires = "drop")]
    delimiter: Option<char>,
    /// For how many days files stay in done; 0: until somebody takes them away [default: 30]
    #[arg(long, value_name = "DAYS", requires = "drop")]
    done_days: Option<u32>,
    /// What stands in a field that a row has not: `event_type=invoice.created`
    #[arg(long = "default", value_name = "FIELD=VALUE", value_parser = pair)]
    defaults: Vec<(String, String)>,
    /// Where reading begins: at the first row that is there, or behind the last
    #[arg(long, value_enum, default_value = "start", requires = "sqlite")]
    from: From,
    /// No event for so long is an escalation, such as 24h
    #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration)]
    silent_after: Option<Duration>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Place {
    /// A table in the ERP's own file, which is only read
    #[arg(long, value_name = "FILE")]
    sqlite: Option<PathBuf>,
    /// A folder that files are put into: JSON, NDJSON, CSV or XML
    #[arg(long, value_name = "DIR")]
    drop: Option<PathBuf>,
    /// Kind and settings as JSON, as the API takes them: `{"kind":"sqlite","settings":{…}}`
    #[arg(long, value_name = "JSON")]
    settings: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum From {
    Start,
    Now,
}

impl From {
    const fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Now => "now",
        }
    }
}

#[derive(Debug, Args)]
struct Reset {
    /// The source's name
    name: String,
    #[command(flatten)]
    to: To,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct To {
    /// Behind this row: the last id that is not to be copied
    #[arg(long, value_name = "ID")]
    cursor: Option<u64>,
    /// From the first row that is there; what is known by its key is not stored again
    #[arg(long)]
    from_start: bool,
    /// Only what comes from now on
    #[arg(long)]
    from_now: bool,
}

const COLUMNS: [Column; 8] = [
    Column { title: "NAME", of: |s| text(s, "name"), rank: 0 },
    Column { title: "KIND", of: |s| text(s, "kind"), rank: 2 },
    Column { title: "STATE", of: state, rank: 1 },
    Column { title: "CURSOR", of: |s| text(s, "cursor"), rank: 3 },
    Column { title: "LAG", of: |s| text(s, "lag"), rank: 1 },
    Column { title: "EVENTS", of: |s| text(s, "event_count"), rank: 2 },
    Column { title: "LAST EVENT (UTC)", of: |s| minute(s, "last_event_at"), rank: 2 },
    Column { title: "IN THE WAY", of: hindrance, rank: 1 },
];

impl Sources {
    pub(super) fn run(&self, shared: &Shared) -> Result<(), Failure> {
        if let Verb::Ddl(ddl) = &self.verb {
            return ddl.print();
        }
        let remote = self.reach.open(shared)?;
        match &self.verb {
            Verb::List { paging } => {
                let (path, what) = ("/v1/sources", "sources");
                List { path, query: Vec::new(), columns: &COLUMNS, what }.print(&remote, paging)
            }
            Verb::Add(add) => {
                let made = remote.post("/v1/sources", Some(&add.body()?)).map_err(|failure| {
                    if failure.code != exit::CONFLICT {
                        return failure;
                    }
                    let name = &add.name;
                    failure.and(format_args!(
                        "Look at it: oncebox source show {name}. Other settings are given by oncebox apply, which keeps \
                         how far it was read; or oncebox source remove {name}, and add it again."
                    ))
                })?;
                shown(&remote, &made)?;
                if remote.json() {
                    return Ok(());
                }
                tested(&remote, &add.name).map_err(|failure| {
                    let name = &add.name;
                    failure.and(format_args!(
                        "It was added all the same, and is read once that is mended. Was it meant otherwise: \
                         oncebox source remove {name}, and add it again."
                    ))
                })
            }
            Verb::Show { name } => shown(&remote, &remote.get(&path(name))?),
            Verb::Test { name } => tested(&remote, name),
            Verb::Ddl(ddl) => ddl.print(),
            Verb::Remove { name } => {
                let removed = remote.delete(&path(name))?;
                if remote.json() {
                    return out::json(&removed);
                }
                out::line(format_args!("removed: {name}; what came from it stays"))
            }
            Verb::Pause { name } => act(&remote, name, "pause", None),
            Verb::Resume { name } => act(&remote, name, "resume", None),
            Verb::Reset(reset) => {
                let body = match reset.to.cursor {
                    Some(cursor) => json!({ "cursor": cursor }),
                    None if reset.to.from_start => json!({ "from": "start" }),
                    None => json!({ "from": "now" }),
                };
                act(&remote, &reset.name, "reset", Some(&body))
            }
        }
    }
}

impl Add {
    fn body(&self) -> Result<Value, Failure> {
        let mut body = match &self.place.settings {
            Some(given) => match serde_json::from_str(given) {
                Ok(Value::Object(body)) => body,
                Ok(_) => return Err(Failure::input("--settings is not a JSON object")),
                Err(error) => {
                    return Err(Failure::input(format!("--settings is not JSON: {error}")));
                }
            },
            None => self.place_body()?,
        };
        body.insert("name".to_owned(), self.name.as_str().into());
        if let Some(span) = self.silent_after {
            let ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
            body.insert("silent_after_ms".to_owned(), ms.into());
        }
        Ok(Value::Object(body))
    }

    fn place_body(&self) -> Result<Map<String, Value>, Failure> {
        let mut settings = Map::new();
        let is_table = self.place.sqlite.is_some();
        if let Some(path) = self.place.sqlite.as_ref().or(self.place.drop.as_ref()) {
            settings.insert("path".to_owned(), absolute(path)?.into());
        }
        let delimiter = self.delimiter.map(String::from);
        for (name, value) in [
            ("table", &self.table),
            ("id", &self.id),
            ("format", &self.format),
            ("writer", &self.writer),
            ("row", &self.row),
            ("delimiter", &delimiter),
        ] {
            if let Some(value) = value {
                settings.insert(name.to_owned(), value.as_str().into());
            }
        }
        if let Some(days) = self.done_days {
            settings.insert("done_days".to_owned(), days.into());
        }
        for (name, pairs) in
            [("columns", &self.columns), ("fields", &self.fields), ("defaults", &self.defaults)]
        {
            if !pairs.is_empty() {
                settings.insert(name.to_owned(), texts(pairs));
            }
        }
        let mut body = Map::new();
        body.insert("kind".to_owned(), if is_table { "sqlite" } else { "drop" }.into());
        body.insert("settings".to_owned(), Value::Object(settings));
        if is_table {
            body.insert("from".to_owned(), self.from.word().into());
        }
        Ok(body)
    }
}

/// The service may run in another directory: what is named from here is named from the root.
fn absolute(path: &PathBuf) -> Result<String, Failure> {
    let whole = std::path::absolute(path)
        .map_err(|error| Failure::input(format!("{}: {error}", path.display())))?;
    whole
        .to_str()
        .map(str::to_owned)
        .ok_or_else(|| Failure::input(format!("{}: the path has to be UTF-8", path.display())))
}

fn texts(pairs: &[(String, String)]) -> Value {
    let texts = pairs.iter().map(|(name, value)| (name.clone(), value.as_str().into()));
    Value::Object(texts.collect())
}

fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
    let (name, value) = pair.ok_or("give a field, =, and what is meant: event_type=kind")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn path(name: &str) -> String {
    format!("/v1/sources/{}", plain(name))
}

fn act(remote: &Remote, name: &str, verb: &str, body: Option<&Value>) -> Result<(), Failure> {
    shown(remote, &remote.post(&format!("{}/{verb}", path(name)), body)?)
}

/// Prints what a test found; what fails is a failure.
fn tested(remote: &Remote, name: &str) -> Result<(), Failure> {
    let found = remote.get(&format!("{}/test", path(name)))?;
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
    let failure = Failure::failed(format!("{name} cannot be read as it is"));
    let source = remote.get(&path(name))?;
    let place = source.get("settings").map(|settings| text(settings, "path")).unwrap_or_default();
    let place = Path::new(&place);
    let outside = !place.starts_with(remote.settings().directory());
    let lines = opening(place, text(&source, "kind") == "drop");
    if !outside || !is_packaged(remote.settings()) {
        return Err(failure);
    }
    Err(failure.and(format_args!(
        "Its unit may close the place to the service. To open it: systemctl edit oncebox, with these lines:\n\n\
         {lines}\n\nThen: systemctl restart oncebox. The user oncebox has to have the rights, too."
    )))
}

/// The lines of a drop-in that open a folder, or the folder of a file: SQLite writes beside the file.
fn opening(place: &Path, is_folder: bool) -> String {
    let folder = if is_folder { Some(place) } else { place.parent() };
    let folder = folder.unwrap_or(place).display();
    // What ProtectHome= hides is not opened by ReadWritePaths=.
    let hidden = ["/home", "/root", "/run/user"].iter().any(|home| place.starts_with(home));
    let open = if hidden { "ProtectHome=tmpfs\nBindPaths" } else { "ReadWritePaths" };
    let shared = if is_folder { "" } else { "\nUMask=0007" };
    format!("[Service]\n{open}=-{folder}{shared}")
}

fn state(source: &Value) -> String {
    let state = text(source, "state");
    if text(source, "last_error").is_empty() { state } else { format!("{state}, failing") }
}

/// Where nobody can tell, that is what is shown: none would be no 0.
fn lag(source: &Value) -> String {
    let lag = text(source, "lag");
    if lag.is_empty() { "unknown while it is not read".to_owned() } else { lag }
}

fn hindrance(source: &Value) -> String {
    let error = text(source, "last_error");
    match text(source, "waits_for") {
        waits if error.is_empty() && !waits.is_empty() => format!("waits for {waits}"),
        _ => error,
    }
}

fn shown(remote: &Remote, source: &Value) -> Result<(), Failure> {
    if remote.json() {
        return out::json(source);
    }
    out::line(text(source, "name"))?;
    let silent = source.get("silent_after_ms").and_then(Value::as_u64);
    let silent = silent.map(|ms| humantime::format_duration(Duration::from_millis(ms)).to_string());
    show::fields(&[
        ("kind", text(source, "kind")),
        ("settings", text(source, "settings")),
        ("state", state(source)),
        ("in the way", hindrance(source)),
        ("since", instant(source, "failing_since")),
        ("cursor", text(source, "cursor")),
        ("lag", lag(source)),
        ("events", text(source, "event_count")),
        ("last event", instant(source, "last_event_at")),
        ("last read", instant(source, "last_read_at")),
        ("silent after", silent.unwrap_or_default()),
        ("created", instant(source, "created_at")),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_that_open_a_place_are_those_its_unit_needs() {
        let is = |place: &str, is_folder, lines: &str| {
            assert_eq!(opening(Path::new(place), is_folder), format!("[Service]\n{lines}"));
        };
        is("/srv/erp/out", true, "ReadWritePaths=-/srv/erp/out");
        is("/home/erp/out", true, "ProtectHome=tmpfs\nBindPaths=-/home/erp/out");
        is("/srv/erp/erp.db", false, "ReadWritePaths=-/srv/erp\nUMask=0007");
    }
}
