//! The items of a page as webhooks of their provider, or as events of the source.
//!
//! Not here: which pages are read ([`super::http_reader`], [`super::reconciliation`]).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::base::headers::Headers;
use crate::base::id;
use crate::model::event_field::EventField;
use crate::model::webhook_event::{NewWebhookEvent, WebhookOrigin};
use crate::pipeline::provider_cache::VerifiedProvider;
use crate::pipeline::receive::{ListedRefusal, Receive};
use crate::privacy::NotAdmitted;
use crate::signatures::Incoming;
use crate::signatures::provider::Repeats;
use crate::sources::Source;
use crate::sources::cell::Cell;
use crate::sources::draft::{Draft, describe};
use crate::sources::http_client::{ListReader, MAX_PAGE_BYTES, NoPage, TIMEOUT, WantedPage};
use crate::sources::http_list::{ListItem, oldest_first, sort_oldest_first};
use crate::sources::http_settings::{HttpSettings, ListTerms};
use crate::sources::shared::{ReadItems, ReadyRow, RelayServices, SourceError, recognise};
use crate::store::error::Result;
use crate::store::outbox::{self, UNUSABLE};
use crate::store::webhook_events;
use crate::targets::http::access::CredentialCache;

/// Characters of an item's id that a reason quotes.
const MAX_SHOWN_CHARS: usize = 100;

/// How long payloads are asked for in one turn.
const MAX_PAYLOADS_TIME: Duration = Duration::from_mins(1);

/// How many items of a page have their payloads.
#[derive(Debug)]
pub(super) enum Payloads {
    /// All.
    All,
    /// The oldest ones, which are left in the page; and why it did not go on, if that was an error.
    Part(Option<NoPage>),
}

/// What is left of a turn for payloads.
struct TurnRest {
    /// By the monotonic clock.
    ends_at: Duration,
    bytes: usize,
    /// Its bytes at the beginning.
    most: usize,
}

/// What of an item is stored.
enum StoredAs {
    /// All its events.
    Events,
    /// An event in quarantine, because it could not be used.
    Quarantined,
    Nothing,
}

/// A list during one turn.
pub(super) struct ListTurn<'a> {
    pub(super) shared: &'a RelayServices,
    pub(super) source: &'a Source,
    pub(super) settings: &'a HttpSettings,
    pub(super) terms: ListTerms,
    /// How its webhooks come.
    pub(super) origin: WebhookOrigin,
}

