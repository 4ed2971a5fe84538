//! When credentials were last used: noted in memory, stored once a minute.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::base::clock::{Clock, Timestamp};
use crate::store::error::Result;
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;
use crate::store::{Store, credentials};

/// How often uses are stored.
const EVERY: Duration = Duration::from_mins(1);
/// Rows that one transaction changes.
const MAX_ROWS: usize = 500;
/// What is tracked at most between two turns; the uses beyond are not noted.
const MAX_TRACKED: usize = 100_000;

/// When some credentials were last used together.
#[derive(Debug)]
pub struct LastUse {
    ids: Vec<String>,
    /// 0: not since it was last stored.
    at_ms: AtomicI64,
}

impl LastUse {
    /// Notes a use. Costs nothing, so every request does.
    pub fn note(&self, at: Timestamp) {
        self.at_ms.store(at.ms(), Ordering::Relaxed);
    }
}

/// All that are tracked.
#[derive(Debug)]
pub struct CredentialUses {
    store: Store,
    clock: Clock,
    tracked: Mutex<Vec<Arc<LastUse>>>,
    stored_at: Mutex<Duration>,
}

impl CredentialUses {
    /// Nothing is tracked yet.
    pub fn new(store: Store, clock: Clock) -> Self {
        let stored_at = Mutex::new(clock.monotonic());
        Self { store, clock, tracked: Mutex::default(), stored_at }
    }

    /// Tracks the uses of these credentials from now on.
    pub fn track(&self, ids: Vec<String>) -> Arc<LastUse> {
        let last_use = Arc::new(LastUse { ids, at_ms: AtomicI64::new(0) });
        let mut tracked = self.tracked.lock();
        if tracked.len() < MAX_TRACKED {
            tracked.push(Arc::clone(&last_use));
        }
        last_use
    }

    /// Stores what was noted, if a minute has passed or `now` says so.
    pub fn flush(&self, now: bool) -> Result<()> {
        let at = self.clock.monotonic();
        if !now && at.saturating_sub(*self.stored_at.lock()) < EVERY {
            return Ok(());
        }
        *self.stored_at.lock() = at;
        let mut used: BTreeMap<String, Timestamp> = BTreeMap::new();
        self.tracked.lock().retain(|one| {
            let ms = one.at_ms.swap(0, Ordering::Relaxed);
            for id in one.ids.iter().filter(|_| ms != 0) {
                let at = Timestamp::from_ms(ms);
                used.entry(id.clone()).and_modify(|have| *have = at.max(*have)).or_insert(at);
            }
            // One that nobody else holds was replaced.
            Arc::strong_count(one) > 1
        });
        let used: Vec<(String, Timestamp)> = used.into_iter().collect();
        for some in used.chunks(MAX_ROWS) {
            let some = some.to_vec();
            let run = move |tx: &WriteTx<'_>| {
                some.iter().try_for_each(|(id, at)| credentials::used(tx, id, *at))
            };
            self.store.writer().write(Queue::Upkeep, run)?;
        }
        Ok(())
    }
}
