//! `/v1/backups`: makes a backup now, into the folder of the scheduled ones, and lists what is there.

use crate::api::prelude::*;
use crate::backup::manifest::{Manifest, Reason};
use crate::backup::retention::BackupFile;
use crate::backup::schedule::Running;
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
    ],
};

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
    let of = |BackupFile { path, manifest }: BackupFile| {
        let Manifest { created_at, reason, version, facts, bytes, .. } = manifest;
        let (path, master_key_id) = (path.display().to_string(), facts.master_key_id);
        BackupAnswer { path, created_at, reason: reason.into(), bytes, version, master_key_id }
    };
    let items = backups.list().into_iter().take(MAX_LISTED).map(of).collect();
    let every_secs = api.settings.get().backup.every.map(|every| every.as_secs());
    Ok(ok(&Backups { directory: backups.directory.display().to_string(), every_secs, items }))
}

/// `POST /v1/backups`
fn make(api: &Api, call: Call, reply: Reply) {
    let Some(running) = api.flow.backups.begin() else {
        let problem = Problem::conflict("Another backup is being made at this moment.");
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
    let start = api.clock.monotonic();
    let backups = &api.flow.backups;
    let taken = backups.take(Reason::Asked, &backups.stop);
    drop(running);
    let (path, manifest) =
        taken.map_err(|error| Problem::conflict(format!("The backup was not made: {error}.")))?;
    let seconds = api.clock.monotonic().saturating_sub(start).as_secs_f64();
    let (path, file) = (path.display().to_string(), manifest.file);
    let (created_at, bytes) = (manifest.created_at, manifest.bytes);
    let made = MadeBackup { path, created_at, bytes, seconds };
    change(api, call, move |_tx| Ok(Change::made("backup", &file, &made)))
}
