//! Rows that plain SQL left in the outbox, for the stages that route them: the relay as soon as it sees them, and
//! whoever publishes, so that nothing overtakes what was committed before it.

use std::sync::Arc;

use crate::base::clock::Clock;
use crate::base::id::{self, Draw};
use crate::config::Live;
use crate::store::error::Result;
use crate::store::outbox_relay::{self, Relayed, Terms};
use crate::store::tx::WriteTx;

/// How such rows are judged, by when it is asked, and what their missing ids are made of.
#[derive(Clone)]
pub struct SqlRows {
    /// Time.
    pub clock: Clock,
    /// Randomness.
    pub draw: Arc<dyn Draw>,
    /// What holds.
    pub settings: Live,
}

impl std::fmt::Debug for SqlRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlRows").finish_non_exhaustive()
    }
}

impl SqlRows {
    /// See [`outbox_relay::relay`].
    pub(super) fn relay(&self, tx: &WriteTx<'_>, after: i64, limit: u32) -> Result<Relayed> {
        let terms = self.terms();
        outbox_relay::relay(tx, after, limit, terms, &|| id::uuid7(terms.wall, &*self.draw))
    }

    /// See [`outbox_relay::relay_before`].
    pub(super) fn relay_before(&self, tx: &WriteTx<'_>) -> Result<Relayed> {
        let terms = self.terms();
        outbox_relay::relay_before(tx, terms, &|| id::uuid7(terms.wall, &*self.draw))
    }

    /// See [`outbox_relay::set_aside`].
    pub(super) fn set_aside(&self, tx: &WriteTx<'_>, seq: i64, why: &str) -> Result<()> {
        let terms = self.terms();
        outbox_relay::set_aside(tx, seq, why, terms, &id::uuid7(terms.wall, &*self.draw))
    }

    fn terms(&self) -> Terms {
        Terms {
            payload_bytes_most: u64::from(self.settings.get().limits.payload_bytes),
            wall: self.clock.wall(),
            now: self.clock.now(),
        }
    }
}
