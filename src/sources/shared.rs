//! What the relays of all sources share: what they are built from, how each source stands, what stood in the way
//! of a turn, and how a row without a key is recognised.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::budget::Budget;
use crate::base::clock::{Clock, Timestamp};
use crate::base::faults::Faults;
use crate::base::id::{self, Draw};
use crate::config::Live;
use crate::model::escalation::{Class, NewEscalation};
use crate::model::event::NewEvent;
use crate::pipeline::clock_watch::ClockWatch;
use crate::pipeline::counts::Counts;
use crate::pipeline::disk_watch::DiskWatch;
use crate::pipeline::suspects::Suspects;
use crate::privacy::Privacy;
use crate::sources::Source;
use crate::store::Store;
use crate::store::error::{Error, Result};
use crate::store::outbox::{self, Inserted};

/// How a source stands right now, as its relay sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceStatus {
    /// Rows or files that are not read yet, at most; `None` where that cannot be told.
    pub lag: Option<u64>,
    /// When it was last looked at.
    pub last_read_at: Option<Timestamp>,
    /// What it waits for, if that is nothing of its own.
    pub waits_for: Option<&'static str>,
}

/// The status of every source, for API and metrics.
#[derive(Clone, Debug, Default)]
pub struct SourceStatuses(Arc<Mutex<BTreeMap<i64, SourceStatus>>>);

impl SourceStatuses {
    /// How one stands; nothing is known of one that is not read.
    pub fn of(&self, seq: i64) -> SourceStatus {
        let all = self.0.lock();
        all.get(&seq).cloned().unwrap_or_default()
    }

    /// What all of them have not read yet, as far as it can be told, and of how many it cannot.
    pub fn lag(&self) -> (u64, u64) {
        let all = self.0.lock();
        all.values().fold((0, 0), |(lag, unknown): (u64, u64), status| match status.lag {
            Some(more) => (lag.saturating_add(more), unknown),
            None => (lag, unknown.saturating_add(1)),
        })
    }

    pub(super) fn set(&self, seq: i64, change: impl FnOnce(&mut SourceStatus)) {
        let mut all = self.0.lock();
        change(all.entry(seq).or_default());
    }

    pub(super) fn forget(&self, seq: i64) {
        self.0.lock().remove(&seq);
    }
}

/// What relays share.
#[derive(Clone)]
pub struct Shared {
    pub store: Store,
    pub clock: Clock,
    pub draw: Arc<dyn Draw>,
    pub disk: Arc<DiskWatch>,
    pub settings: Live,
    pub counts: Arc<Counts>,
    pub statuses: SourceStatuses,
    pub clock_watch: Arc<ClockWatch>,
    pub privacy: Arc<Privacy>,
    pub budget: Budget,
    pub suspects: Arc<Suspects>,
    pub faults: Faults,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    /// Counts what was stored, and says so where something was known that says something else: nobody else would.
    pub(super) fn admitted<'i, I: Iterator<Item = &'i Inserted>>(&self, source: &str, stored: I) {
        let mut differing = 0_u64;
        for inserted in stored {
            let differs = matches!(inserted, Inserted::Again { differs: true, .. });
            self.counts.admitted(matches!(inserted, Inserted::Again { .. }), differs);
            differing = differing.saturating_add(u64::from(differs));
        }
        if differing > 0 {
            tracing::warn!(
                source,
                rows = differing,
                "rows have the key of an event that says something else, which stays: see its differing_count"
            );
        }
    }
}

/// What came of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// There may be more.
    Again,
    /// Nothing more for now.
    Done,
}

/// Why a turn failed.
#[derive(Clone, Debug)]
pub(super) struct SourceError {
    pub(super) why: String,
    pub(super) kind: Obstacle,
}

/// What kind of thing that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// It may pass by itself, such as a lock.
    Passing,
    /// Somebody has to do something.
    Lasting,
    /// What is read is not what was read before; somebody has to decide.
    Replaced,
    /// It is ours: the writer is busy, or stops. Nothing is noted.
    Ours,
}

impl SourceError {
    pub(super) fn passing(why: String) -> Self {
        Self { why, kind: Obstacle::Passing }
    }

    pub(super) fn lasting(why: impl ToString) -> Self {
        Self { why: why.to_string(), kind: Obstacle::Lasting }
    }
}

impl From<Error> for SourceError {
    fn from(error: Error) -> Self {
        let kind = if error.passes() { Obstacle::Ours } else { Obstacle::Passing };
        Self { why: error.to_string(), kind }
    }
}

/// What escalations about a source are about.
pub(super) fn subject(source: &Source) -> String {
    format!("source:{}", source.new.name)
}

/// An escalation about a source.
pub(super) fn escalation(
    shared: &Shared,
    source: &Source,
    class: Class,
    detail: &str,
) -> NewEscalation {
    NewEscalation {
        id: id::uuid7(shared.clock.wall(), &*shared.draw),
        tenant: source.new.tenant.clone(),
        class,
        subject: subject(source),
        detail: detail.to_owned(),
    }
}

/// The key a row gets, and second the one it would have had before a policy on personal data was stated, or
/// taken away.
pub(super) type Keys = [String; 2];

/// An event under the second of its keys, where it was stored under that one: a policy that came or went since
/// makes no new fact of it. One that names its own key is left as it is.
pub(super) fn recognise(shared: &Shared, event: &mut NewEvent, keys: &Keys) -> Result<()> {
    let [now, otherwise] = keys;
    if event.idempotency_key != *now {
        return Ok(());
    }
    let is_otherwise = shared.store.read(|tx| {
        let is_stored =
            |key: &str| outbox::is_stored(tx, (&event.tenant, &event.source_system, key));
        Ok(!is_stored(now)? && is_stored(otherwise)?)
    })?;
    if is_otherwise {
        event.idempotency_key.clone_from(otherwise);
    }
    Ok(())
}
