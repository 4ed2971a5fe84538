//! Reads a provider's list page by page, and stores items and position in one transaction.

use std::sync::Arc;
use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::model::webhook_event::WebhookOrigin;
use crate::pipeline::provider_cache::VerifiedProvider;
use crate::sources::http_client::{
    ListReader, MAX_PAGE_BYTES, NoPage, SMALL_PAGE_BYTES, TIMEOUT, WantedPage,
};
use crate::sources::http_items::{ListTurn, Payloads};
use crate::sources::http_list::ListItem;
use crate::sources::http_pass::Pass;
use crate::sources::http_round::{LastPass, ListRound, PageFacts, RoundStep};
use crate::sources::http_settings::HttpSettings;
use crate::sources::shared::{ReadItems, RelayServices, SourceError, Turn};
use crate::sources::tables::Progress;
use crate::sources::{Settings, Source};
use crate::store::error::Error;
use crate::targets::http::access::CredentialCache;

/// What a source waits for that has no credential.
const WAITS_FOR_CREDENTIAL: &str = "a credential: oncebox source credential";
/// Why a round of a list that ends early does not bring it further.
const ALL_IN_OVERLAP: &str = "the list ends after items_max items, and as many are younger than the overlap, so that newer ones cannot be \
                              reached. Make the overlap shorter";
/// Why a list whose pages repeat themselves is not read on.
const NO_END: &str =
    "the list has no end: its pages repeat items that were read before. Correct next";
/// Why a list that ends early cannot be read on.
const NOT_OLDEST_FIRST: &str = "the list ends after items_max items and does not have the oldest first, so that the others cannot be reached. \
                                Ask for it sorted by its time";
/// The pause after an error.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause after an error, if the list does not ask for a longer one.
const MAX_PAUSE: Duration = Duration::from_mins(1);

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

type Outcome<T> = Result<T, SourceError>;

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
        let origin = WebhookOrigin::Listed;
        let turn = terms
            .and_then(|terms| self.page(&ListTurn { shared, source, settings, terms, origin }));
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
            _ => {
                let overlap = turn.settings.overlap();
                ListRound::begin(source.new.cursor, overlap, shared.env.clock.wall(), self.last)
            }
        };
        let most = if self.has_large_pages { MAX_PAGE_BYTES } else { SMALL_PAGE_BYTES };
        let _share = self.pass.take_page(&shared.env.budget, most.saturating_mul(2));
        let request = terms.request(round.mark(), round.since());
        let wanted = WantedPage {
            reader: ListReader::source(source),
            terms,
            request: &request,
            most,
            timeout: TIMEOUT,
        };
        let fetched = match shared.lists.fetch(&wanted, &mut self.cache) {
            Ok(fetched) => fetched,
            Err(NoPage::Large) if !self.has_large_pages => {
                self.has_large_pages = true;
                self.round = Some(round);
                return Ok(Turn::Again);
            }
            Err(NoPage::NoCredential(_)) => {
                shared.statuses.set(source.seq, |status| {
                    status.waits_for = Some(WAITS_FOR_CREDENTIAL);
                    status.lag = None;
                });
                self.waits_for_credential = true;
                return Ok(Turn::Done);
            }
            Err(error) => return Err(self.no_page(turn, round, error)),
        };
        let mut page = match terms.read(fetched.answered(round.mark())) {
            Ok(page) => page,
            Err(why) => {
                // The page is read again: it may have been a page of a proxy.
                self.round = Some(round);
                return Err(SourceError::lasting(why));
            }
        };
        let payloads =
            turn.add_payloads(provider.as_deref(), &mut page.items, most, &mut self.cache);
        if let Payloads::Part(error) = payloads {
            store_only_items(turn, &page.items, provider, source.identity.clone())?;
            return self.again(turn, round, error);
        }
        let sum = self.pass.add(&page.items, &round).sum;
        let is_cut = page.next.is_some() && self.pass.is_cut(terms.items_max);
        let is_circle = page.next.is_some() && page.next.as_ref() == round.mark();
        if let Some(why) = self.leads_nowhere(is_circle, is_cut) {
            self.pass = Pass::default();
            self.round = None;
            store_only_items(turn, &page.items, provider, None)?;
            return Err(SourceError::lasting(why));
        }
        let facts = PageFacts {
            sum,
            highest: page.items.iter().filter_map(|item| item.time).max(),
            has_items: !page.items.is_empty(),
            next: page.next.clone().filter(|_| !is_cut),
            is_cut,
        };
        let items = turn.ready(&page.items, provider)?;
        self.follow(turn, &round, facts, items)
    }

    /// Why the list cannot be read to its end, if it cannot.
    fn leads_nowhere(&self, is_circle: bool, is_cut: bool) -> Option<&'static str> {
        if is_circle || self.pass.is_endless() {
            Some(NO_END)
        } else if is_cut && self.pass.is_mixed() {
            Some(NOT_OLDEST_FIRST)
        } else {
            None
        }
    }

    /// Has the same page read again: at once, or after an error.
    fn again(
        &mut self,
        turn: &ListTurn<'_>,
        round: ListRound,
        error: Option<NoPage>,
    ) -> Outcome<Turn> {
        match error {
            None => {}
            Some(NoPage::Large) if !self.has_large_pages => self.has_large_pages = true,
            Some(error) => return Err(self.no_page(turn, round, error)),
        }
        self.round = Some(round);
        Ok(Turn::Again)
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
        let mut goes_on = next.is_some();
        if let RoundStep::End(end) = &step {
            self.last = Some(end.last);
            let has_moved = end.position > position;
            if end.has_more && end.is_at_rest && !has_moved {
                return Err(SourceError::lasting(ALL_IN_OVERLAP));
            }
            goes_on = end.has_more && has_moved;
        }
        shared.statuses.set(source.seq, |status| status.lag = (!goes_on).then_some(0));
        Ok(if goes_on { Turn::Again } else { Turn::Done })
    }

    /// The error of a page that could not be had. The round goes on with this page, or from its beginning if the page
    /// is gone.
    fn no_page(&mut self, turn: &ListTurn<'_>, round: ListRound, error: NoPage) -> SourceError {
        let now = turn.shared.env.clock.monotonic();
        let is_first = round.mark().is_none();
        let why = error.to_text();
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

/// Stores the new items of a page, and leaves the position as it is. `identity` is the round that is kept.
fn store_only_items(
    turn: &ListTurn<'_>,
    items: &[ListItem<'_>],
    provider: Option<Arc<VerifiedProvider>>,
    identity: Option<String>,
) -> Outcome<()> {
    let items = turn.ready(items, provider)?;
    let events = items.webhooks.len().saturating_add(items.rows.len());
    if events == 0 {
        return Ok(());
    }
    let progress = Progress {
        from: turn.source.new.cursor,
        to: turn.source.new.cursor,
        known: turn.source.identity.clone(),
        identity,
        events: u64::try_from(events).unwrap_or(u64::MAX),
    };
    Ok(turn.shared.store_list(turn.source, progress, items)?)
}
