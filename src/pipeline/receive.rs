//! Intake: a provider's request is verified over its raw bytes, stored once, then acknowledged.

use crate::base::budget::Share;
use crate::base::fair::Semaphore;
use crate::base::headers::Headers;
use crate::base::id;
use crate::formats::filter::{self, Payload, Unknown};
use crate::http::client::{Call, Sender};
use crate::http::content_coding::{self, CodingError, Unpacked};
use crate::model::event;
use crate::model::form_body::Body;
use crate::model::history::Subject;
use crate::model::provider::{KeyPlace, MAX_KEY_CHARS};
use crate::model::sealed::Sealed;
use crate::model::webhook_event::{Batch, NewWebhookEvent, WebhookOrigin};
use crate::pipeline::counts::Counts;
use crate::pipeline::prelude::*;
use crate::pipeline::provider_cache::{ProviderCache, VerifiedProvider};
use crate::privacy::{Fresh, NotAdmitted, policy};
use crate::signatures::acknowledgement::Acknowledgement;
use crate::signatures::batch::{Item, Unusable};
use crate::signatures::certificate_cache::{Certificates, Fetch, Missing};
use crate::signatures::fingerprint;
use crate::signatures::handshake::Handshake;
use crate::signatures::provider::{NewProvider, Repeats};
use crate::signatures::{Incoming, Refused, Scheme};
use crate::store::idempotency_keys;
use crate::store::matching::{Candidate, Matches};
use crate::store::webhook_events::{self, Inserted, Replay};

/// The `Retry-After` of a provider while our clock cannot be trusted.
pub const CLOCK_RETRY_AFTER: Duration = Duration::from_mins(1);
/// The `Retry-After` of a provider while too many signatures are being checked.
pub const CROWDED_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Bytes that are stored of a batch at most, for each byte that the provider may send. Each event keeps the request's
/// header fields, so a short list of short events may be long in the file.
const STORED_PER_BYTE: usize = 4;
/// Bytes of memory of an event of a batch, without its payload and header fields.
const EVENT_BYTES: usize = 1024;

/// The outcome of a webhook request.
#[derive(Debug)]
pub enum Received {
    /// Stored on the disk, now or before.
    Stored(Inserted),
    /// The events of a batch, each stored on the disk, now or before.
    Batch {
        /// The batch.
        id: String,
        /// How many are new.
        stored: u64,
        /// How many were stored before.
        repeated: u64,
    },
    /// It has no event: the provider tests the address and expects this answer.
    Greeted(Handshake),
    /// The signature is not accepted. The provider gets the same answer for every reason.
    Refused(Refused),
    /// The signature was used before, for another body. It is answered like a wrong signature.
    Reused,
    /// Correctly signed, but it cannot be used.
    Unusable(Unusable),
    /// Its body cannot be unpacked.
    Packed(CodingError),
    /// Correctly signed, but the provider's ordering key cannot be read in it.
    Unordered(Unknown),
    /// Correctly signed, but its time is too far from ours, and our clock may be wrong.
    ClockSuspect,
    /// The provider's policy on personal data refuses it: the rule and the field.
    Unwanted(policy::Refused),
    /// The certificate or the confirmation that it needs cannot be fetched now.
    Unfetched(Missing),
    /// Too many expensive signatures are being checked, or too many batches stored.
    Saturated,
    /// It could not be stored.
    Failed(Error),
}

