//! `/v1/sources`: where events are read from besides the API.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::audited::{Audited, Change, change};
use crate::api::call::{Call, ok, page_of};
use crate::api::problem::Problem;
use crate::api::route::Answer::{Listed, Now};
use crate::api::route::{Answer, Param, Resource, Returns, doc, route};
use crate::api::schema::{self, AFTER, LIMIT};
use crate::api::source_shapes as shapes;
use crate::api::status;
use crate::api::{Api, lists};
use crate::base::clock::{Timestamp, millis};
use crate::base::id;
use crate::http::message::Method::{Delete, Get, Patch, Post};
use crate::http::message::Response;
use crate::model::escalation::Class;
use crate::model::health::{Level, worst};
use crate::model::lenient_int;
use crate::model::name::Name;
use crate::model::token::Right;
use crate::sources::{MAX_SILENCE, NewSource, SILENCE_LEAST, Settings, Source, State};
use crate::sources::{SourceStatus, inspect, permitted, tables};
use crate::store::error::Result as StoreResult;
use crate::store::escalations;
use crate::store::tx::{ReadTx, WriteTx};

const NAME: Param = Param::path("name", "The source's name.", schema::name, "erp");
const IS: &[Returns] = &[Returns::json(200, "The source as it is now.", "Source")];

/// Where events are read from.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Sources",
    about: "Where events are read from besides the API: the `SQLite` file of an ERP, or a folder that files are put into.",
    routes: &[
        route(
            Get,
            "/v1/sources",
            Some(Right::Read),
            Listed(list),
            doc(
                "listSources",
                "List the sources",
                "With how far each was read, and what stands in its way.",
                &[Returns::page("A page of sources, the oldest first.", "Source")],
            )
            .params(&[LIMIT, AFTER]),
        ),
        route(
            Post,
            "/v1/sources",
            Some(Right::Admin),
            Answer::Change("source.create", create),
            doc(
                "createSource",
                "Make a source",
                "It is read from the answer on, with the rights of the service.",
                &[Returns::json(201, "The source.", "Source")],
            )
            .body("SourceCreation", shapes::creation_example),
        ),
        route(
            Get,
            "/v1/sources/{name}",
            Some(Right::Read),
            Now(show),
            doc("getSource", "Show a source", "One source.", IS).params(&[NAME]),
        ),
        route(
            Patch,
            "/v1/sources/{name}",
            Some(Right::Admin),
            Answer::Change("source.change", change_one),
            doc(
                "changeSource",
                "Change a source",
                "What is absent stays; settings are replaced as a whole. The cursor stays too.",
                IS,
            )
            .params(&[NAME])
            .body("SourceChange", shapes::change_example),
        ),
        route(
            Delete,
            "/v1/sources/{name}",
            Some(Right::Admin),
            Answer::Change("source.delete", delete),
            doc(
                "deleteSource",
                "Delete a source",
                "It is read no more. What came from it stays, and so does what it was read from.",
                &[Returns::nothing("It is deleted.")],
            )
            .params(&[NAME]),
        ),
        route(
            Get,
            "/v1/sources/{name}/test",
            Some(Right::Operate),
            Now(test),
            doc(
                "testSource",
                "Test a source",
                "Opens what it reads and looks whether it suits. Nothing is copied and nothing is changed.",
                &[Returns::json(200, "What was found.", "SourceTest")],
            )
            .params(&[NAME]),
        ),
        route(
            Post,
            "/v1/sources/{name}/pause",
            Some(Right::Operate),
            Answer::Change("source.pause", pause),
            doc("pauseSource", "Pause a source", "What is there waits.", IS).params(&[NAME]),
        ),
        route(
            Post,
            "/v1/sources/{name}/resume",
            Some(Right::Operate),
            Answer::Change("source.resume", resume),
            doc("resumeSource", "Resume a source", "It goes on where it stands.", IS).params(&[NAME]),
        ),
        route(
            Post,
            "/v1/sources/{name}/reset",
            Some(Right::Operate),
            Answer::Change("source.reset", reset),
            doc(
                "resetSource",
                "Set where a source is read from",
                "Decides what is copied after the file was replaced or restored: everything that is there \
                 (`start`; an event that is known by its key is not stored again), only what comes from now \
                 on, or what stands behind a row.",
                IS,
            )
            .params(&[NAME])
            .body("SourceReset", shapes::reset_example),
        ),
    ],
    shapes: shapes::ALL,
};

/// `POST /v1/sources`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Creation {
    name: String,
    kind: String,
    settings: Value,
    from: Option<String>,
    #[serde(default, deserialize_with = "lenient_int::optional")]
    silent_after_ms: Option<u64>,
}

