//! `oncebox source`: the database tables and folders that events are read from.
//!
//! Not here: the validation of settings, which the API does.

use std::path::Path;
use std::time::Duration;

use crate::cli::ddl::{self, Ddl};
use crate::cli::input::{is_packaged, object};
use crate::cli::prelude::*;
use crate::cli::verb::{offline, one_of};

const TABLE: &str = r#"
source  Sources that events are read from: an ERP's database or its file, a folder
  columns: NAME 0 name; KIND 2 kind; STATE 1 state; CURSOR 3 cursor; LAG 1 lag; EVENTS 2 event_count; LAST EVENT (UTC) 2 last_event_at; ERROR 1 error
  fields: kind; settings; state; error; since = @failing_since; cursor; lag; events = event_count; last event = @last_event_at; last read = @last_read_at; silent after; created = @created_at
  list = listSources  Sources with their cursors and errors
  add = createSource  Add a source and start reading it
    <name>  1 to 63 characters of a-z, 0-9 and -; also the `source_system` of its events
    --sqlite <FILE>  The ERP's SQLite file; Oncebox only reads it
    --database <NAME>  An ERP's PostgreSQL, MariaDB or SQL Server: its name in the settings, [databases.NAME]
    --drop <DIR>  A folder that receives files: JSON, NDJSON, CSV or XML
    --settings <JSON>  Kind and settings as JSON, as the API takes them: `{"kind":"sqlite","settings":{…}}`
    settings.table <TABLE> not:drop,settings  The table [default: outbox]
    settings.mode needs:database  How read rows are known: a mark in the table, a claim for two boxes, or xid8 without any right to change it (PostgreSQL)
    settings.id <COLUMN> not:drop,settings  Its column with each row's number; in SQLite INTEGER PRIMARY KEY AUTOINCREMENT [default: id]
    settings.columns --column <FIELD=COLUMN> not:drop,settings  A column whose name differs from its field: `event_type=kind`
    settings.format needs:drop  The format of the folder's files [default: by their ending]
    settings.writer needs:drop  How a file is known to be complete: renamed from .tmp, a .done file beside it, or it no longer changes
    settings.fields --field <FIELD=NAME> needs:drop  A column, member or path of elements whose name differs from its field: `event_type=Kind`
    settings.row <PATH> needs:drop  For XML: the path of the elements that are rows: Orders/Order
    settings.delimiter <CHAR> needs:drop  For CSV: the separator [default: ,]
    settings.done_days <DAYS> needs:drop  Days that files stay in the folder done; 0: for ever [default: 30]
    settings.defaults --default <FIELD=VALUE>  Default value of a field that a row does not have: `event_type=invoice.created`
    from not:drop,settings  Where reading begins: at the first existing row (start, the default), or after the last (now; sqlite and xid8)
    silent_after_ms --silent-after <SPAN>
    !kind
    !settings.database
  show = getSource  One source
  test = testSource  Check whether a source can be read and is set up correctly; nothing is copied
  ddl  Print the SQL for an ERP: the outbox table, its index, its grants and an example trigger
  remove|delete = deleteSource  Delete a source; its events stay
    ? Delete the source {name}
    > deleted: {name}; its events stay
  pause = pauseSource  Stop reading a source until it is resumed
  resume = resumeSource  Continue reading where it stopped
  reset = resetSource  Set the position to read from, after its file was replaced or restored
    cursor <ID>  After the row with this id
    --from-start  From the first existing row; events with a known key are not stored again
    --from-now  Only rows that are added from now on
    !from
  reopen = reopenSource  Read rows of a database again, after this box was restored
    since <TIME> required  The time of the backup; rows that were read since then are read again
  release = releaseSource  Give back the rows of a database that another box has claimed, if it is gone for good
    box <BOX> required  The box: its box.name
    ? Give back the rows that the box has claimed: another box sends them, and some of them a second time if that box comes back
"#;

pub(super) const COMMANDS: Commands = Commands::new(
    &SOURCES,
    TABLE,
    &[
        online("add", add)
            .more(|command| one_of(command, &["sqlite", "database", "drop", "settings"])),
        online("test", |call, remote| test(remote, &call.text("name"))),
        offline("ddl", ddl::print).more(Ddl::augment_args),
        online("reset", reset)
            .more(|command| one_of(command, &["cursor", "from-start", "from-now"])),
    ],
);

const SOURCES: Noun = Noun::new("/v1/sources", "Source", "sources", TABLE)
    .time("created_at")
    .by(&[("state", state), ("error", error), ("lag", lag), ("silent_after", silent_after)]);

fn reset(call: &Call<'_>, remote: &Remote) -> Done {
    let mut body = call.body()?;
    if !call.has("cursor") {
        body.insert("from".to_owned(), if call.is("from-start") { "start" } else { "now" }.into());
    }
    call.print(remote, body)
}

fn add(call: &Call<'_>, remote: &Remote) -> Done {
    let name = call.text("name");
    let mut body = call.body()?;
    if call.has("settings") {
        body.remove("settings");
        body.extend(object("--settings", &call.text("settings"))?);
    } else {
        let kinds = ["sqlite", "database", "drop"];
        let kind = kinds.into_iter().find(|kind| call.has(kind)).unwrap_or("drop");
        if kind == "sqlite" {
            body.entry("from").or_insert_with(|| "start".into());
        }
        body.insert("kind".to_owned(), kind.into());
        let given = call.text(kind);
        let (member, value) = match kind {
            "database" => ("database", given),
            _ => ("path", absolute(given.as_ref())?),
        };
        if let Value::Object(settings) = body.entry("settings").or_insert_with(|| json!({})) {
            settings.insert(member.to_owned(), value.into());
        }
    }
    let made = call.send(remote, body).map_err(|failure| {
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
    test(remote, &name).map_err(|failure| {
        failure.and(format_args!(
            "The source was added, and is read once the error is repaired. To start over: oncebox source \
             remove {name}, and add it again."
        ))
    })
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
fn test(remote: &Remote, name: &str) -> Done {
    let found = remote.get(&format!("{}/test", SOURCES.at(name)))?;
    if remote.json() {
        out::json(&found)?;
    } else {
        for check in list(&found, "checks") {
            let state = text(check, "state");
            let name = text(check, "name");
            out::line(format_args!("  {state:<4}  {name:<9}  {}", text(check, "detail")))?;
        }
    }
    if found.get("ok").and_then(Value::as_bool) == Some(true) {
        return Ok(());
    }
    let failure = Failure::failed(format!("{name} cannot be read"));
    let source = remote.get(&SOURCES.at(name))?;
    if text(&source, "kind") == "database" {
        return Err(failure);
    }
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
