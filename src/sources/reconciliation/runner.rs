//! Works off the run of a source, page by page, in the thread of its relay.
//!
//! Each pass reads the list, takes in missing items, and counts the stored ones. When two passes find the same items, the numbers of
//! the second are the run's.

use std::sync::Arc;
use std::time::Duration;

use crate::base::id;
use crate::model::escalation::{Class, NewEscalation};
use crate::model::provider::ReconcileTerms;
use crate::model::webhook_event::WebhookOrigin;
use crate::pipeline::provider_cache::VerifiedProvider;
use crate::pipeline::receive::ListedRefusal;
use crate::sources::Source;
use crate::sources::http_client::{
    ListReader, MAX_PAGE_BYTES, NoPage, SMALL_PAGE_BYTES, TIMEOUT, WantedPage,
};
use crate::sources::http_items::{ListTurn, Payloads};
use crate::sources::http_list::{ListItem, ListPage};
use crate::sources::http_pass::Pass;
use crate::sources::http_round::{ListRound, PageFacts, RoundStep};
use crate::sources::http_settings::HttpSettings;
use crate::sources::reconciliation::store::{self, RunEnd};
use crate::sources::reconciliation::tally::{ItemState, Tally};
use crate::sources::reconciliation::{NewRun, ReconciledDay, Run, YOUNG};
use crate::sources::shared::{RelayServices, SourceError};
use crate::sources::tables::Progress;
use crate::store::error::{Error, Result};
use crate::store::escalations;
use crate::store::tx::WriteTx;
use crate::store::webhook_events;
use crate::store::writer::Queue;
use crate::targets::http::access::CredentialCache;

/// The pause after an error.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause after an error, if the list does not ask for a longer one.
const MAX_PAUSE: Duration = Duration::from_mins(1);
/// How often it is looked whether a run is due.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Errors in a row that end a run.
const MAX_FAILURES: u32 = 12;
/// How long a run may take, counted from the start of the service if that is later.
const MAX_TIME: Duration = Duration::from_hours(6);
/// The reason of a run whose source is not read any more.
pub const ABANDONED: &str = "its source was paused or deleted. Compare again when it is read";

/// The run that a relay works off. All of it can be rebuilt from the file.
#[derive(Debug, Default)]
pub(in crate::sources) struct Reconciler {
    current: Option<CurrentRun>,
    cache: CredentialCache,
    /// Whether a page did not fit into the small share of memory.
    has_large_pages: bool,
    /// When it is looked again whether a run is due, by the monotonic clock.
    look_at: Duration,
}

/// A run under way.
#[derive(Debug)]
struct CurrentRun {
    seq: i64,
    /// The settings that its list is read with; with others it begins again.
    settings: HttpSettings,
    round: ListRound,
    pass: Pass,
    tally: Tally,
    /// When it began here, by the monotonic clock.
    began: Duration,
    /// When the next page is asked for, by the monotonic clock.
    due_at: Duration,
    /// Errors in a row.
    failures: u32,
}

/// What follows a page.
enum RunStep {
    /// A further page, or another pass.
    Further,
    /// Something may pass by itself: the page is asked for again, not before this time has passed.
    Retry(String, Duration),
    /// The end, with the reason if it failed.
    End(Option<String>),
}

impl RunStep {
    fn failed(why: impl Into<String>) -> Self {
        Self::End(Some(why.into()))
    }
}

impl Reconciler {
    /// Reads the next page of the source's run, if it has one. Returns how long the run rests; `None`: there is none.
    pub(in crate::sources) fn turn(
        &mut self,
        shared: &RelayServices,
        source: &Source,
        settings: &HttpSettings,
    ) -> Result<Option<Duration>> {
        let Some(run) = shared.env.store.read(|tx| store::running_of(tx, source.seq))? else {
            self.current = None;
            self.begin_if_due(shared, source, settings)?;
            return Ok(None);
        };
        let now = shared.env.clock.monotonic();
        let known = self.current.take();
        let known = known.filter(|at| at.seq == run.seq && at.settings == *settings);
        let mut current = known.unwrap_or_else(|| CurrentRun::begin(&run, settings, now));
        if now < current.due_at {
            let rest = current.due_at.saturating_sub(now);
            self.current = Some(current);
            return Ok(Some(rest));
        }
        let step = match settings.terms() {
            Ok(terms) => {
                let origin = WebhookOrigin::Reconciled;
                let turn = ListTurn { shared, source, settings, terms, origin };
                self.page(&turn, &run, &mut current)?
            }
            Err(why) => RunStep::failed(why),
        };
        let now = shared.env.clock.monotonic();
        let step = match step {
            RunStep::Further => {
                current.failures = 0;
                RunStep::Further
            }
            RunStep::Retry(why, wait) => current.retry(why, wait, now),
            end @ RunStep::End(_) => end,
        };
        let trouble = match &step {
            RunStep::Retry(why, _) => Some(why.clone()),
            RunStep::Further | RunStep::End(_) => None,
        };
        shared.statuses.set(source.seq, |status| status.comparison_error = trouble);
        match step {
            RunStep::End(error) => end(shared, &run, current, error)?,
            RunStep::Further if now.saturating_sub(current.began) > MAX_TIME => {
                let why = format!("it was not ended after {} hours", MAX_TIME.as_secs() / 3600);
                end(shared, &run, current, Some(why))?;
            }
            RunStep::Further | RunStep::Retry(..) => self.current = Some(current),
        }
        let rest = self.current.as_ref().map(|current| current.due_at.saturating_sub(now));
        Ok(rest)
    }