impl Received {
    /// Counts the outcome.
    fn count(&self, tenant: &str, provider: i64, at: Timestamp, counts: &Counts) {
        if !matches!(self, Self::Greeted(_)) {
            let is_accepted = matches!(self, Self::Stored(_) | Self::Batch { .. });
            counts.history.note(Subject::Provider(provider), at, !is_accepted, None);
        }
        let new = match self {
            Self::Stored(inserted) => u32::from(!inserted.already_processed),
            Self::Batch { stored, .. } => u32::try_from(*stored).unwrap_or(u32::MAX),
            _ => 0,
        };
        counts.recent.accepted(tenant, 0, new);
        let counter = match self {
            Self::Stored(Inserted { already_processed: false, .. }) => &counts.webhooks_stored,
            Self::Stored(Inserted { already_processed: true, .. }) => &counts.webhooks_repeated,
            Self::Batch { id: _, stored, repeated } => {
                counts.webhooks_stored.add_many(*stored);
                counts.webhooks_repeated.add_many(*repeated);
                return;
            }
            Self::Greeted(_) => return,
            Self::ClockSuspect
            | Self::Unfetched(_)
            | Self::Saturated
            | Self::Packed(CodingError::Saturated) => &counts.webhooks_deferred,
            Self::Refused(_)
            | Self::Reused
            | Self::Unusable(_)
            | Self::Packed(_)
            | Self::Unordered(_) => &counts.webhooks_refused,
            Self::Unwanted(_) => &counts.webhooks_unwanted,
            Self::Failed(_) => &counts.webhooks_failed,
        };
        counter.add();
    }
}

/// The intake.
#[derive(Clone)]
pub struct Receive {
    /// The environment.
    pub env: Env,
    /// The providers.
    pub providers: Arc<ProviderCache>,
    /// The certificates that some signatures are checked with.
    pub certificates: Arc<Certificates>,
    /// Limits how many asymmetric signatures are checked at once.
    pub asymmetric_checks: Arc<Semaphore>,
    /// Counters and histograms.
    pub counts: Arc<Counts>,
}

impl Receive {
    /// An intake that checks no signature yet. `sender` is the client that sends deliveries; it also fetches
    /// certificates: one address policy, one set of root certificates.
    pub fn new(
        env: Env,
        providers: Arc<ProviderCache>,
        counts: Arc<Counts>,
        sender: Arc<dyn Sender>,
    ) -> Self {
        let fetch: Fetch = Box::new(move |url, timeout| {
            let call = Call { method: "GET", url, timeout, ..Call::default() };
            sender.send(&call).map(|answer| (answer.status, answer.body)).map_err(|e| e.to_string())
        });
        let certificates = Arc::new(Certificates::new(fetch, env.clock.clone()));
        Self { env, providers, certificates, asymmetric_checks: Arc::default(), counts }
    }

    /// A provider with its secrets; `None` where there is no such provider.
    pub fn provider(&self, tenant: &str, provider: &str) -> Result<Option<Arc<VerifiedProvider>>> {
        self.providers.of(tenant, provider)
    }

    /// Verifies a request and stores it; `done` is called after COMMIT, or at once with a refusal. With the outcome it
    /// gets the answer that the provider reads, if that is not Oncebox's own.
    pub fn receive(
        &self,
        opened: &VerifiedProvider,
        incoming: &Incoming<'_>,
        done: impl FnOnce(Received, Option<Acknowledgement>) + Send + 'static,
    ) {
        let counts = Arc::clone(&self.counts);
        let tenant = opened.provider.new.tenant.clone();
        let provider = opened.provider.seq;
        let at = self.env.clock.wall();
        let done = move |received: Received, answer| {
            received.count(&tenant, provider, at, &counts);
            done(received, answer);
        };
        match self.accept(opened, incoming) {
            Ok(arrival) => self.store(arrival, done),
            Err(received) => done(received, None),
        }
    }

    /// Verifies the signature over the body as it came, then over the unpacked one. Returns the matching secret and, if
    /// the body was packed, the unpacked body.
    fn verify_packed(
        &self,
        opened: &VerifiedProvider,
        incoming: &Incoming<'_>,
    ) -> core::result::Result<(usize, Option<Unpacked>), Received> {
        let codings = content_coding::codings(incoming.headers).map_err(Received::Packed)?;
        if codings.is_empty() {
            return Ok((self.verify(opened, incoming)?, None));
        }
        let most = usize::try_from(opened.provider.new.body_bytes_max).unwrap_or(usize::MAX);
        let unpack = || content_coding::unpack(&codings, incoming.body, most, &self.env.budget);
        let refused = match self.verify(opened, incoming) {
            Ok(matched) => return Ok((matched, Some(unpack().map_err(Received::Packed)?))),
            Err(Received::Refused(why @ (Refused::Mismatch | Refused::Body { .. }))) => why,
            Err(other) => return Err(other),
        };
        // An unsigned body that cannot be unpacked is an unsigned body.
        let unpacked = unpack().map_err(|why| match why {
            CodingError::Saturated => Received::Packed(why),
            _ => Received::Refused(refused),
        })?;
        let plain = Incoming { body: &unpacked.body, ..*incoming };
        let matched = self.verify(opened, &plain)?;
        Ok((matched, Some(unpacked)))
    }

