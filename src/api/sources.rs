//! `/v1/sources`: files and folders that events are read from.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::api::prelude::*;
use crate::api::schema::AnyObject;
use crate::base::clock::millis;
use crate::base::id;
use crate::base::words::words;
use crate::model::escalation::Class;
use crate::model::health::{Check, Level, worst};
use crate::model::json_fields;
use crate::model::name::Name;
use crate::sources::{
    MAX_SILENCE, NewSource, SILENCE_LEAST, Settings, Source, SourceStatus, State, inspect,
    permitted, tables,
};
use crate::store::escalations;

const NAME: Param = Param::path::<NameText>("name", "The source's name.", "erp");
const IS: &[Returns] = &[Returns::json::<SourceAnswer<'_>>(200, "The source as it is now.")];

/// Sources of events besides the API.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Sources",
    about: "Inputs besides the API: the `SQLite` file of an ERP, or a folder that receives files.",
    routes: &[
        get("/v1/sources", Read, Listed(list))
            .doc("listSources", "List the sources", &[LIMIT, AFTER])
            .about("With the progress and the current error of each.")
            .returns(&[Returns::page::<SourceAnswer<'_>>("A page of sources, the oldest first.")]),
        post("/v1/sources", Admin, Act("source.create", create))
            .doc("createSource", "Make a source", &[])
            .about("Reading begins at once, with the permissions of the service.")
            .returns(&[Returns::json::<SourceAnswer<'_>>(201, "The source.")])
            .body::<SourceCreation>(
                r#"{"name":"erp","kind":"sqlite","settings":{"path":"/srv/erp/erp.db",
                "table":"outbox"},"silent_after_ms":86400000}"#,
            ),
        get("/v1/sources/{name}", Read, Now(show))
            .doc("getSource", "Show a source", &[NAME])
            .about("One source.")
            .returns(IS),
        patch("/v1/sources/{name}", Admin, Act("source.change", change_one))
            .doc("changeSource", "Change a source", &[NAME])
            .about("Absent fields stay as they are; `settings` is replaced as a whole. The cursor stays.")
            .returns(IS)
            .body::<SourceChange>(r#"{"silent_after_ms":3600000}"#),
        delete("/v1/sources/{name}", Admin, Act("source.delete", remove))
            .doc("deleteSource", "Delete a source", &[NAME])
            .about(
                "It is no longer read. Its events stay, and so does the file or folder.",
            )
            .returns(&[Returns::nothing("It is deleted.")]),
        get("/v1/sources/{name}/test", Operate, Now(test))
            .doc("testSource", "Test a source", &[NAME])
            .about(
                "Opens the file or folder and checks whether it can be read. Nothing is copied and \
                 nothing is changed.",
            )
            .returns(&[Returns::json::<SourceTest>(200, "What was found.")]),
        post("/v1/sources/{name}/pause", Operate, Act("source.pause", pause))
            .doc("pauseSource", "Pause a source", &[NAME])
            .about("Nothing is read until it is resumed.")
            .returns(IS),
        post("/v1/sources/{name}/resume", Operate, Act("source.resume", resume))
            .doc("resumeSource", "Resume a source", &[NAME])
            .about("Reading continues where it stopped.")
            .returns(IS),
        post("/v1/sources/{name}/reset", Operate, Act("source.reset", reset))
            .doc("resetSource", "Set where a source is read from", &[NAME])
            .about(
                "Decides what is copied after the file was replaced or restored. `start`: all rows; \
                 an event with a known key is not stored again. `now`: only new rows. `cursor`: the \
                 rows after this one.",
            )
            .returns(IS)
            .body::<SourceReset>(r#"{"from":"start"}"#),
    ],
};

values! {
    /// The kinds of sources.
    SourceKind = { "type": "string", "enum": ["sqlite", "drop"] }
    /// How long a source may be silent.
    Silence = { "type": "integer", "minimum": 0, "maximum": millis(MAX_SILENCE) }
    /// A row's number.
    RowNumber = { "type": "integer" }
}

words! {
    /// Where reading begins.
    enum From {
        Start = "start",
        Now = "now",
    }
}

/// `POST /v1/sources`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SourceCreation {
    name: Name,
    kind: Is<SourceKind>,
    settings: Is<Settings, Value>,
    /// Where reading begins: `start` is the first row, `now` is after the last one.
    from: Option<From>,
    /// Raise an escalation if no event comes for this long; 0: never.
    #[serde(default, deserialize_with = "json_fields::whole")]
    #[schemars(with = "Option<Silence>")]
    silent_after_ms: Option<u64>,
}

/// `PATCH /v1/sources/{name}`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SourceChange {
    settings: Option<Is<Settings, Value>>,
    /// Raise an escalation if no event comes for this long; 0: never.
    #[serde(default, deserialize_with = "json_fields::whole")]
    #[schemars(with = "Option<Silence>")]
    silent_after_ms: Option<u64>,
}

/// `POST /v1/sources/{name}/reset`: either `cursor` or `from`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SourceReset {
    /// The last row that is not copied.
    #[serde(default, deserialize_with = "json_fields::whole")]
    cursor: Option<u64>,
    /// Where reading begins: `start` is the first row, `now` is after the last one.
    from: Option<From>,
}

fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let after = page.after.unwrap_or(0);
    let found = lists::read(api, call, |tx| tables::page(tx, &call.tenant, after, page.limit))?;
    let show = |source: &Source| shown(source, &api.flow.sources.of(source.seq));
    Ok(page_of(&found, page, |source| source.seq, show))
}

fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let source = find(api, call)?;
    Ok(ok(&shown(&source, &api.flow.sources.of(source.seq))))
}

fn create(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let SourceCreation { name, kind, settings, from, silent_after_ms } = call.json()?;
    let settings = read_settings(api, call, &kind, settings.0)?;
    let compared = match &settings {
        Settings::Drop(folder) => Some(check_folder(api, &folder.path, None)?),
        Settings::Sqlite(_) => None,
    };
    let cursor = match from {
        None => 0,
        Some(from) => first_cursor(api, (&call.tenant, &settings), from)?,
    };
    let now = api.clock.wall();
    let new = NewSource {
        id: id::uuid7(now, &*api.draw),
        tenant: call.tenant.clone(),
        name,
        settings,
        cursor,
        silent_after: silence(silent_after_ms.unwrap_or(0))?,
    };
    change(api, call, move |tx| {
        if !no_new_folder(tx, compared.as_ref())? {
            return Err(folder_was_added().into());
        }
        if tables::insert(tx, &new, now)?.is_none() {
            let detail = format!("There is a source named {:?} already.", new.name.as_str());
            return Err(Problem::conflict(detail).into());
        }
        let made = tables::by_name(tx, &new.tenant, new.name.as_str())?.or_not_found("source")?;
        Ok(Change::made("source", &new.id, &shown(&made, &SourceStatus::default())))
    })
}

fn change_one(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let found = find(api, call)?;
    let SourceChange { settings, silent_after_ms } = call.json()?;
    let kind = found.new.settings.kind();
    let settings = settings.map(|given| read_settings(api, call, kind, given.0)).transpose()?;
    let compared = match &settings {
        Some(Settings::Drop(folder)) => Some(check_folder(api, &folder.path, Some(found.seq))?),
        _ => None,
    };
    let silent_after = silent_after_ms.map(silence).transpose()?;
    alter(api, call, compared, move |source| {
        if let Some(settings) = &settings {
            source.new.settings = settings.clone();
        }
        if let Some(silent_after) = silent_after {
            source.new.silent_after = silent_after;
        }
    })
}

fn remove(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let (tenant, name) = (call.tenant.clone(), call.param(0).to_owned());
    let now = api.clock.wall();
    change(api, call, move |tx| {
        let before = tables::by_name(tx, &tenant, &name)?.or_not_found("source")?;
        tables::delete(tx, before.seq, now)?;
        resolve_escalations(tx, &tenant, &name, now)?;
        let shown = shown(&before, &SourceStatus::default());
        Ok(Change::gone("source", &before.new.id, &shown))
    })
}

