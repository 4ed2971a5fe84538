//! `/v1/sources`: files, folders and tables of databases that events are read from.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::api::prelude::*;
use crate::api::schema::AnyObject;
use crate::api::subscription_terms;
use crate::base::clock::millis;
use crate::base::id;
use crate::base::words::words;
use crate::model::escalation::Class;
use crate::model::health::{Check, Level, worst};
use crate::model::json_fields;
use crate::model::name::Name;
use crate::sources::database_settings::{DatabaseSettings, Mode};
use crate::sources::database_state::{Asked, DatabaseState};
use crate::sources::{
    MAX_SILENCE, NewSource, SILENCE_LEAST, Settings, Source, SourceState, SourceStatus,
    database_connection, inspect, permitted, tables,
};
use crate::store::credentials::{self, Owner};
use crate::store::{escalations, meta};

/// Marks that are so much older than a backup are taken back as well: the clocks of the two machines may differ.
const CLOCKS_DIFFER: Duration = Duration::from_mins(10);

pub(super) const NAME: Param = Param::path::<NameText>("name", "The source's name.", "erp");
const IS: &[Returns] = &[Returns::json::<SourceAnswer<'_>>(200, "The source as it is now.")];

/// Sources of events besides the API.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Sources",
    about: "Inputs besides the API: the `SQLite` file of an ERP, a table of its database, a folder that receives files, or a \
            provider's list.",
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
                "Opens the file or folder, or asks for a page of the list, and checks whether it can be read. Nothing is \
                 copied and nothing is changed.",
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
                 rows after this one, or the items since this time in milliseconds.",
            )
            .returns(IS)
            .body::<SourceReset>(r#"{"from":"start"}"#),
        post("/v1/sources/{name}/reopen", Operate, Act("source.reopen", reopen))
            .doc("reopenSource", "Read rows of a database again", &[NAME])
            .about(
                "After a restore of the box: takes back the marks of rows that were read since a time, which are then \
                 read again. An event with a known key is not stored again. Marks up to ten minutes older are taken back \
                 too, because two clocks may differ.",
            )
            .returns(IS)
            .body::<SourceReopening>(r#"{"since":"2026-01-31T12:00:00.000Z"}"#),
        post("/v1/sources/{name}/release", Operate, Act("source.release", release))
            .doc("releaseSource", "Give back the rows that a box has claimed", &[NAME])
            .about(
                "For the mode `claim`, when a box is gone for good: other boxes take its rows. A row that it had stored \
                 and not marked is sent again, so do not do this to a box that may come back.",
            )
            .returns(IS)
            .body::<SourceRelease>(r#"{"box":"north"}"#),
    ],
};

values! {
    /// The kinds of sources.
    SourceKind = { "type": "string", "enum": ["sqlite", "drop", "database", "http"] }
    /// How long a source may be silent.
    Silence = { "type": "integer", "minimum": 0, "maximum": millis(MAX_SILENCE) }
    /// A row's number.
    RowNumber = { "type": "integer" }
    /// The name of a box.
    BoxText = { "type": "string", "minLength": 1, "maxLength": 63 }
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

/// `POST /v1/sources/{name}/reopen`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SourceReopening {
    /// The time of the backup that the box was restored from.
    since: Timestamp,
}

/// `POST /v1/sources/{name}/release`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SourceRelease {
    /// The box whose rows are given back: its `box.name`.
    #[serde(rename = "box")]
    claimed_by: Is<BoxText, String>,
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
        Settings::Sqlite(_) | Settings::Database(_) | Settings::Http(_) => None,
    };
    let begin = beginning(api, &call.tenant, &settings, from.unwrap_or(From::Start))?;
    let now = api.env.clock.wall();
    let new = NewSource {
        id: id::uuid7(now, &*api.env.draw),
        tenant: call.tenant.clone(),
        name,
        settings,
        cursor: begin.cursor,
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
        let mut made =
            tables::by_name(tx, &new.tenant, new.name.as_str())?.or_not_found("source")?;
        if begin.identity.is_some() {
            tables::set_identity(tx, made.seq, None, begin.identity.as_deref())?;
            made.identity.clone_from(&begin.identity);
        }
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
            if is_other_table(&source.new.settings, settings) {
                let restored_at = DatabaseState::read(source.identity.as_deref()).restored_at;
                source.identity = DatabaseState::begun(restored_at).to_text();
            }
            if let Settings::Http(_) = settings {
                // Its round is one over the list as it was set.
                source.identity = None;
            }
            source.new.settings = settings.clone();
        }
        if let Some(silent_after) = silent_after {
            source.new.silent_after = silent_after;
        }
    })
}

