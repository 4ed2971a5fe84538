//! Reads a provider's list page by page, and stores items and position in one transaction.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ring::digest::{SHA256, digest};

use crate::base::clock::Timestamp;
use crate::base::headers::Headers;
use crate::base::id;
use crate::model::event_field::EventField;
use crate::model::webhook_event::NewWebhookEvent;
use crate::pipeline::provider_cache::VerifiedProvider;
use crate::pipeline::receive::ListedRefusal;
use crate::privacy::NotAdmitted;
use crate::signatures::Incoming;
use crate::signatures::provider::Repeats;
use crate::sources::cell::Cell;
use crate::sources::draft::{Draft, describe};
use crate::sources::http_client::{
    FetchedPage, MAX_PAGE_BYTES, NoPage, SMALL_PAGE_BYTES, WantedPage,
};
use crate::sources::http_list::{AnsweredPage, ListItem, oldest_first};
use crate::sources::http_round::{LastPass, ListRound, PageFacts, RoundStep};
use crate::sources::http_settings::{HttpSettings, ListTerms};
use crate::sources::shared::{ReadItems, ReadyRow, RelayServices, SourceError, Turn, recognise};
use crate::sources::tables::Progress;
use crate::sources::{Settings, Source};
use crate::store::error::{Error, Result};
use crate::store::outbox::{self, UNUSABLE};
use crate::targets::http::access::CredentialCache;

/// What a source waits for that has no credential.
const WAITS_FOR_CREDENTIAL: &str = "a credential: oncebox source credential";
/// The pause after an error.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause after an error, if the list does not ask for a longer one.
const MAX_PAUSE: Duration = Duration::from_mins(1);
/// Pages of a pass at most.
const MAX_PAGES: usize = 10_000;
/// Pages in a row without an item that is new to the pass: the list leads in a circle.
const MAX_STALE_PAGES: u32 = 3;
/// Characters of an item's id that a reason quotes.
const MAX_SHOWN_CHARS: usize = 100;
/// Items of a pass that are remembered at most.
const MAX_SEEN: usize = 1_000_000;

/// State of a list's relay between two turns. All of it can be rebuilt from the file.
#[derive(Debug, Default)]
pub(super) struct HttpReader {
    /// When the list is read next, by the monotonic clock.
    due_at: Duration,
    /// The source as it was read; another one is read at once.
    known: Option<KnownSource>,
    round: Option<ListRound>,
    pass: Pass,
    /// The last pass of the round before.
    last: Option<LastPass>,
    cache: CredentialCache,
    /// Whether nothing was asked for want of a credential.
    waits_for_credential: bool,
    /// Whether a page did not fit into the small share of memory.
    has_large_pages: bool,
    /// Errors in a row.
    failures: u32,
}

/// What a person may change of a source, as the reader knows it.
#[derive(Debug)]
struct KnownSource {
    settings: Settings,
    cursor: i64,
    identity: Option<String>,
    updated_at: Timestamp,
}

impl KnownSource {
    fn of(source: &Source) -> Self {
        Self {
            settings: source.new.settings.clone(),
            cursor: source.new.cursor,
            identity: source.identity.clone(),
            updated_at: source.updated_at,
        }
    }

    fn is(&self, source: &Source) -> bool {
        self.settings == source.new.settings
            && self.cursor == source.new.cursor
            && self.identity == source.identity
            && self.updated_at == source.updated_at
    }
}

/// What was seen in a pass, to notice a list without an end.
#[derive(Debug, Default)]
struct Pass {
    seen: BTreeSet<[u8; 8]>,
    pages: usize,
    stale: u32,
}

/// A list during one turn.
struct ListTurn<'a> {
    shared: &'a RelayServices,
    source: &'a Source,
    settings: &'a HttpSettings,
    terms: ListTerms,
}

type Outcome<T> = std::result::Result<T, SourceError>;

impl HttpReader {
    /// How long the list is left alone; zero: it is read now.
    pub(super) fn rest(&self, source: &Source, now: Duration) -> Duration {
        let is_known = self.known.as_ref().is_some_and(|known| known.is(source));
        let is_due = !is_known || self.waits_for_credential;
        if is_due { Duration::ZERO } else { self.due_at.saturating_sub(now) }
    }