fn pause(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    alter(api, call, None, |source| source.state = State::Paused)
}

fn resume(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    alter(api, call, None, |source| source.state = State::Active)
}

fn reset(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let SourceReset { cursor, from } = call.json()?;
    let source = find(api, call)?;
    if let Settings::Drop(_) = source.new.settings {
        return Err(Problem::conflict(
            "A folder has no cursor. To read a file again, give it another name; rows with a known key are \
             skipped.",
        ));
    }
    let cursor = match (cursor, from) {
        (Some(cursor), None) => i64::try_from(cursor).unwrap_or(i64::MAX),
        (None, Some(from)) => first_cursor(api, (&source.new.tenant, &source.new.settings), from)?,
        _ => return Err(Problem::unprocessable("Give either cursor or from.")),
    };
    alter(api, call, None, move |source| {
        source.new.cursor = cursor;
        source.identity = None;
    })
}

/// `GET /v1/sources/{name}/test`
fn test(api: &Api, call: &Call) -> Result<Response, Problem> {
    let source = find(api, call)?;
    let checks = inspect::checks(&api.settings.get(), &source);
    let is_ok = worst(&checks) != Level::Fail;
    Ok(ok(&SourceTest { ok: is_ok, checks }))
}

/// Changes the source that the path names, and resolves its escalations because a person has acted. They are raised
/// again if the problem persists.
fn alter(
    api: &Api,
    call: &Call,
    compared: Option<Folders>,
    mut with: impl FnMut(&mut Source) + Send + 'static,
) -> Result<Audited<Value>, Problem> {
    let (tenant, name) = (call.tenant.clone(), call.param(0).to_owned());
    let (now, statuses) = (api.clock.wall(), api.flow.sources.clone());
    change(api, call, move |tx| {
        let before = tables::by_name(tx, &tenant, &name)?.or_not_found("source")?;
        if !no_new_folder(tx, compared.as_ref())? {
            return Err(folder_was_added().into());
        }
        let mut row = before.clone();
        with(&mut row);
        tables::update(tx, &row, now)?;
        resolve_escalations(tx, &tenant, &name, now)?;
        let after = tables::by_name(tx, &tenant, &name)?.or_not_found("source")?;
        let status = statuses.of(after.seq);
        Ok(Change::changed(
            "source",
            &after.new.id,
            &shown(&before, &status),
            &shown(&after, &status),
        ))
    })
}

fn resolve_escalations(
    tx: &WriteTx<'_>,
    tenant: &str,
    name: &str,
    now: Timestamp,
) -> StoreResult<()> {
    let subject = format!("source:{name}");
    for class in [Class::SourceFailing, Class::SourceReplaced, Class::SourceSilent] {
        escalations::resolve(tx, tenant, class, &subject, now)?;
    }
    Ok(())
}

fn find(api: &Api, call: &Call) -> Result<Source, Problem> {
    api.store.read(|tx| tables::by_name(tx, &call.tenant, call.param(0)))?.or_not_found("source")
}

fn read_settings(api: &Api, call: &Call, kind: &str, given: Value) -> Result<Settings, Problem> {
    let wrong = |why: String| Problem::unprocessable(format!("{why}."));
    let settings = Settings::read(kind, given).map_err(wrong)?;
    permitted(&api.settings.get(), &call.tenant, settings.path()).map_err(wrong)?;
    Ok(settings)
}

/// The folders of all sources, by their numbers.
type Folders = Vec<(i64, PathBuf)>;

fn folders(tx: &ReadTx<'_>) -> StoreResult<Folders> {
    let all = tables::of_kind(tx, "drop")?.into_iter();
    Ok(all.map(|source| (source.seq, source.new.settings.path().to_owned())).collect())
}