impl ListTurn<'_> {
    /// The provider whose webhooks the items are.
    pub(super) fn provider(
        &self,
    ) -> std::result::Result<Option<Arc<VerifiedProvider>>, SourceError> {
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

    /// The new items of a page as events, the oldest first. One that cannot be used becomes an event in quarantine.
    pub(super) fn ready(
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

    /// Asks for the payloads of items whose events are not known, if the list does not have them: the oldest first. Items for which
    /// a turn has no time or memory left are taken out of the page.
    pub(super) fn add_payloads(
        &self,
        provider: Option<&VerifiedProvider>,
        items: &mut Vec<ListItem<'_>>,
        most: usize,
        cache: &mut CredentialCache,
    ) -> Payloads {
        let Some(provider) = provider.filter(|_| self.terms.details.is_some()) else {
            return Payloads::All;
        };
        sort_oldest_first(items);
        let clock = &self.shared.env.clock;
        let ends_at = clock.monotonic().saturating_add(MAX_PAYLOADS_TIME);
        let mut rest = TurnRest { ends_at, bytes: most, most };
        let mut gone = Vec::new();
        for at in 0..items.len() {
            let Some(item) = items.get_mut(at) else { break };
            let step = match self.stored_as(provider, item) {
                Ok(StoredAs::Events) => continue,
                Ok(StoredAs::Quarantined) => {
                    item.trouble = Some("its payload could not be had".to_owned());
                    gone.push(at);
                    continue;
                }
                Ok(StoredAs::Nothing) if clock.monotonic() >= ends_at => Err(None),
                Ok(StoredAs::Nothing) => self.add_payload(item, &mut rest, cache).map_err(Some),
                Err(error) => Err(Some(NoPage::Ours(error))),
            };
            if let Err(error) = step {
                // One that is too large for what others have left is asked for in the next turn.
                let is_crowded = matches!(error, Some(NoPage::Large)) && rest.bytes < most;
                items.truncate(at);
                return Payloads::Part(error.filter(|_| !is_crowded));
            }
        }
        self.ask_again(items, gone, &mut rest, cache);
        Payloads::All
    }

    /// Asks once more for payloads that were gone, in the rest of the turn: new items come first.
    fn ask_again(
        &self,
        items: &mut [ListItem<'_>],
        gone: Vec<usize>,
        rest: &mut TurnRest,
        cache: &mut CredentialCache,
    ) {
        for at in gone {
            let Some(item) = items.get_mut(at) else { return };
            if self.shared.env.clock.monotonic() >= rest.ends_at {
                return;
            }
            let before = item.trouble.take();
            if self.add_payload(item, rest, cache).is_err() {
                item.trouble = before;
                return;
            }
        }
    }

    /// Asks for the payload of an item. One that cannot be had marks its item: it cannot be used.
    fn add_payload(
        &self,
        item: &mut ListItem<'_>,
        rest: &mut TurnRest,
        cache: &mut CredentialCache,
    ) -> std::result::Result<(), NoPage> {
        let Some(request) = self.terms.request_of(item) else {
            item.trouble = Some("it does not say where its payload is".to_owned());
            return Ok(());
        };
        let wanted = WantedPage {
            reader: ListReader::source(self.source),
            terms: &self.terms,
            request: &request,
            most: rest.bytes,
            timeout: TIMEOUT,
        };
        match self.shared.lists.fetch(&wanted, cache) {
            Ok(found) => {
                rest.bytes = rest.bytes.saturating_sub(found.body.len());
                match self.terms.payload_in(&found.body) {
                    Some(payload) => item.raw = Cow::Owned(payload.to_owned()),
                    None => {
                        item.trouble = Some("the answer to its request has no payload".to_owned());
                    }
                }
            }
            Err(NoPage::Gone(why)) => {
                item.trouble = Some(format!("its payload cannot be had: {why}"));
            }
            Err(NoPage::Large) if rest.bytes == rest.most && rest.most == MAX_PAGE_BYTES => {
                item.trouble = Some(format!("its payload has more than {MAX_PAGE_BYTES} bytes"));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// What of an item is stored.
    fn stored_as(&self, provider: &VerifiedProvider, item: &ListItem<'_>) -> Result<StoredAs> {
        let of = &provider.provider.new;
        let ids = match self.ids(provider, item) {
            Ok(ids) => ids,
            Err(ListedRefusal::Unusable(_)) => Vec::new(),
            Err(ListedRefusal::Failed(error)) => return Err(error),
        };
        let has_all = self.shared.env.store.read(|tx| {
            ids.iter().try_fold(!ids.is_empty(), |all, id| {
                let identity = (of.tenant.as_str(), of.name.as_str(), id.as_str());
                Ok(all && webhook_events::is_known(tx, identity)?)
            })
        })?;
        if has_all {
            return Ok(StoredAs::Events);
        }
        let is_private = of.pii.rules().is_some();
        let is_quarantined = self.unusable(item, "", is_private)?.is_none();
        Ok(if is_quarantined { StoredAs::Quarantined } else { StoredAs::Nothing })
    }

    /// The webhooks that the provider would have sent, without known events.
    pub(super) fn webhooks(
        &self,
        provider: &VerifiedProvider,
        item: &ListItem<'_>,
    ) -> std::result::Result<Vec<NewWebhookEvent>, ListedRefusal> {
        self.as_request(provider, item, |incoming| {
            self.shared.receive.listed(provider, incoming, self.origin)
        })
    }

    /// The provider's ids of the events of an item.
    pub(super) fn ids(
        &self,
        provider: &VerifiedProvider,
        item: &ListItem<'_>,
    ) -> std::result::Result<Vec<String>, ListedRefusal> {
        self.as_request(provider, item, |incoming| Receive::listed_ids(provider, incoming))
    }

    /// Reads an item as the request that the provider would have sent.
    fn as_request<T>(
        &self,
        provider: &VerifiedProvider,
        item: &ListItem<'_>,
        read: impl FnOnce(&Incoming<'_>) -> std::result::Result<T, ListedRefusal>,
    ) -> std::result::Result<T, ListedRefusal> {
        if let Some(why) = &item.trouble {
            return Err(ListedRefusal::Unusable(why.clone()));
        }
        if !item.raw.starts_with('{') {
            return Err(ListedRefusal::Unusable("it is no JSON object".to_owned()));
        }
        let mut headers = Headers::default();
        headers.push("content-type", b"application/json");
        for (name, value) in &item.headers {
            headers.push(name, value.as_bytes());
        }
        let body = provider.provider.new.scheme.body_of(&item.raw);
        read(&Incoming {
            method: "POST",
            path: "/",
            url: self.terms.url.as_str(),
            headers: &headers,
            body: body.as_bytes(),
        })
    }

    /// Why an item of the provider's list is refused, without personal data.
    pub(super) fn reason(
        &self,
        provider: &VerifiedProvider,
        item: &ListItem<'_>,
        why: &str,
    ) -> Result<String> {
        if provider.provider.new.pii.rules().is_some() {
            return Ok(why.to_owned());
        }
        let why = format!("item {}: {why}", shown_id(item));
        self.shared.env.privacy.sanitize(&self.source.new.tenant, &why)
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
        draft.put(EventField::Payload, text(&item.raw));
        let mut has_time = false;
        for (field, path) in &self.terms.fields {
            let own = matches!(field, EventField::IdempotencyKey | EventField::Payload);
            let Some(found) = path.text_in(item.raw.as_bytes()).filter(|_| !own) else { continue };
            has_time |= *field == EventField::OccurredAt;
            draft.put(*field, Cell::Text(found));
        }
        let has_type = draft.get(EventField::EventType).is_some()
            || self.settings.defaults.contains_key(&EventField::EventType);
        if let Some(event_type) = self.terms.event_type.filter(|_| !has_type) {
            draft.put(EventField::EventType, text(event_type));
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
            draft.put(EventField::Payload, Cell::Text(item.raw.to_string()));
            (privacy.hashed(tenant, &short)?, format!("item {}: {why}", shown_id(item)))
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

/// The id of an item, as a reason quotes it.
fn shown_id(item: &ListItem<'_>) -> String {
    item.id.as_deref().unwrap_or("without an id").chars().take(MAX_SHOWN_CHARS).collect()
}
