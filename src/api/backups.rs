//! `/v1/backups`: makes a backup now, into the folder of the scheduled ones; lists, checks and hands out what is there.

use std::fs::File;
use std::sync::Arc;

use serde_json::json;

use crate::api::claimed::{self, Wanted};
use crate::api::prelude::*;
use crate::backup::manifest::{ENDING, Manifest, Reason};
use crate::backup::online;
use crate::backup::retention::BackupFile;
use crate::backup::schedule::Running;
use crate::http::message::FileBody;
use crate::model::effect::EffectKind;
use crate::model::token::Right::Box;

/// The most backups that are listed.
const MAX_LISTED: usize = 500;

/// The backups.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Backups",
    about: "Backups of the database, in the directory of the scheduled ones.",
    routes: &[
        get("/v1/backups", Box, Listed(list))
            .doc("listBackups", "List the backups", &[])
            .about("The newest first, at most 500. Their content is not checked: see `oncebox backup verify`.")
            .returns(&[Returns::json::<Backups>(200, "The backups.")]),
        post("/v1/backups", Box, ActLater("backup.make", make))
            .doc("makeBackup", "Make a backup now", &[])
            .about(
                "Copies the database while it is in use, and checks the copy; answers when it is done. Scheduled \
                 backups never remove it. Answers 409 while another one is being made, and if it cannot be made.",
            )
            .returns(&[Returns::json::<MadeBackup>(201, "The backup was made.")]),
        get("/v1/backups/{name}", Box, Act("backup.download", download))
            .doc("downloadBackup", "Download a backup", &[NAME])
            .about(
                "The file as it is. A restore also needs its manifest, the file of the same name with `.manifest.json`. The copies of \
                 months are not in it.",
            )
            .returns(&[Returns::text("The file.", "application/octet-stream")])
            .problems(&[Kind::Conflict]),
        post("/v1/backups/{name}/verify", Box, ActLater("backup.verify", verify))
            .doc("verifyBackup", "Verify a backup", &[NAME])
            .about(
                "Reads it completely, and compares it with its manifest. Answers when it is done; 409 if it is damaged, and \
                 while a backup is being made or verified.",
            )
            .returns(&[Returns::json::<BackupAnswer>(200, "The backup is whole.")]),
    ],
};

const NAME: Param =
    Param::path::<Text<1, 255>>("name", "The name of its file.", "oncebox-20260131T120000Z.db");

values! {
    /// Why a backup was made.
    BackupReason = { "type": "string", "enum": ["asked", "scheduled", "before_upgrade"] }
}

/// The backups that are there.
#[derive(Serialize, JsonSchema)]
struct Backups {
    /// Their directory.
    directory: String,
    /// A scheduled backup is made each time so many seconds have passed; null: never.
    every_secs: Option<u64>,
    items: Vec<BackupAnswer>,
}

/// A backup.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Backup")]
struct BackupAnswer {
    path: String,
    created_at: Timestamp,
    reason: Is<BackupReason, Reason>,
    bytes: u64,
    /// The version of Oncebox that made it.
    version: String,
    /// The id of the master key that it needs; the key is not in it.
    master_key_id: Option<String>,
}

/// A backup that was made.
#[derive(Serialize, JsonSchema)]
struct MadeBackup {
    path: String,
    created_at: Timestamp,
    bytes: u64,
    /// How long it took.
    seconds: f64,
}

/// `GET /v1/backups`
#[expect(clippy::unnecessary_wraps, reason = "every route has this shape")]
fn list(api: &Api, _call: &Call) -> Result<Response, Problem> {
    let backups = &api.flow.backups;
    let items = backups.list().into_iter().take(MAX_LISTED).map(BackupAnswer::of).collect();
    let every_secs = api.env.settings.get().backup.every.map(|every| every.as_secs());
    Ok(ok(&Backups { directory: backups.directory.display().to_string(), every_secs, items }))
}