/// Refuses a folder that another source reads. Returns the folders that it was compared with: comparing resolves
/// symbolic links on the disk, which must not happen in a transaction.
fn check_folder(api: &Api, folder: &Path, own: Option<i64>) -> Result<Folders, Problem> {
    // A folder that does not exist yet is compared by its name.
    let real = |path: &Path| -> PathBuf { path.canonicalize().unwrap_or_else(|_| path.to_owned()) };
    let folder_path = real(folder);
    let all = api.store.read(folders)?;
    if all.iter().any(|(seq, other)| Some(*seq) != own && real(other) == folder_path) {
        let detail = format!("Another source already reads {}.", folder.display());
        return Err(Problem::conflict(detail));
    }
    Ok(all)
}

/// Whether no folder was added since the comparison.
fn no_new_folder(tx: &WriteTx<'_>, compared: Option<&Folders>) -> StoreResult<bool> {
    let Some(compared) = compared else { return Ok(true) };
    Ok(folders(tx)?.iter().all(|folder| compared.contains(folder)))
}

fn folder_was_added() -> Problem {
    Problem::conflict("Another source was given a folder at the same time. Send this again.")
}

/// The cursor at which reading begins.
fn first_cursor(
    api: &Api,
    (tenant, settings): (&str, &Settings),
    from: From,
) -> Result<i64, Problem> {
    match from {
        From::Now if matches!(settings, Settings::Drop(_)) => Err(Problem::unprocessable(
            "from is only for sqlite: a folder is read from its first file.",
        )),
        From::Start => Ok(0),
        From::Now => inspect::last_row(&api.settings.get(), tenant, settings).map_err(|error| {
            Problem::unprocessable(format!("Its last row cannot be read: {error}."))
        }),
    }
}

/// The span of `silent_after_ms`; `None` is never.
fn silence(ms: u64) -> Result<Option<Duration>, Problem> {
    if ms == 0 {
        return Ok(None);
    }
    let span = Duration::from_millis(ms);
    if !(SILENCE_LEAST..=MAX_SILENCE).contains(&span) {
        let (least, most) = (millis(SILENCE_LEAST), millis(MAX_SILENCE));
        let detail = format!("silent_after_ms must be 0 (never), or {least} to {most}.");
        return Err(Problem::unprocessable(detail));
    }
    Ok(Some(span))
}

/// What a test found.
#[derive(Serialize, JsonSchema)]
struct SourceTest {
    ok: bool,
    checks: Vec<Check>,
}

/// A source.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Source")]
struct SourceAnswer<'a> {
    id: Is<Uuid, &'a str>,
    tenant: Is<NameText, &'a str>,
    name: &'a Name,
    kind: Is<SourceKind, &'static str>,
    settings: Is<AnyObject, Value>,
    state: State,
    /// The id of the last row that was copied.
    cursor: Is<RowNumber, i64>,
    /// The most rows or files that are not copied yet. null if unknown: the source is paused, waits, or cannot be read
    /// (`waits_for`, `last_error`).
    lag: Option<u64>,
    /// What it waits for, if the cause is not the source itself.
    waits_for: Option<&'static str>,
    event_count: u64,
    last_event_at: Option<Timestamp>,
    last_read_at: Option<Timestamp>,
    /// The error that stops it now.
    last_error: Option<&'a str>,
    failing_since: Option<Timestamp>,
    /// An escalation is raised if no event comes for this long; null: never.
    silent_after_ms: Option<Is<u64, i64>>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

fn shown(source: &Source, status: &SourceStatus) -> Value {
    let NewSource { id, tenant, name, settings, cursor, silent_after } = &source.new;
    value(SourceAnswer {
        id: id.as_str().into(),
        tenant: tenant.as_str().into(),
        name,
        kind: settings.kind().into(),
        settings: settings.to_json().into(),
        state: source.state,
        cursor: (*cursor).into(),
        // A paused source does not update its count.
        lag: status.lag.filter(|_| source.state == State::Active),
        waits_for: status.waits_for,
        event_count: source.event_count,
        last_event_at: source.last_event_at,
        last_read_at: status.last_read_at.or(source.last_read_at),
        last_error: source.last_error.as_deref(),
        failing_since: source.failing_since,
        silent_after_ms: silent_after.map(millis).map(Into::into),
        created_at: source.created_at,
        updated_at: source.updated_at,
    })
}
