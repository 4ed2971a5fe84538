//! Applies policies on personal data: before an event is stored, and when its sealed fields are sent.
//!
//! Every incoming body passes [`Privacy::admit`] or [`Privacy::admit_webhook`] on the thread that received it. Every
//! outgoing body passes [`Privacy::open_sealed`]. If the policy is `allow`, neither reads the body.
//!
//! Not here: the meaning of rules ([`crate::privacy::policy`]), ciphers ([`crate::keys::subject`]), and erasing
//! (`backup::erasures`, the API).

pub mod policy;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use data_encoding::HEXLOWER;

use crate::base::cache::Cache;
use crate::base::id::{self, Draw};
use crate::keys::Keyring;
use crate::keys::subject::{Pseudonyms, SubjectKey};
use crate::model::delivery::OutgoingRequest;
use crate::model::event::NewEvent;
use crate::model::sealed::{self, ERASED, Form, NewSubjectKey, Sealed, splice, token, tokens};
use crate::model::webhook_event::{NewWebhookEvent, webhook_id};
use crate::privacy::policy::{Applied, Edit, Pii, Policy, Refused, ResponseScrub, With};
use crate::store::error::{Error, Result};
use crate::store::subjects::{self, KeyId};
use crate::store::{Store, providers, tenants};

/// The most tenants with cached policies, and the most cached keys; further ones are read each time.
const MAX_CACHED: usize = 10_000;

/// Why events are not accepted.
#[derive(Debug)]
pub enum NotAdmitted {
    /// A policy refuses one of them.
    Refused {
        /// The index of the event.
        event: usize,
        /// The rule and where it applies.
        why: Refused,
    },
    /// A policy or a key cannot be read.
    Failed(Error),
}

impl From<Error> for NotAdmitted {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The result of opening the body of an outgoing request.
#[derive(Debug)]
pub struct Opened {
    /// Removes the opened data from the receiver's answer.
    pub echo: ResponseScrub,
    /// Whether every sealed field was opened, or is erased. Otherwise the body must not be sent: no receiver could
    /// use it.
    pub is_whole: bool,
    /// The body as it is stored, if a sealed field of it was opened.
    pub stored: Option<Vec<u8>>,
}

/// Why a delivery is given up if its body is not [whole](Opened::is_whole).
pub const NOT_OPENED: &str = "sealed fields of its body cannot be opened: their key is not in this file, or they were \
                              sealed for another event; publish the event again";

/// The policies of one tenant.
#[derive(Debug)]
struct TenantPolicies {
    /// For events that are published.
    own: Pii,
    /// For its providers that do not allow everything.
    providers: Vec<(String, Pii)>,
}

/// A subject key as stored.
struct StoredKey {
    tenant: String,
    subject: [u8; 32],
    /// `None`: destroyed.
    key: Option<SubjectKey>,
}

/// Applies policies.
pub struct Privacy {
    store: Store,
    keyring: Arc<Keyring>,
    names: Pseudonyms,
    draw: Arc<dyn Draw>,
    policies: Cache<String, TenantPolicies>,
    keys: Cache<KeyId, StoredKey>,
}

impl std::fmt::Debug for Privacy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Privacy").finish_non_exhaustive()
    }
}

/// Keys that were made for the events of one request, by subject. All events of the request share them.
pub type Fresh = BTreeMap<[u8; 32], (Arc<SubjectKey>, Arc<NewSubjectKey>)>;

impl Privacy {
    /// With empty caches.
    pub fn new(
        store: Store,
        keyring: Arc<Keyring>,
        names: Pseudonyms,
        draw: Arc<dyn Draw>,
    ) -> Self {
        let policies = Cache::new(MAX_CACHED);
        let keys = Cache::new(MAX_CACHED);
        Self { store, keyring, names, draw, policies, keys }
    }

