//! Event types: what a tenant says its events look like, and whether an event is so.
//!
//! An event is checked before a privacy policy is applied to it. Who can be answered is answered, where the type says
//! `reject`; every other event that does not fit is quarantined with the reason.

pub mod infer;
pub mod json_schema;
pub mod store;

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
use crate::store::error::Result;

/// Bytes of compiled schemas that are kept, of all tenants.
const MAX_KEPT_BYTES: usize = 24 << 20;
/// Bytes that a kept type takes beside its name and schema.
const ENTRY_BYTES: usize = 256;

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

/// A type, compiled; `None` if it is not registered, or has a schema that cannot be used.
type Compiled = Option<(Schema, OnInvalid)>;

/// The types that events had, by tenant and name. Kept in memory until one changes.
#[derive(Debug)]
pub struct EventTypes {
    store: Store,
    settings: Live,
    kept: Cache<(String, String), Compiled>,
}

impl EventTypes {
    /// An empty cache.
    pub fn new(store: Store, settings: Live) -> Self {
        let weigh = |(tenant, name): &(String, String), compiled: &Compiled| {
            let schema = compiled.as_ref().map_or(0, |(schema, _)| schema.bytes);
            schema.saturating_add(tenant.len() + name.len() + ENTRY_BYTES)
        };
        Self { store, settings, kept: Cache::of_bytes(MAX_KEPT_BYTES, weigh) }
    }

    /// Empties the cache; called after a commit that changed an event type.
    pub fn forget(&self) {
        self.kept.forget();
    }

    /// Why an event does not fit its type; `None` if it does.
    /// Fails when the types cannot be read.
    pub fn misfit(&self, event: &NewEvent) -> Result<Option<Misfit>> {
        if event.source_system == OWN_SOURCE {
            return Ok(None);
        }
        let key = (event.tenant.clone(), event.event_type.clone());
        let found = self.kept.get(key, |(tenant, name)| self.read(tenant, name).map(Some))?;
        let misfit = |why, on_invalid| Some(Misfit { why, on_invalid });
        Ok(match found.as_deref() {
            Some(Some((schema, on_invalid))) => schema
                .check(&event.payload, event.sealed.fields > 0)
                .and_then(|why| misfit(why, *on_invalid)),
            Some(None) if self.settings.get().events.unregistered == Unregistered::Reject => {
                let why = format!(
                    "the event type {:?} is not registered: oncebox event-type set, or events.unregistered = \"accept\"",
                    event.event_type
                );
                misfit(why, OnInvalid::Reject)
            }
            _ => None,
        })
    }

    /// Reads and compiles one type.
    fn read(&self, tenant: &str, name: &str) -> Result<Compiled> {
        let found = self.store.look_up(|tx| store::check(tx, tenant, name))?;
        let Some((text, on_invalid)) = found else { return Ok(None) };
        let read = |text: &str| Json::read(text.as_bytes()).ok();
        let schema = word("event_types.schema", &text, read)?;
        match Schema::compile(&schema) {
            Ok(schema) => Ok(Some((schema, on_invalid))),
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
