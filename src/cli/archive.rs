//! `oncebox archive`: the files with finished events.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::app::data_directory::DATABASE;
use crate::archive::tables::check;
use crate::archive::tables::views::{self, Months};
use crate::archive::{AUDIT_DIRECTORY, Archive, DIRECTORY, Month};
use crate::backup::months::{self, Beside, Compared};
use crate::backup::{Bytes, Result as BackupResult, retention};
use crate::base::stop::Stop;
use crate::cli::noun::DryRun;
use crate::cli::prelude::*;
use crate::config::Settings;
use crate::store::read_only;
use crate::sys::files::is_missing;

const VERBS: &[CommandRow] = &[
    command("list", "The months, the latest first, and how the last run went")
        .calls("listArchive")
        .online(list),
    command("run", "Move what finished long ago into the files of its months, and wait for the end")
        .calls("runArchive")
        .flags(&[&[
            field("older_than")
                .value("SPAN")
                .help("How long ago it finished at least, like 60days [default: 2months]"),
        ]])
        .online(run)
        .more(DryRun::augment_args)
        .ends(&["Settings do the same by themselves: archive.after."]),
    command("verify", "Read the files, and check that they belong to the database and are what the last backup copied")
        .offline(verify)
        .more(VerifyArgs::augment_args)
        .ends(&["It changes nothing. The service may run."]),
    command("delete", "Delete the file of a month: its events are gone for good")
        .calls("deleteArchiveMonth")
        .asks("Delete all events of {month}")
        .says("deleted: {month}"),
    command("views", "Print SQL for sqlite3: views over the database and its months, for reports")
        .offline(views)
        .more(ViewsArgs::augment_args)
        .ends(&[
            "oncebox archive views >views.sql; sqlite3 -readonly -init views.sql oncebox.db",
        ]),
];

const HOLD_VERBS: &[CommandRow] = &[
    command("list", "Legal holds in force, oldest first").calls("listLegalHolds"),
    command("create", "Keep events: they are not archived, expunged, or deleted with their month")
        .calls("createLegalHold")
        .flags(&[&[
            argument("name").help("1 to 63 characters of a-z, 0-9 and -"),
        ]])
        .ends(&[
            "  oncebox legal-hold create audit-2026 --reason 'Tax audit' --event-type invoice.paid --since 2026-01-01T00:00:00Z",
        ]),
    command("delete", "End a legal hold: its events are archived and deleted as the settings say")
        .calls("deleteLegalHold")
        .asks("End the legal hold {name}")
        .says("ended: {name}"),
];

pub(super) const LEGAL_HOLD: Commands = Commands::new(
    &LEGAL_HOLDS,
    command(
        "legal-hold",
        "Events that are kept whatever the settings say; for the administrator of this installation",
    ),
    HOLD_VERBS,
);

const LEGAL_HOLDS: Noun = Noun::new("/v1/legal-holds", "Legal hold", "legal holds")
    .columns(&[
        column("NAME", 0, "name"),
        column("REASON", 1, "reason"),
        column("TYPE", 1, "event_type"),
        column("SINCE (UTC)", 2, "since"),
        column("UNTIL (UTC)", 2, "until"),
        column("CREATED (UTC)", 3, "created_at"),
    ])
    .time("created_at");

pub(super) const COMMANDS: Commands = Commands::new(
    &ARCHIVE,
    command("archive", "Finished events of earlier months, each in a file beside the database"),
    VERBS,
);

#[derive(Debug, Args)]
struct ViewsArgs {
    /// Leave out months before this one, such as 2026-01
    #[arg(long, value_name = "MONTH", value_parser = month)]
    since: Option<Month>,
    /// Leave out months after this one; of those that are left, the latest 9 are read
    #[arg(long, value_name = "MONTH", value_parser = month)]
    until: Option<Month>,
    /// Attach the months of audit events first, then those of events
    #[arg(long)]
    audit_first: bool,
}

/// Reads a month.
pub(super) fn month(text: &str) -> Result<Month, String> {
    Month::parse(text).ok_or_else(|| "write a month like 2026-01".to_owned())
}

const ARCHIVE: Noun = Noun::new("/v1/archive", "Month", "months")
    .columns(&[column("MONTH", 0, "month"), column("SIZE", 0, "size"), column("FILE", 0, "path")])
    .by(&[("size", size)]);

#[derive(Debug, Args)]
struct VerifyArgs {
    /// Only this month, such as 2026-01
    #[arg(value_name = "MONTH", value_parser = month)]
    month: Option<Month>,
}

/// How often it is asked how far a run is.
const LOOK_EVERY: Duration = Duration::from_millis(200);

fn size(month: &Value) -> String {
    Bytes(month.get("bytes").and_then(Value::as_u64).unwrap_or(0)).to_string()
}

fn list(call: &Call<'_>, remote: &Remote) -> Done {
    let archive = remote.get(&call.path())?;
    if remote.json() {
        return out::json(&archive);
    }
    let items = archive.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
    ARCHIVE.table().table(&items)?;
    let after = text(&archive, "after");
    let keep = text(&archive, "keep");
    out::line(format_args!("moved after {after}, kept for {keep}; {}", told(&archive)))
}

/// How the run under way goes, or the last one went.
fn told(archive: &Value) -> String {
    let run = archive.get("run").cloned().unwrap_or_default();
    let moved = format!("{} events", run.get("events").and_then(Value::as_u64).unwrap_or(0));
    let error = text(&run, "error");
    let hot = run.get("hot_events").and_then(Value::as_u64);
    let hot = hot.map_or_else(String::new, |hot| format!("; {hot} are in the database"));
    match (text(&run, "since").is_empty(), text(&run, "ended_at").is_empty(), error.is_empty()) {
        (false, ..) => format!("a run has moved {moved} so far"),
        (_, true, _) => "no run since the start".to_owned(),
        (_, _, true) => format!("the last run moved {moved}{hot}"),
        _ => format!("the last run moved {moved}, then failed: {error}"),
    }
}