    /// Forgets the policies of these tenants; called after a commit that changed their providers or them.
    pub fn forget(&self, tenants: &BTreeSet<String>) {
        for tenant in tenants {
            self.policies.forget_one(tenant);
        }
    }

    /// Clears the cached keys; called after a commit that destroyed one.
    pub fn forget_keys(&self) {
        self.keys.forget();
    }

    /// The pseudonyms of subjects and values.
    pub fn names(&self) -> &Pseudonyms {
        &self.names
    }

    /// Applies the tenant's policy to events before they are stored.
    pub fn admit(&self, events: &mut [NewEvent]) -> std::result::Result<(), NotAdmitted> {
        let mut fresh = Fresh::new();
        for (n, event) in events.iter_mut().enumerate() {
            let policies = self.policies_of(&event.tenant)?;
            let Some(policy) = policies.own.rules() else { continue };
            self.admit_event(policy, event, &mut fresh).map_err(|error| match error {
                NotAdmitted::Refused { why, .. } => NotAdmitted::Refused { event: n, why },
                failed @ NotAdmitted::Failed(_) => failed,
            })?;
        }
        Ok(())
    }

    fn admit_event(
        &self,
        policy: &Policy,
        event: &mut NewEvent,
        fresh: &mut Fresh,
    ) -> std::result::Result<(), NotAdmitted> {
        policy.check_identifiers(&event.stored_texts()).map_err(refused)?;
        let name = id::webhook_id(&event.tenant, &event.source_system, &event.idempotency_key);
        let context = SealContext { tenant: &event.tenant, event: &name };
        let changed = self.change(policy, &context, &event.content_type, &event.payload, fresh)?;
        if let Some((payload, sealed)) = changed {
            (event.payload, event.sealed) = (payload, sealed);
        }
        Ok(())
    }

    /// A quarantined event as it is stored. If the tenant has a policy, its content is left out, because the policy
    /// was not applied to it.
    pub fn withhold(&self, event: NewEvent, why: String) -> Result<(NewEvent, String)> {
        let policies = self.policies_of(&event.tenant)?;
        let Some(policy) = policies.own.rules() else { return Ok((event, why)) };
        let why = policy.sanitize(&why);
        let key = self.names.value(&event.tenant, &event.idempotency_key);
        let masked = |text: String| policy.masked(&text).unwrap_or(text);
        // The empty content is not valid JSON, so a repair of the event must provide content.
        let bare = NewEvent {
            id: event.id,
            tenant: event.tenant,
            source_system: masked(event.source_system),
            idempotency_key: key,
            event_type: masked(event.event_type),
            content_type: "application/json".to_owned(),
            occurred_at: event.occurred_at,
            received_at: event.received_at,
            not_before: event.not_before,
            trace_id: event.trace_id,
            max_attempts: event.max_attempts,
            ..NewEvent::default()
        };
        Ok((
            bare,
            format!(
                "{why}; its content is not kept, because the tenant has a policy on personal data"
            ),
        ))
    }

    /// A hash of incoming data in the form to store, followed by its other form. If the tenant has a policy, the form
    /// to store is an HMAC: with a plain hash, a person who knows most of a row could guess the rest. No detector
    /// matches either form.
    pub fn hashed(&self, tenant: &str, hash: &str) -> Result<[String; 2]> {
        let keyed = self.names.value(tenant, hash).replacen(':', ":0x", 1);
        let plain = hash.to_owned();
        Ok(if self.has_policy(tenant)? { [keyed, plain] } else { [plain, keyed] })
    }

    /// Whether a tenant has rules for its published events.
    pub fn has_policy(&self, tenant: &str) -> Result<bool> {
        Ok(self.policies_of(tenant)?.own.rules().is_some())
    }

    /// A reason that may quote incoming data, in the form that the tenant's policy allows to store.
    pub fn sanitize(&self, tenant: &str, reason: &str) -> Result<String> {
        let policies = self.policies_of(tenant)?;
        Ok(policies.own.rules().map_or_else(|| reason.to_owned(), |policy| policy.sanitize(reason)))
    }