    /// Stores a run if the provider's terms say that one is due.
    fn begin_if_due(
        &mut self,
        shared: &RelayServices,
        source: &Source,
        settings: &HttpSettings,
    ) -> Result<()> {
        let clock = &shared.env.clock;
        if clock.monotonic() < self.look_at {
            return Ok(());
        }
        self.look_at = clock.monotonic().saturating_add(LOOK_EVERY);
        let Some(name) = &settings.provider else { return Ok(()) };
        let tenant = source.new.tenant.as_str();
        let Some(found) = shared.receive.provider(tenant, name.as_str())? else { return Ok(()) };
        let terms = found.provider.new.reconcile;
        let has_time = settings.terms().is_ok_and(|terms| terms.time.is_some());
        if terms.every_secs == 0 || !has_time {
            return Ok(());
        }
        let now = clock.wall();
        let last = shared.env.store.read(|tx| store::last_begun(tx, source.seq))?;
        let every = Duration::from_secs(terms.every_secs);
        // One that began in the future is from before the clock was set back.
        if last.is_some_and(|at| at <= now && now.since(at) < every) {
            return Ok(());
        }
        let new = NewRun {
            id: id::uuid7(now, &*shared.env.draw),
            tenant: tenant.to_owned(),
            provider: name.to_string(),
            source_seq: source.seq,
            is_dry: false,
            since: now.minus(Duration::from_secs(terms.since_secs)),
            until: now.minus(YOUNG),
            requested_by: None,
            began_at: now,
        };
        let insert = move |tx: &WriteTx<'_>| store::insert(tx, &new).map(drop);
        shared.env.store.writer().write(Queue::Accept, insert)
    }

    /// Asks for a page, takes in what is missing, and counts it.
    fn page(
        &mut self,
        turn: &ListTurn<'_>,
        run: &Run,
        current: &mut CurrentRun,
    ) -> Result<RunStep> {
        let ListTurn { shared, source, terms, .. } = turn;
        let provider = match turn.provider() {
            Ok(Some(provider)) => provider,
            Ok(None) => {
                return Ok(RunStep::failed("its source reads no list of a provider any more"));
            }
            Err(SourceError { why, .. }) => return Ok(RunStep::failed(why)),
        };
        if current.round.is_worn() {
            return Ok(RunStep::failed("a further page of the list was gone again and again"));
        }
        let most = if self.has_large_pages { MAX_PAGE_BYTES } else { SMALL_PAGE_BYTES };
        let _share = current.pass.take_page(&shared.env.budget, most.saturating_mul(2));
        let request = terms.request(current.round.mark(), current.round.since());
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
                return Ok(RunStep::Further);
            }
            Err(error) => return current.no_page(error),
        };
        let mark = current.round.mark().cloned();
        let mut page = match terms.read(fetched.answered(mark.as_ref())) {
            Ok(page) => page,
            // It may have been a page of a proxy.
            Err(why) => return Ok(RunStep::Retry(why, Duration::ZERO)),
        };
        if !run.new.is_dry {
            let payloads =
                turn.add_payloads(Some(&provider), &mut page.items, most, &mut self.cache);
            if let Payloads::Part(error) = payloads {
                take_in(turn, &compared(run, &page.items), &provider)?;
                return match error {
                    None => Ok(RunStep::Further),
                    Some(NoPage::Large) if !self.has_large_pages => {
                        self.has_large_pages = true;
                        Ok(RunStep::Further)
                    }
                    Some(error) => current.no_page(error),
                };
            }
        }
        current.count(turn, run, &provider, &page)
    }
}