impl BackupAnswer {
    fn of(BackupFile { path, manifest }: BackupFile) -> Self {
        let Manifest { created_at, reason, version, facts, bytes, .. } = manifest;
        let path = path.display().to_string();
        let master_key_id = facts.master_key_id;
        Self { path, created_at, reason: reason.into(), bytes, version, master_key_id }
    }
}

/// `POST /v1/backups`
fn make(api: &Api, call: Call, reply: Reply) {
    apart(api, call, reply, run);
}

/// Why a backup is refused while another one is claimed.
const BUSY: &str = "A backup is being made or verified at this moment.";

/// `POST /v1/backups/{name}/verify`
fn verify(api: &Api, call: Call, reply: Reply) {
    apart(api, call, reply, |api, call, running| {
        let found = find(api, call)?;
        let verified = online::verify(&found.path);
        drop(running);
        verified.map_err(|error| Problem::conflict(format!("It cannot be restored: {error}.")))?;
        let file = found.manifest.file.clone();
        let shown = BackupAnswer::of(found);
        change(api, call, move |_tx| {
            Ok(Change::changed("backup", &file, &(), &shown).and("verified", true))
        })
    });
}

/// `GET /v1/backups/{name}`
///
/// A backup has everything in it, so reading one is audited as a change is.
fn download(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let BackupFile { mut path, manifest } = find(api, call)?;
    if call.param(0) != manifest.file {
        path = Manifest::path_of(&path);
    }
    let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (bytes, file) =
        opened.map_err(|error| Problem::conflict(format!("It cannot be read: {error}.")))?;
    tracing::info!(who = call.who.display, file = call.param(0), "a backup is downloaded");
    let name = call.param(0).to_owned();
    let noted = change(api, call, move |_tx| {
        Ok(Change::changed("backup", &name, &(), &()).and("bytes", bytes))
    })?;
    Ok(noted.with_file(FileBody { file: Arc::new(file), bytes }))
}

/// The backup that the path names, by its file or its manifest.
fn find(api: &Api, call: &Call) -> Result<BackupFile, Problem> {
    let name = call.param(0);
    let is_named = |backup: &BackupFile| {
        let file = backup.manifest.file.as_str();
        file == name || name.strip_prefix(file) == Some(ENDING)
    };
    api.flow.backups.list().into_iter().find(is_named).or_not_found("backup")
}

/// Does what takes long in a thread of its own, one at a time.
fn apart(
    api: &Api,
    call: Call,
    reply: Reply,
    run: fn(&Api, &Call, Running) -> Result<Audited<Value>, Problem>,
) {
    let Some(running) = api.flow.backups.begin() else {
        let problem = Problem::conflict(BUSY);
        return reply.send(api.acted(&call, Err(problem)));
    };
    let own = api.clone();
    let spawned = api.flow.spawner.spawn("backup-now", move || {
        let done = run(&own, &call, running);
        reply.send(own.acted(&call, done));
    });
    if let Err(error) = spawned {
        tracing::error!(%error, "a backup could not be started");
    }
}

fn run(api: &Api, call: &Call, running: Running) -> Result<Audited<Value>, Problem> {
    let start = api.env.clock.monotonic();
    let backups = &api.flow.backups;
    let reserved = claimed::reserve(api, EffectKind::BackupMake, "backup", BUSY)?;
    let wanted = Wanted { reserved, terms: json!({}), busy: BUSY };
    let claim = claimed::claim(api, call, wanted, |_tx| Ok(()))?;
    let taken = backups.take(Reason::Asked, &backups.stop);
    drop(running);
    let (path, manifest) = match taken {
        Ok(taken) => taken,
        Err(error) => {
            claimed::end(api, claim);
            return Err(Problem::conflict(format!("The backup was not made: {error}.")));
        }
    };
    let seconds = api.env.clock.monotonic().saturating_sub(start).as_secs_f64();
    let path = path.display().to_string();
    let file = manifest.file;
    let created_at = manifest.created_at;
    let bytes = manifest.bytes;
    let made = MadeBackup { path, created_at, bytes, seconds };
    claimed::finish(api, call, &claim, move |_tx| Ok(Change::made("backup", &file, &made)))
}