    /// Applies the provider's policy to a verified webhook event. All events of a request share `fresh`.
    pub fn admit_webhook(
        &self,
        policy: &Policy,
        event: &mut NewWebhookEvent,
        fresh: &mut Fresh,
    ) -> std::result::Result<(), NotAdmitted> {
        policy
            .check_identifiers(&[
                ("the provider's event id", event.provider_event_id.as_str()),
                ("the event's type", event.event_type.as_str()),
            ])
            .map_err(refused)?;
        for (name, value) in &mut event.headers {
            policy.check_header(name, value).map_err(refused)?;
            if let Some(masked) = policy.masked(value) {
                *value = masked;
            }
        }
        // An id that is a plain hash of the body would allow guessing the body.
        if event.provider_event_id == id::sha256_hex(&event.payload) {
            let keyed = self.names.value(&event.tenant, &event.provider_event_id);
            event.provider_event_id = keyed;
        }
        let name = webhook_id(&event.tenant, &event.provider, &event.provider_event_id);
        let context = SealContext { tenant: &event.tenant, event: &name };
        let media = &event.content_type;
        let payload = &event.payload;
        let changed = self.change(policy, &context, media, payload, fresh)?;
        if let Some((payload, sealed)) = changed {
            (event.payload, event.sealed) = (payload, sealed);
        }
        // After the body, because the media type decides how the body is read.
        if let Some(masked) = policy.masked(&event.content_type) {
            event.content_type = masked;
        }
        Ok(())
    }

    /// Replaces the ordering key of an admitted webhook event by an HMAC if the policy matches it, or has changed the
    /// place it comes from. `stored` is what is at that place now.
    pub fn protect_key(
        &self,
        policy: &Policy,
        event: &mut NewWebhookEvent,
        stored: Option<String>,
    ) {
        let is_plain = |key: &String| policy.masked(key).is_none() && stored.as_ref() == Some(key);
        if let Some(key) = event.ordering_key.take() {
            let kept = if is_plain(&key) { key } else { self.names.value(&event.tenant, &key) };
            event.ordering_key = Some(kept);
        }
    }

    /// A body with its policy applied; `None` if nothing changes.
    fn change(
        &self,
        policy: &Policy,
        context: &SealContext<'_>,
        content_type: &str,
        payload: &[u8],
        fresh: &mut Fresh,
    ) -> std::result::Result<Option<(Vec<u8>, Sealed)>, NotAdmitted> {
        let hash = |text: &str| self.names.value(context.tenant, text);
        let applied = policy.apply(content_type, payload, &hash, false).map_err(refused)?;
        let Applied { edits, subject, .. } = applied;
        if edits.is_empty() {
            return Ok(None);
        }
        let fields = edits.iter().filter(|edit| matches!(edit.with, With::Seal(_))).count();
        let fields = u32::try_from(fields).unwrap_or(u32::MAX);
        let keyed = if fields == 0 {
            None
        } else {
            let subject =
                self.names.subject(context.tenant, subject.as_deref().unwrap_or(context.event));
            Some((subject, self.key_for(context.tenant, subject, fresh)?))
        };
        let with = |Edit { span, with }: Edit| {
            let bytes = match (with, &keyed) {
                (With::Text(text), _) => text.into_bytes(),
                (With::Seal(form), Some((subject, (key, _)))) => {
                    let plain = payload.get(span.clone()).unwrap_or_default();
                    token(form, &key.seal(&context.of(subject, form), plain)).into_bytes()
                }
                (With::Seal(_), None) => Vec::new(),
            };
            (span, bytes)
        };
        let changed = splice(payload, edits.into_iter().map(with));
        let key = keyed.and_then(|(_, (_, new))| new);
        Ok(Some((changed, Sealed { fields, key })))
    }

