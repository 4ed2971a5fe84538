//! Finds which subscriptions match new events before their transaction, so that the writer does not wait for filters.

use std::sync::Arc;

use crate::base::budget::Budget;
use crate::model::subscription::Routed;
use crate::store::Store;
use crate::store::matching::Matches;

/// How much memory a filter takes for each byte of the largest payload.
const READ_FACTOR: usize = 32;

/// Matches events within a memory budget.
#[derive(Clone, Debug)]
pub struct Matching(pub Budget);

impl Matching {
    /// The subscriptions that match events, each with its id and payload. `None`: the writer finds them, because no payload
    /// is looked at, or memory is short.
    pub fn find<'e>(
        &self,
        store: &Store,
        events: impl Iterator<Item = (&'e str, Routed<'e>, &'e [u8])> + Clone,
    ) -> Option<Arc<Matches>> {
        let among = store.writer().subscriptions()?;
        if !among.iter().any(|subscription| subscription.new.reads_payload()) {
            return None;
        }
        let largest = events.clone().map(|(_, _, payload)| payload.len()).max()?;
        let _share = self.0.try_take(largest.saturating_mul(READ_FACTOR))?;
        Matches::find(among, events).ok().map(Arc::new)
    }
}
