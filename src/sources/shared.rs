//! What the relays of all sources use: their services, the status of each source, the errors of a turn, and the
//! recognition of rows without a key.

use std::collections::BTreeMap;
use std::sync::Arc;

use crossbeam_channel::{Receiver, bounded};
use parking_lot::Mutex;

use crate::base::clock::Timestamp;
use crate::base::id;
use crate::databases::database::Databases;
use crate::env::Env;
use crate::event_types::EventTypes;
use crate::model::escalation::{Class, NewEscalation};
use crate::model::event::NewEvent;
use crate::model::webhook_event::NewWebhookEvent;
use crate::pipeline::counts::Counts;
use crate::pipeline::provider_cache::VerifiedProvider;
use crate::pipeline::publish::admit_or_quarantine;
use crate::pipeline::receive::Receive;
use crate::pipeline::source_marks::SourceMarks;
use crate::pipeline::suspects::Suspects;
use crate::pipeline::upkeep::disk_watch::DiskWatch;
use crate::sources::Source;
use crate::sources::draft::RowContext;
use crate::sources::http_client::ListClient;
use crate::sources::tables::{self, Progress, SourceFile};
use crate::store::error::{Error, Result};
use crate::store::escalations;
use crate::store::outbox::{self, Inserted};
use crate::store::outbox_relay::MISFIT;
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;

/// The current status of a source, as its relay sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceStatus {
    /// Rows or files not read yet, at most; `None` if unknown.
    pub lag: Option<u64>,
    /// When it was last read.
    pub last_read_at: Option<Timestamp>,
    /// The part of our service that it waits for, if any.
    pub waits_for: Option<&'static str>,
    /// Why the latest page of its comparison was not had; it is asked for again.
    pub comparison_error: Option<String>,
}

/// The status of every source, for API and metrics.
#[derive(Clone, Debug, Default)]
pub struct SourceStatuses(Arc<Mutex<BTreeMap<i64, SourceStatus>>>);

impl SourceStatuses {
    /// The status of a source; empty if it is not read.
    pub fn of(&self, seq: i64) -> SourceStatus {
        let all = self.0.lock();
        all.get(&seq).cloned().unwrap_or_default()
    }

    /// The sum of all known lags, and the number of sources whose lag is unknown.
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

/// The services that relays use.
#[derive(Clone)]
pub struct RelayServices {
    pub env: Env,
    pub disk: Arc<DiskWatch>,
    pub counts: Arc<Counts>,
    pub statuses: SourceStatuses,
    pub marks: SourceMarks,
    pub event_types: Arc<EventTypes>,
    pub suspects: Arc<Suspects>,
    pub databases: Databases,
    pub lists: ListClient,
    pub receive: Receive,
}

impl std::fmt::Debug for RelayServices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RelayServices").finish_non_exhaustive()
    }
}

/// A row as an event, ready to be stored.
#[derive(Clone, Debug)]
pub(super) struct ReadyRow {
    pub(super) event: NewEvent,
    /// The code and the reason with which it is quarantined, if it is.
    pub(super) unusable: Option<(&'static str, String)>,
}

impl ReadyRow {
    /// Stores it; with the result, whether it is quarantined.
    fn put(&self, tx: &WriteTx<'_>, now: Timestamp) -> Result<(Inserted, bool)> {
        match &self.unusable {
            None => admit_or_quarantine(tx, &self.event, now),
            Some((code, why)) => {
                Ok((outbox::insert_quarantined(tx, &self.event, code, why, now)?, true))
            }
        }
    }
}

/// The new items of a page, ready to be stored.
#[derive(Default)]
pub(super) struct ReadItems {
    /// Webhooks of a provider.
    pub(super) webhooks: Vec<NewWebhookEvent>,
    /// That provider.
    pub(super) provider: Option<Arc<VerifiedProvider>>,
    /// Events of the source, and quarantined items.
    pub(super) rows: Vec<ReadyRow>,
}

/// Rows that the writer has and may not have stored yet: for each its result, and whether it is quarantined.
pub(super) struct Storing(Receiver<Result<Vec<(Inserted, bool)>>>);

impl RelayServices {
    /// Why an event does not fit the schema of its type, without personal data. To be asked before the tenant's policy
    /// masks what the schema asks for.
    pub(super) fn misfit(&self, event: &NewEvent) -> Result<Option<(&'static str, String)>> {
        let Some(misfit) = self.event_types.misfit(event)? else { return Ok(None) };
        Ok(Some((MISFIT, self.env.privacy.sanitize(&event.tenant, &misfit.why)?)))
    }