    /// Reads and stores the next page.
    pub(super) fn turn(
        &mut self,
        shared: &RelayServices,
        source: &Source,
        settings: &HttpSettings,
    ) -> Outcome<Turn> {
        if self.known.as_ref().is_none_or(|known| !known.is(source)) {
            let cache = std::mem::take(&mut self.cache);
            *self = Self { known: Some(KnownSource::of(source)), cache, ..Self::default() };
        }
        let clock = &shared.env.clock;
        let terms = settings.terms().map_err(SourceError::lasting);
        self.waits_for_credential = false;
        let turn = terms.and_then(|terms| self.page(&ListTurn { shared, source, settings, terms }));
        let now = clock.monotonic();
        match &turn {
            Ok(Turn::Again) => {
                self.due_at = now;
                self.failures = 0;
            }
            Ok(Turn::Done) => {
                self.due_at = now.saturating_add(settings.interval());
                self.failures = 0;
            }
            Err(_) => {
                if self.round.is_none() {
                    self.pass = Pass::default();
                }
                let pause = PAUSE.saturating_mul(1 << self.failures.min(6)).min(MAX_PAUSE);
                self.failures = self.failures.saturating_add(1);
                self.due_at = self.due_at.max(now.saturating_add(pause));
            }
        }
        turn
    }

    fn page(&mut self, turn: &ListTurn<'_>) -> Outcome<Turn> {
        let ListTurn { shared, source, terms, .. } = turn;
        let provider = turn.provider()?;
        let round = match self.round.take().or_else(|| ListRound::read(source.identity.as_deref()))
        {
            Some(round) if !round.is_worn() => round,
            _ => turn.begin(self.last),
        };
        let most = if self.has_large_pages { MAX_PAGE_BYTES } else { SMALL_PAGE_BYTES };
        let _share = shared.env.budget.take_own(most.saturating_mul(2));
        let url = terms.page_url(round.mark(), round.since());
        let wanted = WantedPage { source, terms, url: &url, most };
        let fetched = match shared.lists.fetch(&wanted, &mut self.cache) {
            Ok(fetched) => fetched,
            Err(NoPage::Large) if !self.has_large_pages => {
                self.has_large_pages = true;
                self.round = Some(round);
                return Ok(Turn::Again);
            }
            Err(NoPage::NoCredential) => {
                shared.statuses.set(source.seq, |status| {
                    status.waits_for = Some(WAITS_FOR_CREDENTIAL);
                    status.lag = None;
                });
                self.waits_for_credential = true;
                return Ok(Turn::Done);
            }
            Err(error) => return Err(self.no_page(turn, round, error)),
        };
        let FetchedPage { body, link } = fetched;
        let answered = AnsweredPage { body: &body, link: link.as_deref(), mark: round.mark() };
        let page = match terms.read(answered) {
            Ok(page) => page,
            Err(why) => {
                // The page is read again: it may have been a page of a proxy.
                self.round = Some(round);
                return Err(SourceError::lasting(why));
            }
        };
        let sum = self.pass.add(&page.items, &round);
        let is_circle = page.next.is_some() && page.next.as_ref() == round.mark();
        if is_circle || self.pass.is_endless() {
            self.pass = Pass::default();
            self.round = None;
            turn.store_only_items(&page.items, provider)?;
            return Err(SourceError::lasting(
                "the list has no end: its pages repeat items that were read before. Correct next",
            ));
        }
        let facts = PageFacts {
            sum,
            highest: page.items.iter().filter_map(|item| item.time).max(),
            has_items: !page.items.is_empty(),
            next: page.next.clone(),
        };
        let items = turn.ready(&page.items, provider)?;
        self.follow(turn, &round, facts, items)
    }

    /// Stores the new items of a page, and how far the round has come.
    fn follow(
        &mut self,
        turn: &ListTurn<'_>,
        round: &ListRound,
        facts: PageFacts,
        items: ReadItems,
    ) -> Outcome<Turn> {
        let ListTurn { shared, source, .. } = turn;
        let position = source.new.cursor;
        let step = round.after(facts, position);
        let (to, next) = match &step {
            RoundStep::Page(next) | RoundStep::Pass(next) => (position, Some(next)),
            RoundStep::End(end) => (end.position, None),
        };
        let events = items.webhooks.len().saturating_add(items.rows.len());
        let is_stored =
            events > 0 || to != position || (next.is_none() && source.identity.is_some());
        if is_stored {
            let progress = Progress {
                from: position,
                to,
                known: source.identity.clone(),
                identity: next.and_then(ListRound::to_text),
                events: u64::try_from(events).unwrap_or(u64::MAX),
            };
            let identity = progress.identity.clone();
            match shared.store_list(source, progress, items) {
                // A person has moved the position, or paused or deleted the source meanwhile: the next turn sees it.
                Err(Error::Changed(_)) => {
                    *self = Self::default();
                    return Ok(Turn::Again);
                }
                other => other?,
            }
            if let Some(known) = &mut self.known {
                known.cursor = to;
                known.identity = identity;
            }
        }
        self.round = next.cloned();
        if !matches!(step, RoundStep::Page(_)) {
            self.pass = Pass::default();
        }
        if let RoundStep::End(end) = &step {
            self.last = Some(end.last);
        }
        let is_done = next.is_none();
        shared.statuses.set(source.seq, |status| status.lag = is_done.then_some(0));
        Ok(if is_done { Turn::Done } else { Turn::Again })
    }

