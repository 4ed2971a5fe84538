//! Writes refused calls into the audit events: a bounded number of rows, and nobody waits for the writer.
//!
//! `model::audit::refusals` decides which calls are only counted. Upkeep writes each count once its minute is over.

use crate::model::audit::NewAuditEvent;
use crate::model::audit::refusals::Ledger;
use crate::pipeline::prelude::*;
use crate::pipeline::refused_webhooks::RefusedWebhooks;
use crate::store::{audit_events, runs};

/// Where refused calls are noted. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Refusals {
    store: Store,
    clock: Clock,
    ledger: Arc<Mutex<Ledger>>,
    /// Refused webhooks.
    pub webhooks: Arc<RefusedWebhooks>,
}

impl Refusals {
    /// No refused call yet, and the refused webhooks of before.
    pub fn new(store: Store, clock: Clock) -> Result<Self> {
        let webhooks = Arc::new(RefusedWebhooks::after(store.read(runs::refused)?));
        Ok(Self { store, clock, ledger: Arc::default(), webhooks })
    }

    /// Notes a refused call. The listener calls this too, so it never waits: if the writer's queue is full, the row is
    /// lost and the log says so.
    pub fn note(&self, refused: NewAuditEvent) {
        let now = self.clock.monotonic();
        let row = self.ledger.lock().note(refused, now);
        self.write(row);
    }

    /// Writes the counts whose minute is over; every count if `all`.
    pub fn flush(&self, all: bool) {
        let now = self.clock.monotonic();
        let rows = self.ledger.lock().due(now, all);
        self.write(rows);
    }

    fn write(&self, rows: impl IntoIterator<Item = NewAuditEvent>) {
        for row in rows {
            let action = row.action.clone();
            self.store.writer().submit(
                Queue::Accept,
                move |tx: &WriteTx<'_>| audit_events::append(tx, &row),
                move |outcome| {
                    if let Err(error) = outcome {
                        tracing::warn!(%error, action, "a refused call could not be recorded");
                    }
                },
            );
        }
    }
}