fn remove(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let tenant = call.tenant.clone();
    let name = call.param(0).to_owned();
    let now = api.env.clock.wall();
    change(api, call, move |tx| {
        let before = tables::by_name(tx, &tenant, &name)?.or_not_found("source")?;
        tables::delete(tx, before.seq, now)?;
        let revoked = credentials::revoke_all(tx, Owner::Source(before.seq))?;
        resolve_escalations(tx, &tenant, &name, now)?;
        let shown = shown(&before, &SourceStatus::default());
        Ok(Change::gone("source", &before.new.id, &shown).and("revoked", revoked))
    })
}

fn pause(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    alter(api, call, None, |source| source.state = SourceState::Paused)
}

fn resume(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    alter(api, call, None, |source| source.state = SourceState::Active)
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
    let begin = match (cursor, from) {
        (Some(_), None) if matches!(source.new.settings, Settings::Database(_)) => {
            return Err(Problem::conflict(
                "A database has no cursor of one number. Give from: start or now, for the mode xid8.",
            ));
        }
        (Some(cursor), None) => {
            Beginning { cursor: i64::try_from(cursor).unwrap_or(i64::MAX), identity: None }
        }
        (None, Some(from)) => beginning(api, &source.new.tenant, &source.new.settings, from)?,
        _ => return Err(Problem::unprocessable("Give either cursor or from.")),
    };
    if let Settings::Database(DatabaseSettings { mode: Mode::Mark | Mode::Claim, .. }) =
        source.new.settings
    {
        return Err(Problem::conflict(
            "What was read is marked in the table. To read rows again: oncebox source reopen NAME --since TIME.",
        ));
    }
    alter(api, call, None, move |source| {
        source.new.cursor = begin.cursor;
        source.identity.clone_from(&begin.identity);
    })
}

fn reopen(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let SourceReopening { since } = call.json()?;
    if mode_of(&find(api, call)?)? == Mode::Xid8 {
        return Err(Problem::conflict(
            "This source has no marks: its position is part of the backup. To read all rows again: oncebox source \
             reset NAME --from-start.",
        ));
    }
    let restored_at = restored_at(api)?;
    alter(api, call, None, move |source| {
        let asked = Some(Asked::Reopen(since.minus(CLOCKS_DIFFER)));
        let state = DatabaseState { asked, restored_at, position: None };
        source.identity = state.to_text();
    })
}

fn release(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let SourceRelease { claimed_by } = call.json()?;
    if mode_of(&find(api, call)?)? != Mode::Claim {
        return Err(Problem::conflict(
            "Only a source of the mode claim has rows that a box has claimed.",
        ));
    }
    alter(api, call, None, move |source| {
        let state = DatabaseState::read(source.identity.as_deref());
        let asked = Some(Asked::Release(claimed_by.0.clone()));
        source.identity = DatabaseState { asked, ..state }.to_text();
    })
}

/// The mode of a source that reads a database.
fn mode_of(source: &Source) -> Result<Mode, Problem> {
    match &source.new.settings {
        Settings::Database(database) => Ok(database.mode),
        Settings::Sqlite(_) | Settings::Drop(_) | Settings::Http(_) => Err(Problem::conflict(
            "Only a source of the kind database has marks in a table: see oncebox source reset.",
        )),
    }
}

/// When the file was last restored.
fn restored_at(api: &Api) -> Result<Option<Timestamp>, Problem> {
    Ok(api.env.store.read(meta::restored)?.map(|restored| restored.at))
}

/// Whether what is known of one table means nothing for the other.
fn is_other_table(before: &Settings, after: &Settings) -> bool {
    let (Settings::Database(before), Settings::Database(after)) = (before, after) else {
        return false;
    };
    let of = |at: &DatabaseSettings| (at.database.clone(), at.table.clone(), at.mode);
    of(before) != of(after)
}

