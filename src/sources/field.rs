//! The fields of an event that a source can fill, and the value of a field before it is checked.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Deref;

use schemars::json_schema;
use serde::{Deserialize, Serialize};

use crate::base::schema::described;
use crate::base::words::words;

words! {
    /// A field of an event.
    pub enum Field {
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

/// Texts by the fields that they fill.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TextsByField(pub BTreeMap<Field, String>);

described!(
    TextsByField,
    json_schema!({
        "type": "object", "propertyNames": { "enum": Field::ALL },
        "additionalProperties": { "type": "string" },
    })
);

impl Deref for TextsByField {
    type Target = BTreeMap<Field, String>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Field {
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
}

/// The value of a field in its source.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A whole number.
    Integer(i64),
    /// Another number.
    Real(f64),
    /// Text.
    Text(String),
    /// Bytes, or text that is not UTF-8.
    Bytes(Vec<u8>),
    /// A value of so many bytes, too large to be read.
    TooLarge(u64),
}

impl Cell {
    /// Its bytes as a payload.
    pub(crate) fn raw(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Integer(n) => n.to_string().into_bytes().into(),
            Self::Real(n) => n.to_string().into_bytes().into(),
            Self::Text(text) => text.as_bytes().into(),
            Self::Bytes(bytes) => bytes.into(),
            Self::TooLarge(_) => Cow::default(),
        }
    }

    /// Its text for a field other than the payload; `None` if it is empty.
    pub(crate) fn text(&self) -> Result<Option<String>, String> {
        Ok(match self {
            Self::Integer(n) => Some(n.to_string()),
            Self::Real(n) => Some(n.to_string()),
            Self::Text(text) if text.is_empty() => None,
            Self::Text(text) => Some(text.clone()),
            Self::Bytes(_) => return Err("is not text in UTF-8".to_owned()),
            Self::TooLarge(bytes) => return Err(format!("has {bytes} bytes, which is too much")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_the_name_that_serde_reads() {
        for field in Field::ALL {
            assert_eq!(serde_json::to_value(field).unwrap(), field.as_str());
        }
    }
}
