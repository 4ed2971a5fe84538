//! Event types: what a tenant says its events look like, and whether an event is so.
//!
//! An event is checked before a privacy policy is applied to it. Who can be answered is answered, where the type says
//! `reject`; every other event that does not fit is quarantined with the reason.

pub mod infer;
pub mod json_schema;
pub mod store;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::base::cache::Cache;
use crate::base::clock::Timestamp;
use crate::config::{Live, Unregistered};
use crate::event_types::json_schema::Schema;
use crate::model::event::{NewEvent, OWN_SOURCE};
use crate::store::Store;
use crate::store::error::Result;

/// Event types of a tenant at most: all of them are kept in memory.
pub const MAX_TYPES: u32 = 500;
/// Tenants whose types are kept at most; those of others are read for each event.
const MAX_TENANTS: usize = 1000;

/// What becomes of an event that does not fit, where its publisher can be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnInvalid {
    /// The publisher is answered 422, and nothing of the request is stored.
    Reject,
    /// The event is stored and waits for a person.
    Quarantine,
}

impl OnInvalid {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Reject, Self::Quarantine];

    /// The word in SQL and API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Quarantine => "quarantine",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|word| word.as_str() == text)
    }
}

/// A registered event type.
#[derive(Clone, Debug)]
pub struct EventType {
    /// Its number in the file.
    pub seq: i64,
    /// The type that events have.
    pub name: String,
    /// What it means.
    pub description: String,
    /// What payloads look like: JSON Schema.
    pub schema: Value,
    /// A payload.
    pub example: Option<Value>,
    /// What becomes of an event that does not fit.
    pub on_invalid: OnInvalid,
    /// When it was registered.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// Why an event does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// What is wrong, without the payload's values.
    pub why: String,
    /// What becomes of the event, where its publisher can be answered.
    pub on_invalid: OnInvalid,
}

/// The types of a tenant, compiled.
type Compiled = BTreeMap<String, (Schema, OnInvalid)>;

/// The event types of all tenants, kept in memory until one changes.
#[derive(Debug)]
pub struct EventTypes {
    store: Store,
    settings: Live,
    by_tenant: Cache<String, Compiled>,
}

impl EventTypes {
    /// An empty cache.
    pub fn new(store: Store, settings: Live) -> Self {
        Self { store, settings, by_tenant: Cache::new(MAX_TENANTS) }
    }

    /// Empties the cache; called after a commit that changed an event type.
    pub fn forget(&self) {
        self.by_tenant.forget();
    }

    /// Why an event does not fit its type; `None` if it does.
    /// Fails when the types cannot be read.
    pub fn misfit(&self, event: &NewEvent) -> Result<Option<Misfit>> {
        if event.source_system == OWN_SOURCE {
            return Ok(None);
        }
        let Some(types) = self.of(&event.tenant)? else { return Ok(None) };
        let misfit = |why, on_invalid| Some(Misfit { why, on_invalid });
        Ok(match types.get(&event.event_type) {
            Some((schema, on_invalid)) => schema
                .check(&event.payload, event.sealed.fields > 0)
                .and_then(|why| misfit(why, *on_invalid)),
            None if self.settings.get().events.unregistered == Unregistered::Reject => {
                let why = format!(
                    "the event type {:?} is not registered: oncebox event-type set, or events.unregistered = \"accept\"",
                    event.event_type
                );
                misfit(why, OnInvalid::Reject)
            }
            None => None,
        })
    }

    fn of(&self, tenant: &str) -> Result<Option<Arc<Compiled>>> {
        if let Some(kept) = self.by_tenant.cached(tenant) {
            return Ok(Some(kept));
        }
        self.by_tenant.get(tenant.to_owned(), |tenant| {
            let found = self.store.look_up(|tx| store::page(tx, tenant, 0, MAX_TYPES))?;
            let mut types = Compiled::new();
            for EventType { name, schema, on_invalid, .. } in found {
                match Schema::compile(&schema) {
                    Ok(schema) => drop(types.insert(name, (schema, on_invalid))),
                    // It was checked before it was stored, so a person or another version has written it.
                    Err(why) => {
                        tracing::error!(
                            name,
                            why,
                            "the schema of an event type cannot be used; nothing is checked"
                        );
                    }
                }
            }
            Ok(Some(types))
        })
    }
}
