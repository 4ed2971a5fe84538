//! Intake: a provider's request is verified over its raw bytes, stored once, then acknowledged.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::domain::scheme::{Incoming, Refused};
use crate::domain::trace;
use crate::domain::webhook_event::NewWebhookEvent;
use crate::flow::clock_watch::ClockWatch;
use crate::flow::counts::Counts;
use crate::flow::gates::{Gate, Gates};
use crate::id::{self, Draw};
use crate::store::Store;
use crate::store::error::{Error, Result};
use crate::store::webhook_events::{self, Inserted};
use crate::store::writer::Queue;

/// How the provider is told to come again when our clock cannot be trusted.
pub const CLOCK_RETRY_AFTER: Duration = Duration::from_mins(1);

/// What came of a request to the intake.
#[derive(Debug)]
pub enum Received {
    /// Stored now or before, and on the disk.
    Stored(Inserted),
    /// The signature is not accepted. The answer outside is the same for every reason.
    Refused(Refused),
    /// Correctly signed, but the time does not fit and it may be ours that is wrong.
    ClockSuspect,
    /// It could not be stored.
    Failed(Error),
}

/// The intake.
#[derive(Clone)]
pub struct Receive {
    /// Where it is stored.
    pub store: Store,
    /// Time.
    pub clock: Clock,
    /// Randomness for identifiers.
    pub draw: Arc<dyn Draw>,
    /// The providers.
    pub gates: Arc<Gates>,
    /// Whether our clock can be trusted.
    pub clock_watch: Arc<ClockWatch>,
    /// What was counted.
    pub counts: Arc<Counts>,
}

impl std::fmt::Debug for Receive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receive").finish_non_exhaustive()
    }
}

impl Receive {
    /// The gate of a provider; `None` where there is no such provider.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn gate(&self, tenant: &str, provider: &str) -> Result<Option<Arc<Gate>>> {
        self.gates.of(tenant, provider)
    }

    /// Verifies a request and stores it; `done` is called after COMMIT, or at once with a refusal.
    pub fn receive(
        &self,
        gate: &Gate,
        incoming: &Incoming<'_>,
        done: impl FnOnce(Received) + Send + 'static,
    ) {
        let counts = Arc::clone(&self.counts);
        let done = move |received: Received| {
            counts.received(&received);
            done(received);
        };
        let provider = &gate.provider.new;
        let wall = self.clock.wall();
        let verified = provider.scheme.verify(&gate.secrets, incoming, wall, provider.tolerance);
        let matched = match verified {
            Ok(matched) => matched,
            Err(Refused::Stale { .. }) if self.clock_watch.is_suspect(self.clock.now()) => {
                return done(Received::ClockSuspect);
            }
            Err(refused) => return done(Received::Refused(refused)),
        };
        let identity = provider.scheme.identify(incoming);
        let new = NewWebhookEvent {
            id: id::uuid7(wall, &*self.draw),
            tenant: provider.tenant.clone(),
            provider: provider.name.to_string(),
            provider_event_id: identity.event_id,
            event_type: identity.event_type,
            received_at: wall,
            payload: incoming.body.to_vec(),
            content_type: content_type(incoming),
            headers: provider.scheme.kept(incoming.headers),
            key_id: gate.key_ids.get(matched).cloned(),
            trace_id: incoming.headers.get("traceparent").and_then(trace::trace_id),
        };
        let now = self.clock.now();
        self.store.writer().submit(
            Queue::Accept,
            move |tx| webhook_events::insert(tx, &new, now),
            move |outcome| done(outcome.map_or_else(Received::Failed, Received::Stored)),
        );
    }
}

/// The body's media type, if it can be sent on as a header value.
fn content_type(incoming: &Incoming<'_>) -> String {
    let given = incoming.headers.get("content-type").unwrap_or_default();
    let fits =
        (1..=255).contains(&given.len()) && given.bytes().all(|b| (b' '..=b'~').contains(&b));
    if fits { given.to_owned() } else { "application/octet-stream".to_owned() }
}
