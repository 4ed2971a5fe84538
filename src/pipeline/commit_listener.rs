//! The commit listener: after each COMMIT, it tells the other threads and the caches what was committed.

use crate::base::stop::Stop;
use crate::event_types::EventTypes;
use crate::pipeline::consume::Consume;
use crate::pipeline::destinations::Destinations;
use crate::pipeline::prelude::*;
use crate::pipeline::provider_cache::ProviderCache;
use crate::pipeline::scheduler::Mailbox;
use crate::pipeline::scheduler::decisions::Input;
use crate::pipeline::threads::Bell;
use crate::pipeline::upkeep::disk_watch::DiskWatch;
use crate::privacy::Privacy;
use crate::store::settlement;
use crate::store::tx::Effects;
use crate::store::writer::AroundCommit;

/// The error that ends the process, if there was one.
pub(super) type FatalError = Arc<Mutex<Option<Error>>>;

/// The listener and everything that it tells.
pub(super) struct CommitListener {
    pub(super) mailbox: Mailbox,
    pub(super) consume: Consume,
    pub(super) destinations: Arc<Destinations>,
    pub(super) providers: Arc<ProviderCache>,
    pub(super) privacy: Arc<Privacy>,
    pub(super) event_types: Arc<EventTypes>,
    pub(super) on_sources_changed: Bell,
    pub(super) on_tokens_changed: Arc<dyn Fn() + Send + Sync>,
    pub(super) disk: Arc<DiskWatch>,
    pub(super) fatal: FatalError,
    pub(super) stop: Stop,
}

impl AroundCommit for CommitListener {
    fn complete(&self, tx: &WriteTx<'_>) -> Result<()> {
        settlement::set_aside(tx)
    }

    fn committed(&self, effects: Effects) {
        let Effects {
            rang: woken,
            gates,
            settled,
            subscriptions_changed,
            providers_changed,
            tokens_changed,
            sources_changed,
            event_types_changed,
            subjects_erased,
            unseen_jobs: _,
        } = effects;
        self.event_types.forget(&event_types_changed);
        self.destinations.forget(&subscriptions_changed);
        self.providers.forget(&providers_changed);
        self.privacy.forget(&providers_changed);
        if subjects_erased {
            self.privacy.forget_keys();
        }
        if sources_changed {
            self.on_sources_changed.ring();
        }
        if tokens_changed {
            (self.on_tokens_changed)();
        }
        self.consume.committed(&woken, &subscriptions_changed);
        let is_for_dispatcher = !woken.is_empty()
            || !gates.is_empty()
            || !settled.is_empty()
            || !subscriptions_changed.is_empty();
        if is_for_dispatcher {
            self.mailbox.leave(|messages| {
                messages.woken.extend(woken);
                // Gates before settlements: while the old gate stands, a probe's delivery must not be released.
                let gate = |(subscription, gate)| Input::GateChanged { subscription, gate };
                messages.inputs.extend(gates.into_iter().map(gate));
                messages.inputs.extend(settled.into_iter().map(Input::Settled));
                messages.subscriptions_changed.append(subscriptions_changed);
            });
        }
    }

    fn full(&self) {
        self.disk.found_full();
    }

    fn fatal(&self, error: &Error) {
        tracing::error!(%error, "the process ends: it must not acknowledge what it cannot store");
        *self.fatal.lock() = Some(error.clone());
        self.stop.ask();
    }
}