/// `GET /v1/sources/{name}/test`
fn test(api: &Api, call: &Call) -> Result<Response, Problem> {
    let source = find(api, call)?;
    let checks = match &source.new.settings {
        Settings::Http(list) => inspect::of_list(&api.flow.lists, &api.flow.receive, &source, list),
        _ => inspect::checks(&api.env.settings.get(), &api.flow.databases, &source),
    };
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
    let tenant = call.tenant.clone();
    let name = call.param(0).to_owned();
    let now = api.env.clock.wall();
    let statuses = api.flow.sources.clone();
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

/// Ends what was raised about a source: a person has acted.
pub(super) fn resolve_escalations(
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

/// The source that the path names.
pub(super) fn find(api: &Api, call: &Call) -> Result<Source, Problem> {
    api.env
        .store
        .read(|tx| tables::by_name(tx, &call.tenant, call.param(0)))?
        .or_not_found("source")
}

fn read_settings(api: &Api, call: &Call, kind: &str, given: Value) -> Result<Settings, Problem> {
    let wrong = |why: String| Problem::unprocessable(format!("{why}."));
    let settings = Settings::read(kind, given).map_err(wrong)?;
    if let Some(path) = settings.path() {
        permitted(&api.env.settings.get(), &call.tenant, path).map_err(wrong)?;
    }
    if let Settings::Http(list) = &settings {
        let terms = list.terms().map_err(wrong)?;
        subscription_terms::address(api, terms.url.as_str())?;
    }
    if let Settings::Database(database) = &settings {
        database_connection::find(&api.flow.databases, &call.tenant, database).map_err(wrong)?;
    }
    Ok(settings)
}

/// The folders of all sources, by their numbers.
type Folders = Vec<(i64, PathBuf)>;

fn folders(tx: &ReadTx<'_>) -> StoreResult<Folders> {
    let all = tables::of_kind(tx, "drop")?.into_iter();
    let folder = |source: Source| Some((source.seq, source.new.settings.path()?.to_owned()));
    Ok(all.filter_map(folder).collect())
}

/// Refuses a folder that another source reads. Returns the folders that it was compared with: comparing resolves
/// symbolic links on the disk, which must not happen in a transaction.
fn check_folder(api: &Api, folder: &Path, own: Option<i64>) -> Result<Folders, Problem> {
    // A folder that does not exist yet is compared by its name.
    let real = |path: &Path| -> PathBuf { path.canonicalize().unwrap_or_else(|_| path.to_owned()) };
    let folder_path = real(folder);
    let all = api.env.store.read(folders)?;
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

/// Where reading begins.
struct Beginning {
    cursor: i64,
    /// What is kept of a database.
    identity: Option<String>,
}

fn beginning(
    api: &Api,
    tenant: &str,
    settings: &Settings,
    from: From,
) -> Result<Beginning, Problem> {
    let unread =
        |why: String| Problem::unprocessable(format!("Its last row cannot be read: {why}."));
    let at = |cursor: i64| Beginning { cursor, identity: None };
    match (settings, from) {
        (Settings::Sqlite(_) | Settings::Drop(_) | Settings::Http(_), From::Start) => Ok(at(0)),
        (Settings::Http(_), From::Now) => Ok(at(api.env.clock.wall().ms())),
        (Settings::Sqlite(_), From::Now) => {
            inspect::last_row(&api.env.settings.get(), tenant, settings).map(at).map_err(unread)
        }
        (Settings::Drop(_), From::Now) => {
            Err(Problem::unprocessable("from is not for a folder: it is read from its first file."))
        }
        (Settings::Database(database), from) => {
            let mut state = DatabaseState::begun(restored_at(api)?);
            if from == From::Now {
                let now = inspect::position_now(&api.flow.databases, tenant, database);
                state.position = Some(now.map_err(Problem::unprocessable)?);
            }
            Ok(Beginning { cursor: 0, identity: state.to_text() })
        }
    }
}

/// The span of `silent_after_ms`; `None` is never.
fn silence(ms: u64) -> Result<Option<Duration>, Problem> {
    if ms == 0 {
        return Ok(None);
    }
    let span = Duration::from_millis(ms);
    if !(SILENCE_LEAST..=MAX_SILENCE).contains(&span) {
        let least = millis(SILENCE_LEAST);
        let most = millis(MAX_SILENCE);
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
    state: SourceState,
    /// The id of the last row that was copied; for a list the time up to which it was read, in milliseconds.
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
        lag: status.lag.filter(|_| source.state == SourceState::Active),
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