impl CurrentRun {
    fn begin(run: &Run, settings: &HttpSettings, now: Duration) -> Self {
        let since = run.new.since.ms();
        Self {
            seq: run.seq,
            settings: settings.clone(),
            round: ListRound::begin(since, Duration::ZERO, run.new.until, None),
            pass: Pass::default(),
            tally: Tally::default(),
            began: now,
            due_at: now,
            failures: 0,
        }
    }

    /// Reads the list from its first page again.
    fn begin_pass(&mut self, round: ListRound) {
        self.round = round;
        self.pass = Pass::default();
        self.tally = Tally::default();
    }

    /// Waits before the page is asked for again. Too many errors in a row end the run.
    fn retry(&mut self, why: String, wait: Duration, now: Duration) -> RunStep {
        let pause = PAUSE.saturating_mul(1 << self.failures.min(6)).min(MAX_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.due_at = now.saturating_add(pause.max(wait));
        if self.failures >= MAX_FAILURES { RunStep::failed(why) } else { RunStep::Retry(why, wait) }
    }

    fn no_page(&mut self, error: NoPage) -> Result<RunStep> {
        let why = error.to_text();
        Ok(match error {
            NoPage::Ours(error) => return Err(error),
            NoPage::Passing(_, wait) => RunStep::Retry(why, wait.unwrap_or_default()),
            NoPage::Gone(_) if self.round.mark().is_some() => {
                self.begin_pass(self.round.again());
                RunStep::Retry(why, Duration::ZERO)
            }
            NoPage::Large | NoPage::Gone(_) | NoPage::Lasting(_) | NoPage::NoCredential(_) => {
                RunStep::failed(why)
            }
        })
    }

    /// Takes in the missing items of a page, counts all that are new to the pass, and goes to the next page.
    fn count(
        &mut self,
        turn: &ListTurn<'_>,
        run: &Run,
        provider: &Arc<VerifiedProvider>,
        page: &ListPage<'_>,
    ) -> Result<RunStep> {
        if !run.new.is_dry && !take_in(turn, &compared(run, &page.items), provider)? {
            return Ok(RunStep::Further);
        }
        let added = self.pass.add(&page.items, &self.round);
        let is_circle = page.next.is_some() && page.next.as_ref() == self.round.mark();
        if is_circle || self.pass.is_endless() {
            return Ok(RunStep::failed(
                "the list has no end: its pages repeat items that were read before. Correct next",
            ));
        }
        let new = page.items.iter().zip(&added.is_new).filter(|(_, is_new)| **is_new);
        for item in new.map(|(item, _)| item).filter(|item| is_compared(run, item)) {
            let state = state_of(turn, run, provider, item)?;
            // An item without a time of its own counts for the day of the run.
            self.tally.add(item.time.unwrap_or(run.new.until), state);
        }
        if page.next.is_some() && self.pass.is_cut(turn.terms.items_max) {
            return Ok(RunStep::failed(
                "the list ends after items_max items, and has more. Compare a shorter period",
            ));
        }
        let facts = PageFacts {
            sum: added.sum,
            highest: None,
            has_items: !page.items.is_empty(),
            next: page.next.clone(),
            is_cut: false,
        };
        Ok(match self.round.after(facts, 0) {
            RoundStep::Page(next) => {
                self.round = next;
                RunStep::Further
            }
            RoundStep::Pass(next) => {
                self.begin_pass(next);
                RunStep::Further
            }
            RoundStep::End(end) if end.is_at_rest => RunStep::End(None),
            RoundStep::End(_) => RunStep::failed(
                "the list changed each time it was read: no two passes found the same. Compare again",
            ),
        })
    }
}

/// Stores the end of a run. Raises an escalation if too many of a day's items were missing, and ends it if not.
fn end(
    shared: &RelayServices,
    run: &Run,
    current: CurrentRun,
    error: Option<String>,
) -> Result<()> {
    let days = if error.is_some() { Vec::new() } else { current.tally.into_days() };
    let NewRun { tenant, provider, id: run_id, .. } = run.new.clone();
    match &error {
        None => tracing::info!(provider, run = run_id, "a comparison has ended"),
        Some(why) => tracing::warn!(provider, run = run_id, why, "a comparison has failed"),
    }
    let found = shared.receive.provider(&tenant, &provider)?;
    let terms = found.map(|found| found.provider.new.reconcile).unwrap_or_default();
    let alarm = alarm(&days, terms, run.new.is_dry);
    let end = RunEnd { days, error };
    let seq = run.seq;
    let now = shared.env.clock.wall();
    let id = id::uuid7(now, &*shared.env.draw);
    let subject = format!("provider:{provider}");
    let class = Class::ProviderMissing;
    let written = shared.env.store.writer().write(Queue::Accept, move |tx| {
        store::end(tx, seq, &end, now)?;
        match &alarm {
            _ if end.error.is_some() => Ok(()),
            None => escalations::resolve(tx, &tenant, class, &subject, now),
            Some(detail) => {
                let new = NewEscalation {
                    id: id.clone(),
                    tenant: tenant.clone(),
                    class,
                    subject: subject.clone(),
                    detail: detail.clone(),
                };
                escalations::raise(tx, &new, now).map(drop)
            }
        }
    });
    match written {
        // It was ended because its source was paused or deleted.
        Err(Error::Changed(_)) => Ok(()),
        other => other,
    }
}

/// What an escalation says of the day of which the largest share was missing; `None` if no day has too many.
fn alarm(days: &[ReconciledDay], terms: ReconcileTerms, is_dry: bool) -> Option<String> {
    let share = |day: &&ReconciledDay| {
        day.counts.missing.saturating_mul(1_000_000).checked_div(day.counts.sent)
    };
    let is_bad = |day: &&ReconciledDay| terms.is_alarming(day.counts.missing, day.counts.sent);
    let worst = days.iter().filter(is_bad).max_by_key(share)?;
    let ReconciledDay { day, counts, .. } = worst;
    let done = if is_dry { "and are not taken in yet" } else { "and are here now" };
    Some(format!("{} of {} webhooks of {day} were missing {done}", counts.missing, counts.sent))
}

/// Whether an item is of the period of a run. One without a time is.
fn is_compared(run: &Run, item: &ListItem<'_>) -> bool {
    item.time.is_none_or(|at| at >= run.new.since && at <= run.new.until)
}

/// The items of a page that a run compares.
fn compared<'a>(run: &Run, items: &[ListItem<'a>]) -> Vec<ListItem<'a>> {
    items.iter().filter(|item| is_compared(run, item)).cloned().collect()
}