    /// The error of a page that could not be had. The round goes on with this page, or from its beginning if the page
    /// is gone.
    fn no_page(&mut self, turn: &ListTurn<'_>, round: ListRound, error: NoPage) -> SourceError {
        let now = turn.shared.env.clock.monotonic();
        let is_first = round.mark().is_none();
        let why = error.to_text(&turn.source.new.name);
        match error {
            NoPage::Ours(error) => return error.into(),
            NoPage::Gone(_) if !is_first => {
                self.pass = Pass::default();
                self.round = Some(round.again());
                return SourceError::passing(format!(
                    "a further page is gone, and the list is read again: {why}"
                ));
            }
            _ => self.round = Some(round),
        }
        match error {
            NoPage::Passing(_, wait) => {
                self.due_at = now.saturating_add(wait.unwrap_or_default());
                SourceError::passing(why)
            }
            _ => SourceError::lasting(why),
        }
    }
}

impl Pass {
    /// Adds the items of a page. Returns the sum over those that are new to the pass and from before the round.
    fn add(&mut self, items: &[ListItem<'_>], round: &ListRound) -> u64 {
        self.pages = self.pages.saturating_add(1);
        let mut is_stale = true;
        let mut sum = 0_u64;
        for item in items {
            let hash = digest(&SHA256, item.key().as_bytes());
            let short = hash.as_ref().first_chunk().copied().unwrap_or_default();
            if self.seen.insert(short) {
                is_stale = false;
                sum = sum.wrapping_add(if round.has(item.time) {
                    u64::from_be_bytes(short)
                } else {
                    0
                });
            }
        }
        self.stale = if is_stale { self.stale.saturating_add(1) } else { 0 };
        sum
    }

    /// Whether the pages lead in a circle, or are too many.
    fn is_endless(&self) -> bool {
        self.stale > MAX_STALE_PAGES || self.pages > MAX_PAGES || self.seen.len() > MAX_SEEN
    }
}

impl ListTurn<'_> {
    fn begin(&self, last: Option<LastPass>) -> ListRound {
        let now = self.shared.env.clock.wall();
        ListRound::begin(self.source.new.cursor, self.settings.overlap(), now, last)
    }

    /// The provider whose webhooks the items are.
    fn provider(&self) -> Outcome<Option<Arc<VerifiedProvider>>> {
        let Some(name) = &self.settings.provider else { return Ok(None) };
        let tenant = &self.source.new.tenant;
        let found = self.shared.receive.provider(tenant, name.as_str())?;
        let Some(found) = found else {
            let why = format!("there is no provider {name}: oncebox provider create {name}");
            return Err(SourceError::lasting(why));
        };
        if found.provider.new.repeats != Repeats::ById {
            return Err(SourceError::lasting(format!(
                "webhooks of the provider {name} are not known by an id (its repeats), so an item of the list cannot be \
                 known again. Read the list without a provider"
            )));
        }
        Ok(Some(found))
    }

