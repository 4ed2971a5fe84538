//! Where policies on personal data are carried out: before anything is stored, and when what is sealed is sent.
//!
//! A body that comes in passes [`Privacy::admit`] or [`Privacy::admit_webhook`] on the thread that took it in;
//! one that goes out, by whatever way, passes [`Privacy::open`]. Where nothing is stated but `allow`, neither
//! reads the body.
//!
//! Not here: what rules mean ([`crate::privacy::policy`]), ciphers ([`crate::keys::subject`]), and erasing
//! (`backup::erasures`, the API).

pub mod policy;

use std::collections::BTreeMap;
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

/// Tenants whose policies, and keys that are kept open at most; those beyond are read each time.
const MAX_OPEN: usize = 10_000;

/// Why events are not taken.
#[derive(Debug)]
pub enum NotAdmitted {
    /// A policy refuses one of them.
    Refused {
        /// Which, from 0.
        event: usize,
        /// The rule and the place.
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

/// An outgoing request whose body was opened.
#[derive(Debug)]
pub struct Opened {
    /// What may not come back in the answer.
    pub echo: ResponseScrub,
    /// Whether all that was sealed in it is open, or erased. What is not must not be sent: nobody can use it.
    pub is_whole: bool,
}

/// Why something that is not [whole](Opened::is_whole) is given up.
pub const NOT_OPENED: &str = "what is sealed in its body does not open: its key is not in this file, or it was \
                              sealed for another event; publish the event again";

/// What is stated for one tenant.
#[derive(Debug)]
struct TenantPolicies {
    /// For events that are published.
    own: Pii,
    /// For its providers, where they do not allow everything.
    providers: Vec<(String, Pii)>,
}

/// A key that was read.
struct Kept {
    tenant: String,
    subject: [u8; 32],
    /// `None`: destroyed.
    key: Option<SubjectKey>,
}

/// Carries policies out.
pub struct Privacy {
    store: Store,
    keyring: Arc<Keyring>,
    names: Pseudonyms,
    draw: Arc<dyn Draw>,
    stated: Cache<String, TenantPolicies>,
    keys: Cache<KeyId, Kept>,
}

impl std::fmt::Debug for Privacy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Privacy").finish_non_exhaustive()
    }
}

/// Keys that were made for the events of one request, by subject: all of its events share them.
pub type Fresh = BTreeMap<[u8; 32], (Arc<SubjectKey>, Arc<NewSubjectKey>)>;

impl Privacy {
    /// Nothing read yet.
    pub fn new(
        store: Store,
        keyring: Arc<Keyring>,
        names: Pseudonyms,
        draw: Arc<dyn Draw>,
    ) -> Self {
        let (stated, keys) = (Cache::new(MAX_OPEN), Cache::new(MAX_OPEN));
        Self { store, keyring, names, draw, stated, keys }
    }

    /// Forgets what is stated; called after a commit that changed a provider or a tenant.
    pub fn forget(&self) {
        self.stated.forget();
    }

    /// Forgets keys; called after a commit that destroyed one.
    pub fn forget_keys(&self) {
        self.keys.forget();
    }

    /// What subjects and values are called in the file.
    pub fn names(&self) -> &Pseudonyms {
        &self.names
    }

