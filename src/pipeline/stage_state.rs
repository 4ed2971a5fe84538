//! The state in memory that several stages use: caches of rows, counters, and what is under way.

use crate::event_types::EventTypes;
use crate::pipeline::connectivity::Line;
use crate::pipeline::counts::Counts;
use crate::pipeline::destinations::Destinations;
use crate::pipeline::in_flight::InFlight;
use crate::pipeline::prelude::*;
use crate::pipeline::provider_cache::ProviderCache;
use crate::pipeline::recent::Recent;
use crate::pipeline::source_marks::SourceMarks;
use crate::store::credential_uses::CredentialUses;
use crate::store::runs;

/// The state. A restart loads the counts of the last hour and the latest attempts, and rebuilds the rest.
pub(super) struct StageState {
    pub(super) destinations: Arc<Destinations>,
    pub(super) providers: Arc<ProviderCache>,
    pub(super) event_types: Arc<EventTypes>,
    pub(super) counts: Arc<Counts>,
    pub(super) line: Arc<Line>,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) source_marks: SourceMarks,
}

impl StageState {
    /// Empty caches, and what the file has of the last hour.
    pub(super) fn new(env: &Env, line: Line, source_marks: SourceMarks) -> Result<Self> {
        let uses = Arc::new(CredentialUses::new(env.store.clone(), env.clock.clone()));
        let destinations = Destinations::new(env.clone(), Arc::clone(&uses));
        let providers = ProviderCache::new(env.clone(), uses);
        let event_types = EventTypes::new(env.store.clone(), env.settings.clone());
        let recent = Recent::new(env.clock.clone());
        let stored = env.store.read(|tx| runs::minutes(tx, &recent.span()))?;
        let latest = env.store.read(runs::latest_attempts)?;
        Ok(Self {
            destinations: Arc::new(destinations),
            providers: Arc::new(providers),
            event_types: Arc::new(event_types),
            counts: Arc::new(Counts::new(recent.after(stored).after_attempts(latest))),
            line: Arc::new(line),
            in_flight: Arc::default(),
            source_marks,
        })
    }
}