    /// Stores the new items of a page, and leaves the position as it is.
    fn store_only_items(
        &self,
        items: &[ListItem<'_>],
        provider: Option<Arc<VerifiedProvider>>,
    ) -> Outcome<()> {
        let items = self.ready(items, provider)?;
        let events = items.webhooks.len().saturating_add(items.rows.len());
        if events == 0 {
            return Ok(());
        }
        let progress = Progress {
            from: self.source.new.cursor,
            to: self.source.new.cursor,
            known: self.source.identity.clone(),
            identity: None,
            events: u64::try_from(events).unwrap_or(u64::MAX),
        };
        Ok(self.shared.store_list(self.source, progress, items)?)
    }

    /// The new items of a page as events, the oldest first. One that cannot be used becomes an event in quarantine.
    fn ready(
        &self,
        items: &[ListItem<'_>],
        provider: Option<Arc<VerifiedProvider>>,
    ) -> Result<ReadItems> {
        let mut ready = ReadItems { provider: provider.clone(), ..ReadItems::default() };
        let mut seen = BTreeSet::new();
        for item in oldest_first(items) {
            // A list may have an item twice.
            if !seen.insert(item.key()) {
                continue;
            }
            match &provider {
                Some(provider) => match self.webhooks(provider, item) {
                    Ok(webhooks) => ready.webhooks.extend(webhooks),
                    Err(ListedRefusal::Failed(error)) => return Err(error),
                    Err(ListedRefusal::Unusable(why)) => {
                        let is_private = provider.provider.new.pii.rules().is_some();
                        ready.rows.extend(self.unusable(item, &why, is_private)?);
                    }
                },
                None => ready.rows.extend(self.row(item)?),
            }
        }
        Ok(ready)
    }

    /// The webhooks that the provider would have sent, without known events.
    fn webhooks(
        &self,
        provider: &VerifiedProvider,
        item: &ListItem<'_>,
    ) -> std::result::Result<Vec<NewWebhookEvent>, ListedRefusal> {
        if !item.raw.starts_with('{') {
            return Err(ListedRefusal::Unusable("it is no JSON object".to_owned()));
        }
        let mut headers = Headers::default();
        headers.push("content-type", b"application/json");
        let incoming = Incoming {
            method: "POST",
            path: "/",
            url: self.terms.url.as_str(),
            headers: &headers,
            body: item.raw.as_bytes(),
        };
        self.shared.receive.listed(provider, &incoming)
    }

    /// The event of an item, unless it is known.
    fn row(&self, item: &ListItem<'_>) -> Result<Option<ReadyRow>> {
        let Some(id) = &item.id else {
            return self.unusable(item, "it has no id where the settings say that it is", false);
        };
        let draft = self.draft(item, id);
        let facts = self.shared.context(self.source, id.clone(), self.shared.env.clock.wall());
        let mut event = match draft.event(&facts) {
            Ok(event) => event,
            Err(error) => {
                let why = describe(&error, self.source.new.settings.names());
                return self.unusable(item, &why, false);
            }
        };
        if self.is_known(&event.source_system, &event.idempotency_key)? {
            return Ok(None);
        }
        let unusable = self.shared.misfit(&event)?;
        match self.shared.env.privacy.admit(std::slice::from_mut(&mut event)) {
            Ok(()) => Ok(Some(ReadyRow { event, unusable })),
            Err(NotAdmitted::Failed(error)) => Err(error),
            Err(NotAdmitted::Refused { why, .. }) => {
                self.unusable(item, &format!("it is refused: {why}"), false)
            }
        }
    }

    fn draft(&self, item: &ListItem<'_>, id: &str) -> Draft {
        let mut draft = Draft::default();
        let text = |text: &str| Cell::Text(text.to_owned());
        draft.put(EventField::IdempotencyKey, text(id));
        draft.put(EventField::Payload, text(item.raw));
        let mut has_time = false;
        for (field, path) in &self.terms.fields {
            let own = matches!(field, EventField::IdempotencyKey | EventField::Payload);
            let Some(found) = path.text_in(item.raw.as_bytes()).filter(|_| !own) else { continue };
            has_time |= *field == EventField::OccurredAt;
            draft.put(*field, Cell::Text(found));
        }
        if let Some(at) = item.time.filter(|_| !has_time) {
            draft.put(EventField::OccurredAt, text(&at.to_string()));
        }
        draft
    }

    /// An item that cannot be used, as an event in quarantine under the name of the source, unless it is known. With
    /// `is_private`, its provider has a policy on personal data, and its content is left out.
    fn unusable(
        &self,
        item: &ListItem<'_>,
        why: &str,
        is_private: bool,
    ) -> Result<Option<ReadyRow>> {
        let privacy = &self.shared.env.privacy;
        let tenant = &self.source.new.tenant;
        let hash = id::sha256_hex(item.key().as_bytes());
        let short = format!("0x{}", hash.get(..32).unwrap_or(&hash));
        let mut draft = Draft::default();
        let (keys, why) = if is_private {
            let keyed = privacy.names().value(tenant, &short);
            ([keyed.clone(), keyed], why.to_owned())
        } else {
            draft.put(EventField::Payload, Cell::Text(item.raw.to_owned()));
            let shown = item.id.as_deref().unwrap_or("without an id");
            let shown: String = shown.chars().take(MAX_SHOWN_CHARS).collect();
            (privacy.hashed(tenant, &short)?, format!("item {shown}: {why}"))
        };
        let keys = keys.map(|hash| format!("item-{hash}"));
        let [key, _] = &keys;
        let facts = self.shared.context(self.source, key.clone(), self.shared.env.clock.wall());
        let mut event = draft.unusable(&facts);
        event.occurred_at = item.time;
        recognise(self.shared, &mut event, &keys)?;
        let (event, why) = privacy.withhold(event, why)?;
        if self.is_known(&event.source_system, &event.idempotency_key)? {
            return Ok(None);
        }
        Ok(Some(ReadyRow { event, unusable: Some((UNUSABLE, why)) }))
    }

    fn is_known(&self, source_system: &str, key: &str) -> Result<bool> {
        let tenant = self.source.new.tenant.as_str();
        self.shared.env.store.read(|tx| outbox::is_known(tx, (tenant, source_system, key)))
    }
}
