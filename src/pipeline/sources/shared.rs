//! What the relays of all sources share, and how each source stands.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::budget::Budget;
use crate::base::clock::{Clock, Timestamp};
use crate::base::faults::Faults;
use crate::base::id::Draw;
use crate::config::Live;
use crate::pipeline::clock_watch::ClockWatch;
use crate::pipeline::counts::Counts;
use crate::pipeline::disk_watch::DiskWatch;
use crate::pipeline::privacy::Privacy;
use crate::pipeline::suspects::Suspects;
use crate::store::Store;
use crate::store::outbox::Inserted;

/// How a source stands right now, as its relay sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Rows or files that are not read yet, at most; `None` where that cannot be told.
    pub lag: Option<u64>,
    /// When it was last looked at.
    pub last_read_at: Option<Timestamp>,
    /// What it waits for, if that is nothing of its own.
    pub waits_for: Option<&'static str>,
}

/// How all sources stand, for who is asked.
#[derive(Clone, Debug, Default)]
pub struct Standings(Arc<Mutex<BTreeMap<i64, Standing>>>);

impl Standings {
    /// How one stands; nothing is known of one that is not read.
    pub fn of(&self, seq: i64) -> Standing {
        let all = self.0.lock();
        all.get(&seq).cloned().unwrap_or_default()
    }

    /// What all of them have not read yet, as far as it can be told, and of how many it cannot.
    pub fn lag(&self) -> (u64, u64) {
        let all = self.0.lock();
        all.values().fold((0, 0), |(lag, unknown): (u64, u64), standing| match standing.lag {
            Some(more) => (lag.saturating_add(more), unknown),
            None => (lag, unknown.saturating_add(1)),
        })
    }

    pub(super) fn set(&self, seq: i64, change: impl FnOnce(&mut Standing)) {
        let mut all = self.0.lock();
        change(all.entry(seq).or_default());
    }

    pub(super) fn forget(&self, seq: i64) {
        self.0.lock().remove(&seq);
    }
}

/// What relays share.
#[derive(Clone)]
pub(in crate::pipeline) struct Shared {
    pub(in crate::pipeline) store: Store,
    pub(in crate::pipeline) clock: Clock,
    pub(in crate::pipeline) draw: Arc<dyn Draw>,
    pub(in crate::pipeline) disk: Arc<DiskWatch>,
    pub(in crate::pipeline) settings: Live,
    pub(in crate::pipeline) counts: Arc<Counts>,
    pub(in crate::pipeline) standings: Standings,
    pub(in crate::pipeline) clock_watch: Arc<ClockWatch>,
    pub(in crate::pipeline) privacy: Arc<Privacy>,
    pub(in crate::pipeline) budget: Budget,
    pub(in crate::pipeline) suspects: Arc<Suspects>,
    pub(in crate::pipeline) faults: Faults,
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
