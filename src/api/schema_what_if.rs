//! The member `what_if` of an event type that is registered: how many stored events of a period its schema would refuse. Nothing
//! is saved.
//!
//! The newest events are looked at first, within the bounds of [`super::what_if`]. Archived months are not looked at.

use crate::api::call::SHOWN_FACTOR;
use crate::api::prelude::*;
use crate::api::what_if::{MAX_EVENTS, MAX_TIME, PAGE, period_of};
use crate::base::id::SubscriptionSeq;
use crate::event_types::EventType;
use crate::event_types::json_schema::Schema;
use crate::model::event::NewEvent;
use crate::store::deliveries;
use crate::store::outbox_lists::{self, OutboxFilter};
use crate::store::page::{Newest, Span};

/// Examples at most.
const MAX_EXAMPLES: usize = 20;

/// What a schema would have done with the stored events of its type. Nothing was saved.
#[derive(Default, Serialize, JsonSchema)]
pub(super) struct SchemaWhatIf {
    /// The begin of the period.
    since: Timestamp,
    /// Stored events of the type that were looked at, the newest first. Archived months are not looked at.
    looked_at: u64,
    /// Whether these are all of the period: at most 10,000 are looked at, for two seconds.
    is_whole: bool,
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
pub(super) enum EventTypeOrTrial {
    EventType(EventType),
    Period(Box<SchemaWhatIf>),
}

/// What is asked of a schema.
pub(super) struct AskedSchema<'a> {
    /// The event type.
    pub(super) name: &'a str,
    /// Its schema as it would be.
    pub(super) schema: &'a Schema,
    /// Its schema as it is stored, if it is registered.
    pub(super) stored: Option<&'a Schema>,
    /// The period, such as `7d`.
    pub(super) period: &'a str,
}

/// Shows what a schema would have done with the stored events of a period.
/// Fails with 422 if the period is no span.
pub(super) fn show(
    api: &Api,
    call: &Call,
    asked: &AskedSchema<'_>,
) -> Result<Audited<Value>, Problem> {
    let since = api.env.clock.wall().minus(period_of(asked.period)?);
    let ends_at = api.env.clock.monotonic().saturating_add(MAX_TIME);
    let filter = OutboxFilter {
        event_type: Some(asked.name.to_owned()),
        received: Span { since: Some(since), until: None },
        ..OutboxFilter::default()
    };
    let mut seen = SchemaWhatIf { since, is_whole: true, ..SchemaWhatIf::default() };
    let mut next = Some(i64::MAX);
    while let Some(before) = next {
        let newest = Newest { tenant: &call.tenant, before, limit: PAGE };
        let page = api.env.store.read(|tx| outbox_lists::page(tx, newest, &filter))?;
        next = page.next;
        for event in page.rows {
            if seen.looked_at >= MAX_EVENTS || api.env.clock.monotonic() >= ends_at {
                seen.is_whole = false;
                return Ok(Audited::dry_run(value(seen)));
            }
            if event.expunged_at.is_none() {
                seen.look(api, call, asked, &event.new)?;
            }
        }
    }
    Ok(Audited::dry_run(value(seen)))
}

impl SchemaWhatIf {
    fn look(
        &mut self,
        api: &Api,
        call: &Call,
        asked: &AskedSchema<'_>,
        event: &NewEvent,
    ) -> Result<(), Problem> {
        let of = (call.tenant.as_str(), event.id.as_str());
        let found =
            api.env.store.read(|tx| deliveries::outgoing_of_event(tx, SubscriptionSeq(0), of))?;
        // Archived or expunged meanwhile.
        let Some(outgoing) = found else { return Ok(()) };
        let _share = api.share(outgoing.payload.len().saturating_mul(SHOWN_FACTOR))?;
        let is_sealed = outgoing.sealed_fields > 0;
        let why = |schema: &Schema| schema.check(&outgoing.payload, is_sealed);
        self.looked_at = self.looked_at.saturating_add(1);
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