    /// The parts of a row's event that are not in the row.
    pub(super) fn context<'a>(
        &self,
        source: &'a Source,
        key: String,
        received_at: Timestamp,
    ) -> RowContext<'a> {
        let most = self.env.settings.get().limits.payload_bytes;
        RowContext {
            id: id::uuid7(received_at, &*self.env.draw),
            tenant: &source.new.tenant,
            source: source.new.name.as_str(),
            key,
            received_at,
            defaults: source.new.settings.defaults(),
            payload_bytes_max: usize::try_from(most).unwrap_or(usize::MAX),
        }
    }

    /// Stores rows, the file that they are from, and the source's progress in one transaction. Warns if rows have the
    /// key of an event with other content, because nothing else shows it.
    pub(super) fn store_rows(
        &self,
        source: &Source,
        progress: Progress,
        file: Option<SourceFile>,
        rows: Vec<ReadyRow>,
    ) -> Result<()> {
        self.stored(source, self.begin_to_store(source, progress, file, rows))
    }

    /// Hands rows to the writer, as [`Self::store_rows`] does, and does not wait: see [`Self::stored`].
    pub(super) fn begin_to_store(
        &self,
        source: &Source,
        progress: Progress,
        file: Option<SourceFile>,
        rows: Vec<ReadyRow>,
    ) -> Storing {
        let seq = source.seq;
        let tenant = source.new.tenant.clone();
        let subject = subject(source);
        let clock = self.env.clock.clone();
        let (tell, answer) = bounded(1);
        let store = move |tx: &WriteTx<'_>| {
            tables::advance(tx, seq, &progress, clock.wall())?;
            if let Some(file) = &file
                && !tables::put_file(tx, file, clock.wall())?
            {
                return Err(Error::Changed("the file's row"));
            }
            if !rows.is_empty() {
                escalations::resolve(tx, &tenant, Class::SourceSilent, &subject, clock.wall())?;
            }
            rows.iter().map(|row| row.put(tx, clock.now())).collect::<Result<Vec<_>>>()
        };
        let done = move |outcome| drop(tell.send(outcome));
        self.env.store.writer().submit(Queue::Accept, store, done);
        Storing(answer)
    }

    /// Waits until rows are stored, and counts them.
    pub(super) fn stored(&self, source: &Source, storing: Storing) -> Result<()> {
        let stored = storing.0.recv().unwrap_or(Err(Error::Stopped))?;
        self.count(source, &stored);
        Ok(())
    }

    /// Stores the items of a list and the source's progress in one transaction.
    pub(super) fn store_list(
        &self,
        source: &Source,
        progress: Progress,
        items: ReadItems,
    ) -> Result<()> {
        let seq = source.seq;
        let tenant = source.new.tenant.clone();
        let subject = subject(source);
        let clock = self.env.clock.clone();
        let provider = items.provider.clone();
        let (new, stored) = self.env.store.writer().write(Queue::Accept, move |tx| {
            tables::advance(tx, seq, &progress, clock.wall())?;
            if progress.events > 0 {
                escalations::resolve(tx, &tenant, Class::SourceSilent, &subject, clock.wall())?;
            }
            let now = clock.now();
            let mut new = 0_u32;
            for webhook in &items.webhooks {
                new = new.saturating_add(u32::from(Receive::store_listed(tx, webhook, now)?));
            }
            let stored = items.rows.iter().map(|row| row.put(tx, now));
            Ok((new, stored.collect::<Result<Vec<_>>>()?))
        })?;
        if let Some(provider) = provider {
            self.receive.count_listed(&provider, new);
        }
        self.count(source, &stored);
        Ok(())
    }

    fn count(&self, source: &Source, stored: &[(Inserted, bool)]) {
        let mut differing = 0_u64;
        let each = stored.iter().map(|(inserted, _)| {
            let differs = matches!(inserted, Inserted::Again { differs: true, .. });
            differing = differing.saturating_add(u64::from(differs));
            (matches!(inserted, Inserted::Again { .. }), differs)
        });
        self.counts.admitted(&source.new.tenant, each);
        if differing > 0 {
            tracing::warn!(
                source = source.new.name.as_str(),
                rows = differing,
                "rows have the key of a stored event but other content; the event is unchanged: see its differing_count"
            );
        }
        for _quarantined in stored.iter().filter(|(_, is_quarantined)| *is_quarantined) {
            self.counts.events_quarantined.add();
        }
    }
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// There may be more.
    Again,
    /// Nothing more for now.
    Done,
}

/// Why a source cannot be read, and what to do about it.
#[derive(Clone, Debug)]
pub struct SourceError {
    pub(super) why: String,
    pub(super) kind: Obstacle,
}

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It may pass by itself, such as a lock.
    Passing,
    /// Its database does not answer, and may be back by itself.
    Away,
    /// A person has to act.
    Lasting,
    /// The table is not the one that was read before; a person has to decide.
    Replaced,
    /// Our own writer is busy or stops. It is not stored as an error of the source.
    Ours,
}

impl SourceError {
    pub(super) fn passing(why: String) -> Self {
        Self { why, kind: Obstacle::Passing }
    }

    pub(super) fn away(why: String) -> Self {
        Self { why, kind: Obstacle::Away }
    }

    pub(super) fn lasting(why: impl Into<String>) -> Self {
        Self { why: why.into(), kind: Obstacle::Lasting }
    }
}

impl From<Error> for SourceError {
    fn from(error: Error) -> Self {
        let kind = if error.passes() { Obstacle::Ours } else { Obstacle::Passing };
        Self { why: error.to_string(), kind }
    }
}

/// The subject of escalations about a source.
pub(super) fn subject(source: &Source) -> String {
    format!("source:{}", source.new.name)
}

/// An escalation about a source.
pub(super) fn escalation(
    shared: &RelayServices,
    source: &Source,
    class: Class,
    detail: &str,
) -> NewEscalation {
    NewEscalation {
        id: id::uuid7(shared.env.clock.wall(), &*shared.env.draw),
        tenant: source.new.tenant.clone(),
        class,
        subject: subject(source),
        detail: detail.to_owned(),
    }
}

/// The generated key of a row, and its other form: with a policy on personal data if the tenant has none, and
/// without if it has one.
pub(super) type Keys = [String; 2];

/// Gives an event the other form of its key if it is stored under that: a policy added or removed since must not make
/// a new event of it. An event with a key of its own is left unchanged.
pub(super) fn recognise(shared: &RelayServices, event: &mut NewEvent, keys: &Keys) -> Result<()> {
    let [key, other] = keys;
    if event.idempotency_key != *key {
        return Ok(());
    }
    let has_other = shared.env.store.read(|tx| {
        let is_stored =
            |key: &str| outbox::is_known(tx, (&event.tenant, &event.source_system, key));
        Ok(!is_stored(key)? && is_stored(other)?)
    })?;
    if has_other {
        event.idempotency_key.clone_from(other);
    }
    Ok(())
}