/// Stores the items that are missing. `false`: a person has changed the source meanwhile, and the page is read again.
fn take_in(
    turn: &ListTurn<'_>,
    items: &[ListItem<'_>],
    provider: &Arc<VerifiedProvider>,
) -> Result<bool> {
    let ready = turn.ready(items, Some(Arc::clone(provider)))?;
    let events = ready.webhooks.len().saturating_add(ready.rows.len());
    if events == 0 {
        return Ok(true);
    }
    let cursor = turn.source.new.cursor;
    let identity = turn.source.identity.clone();
    let progress = Progress {
        from: cursor,
        to: cursor,
        known: identity.clone(),
        identity,
        events: u64::try_from(events).unwrap_or(u64::MAX),
    };
    match turn.shared.store_list(turn.source, progress, ready) {
        Ok(()) => Ok(true),
        Err(Error::Changed(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The state of an item, read from the stored events. Of several events the worst state counts.
fn state_of(
    turn: &ListTurn<'_>,
    run: &Run,
    provider: &VerifiedProvider,
    item: &ListItem<'_>,
) -> Result<ItemState> {
    let refused = |why: &str| Ok(ItemState::Refused(turn.reason(provider, item, why)?));
    let ids = match turn.ids(provider, item) {
        Ok(ids) if ids.is_empty() => return refused("it has no event"),
        Ok(ids) => ids,
        Err(ListedRefusal::Unusable(why)) => return refused(&why),
        Err(ListedRefusal::Failed(error)) => return Err(error),
    };
    let of = &provider.provider.new;
    let came = turn.shared.env.store.read(|tx| {
        let each = ids.iter().map(|id| {
            webhook_events::how_it_came(tx, (of.tenant.as_str(), of.name.as_str(), id.as_str()))
        });
        each.collect::<Result<Vec<_>>>()
    })?;
    if came.iter().any(Option::is_none) {
        return match turn.webhooks(provider, item) {
            Ok(_) => Ok(ItemState::Missing),
            Err(ListedRefusal::Unusable(why)) => refused(&why),
            Err(ListedRefusal::Failed(error)) => Err(error),
        };
    }
    let mut unsent = came.iter().flatten().filter(|came| !came.was_sent).peekable();
    if unsent.peek().is_none() {
        return Ok(ItemState::Received);
    }
    let was_missing = unsent.any(|came| came.seq.is_some_and(|seq| seq > run.last_before));
    Ok(ItemState::TakenIn { was_missing })
}