/// `PATCH /v1/sources/{name}`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Alteration {
    settings: Option<Value>,
    #[serde(default, deserialize_with = "lenient_int::optional")]
    silent_after_ms: Option<u64>,
}

/// `POST /v1/sources/{name}/reset`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reset {
    #[serde(default, deserialize_with = "lenient_int::optional")]
    cursor: Option<u64>,
    from: Option<String>,
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
    let Creation { name, kind, settings, from, silent_after_ms } = call.json()?;
    let name = Name::parse(&name).map_err(|error| Problem::unprocessable(format!("{error}.")))?;
    let settings = read_settings(api, call, &kind, settings)?;
    let alone = match &settings {
        Settings::Drop(folder) => Some(check_alone(api, &folder.path, None)?),
        Settings::Sqlite(_) => None,
    };
    let cursor = match from {
        None => 0,
        Some(from) => begin(api, (&call.tenant, &settings), &from)?,
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
        if !still_alone(tx, alone.as_ref())? {
            return Ok(Err(taken_meanwhile()));
        }
        if tables::insert(tx, &new, now)?.is_none() {
            let detail = format!("There is a source named {:?} already.", new.name.as_str());
            return Ok(Err(Problem::conflict(detail)));
        }
        let Some(made) = tables::by_name(tx, &new.tenant, new.name.as_str())? else {
            return Ok(Err(missing()));
        };
        let body = shown(&made, &SourceStatus::default());
        let change = Change::made("source", &new.id, &body);
        Ok(Ok((body, change)))
    })
}

fn change_one(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let found = find(api, call)?;
    let Alteration { settings, silent_after_ms } = call.json()?;
    let kind = found.new.settings.kind();
    let settings = settings.map(|given| read_settings(api, call, kind, given)).transpose()?;
    let alone = match &settings {
        Some(Settings::Drop(folder)) => Some(check_alone(api, &folder.path, Some(found.seq))?),
        _ => None,
    };
    let silent_after = silent_after_ms.map(silence).transpose()?;
    alter(api, call, alone, move |source| {
        if let Some(settings) = &settings {
            source.new.settings = settings.clone();
        }
        if let Some(silent_after) = silent_after {
            source.new.silent_after = silent_after;
        }
    })
}

fn delete(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let (tenant, name) = (call.tenant.clone(), call.param(0).to_owned());
    let now = api.clock.wall();
    change(api, call, move |tx| {
        let Some(before) = tables::by_name(tx, &tenant, &name)? else { return Ok(Err(missing())) };
        tables::delete(tx, before.seq, now)?;
        close(tx, &tenant, &name, now)?;
        let shown = shown(&before, &SourceStatus::default());
        Ok(Ok((Value::Null, Change::gone("source", &before.new.id, &shown))))
    })
}

fn pause(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    alter(api, call, None, |source| source.state = State::Paused)
}

fn resume(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    alter(api, call, None, |source| source.state = State::Active)
}