    /// The key that seals a subject's data: the newest one in force, else a new one, which is stored with the event.
    fn key_for(
        &self,
        tenant: &str,
        subject: [u8; 32],
        fresh: &mut Fresh,
    ) -> Result<(Arc<SubjectKey>, Option<Arc<NewSubjectKey>>)> {
        if let Some((key, new)) = fresh.get(&subject) {
            return Ok((Arc::clone(key), Some(Arc::clone(new))));
        }
        let newest = self.store.read(|tx| subjects::of(tx, tenant, &subject, true, i64::MAX, 1))?;
        for row in newest {
            if let Some(sealed) = &row.sealed {
                return Ok((Arc::new(self.open_key(&row.key_id, sealed)?), None));
            }
        }
        let key = SubjectKey::generate(&*self.draw);
        let master = self.keyring.current();
        let key_id = key.id();
        let sealed = master.seal(&subjects::context(&key_id), key.expose(), &*self.draw);
        let tenant = tenant.to_owned();
        let master_key_id = master.key_id();
        let new = Arc::new(NewSubjectKey { tenant, subject, key_id, sealed, master_key_id });
        let key = Arc::new(key);
        fresh.insert(subject, (Arc::clone(&key), Arc::clone(&new)));
        Ok((key, Some(new)))
    }

    fn open_key(&self, key_id: &KeyId, sealed: &[u8]) -> Result<SubjectKey> {
        let unreadable = |why: String| Error::Unreadable {
            column: "subjects.sealed",
            value: format!("{}: {why}", HEXLOWER.encode(key_id)),
        };
        let opened = self.keyring.open(&subjects::context(key_id), sealed);
        let opened = opened.map_err(|error| unreadable(error.to_string()))?;
        SubjectKey::new(*key_id, &opened).ok_or_else(|| unreadable("no key of 32 bytes".to_owned()))
    }

    /// Opens the sealed fields in the body of an outgoing request, in place.
    pub fn open_sealed(&self, outgoing: &mut OutgoingRequest) -> Result<Opened> {
        let policies = self.policies_of(&outgoing.tenant)?;
        let pii = match outgoing.source.strip_prefix("in:") {
            None => Some(&policies.own),
            Some(provider) => {
                let mut providers = policies.providers.iter().rev();
                providers.find(|(name, _)| name == provider).map(|(_, pii)| pii)
            }
        };
        let mut echo = ResponseScrub::of(pii.and_then(Pii::rules).cloned());
        if outgoing.sealed_fields == 0 {
            return Ok(Opened { echo, is_whole: true, stored: None });
        }
        let OutgoingRequest { tenant, webhook_id, payload, sealed_fields, .. } = outgoing;
        let (opened, fields, has_opened) = self.open(tenant, webhook_id, payload, &mut echo)?;
        let is_whole = fields >= *sealed_fields;
        let stored = std::mem::replace(payload, opened);
        let stored = has_opened.then_some(stored);
        Ok(Opened { echo, is_whole, stored })
    }

    /// Seals what was made of opened fields, under the key of their subject. `None` if it was destroyed meanwhile.
    pub fn seal_whole(
        &self,
        outgoing: &OutgoingRequest,
        stored: &[u8],
        made: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let OutgoingRequest { tenant, webhook_id: event, .. } = outgoing;
        for sealed::Token { blob, .. } in tokens(stored) {
            let Some(key_id) = SubjectKey::id_in(&blob) else { continue };
            let found = self.keys.get(key_id, |key_id| self.stored_key(key_id))?;
            let found = found.filter(|found| found.tenant == *tenant);
            if let Some(StoredKey { subject, key: Some(key), .. }) = found.as_deref() {
                let context = SealContext { tenant, event }.of(subject, Form::Part);
                return Ok(Some(token(Form::Part, &key.seal(&context, made)).into_bytes()));
            }
        }
        Ok(None)
    }

