//! What `/readyz` looks at. The judgement is `domain::health`'s; no check names a tenant or anything of
//! theirs, so that it needs no token.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::bounded;
use parking_lot::Mutex;

use crate::api::Api;
use crate::backup::manifest;
use crate::model::health::{self, Check, Level};
use crate::pipeline::disk_watch::DiskState;
use crate::store::error::Result as StoreResult;
use crate::store::escalations;
use crate::store::stats::{self, Attention};
use crate::store::writer::Queue;
use crate::sys::files;

/// How long a write may take until the database counts as not writable.
const MAX_WRITE: Duration = Duration::from_secs(2);

/// Whether the database could be written, when it was last tried.
#[derive(Debug)]
pub(super) struct LastWrite {
    trying: Mutex<()>,
    outcome: Mutex<Result<(), String>>,
    /// Whether a write is under way that nobody waits for.
    begun: AtomicBool,
}

impl Default for LastWrite {
    /// The start has just written.
    fn default() -> Self {
        Self { trying: Mutex::new(()), outcome: Mutex::new(Ok(())), begun: AtomicBool::new(false) }
    }
}

impl LastWrite {
    /// Writes, for two seconds at most. One caller at a time tries and blocks a handler; other
    /// callers get the last outcome.
    fn again(&self, api: &Api) -> Result<(), String> {
        if let Some(_trying) = self.trying.try_lock() {
            let (tell, told) = bounded(1);
            let done = move |written| drop(tell.send(written));
            api.store.writer().submit(Queue::Accept, stats::probe, done);
            let written = match told.recv_timeout(MAX_WRITE) {
                Ok(written) => written.map_err(|error| error.to_string()),
                Err(_late) => Err(format!("no answer within {} s", MAX_WRITE.as_secs())),
            };
            self.found(written);
        }
        self.last()
    }

    /// Begins a write, and tells what came of the one before: it waits for nothing. A write that is not
    /// answered shows in how long the writer's oldest job has waited.
    fn begin(this: &Arc<Self>, api: &Api) -> Result<(), String> {
        if !this.begun.swap(true, Ordering::AcqRel) {
            let tell = Arc::clone(this);
            let done = move |written: StoreResult<()>| {
                tell.found(written.map_err(|error| error.to_string()));
                tell.begun.store(false, Ordering::Release);
            };
            api.store.writer().submit(Queue::Accept, stats::probe, done);
        }
        this.last()
    }

    fn found(&self, written: Result<(), String>) {
        *self.outcome.lock() = written;
    }

    fn last(&self) -> Result<(), String> {
        self.outcome.lock().clone()
    }
}

/// Looks at everything.
pub(super) fn checks(api: &Api) -> Vec<Check> {
    looked(api, api.last_write.again(api))
}

/// Why `/readyz` would answer 503. Waits for no write, so that it tells of one a call later.
pub(super) fn not_ready(api: &Api) -> Option<String> {
    failures(&looked(api, LastWrite::begin(&api.last_write, api)))
}

/// The checks that fail, in words.
pub(super) fn failures(checks: &[Check]) -> Option<String> {
    let failed = checks.iter().filter(|check| check.level == Level::Fail);
    let why: Vec<String> =
        failed.map(|check| format!("{}: {}", check.name, check.detail)).collect();
    (!why.is_empty()).then(|| format!("{}.", why.join("; ")))
}

fn looked(api: &Api, written: Result<(), String>) -> Vec<Check> {
    let now = api.clock.now();
    let DiskState { room, space, reserve } = api.flow.disk.state();
    let read = api.store.read(stats::attention);
    let unreadable = read.as_ref().err().map(|error| format!("it cannot be read: {error}"));
    let log = api.store.writer().room();
    let mut checks = vec![
        health::database(unreadable.map_or(written, Err)),
        health::disk(room, space, reserve),
        health::log(log.bytes(), log.reader().is_some()),
        health::clock(api.clock.wall(), api.flow.receive.clock_watch.is_suspect(now)),
        health::writer(api.store.writer().lag()),
    ];
    if let Ok(Attention { oldest_due_at, dead_letters, paused, held, quarantined }) = read {
        let overdue = oldest_due_at.filter(|due| *due <= now).map(|due| now.since(due));
        checks.push(health::due(overdue));
        checks.push(health::dead_letters(dead_letters));
        checks.push(health::quarantined(quarantined));
        checks.push(health::subscriptions(paused, held));
    }
    if let Ok(open) = api.store.read(escalations::open) {
        let (count, unseen) = open.iter().fold((0_u64, 0_u64), |(count, unseen), of| {
            (count.saturating_add(of.count), unseen.saturating_add(of.unseen))
        });
        checks.push(health::escalations(count, unseen));
    }
    let settings = api.settings.get();
    let newest = files::newest(&settings.backup_directory(), manifest::ENDING);
    let age = newest.map(|at| api.clock.wall().since(at));
    checks.push(health::backup(settings.backup.every, age));
    checks
}
