//! `/v1/archive`: the files with finished events, moving more into them, and deleting one.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::json;

use crate::api::claimed::{self, Wanted};
use crate::api::kind::Kind as ProblemKind;
use crate::api::lists;
use crate::api::prelude::*;
use crate::archive::mover::{Status, WAITING};
use crate::archive::tables::walk::{self, Before, Count};
use crate::archive::{ArchiveFile, ArchivedKind, Month, removal};
use crate::base::clock;
use crate::model::effect::{AskedBy, EffectKind};
use crate::model::token::Right::Box;
use crate::store::claimed_effects::{self, NewEffect};
use crate::store::legal_holds;

/// How old an event may be at least or at most that is asked to be moved.
const AGES: RangeInclusive<Duration> =
    Duration::from_hours(24)..=Duration::from_hours(24 * 366 * 100);

/// When a caller is to ask again whose month could not be deleted, in seconds.
const RETRY_SECS: u64 = 60;
/// How long ago the events finished that a run moves which names no age.
const DEFAULT_AGE: &str = "2months";

const BUSY: &str = "Events are being moved at this moment.";
const DELETING: &str = "It is being deleted at this moment.";

const MONTH: Param = Param::path::<MonthText>("month", "The month.", "2026-11");

/// The archive.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Archive",
    about: "Finished events leave the database for the file of the month in which they finished. Lists and single \
            answers have them as before, with `archived_in`.",
    routes: &[
        get("/v1/archive", Box, Listed(list))
            .doc("listArchive", "List the months of the archive", &[])
            .about("The latest first, and what the archive does.")
            .returns(&[Returns::json::<ArchiveAnswer>(200, "The archive.")]),
        post("/v1/archive/runs", Box, Act("archive.run", run))
            .doc("runArchive", "Move what finished long ago into the archive", &[])
            .about(
                "Answers before it is done: `run` of `GET /v1/archive` says how far it is. A run that a restart cuts short \
                 goes on after it.",
            )
            .returns(&[Returns::json::<RunAnswer>(200, "What is moved; with `dry_run`, what would be.")])
            .body::<Run>(r#"{"older_than":"60days","dry_run":true}"#)
            .problems(&[ProblemKind::Conflict]),
        delete("/v1/archive/{month}", Box, Act("archive.delete", remove))
            .doc("deleteArchiveMonth", "Delete a month of the archive", &[MONTH])
            .about(
                "Its events are gone for good. They stay known: one that is sent again is not stored again. Answers \
                 409 while events are moved. If the file cannot be deleted, the answer is 503, and it is tried again \
                 until it is gone or a legal hold needs it.",
            )
            .returns(&[Returns::nothing("The file is deleted.")])
            .problems(&[ProblemKind::Conflict]),
    ],
};

values! {
    /// A month, in UTC.
    MonthText = { "type": "string", "pattern": "^[0-9]{4}-(0[1-9]|1[0-2])$" }
}

/// The archive.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Archive")]
struct ArchiveAnswer {
    /// The directory of the files.
    directory: String,
    /// How long finished events stay in the database.
    after: String,
    /// How long a file is kept after the end of its month.
    keep: String,
    run: RunStatus,
    items: Vec<MonthAnswer>,
}

/// What the archive does, and did last.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ArchiveRun")]
struct RunStatus {
    /// When the run under way began; null if there is none.
    since: Option<Timestamp>,
    /// When the last one ended.
    ended_at: Option<Timestamp>,
    /// Events that it has moved.
    events: u64,
    /// Bytes of their bodies.
    bytes: u64,
    /// Why it ended early.
    error: Option<String>,
    /// How many events and webhook events the database had at its end; null before the first.
    hot_events: Option<u64>,
    /// When the oldest of them was received.
    hot_oldest_at: Option<Timestamp>,
}