    /// Changes events as their tenant states, before they are handed to the writer.
    pub fn admit(&self, events: &mut [NewEvent]) -> std::result::Result<(), NotAdmitted> {
        let mut fresh = Fresh::new();
        for (n, event) in events.iter_mut().enumerate() {
            let stated = self.stated(&event.tenant)?;
            let Some(policy) = stated.own.rules() else { continue };
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
        policy.check_identifiers(&event.words()).map_err(refused)?;
        let name = id::webhook_id(&event.tenant, &event.source_system, &event.idempotency_key);
        let place = SealContext { tenant: &event.tenant, event: &name };
        let changed = self.change(policy, &place, &event.content_type, &event.payload, fresh)?;
        if let Some((payload, sealed)) = changed {
            (event.payload, event.sealed) = (payload, sealed);
        }
        Ok(())
    }

    /// An event that cannot be used as it is kept for a person to see: without its content where a policy is
    /// stated, since nobody has looked through it.
    pub fn withhold(&self, event: NewEvent, why: String) -> Result<(NewEvent, String)> {
        let stated = self.stated(&event.tenant)?;
        let Some(policy) = stated.own.rules() else { return Ok((event, why)) };
        let why = policy.sanitize(&why);
        let key = self.names.value(&event.tenant, &event.idempotency_key);
        let masked = |text: String| policy.masked(&text).unwrap_or(text);
        // The content is empty, which is not JSON: a repair of the event has to bring its content.
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
            format!("{why}; its content is not kept, as a policy on personal data is stated"),
        ))
    }

    /// A hash of what came in as it may be kept, and second the form that is kept otherwise: where a policy is
    /// stated an HMAC of it, as a person who knows most of a row could try the rest against the hash alone.
    /// Neither form can be taken for a number of anything by a detector.
    pub fn hashed(&self, tenant: &str, hash: &str) -> Result<[String; 2]> {
        let keyed = self.names.value(tenant, hash).replacen(':', ":0x", 1);
        let plain = hash.to_owned();
        let is_stated = self.stated(tenant)?.own.rules().is_some();
        Ok(if is_stated { [keyed, plain] } else { [plain, keyed] })
    }

    /// A reason that tells of what came in, as it may be kept where a policy is stated.
    pub fn sanitize(&self, tenant: &str, reason: &str) -> Result<String> {
        let stated = self.stated(tenant)?;
        Ok(stated.own.rules().map_or_else(|| reason.to_owned(), |policy| policy.sanitize(reason)))
    }

    /// Changes a verified webhook event as its provider's policy says. `fresh` is the whole request's.
    pub fn admit_webhook(
        &self,
        policy: &Policy,
        event: &mut NewWebhookEvent,
        fresh: &mut Fresh,
    ) -> std::result::Result<(), NotAdmitted> {
        policy
            .check_identifiers(&[
                ("the provider's event id", Some(&event.provider_event_id)),
                ("the event's type", Some(&event.event_type)),
            ])
            .map_err(refused)?;
        for (name, value) in &mut event.headers {
            policy.check_header(name, value).map_err(refused)?;
            if let Some(masked) = policy.masked(value) {
                *value = masked;
            }
        }
        // A hash of the body that anybody can make could be tried against what the body may have said.
        if event.provider_event_id == id::sha256_hex(&event.payload) {
            let keyed = self.names.value(&event.tenant, &event.provider_event_id);
            event.provider_event_id = keyed;
        }
        let name = webhook_id(&event.tenant, &event.provider, &event.provider_event_id);
        let place = SealContext { tenant: &event.tenant, event: &name };
        let (media, payload) = (&event.content_type, &event.payload);
        let changed = self.change(policy, &place, media, payload, fresh)?;
        if let Some((payload, sealed)) = changed {
            (event.payload, event.sealed) = (payload, sealed);
        }
        // A header field like the others, of which nothing but the media type is ever looked at.
        if let Some(masked) = policy.masked(&event.content_type) {
            event.content_type = masked;
        }
        Ok(())
    }

    /// A body with what its policy makes of it; `None`: it stays as it is.
    fn change(
        &self,
        policy: &Policy,
        place: &SealContext<'_>,
        content_type: &str,
        payload: &[u8],
        fresh: &mut Fresh,
    ) -> std::result::Result<Option<(Vec<u8>, Sealed)>, NotAdmitted> {
        let hash = |text: &str| self.names.value(place.tenant, text);
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
                self.names.subject(place.tenant, subject.as_deref().unwrap_or(place.event));
            Some((subject, self.key_for(place.tenant, subject, fresh)?))
        };
        let with = |Edit { span, with }: Edit| {
            let bytes = match (with, &keyed) {
                (With::Text(text), _) => text.into_bytes(),
                (With::Seal(form), Some((subject, (key, _)))) => {
                    let plain = payload.get(span.clone()).unwrap_or_default();
                    token(form, &key.seal(&place.of(subject, form), plain)).into_bytes()
                }
                (With::Seal(_), None) => Vec::new(),
            };
            (span, bytes)
        };
        let changed = splice(payload, edits.into_iter().map(with));
        let key = keyed.and_then(|(_, (_, new))| new);
        Ok(Some((changed, Sealed { fields, key })))
    }

    /// The key a subject's data is sealed under from now on: the newest that is in force, else a new one, which
    /// is stored with the event.
    fn key_for(
        &self,
        tenant: &str,
        subject: [u8; 32],
        fresh: &mut Fresh,
    ) -> Result<(Arc<SubjectKey>, Option<Arc<NewSubjectKey>>)> {
        if let Some((key, new)) = fresh.get(&subject) {
            return Ok((Arc::clone(key), Some(Arc::clone(new))));
        }
        let newest =
            self.store.read(|tx| subjects::of(tx, (tenant, &subject), true, i64::MAX, 1))?;
        for row in newest {
            if let Some(sealed) = &row.sealed {
                return Ok((Arc::new(self.opened(&row.key_id, sealed)?), None));
            }
        }
        let key = SubjectKey::generate(&*self.draw);
        let master = self.keyring.current();
        let key_id = key.id();
        let sealed = master.seal(&subjects::context(&key_id), key.expose(), &*self.draw);
        let (tenant, master_key_id) = (tenant.to_owned(), master.key_id());
        let new = Arc::new(NewSubjectKey { tenant, subject, key_id, sealed, master_key_id });
        let key = Arc::new(key);
        fresh.insert(subject, (Arc::clone(&key), Arc::clone(&new)));
        Ok((key, Some(new)))
    }

    fn opened(&self, key_id: &KeyId, sealed: &[u8]) -> Result<SubjectKey> {
        let unreadable = |why: String| Error::Unreadable {
            column: "subjects.sealed",
            value: format!("{}: {why}", HEXLOWER.encode(key_id)),
        };
        let opened = self.keyring.open(&subjects::context(key_id), sealed);
        let opened = opened.map_err(|error| unreadable(error.to_string()))?;
        SubjectKey::new(*key_id, &opened).ok_or_else(|| unreadable("no key of 32 bytes".to_owned()))
    }

    /// The body of an outgoing request as it is sent, in its place.
    pub fn open_sealed(&self, outgoing: &mut OutgoingRequest) -> Result<Opened> {
        let stated = self.stated(&outgoing.tenant)?;
        let pii = match outgoing.source.strip_prefix("in:") {
            None => Some(&stated.own),
            Some(provider) => {
                stated.providers.iter().rev().find(|(name, _)| name == provider).map(|(_, pii)| pii)
            }
        };
        let mut echo = ResponseScrub::of(pii.and_then(Pii::rules).cloned());
        if outgoing.sealed_fields == 0 {
            return Ok(Opened { echo, is_whole: true });
        }
        let OutgoingRequest { tenant, webhook_id, payload, sealed_fields, .. } = outgoing;
        let (opened, fields) = self.open(tenant, webhook_id, payload, &mut echo)?;
        let is_whole = fields >= *sealed_fields;
        outgoing.payload = opened;
        Ok(Opened { echo, is_whole })
    }

    /// A stored body as it is sent, and how many places of it were opened or are erased. `event` is its
    /// `webhook-id`; `echo` learns what was opened. What only looks sealed stays as it is; of what was erased,
    /// a whole value is `null`.
    fn open(
        &self,
        tenant: &str,
        event: &str,
        body: &[u8],
        echo: &mut ResponseScrub,
    ) -> Result<(Vec<u8>, u32)> {
        let place = SealContext { tenant, event };
        let mut parts = Vec::new();
        for sealed::Token { span, form, blob } in tokens(body) {
            let Some(key_id) = SubjectKey::id_in(&blob) else { continue };
            let kept = self.keys.get(key_id, |key_id| self.kept(key_id))?;
            let Some(kept) = kept.filter(|kept| kept.tenant == tenant) else { continue };
            match &kept.key {
                None => parts.push((span, erased(form).to_vec())),
                Some(key) => {
                    if let Some(plain) = key.open(&place.of(&kept.subject, form), &blob) {
                        echo.opened(form, plain.expose());
                        parts.push((span, plain.expose().to_vec()));
                    }
                }
            }
        }
        let fields = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        Ok((splice(body, parts), fields))
    }

    fn kept(&self, key_id: &KeyId) -> Result<Option<Kept>> {
        let Some(row) = self.store.read(|tx| subjects::by_key_id(tx, key_id))? else {
            return Ok(None);
        };
        let key = row.sealed.map(|sealed| self.opened(key_id, &sealed)).transpose()?;
        Ok(Some(Kept { tenant: row.tenant, subject: row.subject, key }))
    }

    fn stated(&self, tenant: &str) -> Result<Arc<TenantPolicies>> {
        if let Some(stated) = self.stated.cached(tenant) {
            return Ok(stated);
        }
        let read = |tenant: &String| -> Result<Option<TenantPolicies>> {
            self.store.look_up(|tx| {
                let own = tenants::by_name(tx, tenant)?.map_or(Pii::Allow, |tenant| tenant.pii);
                Ok(Some(TenantPolicies { own, providers: providers::policies(tx, tenant)? }))
            })
        };
        let stated = self.stated.get(tenant.to_owned(), read)?;
        stated.ok_or(Error::Changed("the tenant"))
    }
}

/// Where something is sealed.
struct SealContext<'a> {
    tenant: &'a str,
    /// The `webhook-id`.
    event: &'a str,
}

impl SealContext<'_> {
    /// What the cipher covers besides the text.
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