fn reset(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let Reset { cursor, from } = call.json()?;
    let source = find(api, call)?;
    if let Settings::Drop(_) = source.new.settings {
        return Err(Problem::conflict(
            "A folder has no cursor. A file is taken again under another name, and of its rows those that \
             are not known by their key.",
        ));
    }
    let cursor = match (cursor, from) {
        (Some(cursor), None) => i64::try_from(cursor).unwrap_or(i64::MAX),
        (None, Some(from)) => begin(api, (&source.new.tenant, &source.new.settings), &from)?,
        _ => return Err(Problem::unprocessable("Give either a cursor or from.")),
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
    let checks = status::shown(&checks);
    Ok(ok(&json!({ "ok": is_ok, "checks": checks })))
}

/// Changes the source that the path names. A person has acted: what was escalated about it is over, and
/// raised anew if it is not.
fn alter(
    api: &Api,
    call: &Call,
    alone: Option<Folders>,
    mut with: impl FnMut(&mut Source) + Send + 'static,
) -> Result<Audited<Value>, Problem> {
    let (tenant, name) = (call.tenant.clone(), call.param(0).to_owned());
    let (now, statuses) = (api.clock.wall(), api.flow.sources.clone());
    change(api, call, move |tx| {
        let Some(before) = tables::by_name(tx, &tenant, &name)? else { return Ok(Err(missing())) };
        if !still_alone(tx, alone.as_ref())? {
            return Ok(Err(taken_meanwhile()));
        }
        let mut row = before.clone();
        with(&mut row);
        tables::update(tx, &row, now)?;
        close(tx, &tenant, &name, now)?;
        let Some(after) = tables::by_name(tx, &tenant, &name)? else { return Ok(Err(missing())) };
        let status = statuses.of(after.seq);
        let body = shown(&after, &status);
        let change = Change::changed("source", &after.new.id, &shown(&before, &status), &body);
        Ok(Ok((body, change)))
    })
}

fn close(tx: &WriteTx<'_>, tenant: &str, name: &str, now: Timestamp) -> StoreResult<()> {
    let subject = format!("source:{name}");
    for class in [Class::SourceFailing, Class::SourceReplaced, Class::SourceSilent] {
        escalations::resolve(tx, tenant, class, &subject, now)?;
    }
    Ok(())
}

fn missing() -> Problem {
    Problem::not_found("source")
}

fn find(api: &Api, call: &Call) -> Result<Source, Problem> {
    let found = api.store.read(|tx| tables::by_name(tx, &call.tenant, call.param(0)))?;
    found.ok_or_else(missing)
}

fn read_settings(api: &Api, call: &Call, kind: &str, given: Value) -> Result<Settings, Problem> {
    let wrong = |why: String| Problem::unprocessable(format!("{why}."));
    let settings = Settings::read(kind, given).map_err(|error| wrong(error.to_string()))?;
    permitted(&api.settings.get(), &call.tenant, settings.path()).map_err(wrong)?;
    Ok(settings)
}

/// The folders of all sources, by their numbers.
type Folders = Vec<(i64, PathBuf)>;

fn folders(tx: &ReadTx<'_>) -> StoreResult<Folders> {
    let all = tables::of_kind(tx, "drop")?.into_iter();
    Ok(all.map(|source| (source.seq, source.new.settings.path().to_owned())).collect())
}

/// Two sources over one folder would take turns with its files. Returns the folders it was compared with: where
/// links lead takes looking at the disk, for which no transaction waits.
fn check_alone(api: &Api, folder: &Path, own: Option<i64>) -> Result<Folders, Problem> {
    // One that is not there yet is what it is called.
    let real = |path: &Path| -> PathBuf { path.canonicalize().unwrap_or_else(|_| path.to_owned()) };
    let place = real(folder);
    let all = api.store.read(folders)?;
    if all.iter().any(|(seq, other)| Some(*seq) != own && real(other) == place) {
        let detail = format!("There is a source over {} already.", folder.display());
        return Err(Problem::conflict(detail));
    }
    Ok(all)
}

/// Whether no folder has come since they were compared.
fn still_alone(tx: &WriteTx<'_>, compared: Option<&Folders>) -> StoreResult<bool> {
    let Some(compared) = compared else { return Ok(true) };
    Ok(folders(tx)?.iter().all(|folder| compared.contains(folder)))
}

fn taken_meanwhile() -> Problem {
    Problem::conflict("Another source got its folder at the same time. Send this again.")
}

/// Behind which row reading begins.
fn begin(api: &Api, (tenant, settings): (&str, &Settings), from: &str) -> Result<i64, Problem> {
    match from {
        "now" if matches!(settings, Settings::Drop(_)) => {
            Err(Problem::unprocessable("from is for sqlite: a folder is read from its first file."))
        }
        "start" => Ok(0),
        "now" => inspect::last_row(&api.settings.get(), tenant, settings).map_err(|error| {
            Problem::unprocessable(format!("Its last row cannot be found out: {error}."))
        }),
        _ => {
            let known = shapes::FROM.join(" or ");
            Err(Problem::unprocessable(format!("from cannot be {from:?}; it is {known}.")))
        }
    }
}

/// What is asked for; `None` is never.
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

fn shown(source: &Source, status: &SourceStatus) -> Value {
    let Source {
        seq: _,
        new,
        state,
        identity: _,
        event_count,
        last_event_at,
        last_read_at,
        last_error,
        failing_since,
        created_at,
        updated_at,
    } = source;
    let NewSource { id, tenant, name, settings, cursor, silent_after } = new;
    // A turn that was under way when it was paused tells of before.
    let lag = status.lag.filter(|_| *state == State::Active);
    json!({
        "id": id, "tenant": tenant, "name": name, "kind": settings.kind(),
        "settings": settings.to_json(), "state": state.as_str(), "cursor": cursor,
        "lag": lag, "waits_for": status.waits_for, "event_count": event_count,
        "last_event_at": last_event_at, "last_read_at": status.last_read_at.or(*last_read_at),
        "last_error": last_error, "failing_since": failing_since,
        "silent_after_ms": silent_after.map(millis),
        "created_at": created_at, "updated_at": updated_at,
    })
}