/// A month.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ArchiveMonth")]
struct MonthAnswer {
    month: Is<MonthText, String>,
    path: String,
    /// Bytes of the file.
    bytes: u64,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ArchiveRunRequest")]
struct Run {
    /// How long ago they finished at least, like `60days`; two months if absent.
    older_than: Option<Is<Text<1, 40>>>,
    /// Only says what would be moved.
    #[serde(default)]
    dry_run: bool,
}

/// What is moved.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ArchiveRunAnswer")]
struct RunAnswer {
    /// Events that finished before are moved.
    before: Timestamp,
    /// With `dry_run`: how many there are.
    events: Option<u64>,
    /// With `dry_run`: bytes of their bodies.
    bytes: Option<u64>,
}

/// `GET /v1/archive`
fn list(api: &Api, _call: &Call) -> Result<Response, Problem> {
    let archiving = &api.flow.archiving;
    let files = archiving.archive.files().map_err(|error| Problem::internal(error.to_string()))?;
    let of = |ArchiveFile { month, path, bytes }: ArchiveFile| MonthAnswer {
        month: month.to_string().into(),
        path: path.display().to_string(),
        bytes,
    };
    let Status { since, ended_at, events, bytes, error, hot } = archiving.status_with_asked()?;
    let settings = api.env.settings.get();
    let span = |span: Duration| humantime::format_duration(span).to_string().replace(' ', "");
    Ok(ok(&ArchiveAnswer {
        directory: archiving.archive.directory().display().to_string(),
        after: span(settings.archive.after),
        keep: span(settings.archive.keep),
        run: RunStatus {
            since,
            ended_at,
            events,
            bytes,
            error,
            hot_events: hot.map(|hot| hot.events),
            hot_oldest_at: hot.and_then(|hot| hot.oldest_at),
        },
        items: files.into_iter().map(of).collect(),
    }))
}

/// `POST /v1/archive/runs`
fn run(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let Run { older_than, dry_run } = call.json()?;
    let older_than = bare(older_than);
    let older_than = older_than.as_deref().unwrap_or(DEFAULT_AGE);
    let age = clock::span(older_than).map_err(Problem::unprocessable)?;
    if !AGES.contains(&age) {
        let detail = "older_than must be 24h or more, like 60days or 2months.";
        return Err(Problem::unprocessable(detail));
    }
    let now = api.env.clock.wall();
    let before = now.minus(age);
    if dry_run {
        let Count { events, bytes } = lists::read(api, call, |tx| {
            let [a, b] = ArchivedKind::ALL.map(|kind| walk::count(tx, kind, &Before::all(before)));
            Ok(a?.and(b?))
        })?;
        let answer = RunAnswer { before, events: Some(events), bytes: Some(bytes) };
        return Ok(Audited::dry_run(value(answer)));
    }
    // The answer is stored with the claim: the run itself comes later, also after a restart.
    let new = NewEffect {
        kind: EffectKind::ArchiveRun,
        subject: WAITING.to_owned(),
        tenant: call.tenant.clone(),
        terms: json!({ "before_ms": before.ms() }),
        asked_by: AskedBy::of(&call.event(now)),
        key: None,
        claimed_at: api.env.clock.now(),
    };
    let done = change(api, call, move |tx| {
        if claimed_effects::claim(tx, &new)?.is_none() {
            let detail = "Another run waits already for the one under way.";
            return Err(Problem::conflict(detail).into());
        }
        let answer = RunAnswer { before, events: None, bytes: None };
        Ok(Change::changed("archive", &before.to_string(), &(), &answer))
    })?;
    api.flow.archiving.ring();
    Ok(done)
}

/// `DELETE /v1/archive/{month}`
fn remove(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let month = Month::parse(call.param(0)).or_not_found("month")?;
    let archiving = &api.flow.archiving;
    let holds = api.env.store.read(legal_holds::all)?;
    if archiving.archive.path(&month).exists()
        && removal::is_held(&archiving.archive, &api.env.store, &month)?
    {
        return Err(Problem::conflict("A legal hold needs an event of this month."));
    }
    // No walk begins until it is dropped.
    let _no_walk = archiving.without_walk().ok_or_else(|| Problem::conflict(BUSY))?;
    let files = archiving.archive.files().map_err(|error| Problem::internal(error.to_string()))?;
    let file = files.into_iter().find(|file| file.month == month).or_not_found("month")?;
    let bytes = file.bytes;
    let of = month.to_string();
    let reserved = claimed::reserve(api, EffectKind::ArchiveDelete, &of, DELETING)?;
    let wanted = Wanted { reserved, terms: json!({ "bytes": bytes }), busy: DELETING };
    // A legal hold is in force before the claim, or made after the file is gone.
    let alone = archiving.archive.write_alone();
    let claim = claimed::claim(api, call, wanted, move |tx| {
        // One may have been made meanwhile.
        if legal_holds::all(tx)? != holds {
            return Err(Problem::conflict("Legal holds have changed meanwhile: try again.").into());
        }
        Ok(())
    })?;
    if let Err(error) = archiving.archive.remove(&month, &alone) {
        // The file may be gone all the same, so the claim stays.
        let detail = format!("The file could not be deleted: {error}. It is tried again.");
        return Err(Problem::unavailable(detail, RETRY_SECS));
    }
    drop(alone);
    claimed::finish(api, call, &claim, move |_tx| {
        Ok(Change::gone("archive", &of, &()).and("bytes", bytes))
    })
}