    /// Verifies a request: what to store of it, or the outcome if nothing is stored.
    fn accept(
        &self,
        opened: &VerifiedProvider,
        incoming: &Incoming<'_>,
    ) -> core::result::Result<Arrival, Received> {
        let provider = &opened.provider.new;
        let scheme = &provider.scheme;
        if let Some(greeting) = scheme.greeting(incoming) {
            return Err(Received::Greeted(greeting));
        }
        let wall = self.env.clock.wall();
        // With `GET` the fields are in the query, which is signed as a part of the URL.
        let signed_body = if incoming.method == "GET" { &b""[..] } else { incoming.body };
        let signed = Incoming { body: signed_body, ..*incoming };
        let (matched, unpacked) = self.verify_packed(opened, &signed)?;
        let body = unpacked.as_ref().map_or(incoming.body, |unpacked| unpacked.body.as_slice());
        let mut shares = Vec::new();
        let incoming = &Incoming { body, ..*incoming };
        if let Some(last_use) = opened.uses.get(matched) {
            last_use.note(wall);
        }
        let secret = opened.secrets.get(matched).map_or(&b""[..], |secret| secret.as_bytes());
        if let Some(challenge) = scheme.challenge(incoming, secret) {
            return Err(Received::Greeted(challenge));
        }
        let found = scheme.events(incoming).map_err(Received::Unusable)?;
        if let Some(url) = scheme.confirmation(incoming) {
            let ids = found.items.iter().map(|item| item.identity.event_id.as_str());
            self.confirm(provider, &url, ids)?;
        }
        let headers = kept(scheme, incoming.headers);
        if found.is_batch {
            shares.push(self.share(provider, &found.items, &headers)?);
        }
        let batch_id = found.is_batch.then(|| id::uuid7(wall, &*self.env.draw));
        let origin = WebhookOrigin::Webhook;
        let request =
            VerifiedRequest { opened, matched, incoming, headers, batch_id, wall, origin };
        let mut events = Vec::with_capacity(found.items.len());
        let mut fresh = Fresh::new();
        for (item, number) in found.items.into_iter().zip(1_u32..) {
            events.push(self.event(&request, item, number, &mut fresh)?);
        }
        let batch_id = request.batch_id;
        let once = scheme.nonce(incoming).map(|nonce| {
            let key =
                format!("in,{}", id::sha256_hex(format!("{}:{nonce}", provider.id).as_bytes()));
            let kept = provider.tolerance.saturating_mul(2).max(idempotency_keys::KEPT);
            let tenant = provider.tenant.clone();
            Once { tenant, key, hash: id::sha256_hex(incoming.body), kept }
        });
        let answer = scheme.acknowledgement(incoming);
        shares.extend(unpacked.into_iter().flat_map(|unpacked| unpacked.shares));
        Ok(Arrival { events, batch_id, once, shares, answer })
    }