    /// Whether an erasure has destroyed the key of a sealed field in a stored body.
    pub fn is_erased(&self, tenant: &str, body: &[u8]) -> Result<bool> {
        for sealed::Token { blob, .. } in tokens(body) {
            let Some(key_id) = SubjectKey::id_in(&blob) else { continue };
            let found = self.keys.get(key_id, |key_id| self.stored_key(key_id))?;
            if found.is_some_and(|found| found.tenant == tenant && found.key.is_none()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Opens what [`Privacy::seal_whole`] has sealed. `None` if its key is destroyed.
    pub fn open_whole(&self, outgoing: &OutgoingRequest, sealed: &[u8]) -> Result<Option<Vec<u8>>> {
        let OutgoingRequest { tenant, webhook_id, .. } = outgoing;
        let echo = &mut ResponseScrub::of(None);
        let (opened, _, has_opened) = self.open(tenant, webhook_id, sealed, echo)?;
        Ok(has_opened.then_some(opened))
    }

    /// A stored body as it is sent, the number of its fields that were opened or are erased, and whether any was opened.
    /// `event` is its `webhook-id`; `echo` records the opened data. Text that only looks sealed stays; an erased value becomes `null`.
    fn open(
        &self,
        tenant: &str,
        event: &str,
        body: &[u8],
        echo: &mut ResponseScrub,
    ) -> Result<(Vec<u8>, u32, bool)> {
        let context = SealContext { tenant, event };
        let mut parts = Vec::new();
        let mut has_opened = false;
        for sealed::Token { span, form, blob } in tokens(body) {
            let Some(key_id) = SubjectKey::id_in(&blob) else { continue };
            let stored = self.keys.get(key_id, |key_id| self.stored_key(key_id))?;
            let Some(stored) = stored.filter(|stored| stored.tenant == tenant) else { continue };
            match &stored.key {
                None => parts.push((span, erased(form).to_vec())),
                Some(key) => {
                    if let Some(plain) = key.open(&context.of(&stored.subject, form), &blob) {
                        echo.opened(form, plain.expose());
                        has_opened = true;
                        parts.push((span, plain.expose().to_vec()));
                    }
                }
            }
        }
        let fields = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        Ok((splice(body, parts), fields, has_opened))
    }

    fn stored_key(&self, key_id: &KeyId) -> Result<Option<StoredKey>> {
        let Some(row) = self.store.read(|tx| subjects::by_key_id(tx, key_id))? else {
            return Ok(None);
        };
        let key = row.sealed.map(|sealed| self.open_key(key_id, &sealed)).transpose()?;
        Ok(Some(StoredKey { tenant: row.tenant, subject: row.subject, key }))
    }

    fn policies_of(&self, tenant: &str) -> Result<Arc<TenantPolicies>> {
        if let Some(policies) = self.policies.cached(tenant) {
            return Ok(policies);
        }
        let read = |tenant: &String| -> Result<Option<TenantPolicies>> {
            self.store.look_up(|tx| {
                let own = tenants::by_name(tx, tenant)?.map_or(Pii::Allow, |tenant| tenant.pii);
                Ok(Some(TenantPolicies { own, providers: providers::policies(tx, tenant)? }))
            })
        };
        let policies = self.policies.get(tenant.to_owned(), read)?;
        policies.ok_or(Error::Changed("the tenant"))
    }
}

/// The event that a field is sealed for.
struct SealContext<'a> {
    tenant: &'a str,
    /// The `webhook-id`.
    event: &'a str,
}

impl SealContext<'_> {
    /// The context that the cipher authenticates with the text.
    fn of(&self, subject: &[u8; 32], form: Form) -> String {
        let Self { tenant, event } = self;
        format!("{tenant}|{}|{event}|{}", HEXLOWER.encode(subject), form.as_str())
    }
}

fn erased(form: Form) -> &'static [u8] {
    match form {
        Form::Value => b"null",
        Form::Part => ERASED.as_bytes(),
    }
}

fn refused(why: Refused) -> NotAdmitted {
    NotAdmitted::Refused { event: 0, why }
}
