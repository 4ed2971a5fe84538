//! `oncebox source`: the database tables, folders and lists that events are read from.
//!
//! Not here: the validation of settings, which the API does.

use std::path::Path;
use std::time::Duration;

use crate::cli::credential;
use crate::cli::ddl::{self, Ddl};
use crate::cli::input::{is_packaged, object};
use crate::cli::prelude::*;
use crate::cli::secrets::SecretAt;
use crate::cli::verb::one_of;

const VERBS: &[CommandRow] = &[
    command("list", "Sources with their cursors and errors").calls("listSources"),
    command("add", "Add a source and start reading it")
        .calls("createSource")
        .flags(&[&[
            argument("name")
                .help("1 to 63 characters of a-z, 0-9 and -; also the `source_system` of its events"),
            own("sqlite").value("FILE").help("The ERP's SQLite file; Oncebox only reads it"),
            own("database")
                .value("NAME")
                .help("An ERP's PostgreSQL, MariaDB or SQL Server: its name in the settings, [databases.NAME]"),
            own("drop")
                .value("DIR")
                .help("A folder that receives files: JSON, NDJSON, CSV or XML"),
            own("list")
                .value("PRESET")
                .help("A list over HTTP: stripe, github, gocardless, paypal, shopify, woocommerce, mollie, xero, hubspot, odoo, erpnext, business_central, or json for any list"),
            own("settings")
                .value("JSON")
                .help("Kind and settings as JSON, as the API takes them: `{\"kind\":\"sqlite\",\"settings\":{…}}`"),
            field("settings.provider")
                .value("PROVIDER")
                .needs(&["list"])
                .help("The provider whose webhooks the items are; without it they are events of this source"),
            field("settings.url")
                .value("URL")
                .needs(&["list"])
                .help("The first page of the list, with the parameters that each page needs [default: of the preset]"),
            field("settings.items")
                .value("PATH")
                .needs(&["list"])
                .help("The path of the list in an answer, like /data [default: of the preset, or the answer itself]"),
            field("settings.item_id")
                .value("PATH")
                .needs(&["list"])
                .help("The path of an item's id, like /id; several make up one id"),
            field("settings.time")
                .value("PATH")
                .needs(&["list"])
                .help("The path of an item's time, like /updated_at"),
            field("settings.next")
                .value("JSON")
                .needs(&["list"])
                .help("How the next page is found: `{\"by\":\"link\"}`, or links, url, page, offset, cursor, last_item with their terms"),
            field("settings.newer_than")
                .value("JSON")
                .needs(&["list"])
                .help("How items since a time are asked for: `{\"parameter\":\"updated_after\",\"form\":\"rfc3339\"}`, or with a text around `{time}`"),
            field("settings.headers")
                .long("list-header")
                .value("FIELD")
                .needs(&["list"])
                .help("A header field that each request for a page has, 'Name: value'; may be repeated"),
            field("settings.body")
                .long("list-body")
                .value("JSON|@FILE")
                .needs(&["list"])
                .help("The JSON object that is posted to ask for a page; then the parameters of --next and --newer-than are paths in it [default: of the preset]"),
            field("settings.interval_ms")
                .long("interval")
                .value("SPAN")
                .needs(&["list"])
                .help("The pause between two rounds [default: 1min]"),
            field("settings.items_max")
                .long("items-max")
                .value("N")
                .needs(&["list"])
                .help("After how many items the list ends though it has more; it must have the oldest first"),
            field("settings.overlap_ms")
                .long("overlap")
                .value("SPAN")
                .needs(&["list"])
                .help("The span before the newest item that is read again, for lists that show items late [default: 10min]"),
            field("settings.needs_credential")
                .needs(&["list"])
                .help("Whether nothing is read before a credential was set [default: of the preset]"),
            field("settings.table")
                .value("TABLE")
                .not(&["drop", "list", "settings"])
                .help("The table [default: outbox]"),
            field("settings.mode")
                .needs(&["database"])
                .help("How read rows are known: a mark in the table, a claim for two boxes, or xid8 without any right to change it (PostgreSQL)"),
            field("settings.id")
                .value("COLUMN")
                .not(&["drop", "list", "settings"])
                .help("Its column with each row's number; in SQLite INTEGER PRIMARY KEY AUTOINCREMENT [default: id]"),
            field("settings.columns")
                .long("column")
                .value("FIELD=COLUMN")
                .not(&["drop", "list", "settings"])
                .help("A column whose name differs from its field: `event_type=kind`"),
            field("settings.format")
                .needs(&["drop"])
                .help("The format of the folder's files [default: by their ending]"),
            field("settings.writer")
                .needs(&["drop"])
                .help("How a file is known to be complete: renamed from .tmp, a .done file beside it, or it no longer changes"),
            field("settings.fields")
                .long("field")
                .value("FIELD=NAME")
                .not(&["sqlite", "database", "settings"])
                .help("A column, member or path of elements whose name differs from its field: `event_type=Kind`; for a list the path: `event_type=/type`"),
            field("settings.row")
                .value("PATH")
                .needs(&["drop"])
                .help("For XML: the path of the elements that are rows: Orders/Order"),
            field("settings.delimiter")
                .value("CHAR")
                .needs(&["drop"])
                .help("For CSV: the separator [default: ,]"),
            field("settings.done_days")
                .value("DAYS")
                .needs(&["drop"])
                .help("Days that files stay in the folder done; 0: for ever [default: 30]"),
            field("settings.defaults")
                .long("default")
                .value("FIELD=VALUE")
                .help("Default value of a field that a row does not have: `event_type=invoice.created`"),
            field("from")
                .not(&["drop", "settings"])
                .help("Where reading begins: at the first existing row (start, the default), or after the last (now; sqlite, xid8 and lists)"),
            field("silent_after_ms").long("silent-after").value("SPAN"),
            without("kind"),
            without("settings.database"),
            without("settings.preset"),
        ]])
        .online(add)
        .more(|command| one_of(command, &["sqlite", "database", "drop", "list", "settings"])),
    command("show", "One source").calls("getSource"),
    command("test", "Check whether a source can be read and is set up correctly; nothing is copied")
        .calls("testSource")
        .online(|call, remote| test(remote, &call.text("name"))),
    command("credential", "Set what a provider's list is read with; the credential before is revoked")
        .calls("setSourceCredential")
        .flags(&[&[
            field("name").value("SOURCE"),
            field("kind").help("What it is"),
            field("user").help("basic: the user; the secret is the password"),
            field("header")
                .value("NAME")
                .help("api_key: the header field, like X-API-Key; the secret is its whole value"),
            field("token_url")
                .value("URL")
                .help("oauth2: the token endpoint; the secret is the client's"),
            field("client_id").value("ID").help("oauth2: the client"),
            field("scope").help("oauth2: what is asked for, words with a space between them"),
            field("audience").help("oauth2: whom the token is for"),
            field("client_auth")
                .help("oauth2: how the client authenticates: a header field, or form fields [default: basic]"),
        ]])
        .online(credential::set)
        .more(SecretAt::augment_args)
        .ends(&["Example: oncebox source credential stripe-list --kind bearer --secret-file stripe.key"]),
    command("ddl", "Print the SQL for an ERP: the outbox table, its index, its grants and an example trigger")
        .offline(ddl::print)
        .more(Ddl::augment_args),
    command("remove", "Delete a source; its events stay")
        .calls("deleteSource")
        .also(&["delete"])
        .asks("Delete the source {name}")
        .says("deleted: {name}; its events stay"),
    command("pause", "Stop reading a source until it is resumed").calls("pauseSource"),
    command("resume", "Continue reading where it stopped").calls("resumeSource"),
    command("reset", "Set the position to read from, after its file was replaced or restored")
        .calls("resetSource")
        .flags(&[&[
            field("cursor").value("ID").help("After the row with this id"),
            own("from-start")
                .help("From the first existing row; events with a known key are not stored again"),
            own("from-now").help("Only rows that are added from now on"),
            without("from"),
        ]])
        .online(reset)
        .more(|command| one_of(command, &["cursor", "from-start", "from-now"])),
    command("reopen", "Read rows of a database again, after this box was restored")
        .calls("reopenSource")
        .flags(&[&[
            field("since")
                .value("TIME")
                .required()
                .help("The time of the backup; rows that were read since then are read again"),
        ]]),
    command("release", "Give back the rows of a database that another box has claimed, if it is gone for good")
        .calls("releaseSource")
        .flags(&[&[
            field("box").value("BOX").required().help("The box: its box.name"),
        ]])
        .asks("Give back the rows that the box has claimed: another box sends them, and some of them a second time if that box comes back"),
];