    /// An event of a verified request, with the provider's policy applied. `number` is its position, from 1.
    fn event(
        &self,
        request: &VerifiedRequest<'_>,
        item: Item<'_>,
        number: u32,
        fresh: &mut Fresh,
    ) -> core::result::Result<NewArrival, Received> {
        let VerifiedRequest { opened, matched, incoming, headers, batch_id, wall, origin } =
            request;
        let provider = &opened.provider.new;
        let mut event = NewWebhookEvent {
            id: id::uuid7(*wall, &*self.env.draw),
            tenant: provider.tenant.clone(),
            provider: provider.name.to_string(),
            provider_event_id: match repeats_of(provider, incoming) {
                Repeats::ById => item.identity.event_id,
                Repeats::Never | Repeats::WithinSecs(_) => id::uuid7(*wall, &*self.env.draw),
            },
            event_type: item.identity.event_type,
            received_at: *wall,
            payload: item.payload.into_owned(),
            content_type: if item.is_from_form {
                "application/json".to_owned()
            } else {
                content_type(incoming)
            },
            headers: headers.clone(),
            key_id: opened.key_ids.get(*matched).cloned(),
            trace_id: incoming.headers.get("traceparent").and_then(event::trace_id),
            batch: Batch { item_no: batch_id.as_ref().map(|_| number), batch_id: batch_id.clone() },
            sealed: Sealed::default(),
            ordering_key: None,
            type_field: provider.scheme.type_field(incoming).map(str::to_owned),
            origin: *origin,
        };
        let replay = replay(request, &event);
        let media = event.content_type.clone();
        let key = |payload: &[u8]| {
            let body = Body { content_type: &media, bytes: payload };
            ordering_key(provider, incoming.headers, body)
        };
        event.ordering_key = key(&event.payload)?;
        if let Some(policy) = provider.pii.rules() {
            let admitted = self.env.privacy.admit_webhook(policy, &mut event, fresh);
            admitted.map_err(not_admitted)?;
            let stored = key(&event.payload)?;
            self.env.privacy.protect_key(policy, &mut event, stored);
        }
        event.ordering_key = event.ordering_key.map(|key| {
            let is_long = key.chars().count() > MAX_KEY_CHARS;
            if is_long { id::sha256_hex(key.as_bytes()) } else { key }
        });
        Ok(NewArrival { event, replay })
    }

    /// The new events of an item of a provider's own list. The reader of webhooks gives their ids, so that list and webhook of
    /// an event are stored once.
    pub fn listed(
        &self,
        opened: &VerifiedProvider,
        incoming: &Incoming<'_>,
        origin: WebhookOrigin,
    ) -> core::result::Result<Vec<NewWebhookEvent>, ListedRefusal> {
        let provider = &opened.provider.new;
        let items = items_of_list(provider, incoming)?;
        let wall = self.env.clock.wall();
        let headers = kept(&provider.scheme, incoming.headers);
        // No secret has signed it.
        let matched = usize::MAX;
        let batch_id = None;
        let request =
            VerifiedRequest { opened, matched, incoming, headers, batch_id, wall, origin };
        let mut fresh = Fresh::new();
        let mut events = Vec::new();
        for (item, number) in items.into_iter().zip(1_u32..) {
            let id = item.identity.event_id.as_str();
            let identity = (provider.tenant.as_str(), provider.name.as_str(), id);
            let is_known = self.env.store.read(|tx| webhook_events::is_known(tx, identity));
            if is_known.map_err(ListedRefusal::Failed)? {
                continue;
            }
            let arrival = self.event(&request, item, number, &mut fresh);
            events.push(arrival.map_err(ListedRefusal::of)?.event);
        }
        Ok(events)
    }

    /// The provider's ids of the events of an item of its list, whether they are known or not.
    pub fn listed_ids(
        opened: &VerifiedProvider,
        incoming: &Incoming<'_>,
    ) -> core::result::Result<Vec<String>, ListedRefusal> {
        let items = items_of_list(&opened.provider.new, incoming)?;
        Ok(items.into_iter().map(|item| item.identity.event_id).collect())
    }

    /// Stores an event of a list, in the transaction of whoever reads the list; whether it is new.
    pub fn store_listed(tx: &WriteTx<'_>, event: &NewWebhookEvent, now: Timestamp) -> Result<bool> {
        Ok(!webhook_events::insert(tx, event, None, now)?.already_processed)
    }

    /// Counts events of a list that were stored.
    pub fn count_listed(&self, opened: &VerifiedProvider, new: u32) {
        let at = self.env.clock.wall();
        for _event in 0..new {
            self.counts.history.note(Subject::Provider(opened.provider.seq), at, false, None);
        }
        self.counts.recent.accepted(&opened.provider.new.tenant, 0, new);
        self.counts.webhooks_stored.add_many(u64::from(new));
    }

