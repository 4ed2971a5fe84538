//! The fields of an event: one list for all ways in.
//!
//! The request of the API, the columns of a source, the table of `outbox::TABLE` and the rows of plain SQL have these names
//! and these limits; a test compares them (`tests/it/ways_in.rs`).

use crate::base::words::words;

words! {
    /// A field of an event that a publisher, a source or the ERP's own SQL can fill.
    pub enum EventField {
        /// What happened. Required, like the payload; all other fields are optional.
        EventType = "event_type",
        /// The body that is sent.
        Payload = "payload",
        /// The key that identifies the event.
        IdempotencyKey = "idempotency_key",
        /// The kind of object that the event is about.
        AggregateType = "aggregate_type",
        /// The object's id.
        AggregateId = "aggregate_id",
        /// When it happened.
        OccurredAt = "occurred_at",
        /// The only subscription that gets it.
        Target = "target",
        /// Events with one ordering key are delivered in order.
        OrderingKey = "ordering_key",
        /// Whether it goes into its lane even where the subscription keeps no order.
        GuaranteedOrder = "guaranteed_order",
        /// Whether dead letters ahead of it in its lane are left out.
        ExcludeFailed = "exclude_failed",
        /// The funnel point at which its funnel value counts.
        FunnelPoint = "funnel_point",
        /// Of events with the same value, one at a time is in flight.
        FunnelValue = "funnel_value",
        /// What the aggregate's id is an id of.
        EntityType = "entity_type",
        /// The key of its parent in the same source system.
        ParentKey = "parent_key",
        /// Whether its parent waits for it: `hard` or `soft`.
        ParentBinding = "parent_binding",
        /// The payload's media type.
        ContentType = "content_type",
        /// A JSON object. Stored with the event; `traceparent` continues its trace.
        Headers = "headers",
        /// The system that the event comes from; default: the source's name.
        SourceSystem = "source_system",
        /// The earliest time to send it.
        NotBefore = "not_before",
        /// The process it belongs to.
        ProcessId = "process_id",
        /// Counted attempts until it is given up.
        MaxAttempts = "max_attempts",
        /// Free for the source's own use.
        CustomData = "custom_data",
    }
}

impl EventField {
    /// The fields that a row's fingerprint covers.
    pub const OF_FINGERPRINT: [Self; 2] = [Self::EventType, Self::Payload];

    /// Whether the field identifies something, so that two values must stay two.
    pub const fn is_identifier(self) -> bool {
        matches!(
            self,
            Self::IdempotencyKey
                | Self::AggregateId
                | Self::OrderingKey
                | Self::FunnelValue
                | Self::ProcessId
                | Self::ParentKey
        )
    }

    /// The most characters of a text; of the header fields, of their JSON.
    pub const fn most_chars(self) -> usize {
        match self {
            Self::Target => 63,
            Self::SourceSystem | Self::AggregateType | Self::EntityType => 64,
            Self::EventType => 128,
            Self::CustomData => 4096,
            Self::Headers => 16_384,
            _ => 255,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_the_name_that_serde_reads() {
        for field in EventField::ALL {
            assert_eq!(serde_json::to_value(field).unwrap(), field.as_str());
        }
    }
}
