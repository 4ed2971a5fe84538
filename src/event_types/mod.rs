//! Event types: what a tenant says its events look like, and whether an event is so.
//!
//! An event is checked before a privacy policy is applied to it. Who can be answered is answered, where the type says
//! `reject`; every other event that does not fit is quarantined with the reason.

pub mod infer;
pub mod json_schema;
pub mod store;

use std::collections::BTreeSet;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::base::cache::Cache;
use crate::base::clock::Timestamp;
use crate::base::schema::AnyValue;
use crate::base::words::words;
use crate::config::{Live, Unregistered};
use crate::event_types::json_schema::Schema;
use crate::model::event::{NewEvent, OWN_SOURCE};
use crate::model::json::Json;
use crate::store::Store;
use crate::store::column::word;
use crate::store::error::{Error, Result};
use crate::telemetry::tally::Counter;

/// Bytes of compiled schemas that are kept, of all tenants.
const MAX_KEPT_BYTES: usize = 24 << 20;
/// Bytes of names that are kept because they are not registered, of all tenants.
const MAX_UNREGISTERED_BYTES: usize = 1 << 20;
/// Bytes that a kept type takes beside its name and schema.
const ENTRY_BYTES: usize = 256;

fn name_bytes((tenant, name): &TypeKey) -> usize {
    tenant.len().saturating_add(name.len()).saturating_add(ENTRY_BYTES)
}

words! {
    /// What becomes of an event that does not fit, where its publisher can be answered.
    pub enum OnInvalid as "OnInvalid" {
        /// The publisher is answered 422, and nothing of the request is stored.
        Reject = "reject",
        /// The event is stored and waits for a person.
        Quarantine = "quarantine",
    }
}

/// An event type.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct EventType {
    /// Its number in the file.
    #[serde(skip)]
    pub seq: i64,
    pub name: String,
    pub description: String,
    // JSON Schema of payloads.
    #[schemars(with = "AnyValue")]
    pub schema: Json,
    #[schemars(with = "AnyValue")]
    pub example: Option<Json>,
    pub on_invalid: OnInvalid,
    /// Where payloads have what the search finds, such as `$.number`.
    pub search_paths: Vec<String>,
    pub created_at: Timestamp,
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

/// A registered type.
#[derive(Debug)]
struct Compiled {
    schema: Schema,
    on_invalid: OnInvalid,
}

/// A type by tenant and name.
pub type TypeKey = (String, String);

/// The types that events had. Each is kept in memory until it changes.
#[derive(Debug)]
pub struct EventTypes {
    store: Store,
    settings: Live,
    kept: Cache<TypeKey, Compiled>,
    /// Names that are not registered, or have a schema that cannot be used. They are a cache of their own, so that
    /// made-up names push out no schema.
    unregistered: Cache<TypeKey, ()>,
    /// How often a schema was compiled.
    pub compiled: Counter,
}

/// Why an event does not fit its type, of which `found` is what is registered.
fn misfit(
    found: Option<&Compiled>,
    event: &NewEvent,
    refuses_unregistered: bool,
) -> Option<Misfit> {
    match found {
        Some(Compiled { schema, on_invalid }) => {
            let why = schema.check(&event.payload, event.sealed.fields > 0)?;
            Some(Misfit { why, on_invalid: *on_invalid })
        }
        None if refuses_unregistered => {
            let why = format!(
                "the event type {:?} is not registered: oncebox event-type set, or events.unregistered = \"accept\"",
                event.event_type
            );
            Some(Misfit { why, on_invalid: OnInvalid::Reject })
        }
        None => None,
    }
}

impl EventTypes {
    /// An empty cache.
    pub fn new(store: Store, settings: Live) -> Self {
        let weigh = |key: &TypeKey, compiled: &Compiled| {
            compiled.schema.bytes.saturating_add(name_bytes(key))
        };
        Self {
            store,
            settings,
            kept: Cache::of_bytes(MAX_KEPT_BYTES, weigh),
            unregistered: Cache::of_bytes(MAX_UNREGISTERED_BYTES, |key, ()| name_bytes(key)),
            compiled: Counter::default(),
        }
    }

    /// Forgets these types; called after a commit that changed them.
    pub fn forget(&self, changed: &BTreeSet<TypeKey>) {
        for key in changed {
            self.kept.forget_one(key);
            self.unregistered.forget_one(key);
        }
    }

    /// Why an event does not fit its type; `None` if it does.
    /// Fails when the types cannot be read.
    pub fn misfit(&self, event: &NewEvent) -> Result<Option<Misfit>> {
        if event.source_system == OWN_SOURCE {
            return Ok(None);
        }
        let found = self.find(&(event.tenant.clone(), event.event_type.clone()))?;
        Ok(misfit(found.as_deref(), event, self.refuses_unregistered()))
    }

    fn refuses_unregistered(&self) -> bool {
        self.settings.get().events.unregistered == Unregistered::Reject
    }

    /// A type; `None` if it is not registered, or has a schema that cannot be used.
    fn find(&self, key: &TypeKey) -> Result<Option<Arc<Compiled>>> {
        if let Some(found) = self.kept.cached(key) {
            return Ok(Some(found));
        }
        let mut found = None;
        // One inside the other, so that neither keeps what was read before a change.
        self.unregistered.get(key.clone(), |key| {
            found = self.kept.get(key.clone(), |(tenant, name)| self.read(tenant, name))?;
            Ok::<_, Error>(found.is_none().then_some(()))
        })?;
        Ok(found)
    }

    /// Reads and compiles one type.
    fn read(&self, tenant: &str, name: &str) -> Result<Option<Compiled>> {
        let found = self.store.look_up(|tx| store::check(tx, tenant, name))?;
        let Some((text, on_invalid)) = found else { return Ok(None) };
        let read = |text: &str| Json::read(text.as_bytes()).ok();
        let schema = word("event_types.schema", &text, read)?;
        self.compiled.add();
        match Schema::compile_stored(&schema) {
            Ok(schema) => Ok(Some(Compiled { schema, on_invalid })),
            // It was checked before it was stored, so a person or another version has written it.
            Err(why) => {
                tracing::error!(
                    name,
                    why,
                    "the schema of an event type cannot be used; nothing is checked"
                );
                Ok(None)
            }
        }
    }
}