    /// Takes the memory of a batch, unless too much would be stored of it.
    fn share(
        &self,
        provider: &NewProvider,
        items: &[Item<'_>],
        headers: &[(String, String)],
    ) -> core::result::Result<Share, Received> {
        let len = |name: &str, value: &str| name.len().saturating_add(value.len());
        let headers = headers.iter().map(|(name, value)| len(name, value)).sum::<usize>();
        let own = |item: &Item<'_>| {
            let identity = &item.identity;
            item.payload.len().saturating_add(len(&identity.event_id, &identity.event_type))
        };
        let bytes = items.len().saturating_mul(headers);
        let bytes = items.iter().map(own).fold(bytes, usize::saturating_add);
        let most = usize::try_from(provider.body_bytes_max).unwrap_or(usize::MAX);
        let most = most.saturating_mul(STORED_PER_BYTE);
        if bytes > most {
            return Err(Received::Unusable(Unusable::Bulky { bytes, most }));
        }
        let held = bytes.saturating_add(items.len().saturating_mul(EVENT_BYTES));
        self.env.budget.try_take(held).ok_or(Received::Saturated)
    }

    /// Calls the URL that confirms a subscription, unless the request is stored already: then it was confirmed before.
    /// So an eavesdropper who repeats the request causes no further calls.
    fn confirm<'i, I: Iterator<Item = &'i str>>(
        &self,
        provider: &NewProvider,
        url: &str,
        mut ids: I,
    ) -> core::result::Result<(), Received> {
        let tenant = &provider.tenant;
        let name = provider.name.as_str();
        let is_stored = self.env.store.read(|tx| {
            ids.try_fold(true, |all, id| {
                Ok(all && webhook_events::is_known(tx, (tenant, name, id))?)
            })
        });
        if is_stored.map_err(Received::Failed)? {
            return Ok(());
        }
        self.certificates.confirm(url).map_err(Received::Unfetched)
    }

    /// Which of the provider's secrets a request was signed with. The cheapest checks come first.
    fn verify(
        &self,
        opened: &VerifiedProvider,
        incoming: &Incoming<'_>,
    ) -> core::result::Result<usize, Received> {
        let wall = self.env.clock.for_signatures();
        let provider = &opened.provider.new;
        let secrets = &opened.secrets;
        let scheme = &provider.scheme;
        let is_asymmetric = scheme.is_asymmetric(secrets);
        let is_suspect = || self.env.clock.sure_now().is_none();
        if is_asymmetric
            && let Err(untimely) = scheme.in_time(incoming, wall, provider.tolerance)
            && !is_suspect()
        {
            return Err(Received::Refused(untimely));
        }
        let url = scheme.certificate_url(incoming).map_err(Received::Refused)?;
        let fetched = url.as_deref().map(|url| self.certificates.get(&provider.id, url));
        let certificate = fetched.transpose().map_err(Received::Unfetched)?;
        let permit = is_asymmetric
            .then(|| self.asymmetric_checks.take().ok_or(Received::Saturated))
            .transpose()?;
        let bytes = certificate.as_ref().map(|found| found.body.as_slice());
        let verified = scheme.verify_with(secrets, bytes, incoming, wall, provider.tolerance);
        drop(permit);
        if let (Some(url), Some(found), Ok(_) | Err(Refused::Stale { .. })) =
            (&url, &certificate, &verified)
            && !found.is_proven
        {
            self.certificates.proved(&provider.id, url, found);
        }
        // Upkeep revokes an ended secret, but only when it looks the next time. The window is a wait: a clock that was set
        // does not end it.
        let now = self.env.clock.now();
        let is_over = |matched: &usize| {
            opened.valid_until.get(*matched).copied().flatten().is_some_and(|end| end <= now)
        };
        match verified {
            Ok(matched) if is_over(&matched) => Err(Received::Refused(Refused::Mismatch)),
            Ok(matched) => Ok(matched),
            Err(Refused::Stale { .. }) if is_suspect() => Err(Received::ClockSuspect),
            Err(refused) => Err(Received::Refused(refused)),
        }
    }