pub(super) const COMMANDS: Commands = Commands::new(
    &SOURCES,
    command(
        "source",
        "Sources that events are read from: an ERP's database or its file, a folder, a provider's list",
    ),
    VERBS,
);

const SOURCES: Noun = Noun::new("/v1/sources", "Source", "sources")
    .columns(&[
        column("NAME", 0, "name"),
        column("KIND", 2, "kind"),
        column("STATE", 1, "state"),
        column("CURSOR", 3, "cursor"),
        column("LAG", 1, "lag"),
        column("EVENTS", 2, "event_count"),
        column("LAST EVENT (UTC)", 2, "last_event_at"),
        column("ERROR", 1, "error"),
    ])
    .fields(&[
        cell("kind", "kind"),
        cell("settings", "settings"),
        cell("state", "state"),
        cell("error", "error"),
        time("since", "failing_since"),
        cell("cursor", "cursor"),
        cell("lag", "lag"),
        cell("events", "event_count"),
        time("last event", "last_event_at"),
        time("last read", "last_read_at"),
        cell("silent after", "silent_after"),
        time("created", "created_at"),
    ])
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
        let kinds = ["sqlite", "database", "drop", "list"];
        let flag = kinds.into_iter().find(|kind| call.has(kind)).unwrap_or("drop");
        let kind = if flag == "list" { "http" } else { flag };
        if kind == "sqlite" {
            body.entry("from").or_insert_with(|| "start".into());
        }
        body.insert("kind".to_owned(), kind.into());
        if let Some(Value::Object(settings)) = body.get_mut("settings") {
            read_terms(settings)?;
        }
        let given = call.text(flag);
        let (member, value) = match flag {
            "database" => ("database", given),
            "list" => ("preset", given),
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

/// Reads the terms of a list that are objects: flags give them as JSON.
pub(super) fn read_terms(list: &mut Map<String, Value>) -> Done {
    for term in ["next", "newer_than"] {
        if let Some(place) = list.get_mut(term) {
            let text = place.as_str().unwrap_or_default().to_owned();
            *place = Value::Object(object(&format!("--{}", term.replace('_', "-")), &text)?);
        }
    }
    Ok(())
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
