//! The checks of `/readyz`, judged by `model::health`. No check reveals anything about a tenant, so `/readyz` needs no
//! token.

use crate::api::context::Api;
use crate::api::last_write::LastWrite;
use crate::archive::mover::Status;
use crate::backup::manifest;
use crate::model::health::{self, ArchiveState, Check, Level};
use crate::pipeline::upkeep::disk_watch::DiskState;
use crate::store::escalations;
use crate::store::stats::{self, Attention};
use crate::sys::files;

/// Runs all checks.
pub(super) fn checks(api: &Api) -> Vec<Check> {
    run_checks(api, api.last_write.again(&api.env.store))
}

/// Why `/readyz` would answer 503. It does not wait for its test write: the next call sees the result.
pub(super) fn not_ready(api: &Api) -> Option<String> {
    failures(&run_checks(api, LastWrite::begin(&api.last_write, &api.env.store)))
}

/// The checks that fail, in words.
pub(super) fn failures(checks: &[Check]) -> Option<String> {
    let failed = checks.iter().filter(|check| check.level == Level::Fail);
    let why: Vec<String> =
        failed.map(|check| format!("{}: {}", check.name, check.detail)).collect();
    (!why.is_empty()).then(|| format!("{}.", why.join("; ")))
}

/// What the archive has, and how its last run went.
pub(super) fn archive_state(api: &Api) -> ArchiveState {
    let archiving = &api.flow.archiving;
    let files = archiving.archive.files().unwrap_or_default();
    let Status { ended_at, error, hot, .. } = archiving.status();
    ArchiveState {
        months: files.len(),
        bytes: files.iter().map(|file| file.bytes).sum(),
        hot: hot.map(|hot| hot.events),
        oldest_at: hot.and_then(|hot| hot.oldest_at),
        ended_at,
        error,
    }
}

fn run_checks(api: &Api, written: Result<(), String>) -> Vec<Check> {
    let now = api.env.clock.now();
    let DiskState { room, space, reserve } = api.flow.disk.state();
    let lasts = api.flow.disk.lasts();
    let count = || api.env.store.read(stats::attention_counts);
    let counts = api.kept_counts.of_all(api.env.clock.monotonic(), count);
    let read = counts.and_then(|counts| api.env.store.read(|tx| stats::attention_with(tx, counts)));
    let unreadable = read.as_ref().err().map(|error| format!("it cannot be read: {error}"));
    let log = api.env.store.writer().room();
    let mut checks = vec![
        health::database(unreadable.map_or(written, Err)),
        health::lasting(health::disk(room, space, reserve), lasts),
        health::log(log.bytes(), log.reader().is_some()),
        health::clock(api.env.clock.shown(), api.env.clock.suspicion()),
        health::writer(api.env.store.writer().lag()),
        health::starts(api.flow.suspects.is_careful()),
    ];
    if let Ok(Attention {
        oldest_due_at,
        dead_letters,
        holds,
        quarantined,
        in_doubt,
        window,
        chores,
    }) = read
    {
        let overdue = oldest_due_at.filter(|due| *due <= now).map(|due| now.since(due));
        checks.push(health::due(overdue));
        checks.push(health::dead_letters(dead_letters));
        checks.push(health::quarantined(quarantined));
        checks.push(health::subscriptions(&holds));
        checks.push(health::in_doubt(window, in_doubt, api.env.clock.wall()));
        checks.push(health::duties(&chores, now));
    }
    if let Ok(open) = api.env.store.read(escalations::open) {
        let (count, unseen) = open.iter().fold((0_u64, 0_u64), |(count, unseen), of| {
            (count.saturating_add(of.count), unseen.saturating_add(of.unseen))
        });
        checks.push(health::escalations(count, unseen));
    }
    let settings = api.env.settings.get();
    let now = api.env.clock.wall();
    let newest = files::newest_until(&settings.backup_directory(), manifest::ENDING, now);
    let age = newest.map(|at| now.since(at));
    checks.push(health::backup(settings.backup.every, age));
    checks.push(health::archive(archive_state(api)));
    checks
}