    /// Stores all of it in one transaction, or nothing.
    fn store(
        &self,
        arrival: Arrival,
        done: impl FnOnce(Received, Option<Acknowledgement>) + Send + 'static,
    ) {
        let now = self.env.clock.now();
        let wall = self.env.clock.wall();
        let Arrival { events, batch_id, once, shares, answer } = arrival;
        let news = events.iter().map(|arrival| &arrival.event);
        let candidates = news.map(|new| Candidate {
            id: &new.id,
            event: webhook_events::routed(new),
            body: new.body(),
        });
        let candidates: Vec<_> = candidates.collect();
        let matches =
            Matches::ahead(self.env.store.writer().routes(), &self.env.budget, &candidates);
        self.env.store.writer().submit(
            Queue::Accept,
            move |tx| {
                tx.set_matches(matches.as_ref());
                if let Some(Once { tenant, key, hash, kept }) = &once
                    && !idempotency_keys::remember(tx, tenant, key, hash.as_bytes(), wall, *kept)?
                {
                    return Ok(None);
                }
                let insert = |NewArrival { event, replay }: &NewArrival| {
                    webhook_events::insert(tx, event, replay.as_ref(), now)
                };
                events.iter().map(insert).collect::<Result<Vec<_>>>().map(Some)
            },
            move |outcome| {
                drop(shares);
                match outcome {
                    Err(error) => done(Received::Failed(error), None),
                    Ok(None) => done(Received::Reused, None),
                    Ok(Some(inserted)) => done(stored(inserted, batch_id), answer),
                }
            },
        );
    }
}

/// The events of an item of a provider's list, as its scheme reads them.
fn items_of_list<'b>(
    provider: &NewProvider,
    incoming: &Incoming<'b>,
) -> core::result::Result<Vec<Item<'b>>, ListedRefusal> {
    if incoming.body.len() > usize::try_from(provider.body_bytes_max).unwrap_or(usize::MAX) {
        return Err(ListedRefusal::Unusable(format!(
            "it has {} bytes; the provider's body_bytes_max is {}",
            incoming.body.len(),
            provider.body_bytes_max
        )));
    }
    let found = provider.scheme.events(incoming);
    let found = found.map_err(|why| ListedRefusal::Unusable(why.to_string()))?;
    let is_known_by_id = repeats_of(provider, incoming) == Repeats::ById;
    let has_id = |item: &Item<'_>| item.identity.event_id != id::sha256_hex(&item.payload);
    if is_known_by_id && found.items.iter().all(has_id) {
        return Ok(found.items);
    }
    let why = "it has no id where the provider's webhooks have theirs, so it cannot be known again";
    Err(ListedRefusal::Unusable(why.to_owned()))
}

/// The header fields that are stored with a webhook: those of its scheme, and those of its trace.
fn kept(scheme: &Scheme, headers: &Headers) -> Vec<(String, String)> {
    let trace = event::trace_fields(|name| headers.get(name));
    let trace = trace.map(|(name, value)| (name.to_owned(), value.to_owned()));
    scheme.kept(headers).into_iter().chain(trace).collect()
}

/// The ordering key in a webhook, unless it is empty. Refused if it cannot be read: without its key, a webhook could overtake
/// others of the same key.
pub fn ordering_key(
    provider: &NewProvider,
    headers: &Headers,
    body: Body<'_>,
) -> core::result::Result<Option<String>, Received> {
    let found = match &provider.ordering_key {
        None => None,
        Some(KeyPlace::Path(path)) => {
            let read = filter::first_text(path, &Payload::read(&body.json_view()));
            read.map_err(Received::Unordered)?
        }
        Some(KeyPlace::Header(name)) => {
            headers.get(name.as_str()).map(|text| text.trim().to_owned())
        }
    };
    Ok(found.filter(|key| !key.is_empty()))
}

/// Which requests are repetitions of this one. A body that is a bare id, of a provider without ids for its events, is the
/// same for each change of a thing. To take the second for a repetition would hide it, and to look twice does no harm.
fn repeats_of(provider: &NewProvider, incoming: &Incoming<'_>) -> Repeats {
    let body = Body {
        content_type: incoming.headers.get("content-type").unwrap_or_default(),
        bytes: incoming.body,
    };
    match provider.repeats {
        Repeats::ById if provider.scheme.is_named_by_bytes() && body.is_bare_id() => Repeats::Never,
        repeats => repeats,
    }
}