fn run(call: &Call<'_>, remote: &Remote) -> Done {
    let mut body = call.body()?;
    let DryRun { dry_run } = call.flags()?;
    body.insert("dry_run".to_owned(), dry_run.into());
    let begun = remote.post(&call.path(), Some(&Value::Object(body)))?;
    let number = |field: &str| begun.get(field).and_then(Value::as_u64).unwrap_or(0);
    if dry_run {
        let bytes = Bytes(number("bytes"));
        return remote.answer(
            &begun,
            format_args!("{} events with {bytes} would be moved", number("events")),
        );
    }
    let bar = ProgressBar::new_spinner().with_style(
        ProgressStyle::with_template("{spinner} {pos} events moved, {per_sec}")
            .map_err(Failure::failed)?,
    );
    loop {
        let archive = remote.get("/v1/archive")?;
        let run = archive.get("run").cloned().unwrap_or_default();
        bar.set_position(run.get("events").and_then(Value::as_u64).unwrap_or(0));
        if text(&run, "since").is_empty() {
            bar.finish_and_clear();
            remote.answer(&archive, told(&archive))?;
            let failed = !text(&run, "error").is_empty();
            return if failed { Err(Failure::new(exit::FAILED, "")) } else { Ok(()) };
        }
        let _stopped = Stop::new().wait(LOOK_EVERY);
    }
}

fn views(call: &Call<'_>) -> Done {
    let ViewsArgs { since, until, audit_first } = call.flags()?;
    let settings = call.global.settings()?;
    input::check_open(settings.directory())?;
    // The SQL may be used from any directory.
    let directory = std::path::absolute(settings.directory()).map_err(Failure::failed)?;
    let database = directory.join(DATABASE);
    let archive = Archive::of(&directory, DIRECTORY);
    if is_missing(&database) {
        let why = format!("there is no database {}", database.display());
        return Err(Failure::new(exit::NOT_FOUND, why));
    }
    let audit = Archive::of(&directory, AUDIT_DIRECTORY);
    let wanted = |archive: &Archive| {
        let mut months = archive.months().map_err(Failure::failed)?;
        months.retain(|month| {
            since.as_ref().is_none_or(|since| month >= since)
                && until.as_ref().is_none_or(|until| month <= until)
        });
        Ok::<_, Failure>(months)
    };
    let months = Months {
        events: (&archive, wanted(&archive)?),
        audit: (&audit, wanted(&audit)?),
        is_audit_first: audit_first,
    };
    out::exact(views::views(&database, &months)?.as_bytes())
}

fn verify(call: &Call<'_>) -> Done {
    let VerifyArgs { month: only } = call.flags()?;
    let settings = call.global.settings()?;
    input::check_open(settings.directory())?;
    let all = Archive::of(settings.directory(), DIRECTORY).months().map_err(Failure::failed)?;
    let wanted = |month: &&Month| only.as_ref().is_none_or(|only| only == *month);
    let mut found = Vec::new();
    let mut is_valid = true;
    for month in all.iter().rev().filter(wanted) {
        let (rows, faults) = verify_month(&settings, month)
            .unwrap_or_else(|error| ("unreadable".to_owned(), vec![error.to_string()]));
        is_valid &= faults.is_empty();
        if !call.connect.json() {
            let said = if faults.is_empty() { "valid".to_owned() } else { faults.join("; ") };
            out::line(format_args!("{month}: {said}; {rows}"))?;
        }
        found.push(json!({ "month": month, "rows": rows, "faults": faults }));
    }
    if call.connect.json() {
        out::json(&json!({ "items": found }))?;
    }
    match only {
        Some(only) if found.is_empty() => {
            Err(Failure::new(exit::NOT_FOUND, format!("the archive has no {only}")))
        }
        _ if is_valid => Ok(()),
        _ => Err(Failure::input("some months are not valid; see above")),
    }
}

/// The rows of a month and how it is to its last copy; and what is wrong with it.
fn verify_month(settings: &Settings, month: &Month) -> BackupResult<(String, Vec<String>)> {
    let data = settings.directory();
    let backups = settings.backup_directory();
    let file = read_only(&Archive::of(data, DIRECTORY).path(month))?;
    let database = read_only(&data.join(DATABASE))?;
    let mut faults = check::faults(&file.tx(), &database.tx())?;
    let mut said = check::count(&file.tx())?;
    drop(file);
    // The directory of backups is made with the first one.
    let mut kept = retention::list(&backups).unwrap_or_default().into_iter();
    if let Some(last) = kept.find(|backup| backup.manifest.months.is_some()) {
        let mut copies = last.manifest.months.iter().flatten();
        let copy = copies.find(|copy| copy.of == Beside::Archive && copy.month == *month);
        let name = &last.manifest.file;
        let how = copy.map(|copy| months::compare(data, &backups, copy));
        match how.transpose()? {
            None => said.push(format!("not in {name}")),
            Some(Compared::Same) => said.push(format!("as in {name}")),
            Some(Compared::Written) => said.push(format!("written since {name}")),
            Some(Compared::Differs) => {
                faults.push(format!("not as in {name}, although it was not written since"));
            }
        }
    }
    Ok((said.join(", "), faults))
}
