//! What the schema of an event type would refuse of the stored events of the type.

use crate::api::call::SHOWN_FACTOR;
use crate::api::prelude::*;
use crate::api::what_if::{WalkFilter, Walked, WalkedEvent, walk};
use crate::event_types::EventType;
use crate::event_types::json_schema::Schema;
use crate::store::outbox_lists::OutboxFilter;

/// Examples at most.
const MAX_EXAMPLES: usize = 20;

/// What a schema would have done with the stored events of its type. Nothing was saved.
#[derive(Default, Serialize, JsonSchema)]
pub(in crate::api) struct SchemaWhatIf {
    #[serde(flatten)]
    walked: Walked,
    /// Events that the stored schema refuses; 0 without one.
    refused_now: u64,
    /// Events that it would refuse.
    refused_then: u64,
    /// Up to 20 events that it would refuse, the newest first.
    #[schemars(length(max = MAX_EXAMPLES))]
    examples: Vec<RefusedExample>,
}

/// An event that a schema would refuse.
#[derive(Serialize, JsonSchema)]
struct RefusedExample {
    event: Is<Uuid>,
    received_at: Timestamp,
    /// What is wrong, without the payload's values.
    why: String,
}

/// The answer to a registration: the event type, or what its schema would have done.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes two kinds of answers")]
pub(in crate::api) enum EventTypeOrTrial {
    EventType(EventType),
    Period(Box<SchemaWhatIf>),
}

/// What is asked of a schema.
pub(in crate::api) struct AskedSchema<'a> {
    /// The event type.
    pub(in crate::api) name: &'a str,
    /// Its schema as it would be.
    pub(in crate::api) schema: &'a Schema,
    /// Its schema as it is stored, if it is registered.
    pub(in crate::api) stored: Option<&'a Schema>,
    /// The period, such as `7d`.
    pub(in crate::api) period: &'a str,
}

impl AskedSchema<'_> {
    /// Shows what it would have done with the stored events of a period.
    /// Fails with 422 if the period is no span.
    pub(in crate::api) fn show(&self, api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
        let event_type = Some(self.name.to_owned());
        let outbox = OutboxFilter { event_type, ..OutboxFilter::default() };
        let filter = WalkFilter { outbox: Some(outbox), webhooks: None };
        let mut seen = SchemaWhatIf::default();
        let look = |file: &Api, event: &WalkedEvent| seen.look(file, call, self, event);
        seen.walked = walk(api, call, self.period, filter, look)?;
        Ok(Audited::dry_run(value(seen)))
    }
}

impl SchemaWhatIf {
    fn look(
        &mut self,
        file: &Api,
        call: &Call,
        asked: &AskedSchema<'_>,
        event: &WalkedEvent,
    ) -> Result<(), Problem> {
        if event.is_expunged {
            return Ok(());
        }
        let Some(outgoing) = event.outgoing(file, &call.tenant)? else { return Ok(()) };
        let _share = file.share(outgoing.payload.len().saturating_mul(SHOWN_FACTOR))?;
        let is_sealed = outgoing.sealed_fields > 0;
        let why = |schema: &Schema| schema.check(&outgoing.payload, is_sealed);
        let is_refused_now = asked.stored.and_then(why).is_some();
        self.refused_now = self.refused_now.saturating_add(is_refused_now.into());
        if let Some(why) = why(asked.schema) {
            self.refused_then = self.refused_then.saturating_add(1);
            if self.examples.len() < MAX_EXAMPLES {
                self.examples.push(RefusedExample {
                    event: event.id.clone().into(),
                    received_at: event.received_at,
                    why,
                });
            }
        }
        Ok(())
    }
}