/// How to recognize an event if its request is sent again under another id.
fn replay(request: &VerifiedRequest<'_>, event: &NewWebhookEvent) -> Option<Replay> {
    let VerifiedRequest { opened, matched, incoming, .. } = request;
    let provider = &opened.provider.new;
    // PayPal and SNS have no secret; the provider's id keeps the fingerprints of two of them apart.
    let secret = opened.secrets.get(*matched).map(|secret| secret.as_bytes());
    match repeats_of(provider, incoming) {
        Repeats::Never => None,
        Repeats::WithinSecs(secs) => {
            let key = secret.unwrap_or(provider.id.as_bytes());
            Some(Replay {
                fingerprint: fingerprint::of(key, &event.event_type, [&*event.payload]),
                since: event.received_at.minus(Duration::from_secs(secs)),
            })
        }
        // A batch needs nothing: the ids of its items are in the signed body.
        Repeats::ById if provider.replay_window.is_zero() => None,
        Repeats::ById if event.batch.batch_id.is_some() => None,
        Repeats::ById => Some(Replay {
            fingerprint: provider.scheme.fingerprint(secret?, incoming, &event.event_type)?,
            since: event.received_at.minus(provider.replay_window),
        }),
    }
}

/// Why an item of a list is no event.
#[derive(Debug)]
pub enum ListedRefusal {
    /// It cannot be used, whenever it is read.
    Unusable(String),
    /// Something of ours failed.
    Failed(Error),
}

impl ListedRefusal {
    fn of(received: Received) -> Self {
        match received {
            Received::Unordered(why) => {
                Self::Unusable(format!("the provider's ordering key cannot be read: {why}"))
            }
            Received::Unwanted(why) => Self::Unusable(format!("it is not accepted: {why}")),
            Received::Failed(error) => Self::Failed(error),
            other => Self::Unusable(format!("it cannot be read: {other:?}")),
        }
    }
}

/// A request whose signature is right.
struct VerifiedRequest<'r> {
    opened: &'r VerifiedProvider,
    /// The index of the secret that signed it.
    matched: usize,
    /// The request, with its body unpacked.
    incoming: &'r Incoming<'r>,
    /// The header fields that are kept.
    headers: Vec<(String, String)>,
    batch_id: Option<String>,
    wall: Timestamp,
    origin: WebhookOrigin,
}

/// What to store of a request.
struct Arrival {
    events: Vec<NewArrival>,
    /// The batch they came in.
    batch_id: Option<String>,
    once: Option<Once>,
    /// The memory that its events take, if it is a batch or was unpacked.
    shares: Vec<Share>,
    /// The answer when it is stored, if it is not Oncebox's own.
    answer: Option<Acknowledgement>,
}

/// An event to be stored.
struct NewArrival {
    event: NewWebhookEvent,
    replay: Option<Replay>,
}

/// A request's nonce: only a request with the same body may use it again.
struct Once {
    tenant: String,
    key: String,
    hash: String,
    kept: Duration,
}

fn stored(mut inserted: Vec<Inserted>, batch_id: Option<String>) -> Received {
    let Some(id) = batch_id else {
        // Without a batch there is one event.
        let one = inserted.pop().ok_or(Error::Changed("the webhook event"));
        return one.map_or_else(Received::Failed, Received::Stored);
    };
    let mut new = 0_u64;
    let mut repeated = 0_u64;
    for one in &inserted {
        let count = if one.already_processed { &mut repeated } else { &mut new };
        *count = count.saturating_add(1);
    }
    Received::Batch { id, stored: new, repeated }
}

fn not_admitted(not: NotAdmitted) -> Received {
    match not {
        NotAdmitted::Refused { why, .. } => Received::Unwanted(why),
        NotAdmitted::Failed(error) => Received::Failed(error),
    }
}

/// The body's media type, if it can be sent on as a header value.
fn content_type(incoming: &Incoming<'_>) -> String {
    let given = incoming.headers.get("content-type").unwrap_or_default();
    let fits =
        (1..=255).contains(&given.len()) && given.bytes().all(|b| (b' '..=b'~').contains(&b));
    if fits { given.to_owned() } else { "application/octet-stream".to_owned() }
}
